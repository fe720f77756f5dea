// Attention forward pass: online softmax over blocks of keys, one task for each head and block of queries.
#include "attention/dropout.h"
#include "attention/online_softmax.h"
#include "kernels.h"

namespace regard::REGARD_ISA {
namespace {

// 0 * NaN is NaN, so a masked NaN among the values would reach every row. Where values are not all finite, only the
// finite ones are summed; the infinities and NaN that a query attends to are recorded and applied at the end.
enum Nonfinite : uint8_t { plus = 1, minus = 2, not_a_number = 4 };

template <class T> class ForwardKernel {
 public:
  ForwardKernel(const AttentionParams& params, Scratch& scratch)
      : params_(params),
        scores_(params, scratch),
        softmax_(scratch),
        weights_(scratch.allocate<T>(
            params.weights ? max_of<ptrdiff_t>(params.keys + LANES<T>, BLOCK_KEYS) : BLOCK_KEYS, BLOCK_QUERIES)),
        rows_(scratch.allocate<T>(params.weights ? LANES<T> : 0, rows_stride(params))),
        block_max_(scratch.allocate<T>(params.weights ? ceil_div(params.keys, BLOCK_KEYS) : 0, BLOCK_QUERIES)),
        context_(scratch.allocate<T>(params.value_dim, BLOCK_QUERIES)),
        values_(scratch.allocate<T>(max_of<ptrdiff_t>(BLOCK_KEYS, BLOCK_QUERIES), params.value_dim)),
        nonfinite_(scratch.allocate<uint8_t>(params.value_dim, BLOCK_QUERIES)) {}

  void run(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    head_ = head, start_ = start, count_ = count;
    if (!compute(false)) compute(true);
  }

 private:
  // False if a result is not finite and values were not checked: one of them may have been masked.
  bool compute(bool checks_values) {
    checks_values_ = checks_values, has_nonfinite_ = false;
    scores_.load_queries(head_, start_, count_);
    softmax_.reset(params_, head_);
    const ptrdiff_t all = params_.value_dim * BLOCK_QUERIES;
    for (ptrdiff_t i = 0; i < all; ++i) context_[i] = 0;
    for (ptrdiff_t j = scores_.begin(); j < scores_.end(); j += BLOCK_KEYS) {
      T* weights = weights_ + (params_.weights ? j * BLOCK_QUERIES : 0);
      const bool is_added = add_keys(j, min_of<ptrdiff_t>(BLOCK_KEYS, scores_.end() - j), weights);
      if (params_.weights) keep_block_max(j, is_added);
    }
    if (params_.v && !divide() && !checks_values_) return false;
    finish();
    if (params_.weights) write_weights();
    return true;
  }

  // Returns whether any of these keys is allowed. `weights` receives exp(score - row_max).
  bool add_keys(ptrdiff_t start, ptrdiff_t count, T* weights) {
    if (!scores_.any_allowed(start, count)) return false;
    scores_.compute(start, count, weights);
    scores_.for_each_allowed_part(start, count, [&](ptrdiff_t lane, ptrdiff_t lanes, ptrdiff_t from, ptrdiff_t to) {
      softmax_.update(to - from, lane, lanes, weights + from * BLOCK_QUERIES);
    });
    if (params_.dropout.threshold) apply_dropout<T>(params_, head_, start_, scores_.lanes(), start, count, weights);
    if (!params_.v) return true;
    Matrix<T> values = load_rows<T>(params_.v, head_, start, count, params_.value_dim, values_);
    if (checks_values_ && !all_finite(values, count, params_.value_dim)) values = zero_nonfinite(values, start, count);
    scores_.for_each_allowed_part(start, count, [&](ptrdiff_t lane, ptrdiff_t lanes, ptrdiff_t from, ptrdiff_t to) {
      gemm<T>(Epilogue::rescale,
              {values.block(from).transposed(), params_.value_dim, to - from, weights + from * BLOCK_QUERIES + lane,
               BLOCK_QUERIES, context_ + lane, BLOCK_QUERIES, lanes, softmax_.rescale + lane});
    });
    return true;
  }

  // Copy the values with 0 for infinities and NaN; record which queries attend to these.
  Matrix<T> zero_nonfinite(Matrix<T> values, ptrdiff_t start, ptrdiff_t count) {
    const ptrdiff_t width = params_.value_dim;
    if (!has_nonfinite_)
      for (ptrdiff_t i = 0; i < width * BLOCK_QUERIES; ++i) nonfinite_[i] = 0;
    has_nonfinite_ = true;
    const MaskAccess<T> mask(params_, head_);
    for (ptrdiff_t j = 0; j < count; ++j)
      for (ptrdiff_t f = 0; f < width; ++f) {
        const T x = values.data[j * values.row_stride + f * values.col_stride];
        const bool finite = x - x == 0;
        values_[j * width + f] = finite ? x : T(0);
        if (finite) continue;
        const uint8_t mark = x != x ? not_a_number : x > 0 ? plus : minus;
        for (ptrdiff_t i = 0; i < count_; ++i)
          if (mask.allows(start_ + i, start + j)) nonfinite_[f * BLOCK_QUERIES + i] |= mark;
      }
    return {values_, width, 1};
  }

  // Divide by the row sums; whether the results are finite.
  bool divide() {
    V<T> invalid = {};  // becomes NaN where a result is not finite
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      V<T> row_sum;
      for (ptrdiff_t n = 0; n < LANES<T>; ++n) row_sum[n] = T(softmax_.row_sum[i + n]);
      const V<T> divisor = row_sum == 0 ? splat(T(1)) : row_sum;
      for (ptrdiff_t f = 0; f < params_.value_dim; ++f) {
        const V<T> mean = load<T>(context_ + f * BLOCK_QUERIES + i) / divisor;
        invalid = fma<T>(mean, V<T>{}, invalid);
        store<T>(context_ + f * BLOCK_QUERIES + i, mean);
      }
    }
    is_finite_ = !any(invalid != 0);
    return is_finite_;
  }

  void finish() {
    const ptrdiff_t width = params_.v ? params_.value_dim : 0;
    bool overflows = !scores_.all_finite() || (params_.v && !is_finite_);
    for (ptrdiff_t i = 0; i < count_; ++i) overflows |= is_clamped(softmax_.row_max[i]);
    if (overflows) set_flag(params_.nonfinite);
    for (ptrdiff_t n = 0; has_nonfinite_ && n < width * BLOCK_QUERIES; ++n) {
      if (!nonfinite_[n]) continue;
      const bool is_nan = context_[n] != context_[n] || (nonfinite_[n] != plus && nonfinite_[n] != minus);
      context_[n] = is_nan ? INF<T> - INF<T> : nonfinite_[n] == plus ? INF<T> : -INF<T>;
    }
    if (width) store_transposed<T>(context_, count_, width, params_.output, head_, start_, values_);
    if (!params_.row_max) return;
    for (ptrdiff_t i = 0; i < count_; ++i) {
      const_cast<T&>(head_matrix<T>(params_.row_max, head_).data[start_ + i]) = softmax_.row_max[i];
      const_cast<double&>(head_matrix<double>(params_.row_sum, head_).data[start_ + i]) = softmax_.row_sum[i];
    }
  }

  // The maximum of each row that the exponentials of a block of keys are relative to; -infinity for a masked block.
  void keep_block_max(ptrdiff_t start, bool is_added) {
    T* to = block_max_ + (start - scores_.begin()) / BLOCK_KEYS * BLOCK_QUERIES;
    for (int i = 0; i < BLOCK_QUERIES; ++i) to[i] = is_added ? softmax_.row_max[i] : -INF<T>;
  }

  // Write the normalised weights, 0 where masked: a vector of queries at a time is transposed into rows.
  void write_weights() {
    T* out = const_cast<T*>(head_matrix<T>(params_.weights, head_).block(start_).data);
    const ptrdiff_t begin = min_of(scores_.begin(), params_.keys), end = max_of(begin, scores_.end());
    const bool streams = streams_weights(params_, sizeof(T));
    find_factors(begin, end);
    for (ptrdiff_t lane = 0; lane < count_; lane += LANES<T>) {
      fill_rows(0, begin);
      for (ptrdiff_t j = begin; j < end; j += BLOCK_KEYS)
        normalize_block(lane, j, min_of<ptrdiff_t>(BLOCK_KEYS, end - j),
                        load<T>(block_max_ + (j - begin) / BLOCK_KEYS * BLOCK_QUERIES + lane));
      fill_rows(end, params_.keys);
      for (ptrdiff_t i = 0; i < min_of<ptrdiff_t>(LANES<T>, count_ - lane); ++i) {
        T* to = out + (lane + i) * params_.weights.row_stride;
        if (streams)
          copy_streaming<T>(rows_ + i * rows_stride(params_), params_.keys, to);
        else
          __builtin_memcpy(to, rows_ + i * rows_stride(params_), size_t(params_.keys) * sizeof(T));
      }
    }
    if (streams) streaming_fence();
  }

  // Replace the maxima of each block of keys by the factors that normalise its exponentials; 0 for a masked block.
  void find_factors(ptrdiff_t begin, ptrdiff_t end) {
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      const V<T> row_max = load<T>(softmax_.row_max + i);
      V<T> inverse;
      for (ptrdiff_t n = 0; n < LANES<T>; ++n)
        inverse[n] = softmax_.row_sum[i + n] == 0 ? T(0) : T(1 / softmax_.row_sum[i + n]);
      for (ptrdiff_t block = 0; block < ceil_div(end - begin, BLOCK_KEYS); ++block) {
        T* at = block_max_ + block * BLOCK_QUERIES + i;
        const V<T> max = load<T>(at);
        store<T>(at, max == -INF<T> ? V<T>{} : exp<T>(max - row_max) * inverse);
      }
    }
  }

  // Rows of weights of a vector of queries. The last keys are transposed with others that do not exist.
  static ptrdiff_t rows_stride(const AttentionParams& params) { return round_up(params.keys, LANES<T>) + LANES<T>; }

  void fill_rows(ptrdiff_t from, ptrdiff_t to) const {
    for (ptrdiff_t i = 0; i < LANES<T>; ++i)
      for (ptrdiff_t j = from; j < to; ++j) rows_[i * rows_stride(params_) + j] = 0;
  }

  // A lane of `factors` belongs to a query; all are 0 where the block may not have been computed.
  void normalize_block(ptrdiff_t lane, ptrdiff_t start, ptrdiff_t keys, V<T> factors) const {
    if (!any(factors != 0)) return fill_rows(start, start + keys);
    T scales[LANES<T>];
    store<T>(scales, factors);
    T* const rows = rows_ + start;
    const ptrdiff_t stride = rows_stride(params_);
    for_each_column<T>(weights_ + start * BLOCK_QUERIES + lane, BLOCK_QUERIES, round_up(keys, LANES<T>), LANES<T>,
                       [=, &scales](ptrdiff_t i, ptrdiff_t at, V<T> x) __attribute__((always_inline)) {
                         store<T>(rows + i * stride + at, max<T>(x, V<T>{}) * scales[i]);
                       });
  }

  const AttentionParams& params_;
  ScoreBlock<T> scores_;
  OnlineSoftmax<T> softmax_;
  T *weights_, *rows_, *block_max_, *context_, *values_;
  uint8_t* nonfinite_;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0;
  bool checks_values_ = false, has_nonfinite_ = false, is_finite_ = true;
};

template <class T> void run_task(const AttentionParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  ForwardKernel<T> kernel(params, scratch);
  const ptrdiff_t blocks = ceil_div(params.queries, BLOCK_QUERIES);
  const ptrdiff_t start =
      (blocks - 1 - task % blocks) * BLOCK_QUERIES;  // last queries first: under a causal mask they take longest
  kernel.run(task / blocks, start, min_of<ptrdiff_t>(BLOCK_QUERIES, params.queries - start));
}

template <class T> size_t scratch_bytes(const AttentionParams& params) {
  Scratch scratch(nullptr);
  ForwardKernel<T> kernel(params, scratch);
  return scratch.used();
}

}  // namespace

ptrdiff_t forward_tasks(const AttentionParams& params) {
  return product(params.heads, ceil_div(params.queries, BLOCK_QUERIES));
}

size_t forward_scratch(const AttentionParams& params) {
  return params.q.dtype == DType::float64 ? scratch_bytes<double>(params) : scratch_bytes<float>(params);
}

void upcast_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, float* to) {
  load_rows<float>(x, head, start, count, width, to);
}

void forward(const AttentionParams& params, ptrdiff_t task, void* scratch) {
  params.q.dtype == DType::float64 ? run_task<double>(params, task, scratch) : run_task<float>(params, task, scratch);
}

}  // namespace regard::REGARD_ISA
