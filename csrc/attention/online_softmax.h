// Online softmax (Milakov and Gimelshein, 2018; FlashAttention): running maximum and sum of each row over blocks of
// keys.
//
// When a block raises the maximum of a row, everything accumulated so far is rescaled by exp(old maximum - new
// maximum).
#pragma once

#include "attention/scores.h"

namespace regard::REGARD_ISA {

constexpr ptrdiff_t SUM_CHUNK = 32;  // keys summed in the compute type before the sum goes to float64

// Scores of +infinity are clamped to MAX_FINITE: they then take all the weight, without infinity - infinity. The
// difference of two finite scores may be -infinity, whose exponential is correctly 0.
template <class T> T clamped_sink(T sink) { return min_of(sink, MAX_FINITE<T>); }

// Whether the maximum of a row is a score that overflowed, or could be.
template <class T> bool is_clamped(T row_max) { return row_max == MAX_FINITE<T> || row_max == -MAX_FINITE<T>; }

template <class T> class OnlineSoftmax {
 public:
  T* row_max;
  double* row_sum;  // float64: the weights of a long float32 row sum to 1
  T* rescale;       // the factor of everything accumulated before the last update

  explicit OnlineSoftmax(Scratch& scratch)
      : row_max(scratch.allocate<T>(BLOCK_QUERIES)),
        row_sum(scratch.allocate<double>(BLOCK_QUERIES)),
        rescale(scratch.allocate<T>(BLOCK_QUERIES)) {}

  // The state before the first key: the sink, if there is one.
  void reset(const AttentionParams& params, ptrdiff_t head) {
    T sink = -INF<T>;
    if (params.sinks) sink = clamped_sink(head_matrix<T>(params.sinks, head).data[0]);
    for (int i = 0; i < BLOCK_QUERIES; ++i) {
      row_max[i] = sink;
      row_sum[i] = sink == -INF<T> ? 0 : 1;
      rescale[i] = 1;
    }
  }

  // Replace the scores of a block of keys by exp(score - row_max), and add them to row_sum.
  void update(ptrdiff_t keys, ptrdiff_t lane, ptrdiff_t lanes, T* scores) {
    constexpr ptrdiff_t width = TILE_VECTORS * LANES<T>;
    ptrdiff_t i = lane;
    for (; i + width <= lane + lanes; i += width) update_lanes<TILE_VECTORS>(keys, i, scores + i);
    for (; i < lane + lanes; i += LANES<T>) update_lanes<1>(keys, i, scores + i);
  }

  // Clamp scores of +infinity to MAX_FINITE.
  template <int vectors> static void clamp(ptrdiff_t keys, T* scores) {
    for (ptrdiff_t j = 0; j < keys; ++j)
      for (int n = 0; n < vectors; ++n) {
        T* at = scores + j * BLOCK_QUERIES + n * LANES<T>;
        store<T>(at, min<T>(load<T>(at), splat(MAX_FINITE<T>)));
      }
  }

 private:
  template <int vectors> void update_lanes(ptrdiff_t keys, ptrdiff_t lane, T* scores) {
    V<T> block_max[vectors], shift[vectors], sums[vectors] = {};
    max_over_keys<vectors>(keys, scores, block_max);
    for (int n = 0; n < vectors; ++n)
      if (any(block_max[n] > MAX_FINITE<T>)) {
        clamp<vectors>(keys, scores);
        max_over_keys<vectors>(keys, scores, block_max);
        break;
      }
    for (int n = 0; n < vectors; ++n) {
      T* at = row_max + lane + n * LANES<T>;
      const V<T> old_max = load<T>(at), new_max = max<T>(old_max, block_max[n]);
      shift[n] = new_max == -INF<T> ? V<T>{} : new_max;  // no key allowed yet: avoid -infinity - -infinity
      store<T>(at, new_max);
      store<T>(rescale + lane + n * LANES<T>, old_max == -INF<T> ? splat(T(1)) : exp<T>(old_max - new_max));
    }
    for (ptrdiff_t start = 0; start < keys; start += SUM_CHUNK) {
      V<T> chunk_sums[vectors] = {};
      for (ptrdiff_t j = start; j < min_of(start + SUM_CHUNK, keys); ++j)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) {
          T* at = scores + j * BLOCK_QUERIES + n * LANES<T>;
          const V<T> e = exp<T>(load<T>(at) - shift[n]);
          chunk_sums[n] += e;
          store<T>(at, e);
        }
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) sums[n] += chunk_sums[n];
    }
    for (int n = 0; n < vectors; ++n)
      for (ptrdiff_t i = 0; i < LANES<T>; ++i) {
        const ptrdiff_t at = lane + n * LANES<T> + i;
        row_sum[at] = row_sum[at] * double(rescale[at]) + double(sums[n][i]);
      }
  }

  template <int vectors>
  static REGARD_INLINE void max_over_keys(ptrdiff_t keys, const T* scores, V<T> (&block_max)[vectors]) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) block_max[n] = splat(-INF<T>);
    for (ptrdiff_t j = 0; j < keys; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n)
        block_max[n] = max<T>(load<T>(scores + j * BLOCK_QUERIES + n * LANES<T>), block_max[n]);
  }
};

}  // namespace regard::REGARD_ISA
