// Types and functions common to the kernels and the bindings.
#pragma once

#include <cstddef>

namespace regard {

// Element types of arrays.
enum class DType : int { float32, float64, float16, bfloat16, boolean, int32, int8 };

static inline ptrdiff_t ceil_div(ptrdiff_t length, ptrdiff_t size) { return length / size + (length % size > 0); }

[[noreturn]] void throw_out_of_memory();  // std::bad_alloc (defined in runtime/buffer_pool.cpp)

// The product of sizes. Sizes are the caller's, and may be absurd: an array that broadcasts to 2^57 columns takes four
// bytes. A product that overflows is more than there is memory for.
template <class... Sizes> static inline ptrdiff_t product(Sizes... sizes) {
  ptrdiff_t all = 1;
  bool overflows = false;
  ((overflows |= __builtin_mul_overflow(all, sizes, &all)), ...);
  if (overflows) throw_out_of_memory();
  return all;
}

}  // namespace regard
