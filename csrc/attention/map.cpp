// Parts and statistics of the attention map, which is never stored: softmax statistics, tiles, pooled overviews,
// entropy, mean distance and top k of each row, column sums. All are computed from blocks of scores, as in the forward
// pass.
//
// A weight is exp(score - row_max) / row_sum, and the score of a cell has the same bits in every pass: a tile agrees
// with softmax statistics computed earlier, or in another order, to the last digit of a score.
#include "attention/online_softmax.h"
#include "kernels.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t L2_BYTES = ptrdiff_t(1) << 19;  // scores that stay in a core's own cache

// Call f(start, count) for the blocks of keys begin <= j < end. They start at multiples of BLOCK_KEYS, so that a row is
// summed in the same chunks in any block of queries.
template <class F> void for_each_key_block(ptrdiff_t begin, ptrdiff_t end, F f) {
  for (ptrdiff_t j = begin / BLOCK_KEYS * BLOCK_KEYS; j < end; j += BLOCK_KEYS)
    f(j, min_of<ptrdiff_t>(BLOCK_KEYS, end - j));
}

// Turns the scores of a block of queries into weights.
template <class T> class RowNormalizer {
 public:
  explicit RowNormalizer(Scratch& scratch)
      : softmax_(scratch),
        shift_(scratch.allocate<T>(BLOCK_QUERIES)),
        inverse_sum_(scratch.allocate<T>(BLOCK_QUERIES)),
        log_row_sum_(scratch.allocate<T>(BLOCK_QUERIES)) {}

  const T* row_max() const { return softmax_.row_max; }
  const T* shift() const { return shift_; }
  const T* inverse_sum() const { return inverse_sum_; }
  const T* log_row_sum() const { return log_row_sum_; }
  const T* rescale() const { return softmax_.rescale; }  // of everything accumulated before the last chunk

  void begin(const AttentionParams& attention, ptrdiff_t head) { softmax_.reset(attention, head); }

  // Update the online softmax with the scores of `keys` keys.
  void add(ptrdiff_t keys, ptrdiff_t lanes, T* scores) {
    for (ptrdiff_t j = 0; j < keys; j += SUM_CHUNK)
      softmax_.update(min_of(SUM_CHUNK, keys - j), 0, lanes, scores + j * BLOCK_QUERIES);
  }

  // Read or write the statistics of rows start <= i < start + count.
  void read(const MapParams& params, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    const T* row_max = head_matrix<T>(params.row_max, head).data;
    const double* row_sum = head_matrix<double>(params.row_sum, head).data;
    for (ptrdiff_t i = 0; i < BLOCK_QUERIES; ++i) {
      softmax_.row_max[i] = i < count ? row_max[(start + i) * params.row_max.row_stride] : -INF<T>;
      softmax_.row_sum[i] = i < count ? row_sum[(start + i) * params.row_sum.row_stride] : 0;
    }
  }
  void write(const MapParams& params, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) const {
    T* row_max = const_cast<T*>(head_matrix<T>(params.row_max, head).data);
    double* row_sum = const_cast<double*>(head_matrix<double>(params.row_sum, head).data);
    for (ptrdiff_t i = 0; i < count; ++i) {
      row_max[(start + i) * params.row_max.row_stride] = softmax_.row_max[i];
      row_sum[(start + i) * params.row_sum.row_stride] = softmax_.row_sum[i];
    }
  }

  // Prepare for normalize_scores(): all keys have been added.
  void finish() {
    has_infinite_ = false;
    for (int i = 0; i < BLOCK_QUERIES; ++i) {
      const T row_max = softmax_.row_max[i];
      shift_[i] = row_max == -INF<T> ? T(0) : row_max;
      inverse_sum_[i] = softmax_.row_sum[i] == 0 ? T(0) : T(1 / softmax_.row_sum[i]);
      log_row_sum_[i] = softmax_.row_sum[i] == 0 ? T(0) : T(__builtin_log(softmax_.row_sum[i]));
      has_infinite_ |= row_max >= MAX_FINITE<T>;
    }
  }

  // Clamp scores of +infinity, as the online softmax did.
  void clamp(ptrdiff_t keys, ptrdiff_t lanes, T* scores) const {
    for (ptrdiff_t i = 0; has_infinite_ && i < lanes; i += LANES<T>) softmax_.template clamp<1>(keys, scores + i);
  }

  void normalize_scores(ptrdiff_t keys, ptrdiff_t lanes, T* scores) const {
    clamp(keys, lanes, scores);
    for (ptrdiff_t i = 0; i < lanes; i += LANES<T>) {
      const V<T> shift = load<T>(shift_ + i), inverse_sum = load<T>(inverse_sum_ + i);
      for (ptrdiff_t j = 0; j < keys; ++j) {
        T* at = scores + j * BLOCK_QUERIES + i;
        store<T>(at, exp<T>(load<T>(at) - shift) * inverse_sum);
      }
    }
  }

 private:
  OnlineSoftmax<T> softmax_;
  T *shift_, *inverse_sum_, *log_row_sum_;
  bool has_infinite_ = false;
};

// The k largest weights of each row, in descending order; of equal weights the first key wins. After a few blocks
// hardly any weight exceeds the smallest of the k, and blocks without one are skipped.
template <class T> class TopK {
 public:
  TopK(const MapParams& params, Scratch& scratch)
      : count_(params.top_k),
        weights_(scratch.allocate<T>(params.top_k, BLOCK_QUERIES)),
        keys_(scratch.allocate<int32_t>(params.top_k, BLOCK_QUERIES)),
        thresholds_(scratch.allocate<T>(BLOCK_QUERIES)) {}

  void begin(const AttentionParams& attention, ptrdiff_t head, ptrdiff_t first) {
    attention_ = &attention, head_ = head, first_ = first;
    for (ptrdiff_t n = 0; n < count_ * BLOCK_QUERIES; ++n) weights_[n] = -1, keys_[n] = -1;
    for (int i = 0; i < BLOCK_QUERIES; ++i) thresholds_[i] = -1;
  }

  // Add the weights of keys start <= j < start + keys; masked cells have weight -0.
  void add(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t queries, const T* weights) {
    for (ptrdiff_t i = 0; i < queries; i += LANES<T>) {
      V<T> top = splat(T(-1));
      for (ptrdiff_t j = 0; j < keys; ++j) top = max<T>(load<T>(weights + j * BLOCK_QUERIES + i), top);
      const V<Int<T>> exceeds = top > load<T>(thresholds_ + i);
      if (!any(exceeds)) continue;
      for (ptrdiff_t n = 0; n < LANES<T> && i + n < queries; ++n)
        if (exceeds[n]) insert(start, keys, i + n, weights + i + n);
    }
  }

  void write(const MapParams& params, ptrdiff_t head, ptrdiff_t start, ptrdiff_t queries) const {
    const Matrix<T> to = head_matrix<T>(params.top_weights, head);
    const Matrix<int32_t> keys_out = head_matrix<int32_t>(params.top_keys, head);
    for (ptrdiff_t i = 0; i < queries; ++i)
      for (ptrdiff_t n = 0; n < count_; ++n) {
        const bool found = keys_[i * count_ + n] >= 0;
        const_cast<T&>(*to.block(start + i, n).data) = found ? weights_[i * count_ + n] : T(0);
        const_cast<int32_t&>(*keys_out.block(start + i, n).data) = keys_[i * count_ + n];
      }
  }

 private:
  void insert(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t query, const T* weights) {
    T* row_weights = weights_ + query * count_;
    int32_t* row_keys = keys_ + query * count_;
    for (ptrdiff_t j = 0; j < keys; ++j) {
      const T weight = weights[j * BLOCK_QUERIES];
      if (!(weight > row_weights[count_ - 1])) continue;
      if (__builtin_signbit(weight) && !MaskAccess<T>(*attention_, head_).allows(first_ + query, start + j)) continue;
      ptrdiff_t n = count_ - 1;
      for (; n > 0 && weight > row_weights[n - 1]; --n)
        row_weights[n] = row_weights[n - 1], row_keys[n] = row_keys[n - 1];
      row_weights[n] = weight == 0 ? T(0) : weight, row_keys[n] = int32_t(start + j);
    }
    thresholds_[query] = row_weights[count_ - 1];
  }

  ptrdiff_t count_;
  T* weights_;
  int32_t* keys_;
  T* thresholds_;
  const AttentionParams* attention_ = nullptr;
  ptrdiff_t head_ = 0, first_ = 0;
};

template <class T> class MapKernel {
 public:
  MapKernel(const MapParams& params, Scratch& scratch)
      : params_(params),
        attention_(params.attention),
        scores_(params.attention, scratch),
        normalizer_(scratch),
        top_k_(params, scratch),
        tile_(scratch.allocate<T>(keeps_rows(params) ? round_up(params.attention.keys, BLOCK_KEYS) : BLOCK_KEYS,
                                  BLOCK_QUERIES)),
        chunk_max_(scratch.allocate<T>(keeps_rows(params) ? ceil_div(params.attention.keys, SUM_CHUNK) + 1 : 0,
                                       BLOCK_QUERIES)),
        buffer_(scratch.allocate<T>(BLOCK_KEYS, BLOCK_QUERIES)),
        sums_(scratch.allocate<double>(3, BLOCK_QUERIES)),
        column_sums_(scratch.allocate<double>(
            params.quantity == MapQuantity::column_sums ? keys_per_task(params.attention) : 0)),
        cell_values_(scratch.allocate<double>(params.quantity == MapQuantity::pooled ? params.num_col_cells : 0,
                                              BLOCK_QUERIES)) {}

  // Keys of one task of column_sums: few enough to keep it well below a tenth of a second.
  static ptrdiff_t keys_per_task(const AttentionParams& attention) {
    const ptrdiff_t work = max_of<ptrdiff_t>(1, product(attention.queries, attention.head_dim + 16));
    return BLOCK_KEYS * min_of<ptrdiff_t>(16, max_of<ptrdiff_t>(1, (ptrdiff_t(1) << 30) / work / BLOCK_KEYS));
  }

  void softmax_stats(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    load_block(head, start, count);
    accumulate_stats();
    normalizer_.write(params_, head_, start_, count_);
  }

  void tile(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    load_block(head, start, count);
    if (params_.as_weights && keeps_rows(params_)) return weights_of_rows();
    if (params_.as_weights) find_stats();
    for (ptrdiff_t c = 0; c < params_.columns; c += BLOCK_KEYS) {
      const ptrdiff_t columns = min_of<ptrdiff_t>(BLOCK_KEYS, params_.columns - c);
      compute_columns(params_.column_keys + c, columns);
      if (params_.as_weights) normalizer_.normalize_scores(columns, scores_.lanes(), tile_);
      write(tile_, c, columns);
    }
  }

  // Entropy, mean distance and top k in one pass.
  void row_statistics(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    load_block(head, start, count);
    find_stats();
    for (int i = 0; i < 3 * BLOCK_QUERIES; ++i) sums_[i] = 0;
    if (params_.top_weights) top_k_.begin(attention_, head, start);
    const ptrdiff_t offset = params_.offset ? head_matrix<int32_t>(params_.offset, head).data[0] : 0;
    for_each_allowed_key_block(scores_.begin(), scores_.end(), [&](ptrdiff_t j, ptrdiff_t keys) {
      scores_.compute(j, keys, tile_);
      normalizer_.clamp(keys, scores_.lanes(), tile_);
      for (ptrdiff_t p = 0; p < keys; p += SUM_CHUNK)
        accumulate_row_statistics(j + p - start - offset, min_of(SUM_CHUNK, keys - p), tile_ + p * BLOCK_QUERIES);
      if (params_.top_weights) top_k_.add(j, keys, count_, tile_);
    });
    const double *mass = sums_, *entropy = sums_ + BLOCK_QUERIES, *distance = entropy + BLOCK_QUERIES;
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (params_.entropy) row_value(params_.entropy, i) = entropy[i];
      if (params_.distance) row_value(params_.distance, i) = distance[i] / (mass[i] == 0 ? 1 : mass[i]);
    }
    if (params_.top_weights) top_k_.write(params_, head, start, count);
  }

  // The total weight of the keys of one task, from `first` on.
  void column_sums(ptrdiff_t head, ptrdiff_t first) {
    const ptrdiff_t end = min_of(first + keys_per_task(attention_), attention_.keys);
    for (ptrdiff_t j = first; j < end; ++j) column_sums_[j - first] = 0;
    for (ptrdiff_t start = 0; start < attention_.queries; start += BLOCK_QUERIES) {
      load_block(head, start, min_of<ptrdiff_t>(BLOCK_QUERIES, attention_.queries - start));
      normalizer_.read(params_, head_, start_, count_);
      normalizer_.finish();
      const ptrdiff_t begin = max_of(first, scores_.begin() / BLOCK_KEYS * BLOCK_KEYS);
      for_each_allowed_key_block(begin, min_of(end, scores_.end()), [&](ptrdiff_t j, ptrdiff_t keys) {
        scores_.compute(j, keys, tile_);
        normalizer_.normalize_scores(keys, scores_.lanes(), tile_);
        add_column_sums(keys, column_sums_ + j - first);
      });
    }
    double* to = const_cast<double*>(head_matrix<double>(params_.column_sums, head).data);
    for (ptrdiff_t j = first; j < end; ++j) to[j * params_.column_sums.row_stride] = column_sums_[j - first];
  }

  // The maximum or the sum of the weights in each grid cell of a strip of rows, and the statistics of these rows. One
  // pass suffices: for each query and cell it keeps the maximum score, or the sum of exponentials, rescaled like the
  // row sums.
  void pooled(ptrdiff_t head, ptrdiff_t strip) {
    const int32_t first = params_.row_strips[strip], end = params_.row_strips[strip + 1];
    load_block(head, params_.row_edges[first], params_.row_edges[end] - params_.row_edges[first]);
    normalizer_.begin(attention_, head);
    for (ptrdiff_t n = 0; n < params_.num_col_cells * BLOCK_QUERIES; ++n)
      cell_values_[n] = params_.mean ? 0 : -INF<double>;
    ptrdiff_t cell = 0;
    for_each_allowed_key_block(scores_.begin(), scores_.end(), [&](ptrdiff_t start, ptrdiff_t keys) {
      scores_.compute(start, keys, tile_);
      for (ptrdiff_t p = 0; p < keys; p += SUM_CHUNK) {
        T* chunk = tile_ + p * BLOCK_QUERIES;
        const ptrdiff_t from = start + p, to = from + min_of(SUM_CHUNK, keys - p);
        while (params_.col_edges[cell + 1] <= from) ++cell;
        if (!params_.mean) pool(cell, from, to, chunk);
        normalizer_.add(to - from, scores_.lanes(), chunk);
        if (params_.mean) {
          rescale_cells(cell + 1);
          pool(cell, from, to, chunk);
        }
      }
    });
    normalizer_.write(params_, head_, start_, count_);
    normalizer_.finish();
    for (ptrdiff_t c = 0; c < params_.num_col_cells; ++c) {
      cell_weights(cell_values_ + c * BLOCK_QUERIES);
      for (int32_t r = first; r < end; ++r)
        const_cast<double&>(*head_matrix<double>(params_.pooled, head).block(r, c).data) = reduce_rows(r);
    }
  }

 private:
  // Whether the scores of all keys of a block of queries are kept, which saves the second matrix product.
  static bool keeps_rows(const MapParams& params) {
    return params.quantity == MapQuantity::tile && params.as_weights && params.all_keys && !params.row_max &&
           product(params.attention.keys, BLOCK_QUERIES, sizeof(T)) <= L2_BYTES;
  }

  void load_block(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    head_ = head, start_ = start, count_ = count;
    scores_.load_queries(head, start, count);
  }

  double& row_value(const Operand& x, ptrdiff_t i) const {
    return const_cast<double&>(head_matrix<double>(x, head_).data[(start_ + i) * x.row_stride]);
  }

  // for_each_key_block() without blocks that are masked for all queries.
  template <class F> void for_each_allowed_key_block(ptrdiff_t begin, ptrdiff_t end, F f) {
    for_each_key_block(begin, end, [&](ptrdiff_t j, ptrdiff_t keys) {
      if (scores_.any_allowed(j, keys)) f(j, keys);
    });
  }

  void accumulate_stats() {
    normalizer_.begin(attention_, head_);
    for_each_allowed_key_block(scores_.begin(), scores_.end(), [&](ptrdiff_t j, ptrdiff_t keys) {
      scores_.compute(j, keys, tile_);
      normalizer_.add(keys, scores_.lanes(), tile_);
    });
  }

  void find_stats() {
    if (params_.row_max)
      normalizer_.read(params_, head_, start_, count_);
    else
      accumulate_stats();
    normalizer_.finish();
  }

  // All weights of a block of queries. The exponentials are kept, with the row maximum that each chunk was relative to.
  void weights_of_rows() {
    normalizer_.begin(attention_, head_);
    const ptrdiff_t end = max_of(scores_.begin(), scores_.end());
    for_each_key_block(scores_.begin(), end, [&](ptrdiff_t start, ptrdiff_t keys) {
      scores_.compute(start, keys, tile_ + start * BLOCK_QUERIES);
      for (ptrdiff_t j = start; j < start + keys; j += SUM_CHUNK) {
        normalizer_.add(min_of(SUM_CHUNK, start + keys - j), scores_.lanes(), tile_ + j * BLOCK_QUERIES);
        for (int i = 0; i < BLOCK_QUERIES; ++i)
          chunk_max_[j / SUM_CHUNK * BLOCK_QUERIES + i] = normalizer_.row_max()[i];
      }
    });
    normalizer_.finish();
    const ptrdiff_t begin = scores_.begin() / BLOCK_KEYS * BLOCK_KEYS;
    for (ptrdiff_t c = 0; c < attention_.keys; c += BLOCK_KEYS) {
      const ptrdiff_t columns = min_of<ptrdiff_t>(BLOCK_KEYS, attention_.keys - c);
      for (ptrdiff_t j = c; j < c + columns; j += SUM_CHUNK)
        normalize(j, min_of(SUM_CHUNK, c + columns - j), j < begin ? 0 : min_of(SUM_CHUNK, end - j));
      write(tile_ + c * BLOCK_QUERIES, c, columns);
    }
  }

  // Turn the exponentials of a chunk into weights; keys after the first `allowed` are masked.
  void normalize(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t allowed) {
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      const V<T> inverse_sum = load<T>(normalizer_.inverse_sum() + i);
      T* at = tile_ + start * BLOCK_QUERIES + i;
      ptrdiff_t j = 0;
      if (allowed > 0) {
        const V<T> chunk_max = load<T>(chunk_max_ + start / SUM_CHUNK * BLOCK_QUERIES + i);
        const V<T> factor = exp<T>(chunk_max - load<T>(normalizer_.shift() + i)) * inverse_sum;
        for (; j < min_of(keys, allowed); ++j)
          store<T>(at + j * BLOCK_QUERIES, load<T>(at + j * BLOCK_QUERIES) * factor);
      }
      for (; j < keys; ++j) store<T>(at + j * BLOCK_QUERIES, V<T>{} * inverse_sum);  // NaN in a row of NaN
    }
  }

  // The scores of some keys; runs of consecutive keys are computed together.
  void compute_columns(const int32_t* column, ptrdiff_t columns) {
    for (ptrdiff_t c = 0, run; c < columns; c += run) {
      for (run = 1; c + run < columns && column[c + run] == column[c] + run;) ++run;
      T* to = tile_ + c * BLOCK_QUERIES;
      if (column[c] + run > scores_.begin() && column[c] < scores_.end()) {
        scores_.compute(column[c], run, to);
      } else {
        for (ptrdiff_t n = 0; n < run * BLOCK_QUERIES; ++n) to[n] = -INF<T>;
      }
    }
  }

  void write(const T* from, ptrdiff_t column, ptrdiff_t columns) {
    Operand to = params_.tile;
    to.data += column * to.col_stride * ptrdiff_t(is_half(to.dtype) ? 2 : sizeof(T));
    T* out = reinterpret_cast<T*>(to.data) + to.offsets[head_] + start_ * to.row_stride;
    if (!is_streamed(out, columns)) return store_transposed<T>(from, count_, columns, to, head_, start_, buffer_);
    for_each_column<T>(from, BLOCK_QUERIES, columns, count_,
                       [=](ptrdiff_t i, ptrdiff_t j, V<T> x)
                           __attribute__((always_inline)) { store_streaming<T>(out + i * to.row_stride + j, x); });
    streaming_fence();
  }

  // Whether to use streaming stores: the tile is larger than the caches, and the block consists of whole cache lines.
  bool is_streamed(const T* out, ptrdiff_t columns) const {
    const Operand& to = params_.tile;
    return HAS_STREAMING_STORES &&
           product(attention_.heads, attention_.queries, params_.columns, sizeof(T)) >= STREAMING_STORE_BYTES &&
           !is_half(to.dtype) && to.col_stride == 1 && to.row_stride % LANES<T> == 0 && columns % LANES<T> == 0 &&
           reinterpret_cast<uintptr_t>(out) % VECTOR_BYTES == 0;
  }

  // Turn scores into weights and accumulate mass, entropy and distance. The first key is at `distance_offset` from the
  // first query.
  void accumulate_row_statistics(ptrdiff_t distance_offset, ptrdiff_t keys, T* scores) {
    V<Int<T>> lane;
    for (int i = 0; i < LANES<T>; ++i) lane[i] = i;
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      const V<T> shift = load<T>(normalizer_.shift() + i), inverse_sum = load<T>(normalizer_.inverse_sum() + i);
      const V<T> log_row_sum = load<T>(normalizer_.log_row_sum() + i);
      V<T> mass = {}, entropy = {}, distance = {};
      for (ptrdiff_t j = 0; j < keys; ++j) {
        T* at = scores + j * BLOCK_QUERIES + i;
        const V<T> score = load<T>(at), weight = exp<T>(score - shift) * inverse_sum;
        const V<Int<T>> signed_distance = Int<T>(distance_offset + j - i) - lane;
        mass += weight;
        const V<T> surprisal = min<T>(log_row_sum - (score - shift), splat(MAX_FINITE<T>));  // avoid 0 * infinity
        entropy = fma<T>(weight, surprisal, entropy);
        const V<Int<T>> size = signed_distance < 0 ? -signed_distance : signed_distance;
        distance = fma<T>(weight, __builtin_convertvector(size, V<T>), distance);
        store<T>(at, score == -INF<T> ? splat(T(-0.0)) : weight);
      }
      T found[3][LANES<T>];
      store<T>(found[0], mass), store<T>(found[1], entropy), store<T>(found[2], distance);
      for (int n = 0; n < 3; ++n)
        for (int l = 0; l < LANES<T>; ++l) sums_[n * BLOCK_QUERIES + i + l] += double(found[n][l]);
    }
  }

  // Add the weights of each key over the queries: one vector for each key, then a transpose.
  void add_column_sums(ptrdiff_t keys, double* to) {
    constexpr int N = LANES<T>;
    for (ptrdiff_t j = 0; j < keys; j += N) {
      V<T> key_sums[N];
      for (int n = 0; n < N; ++n) {
        key_sums[n] = V<T>{};
        const T* weights = tile_ + (j + n) * BLOCK_QUERIES;
        for (ptrdiff_t i = 0; j + n < keys && i < count_; i += N) {
          V<T> some = load<T>(weights + i);
          for (ptrdiff_t l = count_ - i; l < N; ++l) some[l] = 0;  // lanes without a query
          key_sums[n] += some;
        }
      }
      transpose<N>(key_sums);
      V<T> all = {};
#pragma GCC unroll 32
      for (int n = 0; n < N; ++n) all += key_sums[n];
      for (ptrdiff_t n = 0; n < N && j + n < keys; ++n) to[j + n] += double(all[n]);
    }
  }

  // Pool the chunk of keys from <= j < to into their grid cells, of which `cell` is the first.
  void pool(ptrdiff_t cell, ptrdiff_t from, ptrdiff_t to, const T* chunk) {
    for (ptrdiff_t j = from; j < to; ++cell) {
      const ptrdiff_t end = min_of<ptrdiff_t>(to, params_.col_edges[cell + 1]);
      double* cell_out = cell_values_ + cell * BLOCK_QUERIES;
      const T* scores = chunk + (j - from) * BLOCK_QUERIES;
      params_.mean ? pool<true>(end - j, scores, cell_out) : pool<false>(end - j, scores, cell_out);
      j = end;
    }
  }

  template <bool mean> void pool(ptrdiff_t keys, const T* scores, double* cell_out) {
    T found[BLOCK_QUERIES];
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      V<T> all = load<T>(scores + i);
      for (ptrdiff_t j = 1; j < keys; ++j) {
        const V<T> one = load<T>(scores + j * BLOCK_QUERIES + i);
        all = mean ? all + one : max<T>(one, all);
      }
      store<T>(found + i, all);
    }
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i)
      cell_out[i] = mean                             ? cell_out[i] + double(found[i])
                    : double(found[i]) > cell_out[i] ? double(found[i])
                                                     : cell_out[i];
  }

  void rescale_cells(ptrdiff_t cells) {
    const T* factor = normalizer_.rescale();
    bool moved = false;
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) moved |= factor[i] != 1;
    for (ptrdiff_t c = 0; moved && c < cells; ++c)
      for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) cell_values_[c * BLOCK_QUERIES + i] *= double(factor[i]);
  }

  // Turn the maximum scores or sums of exponentials of a grid cell into weights, in buffer_.
  void cell_weights(const double* cell) {
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) buffer_[i] = T(cell[i]);
    if (!params_.mean) return normalizer_.normalize_scores(1, scores_.lanes(), buffer_);
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) buffer_[i] *= normalizer_.inverse_sum()[i];
  }

  // The maximum or sum over the rows of a grid cell; NaN propagates.
  double reduce_rows(int32_t row_cell) const {
    double all = 0;
    for (ptrdiff_t i = params_.row_edges[row_cell] - start_; i < params_.row_edges[row_cell + 1] - start_; ++i) {
      const double one = double(buffer_[i]);
      all = params_.mean ? all + one : one > all || one != one ? one : all;
    }
    return all;
  }

  const MapParams& params_;
  const AttentionParams& attention_;
  ScoreBlock<T> scores_;
  RowNormalizer<T> normalizer_;
  TopK<T> top_k_;
  T *tile_, *chunk_max_, *buffer_;
  double *sums_, *column_sums_, *cell_values_;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0;
};

template <class T> void run_task(const MapParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  MapKernel<T> kernel(params, scratch);
  const ptrdiff_t parts = map_tasks(params) / max_of<ptrdiff_t>(1, params.attention.heads);
  const ptrdiff_t head = task / parts, part = task % parts;
  const ptrdiff_t start = (parts - 1 - part) * BLOCK_QUERIES;  // last queries first: causal, they cost most
  const ptrdiff_t count = min_of<ptrdiff_t>(BLOCK_QUERIES, params.attention.queries - start);
  switch (params.quantity) {
    case MapQuantity::softmax_stats: return kernel.softmax_stats(head, start, count);
    case MapQuantity::tile: return kernel.tile(head, start, count);
    case MapQuantity::row_statistics: return kernel.row_statistics(head, start, count);
    case MapQuantity::column_sums:
      return kernel.column_sums(head, part * MapKernel<T>::keys_per_task(params.attention));
    case MapQuantity::pooled: return kernel.pooled(head, parts - 1 - part);
  }
}

template <class T> size_t scratch_bytes(const MapParams& params) {
  Scratch scratch(nullptr);
  MapKernel<T> kernel(params, scratch);
  return scratch.used();
}

}  // namespace

ptrdiff_t map_tasks(const MapParams& params) {
  const AttentionParams& attention = params.attention;
  if (params.quantity == MapQuantity::pooled) return product(attention.heads, params.num_strips);
  if (params.quantity == MapQuantity::column_sums)
    return product(attention.heads, ceil_div(attention.keys, MapKernel<float>::keys_per_task(attention)));
  return product(attention.heads, ceil_div(attention.queries, BLOCK_QUERIES));
}

size_t map_scratch(const MapParams& params) {
  return params.attention.q.dtype == DType::float64 ? scratch_bytes<double>(params) : scratch_bytes<float>(params);
}

void map(const MapParams& params, ptrdiff_t task, void* scratch) {
  params.attention.q.dtype == DType::float64 ? run_task<double>(params, task, scratch)
                                             : run_task<float>(params, task, scratch);
}

}  // namespace regard::REGARD_ISA
