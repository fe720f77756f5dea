// Parameters of the row-wise operations: softmax, norms, activations, rotary embeddings, embeddings with their norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.h"
#include "ops/activation_list.h"

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

enum class Op : int {
  softmax,
  layer_norm,
  rms_norm,
  layer_norm_vjp,
  rms_norm_vjp,
  add,
  column_sums,
  softmax_stats,
  scaled_softmax,
  REGARD_ACTIVATIONS(REGARD_ENUMERATOR) REGARD_ACTIVATIONS(REGARD_VJP_ENUMERATOR) swiglu,
  rope_half,
  rope_interleaved,
};

// Whether each element depends only on those at the same place; rows may then be split between tasks.
static inline bool is_elementwise(Op op) {
  switch (op) {
#define REGARD_CASE(name) \
  case Op::name:          \
  case Op::name##_vjp:
    REGARD_ACTIVATIONS(REGARD_CASE)
#undef REGARD_CASE
    case Op::add:
    case Op::swiglu: return true;
    default: return false;
  }
}

struct OpParams {
  Op op;
  ptrdiff_t rows, columns;
  ptrdiff_t pairs = 0;  // RoPE: rotated pairs, half the rotary dimension
  StridedRows x;
  StridedRows other;         // norms: the residual; swiglu: the up projection; vjps: the gradient of the result
  StridedRows weight, bias;  // norms: gain and bias; activations: bias of x, swiglu: `weight` is that of `other`;
                             // RoPE: cosines and sines; scaled_softmax: log-sum-exp and factor of each row
  StridedRows output;        // softmax_stats: maximum and sum of each row; column_sums: none
  double eps = 0;
  char* sums = nullptr;  // norm vjps, which may do without, and column_sums: for each task, sums over its rows for each
                         // column, those of the gradient of the weight and those of the gradient of the bias
};

// Rows of a task, at least, if it has sums: they then take little memory beside the rows.
constexpr ptrdiff_t SUMMED_ROWS = 64;

// Layer norm of the sums of embeddings: of a token, of its position and, if given, of a type. All contiguous.
struct EmbedParams {
  ptrdiff_t rows, columns, num_positions;  // the positions repeat
  const int64_t* ids;                      // rows of `token_embeddings`
  const char *token_embeddings, *position_embeddings, *type_embedding, *weight, *bias;
  double eps;
  char* output;
  DType dtype;
};
constexpr ptrdiff_t EMBED_ROWS_PER_TASK = 16;

// An update of AdamW, in place.
struct AdamWParams {
  ptrdiff_t size, decayed;  // the first `decayed` numbers decay
  char *x, *first, *second;
  const char* gradient;
  DType dtype;
  double scale;                    // of the gradient
  double decay;                    // x <- decay x
  double beta1, beta2;             // m <- m + (1 - beta1) (g - m), v <- beta2 v + (1 - beta2) g^2
  double size_of_step, root, eps;  // x <- x - size_of_step m / (sqrt(v) / root + eps)
};

}  // namespace regard
