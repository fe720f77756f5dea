// A thread pool. One call at a time uses it; a concurrent call runs on its own thread only.
#pragma once

#include <cstddef>
#include <functional>

namespace regard {

int num_threads();
void set_num_threads(int count);

// Call work(task, scratch) for each task from 0 on, on this thread and at most max_threads - 1 others, each with
// `scratch` bytes of its own memory. `stop` is polled on this thread, and cancels if it returns true. Returns whether
// all tasks ran.
bool parallel_for(ptrdiff_t tasks, int max_threads, size_t scratch, const std::function<void(ptrdiff_t, void*)>& work,
                  const std::function<bool()>& stop);

// While it lives, the calls of parallel_for on this thread share workers that stay awake between them, which makes
// short calls worthwhile. Without effect where the pool is in use.
class ParallelRegion {
 public:
  explicit ParallelRegion(int max_threads);
  ParallelRegion(const ParallelRegion&) = delete;
  ~ParallelRegion();

  struct Members;

 private:
  Members* members_ = nullptr;
};
bool in_parallel_region();

}  // namespace regard
