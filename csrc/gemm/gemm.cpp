// A microkernel keeps a tile of C in registers over the whole depth. The epilogue is a variable, not one more parameter
// of the template: it is chosen once for a tile, and the kernels compile in a quarter of the time.
#include "gemm/gemm.h"

namespace regard::REGARD_ISA {
namespace {

constexpr bool has_vector_factor(Epilogue epilogue) {
  return epilogue == Epilogue::rescale || epilogue == Epilogue::bias || epilogue == Epilogue::add_bias;
}

// Tiles of `rows` rows below each other, and of `vectors` vectors.
template <class T, int rows, int vectors>
__attribute__((noinline)) void microkernel(Epilogue epilogue, const Product<T>& product) {
  Matrix<T> a = product.a;
  const T *const b = product.b, *const factor = product.factor;
  T* c = product.c;
  const ptrdiff_t ldb = product.ldb, ldc = product.ldc, depth = product.depth, tiles = product.rows / rows;
  Prefetch prefetch = product.prefetch;
  // The usual cases, with fewer instructions to compute addresses; in each tile they would compile long.
  constexpr bool is_whole = rows >= MR;
  constexpr ptrdiff_t STEPS = is_whole ? 4 : 1;
  const ptrdiff_t lines = prefetch.lines ? ceil_div(prefetch.lines * STEPS, max_of<ptrdiff_t>(1, depth * tiles)) : 0;
  for (ptrdiff_t tile = 0; tile < tiles; ++tile, a = a.block(rows), c += rows * ldc) {
    V<T> sums[rows][vectors] = {};
    if (epilogue == Epilogue::extend)
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) sums[i][n] = load<T>(c + i * ldc + n * LANES<T>);
    if (epilogue == Epilogue::bias)  // the output of a linear map is hardly in L1
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) __builtin_prefetch(c + i * ldc + n * LANES<T>, 1, 3);
    const auto accumulate = [&]<ptrdiff_t steps>(ptrdiff_t row_stride,
                                                 ptrdiff_t col_stride) __attribute__((always_inline)) {
      const T *a_at = a.data, *b_at = b;
      const auto multiply = [&]() __attribute__((always_inline)) {
        V<T> b_vectors[vectors];
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) b_vectors[n] = load<T>(b_at + n * LANES<T>);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          const V<T> x = splat(a_at[i * row_stride]);
#pragma GCC unroll 8
          for (int n = 0; n < vectors; ++n) sums[i][n] = fma<T>(x, b_vectors[n], sums[i][n]);
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
#pragma GCC unroll 1
      for (; t < depth; ++t) multiply();
    };
    if (is_whole && a.col_stride == 1)
      accumulate.template operator()<STEPS>(a.row_stride, 1);
    else if (is_whole && a.row_stride == 1)
      accumulate.template operator()<STEPS>(1, a.col_stride);
    else
      accumulate.template operator()<1>(a.row_stride, a.col_stride);
    const auto finish = [&]<Epilogue kind>() __attribute__((always_inline)) {
      V<T> invalid = {};
      if constexpr (kind == Epilogue::scale) invalid = load<T>(product.invalid);
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) {
        V<T> operand = {}, total = {};
        if constexpr (kind == Epilogue::scale) operand = splat(*factor);
        if constexpr (has_vector_factor(kind)) operand = load<T>(factor + n * LANES<T>);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          T* to = c + i * ldc + n * LANES<T>;
          V<T> x = sums[i][n];
          if constexpr (kind == Epilogue::scale) x *= operand, total += x;
          if constexpr (kind == Epilogue::add) x = load<T>(to) + x;
          if constexpr (kind == Epilogue::bias) x += operand;
          if constexpr (kind == Epilogue::add_bias) x = load<T>(to) + x + operand;
          if constexpr (kind == Epilogue::rescale) x = fma<T>(load<T>(to), operand, x);
          store<T>(to, x);
        }
        if constexpr (kind == Epilogue::scale) invalid = fma<T>(total, V<T>{}, invalid);
      }
      if constexpr (kind == Epilogue::scale) store<T>(product.invalid, invalid);
    };
    switch (epilogue) {
      case Epilogue::set:
      case Epilogue::extend: finish.template operator()<Epilogue::set>(); break;
      case Epilogue::scale: finish.template operator()<Epilogue::scale>(); break;
      case Epilogue::add: finish.template operator()<Epilogue::add>(); break;
      case Epilogue::bias: finish.template operator()<Epilogue::bias>(); break;
      case Epilogue::add_bias: finish.template operator()<Epilogue::add_bias>(); break;
      case Epilogue::rescale: finish.template operator()<Epilogue::rescale>(); break;
    }
  }
}

// A product whose rows are a multiple of `rows`.
template <class T, int rows, int tile_vectors> void multiply_tiles(Epilogue epilogue, Product<T> product) {
  constexpr ptrdiff_t width = tile_vectors * LANES<T>;
  for (; product.lanes >= width; product.lanes -= width, product.prefetch = {}) {
    microkernel<T, rows, tile_vectors>(epilogue, product);
    product.b += width, product.c += width;
    if (has_vector_factor(epilogue)) product.factor += width;
  }
  switch (product.lanes / LANES<T>) {
    case 3: return microkernel<T, rows, 3 < tile_vectors ? 3 : 1>(epilogue, product);
    case 2: return microkernel<T, rows, 2 < tile_vectors ? 2 : 1>(epilogue, product);
    case 1: return microkernel<T, rows, 1>(epilogue, product);
    default: return;
  }
}

template <class T, int mr, int tile_vectors> void multiply(Epilogue epilogue, Product<T> product) {
  const ptrdiff_t remaining = product.rows % mr, done = product.rows - remaining;
  if (product.rows = done; done) {
    multiply_tiles<T, mr, tile_vectors>(epilogue, product);
    product.prefetch = {};
  }
  product.a = product.a.block(done), product.c += done * product.ldc, product.rows = remaining;
  if constexpr (mr > 1)
    if (remaining) multiply<T, mr - 1, tile_vectors>(epilogue, product);
}

}  // namespace

template <class T> void gemm(Epilogue epilogue, Product<T> product) {
  if (epilogue == Epilogue::bias || epilogue == Epilogue::add_bias)
    multiply<T, LINEAR_MR, LINEAR_TILE_VECTORS>(epilogue, product);
  else
    multiply<T, MR, TILE_VECTORS>(epilogue, product);
}

template void gemm(Epilogue, Product<float>);
template void gemm(Epilogue, Product<double>);

}  // namespace regard::REGARD_ISA
