// Scratch memory of a task.
#pragma once

#include "simd/simd.h"

namespace regard::REGARD_ISA {

// Bump allocator over a thread's scratch memory; allocations are aligned to cache lines. Constructed with nullptr it
// only counts bytes, so the code that allocates also measures what it needs.
class Scratch {
 public:
  explicit Scratch(void* memory) : base_(static_cast<char*>(memory)) {}

  template <class T> T* allocate(ptrdiff_t count) {
    T* block = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += size_t(round_up(count * ptrdiff_t(sizeof(T)), 64));
    return block;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

}  // namespace regard::REGARD_ISA
