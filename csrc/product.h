// The one matrix product that everything here is made of: C[i][lanes] = sum over t of A[i][t] * B[t][lanes].
//
// A is read number by number, each of which multiplies a whole vector of B: so A may have any strides, and B has to
// be packed, `lanes` numbers in a row. A tile of C, ROWS rows by VECTORS vectors if not said otherwise, stays in
// registers until its sum is complete. Each number of C is the same chain of fused multiplications and additions over
// t, whatever tile it falls into: what is computed twice comes out the same twice.
#pragma once

#include "simd.h"

namespace regard::REGARD_ISA {

enum class Into {
  set,      // C = A B
  scale,    // C = (A B) * factor[0]
  add,      // C = C + A B
  rescale,  // C = C * factor[lanes] + A B
};

template <class T> struct Matrix {  // strides in numbers
  const T* data;
  ptrdiff_t row, column;

  REGARD_INLINE Matrix from(ptrdiff_t i, ptrdiff_t j = 0) const { return {data + i * row + j * column, row, column}; }
  REGARD_INLINE Matrix transposed() const { return {data, column, row}; }
};

template <class T, Into into, int rows, int vectors>
__attribute__((noinline)) void tile(Matrix<T> a, const T* b, ptrdiff_t b_row, ptrdiff_t depth, T* c, ptrdiff_t c_row,
                                    const T* factor) {
  V<T> sums[rows][vectors] = {};
  const T* a_rows[rows];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) a_rows[i] = a.data + i * a.row;
  for (ptrdiff_t t = 0; t < depth; ++t) {
    V<T> of_b[vectors];
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) of_b[n] = load<T>(b + n * LANES<T>);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const V<T> x = splat(*a_rows[i]);
      a_rows[i] += a.column;
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) sums[i][n] += x * of_b[n];
    }
    b += b_row;
  }
#pragma GCC unroll 8
  for (int n = 0; n < vectors; ++n) {
    V<T> times = {};
    if constexpr (into == Into::scale) times = splat(*factor);
    if constexpr (into == Into::rescale) times = load<T>(factor + n * LANES<T>);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      T* to = c + i * c_row + n * LANES<T>;
      if constexpr (into == Into::set) store<T>(to, sums[i][n]);
      if constexpr (into == Into::scale) store<T>(to, sums[i][n] * times);
      if constexpr (into == Into::add) store<T>(to, load<T>(to) + sums[i][n]);
      if constexpr (into == Into::rescale) store<T>(to, load<T>(to) * times + sums[i][n]);
    }
  }
}

template <class T, Into into, int rows, int wide>
REGARD_INLINE void row_of_tiles(Matrix<T> a, const T* b, ptrdiff_t b_row, ptrdiff_t depth, T* c, ptrdiff_t c_row,
                                ptrdiff_t lanes, const T* factor) {
  constexpr int width = wide * LANES<T>;
  const auto of = [&](ptrdiff_t n) { return into == Into::rescale ? factor + n : factor; };
  ptrdiff_t n = 0;
  for (; n + width <= lanes; n += width) tile<T, into, rows, wide>(a, b + n, b_row, depth, c + n, c_row, of(n));
  switch ((lanes - n) / LANES<T>) {
    case 3: return tile<T, into, rows, 3 < wide ? 3 : 1>(a, b + n, b_row, depth, c + n, c_row, of(n));
    case 2: return tile<T, into, rows, 2 < wide ? 2 : 1>(a, b + n, b_row, depth, c + n, c_row, of(n));
    case 1: return tile<T, into, rows, 1>(a, b + n, b_row, depth, c + n, c_row, of(n));
    default: return;
  }
}

// `lanes` is a multiple of the lanes of a vector. Tiles are `tall` rows by `wide` vectors.
template <class T, Into into, int tall = ROWS, int wide = VECTORS>
void product(Matrix<T> a, ptrdiff_t rows, ptrdiff_t depth, const T* b, ptrdiff_t b_row, T* c, ptrdiff_t c_row,
             ptrdiff_t lanes, const T* factor = nullptr) {
  ptrdiff_t i = 0;
  for (; i + tall <= rows; i += tall)
    row_of_tiles<T, into, tall, wide>(a.from(i), b, b_row, depth, c + i * c_row, c_row, lanes, factor);
  if constexpr (tall > 1)  // the rows that are left
    if (i < rows) product<T, into, tall - 1, wide>(a.from(i), rows - i, depth, b, b_row, c + i * c_row, c_row, lanes, factor);
}

}  // namespace regard::REGARD_ISA
