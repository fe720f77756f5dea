#include "runtime/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
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

#include "common.h"
#include "runtime/openmp.h"
#include "runtime/ordered_accumulation.h"

namespace regard {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto SPIN_TIME = std::chrono::microseconds(500);  // a worker spins before it sleeps
constexpr auto STOP_POLL_INTERVAL = std::chrono::milliseconds(20);

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr std::align_val_t LINE{64};
struct LineDeleter {
  void operator()(void* p) const { ::operator delete(p, LINE); }
};

// Scratch memory of one thread, kept between calls while it is small.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(ScratchMemory&& other) noexcept { swap(other); }
  ScratchMemory& operator=(ScratchMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  void* reserve(size_t bytes) {
    bytes = size_t(product(ceil_div(ptrdiff_t(bytes), 64), 64));
    if (bytes > size_) {
      memory_.reset(::operator new(bytes, LINE, std::nothrow));
      if (!memory_) {
        size_ = 0;
        throw_out_of_memory();
      }
      size_ = bytes;
    }
    return memory_.get();
  }

  void shrink() {
    if (size_ <= KEPT_BYTES) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr size_t KEPT_BYTES = size_t(1) << 24;

  void swap(ScratchMemory& other) {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
  }

  std::unique_ptr<void, LineDeleter> memory_;
  size_t size_ = 0;
};

// Tasks that several threads take, one stage after another.
class Job {
 public:
  std::atomic<bool> stopped{false}, out_of_memory{false};

  // Run a stage on this thread and on those that are in work_on(). At most MAX_TASKS tasks.
  template <class ShouldStop>
  void run_stage(ptrdiff_t tasks, size_t scratch, const std::function<void(ptrdiff_t, void*)>& work,
                 ScratchMemory& memory, ShouldStop should_stop) {
    work_ = &work, scratch_ = scratch;
    unfinished_.store(tasks, std::memory_order_relaxed);
    state_.store(uint64_t(tasks) << 32, std::memory_order_release);
    while (run_next(memory))
      if (should_stop()) cancel();
    for (int tries = 0; unfinished_.load(std::memory_order_acquire) != 0; ++tries) wait(tries);
  }

  // Take part in all stages until close().
  void work_on(ScratchMemory& memory) {
    for (int tries = 0;; ++tries) {
      while (run_next(memory)) tries = 0;
      if (!open_.load(std::memory_order_acquire)) return;
      wait(tries);
    }
  }

  void close() { open_.store(false, std::memory_order_release); }

  static constexpr ptrdiff_t MAX_TASKS = ptrdiff_t(1) << 30;

 private:
  bool run_next(ScratchMemory& memory) {
    uint64_t state = state_.load(std::memory_order_acquire);
    do {
      if (uint32_t(state) == state >> 32) return false;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    void* scratch_memory = nullptr;
    try {
      scratch_memory = memory.reserve(scratch_);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
      cancel();
    }
    if (!stopped) (*work_)(ptrdiff_t(uint32_t(state)), scratch_memory);
    unfinished_.fetch_sub(1, std::memory_order_release);
    return true;
  }

  // Take all tasks that are left, without running them.
  void cancel() {
    stopped = true;
    uint64_t state = state_.load();
    while (!state_.compare_exchange_weak(state, (state >> 32) << 32 | state >> 32)) {
    }
    unfinished_.fetch_sub(ptrdiff_t((state >> 32) - uint32_t(state)), std::memory_order_release);
  }

  static void wait(int tries) {
    if (tries < 1000)
      pause();
    else
      std::this_thread::yield();  // give the processor to other threads
  }

  std::atomic<uint64_t> state_{0};  // the tasks of the stage << 32 | those taken
  std::atomic<ptrdiff_t> unfinished_{0};
  std::atomic<bool> open_{true};
  const std::function<void(ptrdiff_t, void*)>* work_ = nullptr;
  size_t scratch_ = 0;
};

// The worker threads, besides the caller. Never destroyed: at exit they sleep.
class Pool {
 public:
  std::mutex busy;

  // Give the job to at most `workers` threads. One that has not woken up by end() is not waited for.
  void begin(Job& job, unsigned workers) {
    add_workers(workers);
    avoid_caller_cpu(workers);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      workers_wanted_ = workers;
      round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
  }

  void end(Job& job) {
    job.close();
    {
      std::lock_guard lock(mutex_);
      job_ = nullptr;
    }
    for (int tries = 0; working_.load(std::memory_order_acquire) != 0; ++tries) {
      if (tries < 1000)
        pause();
      else
        std::this_thread::yield();  // give the processor to other threads
    }
  }

 private:
  struct Worker {
    std::thread::native_handle_type thread;
#if defined(__linux__)
    cpu_set_t affinity{};  // last set; initially none
#endif
  };

  void add_workers(unsigned workers) {
    try {
      workers_.reserve(workers);
      while (workers_.size() < workers) {
        std::thread thread([this, number = unsigned(workers_.size())] { worker_loop(number); });
        workers_.push_back({thread.native_handle()});
        thread.detach();
      }
    } catch (const std::exception&) {  // out of threads: continue with those that exist
    }
  }

  // Exclude the caller's processor from the workers' affinity. Linux may otherwise wake a worker there although other
  // processors are idle: in a virtual machine, an idle processor looks busy to the scheduler.
  void avoid_caller_cpu([[maybe_unused]] size_t workers) {
#if defined(__linux__)
    const int here = sched_getcpu();
    cpu_set_t others;
    if (here < 0 || sched_getaffinity(0, sizeof others, &others) != 0)
      return;  // fails on machines with more processors than cpu_set_t holds
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) == 0) return;
    for (size_t i = 0; i < std::min(workers, workers_.size()); ++i) {
      Worker& worker = workers_[i];
      if (CPU_EQUAL(&worker.affinity, &others)) continue;
      if (pthread_setaffinity_np(worker.thread, sizeof others, &others) == 0) worker.affinity = others;
    }
#endif
  }

  void worker_loop(unsigned number) {
    ScratchMemory memory;
    uint64_t last_round = 0;
    Job* job = nullptr;
    for (;;) {
      const auto awake = job ? Clock::now() + SPIN_TIME : Clock::time_point();
      while (round_.load(std::memory_order_acquire) == last_round && Clock::now() < awake) spin();
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != last_round; });
        last_round = round_.load(std::memory_order_relaxed);
        job = number < workers_wanted_ ? job_ : nullptr;
        if (job) working_.fetch_add(1, std::memory_order_relaxed);
      }
      if (!job) continue;
      job->work_on(memory);
      memory.shrink();
      working_.fetch_sub(1, std::memory_order_release);
    }
  }

  // Pause briefly, then yield to other threads, such as those of a BLAS.
  static void spin() {
    for (int i = 0; i < 50; ++i) pause();
    std::this_thread::yield();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  Job* job_ = nullptr;
  unsigned workers_wanted_ = 0;
  std::vector<Worker> workers_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> working_{0};
};

std::atomic<int> thread_limit{1};
std::atomic<Pool*> pool_instance{new Pool};
#if defined(__unix__) || defined(__APPLE__)
// Threads do not survive a fork: the child starts with a new pool.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { pool_instance = new Pool; });
#endif

}  // namespace

int num_threads() { return thread_limit; }
void set_num_threads(int count) { thread_limit = std::min(std::max(1, count), 1024); }

// Looked up by name by threadpoolctl.
#if defined(_WIN32)
#define REGARD_EXPORT __declspec(dllexport)
#else
#define REGARD_EXPORT __attribute__((visibility("default")))
#endif
extern "C" {
REGARD_EXPORT int regard_num_threads() { return num_threads(); }
REGARD_EXPORT void regard_set_num_threads(int count) { set_num_threads(count); }
}

struct ParallelRegion::Members {
  std::unique_lock<std::mutex> lock;
  Pool& pool;
  Job job;
};

namespace {
thread_local ParallelRegion::Members* region = nullptr;
}

ParallelRegion::ParallelRegion(int max_threads) {
  const int workers = std::min(num_threads(), max_threads) - 1;
  Pool& pool = *pool_instance;
  if (workers < 1 || region) return;
  std::unique_lock lock(pool.busy, std::try_to_lock);
  if (!lock) return;
  region = members_ = new Members{std::move(lock), pool, {}};
  pool.begin(members_->job, unsigned(workers));
}

ParallelRegion::~ParallelRegion() {
  if (!members_) return;
  members_->pool.end(members_->job);
  delete members_;
  region = nullptr;
}

bool in_parallel_region() { return region != nullptr; }

namespace {
thread_local ScratchMemory scratch_memory;

// Run the stages of a job on this thread while up to `workers` others take part.
void run_with_workers(Pool& pool, Job& job, unsigned workers, const std::function<void()>& stages) {
  struct Team {
    Job& job;
    const std::function<void()>& stages;
    std::thread::id caller;
  } team{job, stages, std::this_thread::get_id()};
  const auto run_member = [](void* data) {
    const Team& team = *static_cast<Team*>(data);
    if (std::this_thread::get_id() == team.caller) {
      team.stages();
      return team.job.close();
    }
    team.job.work_on(scratch_memory);
    scratch_memory.shrink();
  };
  if (run_on_openmp(run_member, &team, workers + 1)) return;
  pool.begin(job, workers);
  stages();
  pool.end(job);
}
}  // namespace

bool parallel_for(ptrdiff_t tasks, int max_threads, size_t scratch, const std::function<void(ptrdiff_t, void*)>& work,
                  const std::function<bool()>& stop) {
  // `stop` may call parallel_for again on this thread: the nested call gets its own memory, and no workers.
  static thread_local bool nested = false;
  const bool outermost = !nested;
  ScratchMemory memory = std::move(scratch_memory);
  nested = true;
  auto last_poll = Clock::now();
  const auto should_stop = [&] {
    const auto now = Clock::now();
    if (now - last_poll < STOP_POLL_INTERVAL) return false;
    last_poll = now;
    return stop();
  };
  const auto workers = std::min<ptrdiff_t>(std::min(num_threads(), max_threads), tasks) - 1;
  Job own;
  Job& job = workers > 0 && outermost && region ? region->job : own;
  Pool& pool = *pool_instance;
  std::unique_lock<std::mutex> lock;
  if (workers > 0 && outermost && !region) lock = std::unique_lock(pool.busy, std::try_to_lock);
  const auto run_stages = [&] {
    for (ptrdiff_t first = 0; first < tasks && !job.stopped; first += Job::MAX_TASKS) {
      const std::function<void(ptrdiff_t, void*)> rest = [&](ptrdiff_t task, void* s) { work(first + task, s); };
      job.run_stage(std::min(tasks - first, Job::MAX_TASKS), scratch, first ? rest : work, memory, should_stop);
    }
  };
  if (lock)
    run_with_workers(pool, job, unsigned(workers), run_stages);
  else
    run_stages();
  memory.shrink();
  scratch_memory = std::move(memory);
  nested = !outermost;
  if (job.out_of_memory) throw_out_of_memory();
  return !job.stopped;
}

void wait_for_ticket(const int32_t* ticket, int32_t order, const bool* cancelled) {
  for (int tries = 0; __atomic_load_n(ticket, __ATOMIC_ACQUIRE) != order; ++tries) {
    if (__atomic_load_n(cancelled, __ATOMIC_RELAXED)) return;
    if (tries < 1000)
      pause();
    else
      std::this_thread::yield();  // the preceding task may need this processor
  }
}

}  // namespace regard
