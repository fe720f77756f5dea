// Split-KV attention for decoding (few queries, many keys; FlashAttention's flash_fwd_splitkv). It is bound by memory
// bandwidth: each key and value is read once, by all threads together.
//
// Vectors run over features instead of queries. The keys are split, one task for each split: its scores, their
// exponentials relative to the split's own maximum, and the weighted sum of its values. splitkv_combine then merges the
// splits of each row, in order. Query heads that share keys and values (GQA) are rows of one task, up to 64.
#include "attention/dropout.h"
#include "attention/online_softmax.h"
#include "gemm/gemm.h"
#include "kernels.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t SCORE_STRIDE = SPLITKV_KEYS + 16;  // of a row of scores, padded for a partial last vector
constexpr ptrdiff_t L1_KEYS = 64;                      // multiplied by all rows while they are in L1

// Whether rows are read in place: no conversion or padding is needed.
template <class T> bool is_in_place(const Operand& x, ptrdiff_t width) {
  return has_compute_dtype(x) && x.col_stride == 1 && width % LANES<T> == 0;
}

// Rows padded with zeros to whole vectors: in place if they lie together, otherwise copied into `buffer`.
template <class T>
Matrix<T> load_padded_rows(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width,
                           T* buffer) {
  const ptrdiff_t padded = round_up(width, LANES<T>);
  if (is_in_place<T>(x, width) && rows_together(x, start, count) == count)
    return {reinterpret_cast<const T*>(x.data) + row_offset(x, head, start), x.row_stride, 1};
  copy_rows<T>(x, head, start, count, width, buffer, padded);
  for (ptrdiff_t i = 0; padded > width && i < count; ++i)
    for (ptrdiff_t f = width; f < padded; ++f) buffer[i * padded + f] = 0;
  return {buffer, padded, 1};
}

// scores[r][j] = queries[r] . keys[j] * scale for rows x keys dot products, as many as a vector has lanes.
template <class T, int rows>
REGARD_INLINE void dot_tile(const T* queries, ptrdiff_t width, Matrix<T> keys, T scale, T* scores) {
  constexpr int N = LANES<T>, columns = N / rows;
  V<T> sums[N] = {};  // row r, key j: sums[r * columns + j]
  for (ptrdiff_t f = 0; f < width; f += N) {
    V<T> key[columns];
#pragma GCC unroll 16
    for (int j = 0; j < columns; ++j) key[j] = load<T>(keys.data + j * keys.row_stride + f);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V<T> query = load<T>(queries + r * width + f);
#pragma GCC unroll 16
      for (int j = 0; j < columns; ++j) sums[r * columns + j] = fma<T>(query, key[j], sums[r * columns + j]);
    }
  }
  T found[N];
  store<T>(found, sum_lanes<T>(sums) * scale);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) __builtin_memcpy(scores + r * SCORE_STRIDE, found + r * columns, columns * sizeof(T));
}

template <class T, int rows>
void row_dots(const T* queries, ptrdiff_t width, Matrix<T> keys, ptrdiff_t count, T scale, T* scores, T* buffer) {
  constexpr int columns = LANES<T> / rows;
  ptrdiff_t j = 0;
  for (; j + columns <= count; j += columns) dot_tile<T, rows>(queries, width, keys.block(j), scale, scores + j);
  if (j == count) return;
  for (ptrdiff_t n = 0; n < columns; ++n)  // remaining keys, padded by repeating the last one
    __builtin_memcpy(buffer + n * width, keys.block(min_of(j + n, count - 1)).data, size_t(width) * sizeof(T));
  dot_tile<T, rows>(queries, width, {buffer, width, 1}, scale, scores + j);
}

// The partial result of a split for one row: maximum score, sum of exponentials, and sum of values weighted with them.
template <class T> struct SplitResult {
  T *row_max, *row_sum, *sums;

  SplitResult(const AttentionParams& params, ptrdiff_t group, ptrdiff_t split, ptrdiff_t row) {
    const ptrdiff_t width = round_up(params.value_dim, LANES<T>) + 2, rows = splitkv_rows(params);
    row_max = static_cast<T*>(params.partials) + ((group * num_splits(params) + split) * rows + row) * width;
    row_sum = row_max + 1, sums = row_max + 2;
  }

  void clear(ptrdiff_t width) {  // no key is allowed
    *row_max = -INF<T>, *row_sum = 0;
    for (ptrdiff_t f = 0; f < width; ++f) sums[f] = 0;
  }
};

template <class T> class SplitKernel {
 public:
  SplitKernel(const AttentionParams& params, Scratch& scratch)
      : params_(params),
        width_(round_up(params.head_dim, LANES<T>)),
        value_width_(round_up(params.value_dim, LANES<T>)),
        queries_(scratch.allocate<T>(splitkv_task_rows(params) + 1, width_)),
        tail_keys_(scratch.allocate<T>(LANES<T>, width_)),
        buffer_(scratch.allocate<T>(SPLITKV_KEYS, max_of(width_, value_width_))),
        scores_(scratch.allocate<T>(splitkv_task_rows(params), SCORE_STRIDE)) {}

  // Rows first_row, first_row + 1, ... of a group.
  void run(ptrdiff_t group, ptrdiff_t split, ptrdiff_t first_row) {
    first_row_ = first_row;
    const ptrdiff_t rows = min_of(splitkv_task_rows(params_), splitkv_rows(params_) - first_row),
                    head = group * params_.heads_per_kv;
    const auto result = [&](ptrdiff_t r) { return SplitResult<T>(params_, group, split, first_row + r); };
    ptrdiff_t start = split * SPLITKV_KEYS, end = min_of(start + SPLITKV_KEYS, params_.keys);
    trim_masked_keys(head, rows, start, end);
    const ptrdiff_t count = end - start;
    if (count <= 0) {
      for (ptrdiff_t r = 0; r < rows; ++r) result(r).clear(value_width_);
      return;
    }
    compute_scores(head, rows, start, count);
    if (params_.v) prefetch(params_.v, head, start, L1_KEYS, end, params_.value_dim);
    for (ptrdiff_t r = 0; r < rows; ++r) mask_and_exponentiate(head, r, start, count, result(r));
    if (!params_.v) return;
    if (weighted_sum(head, rows, start, count, result(0).sums)) return;
    const Matrix<T> values = load_padded_rows<T>(params_.v, head, start, count, params_.value_dim, buffer_);
    for (ptrdiff_t r = 0; r < rows; ++r) weighted_sum_nonfinite(head, r, start, count, values, result(r));
  }

 private:
  // The head and the query of a row of this task.
  ptrdiff_t head_of(ptrdiff_t head, ptrdiff_t row) const { return head + (first_row_ + row) / params_.queries; }
  ptrdiff_t query_of(ptrdiff_t row) const { return (first_row_ + row) % params_.queries; }

  // Shrink start <= j < end to keys that some row attends to; others are not read.
  void trim_masked_keys(ptrdiff_t head, ptrdiff_t rows, ptrdiff_t& start, ptrdiff_t& end) const {
    ptrdiff_t first = params_.keys, last = 0;
    for (ptrdiff_t r = 0; r < rows; ++r) {
      const MaskAccess<T> mask(params_, head_of(head, r));
      first = min_of(first, mask.key_begin(query_of(r))), last = max_of(last, mask.key_end(query_of(r)));
    }
    start = max_of(start, first), end = min_of(end, last);
    const auto any_row_allows = [&](ptrdiff_t j) {
      for (ptrdiff_t r = 0; r < rows; ++r)
        if (MaskAccess<T>(params_, head_of(head, r)).allows(query_of(r), j)) return true;
      return false;
    };
    if (!params_.mask && !params_.mask_blocks) return;
    while (start < end && !any_row_allows(start)) ++start;
    while (start < end && !any_row_allows(end - 1)) --end;
  }

  void compute_scores(ptrdiff_t head, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count) {
    for (ptrdiff_t r = 0; r < rows; ++r) {
      T* to = queries_ + r * width_;
      const Matrix<T> query = load_padded_rows<T>(params_.q, head_of(head, r), query_of(r), 1, params_.head_dim, to);
      if (query.data != to) __builtin_memcpy(to, query.data, size_t(width_) * sizeof(T));
    }
    const T scale = T(params_.scale);
    const ptrdiff_t end = start + count;
    constexpr int FOUR = LANES<T> < 4 ? 1 : 4;
    prefetch(params_.k, head, start, L1_KEYS, end, params_.head_dim);
    for (ptrdiff_t j = 0; j < count; j += L1_KEYS) {
      prefetch(params_.k, head, start + j + L1_KEYS, L1_KEYS, end, params_.head_dim);
      const Runs keys(*this, params_.k, head, start + j, min_of(L1_KEYS, count - j), params_.head_dim);
      const T* queries = queries_;
      T* scores = scores_ + j;
      ptrdiff_t r = 0;
      const auto multiply = [&]<int n>() {
        keys.each([&](Matrix<T> run, ptrdiff_t at, ptrdiff_t size) {
          row_dots<T, n>(queries, width_, run, size, scale, scores + at, tail_keys_);
        });
        r += n, queries += n * width_, scores += n * SCORE_STRIDE;
      };
      while (r + 4 <= rows && LANES<T> >= 4) multiply.template operator()<FOUR>();
      while (r + 2 <= rows) multiply.template operator()<2>();
      while (r < rows) multiply.template operator()<1>();
    }
  }

  // Rows start <= i < start + count, at most L1_KEYS, in runs that lie a row stride apart.
  class Runs {
   public:
    Runs(const SplitKernel& kernel, const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count,
         ptrdiff_t width) {
      for (ptrdiff_t at = 0; at < count; at += sizes_[runs_++]) {
        sizes_[runs_] = rows_at_once(x, start + at, count - at, width);
        rows_[runs_] = load_padded_rows<T>(x, head, start + at, sizes_[runs_], width, kernel.buffer_);
      }
    }
    template <class Function> void each(Function function) const {
      for (ptrdiff_t i = 0, at = 0; i < runs_; at += sizes_[i++]) function(rows_[i], at, sizes_[i]);
    }

   private:
    Matrix<T> rows_[L1_KEYS];
    ptrdiff_t sizes_[L1_KEYS], runs_ = 0;
  };

  // How many keys or values to read before all rows are multiplied: as many as stay in L1. Small pages are copied.
  static ptrdiff_t rows_at_once(const Operand& x, ptrdiff_t start, ptrdiff_t left, ptrdiff_t width) {
    const ptrdiff_t count = min_of(L1_KEYS, left), together = rows_together(x, start, count);
    return is_in_place<T>(x, width) && together >= min_of<ptrdiff_t>(left, LANES<T>) ? together : count;
  }

  // Prefetch `count` rows from `start` on that are before `end`.
  static void prefetch(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t end,
                       ptrdiff_t width) {
    prefetch_rows(x, head, start, min_of(count, end - start), width);
  }

  // The sums of the values, each times its weight, of all rows; false if a value is not finite.
  bool weighted_sum(ptrdiff_t head, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count, T* sums) {
    const ptrdiff_t stride = value_width_ + 2;  // SplitResult
    for (ptrdiff_t j = 0; j < count; j += L1_KEYS) {
      prefetch(params_.v, head, start + j + L1_KEYS, L1_KEYS, start + count, params_.value_dim);
      const Runs values(*this, params_.v, head, start + j, min_of(L1_KEYS, count - j), params_.value_dim);
      bool finite = true;  // all first: this reads them from memory, one after the other, as the processor foresees
      values.each([&](Matrix<T> run, ptrdiff_t, ptrdiff_t size) { finite &= all_finite(run, size, value_width_); });
      if (!finite) return false;
      values.each([&](Matrix<T> run, ptrdiff_t at, ptrdiff_t size) {
        const Matrix<T> weights = {scores_ + j + at, SCORE_STRIDE, 1};
        gemm<T>(j + at == 0 ? Epilogue::set : Epilogue::extend,
                {weights, rows, size, run.data, run.row_stride, sums, stride, value_width_});
      });
    }
    return true;
  }

  // Softcap, bias and mask of a row of scores, then its exponentials, maximum and sum.
  void mask_and_exponentiate(ptrdiff_t head, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, SplitResult<T> to) {
    const MaskAccess<T> mask(params_, head_of(head, row));
    const ptrdiff_t i = query_of(row);
    T* scores = scores_ + row * SCORE_STRIDE;
    for (ptrdiff_t j = count; j < round_up(count, LANES<T>); ++j) scores[j] = 0;
    if (!all_finite<T>({scores, 0, 1}, 1, count)) set_flag(params_.nonfinite);
    if (params_.softcap > 0) {
      const T cap = T(params_.softcap);
      for (ptrdiff_t j = 0; j < count; j += LANES<T>) store<T>(scores + j, cap * tanh<T>(load<T>(scores + j) / cap));
    }
    for (ptrdiff_t j = count; j < round_up(count, LANES<T>); ++j) scores[j] = -INF<T>;
    if (params_.bias || params_.distance_bias)
      for (ptrdiff_t j = 0; j < count; ++j) {
        const T bias = mask.bias(i, start + j);
        scores[j] = bias == -INF<T> ? bias : max_of(scores[j] + bias, -MAX_FINITE<T>);
      }
    if (params_.mask || params_.mask_blocks || params_.bias) {
      for (ptrdiff_t j = 0; j < count; ++j)
        if (!mask.allows(i, start + j)) scores[j] = -INF<T>;
    } else {
      const ptrdiff_t begin = min_of(count, mask.key_begin(i) - start),
                      end = max_of<ptrdiff_t>(0, mask.key_end(i) - start);
      for (ptrdiff_t j = 0; j < begin; ++j) scores[j] = -INF<T>;
      for (ptrdiff_t j = end; j < count; ++j) scores[j] = -INF<T>;
    }

    V<T> top = splat(-INF<T>), sums = {};
    for (ptrdiff_t j = 0; j < count; j += LANES<T>) {
      const V<T> score = min<T>(load<T>(scores + j), splat(MAX_FINITE<T>));
      store<T>(scores + j, score);
      top = max<T>(score, top);
    }
    T row_max = -INF<T>;
    for (int n = 0; n < LANES<T>; ++n) row_max = max_of(row_max, T(top[n]));
    const T shift = row_max == -INF<T> ? T(0) : row_max;
    for (ptrdiff_t j = 0; j < count; j += LANES<T>) {
      const V<T> e = softmax_exp<T>(load<T>(scores + j) - shift);
      sums += e;
      store<T>(scores + j, e);
    }
    *to.row_max = row_max, *to.row_sum = reduce_sum<T>(sums);
    for (ptrdiff_t j = 0; params_.dropout.threshold && j < count; ++j)
      scores[j] *= dropout_factor<T>(params_, head_of(head, row), i, start + j);
  }

  // For values that are not all finite: an infinity or NaN reaches the rows that attend to it, even with weight 0.
  void weighted_sum_nonfinite(ptrdiff_t head, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, Matrix<T> values,
                              SplitResult<T> to) {
    const MaskAccess<T> mask(params_, head_of(head, row));
    for (ptrdiff_t f = 0; f < value_width_; ++f) {
      T row_sum = 0, infinities = 0;
      for (ptrdiff_t j = 0; j < count; ++j) {
        const T x = values.data[j * values.row_stride + f];
        if (x - x == 0)
          row_sum += scores_[row * SCORE_STRIDE + j] * x;
        else if (mask.allows(query_of(row), start + j))
          infinities += x;
      }
      to.sums[f] = row_sum + infinities;
    }
  }

  const AttentionParams& params_;
  ptrdiff_t width_, value_width_;
  T *queries_, *tail_keys_, *buffer_, *scores_;
  ptrdiff_t first_row_ = 0;
};

template <class T> void merge_splits(const AttentionParams& params, ptrdiff_t task) {
  const ptrdiff_t head = task / params.queries, i = task % params.queries, splits = num_splits(params);
  const ptrdiff_t group = head / params.heads_per_kv, row = head % params.heads_per_kv * params.queries + i;
  T sink = -INF<T>;
  if (params.sinks) sink = clamped_sink(head_matrix<T>(params.sinks, head).data[0]);
  T row_max = sink;
  for (ptrdiff_t n = 0; n < splits; ++n) row_max = max_of(row_max, *SplitResult<T>(params, group, n, row).row_max);
  const T shift = row_max == -INF<T> ? T(0) : row_max;
  double row_sum = double(scalar_exp(sink - shift));
  for (ptrdiff_t n = 0; n < splits; ++n) {
    const SplitResult<T> result(params, group, n, row);
    row_sum += double(*result.row_sum) * double(scalar_exp(*result.row_max - shift));
  }
  if (params.row_max) {
    const_cast<T&>(head_matrix<T>(params.row_max, head).block(i).data[0]) = row_max;
    const_cast<double&>(head_matrix<double>(params.row_sum, head).block(i).data[0]) = row_sum;
  }
  if (is_clamped(row_max)) set_flag(params.nonfinite);
  if (!params.v) return;
  T* sums = SplitResult<T>(params, group, 0, row).sums;  // those of the first split accumulate the others
  const T inverse_sum = T(1 / (row_sum == 0 ? 1 : row_sum));
  for (ptrdiff_t n = 0; n < splits; ++n) {
    const SplitResult<T> result(params, group, n, row);
    const T factor = scalar_exp(*result.row_max - shift);
    for (ptrdiff_t f = 0; f < params.value_dim; ++f) {
      const T x = result.sums[f], scaled = x - x == 0 ? x * factor : x;  // an infinity stays one
      sums[f] = n == 0 ? scaled : sums[f] + scaled;
    }
  }
  for (ptrdiff_t f = 0; f < params.value_dim; ++f) sums[f] *= inverse_sum;
  if (!all_finite<T>({sums, 0, 1}, 1, params.value_dim)) set_flag(params.nonfinite);
  store_row<T>(sums, params.value_dim, params.output, head, i);
}

template <class T> void run_task(const AttentionParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  SplitKernel<T> kernel(params, scratch);
  const ptrdiff_t parts = ceil_div(splitkv_rows(params), splitkv_task_rows(params)), splits = num_splits(params);
  kernel.run(task / parts / splits, task / parts % splits, task % parts * splitkv_task_rows(params));
}

template <class T> size_t scratch_bytes(const AttentionParams& params) {
  Scratch scratch(nullptr);
  SplitKernel<T> kernel(params, scratch);
  return scratch.used();
}

}  // namespace

size_t splitkv_scratch(const AttentionParams& params) {
  return params.q.dtype == DType::float64 ? scratch_bytes<double>(params) : scratch_bytes<float>(params);
}

size_t splitkv_partials_bytes(const AttentionParams& params) {
  const ptrdiff_t groups = params.heads / params.heads_per_kv, width = round_up(params.value_dim, 64) + 2;
  const int itemsize = params.q.dtype == DType::float64 ? 8 : 4;
  return size_t(product(groups, num_splits(params), splitkv_rows(params), width, itemsize));
}

void splitkv(const AttentionParams& params, ptrdiff_t task, void* scratch) {
  params.q.dtype == DType::float64 ? run_task<double>(params, task, scratch) : run_task<float>(params, task, scratch);
}

void splitkv_combine(const AttentionParams& params, ptrdiff_t task) {
  params.q.dtype == DType::float64 ? merge_splits<double>(params, task) : merge_splits<float>(params, task);
}

}  // namespace regard::REGARD_ISA
