#include "room.h"

#include <cstdlib>
#include <mutex>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace regard {
namespace {

constexpr size_t PAGE = 4096, LARGE = size_t(512) << 10, HUGE_PAGE = size_t(2) << 20;
constexpr size_t MOST = size_t(64) << 20;  // bytes that are kept
constexpr size_t MANY = 64;                // pieces that are kept

struct Piece {
  void* room;
  size_t bytes;
};

// The latest last. A thread that finds it in use does without: after a fork nobody may be left to release it.
struct Kept {
  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t bytes = 0;
};

Kept& kept() {
  static Kept* const all = new Kept;  // to the very end: results may be given back when everything else is gone
  return *all;
}

// Results of nearly the same size can take each other's place.
size_t whole(size_t bytes) {
  const size_t unit = bytes < HUGE_PAGE ? PAGE : LARGE;
  return (bytes + unit - 1) / unit * unit;
}

// From the system itself, which has all of it back at once.
#if defined(__unix__) || defined(__APPLE__)
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
  Kept& all = kept();
  if (std::unique_lock<std::mutex> lock(all.mutex, std::try_to_lock); lock) {
    for (size_t i = all.pieces.size(); i-- > 0;) {
      if (all.pieces[i].bytes != bytes) continue;
      void* const room = all.pieces[i].room;
      all.pieces.erase(all.pieces.begin() + ptrdiff_t(i));
      all.bytes -= bytes;
      return room;
    }
  }
  return from_system(bytes);
}

void give_room(void* room, size_t bytes) {
  bytes = whole(bytes);
  Kept& all = kept();
  std::vector<Piece> gone;  // freed when the lock is
  {
    std::unique_lock<std::mutex> lock(all.mutex, std::try_to_lock);
    if (!lock || bytes > MOST) return to_system(room, bytes);
    all.pieces.push_back({room, bytes});
    all.bytes += bytes;
    while (all.bytes > MOST || all.pieces.size() > MANY) {
      gone.push_back(all.pieces.front());
      all.bytes -= all.pieces.front().bytes;
      all.pieces.erase(all.pieces.begin());
    }
  }
  for (const Piece& piece : gone) to_system(piece.room, piece.bytes);
}

}  // namespace regard
