// Matrices with arbitrary strides, and transposition.
#pragma once

#include "simd/simd.h"

namespace regard::REGARD_ISA {

template <class T> struct Matrix {
  const T* data;
  ptrdiff_t row_stride, col_stride;  // in elements

  // The submatrix whose first element is (i, j).
  REGARD_INLINE Matrix block(ptrdiff_t i, ptrdiff_t j = 0) const {
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
  REGARD_INLINE Matrix transposed() const { return {data, col_stride, row_stride}; }
};

// Call f(j, i, x) with x[n] = from[i + n][j] for each column j and each vector of rows. The rows of `from` are
// contiguous. Returns the number of rows visited, a multiple of the lanes of a vector.
template <class T, class F>
REGARD_INLINE ptrdiff_t for_each_column(const T* from, ptrdiff_t from_stride, ptrdiff_t rows, ptrdiff_t columns, F f) {
  constexpr int N = LANES<T>;
  ptrdiff_t i = 0;
  for (; i + N <= rows; i += N) {
    ptrdiff_t j = 0;
    for (; j + N <= columns; j += N) {
      V<T> x[N];
#pragma GCC unroll 32
      for (int r = 0; r < N; ++r) x[r] = load<T>(from + (i + r) * from_stride + j);
      transpose<N>(x);
#pragma GCC unroll 32
      for (int r = 0; r < N; ++r) f(j + r, i, x[r]);
    }
    for (; j < columns; ++j) {
      V<T> x;
      for (int r = 0; r < N; ++r) x[r] = from[(i + r) * from_stride + j];
      f(j, i, x);
    }
  }
  return i;
}

// to[j][i] = from[i][j]; the rows of `from` are contiguous.
template <class T>
void transpose_copy(const T* from, ptrdiff_t from_stride, ptrdiff_t rows, ptrdiff_t columns, T* to,
                    ptrdiff_t to_stride) {
  ptrdiff_t i = for_each_column<T>(from, from_stride, rows, columns,
                                   [=](ptrdiff_t j, ptrdiff_t at, V<T> x)
                                       __attribute__((always_inline)) { store<T>(to + j * to_stride + at, x); });
  for (; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
}

template <class T> void transpose_copy(Matrix<T> from, ptrdiff_t rows, ptrdiff_t columns, T* to, ptrdiff_t to_stride) {
  if (from.col_stride == 1) return transpose_copy<T>(from.data, from.row_stride, rows, columns, to, to_stride);
  for (ptrdiff_t i = 0; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j)
      to[j * to_stride + i] = from.data[i * from.row_stride + j * from.col_stride];
}

// The same for bytes (masks), in tiles of 16 x 16.
inline void transpose_copy(const uint8_t* from, ptrdiff_t from_stride, ptrdiff_t rows, ptrdiff_t columns, uint8_t* to,
                           ptrdiff_t to_stride) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  ptrdiff_t i = 0;
  for (; i + 16 <= rows; i += 16) {
    ptrdiff_t j = 0;
    for (; j + 16 <= columns; j += 16) {
      Bytes x[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) __builtin_memcpy(&x[r], from + (i + r) * from_stride + j, 16);
      transpose<16>(x);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) __builtin_memcpy(to + (j + r) * to_stride + i, &x[r], 16);
    }
    for (; j < columns; ++j)
      for (int r = 0; r < 16; ++r) to[j * to_stride + i + r] = from[(i + r) * from_stride + j];
  }
  for (; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
}

template <class T> bool all_finite(Matrix<T> x, ptrdiff_t rows, ptrdiff_t columns) {
  bool finite = true;
  V<T> zeros = {};
  for (ptrdiff_t i = 0; i < rows; ++i) {
    const T* row = x.data + i * x.row_stride;
    ptrdiff_t j = 0;
    for (; x.col_stride == 1 && j + LANES<T> <= columns; j += LANES<T>) {
      const V<T> v = load<T>(row + j);
      zeros += v - v;  // 0, or NaN for what is not finite
    }
    for (; j < columns; ++j) finite &= row[j * x.col_stride] - row[j * x.col_stride] == 0;
  }
  return finite && !any(zeros != 0);
}

}  // namespace regard::REGARD_ISA
