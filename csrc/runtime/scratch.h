// Scratch memory of a task.
#pragma once

#include "common.h"
#include "simd/simd.h"

namespace regard::REGARD_ISA {

// Bump allocator over a thread's scratch memory; allocations are aligned to cache lines. Constructed with nullptr it
// only counts bytes, so the code that allocates also measures what it needs.
class Scratch {
 public:
  explicit Scratch(void* memory) : base_(static_cast<char*>(memory)) {}

  // Space for an array of these sizes.
  template <class T, class... Sizes> T* allocate(Sizes... sizes) {
    T* block = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    const ptrdiff_t lines = ceil_div(product(ptrdiff_t(sizeof(T)), sizes...), 64);
    if (__builtin_add_overflow(used_, product(lines, 64), &used_)) throw_out_of_memory();
    return block;
  }
  size_t used() const { return size_t(used_); }

 private:
  char* base_;
  ptrdiff_t used_ = 0;
};

}  // namespace regard::REGARD_ISA
