#include "room.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace regard {
namespace {

constexpr size_t PAGE = 4096, LARGE = size_t(512) << 10, HUGE_PAGE = size_t(2) << 20;
constexpr size_t MANY = 64;  // pieces that are kept
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t MOST = 0;  // what is kept could not be watched
#else
constexpr size_t MOST = size_t(64) << 20;  // bytes that are kept
#endif

struct Piece {
  void* room;
  size_t bytes;
};

// The latest last. A thread that finds it in use does without: after a fork nobody may be left to release it.
struct Kept {
  std::mutex mutex;
  Piece pieces[MANY];
  size_t count = 0, bytes = 0;

  void* take(size_t i) {
    void* const room = pieces[i].room;
    bytes -= pieces[i].bytes;
    std::copy(pieces + i + 1, pieces + count--, pieces + i);
    return room;
  }
};

Kept& kept = *new Kept;  // to the very end: results may be given back when everything else is gone

// Results of nearly the same size can take each other's place.
size_t whole(size_t bytes) {
  if (bytes == 0) bytes = 1;  // a place for nothing
  if (MOST == 0) return bytes;
  const size_t unit = bytes < HUGE_PAGE ? PAGE : LARGE;
  return (bytes + unit - 1) / unit * unit;
}

// From the system itself, which has all of it back at once.
#if !defined(__SANITIZE_ADDRESS__) && (defined(__unix__) || defined(__APPLE__))
void* from_system(size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (bytes >= HUGE_PAGE) madvise(room, bytes, MADV_HUGEPAGE);
#endif
  return room;
}
void to_system(void* room, size_t bytes) { munmap(room, bytes); }
#else
void* from_system(size_t bytes) { return std::malloc(bytes); }
void to_system(void* room, size_t) { std::free(room); }
#endif

}  // namespace

void* take_room(size_t bytes) {
  bytes = whole(bytes);
  if (std::unique_lock<std::mutex> lock(kept.mutex, std::try_to_lock); lock) {
    for (size_t i = kept.count; i-- > 0;)
      if (kept.pieces[i].bytes == bytes) return kept.take(i);
  }
  return from_system(bytes);
}

void give_room(void* room, size_t bytes) {
  bytes = whole(bytes);
  std::unique_lock<std::mutex> lock(kept.mutex, std::try_to_lock);
  if (!lock || bytes > MOST) return to_system(room, bytes);
  while (kept.count == MANY || kept.bytes + bytes > MOST) {  // the oldest goes
    const size_t its = kept.pieces[0].bytes;
    to_system(kept.take(0), its);
  }
  kept.pieces[kept.count++] = {room, bytes};
  kept.bytes += bytes;
}

}  // namespace regard
