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

// Whether elements have the compute type, so that rows can be read where they are.
inline bool has_compute_dtype(const Operand& x) { return x.dtype == DType::float32 || x.dtype == DType::float64; }

// How many of `count` rows from `start` on are a row stride apart: all, or those of a page.
inline ptrdiff_t rows_together(const Operand& x, ptrdiff_t start, ptrdiff_t count) {
  return x.pages ? min_of(count, x.page_rows - start % x.page_rows) : count;
}

// The offset of a row, in elements.
inline ptrdiff_t row_offset(const Operand& x, ptrdiff_t head, ptrdiff_t row) {
  if (!x.pages) return x.offsets[head] + row * x.row_stride;
  return x.offsets[head] + x.pages[row / x.page_rows] * x.page_stride + row % x.page_rows * x.row_stride;
}

// Prefetch rows start <= i < start + count that do not lie behind each other, such as those of one head of several: the
// processor does not foresee where they are.
inline void prefetch_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width) {
  const ptrdiff_t itemsize = x.dtype == DType::float64 ? 8 : x.dtype == DType::float32 ? 4 : is_half(x.dtype) ? 2 : 1;
  if (x.col_stride != 1 || (!x.pages && x.row_stride == width)) return;
  for (ptrdiff_t together; count > 0; start += together, count -= together) {
    together = rows_together(x, start, count);
    const char* row = x.data + row_offset(x, head, start) * itemsize;
    for (ptrdiff_t i = 0; i < together; ++i, row += x.row_stride * itemsize)
      for (ptrdiff_t byte = 0; byte < width * itemsize; byte += 64) __builtin_prefetch(row + byte, 0, 2);
  }
}

typedef int8_t Int8Vector __attribute__((vector_size(LANES<float>)));

REGARD_INLINE V<float> widen_vector(Int8Vector x) {
#if defined(__AVX512F__)
  return V<float>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(__m128i(x))));
#elif defined(__AVX2__)
  long long bytes;
  __builtin_memcpy(&bytes, &x, sizeof bytes);
  return V<float>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes))));
#else
  const V<int32_t> integers = __builtin_convertvector(x, V<int32_t>);
  return __builtin_convertvector(integers, V<float>);
#endif
}

// Widen a row of int8, times its scale.
template <class T> void widen(const int8_t* from, ptrdiff_t col_stride, ptrdiff_t width, float scale, T* to) {
  ptrdiff_t f = 0;
  if constexpr (sizeof(T) == 4)
    for (; col_stride == 1 && f + LANES<float> <= width; f += LANES<float>) {
      Int8Vector x;
      __builtin_memcpy(&x, from + f, sizeof x);
      store<float>(to + f, widen_vector(x) * scale);
    }
  for (; f < width; ++f) to[f] = T(from[f * col_stride]) * T(scale);
}

// Copy rows start <= i < start + count, converted to T, to rows `to_stride` apart.
template <class T>
void copy_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* to,
               ptrdiff_t to_stride) {
  for (ptrdiff_t together; count > 0; start += together, count -= together) {
    together = rows_together(x, start, count);
    ptrdiff_t at = row_offset(x, head, start), scale_at = 0;
    if (x.scales) {
      scale_at = x.scale_offsets[head] + (x.pages ? start % x.page_rows : start) * x.scale_row_stride;
      if (x.pages) scale_at += x.pages[start / x.page_rows] * x.scale_page_stride;
    }
    for (ptrdiff_t i = 0; i < together; ++i, to += to_stride, at += x.row_stride, scale_at += x.scale_row_stride) {
      if (x.dtype == DType::int8) {
        widen<T>(reinterpret_cast<const int8_t*>(x.data) + at, x.col_stride, width, x.scales[scale_at], to);
      } else if (!is_half(x.dtype)) {
        const T* from = reinterpret_cast<const T*>(x.data) + at;
        for (ptrdiff_t f = 0; f < width; ++f) to[f] = from[f * x.col_stride];
      } else if constexpr (sizeof(T) == 4) {
        const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + at;
        if (x.col_stride == 1)
          upcast(x.dtype, from, width, to);
        else
          for (ptrdiff_t f = 0; f < width; ++f) upcast(x.dtype, from + f * x.col_stride, 1, to + f);
      }
    }
  }
}

// Rows start <= i < start + count as a matrix of T: in place, or, if they have another dtype or lie in several pages,
// copied into `buffer` (count x width).
template <class T>
Matrix<T> load_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* buffer) {
  if (has_compute_dtype(x) && !x.pages) return head_matrix<T>(x, head).block(start);
  if (has_compute_dtype(x) && count > 0 && rows_together(x, start, count) == count)
    return {reinterpret_cast<const T*>(x.data) + row_offset(x, head, start), x.row_stride, x.col_stride};
  copy_rows<T>(x, head, start, count, width, buffer, width);
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
