// Element types of the arrays that Python passes.
#pragma once

namespace regard {

enum class DType : int { float32, float64, float16, bfloat16, boolean, int32 };

}  // namespace regard
