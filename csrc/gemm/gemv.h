// The linear map by dot products along the inputs: of few rows with weights whose inputs are contiguous (GEMV) or that
// are quantized, as floats; of any number of rows with quantized weights, in fixed point.
#pragma once

#include "gemm/fixed_point.h"
#include "gemm/params.h"
#include "gemm/quantized.h"
#include "ops/strided_rows.h"
#include "simd/simd.h"

namespace regard::REGARD_ISA {

constexpr ptrdiff_t PREFETCH_BYTES = 16384;  // prefetch distance, at least

// A tile of dot products has as many sums as a vector has lanes: `rows` rows of x by LANES / rows outputs.
template <class T> constexpr int GEMV_ROWS = LANES<T> < 4 ? LANES<T> : 4;

// fold() adds the lower and the upper halves of blocks of two vectors, `unit` elements of each in turn. Blocks are
// 128-bit register lanes, within which shuffles are cheap, as long as one holds two units.
template <class T, int unit, bool upper> constexpr int fold_index(int to) {
  constexpr int lane_elements = 16 / int(sizeof(T)), block = 2 * unit <= lane_elements ? lane_elements : LANES<T>;
  const int unit_index = to % block / unit, source = unit_index / 2 + (upper ? block / unit / 2 : 0);
  return to / block * block + source * unit + to % unit + (unit_index % 2 ? LANES<T> : 0);
}

template <class T, int unit, int... I> REGARD_INLINE V<T> fold(V<T> a, V<T> b, IndexSequence<I...>) {
  return __builtin_shufflevector(a, b, fold_index<T, unit, false>(I)...) +
         __builtin_shufflevector(a, b, fold_index<T, unit, true>(I)...);
}

// The sum of each of LANES vectors: every stage halves the number of vectors and doubles the unit.
template <class T, int unit> REGARD_INLINE V<T> reduce_vectors(V<T> (&x)[LANES<T>]) {
  if constexpr (unit == LANES<T>) {
    return x[0];
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < LANES<T> / unit / 2; ++i)
      x[i] = fold<T, unit>(x[2 * i], x[2 * i + 1], typename MakeIndexSequence<LANES<T>>::type{});
    return reduce_vectors<T, 2 * unit>(x);
  }
}

template <class T, int rows, bool prefetch>
void dot_tile(const T* const (&x)[rows], const T* const (&w)[LANES<T> / rows], ptrdiff_t depth, ptrdiff_t ahead,
              T* sums) {
  constexpr int outputs = LANES<T> / rows;
  V<T> tile[LANES<T>] = {};
  ptrdiff_t t = 0;
  for (; t + LANES<T> <= depth; t += LANES<T>) {
    V<T> w_vectors[outputs];
#pragma GCC unroll 16
    for (int j = 0; j < outputs; ++j) {
      w_vectors[j] = load<T>(w[j] + t);
      if (prefetch) __builtin_prefetch(w[j] + t + ahead, 0, 2);  // into L2
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i) {
      const V<T> x_vector = load<T>(x[i] + t);
#pragma GCC unroll 16
      for (int j = 0; j < outputs; ++j) tile[i * outputs + j] = fma<T>(x_vector, w_vectors[j], tile[i * outputs + j]);
    }
  }
  if (t < depth)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < outputs; ++j)
        tile[i * outputs + j] =
            fma<T>(load_partial<T>(x[i] + t, depth - t), load_partial<T>(w[j] + t, depth - t), tile[i * outputs + j]);
  store<T>(sums, reduce_vectors<T, 1>(tile));
}

template <class T, int rows> void gemv(const LinearParams& params, ptrdiff_t start, ptrdiff_t count) {
  constexpr int outputs = LANES<T> / rows;
  const T* x = reinterpret_cast<const T*>(params.x);
  const T* w = reinterpret_cast<const T*>(params.weight);
  const T* bias = reinterpret_cast<const T*>(params.bias);
  T* out = reinterpret_cast<T*>(params.output);
  const ptrdiff_t step = outputs * params.weight_col_stride, bytes = max_of<ptrdiff_t>(step * ptrdiff_t(sizeof(T)), 1);
  const ptrdiff_t ahead = ceil_div(PREFETCH_BYTES, bytes) * step;
  for (ptrdiff_t at = 0; at < PREFETCH_BYTES; at += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(w + start * params.weight_col_stride) + at, 0, 2);
  for (ptrdiff_t n = start; n < start + count; n += outputs) {
    const T* w_rows[outputs];  // outputs after the last repeat it
    T bias_values[outputs] = {};
    for (int j = 0; bias && j < outputs; ++j) bias_values[j] = bias[min_of<ptrdiff_t>(n + j, params.columns - 1)];
    for (int j = 0; j < outputs; ++j)
      w_rows[j] = w + min_of<ptrdiff_t>(n + j, params.columns - 1) * params.weight_col_stride;
    for (ptrdiff_t m = 0; m < params.rows; m += rows) {
      const T* x_rows[rows];
      for (int i = 0; i < rows; ++i) x_rows[i] = x + min_of<ptrdiff_t>(m + i, params.rows - 1) * params.x_row_stride;
      T sums[LANES<T>];
      if (m == 0)
        dot_tile<T, rows, true>(x_rows, w_rows, params.depth, ahead, sums);
      else
        dot_tile<T, rows, false>(x_rows, w_rows, params.depth, ahead, sums);
      const ptrdiff_t width = min_of<ptrdiff_t>(outputs, start + count - n);
      for (int i = 0; i < rows && m + i < params.rows; ++i) {
        for (int j = 0; j < outputs; ++j) sums[i * outputs + j] += bias_values[j];
        T* to = out + (m + i) * params.columns + n;
        if (width == outputs)
          __builtin_memcpy(to, sums + i * outputs, outputs * sizeof(T));
        else
          for (ptrdiff_t j = 0; j < width; ++j) to[j] = sums[i * outputs + j];
      }
    }
  }
}

// Products of rows of x with vectors of outputs: f<count>(first) for the rows from `first` on, four at a time.
template <class F> REGARD_INLINE void for_few_rows(ptrdiff_t rows, F f) {
  ptrdiff_t m = 0;
  for (; m + 4 <= rows; m += 4) f.template operator()<4>(m);
  for (; m + 2 <= rows; m += 2) f.template operator()<2>(m);
  for (; m < rows; ++m) f.template operator()<1>(m);
}

// Add the bias to totals of rows of x and `width` outputs, from `column` on, and store them.
template <int rows>
REGARD_INLINE void store_totals(const char* bias, V<float> (&totals)[rows], ptrdiff_t column, ptrdiff_t width,
                                float* out, ptrdiff_t out_row) {
  for (int r = 0; r < rows; ++r) {
    if (bias) totals[r] += load_n<float>(reinterpret_cast<const float*>(bias) + column, width);
    store_n<float>(out + r * out_row, totals[r], width);
  }
}

// The sum of x over each part.
template <int part> void sum_parts(const LinearParams& params, float* x_sums) {
  constexpr int N = LANES<float>;
  const ptrdiff_t parts = params.depth / part;
  for (ptrdiff_t m = 0; m < params.rows; ++m, x_sums += parts)
    for (ptrdiff_t first = 0; first < parts; first += N) {
      const ptrdiff_t count = min_of<ptrdiff_t>(N, parts - first);
      const float* x = reinterpret_cast<const float*>(params.x) + m * params.x_row_stride + first * part;
      V<float> sums[N] = {};
      for (ptrdiff_t p = 0; p < count; ++p)
        for (int i = 0; i < part; i += N) sums[p] += load<float>(x + p * part + i);
      store_n<float>(x_sums + first, reduce_vectors<float, 1>(sums), count);
    }
}

// Products of few rows with quantized weights, as floats.
template <class Format>
void quantized_gemv(const LinearParams& params, ptrdiff_t start, ptrdiff_t count, float* x_sums) {
  if constexpr (Format::HAS_OFFSET) sum_parts<Format::PART>(params, x_sums);
  for (ptrdiff_t n = start; n < start + count; n += LANES<float>) {
    const BlockCursor block = first_block(params, n / GROUP, int(n % GROUP));
    const char* ahead = group_at(params, n / GROUP) + PREFETCH_GROUP_BYTES;
    for_few_rows(params.rows, [&]<int rows>(ptrdiff_t m) __attribute__((always_inline)) {
      const float *x_rows[rows], *sum_rows[rows];
      for (int r = 0; r < rows; ++r) {
        x_rows[r] = reinterpret_cast<const float*>(params.x) + (m + r) * params.x_row_stride;
        sum_rows[r] = x_sums + (m + r) * (params.depth / Format::PART);
      }
      V<float> totals[rows] = {};
      if constexpr (IS_HALF<Format>)
        dot_halves<Format, rows>(block, ahead, params.depth, x_rows, totals);
      else
        dot_floats<Format, rows>(block, ahead, params.depth, x_rows, sum_rows, totals);
      store_totals<rows>(params.bias, totals, n, min_of<ptrdiff_t>(LANES<float>, start + count - n),
                         reinterpret_cast<float*>(params.output) + m * params.columns + n, params.columns);
    });
  }
}

// Products of x in fixed point with `count` columns. Those of a few rows read the weights once, as they are stored; for
// more, runs of inputs are unpacked.
template <class Format>
void multiply_fixed_point(const LinearParams& params, ptrdiff_t start, ptrdiff_t count, float* out, ptrdiff_t out_row,
                          uint32_t* unpacked) {
  typedef FixedPart<Format::PART> Part;
  const Part* x = reinterpret_cast<const Part*>(params.fixed_x);
  const ptrdiff_t parts = params.depth / Format::PART, run = unpacked ? UNPACKED_INPUTS : params.depth;
  ptrdiff_t t = 0;
  do {
    const ptrdiff_t depth = min_of(run, params.depth - t);
    for (ptrdiff_t n = 0; n < count; n += LANES<float>) {
      const ptrdiff_t group = (start + n) / GROUP, width = min_of<ptrdiff_t>(LANES<float>, count - n);
      const BlockCursor first =
          first_block(params, group, int((start + n) % GROUP)).template next<Format>(t / Format::INPUTS);
      if (unpacked) unpack<Format>(first, depth, unpacked);
      for_few_rows(params.rows, [&]<int rows>(ptrdiff_t m) __attribute__((always_inline)) {
        const Part* x_rows[rows];
        V<float> totals[rows] = {};
        float* to = out + m * out_row + n;
        for (int r = 0; r < rows; ++r) {
          x_rows[r] = x + (m + r) * parts + t / Format::PART;
          if (t) totals[r] = load_n<float>(to + r * out_row, width);
        }
        if (unpacked)
          dot_codes<Unpacked<Format>, rows>({nullptr, unpacked}, nullptr, depth, x_rows, totals);
        else
          dot_codes<Format, rows>(first, group_at(params, group) + PREFETCH_GROUP_BYTES, depth, x_rows, totals);
        store_totals<rows>(t + depth < params.depth ? nullptr : params.bias, totals, start + n, width, to, out_row);
      });
    }
    t += depth;
  } while (t < params.depth);
}

}  // namespace regard::REGARD_ISA
