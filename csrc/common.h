// Types and functions common to the kernels and the bindings.
#pragma once

#include <cstddef>

namespace regard {

// Element types of arrays.
enum class DType : int { float32, float64, float16, bfloat16, boolean, int32 };

static inline ptrdiff_t ceil_div(ptrdiff_t length, ptrdiff_t size) { return (length + size - 1) / size; }

}  // namespace regard
