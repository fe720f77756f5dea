// The scores of one block of queries and any keys: scale, softcap, bias, mask, in this order.
//
// A block lies transposed, one key after the other with a number for each query: [key][QUERIES]. So a vector holds
// several queries that look at the same key, and the maximum and the sum of each row are found lane by lane.
#pragma once

#include "cells.h"

namespace regard::REGARD_ISA {

template <class T> class Scores {
 public:
  Scores(const Attention& call, Scratch& scratch)
      : call_(call),
        queries_(scratch.take<T>(call.features * QUERIES)),
        room_(scratch.take<T>(larger<ptrdiff_t>(QUERIES, KEYS) * larger<ptrdiff_t>(call.features, QUERIES))),
        first_(scratch.take<Int<T>>(QUERIES)),
        last_(scratch.take<Int<T>>(QUERIES)),
        any_from_(scratch.take<ptrdiff_t>(QUERIES / LANES<T>)),
        any_to_(scratch.take<ptrdiff_t>(QUERIES / LANES<T>)),
        all_from_(scratch.take<ptrdiff_t>(QUERIES / LANES<T>)),
        all_to_(scratch.take<ptrdiff_t>(QUERIES / LANES<T>)) {}

  // Stand at queries start <= i < start + count of a head, at most QUERIES of them, and see which keys they may see.
  void stand_at(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    covered_ = -1;
    head_ = head, start_ = start, count_ = count, lanes_ = round_up(count, LANES<T>);
    find_limits();
  }

  // Take them, to be multiplied with keys.
  void take_queries() {
    for (ptrdiff_t d = 0; d < call_.features; ++d)
      for (ptrdiff_t i = count_ & ~ptrdiff_t(LANES<T> - 1); i < lanes_; ++i) queries_[d * QUERIES + i] = 0;
    transposed<T>(rows_of<T>(call_.q, head_, start_, count_, call_.features, room_), count_, call_.features, queries_, QUERIES);
  }

  void take_queries(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    stand_at(head, start, count);
    take_queries();
  }

  // The keys that any of the queries may see: outside begin <= j < end all is hidden.
  ptrdiff_t begin() const { return begin_; }
  ptrdiff_t end() const { return end_; }
  ptrdiff_t lanes() const { return lanes_; }

  // Whether the mask lets any query of the block see any of these keys.
  bool sees_any_of(ptrdiff_t start, ptrdiff_t count) { return !call_.mask || masked(start, count) != Cover::none; }

  // scores[key][lane] of keys start <= j < start + count; those that are hidden are -infinity. `capped`, if there,
  // gets them before bias and mask.
  void of(ptrdiff_t start, ptrdiff_t count, T* scores, T* capped = nullptr) {
    of(rows_of<T>(call_.k, head_, start, count, call_.features, room_), start, count, scores, capped);
  }

  // The same, of keys that are at hand.
  void of(Matrix<T> keys, ptrdiff_t start, ptrdiff_t count, T* scores, T* capped = nullptr) {
    const T scale = T(call_.scale);
    in_seen_runs(start, count, [&](ptrdiff_t from, ptrdiff_t to, ptrdiff_t lane, ptrdiff_t lanes) {
      hide(from, to, 0, lane, scores);
      for (ptrdiff_t j = from; j < to; j += SLICE) {
        if (call_.bias) fetch_bias(start, count, j);
        product<T, Into::scale>(keys.from(j), smaller(SLICE, to - j), call_.features, queries_ + lane, QUERIES,
                                scores + j * QUERIES + lane, QUERIES, lanes, &scale);
      }
      hide(from, to, lane + lanes, lanes_, scores);
    });
    if (call_.softcap > 0) cap(count, scores);
    if (capped)
      for (ptrdiff_t i = 0; i < count * QUERIES; i += LANES<T>) store<T>(capped + i, load<T>(scores + i));
    if (call_.bias) add_bias(start, count, scores);
    if (call_.diagonal) add_diagonal(start, count, scores);
    if (call_.mask && masked(start, count) != Cover::all) hide_masked(start, count, scores);
    if (is_edge(start, count)) hide_outside(start, count, scores);
  }

  // f(lane, lanes, from, to) for lanes that see, of the keys from `start` on, those from <= j < to, as far as vectors go:
  // outside all is hidden. At the edges of what is seen this leaves out about a third.
  template <class F> REGARD_INLINE void in_seen_parts(ptrdiff_t start, ptrdiff_t count, F f) const {
    if (!is_edge(start, count)) return f(0, lanes_, 0, count);
    const auto of_vector = [=](const ptrdiff_t* keys, ptrdiff_t i) { return within(keys[i / LANES<T>], start, count); };
    for (ptrdiff_t lane = 0, next; lane < lanes_; lane = next) {
      const ptrdiff_t from = of_vector(any_from_, lane), to = larger(from, of_vector(any_to_, lane));
      const auto same = [&](ptrdiff_t n) { return of_vector(any_from_, n) == from && of_vector(any_to_, n) == to; };
      for (next = lane + LANES<T>; next < lanes_ && same(next);) next += LANES<T>;
      f(lane, next - lane, from, to);
    }
  }

 private:
  enum class Cover { none, some, all };
  static constexpr int CHUNK = 32;  // bytes of a mask, of which a block of keys is a multiple
  typedef uint8_t Chunk __attribute__((vector_size(CHUNK)));

  static constexpr ptrdiff_t SLICE = 2 * ROWS;  // keys, after which the bias of more queries is asked for

  bool is_edge(ptrdiff_t start, ptrdiff_t count) const { return start < inner_begin_ || start + count > inner_end_; }

  static ptrdiff_t within(ptrdiff_t key, ptrdiff_t start, ptrdiff_t count) {
    return larger<ptrdiff_t>(0, smaller(key - start, count));
  }

  // The same by keys: f(from, to, lane, lanes) for keys that the same queries see, so that each key is called for once.
  template <class F> REGARD_INLINE void in_seen_runs(ptrdiff_t start, ptrdiff_t count, F f) const {
    if (!is_edge(start, count)) return f(0, count, 0, lanes_);
    for (ptrdiff_t from = 0, to; from < count; from = to) {
      ptrdiff_t first = lanes_, last = 0;
      to = count;
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        const ptrdiff_t begin = any_from_[i / LANES<T>] - start, end = any_to_[i / LANES<T>] - start;
        if (begin <= from && from < end) first = smaller(first, i), last = i + LANES<T>;
        if (begin > from) to = smaller(to, begin);
        if (end > from) to = smaller(to, end);
      }
      f(from, to, first, larger<ptrdiff_t>(0, last - first));
    }
  }

  static void hide(ptrdiff_t from, ptrdiff_t to, ptrdiff_t lane, ptrdiff_t end, T* scores) {
    for (ptrdiff_t j = from; j < to; ++j)
      for (ptrdiff_t i = lane; i < end; i += LANES<T>) store<T>(scores + j * QUERIES + i, splat(-INFINITE<T>));
  }

  void find_limits() {
    const Cells<T> cells(call_, head_);
    begin_ = inner_begin_ = 0;
    end_ = inner_end_ = call_.keys;
    for (ptrdiff_t i = 0; i < QUERIES; ++i) {
      first_[i] = 0, last_[i] = Int<T>(call_.keys);
      if (i >= count_) continue;
      first_[i] = larger<Int<T>>(0, Int<T>(cells.first(start_ + i)));
      last_[i] = larger<Int<T>>(0, smaller<Int<T>>(last_[i], Int<T>(cells.last(start_ + i))));
      const bool is_first = i == 0, is_first_of_vector = i % LANES<T> == 0;
      const ptrdiff_t from = smaller<ptrdiff_t>(first_[i], call_.keys), to = larger<ptrdiff_t>(last_[i], 0);
      begin_ = is_first ? from : smaller(begin_, from), inner_begin_ = is_first ? from : larger(inner_begin_, from);
      end_ = is_first ? to : larger(end_, to), inner_end_ = is_first ? to : smaller(inner_end_, to);
      const ptrdiff_t n = i / LANES<T>;
      any_from_[n] = is_first_of_vector ? from : smaller(any_from_[n], from);
      any_to_[n] = is_first_of_vector ? to : larger(any_to_[n], to);
      all_from_[n] = is_first_of_vector ? from : larger(all_from_[n], from);
      all_to_[n] = is_first_of_vector ? to : smaller(all_to_[n], to);
    }
  }

  template <class F> REGARD_INLINE void each(ptrdiff_t count, T* scores, F f) const {
    for (ptrdiff_t j = 0; j < count; ++j)
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        T* at = scores + j * QUERIES + i;
        store<T>(at, f(load<T>(at), j, i));
      }
  }

  void cap(ptrdiff_t count, T* scores) const {
    const T cap = T(call_.softcap), inverse = 1 / cap;
    each(count, scores, [=](V<T> s, ptrdiff_t, ptrdiff_t) { return cap * tanh<T>(s * inverse); });
  }

  static REGARD_INLINE V<T> biased(V<T> s, V<T> bias) {  // -infinity hides, also what is NaN
    return bias == -INFINITE<T> ? bias : s + bias;
  }

  // Ask for the bias of a slice of the queries, one for each slice of the keys: it comes while these are multiplied.
  REGARD_INLINE void fetch_bias(ptrdiff_t start, ptrdiff_t count, ptrdiff_t slice) const {
    const Matrix<T> bias = matrix_of<T>(call_.bias, head_).from(start_, start);
    if (bias.row == 0 || bias.column != 1) return;
    const ptrdiff_t to = smaller(count_, (slice + SLICE) * count_ / count + 1);
    for (ptrdiff_t i = slice * count_ / count; i < to; ++i)
      for (ptrdiff_t j = 0; j < count; j += 64 / ptrdiff_t(sizeof(T))) __builtin_prefetch(bias.data + i * bias.row + j, 0, 2);
  }

  void add_bias(ptrdiff_t start, ptrdiff_t count, T* scores) {
    const Matrix<T> bias = matrix_of<T>(call_.bias, head_).from(start_, start);
    if (bias.row == 0)
      return each(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t) { return biased(s, splat(bias.data[j * bias.column])); });
    if (bias.column == 1 && count_ % LANES<T> == 0) {  // as they are turned, which saves a way through the cache
      for_each_column<T>(bias.data, bias.row, count_, count, [=](ptrdiff_t j, ptrdiff_t i, V<T> x) __attribute__((always_inline)) {
        T* at = scores + j * QUERIES + i;
        store<T>(at, biased(load<T>(at), x));
      });
      return;
    }
    T* tile = room_;
    transposed<T>(bias, count_, count, tile, QUERIES);
    each(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t i) { return biased(s, load<T>(tile + j * QUERIES + i)); });
  }

  void add_diagonal(ptrdiff_t start, ptrdiff_t count, T* scores) const {
    const T* line = matrix_of<T>(call_.diagonal, head_).data + start_ + call_.keys - 1 - start;
    each(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t i) { return s + load<T>(line + i - j); });
  }

  const uint8_t* mask_from(ptrdiff_t key) const {
    return reinterpret_cast<const uint8_t*>(call_.mask.data) + call_.mask.offsets[head_] + start_ * call_.mask.row +
           key * call_.mask.column;
  }

  Cover masked(ptrdiff_t start, ptrdiff_t count) {
    if (start != covered_ || count != covers_) covered_ = start, covers_ = count, cover_ = cover_of(start, count);
    return cover_;
  }

  Cover cover_of(ptrdiff_t start, ptrdiff_t count) const {
    const uint8_t* mask = mask_from(start);
    const ptrdiff_t column = call_.mask.column, rows = call_.mask.row == 0 ? 1 : count_;
    Chunk all_of = Chunk{} + 1, some_of = {};
    uint8_t all = 1, some = 0;
    for (ptrdiff_t i = 0; i < rows; ++i, mask += call_.mask.row) {
      ptrdiff_t j = 0;
      if (column == 1)  // and what the next keys will need
        for (ptrdiff_t n = 0; n < KEYS; n += 64) __builtin_prefetch(mask + KEYS + n);
      for (; column == 1 && j + CHUNK <= count; j += CHUNK) {
        Chunk x;
        __builtin_memcpy(&x, mask + j, sizeof x);
        all_of &= Chunk(x != 0), some_of |= x;
      }
      for (; j < count; ++j) all &= mask[j * column] != 0, some |= mask[j * column] != 0;
      if (i % 8 == 7 || i + 1 == rows) {
        all &= !any(all_of == 0), some |= any(some_of != 0);
        if (some && !all) break;
      }
    }
    return all ? Cover::all : some ? Cover::some : Cover::none;
  }

  void hide_masked(ptrdiff_t start, ptrdiff_t count, T* scores) {
    const uint8_t* mask = mask_from(start);
    const ptrdiff_t column = call_.mask.column;
    if (call_.mask.row == 0)
      return each(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t) { return mask[j * column] ? s : splat(-INFINITE<T>); });
    uint8_t* tile = reinterpret_cast<uint8_t*>(room_);
    if (column == 1) {
      transposed(mask, call_.mask.row, count_, count, tile, QUERIES);
    } else {
      for (ptrdiff_t i = 0; i < count_; ++i)
        for (ptrdiff_t j = 0; j < count; ++j) tile[j * QUERIES + i] = mask[i * call_.mask.row + j * column];
    }
    typedef uint8_t Bytes __attribute__((vector_size(LANES<T>)));
    each(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t i) {
      Bytes seen;
      __builtin_memcpy(&seen, tile + j * QUERIES + i, sizeof seen);
      return __builtin_convertvector(seen, V<Int<T>>) != 0 ? s : splat(-INFINITE<T>);
    });
  }

  void hide_outside(ptrdiff_t start, ptrdiff_t count, T* scores) const {
    for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
      const V<Int<T>> first = load<Int<T>>(first_ + i) - Int<T>(start), last = load<Int<T>>(last_ + i) - Int<T>(start);
      const auto cut = [&](ptrdiff_t from, ptrdiff_t to) {
        for (ptrdiff_t j = from; j < to; ++j) {
          T* at = scores + j * QUERIES + i;
          store<T>(at, (first <= Int<T>(j)) & (last > Int<T>(j)) ? load<T>(at) : splat(-INFINITE<T>));
        }
      };
      const ptrdiff_t from = within(all_from_[i / LANES<T>], start, count);
      const ptrdiff_t to = larger(from, within(all_to_[i / LANES<T>], start, count));
      cut(0, from);
      cut(to, count);
    }
  }

  const Attention& call_;
  T *queries_, *room_;
  Int<T>*first_, *last_;
  ptrdiff_t *any_from_, *any_to_, *all_from_, *all_to_;  // the keys that any, and that all of a vector of queries may see
  ptrdiff_t covered_ = -1, covers_ = 0;  // the first of the keys that `cover_` is of, and how many
  Cover cover_ = Cover::none;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0, lanes_ = 0, begin_ = 0, end_ = 0, inner_begin_ = 0, inner_end_ = 0;
};

}  // namespace regard::REGARD_ISA
