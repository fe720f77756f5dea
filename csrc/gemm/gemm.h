// The matrix product of every kernel: C[i][lanes] = sum over t of A[i][t] * B[t][lanes].
//
// Elements of A are broadcast, so A may have any strides; B is packed, its rows contiguous. A microkernel keeps a tile
// of C, MR rows by TILE_VECTORS vectors, in registers over the whole depth. Every element of C is the same chain of
// fused multiply-adds over t in any tile: recomputing it gives identical bits.
#pragma once

#include "simd/matrix.h"

namespace regard::REGARD_ISA {

enum class Epilogue {
  set,       // C = A B
  scale,     // C = (A B) * factor[0]
  add,       // C = C + A B
  bias,      // C = A B + factor[lanes]
  add_bias,  // C = (C + A B) + factor[lanes]
  extend,    // C + A B in one chain of multiply-adds that begins with C, as if A and B had been longer
  rescale,   // C = C * factor[lanes] + A B
};

constexpr bool has_vector_factor(Epilogue epilogue) {
  return epilogue == Epilogue::rescale || epilogue == Epilogue::bias || epilogue == Epilogue::add_bias;
}

// Cache lines that are fetched during a product, a few at a time: many at once would keep its own loads waiting.
struct Prefetch {
  const char* at = nullptr;
  ptrdiff_t lines = 0;
};

// Tiles of `rows` rows below each other.
template <class T, Epilogue epilogue, int rows, int vectors>
__attribute__((noinline)) void microkernel(Matrix<T> a, ptrdiff_t tiles, const T* b, ptrdiff_t ldb, ptrdiff_t depth,
                                           T* c, ptrdiff_t ldc, const T* factor, T* invalid, Prefetch prefetch) {
  // The usual cases, with fewer instructions to compute addresses; in each tile they would compile long.
  constexpr bool is_whole = rows >= MR;
  constexpr ptrdiff_t steps = is_whole ? 4 : 1;
  const ptrdiff_t lines = prefetch.lines ? ceil_div(prefetch.lines * steps, max_of<ptrdiff_t>(1, depth * tiles)) : 0;
  V<T> found_invalid = {};
  for (; tiles > 0; --tiles, a = a.block(rows), c += rows * ldc) {
    V<T> sums[rows][vectors] = {};
    if constexpr (epilogue == Epilogue::extend)
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) sums[i][n] = load<T>(c + i * ldc + n * LANES<T>);
    if constexpr (epilogue == Epilogue::bias)  // the output of a linear map is hardly in L1
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) __builtin_prefetch(c + i * ldc + n * LANES<T>, 1, 3);
    const auto accumulate = [&](ptrdiff_t row_stride, ptrdiff_t col_stride) __attribute__((always_inline)) {
      const T *a_at = a.data, *b_at = b;
      const auto multiply = [&]() __attribute__((always_inline)) {
        V<T> b_vectors[vectors];
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) b_vectors[n] = load<T>(b_at + n * LANES<T>);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          const V<T> x = splat(a_at[i * row_stride]);
#pragma GCC unroll 8
          for (int n = 0; n < vectors; ++n) sums[i][n] += x * b_vectors[n];
        }
        a_at += col_stride, b_at += ldb;
      };
      ptrdiff_t t = 0;
      for (; t + steps <= depth; t += steps) {
        for (ptrdiff_t n = 0; n < lines && prefetch.lines; ++n, --prefetch.lines, prefetch.at += 64)
          __builtin_prefetch(prefetch.at, 0, 3);
#pragma GCC unroll 8
        for (ptrdiff_t n = 0; n < steps; ++n) multiply();
      }
      for (; t < depth; ++t) multiply();
    };
    if (is_whole && a.col_stride == 1)
      accumulate(a.row_stride, 1);
    else if (is_whole && a.row_stride == 1)
      accumulate(1, a.col_stride);
    else
      accumulate(a.row_stride, a.col_stride);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      V<T> operand = {}, total = {};
      if constexpr (epilogue == Epilogue::scale) operand = splat(*factor);
      if constexpr (has_vector_factor(epilogue)) operand = load<T>(factor + n * LANES<T>);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        T* to = c + i * ldc + n * LANES<T>;
        V<T> x = sums[i][n];
        if constexpr (epilogue == Epilogue::scale) x *= operand, total += x;
        if constexpr (epilogue == Epilogue::add) x = load<T>(to) + x;
        if constexpr (epilogue == Epilogue::bias) x += operand;
        if constexpr (epilogue == Epilogue::add_bias) x = load<T>(to) + x + operand;
        if constexpr (epilogue == Epilogue::rescale) x = load<T>(to) * operand + x;
        store<T>(to, x);
      }
      if constexpr (epilogue == Epilogue::scale) found_invalid += total * 0;
    }
  }
  if constexpr (epilogue == Epilogue::scale) store<T>(invalid, load<T>(invalid) + found_invalid);
}

// `tiles` tiles of `rows` rows.
template <class T, Epilogue epilogue, int rows, int tile_vectors>
REGARD_INLINE void gemm_tiles(Matrix<T> a, ptrdiff_t tiles, const T* b, ptrdiff_t ldb, ptrdiff_t depth, T* c,
                              ptrdiff_t ldc, ptrdiff_t lanes, const T* factor, T* invalid, Prefetch prefetch) {
  constexpr int width = tile_vectors * LANES<T>;
  const auto factor_at = [&](ptrdiff_t n) { return has_vector_factor(epilogue) ? factor + n : factor; };
  ptrdiff_t n = 0;
  for (; n + width <= lanes; n += width, prefetch = {})
    microkernel<T, epilogue, rows, tile_vectors>(a, tiles, b + n, ldb, depth, c + n, ldc, factor_at(n), invalid,
                                                 prefetch);
  b += n, c += n, factor = factor_at(n);
  switch ((lanes - n) / LANES<T>) {
    case 3:
      return microkernel<T, epilogue, rows, 3 < tile_vectors ? 3 : 1>(a, tiles, b, ldb, depth, c, ldc, factor, invalid,
                                                                      prefetch);
    case 2:
      return microkernel<T, epilogue, rows, 2 < tile_vectors ? 2 : 1>(a, tiles, b, ldb, depth, c, ldc, factor, invalid,
                                                                      prefetch);
    case 1: return microkernel<T, epilogue, rows, 1>(a, tiles, b, ldb, depth, c, ldc, factor, invalid, prefetch);
    default: return;
  }
}

// `lanes` is a multiple of the lanes of a vector. Epilogue::scale adds 0 to a vector, `invalid`, and NaN if a result is
// NaN or infinite, or close to it.
template <class T, Epilogue epilogue, int mr = MR, int tile_vectors = TILE_VECTORS>
void gemm(Matrix<T> a, ptrdiff_t rows, ptrdiff_t depth, const T* b, ptrdiff_t ldb, T* c, ptrdiff_t ldc, ptrdiff_t lanes,
          const T* factor = nullptr, T* invalid = nullptr, Prefetch prefetch = {}) {
  const ptrdiff_t tiles = rows / mr, i = tiles * mr;
  if (tiles) {
    gemm_tiles<T, epilogue, mr, tile_vectors>(a, tiles, b, ldb, depth, c, ldc, lanes, factor, invalid, prefetch);
    prefetch = {};
  }
  if constexpr (mr > 1)  // remaining rows
    if (i < rows)
      gemm<T, epilogue, mr - 1, tile_vectors>(a.block(i), rows - i, depth, b, ldb, c + i * ldc, ldc, lanes, factor,
                                              invalid, prefetch);
}

}  // namespace regard::REGARD_ISA
