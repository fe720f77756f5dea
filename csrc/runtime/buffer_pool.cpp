#include "runtime/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "common.h"

namespace regard {
namespace {

constexpr size_t PAGE = 4096, LARGE_UNIT = size_t(512) << 10, HUGE_PAGE = size_t(2) << 20;
constexpr size_t MAX_BUFFERS = 2048;  // kept at once
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t MAX_POOLED_BYTES = 0;  // AddressSanitizer must see every free
#else
constexpr size_t MAX_POOLED_BYTES = size_t(64) << 20;
#endif
constexpr size_t MAX_RESIDENT_BYTES = 2 * MAX_POOLED_BYTES;  // beyond, the system may take the memory of free chunks
// Whether a buffer lies in a chunk: madvise() takes whole pages, which buffers are if pages are of 4 KB.
#if defined(MADV_HUGEPAGE) && !defined(__SANITIZE_ADDRESS__)
constexpr size_t CHUNK = size_t(32) << 20;
constexpr size_t MAX_IN_CHUNK = MAX_POOLED_BYTES ? CHUNK / 2 - LARGE_UNIT : 0;  // two fit into it
size_t page_size() {
  static const size_t size = size_t(sysconf(_SC_PAGESIZE));
  return size;
}
bool is_in_chunk(size_t bytes) { return bytes <= MAX_IN_CHUNK && page_size() == PAGE; }
#else
bool is_in_chunk(size_t) { return false; }
#endif

struct Buffer {
  void* data;
  size_t bytes;
};

// The buffers in chunks, or the others.
struct SizeClass {
  size_t pooled = 0;              // bytes of free buffers
  std::atomic<size_t> in_use{0};  // bytes of acquired buffers
  size_t max_in_use = 0;          // of buffers in chunks since the start, else since keep_buffers()
};

// Free buffers, the latest last. A thread that finds the mutex locked bypasses the pool: after a fork its owner may not
// exist.
struct Pool {
  std::mutex mutex;
  Buffer buffers[MAX_BUFFERS];
  size_t count = 0;
  int keepers = 0;  // how many calls of keep_buffers() have not ended
  SizeClass classes[2];

  SizeClass& size_class(size_t bytes) { return classes[is_in_chunk(bytes)]; }

  void* remove(size_t i) {
    void* const data = buffers[i].data;
    size_class(buffers[i].bytes).pooled -= buffers[i].bytes;
    std::copy(buffers + i + 1, buffers + count--, buffers + i);
    return data;
  }

  // Free buffers that may be kept. Of those in chunks, and of all while keep_buffers() asks for it, hardly more than
  // were in use at once, with those in use.
  size_t max_bytes(const SizeClass& size_class) const {
    const size_t used = size_class.in_use;
    const bool keeps_all = &size_class == &classes[1] || keepers;
    return MAX_POOLED_BYTES + (keeps_all && size_class.max_in_use > used ? size_class.max_in_use - used : 0);
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
void* map_pages(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

#if defined(MADV_HUGEPAGE)
// Map pages at a multiple of `alignment`, large ones where the system has them.
char* map_aligned(size_t bytes, size_t alignment) {
  bytes = (bytes + page_size() - 1) / page_size() * page_size();
  char* const data = static_cast<char*>(map_pages(bytes + alignment));
  if (!data) return nullptr;
  const size_t before = size_t(-reinterpret_cast<uintptr_t>(data)) % alignment;
  if (before) munmap(data, before);
  munmap(data + before + bytes, alignment - before);
  madvise(data + before, bytes, MADV_HUGEPAGE);
  return data + before;
}

// Buffers smaller than a large page, or not much larger, lie side by side in chunks of large pages: the system provides
// 4 KB pages ten times as slowly. A chunk without a buffer in use stays in the pool, but the system may take its memory
// when it needs some. Memory that is evicted from the pool returns to the system at once, addresses with the last
// buffer of a chunk.

struct Chunk {  // at its start; it is mapped at a multiple of CHUNK
  size_t bytes, used = PAGE;
  std::atomic<size_t> users{1};   // buffers, and one while new buffers may be taken from it
  std::atomic<size_t> in_use{0};  // buffers that are not in the pool

  explicit Chunk(size_t bytes) : bytes(bytes) {}

  static Chunk* create(size_t bytes) {
    char* const data = map_aligned(bytes, CHUNK);
    return data ? new (data) Chunk(bytes) : nullptr;
  }
  static Chunk* of(void* buffer) {
    return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(buffer) / CHUNK * CHUNK);
  }
  bool has_space(size_t wanted) const { return used + wanted <= bytes; }
  void* take(size_t wanted) {
    ++users, ++in_use;
    return reinterpret_cast<char*>(this) + (used += wanted) - wanted;
  }
  void leave() {
    if (users-- == 1) munmap(this, bytes);
  }
  bool is_free() const { return in_use == 0; }
  void enter_pool(bool is_full) {
    if (in_use-- == 1 && is_full) madvise(reinterpret_cast<char*>(this) + PAGE, used - PAGE, MADV_FREE);
  }
};
Chunk* open_chunk = nullptr;  // of the pool, under its mutex

// Remove from the pool the buffers of the chunk of the oldest one that has none in use, for buffers of other sizes.
Chunk* empty_free_chunk() {
  Chunk* found = nullptr;
  for (size_t i = 0; i < pool.count;) {
    const auto [data, bytes] = pool.buffers[i];
    Chunk* const chunk = is_in_chunk(bytes) ? Chunk::of(data) : nullptr;
    if (!found && chunk && chunk->is_free() && chunk->bytes == CHUNK) {
      found = chunk;
      ++found->users;  // as the open chunk has
      if (found == open_chunk) --found->users;
      found->used = PAGE;
    }
    if (found && chunk == found)
      pool.remove(i), --found->users;
    else
      ++i;
  }
  return found;
}

void* allocate_in_chunk(size_t bytes, bool is_locked) {
  if (!is_locked) {  // a chunk of its own
    Chunk* const chunk = Chunk::create(PAGE + bytes);
    if (!chunk) return nullptr;
    void* const data = chunk->take(bytes);
    chunk->leave();
    return data;
  }
  if (!open_chunk || !open_chunk->has_space(bytes)) {
    Chunk* chunk = empty_free_chunk();
    if (!chunk) chunk = Chunk::create(CHUNK);
    if (!chunk) return nullptr;
    if (open_chunk && open_chunk != chunk) open_chunk->leave();
    open_chunk = chunk;
  }
  return open_chunk->take(bytes);
}

void* system_allocate(size_t bytes, bool is_locked) {
  return is_in_chunk(bytes) ? allocate_in_chunk(bytes, is_locked) : map_aligned(bytes, HUGE_PAGE);
}

void system_free(void* data, size_t bytes) {
  if (!is_in_chunk(bytes)) {
    munmap(data, bytes);
    return;
  }
  madvise(data, bytes, MADV_DONTNEED);
  Chunk::of(data)->leave();
}

void leave_pool(void* data, size_t bytes) {
  if (is_in_chunk(bytes)) ++Chunk::of(data)->in_use;
}
void enter_pool(void* data, size_t bytes, bool is_full) {
  if (is_in_chunk(bytes)) Chunk::of(data)->enter_pool(is_full);
}
#else
void* system_allocate(size_t bytes, bool) { return map_pages(bytes); }
void system_free(void* data, size_t bytes) { munmap(data, bytes); }
void leave_pool(void*, size_t) {}
void enter_pool(void*, size_t, bool) {}
#endif
#else
void* system_allocate(size_t bytes, bool) { return std::malloc(bytes); }
void system_free(void* data, size_t) { std::free(data); }
void leave_pool(void*, size_t) {}
void enter_pool(void*, size_t, bool) {}
#endif

// Free the oldest buffers of a class until another one of these bytes fits.
void evict(SizeClass& size_class, size_t bytes) {
  const size_t most = pool.max_bytes(size_class);
  for (size_t i = 0; i < pool.count && (pool.count == MAX_BUFFERS || size_class.pooled + bytes > most);) {
    const size_t oldest_bytes = pool.buffers[i].bytes;
    if (&pool.size_class(oldest_bytes) == &size_class || pool.count == MAX_BUFFERS)
      system_free(pool.remove(i), oldest_bytes);
    else
      ++i;
  }
}

}  // namespace

void throw_out_of_memory() { throw std::bad_alloc(); }

void* acquire_buffer(size_t bytes) {
  if (bytes > PTRDIFF_MAX - LARGE_UNIT) throw_out_of_memory();
  bytes = round_size(bytes);
  SizeClass& size_class = pool.size_class(bytes);
  const size_t used = size_class.in_use += bytes;
  const std::unique_lock<std::mutex> lock(pool.mutex, std::try_to_lock);
  if (lock) {
    size_class.max_in_use = std::max(size_class.max_in_use, used);
    for (size_t i = pool.count; i-- > 0;)
      if (pool.buffers[i].bytes == bytes) {
        leave_pool(pool.buffers[i].data, bytes);
        return pool.remove(i);
      }
  }
  void* const data = system_allocate(bytes, bool(lock));
  if (lock) evict(size_class, 0);
  if (!data) size_class.in_use -= bytes, throw_out_of_memory();
  return data;
}

void release_buffer(void* data, size_t bytes) {
  bytes = round_size(bytes);
  SizeClass& size_class = pool.size_class(bytes);
  size_class.in_use -= bytes;
  const std::unique_lock<std::mutex> lock(pool.mutex, std::try_to_lock);
  if (!lock || bytes > pool.max_bytes(size_class)) {
    enter_pool(data, bytes, false);
    return system_free(data, bytes);
  }
  evict(size_class, bytes);
  pool.buffers[pool.count++] = {data, bytes};
  size_class.pooled += bytes;
  enter_pool(data, bytes, size_class.pooled > MAX_RESIDENT_BYTES);
}

void keep_buffers(bool keep) {
  const std::lock_guard<std::mutex> lock(pool.mutex);
  SizeClass& large = pool.classes[0];
  if (keep && !pool.keepers) large.max_in_use = large.in_use;
  pool.keepers += keep ? 1 : -1;
  evict(large, 0);
}

}  // namespace regard
