// Strided rows, converted to and from the compute type; loads, stores and sums of rows.
#pragma once

#include "ops/params.h"
#include "simd/half_precision.h"

namespace regard::REGARD_ISA {

REGARD_INLINE ptrdiff_t row_offset(const StridedRows& x, ptrdiff_t row) {
  if (x.axes == 1) return row * x.strides[0];
  ptrdiff_t offset = 0;
  for (int axis = x.axes - 1; axis >= 0; --axis) {
    offset += row % x.shape[axis] * x.strides[axis];
    row /= x.shape[axis];
  }
  return offset;
}

// Elements start <= j < start + count of a row: in place, or converted and gathered into `buffer`.
template <class T> const T* row_ptr(const StridedRows& x, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, T* buffer) {
  const ptrdiff_t offset = row_offset(x, row) + start * x.col_stride;
  if (!is_half(x.dtype)) {
    const T* from = reinterpret_cast<const T*>(x.data) + offset;
    if (x.col_stride == 1) return from;
    for (ptrdiff_t j = 0; j < count; ++j) buffer[j] = from[j * x.col_stride];
  } else if constexpr (sizeof(T) == 4) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + offset;
    if (x.col_stride == 1)
      upcast(x.dtype, from, count, buffer);
    else
      for (ptrdiff_t j = 0; j < count; ++j) upcast(x.dtype, from + j * x.col_stride, 1, buffer + j);
  }
  return buffer;
}

// Where to write those elements: in place, or in `buffer`, from where store_row copies them.
template <class T> T* output_row_ptr(const StridedRows& x, ptrdiff_t row, ptrdiff_t start, T* buffer) {
  if (is_half(x.dtype) || x.col_stride != 1) return buffer;
  return reinterpret_cast<T*>(x.data) + row_offset(x, row) + start;
}

template <class T>
void store_row(const T* from, const StridedRows& x, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count) {
  const ptrdiff_t offset = row_offset(x, row) + start * x.col_stride;
  if (!is_half(x.dtype)) {
    for (ptrdiff_t j = 0; x.col_stride != 1 && j < count; ++j)
      reinterpret_cast<T*>(x.data)[offset + j * x.col_stride] = from[j];
  } else if constexpr (sizeof(T) == 4) {
    uint16_t* to = reinterpret_cast<uint16_t*>(x.data) + offset;
    if (x.col_stride == 1)
      downcast(x.dtype, from, count, to);
    else
      for (ptrdiff_t j = 0; j < count; ++j) downcast(x.dtype, from + j, 1, to + j * x.col_stride);
  }
}

// The first `count` lanes of a vector; the others are 0.
template <class T> REGARD_INLINE V<T> load_partial(const T* from, ptrdiff_t count) {
  V<T> x = {};
  __builtin_memcpy(&x, from, size_t(count) * sizeof(T));
  return x;
}
template <class T> REGARD_INLINE void store_partial(T* to, V<T> x, ptrdiff_t count) {
  __builtin_memcpy(to, &x, size_t(count) * sizeof(T));
}

// Compensated summation (Kahan, Neumaier).
struct CompensatedSum {
  double sum = 0, compensation = 0;

  REGARD_INLINE void add(double term) {
    const double next = sum + term;
    compensation += __builtin_fabs(sum) >= __builtin_fabs(term) ? (sum - next) + term : (term - next) + sum;
    sum = next;
  }
  // An infinite sum stays infinite, though its compensation is NaN.
  REGARD_INLINE double value() const { return sum + (compensation - compensation == 0 ? compensation : 0); }
};

// The sum over a row of what f(j, count, sum) adds to `sum`, for a vector of `count` elements from j on. Vectors are
// summed in chunks, and chunks with compensation, so that long rows lose no precision.
template <class T, class F> REGARD_INLINE double sum_vectors(ptrdiff_t columns, F f) {
  constexpr ptrdiff_t chunk = 64 * LANES<T>;
  CompensatedSum row_sum;
  for (ptrdiff_t start = 0; start < columns; start += chunk) {
    const ptrdiff_t end = min_of<ptrdiff_t>(columns, start + chunk);
    V<T> sums[4] = {};
    ptrdiff_t j = start;
    for (; j + 4 * LANES<T> <= end; j += 4 * LANES<T>)
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sums[n] = f(j + n * LANES<T>, ptrdiff_t(LANES<T>), sums[n]);
    for (; j < end; j += LANES<T>) sums[0] = f(j, min_of<ptrdiff_t>(LANES<T>, end - j), sums[0]);
    row_sum.add(double(reduce_sum<T>((sums[0] + sums[1]) + (sums[2] + sums[3]))));
  }
  return row_sum.value();
}

template <class T> REGARD_INLINE V<T> load_n(const T* from, ptrdiff_t count) {
  return count == LANES<T> ? load<T>(from) : load_partial<T>(from, count);
}
template <class T> REGARD_INLINE void store_n(T* to, V<T> x, ptrdiff_t count) {
  count == LANES<T> ? store<T>(to, x) : store_partial<T>(to, x, count);
}

// Call f(j, count) for each vector of a row.
template <class T, class F> REGARD_INLINE void for_each_vector(ptrdiff_t columns, F f) {
  ptrdiff_t j = 0;
  for (; j + LANES<T> <= columns; j += LANES<T>) f(j, ptrdiff_t(LANES<T>));
  if (j < columns) f(j, columns - j);
}

}  // namespace regard::REGARD_ISA
