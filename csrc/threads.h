// Threads that wait for work. One call at a time has them; a second call that comes meanwhile works by itself.
#pragma once

#include <cstddef>
#include <functional>

namespace regard {

int num_threads();
void set_num_threads(int count);

// Call work(task, scratch) for each task from 0, on this and other threads, at most `most_threads`, each with `scratch` bytes of its own.
// `stop` is asked now and then on this thread whether to give up; returns whether all tasks were done.
bool parallel(ptrdiff_t tasks, int most_threads, size_t scratch, const std::function<void(ptrdiff_t, void*)>& work,
              const std::function<bool()>& stop);

}  // namespace regard
