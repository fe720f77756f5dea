#include "threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

#include "turns.h"

namespace regard {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto WAIT_AWAKE = std::chrono::microseconds(500);  // before a thread whose work is done sleeps
constexpr auto ASK_AGAIN = std::chrono::milliseconds(20);    // whether to stop

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// Memory of one thread, kept from call to call while it is small.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }

  void* of(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > size_) {
      memory_.reset(std::aligned_alloc(64, bytes));
      if (!memory_) { size_ = 0; throw std::bad_alloc(); }
      size_ = bytes;
    }
    return memory_.get();
  }

  void shrink() {
    if (size_ <= SMALL) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr size_t SMALL = size_t(1) << 24;

  void swap(Memory& other) {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
  }

  std::unique_ptr<void, Free> memory_;
  size_t size_ = 0;
};

struct Job {
  ptrdiff_t tasks = 0;
  size_t scratch = 0;
  const std::function<void(ptrdiff_t, void*)>* work = nullptr;
  std::atomic<ptrdiff_t> next{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> out_of_memory{false};

  template <class Ask> void take_part(Memory& memory, Ask ask) {
    void* room = nullptr;
    try {
      room = memory.of(scratch);
    } catch (const std::bad_alloc&) {
      out_of_memory = stopped = true;
      return;
    }
    while (!stopped) {
      const ptrdiff_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) return;
      (*work)(task, room);
      if (ask()) stopped = true;
    }
  }
};

// The threads beside the caller. Never destroyed: at the end of the process they sleep.
class Pool {
 public:
  std::mutex busy;

  // Offer the job to `helpers` threads and do it with those that come. One that is still asleep when the last task is
  // taken is not waited for.
  template <class Ask> void run(Job& job, unsigned helpers, Memory& mine, Ask ask) {
    grow(helpers);
    keep_off_caller(helpers);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      wanted_ = helpers;
      round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job.take_part(mine, ask);
    {
      std::lock_guard lock(mutex_);
      job_ = nullptr;
    }
    for (int tries = 0; working_.load(std::memory_order_acquire) != 0; ++tries) {
      if (tries < 1000) pause();
      else std::this_thread::yield();  // others may need this processor
    }
  }

 private:
  struct Helper {
    std::thread::native_handle_type thread;
#if defined(__linux__)
    cpu_set_t keeps_to{};  // as it was told; nothing yet
#endif
  };

  void grow(unsigned helpers) {
    try {
      helpers_.reserve(helpers);
      while (helpers_.size() < helpers) {
        std::thread thread([this, number = unsigned(helpers_.size())] { live(number); });
        helpers_.push_back({thread.native_handle()});
        thread.detach();
      }
    } catch (const std::exception&) {  // no more to be had: those that there are do it
    }
  }

  // Have the helpers woken elsewhere than on the caller's processor, among those that it may use. Linux may wake them
  // there, to take turns with the caller, though others have nothing to do: in a virtual machine a processor at rest
  // looks to it as if it were taken.
  void keep_off_caller([[maybe_unused]] size_t helpers) {
#if defined(__linux__)
    const int here = sched_getcpu();
    cpu_set_t others;
    if (here < 0 || sched_getaffinity(0, sizeof others, &others) != 0) return;  // it fails for more than a set holds
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) == 0) return;
    for (size_t i = 0; i < std::min(helpers, helpers_.size()); ++i) {
      Helper& helper = helpers_[i];
      if (CPU_EQUAL(&helper.keeps_to, &others)) continue;
      if (pthread_setaffinity_np(helper.thread, sizeof others, &others) == 0) helper.keeps_to = others;
    }
#endif
  }

  void live(unsigned number) {
    Memory memory;
    uint64_t seen = 0;
    Job* job = nullptr;
    for (;;) {
      const auto awake = job ? Clock::now() + WAIT_AWAKE : Clock::time_point();
      while (round_.load(std::memory_order_acquire) == seen && Clock::now() < awake) rest();
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != seen; });
        seen = round_.load(std::memory_order_relaxed);
        job = number < wanted_ ? job_ : nullptr;
        if (job) working_.fetch_add(1, std::memory_order_relaxed);
      }
      if (!job) continue;
      job->take_part(memory, [] { return false; });
      memory.shrink();
      working_.fetch_sub(1, std::memory_order_release);
    }
  }

  // Wait a moment, and let others, such as the threads of a BLAS, have the processor if they want it.
  static void rest() {
    for (int i = 0; i < 50; ++i) pause();
    std::this_thread::yield();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  Job* job_ = nullptr;
  unsigned wanted_ = 0;
  std::vector<Helper> helpers_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> working_{0};
};

std::atomic<int> the_count{1};
std::atomic<Pool*> the_pool{new Pool};
#if defined(__unix__) || defined(__APPLE__)
// After a fork the threads are gone: the child makes new ones when it needs them.
[[maybe_unused]] const int forks = pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
#endif

}  // namespace

int num_threads() { return the_count; }
void set_num_threads(int count) { the_count = std::min(std::max(1, count), 1024); }

// For threadpoolctl, which looks for them in the library by name.
extern "C" {
__attribute__((visibility("default"))) int regard_num_threads() { return num_threads(); }
__attribute__((visibility("default"))) void regard_set_num_threads(int count) { set_num_threads(count); }
}

bool parallel(ptrdiff_t tasks, int most_threads, size_t scratch, const std::function<void(ptrdiff_t, void*)>& work,
              const std::function<bool()>& stop) {
  // Whoever is asked whether to stop may call us again, on this thread: such a call has memory of its own, and no helpers.
  static thread_local Memory kept;
  static thread_local bool inside = false;
  const bool outermost = !inside;
  Memory mine = std::move(kept);
  inside = true;
  Job job;
  job.tasks = tasks, job.scratch = scratch, job.work = &work;
  auto asked = Clock::now();
  const auto ask = [&] {
    const auto now = Clock::now();
    if (now - asked < ASK_AGAIN) return false;
    asked = now;
    return stop();
  };
  const auto helpers = std::min<ptrdiff_t>(std::min(num_threads(), most_threads), tasks) - 1;
  Pool& pool = *the_pool;
  std::unique_lock<std::mutex> lock;
  if (helpers > 0 && outermost) lock = std::unique_lock(pool.busy, std::try_to_lock);
  if (lock) pool.run(job, unsigned(helpers), mine, ask);
  else job.take_part(mine, ask);
  mine.shrink();
  kept = std::move(mine);
  inside = !outermost;
  if (job.out_of_memory) throw std::bad_alloc();
  return !job.stopped;
}

void wait_for_turn(const int32_t* turn, int32_t mine, const bool* given_up) {
  for (int tries = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; ++tries) {
    if (__atomic_load_n(given_up, __ATOMIC_RELAXED)) return;
    if (tries < 1000) pause();
    else std::this_thread::yield();  // whoever is before may need this processor
  }
}

}  // namespace regard
