// Parameters of the linear map.
#pragma once

#include <cstddef>

#include "common.h"
#include "ops/activation_list.h"

namespace regard {

enum class Activation : int { identity, REGARD_ACTIVATIONS(REGARD_ENUMERATOR) };

// Packed weights are panels of NR columns, one row for each input; the last panel is padded with zeros.
constexpr ptrdiff_t NR = 48;

// Quantized weights are packed as groups of GROUP columns (gemm/quantized.h); the last group is padded with zeros.
constexpr ptrdiff_t GROUP = 16;
// f(name, inputs of a block, its 16-bit fields, its 32-bit words)
#define REGARD_QUANTIZATIONS(f)                                                                                 \
  f(q4_0, 32, 1, 4) f(q4_1, 32, 2, 4) f(q5_0, 32, 1, 5) f(q5_1, 32, 2, 5) f(q8_0, 32, 1, 8) f(q4_k, 256, 2, 35) \
      f(q5_k, 256, 2, 43) f(q6_k, 256, 1, 52) f(f16, 1, 1, 0) f(bf16, 1, 1, 0)
#define REGARD_QUANTIZATION_NAME(name, inputs, halves, words) name,
enum class Quantization : int { none, REGARD_QUANTIZATIONS(REGARD_QUANTIZATION_NAME) };
#undef REGARD_QUANTIZATION_NAME

struct BlockLayout {
  ptrdiff_t inputs, halves, words;
  ptrdiff_t bytes() const { return 2 * halves + 4 * words; }
};
static inline BlockLayout block_layout(Quantization quantization) {
  switch (quantization) {
#define REGARD_CASE(name, inputs, halves, words) \
  case Quantization::name: return {inputs, halves, words};
    REGARD_QUANTIZATIONS(REGARD_CASE)
#undef REGARD_CASE
    default: return {1, 0, 0};
  }
}

// Bytes of the 16-bit fields of a group, and of a whole group, of `depth` inputs; both are multiples of a cache line.
static inline ptrdiff_t group_halves_bytes(Quantization quantization, ptrdiff_t depth) {
  const BlockLayout block = block_layout(quantization);
  return product(ceil_div(product(depth / block.inputs, block.halves, GROUP * 2), 64), 64);
}
static inline ptrdiff_t group_bytes(Quantization quantization, ptrdiff_t depth) {
  const BlockLayout block = block_layout(quantization);
  return group_halves_bytes(quantization, depth) + product(depth / block.inputs, block.words, GROUP * 4);
}

// activation(x W + b), or SwiGLU, or x W^T. Strides count elements; the output is contiguous.
struct LinearParams {
  ptrdiff_t rows, depth, columns;
  const char *x, *weight, *bias;
  ptrdiff_t x_row_stride, x_col_stride, weight_row_stride, weight_col_stride;
  char* output;
  char* residual = nullptr;  // to which the output is added, of its shape and layout
  DType dtype;               // of all arrays but quantized weights
  Activation activation = Activation::identity;
  bool is_packed = false;
  bool is_gated = false;  // SwiGLU: silu(first half of the columns) * (second half), without activation and residual
  bool is_transposed = false;  // x W^T, of quantized weights alone: x has `columns` features, the output `depth`
  Quantization quantization = Quantization::none;
  char* fixed_x = nullptr;  // x in fixed point, where it is multiplied so: fixed_point_bytes(params) for each row
  // Without effect on the result:
  ptrdiff_t panels_per_task = 1;  // of NR output columns, for which a block of x is read once
  ptrdiff_t threads = 1;          // that share the tasks

  ptrdiff_t output_columns() const { return is_gated ? columns / 2 : columns; }
};

// Pack the columns of a weight into panels, beginning at column `first_column` of these.
struct PackParams {
  ptrdiff_t depth, columns, first_column;
  const char* weight;
  ptrdiff_t weight_row_stride, weight_col_stride;
  char* panels;
  DType dtype;
};
static inline ptrdiff_t first_panel(const PackParams& params) { return params.first_column / NR; }

// Pack quantized weights, a row of blocks for each column, into groups.
struct QuantizedPackParams {
  Quantization quantization;
  ptrdiff_t depth, columns;
  const char* blocks;
  ptrdiff_t row_stride;  // bytes
  char* groups;
};

}  // namespace regard
