// Compiled without exceptions (CMakeLists.txt). Python before 3.14 ends a thread that asks for the GIL while the
// interpreter shuts down, by pthread_exit(). glibc then unwinds the stack with libgcc, whose state the exception
// handling of another C++ library, such as the libc++ inside a wheel's kernel, does not understand. Without exceptions,
// a cleanup handler runs before the frames of C++ functions that have them are reached.
#include "bindings/gil.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <unistd.h>

#if defined(__EXCEPTIONS)
#error "compile this file with -fno-exceptions"
#endif

namespace regard {
namespace {
void sleep_for_ever(void*) {
  for (;;) pause();
}
}  // namespace

void restore_thread(PyThreadState* thread) {
  pthread_cleanup_push(sleep_for_ever, nullptr);
  PyEval_RestoreThread(thread);
  pthread_cleanup_pop(0);
}
}  // namespace regard
#else
namespace regard {
void restore_thread(PyThreadState* thread) { PyEval_RestoreThread(thread); }
}  // namespace regard
#endif
