#include "runtime/openmp.h"

#include <atomic>
#include <cstring>
#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#endif

namespace regard {
namespace {

// A compiler calls this for `#pragma omp parallel`: a part of the library's stable binary interface.
using Parallel = void (*)(void (*f)(void*), void* data, unsigned threads, unsigned flags);
std::atomic<Parallel> parallel{nullptr};

#if defined(__linux__)
// The symbols of an extension module's libraries are local (RTLD_LOCAL), so look at each loaded library.
int find_parallel(dl_phdr_info* library, size_t, void*) {
  const char* name = std::strrchr(library->dlpi_name, '/');
  if (!name || std::strncmp(name, "/libgomp", 8) != 0) return 0;
  void* const handle = dlopen(library->dlpi_name, RTLD_NOW | RTLD_NOLOAD);  // kept: it stays loaded
  if (handle) parallel = reinterpret_cast<Parallel>(dlsym(handle, "GOMP_parallel"));
  return parallel != nullptr;
}

// GNU OpenMP's threads do not survive a fork, and it does not notice.
void forget() { parallel = nullptr; }
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, forget);
#endif

}  // namespace

bool use_openmp() {
#if defined(__linux__)
  if (!parallel) dl_iterate_phdr(find_parallel, nullptr);
#endif
  return parallel != nullptr;
}

bool run_on_openmp(void (*f)(void*), void* data, unsigned threads) {
  const Parallel run = parallel;
  if (run) run(f, data, threads, 0);
  return run != nullptr;
}

}  // namespace regard
