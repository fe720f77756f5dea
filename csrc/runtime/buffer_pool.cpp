#include "runtime/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#include "common.h"

namespace regard {
namespace {

constexpr size_t PAGE = 4096, LARGE_UNIT = size_t(512) << 10, HUGE_PAGE = size_t(2) << 20;
constexpr size_t MAX_BUFFERS = 512;  // kept at once
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t MAX_POOLED_BYTES = 0;  // AddressSanitizer must see every free
#else
constexpr size_t MAX_POOLED_BYTES = size_t(64) << 20;
#endif

struct Buffer {
  void* data;
  size_t bytes;
};

// Free buffers, the latest last. A thread that finds the mutex locked bypasses the pool: after a fork its owner may not
// exist.
struct Pool {
  std::mutex mutex;
  Buffer buffers[MAX_BUFFERS];
  size_t count = 0, bytes = 0;
  int keepers = 0;                // how many calls of keep_buffers() have not ended
  std::atomic<size_t> in_use{0};  // bytes of acquired buffers
  size_t max_in_use = 0;          // since keep_buffers()

  void* remove(size_t i) {
    void* const data = buffers[i].data;
    bytes -= buffers[i].bytes;
    std::copy(buffers + i + 1, buffers + count--, buffers + i);
    return data;
  }

  // Free buffers that may be kept: with those in use, hardly more than were in use at once.
  size_t max_bytes() const {
    const size_t used = in_use;
    return MAX_POOLED_BYTES + (keepers && max_in_use > used ? max_in_use - used : 0);
  }
};

Pool& pool = *new Pool;  // never destroyed: buffers may be released after static destructors

// Sizes are rounded up, so that buffers of similar sizes are interchangeable.
size_t round_size(size_t bytes) {
  if (bytes == 0) bytes = 1;
  if (MAX_POOLED_BYTES == 0) return bytes;
  const size_t unit = bytes < HUGE_PAGE ? PAGE : LARGE_UNIT;
  return (bytes + unit - 1) / unit * unit;
}

// Directly from the system, to which freed memory returns at once.
#if !defined(__SANITIZE_ADDRESS__) && (defined(__unix__) || defined(__APPLE__))
void* system_allocate(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (bytes >= HUGE_PAGE) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}
void system_free(void* data, size_t bytes) { munmap(data, bytes); }
#else
void* system_allocate(size_t bytes) { return std::malloc(bytes); }
void system_free(void* data, size_t) { std::free(data); }
#endif

// Free the oldest buffers until another one of these bytes fits.
void evict(size_t bytes) {
  const size_t most = pool.max_bytes();
  while (pool.count && (pool.count == MAX_BUFFERS || pool.bytes + bytes > most)) {
    const size_t oldest_bytes = pool.buffers[0].bytes;
    system_free(pool.remove(0), oldest_bytes);
  }
}

}  // namespace

void throw_out_of_memory() { throw std::bad_alloc(); }

void* acquire_buffer(size_t bytes) {
  if (bytes > PTRDIFF_MAX - LARGE_UNIT) throw_out_of_memory();
  bytes = round_size(bytes);
  const size_t used = pool.in_use += bytes;
  if (std::unique_lock<std::mutex> lock(pool.mutex, std::try_to_lock); lock) {
    pool.max_in_use = std::max(pool.max_in_use, used);
    for (size_t i = pool.count; i-- > 0;)
      if (pool.buffers[i].bytes == bytes) return pool.remove(i);
    evict(0);
  }
  void* const data = system_allocate(bytes);
  if (!data) pool.in_use -= bytes, throw_out_of_memory();
  return data;
}

void release_buffer(void* data, size_t bytes) {
  bytes = round_size(bytes);
  pool.in_use -= bytes;
  std::unique_lock<std::mutex> lock(pool.mutex, std::try_to_lock);
  if (!lock || bytes > pool.max_bytes()) return system_free(data, bytes);
  evict(bytes);
  pool.buffers[pool.count++] = {data, bytes};
  pool.bytes += bytes;
}

void keep_buffers(bool keep) {
  const std::lock_guard<std::mutex> lock(pool.mutex);
  if (keep && !pool.keepers) pool.max_in_use = pool.in_use;
  pool.keepers += keep ? 1 : -1;
  evict(0);
}

}  // namespace regard
