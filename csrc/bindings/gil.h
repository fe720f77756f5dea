#pragma once

#include <Python.h>

namespace regard {

// PyEval_RestoreThread(); while the interpreter shuts down it does not return, and the thread sleeps: others may use
// what lies on its stack.
void restore_thread(PyThreadState* thread);

}  // namespace regard
