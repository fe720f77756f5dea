// Parameters of the linear map.
#pragma once

#include <cstddef>

#include "common.h"
#include "ops/activation_list.h"

namespace regard {

enum class Activation : int { identity, REGARD_ACTIVATIONS(REGARD_ENUMERATOR) };

// Packed weights are panels of NR columns, one row for each input; the last panel is padded with zeros.
constexpr ptrdiff_t NR = 48;

// activation(x W + b). Strides count elements; the output is contiguous.
struct LinearParams {
  ptrdiff_t rows, depth, columns;
  const char *x, *weight, *bias;
  ptrdiff_t x_row_stride, weight_row_stride, weight_col_stride;
  char* output;
  DType dtype;  // of all arrays
  Activation activation = Activation::identity;
  bool is_packed = false;
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

}  // namespace regard
