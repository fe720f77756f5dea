// The softmax that goes on as keys come in: what each row of a block knows of the keys so far.
//
// The weights of a row need the sum over all of its keys. Block by block only the largest score and the sum so far are
// known. When a larger score comes, all that was summed shrinks by exp(old largest - new largest), and goes on as if
// the new one had been known from the start.
#pragma once

#include "scores.h"

namespace regard::REGARD_ISA {

// An infinite score is held at this, so that it takes all the weight and no difference is infinity - infinity. (One of
// two finite scores may be -infinity, whose exponential is the 0 that it should be.)
template <class T> constexpr T FAR = LARGEST<T>;

constexpr ptrdiff_t PORTION = 32;  // keys whose sum is short enough for the numbers computed with

template <class T> T held_sink(T sink) {
  return smaller(sink, FAR<T>);
}

template <class T> class Rows {
 public:
  T* highest;     // of each lane
  double* total;  // in float64, so that the weights of a long row in float32 sum to 1 too
  T* factor;      // by which what was gathered before the last block shrinks

  explicit Rows(Scratch& scratch)
      : highest(scratch.take<T>(QUERIES)), total(scratch.take<double>(QUERIES)), factor(scratch.take<T>(QUERIES)) {}

  // Before any key: nothing, or the sink, which is there for every query.
  void begin(const Attention& call, ptrdiff_t head) {
    T sink = -INFINITE<T>;
    if (call.sinks) sink = held_sink(matrix_of<T>(call.sinks, head).data[0]);
    for (int i = 0; i < QUERIES; ++i) {
      highest[i] = sink;
      total[i] = sink == -INFINITE<T> ? 0 : 1;
      factor[i] = 1;
    }
  }

  // Turn the scores of a block of keys into exponentials relative to the largest score so far, and add them up.
  void go_on(ptrdiff_t keys, ptrdiff_t lane, ptrdiff_t lanes, T* scores) {
    constexpr ptrdiff_t width = VECTORS * LANES<T>;
    ptrdiff_t i = lane;
    for (; i + width <= lane + lanes; i += width) columns<VECTORS>(keys, i, scores + i);
    for (; i < lane + lanes; i += LANES<T>) columns<1>(keys, i, scores + i);
  }

  // Infinite scores are held where they can be subtracted from each other.
  template <int vectors> static void hold(ptrdiff_t keys, T* scores) {
    for (ptrdiff_t j = 0; j < keys; ++j)
      for (int n = 0; n < vectors; ++n) {
        T* at = scores + j * QUERIES + n * LANES<T>;
        store<T>(at, at_most<T>(load<T>(at), splat(FAR<T>)));
      }
  }

 private:
  template <int vectors> void columns(ptrdiff_t keys, ptrdiff_t lane, T* scores) {
    V<T> top[vectors], shift[vectors], sums[vectors] = {};
    largest<vectors>(keys, scores, top);
    for (int n = 0; n < vectors; ++n)
      if (any(top[n] > FAR<T>)) {
        hold<vectors>(keys, scores);
        largest<vectors>(keys, scores, top);
        break;
      }
    for (int n = 0; n < vectors; ++n) {
      T* at = highest + lane + n * LANES<T>;
      const V<T> before = load<T>(at), now = at_least<T>(before, top[n]);
      shift[n] = now == -INFINITE<T> ? V<T>{} : now;  // nothing seen yet: -infinity - 0 is no NaN
      store<T>(at, now);
      store<T>(factor + lane + n * LANES<T>, before == -INFINITE<T> ? splat(T(1)) : exp<T>(before - now));
    }
    for (ptrdiff_t start = 0; start < keys; start += PORTION) {
      V<T> some[vectors] = {};
      for (ptrdiff_t j = start; j < smaller(start + PORTION, keys); ++j)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; ++n) {
          T* at = scores + j * QUERIES + n * LANES<T>;
          const V<T> e = exp<T>(load<T>(at) - shift[n]);
          some[n] += e;
          store<T>(at, e);
        }
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) sums[n] += some[n];
    }
    for (int n = 0; n < vectors; ++n)
      for (ptrdiff_t i = 0; i < LANES<T>; ++i) {
        const ptrdiff_t at = lane + n * LANES<T> + i;
        total[at] = total[at] * double(factor[at]) + double(sums[n][i]);
      }
  }

  template <int vectors> static REGARD_INLINE void largest(ptrdiff_t keys, const T* scores, V<T> (&top)[vectors]) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) top[n] = splat(-INFINITE<T>);
    for (ptrdiff_t j = 0; j < keys; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) top[n] = at_least<T>(load<T>(scores + j * QUERIES + n * LANES<T>), top[n]);
  }
};

}  // namespace regard::REGARD_ISA
