// Access to one head of an operand: as a matrix of the compute type T, converted from and to half precision.
#pragma once

#include "attention/params.h"
#include "simd/half_precision.h"
#include "simd/matrix.h"

namespace regard::REGARD_ISA {

// The operand must have dtype T.
template <class T> REGARD_INLINE Matrix<T> head_matrix(const Operand& x, ptrdiff_t head) {
  return {reinterpret_cast<const T*>(x.data) + x.offsets[head], x.row_stride, x.col_stride};
}

// Rows start <= i < start + count as a matrix of T: in place, or, if they are half precision, converted into `buffer`
// (count x width).
template <class T>
Matrix<T> load_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* buffer) {
  if (!is_half(x.dtype)) return head_matrix<T>(x, head).block(start);
  if constexpr (sizeof(T) == 4) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + x.offsets[head] + start * x.row_stride;
    for (ptrdiff_t i = 0; i < count; ++i, from += x.row_stride)
      if (x.col_stride == 1)
        upcast(x.dtype, from, width, buffer + i * width);
      else
        for (ptrdiff_t j = 0; j < width; ++j) upcast(x.dtype, from + j * x.col_stride, 1, buffer + i * width + j);
  }
  return {buffer, width, 1};
}

// Store a row, rounded to the operand's dtype.
template <class T> void store_row(const T* from, ptrdiff_t width, const Operand& to, ptrdiff_t head, ptrdiff_t row) {
  const ptrdiff_t at = to.offsets[head] + row * to.row_stride;
  if (!is_half(to.dtype)) {
    for (ptrdiff_t j = 0; j < width; ++j) reinterpret_cast<T*>(to.data)[at + j * to.col_stride] = from[j];
  } else if constexpr (sizeof(T) == 4) {
    uint16_t* out = reinterpret_cast<uint16_t*>(to.data) + at;
    if (to.col_stride == 1)
      downcast(to.dtype, from, width, out);
    else
      for (ptrdiff_t j = 0; j < width; ++j) downcast(to.dtype, from + j, 1, out + j * to.col_stride);
  }
}

// Store `rows` rows from a transposed block, [width][BLOCK_QUERIES]. `buffer` holds BLOCK_QUERIES * width elements.
template <class T>
void store_transposed(const T* from, ptrdiff_t rows, ptrdiff_t width, const Operand& to, ptrdiff_t head,
                      ptrdiff_t start, T* buffer) {
  if (!is_half(to.dtype) && to.col_stride == 1) {
    T* out = reinterpret_cast<T*>(to.data) + to.offsets[head] + start * to.row_stride;
    return transpose_copy<T>(from, BLOCK_QUERIES, width, rows, out, to.row_stride);
  }
  transpose_copy<T>(from, BLOCK_QUERIES, width, rows, buffer, width);
  for (ptrdiff_t i = 0; i < rows; ++i) store_row<T>(buffer + i * width, width, to, head, start + i);
}

}  // namespace regard::REGARD_ISA
