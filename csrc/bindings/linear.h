// The linear map, for bindings that run several steps in one call.
#pragma once

#include <string>

#include "bindings/arrays.h"
#include "gemm/params.h"
#include "runtime/buffer_pool.h"

namespace regard {

inline const char* data_ptr(const Array& a) { return static_cast<const char*>(static_cast<const void*>(a.data())); }
template <class A> ptrdiff_t stride_of(const A& a, size_t axis) {
  return a.shape(axis) < 2 ? 1 : ptrdiff_t(a.stride(axis));
}
template <class A> bool is_contiguous(const A& a) {  // in C order
  if (a.size() == 0) return true;
  ptrdiff_t step = 1;
  for (size_t axis = a.ndim(); axis-- > 0; step = product(step, a.shape(axis)))
    if (a.shape(axis) > 1 && ptrdiff_t(a.stride(axis)) != step) return false;
  return true;
}
template <class A> ptrdiff_t last_axis(const A& a) { return ptrdiff_t(a.shape(a.ndim() - 1)); }

template <class A> DType dtype_of(const char* name, const A& x) {
  const DType dtype = x.dtype() == nb::dtype<double>() ? DType::float64 : DType::float32;
  check_dtype(name, x, dtype);
  return dtype;
}

// The number of rows of x; the output must have the same axes before the last.
inline ptrdiff_t num_rows(const WritableArray& output, const Array& x) {
  if (x.ndim() == 0 || output.ndim() != x.ndim()) throw_invalid("x and the output", "need the same number of axes");
  ptrdiff_t rows = 1;
  for (size_t axis = 0; axis + 1 < x.ndim(); ++axis) {
    if (x.shape(axis) != output.shape(axis)) throw_invalid("x and the output", "have different shapes");
    rows = product(rows, x.shape(axis));
  }
  return rows;
}

// Memory for an intermediate result.
class TemporaryBuffer {
 public:
  TemporaryBuffer(ptrdiff_t rows, ptrdiff_t columns, DType dtype)
      : bytes_(size_t(product(rows, columns, dtype == DType::float64 ? 8 : 4))), data_(acquire_buffer(bytes_)) {}
  TemporaryBuffer(const TemporaryBuffer&) = delete;
  ~TemporaryBuffer() { release_buffer(data_, bytes_); }
  operator char*() const { return static_cast<char*>(data_); }

 private:
  const size_t bytes_;
  void* const data_;
};

Quantization quantization_named(const std::string&);  // "none" for weights that are not quantized

// A linear map from `depth` to `columns` features, without its input and output. The weight is a matrix, panels of
// `pack`, or groups of `pack_quantized`.
LinearParams linear_params(const Array& weight, const OptionalArray& bias, Activation activation, DType dtype,
                           ptrdiff_t depth, ptrdiff_t columns, Quantization quantization = Quantization::none);

// `x`, `output` and `residual`, to which the output is added if it is given, are contiguous rows.
void run_linear(LinearParams params, ptrdiff_t rows, const char* x, char* output, char* residual = nullptr);

// SwiGLU of the two halves of the columns, in one pass, to an output of half as many; x and it are contiguous rows.
// False, and nothing is done, where the kernel has no such pass.
bool run_gated_linear(LinearParams params, ptrdiff_t rows, const char* x, char* output);

}  // namespace regard
