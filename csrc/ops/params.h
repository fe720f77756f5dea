// Parameters of the row-wise operations: softmax, norms, activations, rotary embeddings.
#pragma once

#include <cstddef>

#include "dtype.h"

namespace regard {

// An array seen as rows along its last axis; strides of 0 broadcast. Absent: data is null.
constexpr int MAX_AXES = 8;
struct StridedRows {
  char* data = nullptr;
  int axes = 0;  // before the last
  ptrdiff_t shape[MAX_AXES], strides[MAX_AXES];
  ptrdiff_t col_stride = 1;
  DType dtype = DType::float32;

  explicit __attribute__((always_inline)) operator bool() const { return data != nullptr; }
};

enum class Op : int { softmax, layer_norm, rms_norm, gelu, gelu_tanh, silu, swiglu, rope_half, rope_interleaved };

struct OpParams {
  Op op;
  ptrdiff_t rows, columns;
  ptrdiff_t pairs = 0;  // RoPE: rotated pairs, half the rotary dimension
  StridedRows x;
  StridedRows other;         // norms: the residual; swiglu: the up projection
  StridedRows weight, bias;  // norms: gain and bias; activations: bias of x, swiglu: `weight` is that of `other`;
                             // RoPE: cosines and sines
  StridedRows output;
  double eps = 0;
};

}  // namespace regard
