// The threads of an OpenMP library that the process has loaded, such as PyTorch's.
//
// Such a library's threads spin for milliseconds after its own parallel loops. Threads of a pool beside them would have
// to share the processors with them; work that is given to the spinning threads does not.
#pragma once

namespace regard {

// Compute parallel loops on the threads of GNU OpenMP from now on; false where it is not loaded.
bool use_openmp();

// Call f(data) on this thread and on at most `threads` - 1 others at the same time; false without GNU OpenMP.
bool run_on_openmp(void (*f)(void*), void* data, unsigned threads);

}  // namespace regard
