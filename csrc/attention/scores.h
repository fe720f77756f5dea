// Scores of a block of queries against a block of keys: scale, softcap, bias, mask, in this order.
//
// Scores are stored transposed, [key][BLOCK_QUERIES]: a vector holds several queries of one key, so the maximum and the
// sum of each row are lane-wise operations.
#pragma once

#include "attention/mask_access.h"
#include "gemm/gemm.h"
#include "runtime/scratch.h"

namespace regard::REGARD_ISA {

template <class T> class ScoreBlock {
 public:
  ScoreBlock(const AttentionParams& params, Scratch& scratch)
      : params_(params),
        queries_(scratch.allocate<T>(params.head_dim, BLOCK_QUERIES)),
        buffer_(scratch.allocate<T>(max_of<ptrdiff_t>(BLOCK_QUERIES, BLOCK_KEYS),
                                    max_of<ptrdiff_t>(params.head_dim, BLOCK_QUERIES))),
        key_begin_(scratch.allocate<Int<T>>(BLOCK_QUERIES)),
        key_end_(scratch.allocate<Int<T>>(BLOCK_QUERIES)),
        any_begin_(scratch.allocate<ptrdiff_t>(BLOCK_QUERIES / LANES<T>)),
        any_end_(scratch.allocate<ptrdiff_t>(BLOCK_QUERIES / LANES<T>)),
        all_begin_(scratch.allocate<ptrdiff_t>(BLOCK_QUERIES / LANES<T>)),
        all_end_(scratch.allocate<ptrdiff_t>(BLOCK_QUERIES / LANES<T>)) {}

  // Select queries start <= i < start + count of a head, at most BLOCK_QUERIES, and find the keys they attend to.
  void set_block(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    classified_start_ = -1;
    head_ = head, start_ = start, count_ = count, lanes_ = round_up(count, LANES<T>);
    find_key_ranges();
  }

  // Load the selected queries, transposed.
  void load_queries() {
    for (ptrdiff_t d = 0; d < params_.head_dim; ++d)
      for (ptrdiff_t i = count_ & ~ptrdiff_t(LANES<T> - 1); i < lanes_; ++i) queries_[d * BLOCK_QUERIES + i] = 0;
    transpose_copy<T>(load_rows<T>(params_.q, head_, start_, count_, params_.head_dim, buffer_), count_,
                      params_.head_dim, queries_, BLOCK_QUERIES);
  }

  void load_queries(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    set_block(head, start, count);
    load_queries();
  }

  // No query of the block attends to a key outside begin <= j < end.
  ptrdiff_t begin() const { return begin_; }
  ptrdiff_t end() const { return end_; }
  ptrdiff_t lanes() const { return lanes_; }

  // Whether all scaled scores so far were finite, and not close to infinity.
  bool all_finite() const { return !any(load<T>(invalid_) != 0); }

  // Whether the mask allows any of these keys for any query of the block.
  bool any_allowed(ptrdiff_t start, ptrdiff_t count) {
    if (params_.mask_blocks && mask_block(params_, head_, start_, start) == EMPTY_BLOCK) return false;
    return !params_.mask || mask_block_kind(start, count) != BlockKind::empty;
  }

  // Compute the scores of keys start <= j < start + count; masked scores are -infinity. `capped`, if not null, receives
  // the scores before bias and mask.
  void compute(ptrdiff_t start, ptrdiff_t count, T* scores, T* capped = nullptr) {
    compute(load_rows<T>(params_.k, head_, start, count, params_.head_dim, buffer_), start, count, scores, capped);
  }

  // The same with keys already loaded.
  void compute(Matrix<T> keys, ptrdiff_t start, ptrdiff_t count, T* scores, T* capped = nullptr) {
    const T scale = T(params_.scale);
    for_each_allowed_run(start, count, [&](ptrdiff_t from, ptrdiff_t to, ptrdiff_t lane, ptrdiff_t lanes) {
      fill_masked(from, to, 0, lane, scores);
      const ptrdiff_t step = params_.bias ? PREFETCH_KEYS : BLOCK_KEYS;
      for (ptrdiff_t j = from; j < to; j += step) {
        if (params_.bias) prefetch_bias(start, count, j);
        gemm<T>(Epilogue::scale, {keys.block(j), min_of(step, to - j), params_.head_dim, queries_ + lane, BLOCK_QUERIES,
                                  scores + j * BLOCK_QUERIES + lane, BLOCK_QUERIES, lanes, &scale, invalid_});
      }
      fill_masked(from, to, lane + lanes, lanes_, scores);
    });
    finish(start, count, scores, capped);
  }

  // Apply softcap, bias and mask to the scaled scores of a block.
  void finish(ptrdiff_t start, ptrdiff_t count, T* scores, T* capped = nullptr) {
    if (params_.softcap > 0) apply_softcap(count, scores);
    if (capped)
      for (ptrdiff_t i = 0; i < count * BLOCK_QUERIES; i += LANES<T>) store<T>(capped + i, load<T>(scores + i));
    if (params_.bias) add_bias(start, count, scores);
    if (params_.distance_bias) add_distance_bias(start, count, scores);
    if (params_.mask && mask_block_kind(start, count) != BlockKind::full) apply_mask(start, count, scores);
    if (params_.mask_blocks) apply_mask_block(start, count, scores);
    if (is_edge(start, count)) apply_key_ranges(start, count, scores);
  }

  // Call f(lane, lanes, from, to) for groups of lanes that attend to keys start + from <= j < start + to, with the
  // granularity of a vector. At the edges of the mask this skips about a third of the work.
  template <class F> REGARD_INLINE void for_each_allowed_part(ptrdiff_t start, ptrdiff_t count, F f) const {
    if (!is_edge(start, count)) return f(0, lanes_, 0, count);
    const auto vector_bound = [=](const ptrdiff_t* keys, ptrdiff_t i) {
      return clip_to_block(keys[i / LANES<T>], start, count);
    };
    for (ptrdiff_t lane = 0, next; lane < lanes_; lane = next) {
      const ptrdiff_t from = vector_bound(any_begin_, lane), to = max_of(from, vector_bound(any_end_, lane));
      const auto same = [&](ptrdiff_t n) {
        return vector_bound(any_begin_, n) == from && vector_bound(any_end_, n) == to;
      };
      for (next = lane + LANES<T>; next < lanes_ && same(next);) next += LANES<T>;
      f(lane, next - lane, from, to);
    }
  }

 private:
  enum class BlockKind { empty, partial, full };
  static constexpr int MASK_BYTES = 32;  // read at once; divides BLOCK_KEYS
  typedef uint8_t MaskVector __attribute__((vector_size(MASK_BYTES)));

  static constexpr ptrdiff_t PREFETCH_KEYS = 2 * MR;  // keys multiplied between two prefetches of the bias

  bool is_edge(ptrdiff_t start, ptrdiff_t count) const { return start < inner_begin_ || start + count > inner_end_; }

  static ptrdiff_t clip_to_block(ptrdiff_t key, ptrdiff_t start, ptrdiff_t count) {
    return max_of<ptrdiff_t>(0, min_of(key - start, count));
  }

  // The same by keys: f(from, to, lane, lanes) for runs of keys that the same lanes attend to; each key is read once.
  template <class F> REGARD_INLINE void for_each_allowed_run(ptrdiff_t start, ptrdiff_t count, F f) const {
    if (!is_edge(start, count)) return f(0, count, 0, lanes_);
    for (ptrdiff_t from = 0, to; from < count; from = to) {
      ptrdiff_t first = lanes_, last = 0;
      to = count;
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        const ptrdiff_t begin = any_begin_[i / LANES<T>] - start, end = any_end_[i / LANES<T>] - start;
        if (begin <= from && from < end) first = min_of(first, i), last = i + LANES<T>;
        if (begin > from) to = min_of(to, begin);
        if (end > from) to = min_of(to, end);
      }
      f(from, to, first, max_of<ptrdiff_t>(0, last - first));
    }
  }

  static void fill_masked(ptrdiff_t from, ptrdiff_t to, ptrdiff_t lane, ptrdiff_t end, T* scores) {
    for (ptrdiff_t j = from; j < to; ++j)
      for (ptrdiff_t i = lane; i < end; i += LANES<T>) store<T>(scores + j * BLOCK_QUERIES + i, splat(-INF<T>));
  }

  void find_key_ranges() {
    const MaskAccess<T> mask(params_, head_);
    begin_ = inner_begin_ = 0;
    end_ = inner_end_ = params_.keys;
    for (ptrdiff_t i = 0; i < BLOCK_QUERIES; ++i) {
      key_begin_[i] = 0, key_end_[i] = Int<T>(params_.keys);
      if (i >= count_) continue;
      key_begin_[i] = max_of<Int<T>>(0, Int<T>(mask.key_begin(start_ + i)));
      key_end_[i] = max_of<Int<T>>(0, min_of<Int<T>>(key_end_[i], Int<T>(mask.key_end(start_ + i))));
      const bool is_first = i == 0, is_first_of_vector = i % LANES<T> == 0;
      const ptrdiff_t from = min_of<ptrdiff_t>(key_begin_[i], params_.keys), to = max_of<ptrdiff_t>(key_end_[i], 0);
      begin_ = is_first ? from : min_of(begin_, from), inner_begin_ = is_first ? from : max_of(inner_begin_, from);
      end_ = is_first ? to : max_of(end_, to), inner_end_ = is_first ? to : min_of(inner_end_, to);
      const ptrdiff_t n = i / LANES<T>;
      any_begin_[n] = is_first_of_vector ? from : min_of(any_begin_[n], from);
      any_end_[n] = is_first_of_vector ? to : max_of(any_end_[n], to);
      all_begin_[n] = is_first_of_vector ? from : max_of(all_begin_[n], from);
      all_end_[n] = is_first_of_vector ? to : min_of(all_end_[n], to);
    }
    if (params_.mask_blocks && begin_ < end_) begin_ = begin_ / BLOCK_KEYS * BLOCK_KEYS;
  }

  template <class F> REGARD_INLINE void transform(ptrdiff_t count, T* scores, F f) const {
    for (ptrdiff_t j = 0; j < count; ++j)
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        T* at = scores + j * BLOCK_QUERIES + i;
        store<T>(at, f(load<T>(at), j, i));
      }
  }

  void apply_softcap(ptrdiff_t count, T* scores) const {
    const T cap = T(params_.softcap), inverse = 1 / cap;
    transform(count, scores, [=](V<T> s, ptrdiff_t, ptrdiff_t) { return cap * tanh<T>(s * inverse); });
  }

  // A bias of -infinity masks, NaN included; a sum that overflows does not.
  static REGARD_INLINE V<T> biased(V<T> s, V<T> bias) {
    return bias == -INF<T> ? bias : max<T>(s + bias, splat(-MAX_FINITE<T>));
  }

  // Prefetch the bias of a few queries while a few keys are multiplied.
  REGARD_INLINE void prefetch_bias(ptrdiff_t start, ptrdiff_t count, ptrdiff_t key) const {
    const Matrix<T> bias = head_matrix<T>(params_.bias, head_).block(start_, start);
    if (bias.row_stride == 0 || bias.col_stride != 1) return;
    const ptrdiff_t to = min_of(count_, (key + PREFETCH_KEYS) * count_ / count + 1);
    for (ptrdiff_t i = key * count_ / count; i < to; ++i)
      for (ptrdiff_t j = 0; j < count; j += 64 / ptrdiff_t(sizeof(T)))
        __builtin_prefetch(bias.data + i * bias.row_stride + j, 0, 2);
  }

  void add_bias(ptrdiff_t start, ptrdiff_t count, T* scores) {
    const Matrix<T> bias = head_matrix<T>(params_.bias, head_).block(start_, start);
    if (bias.row_stride == 0)
      return transform(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t) {
        return biased(s, splat(bias.data[j * bias.col_stride]));
      });
    if (bias.col_stride == 1 && count_ % LANES<T> == 0) {  // transpose in registers, without a buffer
      for_each_column<T>(bias.data, bias.row_stride, count_, count,
                         [=](ptrdiff_t j, ptrdiff_t i, V<T> x) __attribute__((always_inline)) {
                           T* at = scores + j * BLOCK_QUERIES + i;
                           store<T>(at, biased(load<T>(at), x));
                         });
      return;
    }
    T* tile = buffer_;
    for (ptrdiff_t j = 0; j < count; ++j)  // a NaN there would say that a result is not finite
      for (ptrdiff_t i = count_; i < lanes_; ++i) tile[j * BLOCK_QUERIES + i] = 0;
    transpose_copy<T>(bias, count_, count, tile, BLOCK_QUERIES);
    transform(count, scores,
              [=](V<T> s, ptrdiff_t j, ptrdiff_t i) { return biased(s, load<T>(tile + j * BLOCK_QUERIES + i)); });
  }

  void add_distance_bias(ptrdiff_t start, ptrdiff_t count, T* scores) const {
    const T* biases = head_matrix<T>(params_.distance_bias, head_).data + start_ + params_.keys - 1 - start;
    transform(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t i) { return biased(s, load<T>(biases + i - j)); });
  }

  const uint8_t* mask_ptr(ptrdiff_t key) const {
    return reinterpret_cast<const uint8_t*>(params_.mask.data) + params_.mask.offsets[head_] +
           start_ * params_.mask.row_stride + key * params_.mask.col_stride;
  }

  BlockKind mask_block_kind(ptrdiff_t start, ptrdiff_t count) {
    if (start != classified_start_ || count != classified_count_)
      classified_start_ = start, classified_count_ = count, block_kind_ = classify(start, count);
    return block_kind_;
  }

  BlockKind classify(ptrdiff_t start, ptrdiff_t count) const {
    const uint8_t* mask = mask_ptr(start);
    const ptrdiff_t column = params_.mask.col_stride, rows = params_.mask.row_stride == 0 ? 1 : count_;
    MaskVector all_vector = MaskVector{} + 1, some_vector = {};
    uint8_t all = 1, some = 0;
    for (ptrdiff_t i = 0; i < rows; ++i, mask += params_.mask.row_stride) {
      ptrdiff_t j = 0;
      if (column == 1)  // prefetch the mask of the next keys
        for (ptrdiff_t n = 0; n < BLOCK_KEYS; n += 64) __builtin_prefetch(mask + BLOCK_KEYS + n);
      for (; column == 1 && j + MASK_BYTES <= count; j += MASK_BYTES) {
        MaskVector x;
        __builtin_memcpy(&x, mask + j, sizeof x);
        all_vector &= MaskVector(x != 0), some_vector |= x;
      }
      for (; j < count; ++j) all &= mask[j * column] != 0, some |= mask[j * column] != 0;
      if (i % 8 == 7 || i + 1 == rows) {
        all &= !any(all_vector == 0), some |= any(some_vector != 0);
        if (some && !all) break;
      }
    }
    return all ? BlockKind::full : some ? BlockKind::partial : BlockKind::empty;
  }

  void apply_mask(ptrdiff_t start, ptrdiff_t count, T* scores) {
    const uint8_t* mask = mask_ptr(start);
    const ptrdiff_t column = params_.mask.col_stride;
    if (params_.mask.row_stride == 0)
      return transform(count, scores,
                       [=](V<T> s, ptrdiff_t j, ptrdiff_t) { return mask[j * column] ? s : splat(-INF<T>); });
    uint8_t* tile = reinterpret_cast<uint8_t*>(buffer_);
    if (column == 1) {
      transpose_copy(mask, params_.mask.row_stride, count_, count, tile, BLOCK_QUERIES);
    } else {
      for (ptrdiff_t i = 0; i < count_; ++i)
        for (ptrdiff_t j = 0; j < count; ++j)
          tile[j * BLOCK_QUERIES + i] = mask[i * params_.mask.row_stride + j * column];
    }
    typedef uint8_t Bytes __attribute__((vector_size(LANES<T>)));
    transform(count, scores, [=](V<T> s, ptrdiff_t j, ptrdiff_t i) {
      Bytes allowed;
      __builtin_memcpy(&allowed, tile + j * BLOCK_QUERIES + i, sizeof allowed);
      return __builtin_convertvector(allowed, V<Int<T>>) != 0 ? s : splat(-INF<T>);
    });
  }

  void apply_mask_block(ptrdiff_t start, ptrdiff_t count, T* scores) const {
    const int32_t block = mask_block(params_, head_, start_, start);
    if (block < 0) return;  // full; empty ones are not computed
    V<Int<T>> bits;
    for (int n = 0; n < LANES<T>; ++n) bits[n] = Int<T>(1) << n;
    for (ptrdiff_t j = 0; j < count; ++j) {
      const uint64_t word = mask_word(params_, block, start + j);
      if (word == ~uint64_t(0)) continue;
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        T* at = scores + j * BLOCK_QUERIES + i;
        const V<Int<T>> own = (V<Int<T>>{} + Int<T>(uint32_t(word >> i))) & bits;
        store<T>(at, own != 0 ? load<T>(at) : splat(-INF<T>));
      }
    }
  }

  void apply_key_ranges(ptrdiff_t start, ptrdiff_t count, T* scores) const {
    for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
      const V<Int<T>> first = load<Int<T>>(key_begin_ + i) - Int<T>(start),
                      last = load<Int<T>>(key_end_ + i) - Int<T>(start);
      const auto fill_outside = [&](ptrdiff_t from, ptrdiff_t to) {
        for (ptrdiff_t j = from; j < to; ++j) {
          T* at = scores + j * BLOCK_QUERIES + i;
          store<T>(at, ((first <= Int<T>(j)) & (last > Int<T>(j))) ? load<T>(at) : splat(-INF<T>));
        }
      };
      const ptrdiff_t from = clip_to_block(all_begin_[i / LANES<T>], start, count);
      const ptrdiff_t to = max_of(from, clip_to_block(all_end_[i / LANES<T>], start, count));
      fill_outside(0, from);
      fill_outside(to, count);
    }
  }

  const AttentionParams& params_;
  T *queries_, *buffer_;
  T invalid_[LANES<T>] = {};  // 0, or NaN once a scaled score was not finite, or close to it
  Int<T>*key_begin_, *key_end_;
  // For each vector of queries: the keys that any, and that all of them attend to.
  ptrdiff_t *any_begin_, *any_end_, *all_begin_, *all_end_;
  ptrdiff_t classified_start_ = -1, classified_count_ = 0;  // the keys of `block_kind_`
  BlockKind block_kind_ = BlockKind::empty;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0, lanes_ = 0, begin_ = 0, end_ = 0, inner_begin_ = 0, inner_end_ = 0;
};

}  // namespace regard::REGARD_ISA
