// The matrix product of every kernel: C[i][lanes] = sum over t of A[i][t] * B[t][lanes].
//
// Elements of A are broadcast, so A may have any strides; B is packed, its rows contiguous.
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

// Cache lines that are fetched during a product, a few at a time: many at once would keep its own loads waiting.
struct Prefetch {
  const char* at = nullptr;
  ptrdiff_t lines = 0;
};

template <class T> struct Product {
  Matrix<T> a;
  ptrdiff_t rows, depth;
  const T* b;
  ptrdiff_t ldb;
  T* c;
  ptrdiff_t ldc, lanes;  // a multiple of the lanes of a vector
  const T* factor = nullptr;
  T* invalid =
      nullptr;  // Epilogue::scale adds 0 to this vector, and NaN if a result is NaN or infinite, or close to it
  Prefetch prefetch = {};
};

// Every element of C is the same chain of fused multiply-adds over t, whatever the rows and lanes: recomputing it gives
// identical bits.
template <class T> void gemm(Epilogue epilogue, Product<T> product);

// Rows and vectors of a tile of the linear map, Epilogue::bias and add_bias. With 32 registers the tile is 8 x 3:
// numbers of rows are more often multiples of 8 than of 6.
constexpr int LINEAR_MR = VECTOR_BYTES == 64 ? 8 : MR, LINEAR_TILE_VECTORS = VECTOR_BYTES == 64 ? 3 : TILE_VECTORS;

}  // namespace regard::REGARD_ISA
