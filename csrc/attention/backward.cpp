// Attention backward pass (as in FlashAttention): the weights are recomputed block by block.
//
// With weights P, O = P V and dP = dO V^T: dV = P^T dO, dS = P * (dP - delta), dQ = dS K, dK = dS^T Q, where
// delta = rowsum(P * dP) = rowsum(dO * O) does not need P.
//
// A task takes a range of keys of one head and iterates over the queries that attend to any of them. It accumulates dK
// and dV privately; tasks add to dQ in the order of their keys (runtime/ordered_accumulation.h). Queries are iterated
// from last to first: under a causal mask, tasks of later keys then never wait for those of earlier keys, which have
// more work.
#include "attention/dropout.h"
#include "attention/online_softmax.h"
#include "kernels.h"
#include "runtime/ordered_accumulation.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t QUERIES_PER_TASK = 128 * BLOCK_QUERIES;  // bounds the time of a task

template <class T> void copy_finite(const T* from, ptrdiff_t count, T* to) {
  for (ptrdiff_t i = 0; i < count; ++i) to[i] = from[i] - from[i] == 0 ? from[i] : T(0);
}

template <class T> class BackwardKernel {
 public:
  BackwardKernel(const BackwardParams& params, Scratch& scratch)
      : params_(params),
        fwd_(params.attention),
        width_(round_up(fwd_.head_dim, LANES<T>)),
        value_width_(round_up(fwd_.value_dim, LANES<T>)),
        key_splits_(max_of<ptrdiff_t>(1, ceil_div(fwd_.keys, params.keys_per_task))),
        blocks_(ceil_div(fwd_.queries, BLOCK_QUERIES)),
        scores_(fwd_, scratch) {
    const ptrdiff_t keys = min_of(fwd_.keys, params.keys_per_task), tile = BLOCK_KEYS * BLOCK_QUERIES;
    keys_buffer_ = scratch.allocate<T>(keys, width_), values_buffer_ = scratch.allocate<T>(keys, value_width_);
    d_k_ = scratch.allocate<T>(keys, width_), d_v_ = scratch.allocate<T>(keys, value_width_);
    queries_buffer_ = scratch.allocate<T>(BLOCK_QUERIES, width_),
    outputs_buffer_ = scratch.allocate<T>(BLOCK_QUERIES, value_width_);
    d_q_ = scratch.allocate<T>(BLOCK_QUERIES, width_),
    d_out_transposed_ = scratch.allocate<T>(value_width_, BLOCK_QUERIES);
    weights_ = scratch.allocate<T>(tile), d_scores_ = scratch.allocate<T>(tile);
    capped_ = fwd_.softcap > 0 ? scratch.allocate<T>(tile) : nullptr;
    row_buffer_ = scratch.allocate<T>(max_of<ptrdiff_t>(max_of(fwd_.head_dim, fwd_.value_dim), BLOCK_QUERIES));
    shift_ = scratch.allocate<T>(BLOCK_QUERIES), inverse_sum_ = scratch.allocate<T>(BLOCK_QUERIES),
    delta_ = scratch.allocate<T>(BLOCK_QUERIES);
    d_query_bias_ = scratch.allocate<T>(BLOCK_QUERIES);
    d_key_bias_ = params.d_key_bias ? scratch.allocate<T>(keys) : nullptr;
    d_distance_bias_ = params.d_distance_bias
                           ? scratch.allocate<T>(min_of(fwd_.queries, QUERIES_PER_TASK) + keys + BLOCK_QUERIES)
                           : nullptr;
  }

  void run(ptrdiff_t task) {
    if (cancelled()) return;
    head_ = task % fwd_.heads, key_split_ = task / fwd_.heads % key_splits_;
    const ptrdiff_t segment = task / fwd_.heads / key_splits_;
    key_begin_ = key_split_ * params_.keys_per_task, key_end_ = min_of(key_begin_ + params_.keys_per_task, fwd_.keys);
    first_query_ = segment * QUERIES_PER_TASK;
    const ptrdiff_t end = min_of(first_query_ + QUERIES_PER_TASK, fwd_.queries), keys = key_end_ - key_begin_;
    keys_loaded_ = false;
    if (d_distance_bias_) clear(d_distance_bias_, end - first_query_ + keys + BLOCK_QUERIES);
    for (ptrdiff_t i = ceil_div(end - first_query_, BLOCK_QUERIES) - 1; i >= 0 && !cancelled(); --i) {
      const ptrdiff_t start = first_query_ + i * BLOCK_QUERIES;
      process_block(start, min_of<ptrdiff_t>(BLOCK_QUERIES, end - start));
    }
    finish(segment);
  }

 private:
  bool cancelled() const { return __atomic_load_n(params_.nonfinite, __ATOMIC_RELAXED); }
  void cancel() const { set_flag(params_.nonfinite); }
  static void clear(T* x, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; ++i) x[i] = 0;
  }

  // Rows of an operand padded with zeros to `width` elements: in place, or copied into `buffer`.
  Matrix<T> padded_rows(const Operand& x, ptrdiff_t start, ptrdiff_t count, ptrdiff_t columns, ptrdiff_t width,
                        T* buffer) {
    const bool compact = x.col_stride == 1 && x.row_stride >= 0 && x.row_stride <= 2 * width;  // for cache locality
    if (compact && width == columns && !is_half(x.dtype)) return head_matrix<T>(x, head_).block(start);
    for (ptrdiff_t i = 0; i < count; ++i) {
      const Matrix<T> row = load_rows<T>(x, head_, start + i, 1, columns, row_buffer_);
      T* to = buffer + i * width;
      for (ptrdiff_t d = 0; d < columns; ++d) to[d] = row.data[d * row.col_stride];
      for (ptrdiff_t d = columns; d < width; ++d) to[d] = 0;
    }
    return {buffer, width, 1};
  }

  // Keys or values with infinities and NaN replaced by 0, because 0 * NaN would reach every sum. If a query attends to
  // one of them there is no derivative: cancel.
  Matrix<T> zero_nonfinite(Matrix<T> x, ptrdiff_t keys, ptrdiff_t width, T* buffer) {
    if (all_finite(x, keys, width)) return x;
    const MaskAccess<T> mask(fwd_, head_);
    for (ptrdiff_t j = 0; j < keys; ++j) {
      const bool finite = all_finite(x.block(j), 1, width);
      for (ptrdiff_t i = 0; i < fwd_.queries && !finite; ++i)
        if (mask.allows(i, key_begin_ + j)) cancel();
      copy_finite(x.data + j * x.row_stride, width, buffer + j * width);
    }
    return {buffer, width, 1};
  }

  void load_keys() {
    const ptrdiff_t keys = key_end_ - key_begin_;
    k_ = zero_nonfinite(padded_rows(fwd_.k, key_begin_, keys, fwd_.head_dim, width_, keys_buffer_), keys, width_,
                        keys_buffer_);
    const Matrix<T> values = padded_rows(fwd_.v, key_begin_, keys, fwd_.value_dim, value_width_, values_buffer_);
    v_ = zero_nonfinite(values, keys, value_width_, values_buffer_);
    clear(d_k_, keys * width_), clear(d_v_, keys * value_width_);
    if (d_key_bias_) clear(d_key_bias_, keys);
    keys_loaded_ = true;
  }

  // The gradients of a block of queries and the keys of this task.
  void process_block(ptrdiff_t start, ptrdiff_t count) {
    start_ = start, count_ = count, lanes_ = round_up(count, LANES<T>);
    scores_.set_block(head_, start, count);
    const ptrdiff_t begin = scores_.begin(), end = scores_.end();
    const ptrdiff_t from = max_of(begin, key_begin_), to = min_of(end, key_end_);
    if (from < to) {
      if (!keys_loaded_) load_keys();
      load_queries();
      bool is_first = true;
      for (ptrdiff_t j = from; j < to; j += BLOCK_KEYS) {
        const ptrdiff_t keys = min_of<ptrdiff_t>(BLOCK_KEYS, to - j);
        if (!scores_.any_allowed(j, keys)) continue;
        add(j, keys, is_first);
        is_first = false;
      }
      if (is_first) clear(d_q_, BLOCK_QUERIES * width_);
      const auto order = int32_t(key_split_ - begin / params_.keys_per_task);  // preceding tasks that add to this block
      int32_t* ticket = params_.d_q_tickets + head_ * blocks_ + start / BLOCK_QUERIES;
      wait_for_ticket(ticket, order, params_.nonfinite);
      accumulate_rows(d_q_, width_, start, count, fwd_.head_dim, params_.d_q, order > 0);
      if (params_.d_query_bias) accumulate_rows(d_query_bias_, 1, start, count, 1, params_.d_query_bias, order > 0);
      advance_ticket(ticket, order);
    } else if (begin >= end && key_split_ == 0) {  // no query attends to any key
      clear(d_q_, BLOCK_QUERIES * width_), clear(d_query_bias_, BLOCK_QUERIES);
      accumulate_rows(d_q_, width_, start, count, fwd_.head_dim, params_.d_q, false);
      if (params_.d_query_bias) accumulate_rows(d_query_bias_, 1, start, count, 1, params_.d_query_bias, false);
    }
    if (params_.d_bias) {
      int32_t* ticket = d_bias_ticket();
      wait_for_ticket(ticket, params_.d_bias_rank[head_], params_.nonfinite);
      advance_ticket(ticket, params_.d_bias_rank[head_]);
    }
  }

  int32_t* d_bias_ticket() const {
    return params_.d_bias_tickets + (params_.d_bias_owner[head_] * key_splits_ + key_split_) * blocks_ +
           start_ / BLOCK_QUERIES;
  }

  void load_queries() {
    scores_.load_queries();
    q_ = padded_rows(fwd_.q, start_, count_, fwd_.head_dim, width_, queries_buffer_);
    d_out_ = padded_rows(params_.d_output, start_, count_, fwd_.value_dim, value_width_, outputs_buffer_);
    const T* row_max = head_matrix<T>(fwd_.row_max, head_).data + start_;
    const double* row_sum = head_matrix<double>(fwd_.row_sum, head_).data + start_;
    const T* delta = head_matrix<T>(params_.delta, head_).data + start_;
    bool all_attend = true;
    for (ptrdiff_t i = 0; i < BLOCK_QUERIES; ++i) {
      const bool attends = i < count_ && row_sum[i] != 0;
      shift_[i] = attends ? row_max[i] : T(0);
      inverse_sum_[i] = attends ? T(1 / row_sum[i]) : T(0);
      delta_[i] = attends ? delta[i] : T(0);
      d_query_bias_[i] = 0;
      all_attend &= attends || i >= count_;
    }
    if (!all_attend || fwd_.sinks) {  // rows without allowed keys may hold NaN, which must not propagate
      for (ptrdiff_t i = 0; i < count_; ++i) {
        copy_finite(q_.data + i * q_.row_stride, width_, queries_buffer_ + i * width_);
        copy_finite(d_out_.data + i * d_out_.row_stride, value_width_, outputs_buffer_ + i * value_width_);
      }
      q_ = {queries_buffer_, width_, 1}, d_out_ = {outputs_buffer_, value_width_, 1};
    }
    for (ptrdiff_t d = 0; d < fwd_.value_dim; ++d)
      for (ptrdiff_t i = count_ & ~ptrdiff_t(LANES<T> - 1); i < lanes_; ++i)
        d_out_transposed_[d * BLOCK_QUERIES + i] = 0;
    transpose_copy<T>(d_out_, count_, fwd_.value_dim, d_out_transposed_, BLOCK_QUERIES);
  }

  // The gradients of a block of keys and the block of queries.
  void add(ptrdiff_t start, ptrdiff_t count, bool is_first) {
    const ptrdiff_t at = start - key_begin_;
    const Matrix<T> keys = k_.block(at), values = v_.block(at);
    scores_.compute(keys, start, count, weights_, capped_);
    gemm<T>(Epilogue::set,
            {values, count, fwd_.value_dim, d_out_transposed_, BLOCK_QUERIES, d_scores_, BLOCK_QUERIES, lanes_});
    if (fwd_.dropout.threshold) apply_dropout<T>(fwd_, head_, start_, lanes_, start, count, d_scores_);
    const bool fused_scale = fwd_.softcap == 0 && !needs_bias_grad();
    softmax_backward(count, T(fused_scale ? fwd_.scale : 1));
    if (fwd_.dropout.threshold) apply_dropout<T>(fwd_, head_, start_, lanes_, start, count, weights_);
    const Matrix<T> weights = {weights_, BLOCK_QUERIES, 1}, d_scores = {d_scores_, BLOCK_QUERIES, 1};
    gemm<T>(Epilogue::add, {weights, count, count_, d_out_.data, d_out_.row_stride, d_v_ + at * value_width_,
                            value_width_, value_width_});
    if (!fused_scale) {
      accumulate_bias(start, count);
      softcap_backward(count);
    }
    gemm<T>(Epilogue::add, {d_scores, count, count_, q_.data, q_.row_stride, d_k_ + at * width_, width_, width_});
    gemm<T>(is_first ? Epilogue::set : Epilogue::add,
            {d_scores.transposed(), count_, count, keys.data, keys.row_stride, d_q_, width_, width_});
  }

  bool needs_bias_grad() const {
    return params_.d_bias || params_.d_key_bias || params_.d_query_bias || params_.d_distance_bias;
  }

  // Turn scores into weights, and the gradients of the weights into those of the scores, times a factor.
  void softmax_backward(ptrdiff_t count, T factor) {
    constexpr ptrdiff_t width = 2 * LANES<T>;  // as many as fit into registers
    ptrdiff_t i = 0;
    for (; i + width <= lanes_; i += width) softmax_backward_lanes<2>(count, i, factor);
    for (; i < lanes_; i += LANES<T>) softmax_backward_lanes<1>(count, i, factor);
  }

  template <int vectors> void softmax_backward_lanes(ptrdiff_t count, ptrdiff_t lane, T factor) {
    V<T> shift[vectors], inverse_sum[vectors], delta[vectors];
    for (int n = 0; n < vectors; ++n) {
      shift[n] = load<T>(shift_ + lane + n * LANES<T>), inverse_sum[n] = load<T>(inverse_sum_ + lane + n * LANES<T>);
      delta[n] = load<T>(delta_ + lane + n * LANES<T>);
    }
    for (ptrdiff_t j = 0; j < count; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) {
        T *at = weights_ + j * BLOCK_QUERIES + lane + n * LANES<T>,
          *d_at = d_scores_ + j * BLOCK_QUERIES + lane + n * LANES<T>;
        const V<T> e = softmax_exp<T>(min<T>(load<T>(at) - shift[n], V<T>{})), weight = e * inverse_sum[n];
        store<T>(at, weight);
        store<T>(d_at, e == 0 ? V<T>{} : weight * factor * (load<T>(d_at) - delta[n]));  // masked: 0, even for NaN
      }
  }

  void softcap_backward(ptrdiff_t count) {
    const T scale = T(fwd_.scale), cap = T(fwd_.softcap);
    for (ptrdiff_t n = 0; n < count * BLOCK_QUERIES; n += LANES<T>) {
      V<T> d = load<T>(d_scores_ + n) * scale;
      if (fwd_.softcap > 0) {
        const V<T> t = load<T>(capped_ + n) / cap;  // tanh
        d = d == 0 ? V<T>{} : d * fma<T>(-t, t, splat(T(1)));
      }
      store<T>(d_scores_ + n, d);
    }
  }

  // Add the gradients of the scores to those of the bias, summed over the axes along which it broadcasts.
  void accumulate_bias(ptrdiff_t start, ptrdiff_t count) {
    if (count_ < lanes_)  // lanes without a query
      for (ptrdiff_t j = 0; j < count; ++j) clear(d_scores_ + j * BLOCK_QUERIES + count_, lanes_ - count_);
    for (ptrdiff_t j = 0; j < count; ++j) {
      V<T> sums = {};
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        const V<T> d = load<T>(d_scores_ + j * BLOCK_QUERIES + i);
        sums += d;
        store<T>(d_query_bias_ + i, load<T>(d_query_bias_ + i) + d);
        if (!d_distance_bias_) continue;
        T* at = d_distance_bias_ + (start_ - first_query_ + i) + (key_end_ - 1 - start - j);
        store<T>(at, load<T>(at) + d);
      }
      if (d_key_bias_) d_key_bias_[start - key_begin_ + j] += reduce_sum<T>(sums);
    }
    if (!params_.d_bias) return;
    wait_for_ticket(d_bias_ticket(), params_.d_bias_rank[head_], params_.nonfinite);
    T* rows = weights_;  // no longer needed
    transpose_copy<T>(d_scores_, BLOCK_QUERIES, count, count_, rows, BLOCK_KEYS);
    const Matrix<T> to = head_matrix<T>(params_.d_bias, head_).block(start_, start);
    for (ptrdiff_t i = 0; i < count_; ++i)
      for (ptrdiff_t j = 0; j < count; ++j)
        const_cast<T&>(to.data[i * to.row_stride + j * to.col_stride]) += rows[i * BLOCK_KEYS + j];
  }

  // Store rows of `columns` elements in an operand, or add to it. Cancel if a result is not finite.
  void accumulate_rows(const T* rows, ptrdiff_t width, ptrdiff_t start, ptrdiff_t count, ptrdiff_t columns,
                       const Operand& to, bool accumulate) const {
    V<T> invalid = {};  // becomes NaN where a result is not finite
    for (ptrdiff_t i = 0; i < count; ++i) {
      const Matrix<T> row_out = head_matrix<T>(to, head_).block(start + i);
      T* out = const_cast<T*>(row_out.data);
      ptrdiff_t d = 0;
      if (row_out.col_stride == 1)
        for (; d + LANES<T> <= columns; d += LANES<T>) {
          const V<T> row = load<T>(rows + i * width + d), sum = accumulate ? load<T>(out + d) + row : row;
          invalid = fma<T>(sum, V<T>{}, invalid);
          store<T>(out + d, sum);
        }
      for (; d < columns; ++d) {
        T& x = out[d * row_out.col_stride];
        x = accumulate ? x + rows[i * width + d] : rows[i * width + d];
        invalid[0] += x * 0;
      }
    }
    if (any(invalid != 0)) cancel();
  }

  void finish(ptrdiff_t segment) {
    const ptrdiff_t keys = key_end_ - key_begin_;
    int32_t* ticket = params_.d_kv_tickets + head_ * key_splits_ + key_split_;
    wait_for_ticket(ticket, int32_t(segment), params_.nonfinite);
    if (keys_loaded_ || segment == 0) {
      if (!keys_loaded_) clear(d_k_, keys * width_), clear(d_v_, keys * value_width_);
      accumulate_rows(d_k_, width_, key_begin_, keys, fwd_.head_dim, params_.d_k, segment > 0);
      accumulate_rows(d_v_, value_width_, key_begin_, keys, fwd_.value_dim, params_.d_v, segment > 0);
      if (d_key_bias_) {
        if (!keys_loaded_) clear(d_key_bias_, keys);
        accumulate_rows(d_key_bias_, 1, key_begin_, keys, 1, params_.d_key_bias, segment > 0);
      }
    }
    advance_ticket(ticket, int32_t(segment));
    if (!d_distance_bias_) return;
    const auto order = int32_t(segment * key_splits_ + key_split_);
    wait_for_ticket(params_.d_distance_bias_tickets + head_, order, params_.nonfinite);
    const ptrdiff_t queries = min_of(QUERIES_PER_TASK, fwd_.queries - first_query_);
    accumulate_rows(d_distance_bias_, 1, first_query_ + fwd_.keys - key_end_, queries + keys - 1, 1,
                    params_.d_distance_bias, true);
    advance_ticket(params_.d_distance_bias_tickets + head_, order);
  }

  const BackwardParams& params_;
  const AttentionParams& fwd_;
  const ptrdiff_t width_, value_width_;  // of a row padded to whole vectors
  const ptrdiff_t key_splits_, blocks_;
  ScoreBlock<T> scores_;
  Matrix<T> k_{}, v_{}, q_{}, d_out_{};  // keys of the task, queries of the block
  T *keys_buffer_, *values_buffer_, *queries_buffer_, *outputs_buffer_, *row_buffer_;
  T *d_k_, *d_v_, *d_q_;
  T* d_out_transposed_;  // d_out transposed, [Dv][BLOCK_QUERIES]
  T *weights_, *d_scores_, *capped_;
  T *shift_, *inverse_sum_, *delta_, *d_query_bias_, *d_key_bias_, *d_distance_bias_;
  ptrdiff_t head_ = 0, key_split_ = 0, key_begin_ = 0, key_end_ = 0, first_query_ = 0, start_ = 0, count_ = 0,
            lanes_ = 0;
  bool keys_loaded_ = false;
};

template <class T> struct DeltaBuffers {
  T *queries, *d_output;

  DeltaBuffers(const AttentionParams& params, Scratch& scratch)
      : queries(scratch.allocate<T>(BLOCK_QUERIES, params.head_dim)),
        d_output(scratch.allocate<T>(BLOCK_QUERIES, params.value_dim)) {}
};

// delta = rowsum(dO * O) of a block of queries.
template <class T> void compute_delta(const BackwardParams& params, ptrdiff_t task, void* memory) {
  const AttentionParams& a = params.attention;
  Scratch scratch(memory);
  const DeltaBuffers<T> buffers(a, scratch);
  const ptrdiff_t blocks = ceil_div(a.queries, BLOCK_QUERIES), head = task / blocks,
                  start = task % blocks * BLOCK_QUERIES;
  const ptrdiff_t count = min_of<ptrdiff_t>(BLOCK_QUERIES, a.queries - start), width = a.value_dim;
  const Matrix<T> output = head_matrix<T>(a.output, head).block(start);
  const Matrix<T> d_output = load_rows<T>(params.d_output, head, start, count, width, buffers.d_output);
  const double* row_sum = head_matrix<double>(a.row_sum, head).data + start;
  T* delta = const_cast<T*>(head_matrix<T>(params.delta, head).data) + start;
  const Matrix<T> queries = load_rows<T>(a.q, head, start, count, a.head_dim, buffers.queries);
  const MaskAccess<T> mask(a, head);
  bool finite = true;
  for (ptrdiff_t i = 0; i < count; ++i)
    if (row_sum[i] != 0 && !all_finite(queries.block(i), 1, a.head_dim))
      for (ptrdiff_t j = 0; j < a.keys && finite; ++j) finite = !mask.allows(start + i, j);
  for (ptrdiff_t i = 0; i < count; ++i) {
    delta[i] = 0;
    if (row_sum[i] == 0) continue;  // no allowed key
    finite &= all_finite(d_output.block(i), 1, width);
    T* products = buffers.d_output + i * width;  // in place of the row: the sum then does not depend on strides
    for (ptrdiff_t d = 0; d < width; ++d) products[d] = d_output.block(i, d).data[0] * output.block(i, d).data[0];
    V<T> sums = {};
    ptrdiff_t d = 0;
    for (; d + LANES<T> <= width; d += LANES<T>) sums += load<T>(products + d);
    for (; d < width; ++d) delta[i] += products[d];
    delta[i] += reduce_sum<T>(sums);
    finite &= delta[i] - delta[i] == 0 && row_sum[i] - row_sum[i] == 0;
  }
  if (!finite) set_flag(params.nonfinite);
}

template <class T> size_t scratch_bytes(const BackwardParams& params) {
  Scratch scratch(nullptr);
  BackwardKernel<T> kernel(params, scratch);
  Scratch delta_scratch(nullptr);
  DeltaBuffers<T>(params.attention, delta_scratch);
  return max_of(scratch.used(), delta_scratch.used());
}

template <class T> void run_task(const BackwardParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  BackwardKernel<T>(params, scratch).run(task);
}

}  // namespace

ptrdiff_t backward_tasks(const BackwardParams& params) {
  const ptrdiff_t key_splits = max_of<ptrdiff_t>(1, ceil_div(params.attention.keys, params.keys_per_task));
  const ptrdiff_t segments = max_of<ptrdiff_t>(1, ceil_div(params.attention.queries, QUERIES_PER_TASK));
  return product(params.attention.heads, key_splits, segments);
}

size_t backward_scratch(const BackwardParams& params) {
  return params.attention.q.dtype == DType::float64 ? scratch_bytes<double>(params) : scratch_bytes<float>(params);
}

void backward_delta(const BackwardParams& params, ptrdiff_t task, void* scratch) {
  params.attention.q.dtype == DType::float64 ? compute_delta<double>(params, task, scratch)
                                             : compute_delta<float>(params, task, scratch);
}

void backward(const BackwardParams& params, ptrdiff_t task, void* scratch) {
  params.attention.q.dtype == DType::float64 ? run_task<double>(params, task, scratch)
                                             : run_task<float>(params, task, scratch);
}

}  // namespace regard::REGARD_ISA
