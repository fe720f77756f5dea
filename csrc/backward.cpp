// The gradients of attention: the weights are computed anew, block by block, and carried back.
//
// With P the weights and O = P V, and dO given: dV = P^T dO, and with dP = dO V^T the scores get
// dS = P * (dP - r), where r, the sum over a row of P dP, is dO . O, known without P; dQ = dS K, dK = dS^T Q.
//
// A task takes some keys of one head and goes through all the queries that see any of them. What the keys and values
// get stays with the task until its end; what the queries get is added to that of the keys before, turn by turn.
// Queries are gone through from the last to the first: with a causal mask the tasks of later keys then never wait for
// those of earlier ones, which have more to do.
#include "dropout.h"
#include "rows.h"
#include "turns.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t SEGMENT = 128 * QUERIES;  // queries of a task: a long text is cut, so that no task is too long

template <class T> void copy_finite(const T* from, ptrdiff_t count, T* to) {
  for (ptrdiff_t i = 0; i < count; ++i) to[i] = from[i] - from[i] == 0 ? from[i] : T(0);
}

template <class T> class Pullback {
 public:
  Pullback(const Backward& call, Scratch& scratch)
      : call_(call),
        a_(call.call),
        width_(round_up(a_.features, LANES<T>)),
        value_width_(round_up(a_.value_features, LANES<T>)),
        chunks_(larger<ptrdiff_t>(1, blocks_of(a_.keys, call.keys_of_task))),
        blocks_(blocks_of(a_.queries, QUERIES)),
        scores_(a_, scratch) {
    const ptrdiff_t keys = smaller(a_.keys, call.keys_of_task), tile = KEYS * QUERIES;
    keys_room_ = scratch.take<T>(keys * width_), values_room_ = scratch.take<T>(keys * value_width_);
    d_k_ = scratch.take<T>(keys * width_), d_v_ = scratch.take<T>(keys * value_width_);
    queries_room_ = scratch.take<T>(QUERIES * width_), outputs_room_ = scratch.take<T>(QUERIES * value_width_);
    d_q_ = scratch.take<T>(QUERIES * width_), packed_ = scratch.take<T>(value_width_ * QUERIES);
    weights_ = scratch.take<T>(tile), d_scores_ = scratch.take<T>(tile);
    capped_ = a_.softcap > 0 ? scratch.take<T>(tile) : nullptr;
    room_ = scratch.take<T>(larger<ptrdiff_t>(larger(a_.features, a_.value_features), QUERIES));
    shift_ = scratch.take<T>(QUERIES), share_ = scratch.take<T>(QUERIES), row_sum_ = scratch.take<T>(QUERIES);
    of_queries_ = scratch.take<T>(QUERIES);
    of_keys_ = call.d_of_keys ? scratch.take<T>(keys) : nullptr;
    line_ = call.d_diagonal ? scratch.take<T>(smaller(a_.queries, SEGMENT) + keys + QUERIES) : nullptr;
  }

  void pull(ptrdiff_t task) {
    if (given_up()) return;
    head_ = task % a_.heads, chunk_ = task / a_.heads % chunks_;
    const ptrdiff_t segment = task / a_.heads / chunks_;
    from_ = chunk_ * call_.keys_of_task, to_ = smaller(from_ + call_.keys_of_task, a_.keys);
    first_query_ = segment * SEGMENT;
    const ptrdiff_t end = smaller(first_query_ + SEGMENT, a_.queries), keys = to_ - from_;
    taken_ = false;
    if (line_) clear(line_, end - first_query_ + keys + QUERIES);
    for (ptrdiff_t i = blocks_of(end - first_query_, QUERIES) - 1; i >= 0 && !given_up(); --i) {
      const ptrdiff_t start = first_query_ + i * QUERIES;
      block(start, smaller<ptrdiff_t>(QUERIES, end - start));
    }
    finish(segment);
  }

 private:
  bool given_up() const { return __atomic_load_n(call_.not_finite, __ATOMIC_RELAXED); }
  void give_up() const { __atomic_store_n(call_.not_finite, true, __ATOMIC_RELAXED); }
  static void clear(T* x, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; ++i) x[i] = 0;
  }

  // Rows of an operand as a product reads them, `width` numbers filled up with zeros: where they are, or in `room`.
  Matrix<T> rows(const Operand& x, ptrdiff_t start, ptrdiff_t count, ptrdiff_t features, ptrdiff_t width, T* room) {
    const bool near = x.column == 1 && x.row >= 0 && x.row <= 2 * width;  // rows far apart share few lines of the caches
    if (near && width == features && !is_short(x.kind)) return matrix_of<T>(x, head_).from(start);
    for (ptrdiff_t i = 0; i < count; ++i) {
      const Matrix<T> row = rows_of<T>(x, head_, start + i, 1, features, room_);
      T* to = room + i * width;
      for (ptrdiff_t d = 0; d < features; ++d) to[d] = row.data[d * row.column];
      for (ptrdiff_t d = features; d < width; ++d) to[d] = 0;
    }
    return {room, width, 1};
  }

  // Keys or values with 0 for what is not finite: 0 * NaN is NaN, so what is hidden would poison the sums. Where a query
  // sees it, there is no derivative.
  Matrix<T> finite_part(Matrix<T> x, ptrdiff_t keys, ptrdiff_t width, T* room) {
    if (is_finite(x, keys, width)) return x;
    const Cells<T> cells(a_, head_);
    for (ptrdiff_t j = 0; j < keys; ++j) {
      const bool finite = is_finite(x.from(j), 1, width);
      for (ptrdiff_t i = 0; i < a_.queries && !finite; ++i)
        if (cells.sees(i, from_ + j)) give_up();
      copy_finite(x.data + j * x.row, width, room + j * width);
    }
    return {room, width, 1};
  }

  void take_keys() {
    const ptrdiff_t keys = to_ - from_;
    k_ = finite_part(rows(a_.k, from_, keys, a_.features, width_, keys_room_), keys, width_, keys_room_);
    const Matrix<T> values = rows(a_.v, from_, keys, a_.value_features, value_width_, values_room_);
    v_ = finite_part(values, keys, value_width_, values_room_);
    clear(d_k_, keys * width_), clear(d_v_, keys * value_width_);
    if (of_keys_) clear(of_keys_, keys);
    taken_ = true;
  }

  // The part of a block of queries that looks at the keys of this task.
  void block(ptrdiff_t start, ptrdiff_t count) {
    start_ = start, count_ = count, lanes_ = round_up(count, LANES<T>);
    scores_.stand_at(head_, start, count);
    const ptrdiff_t begin = scores_.begin(), end = scores_.end();
    const ptrdiff_t from = larger(begin, from_), to = smaller(end, to_);
    if (from < to) {
      if (!taken_) take_keys();
      take_queries();
      bool is_first = true;
      for (ptrdiff_t j = from; j < to; j += KEYS) {
        const ptrdiff_t keys = smaller<ptrdiff_t>(KEYS, to - j);
        if (!scores_.sees_any_of(j, keys)) continue;
        add(j, keys, is_first);
        is_first = false;
      }
      if (is_first) clear(d_q_, QUERIES * width_);
      const auto mine = int32_t(chunk_ - begin / call_.keys_of_task);  // tasks before that see something of the block
      int32_t* turn = call_.turn_of_queries + head_ * blocks_ + start / QUERIES;
      wait_for_turn(turn, mine, call_.not_finite);
      put_rows(d_q_, width_, start, count, a_.features, call_.d_q, mine > 0);
      if (call_.d_of_queries) put_rows(of_queries_, 1, start, count, 1, call_.d_of_queries, mine > 0);
      next_turn(turn, mine);
    } else if (begin >= end && chunk_ == 0) {  // nobody sees anything of it
      clear(d_q_, QUERIES * width_), clear(of_queries_, QUERIES);
      put_rows(d_q_, width_, start, count, a_.features, call_.d_q, false);
      if (call_.d_of_queries) put_rows(of_queries_, 1, start, count, 1, call_.d_of_queries, false);
    }
    if (call_.d_bias) {
      int32_t* turn = bias_turn();
      wait_for_turn(turn, call_.rank[head_], call_.not_finite);
      next_turn(turn, call_.rank[head_]);
    }
  }

  int32_t* bias_turn() const {
    return call_.turn_of_bias + (call_.owner[head_] * chunks_ + chunk_) * blocks_ + start_ / QUERIES;
  }

  void take_queries() {
    scores_.take_queries();
    q_ = rows(a_.q, start_, count_, a_.features, width_, queries_room_);
    d_out_ = rows(call_.d_output, start_, count_, a_.value_features, value_width_, outputs_room_);
    const T* highest = matrix_of<T>(a_.highest, head_).data + start_;
    const double* total = matrix_of<double>(a_.total, head_).data + start_;
    const T* row_sums = matrix_of<T>(call_.row_sums, head_).data + start_;
    bool all_see = true;
    for (ptrdiff_t i = 0; i < QUERIES; ++i) {
      const bool sees = i < count_ && total[i] != 0;
      shift_[i] = sees ? highest[i] : T(0);
      share_[i] = sees ? T(1 / total[i]) : T(0);
      row_sum_[i] = sees ? row_sums[i] : T(0);
      of_queries_[i] = 0;
      all_see &= sees || i >= count_;
    }
    if (!all_see || a_.sinks) {  // what a row that sees nothing holds and is told reaches nobody, be it NaN
      for (ptrdiff_t i = 0; i < count_; ++i) {
        copy_finite(q_.data + i * q_.row, width_, queries_room_ + i * width_);
        copy_finite(d_out_.data + i * d_out_.row, value_width_, outputs_room_ + i * value_width_);
      }
      q_ = {queries_room_, width_, 1}, d_out_ = {outputs_room_, value_width_, 1};
    }
    for (ptrdiff_t d = 0; d < a_.value_features; ++d)
      for (ptrdiff_t i = count_ & ~ptrdiff_t(LANES<T> - 1); i < lanes_; ++i) packed_[d * QUERIES + i] = 0;
    transposed<T>(d_out_, count_, a_.value_features, packed_, QUERIES);
  }

  // What a block of keys and the block of queries give each other.
  void add(ptrdiff_t start, ptrdiff_t count, bool is_first) {
    const ptrdiff_t at = start - from_;
    const Matrix<T> keys = k_.from(at), values = v_.from(at);
    scores_.of(keys, start, count, weights_, capped_);
    product<T, Into::set>(values, count, a_.value_features, packed_, QUERIES, d_scores_, QUERIES, lanes_);
    if (a_.dropout) drop<T>(a_, head_, start_, lanes_, start, count, d_scores_);
    const bool at_once = a_.softcap == 0 && !wants_bias();
    through_softmax(count, T(at_once ? a_.scale : 1));
    if (a_.dropout) drop<T>(a_, head_, start_, lanes_, start, count, weights_);
    const Matrix<T> weights = {weights_, QUERIES, 1}, d_scores = {d_scores_, QUERIES, 1};
    product<T, Into::add>(weights, count, count_, d_out_.data, d_out_.row, d_v_ + at * value_width_, value_width_,
                          value_width_);
    if (!at_once) {
      add_to_bias(start, count);
      through_cap_and_scale(count);
    }
    product<T, Into::add>(d_scores, count, count_, q_.data, q_.row, d_k_ + at * width_, width_, width_);
    if (is_first) product<T, Into::set>(d_scores.transposed(), count_, count, keys.data, keys.row, d_q_, width_, width_);
    else product<T, Into::add>(d_scores.transposed(), count_, count, keys.data, keys.row, d_q_, width_, width_);
  }

  bool wants_bias() const { return call_.d_bias || call_.d_of_keys || call_.d_of_queries || call_.d_diagonal; }

  // From scores to weights, and from the gradients of these to those of the scores, times a factor.
  void through_softmax(ptrdiff_t count, T factor) {
    constexpr ptrdiff_t width = 2 * LANES<T>;  // what fits into the registers
    ptrdiff_t i = 0;
    for (; i + width <= lanes_; i += width) columns<2>(count, i, factor);
    for (; i < lanes_; i += LANES<T>) columns<1>(count, i, factor);
  }

  template <int vectors> void columns(ptrdiff_t count, ptrdiff_t lane, T factor) {
    V<T> shift[vectors], share[vectors], row_sum[vectors];
    for (int n = 0; n < vectors; ++n) {
      shift[n] = load<T>(shift_ + lane + n * LANES<T>), share[n] = load<T>(share_ + lane + n * LANES<T>);
      row_sum[n] = load<T>(row_sum_ + lane + n * LANES<T>);
    }
    for (ptrdiff_t j = 0; j < count; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) {
        T *at = weights_ + j * QUERIES + lane + n * LANES<T>, *d_at = d_scores_ + j * QUERIES + lane + n * LANES<T>;
        const V<T> e = exp<T>(at_most<T>(load<T>(at) - shift[n], V<T>{})), weight = e * share[n];
        store<T>(at, weight);
        store<T>(d_at, e == 0 ? V<T>{} : weight * factor * (load<T>(d_at) - row_sum[n]));  // hidden: 0, whatever else
      }
  }

  void through_cap_and_scale(ptrdiff_t count) {
    const T scale = T(a_.scale), cap = T(a_.softcap);
    for (ptrdiff_t n = 0; n < count * QUERIES; n += LANES<T>) {
      V<T> d = load<T>(d_scores_ + n) * scale;
      if (a_.softcap > 0) {
        const V<T> share = load<T>(capped_ + n) / cap;
        d = d == 0 ? V<T>{} : d * (1 - share * share);
      }
      store<T>(d_scores_ + n, d);
    }
  }

  // The gradients of the biased scores, to the bias itself or summed along the axes that it repeats.
  void add_to_bias(ptrdiff_t start, ptrdiff_t count) {
    if (count_ < lanes_)  // lanes without a query
      for (ptrdiff_t j = 0; j < count; ++j) clear(d_scores_ + j * QUERIES + count_, lanes_ - count_);
    for (ptrdiff_t j = 0; j < count; ++j) {
      V<T> sums = {};
      for (ptrdiff_t i = 0; i < lanes_; i += LANES<T>) {
        const V<T> d = load<T>(d_scores_ + j * QUERIES + i);
        sums += d;
        store<T>(of_queries_ + i, load<T>(of_queries_ + i) + d);
        if (!line_) continue;
        T* place = line_ + (start_ - first_query_ + i) + (to_ - 1 - start - j);
        store<T>(place, load<T>(place) + d);
      }
      if (of_keys_) of_keys_[start - from_ + j] += sum<T>(sums);
    }
    if (!call_.d_bias) return;
    wait_for_turn(bias_turn(), call_.rank[head_], call_.not_finite);
    T* rows = weights_;  // which have done their part
    transposed<T>(d_scores_, QUERIES, count, count_, rows, KEYS);
    const Matrix<T> to = matrix_of<T>(call_.d_bias, head_).from(start_, start);
    for (ptrdiff_t i = 0; i < count_; ++i)
      for (ptrdiff_t j = 0; j < count; ++j) const_cast<T&>(to.data[i * to.row + j * to.column]) += rows[i * KEYS + j];
  }

  // Write rows of `features` numbers to an operand, or add them to what is there.
  void put_rows(const T* rows, ptrdiff_t width, ptrdiff_t start, ptrdiff_t count, ptrdiff_t features, const Operand& to,
                bool more) const {
    for (ptrdiff_t i = 0; i < count; ++i) {
      const Matrix<T> place = matrix_of<T>(to, head_).from(start + i);
      T* out = const_cast<T*>(place.data);
      ptrdiff_t d = 0;
      if (place.column == 1)
        for (; d + LANES<T> <= features; d += LANES<T>) {
          const V<T> row = load<T>(rows + i * width + d);
          store<T>(out + d, more ? load<T>(out + d) + row : row);
        }
      for (; d < features; ++d) {
        T& x = out[d * place.column];
        x = more ? x + rows[i * width + d] : rows[i * width + d];
      }
    }
  }

  void finish(ptrdiff_t segment) {
    const ptrdiff_t keys = to_ - from_;
    int32_t* turn = call_.turn_of_keys + head_ * chunks_ + chunk_;
    wait_for_turn(turn, int32_t(segment), call_.not_finite);
    if (taken_ || segment == 0) {
      if (!taken_) clear(d_k_, keys * width_), clear(d_v_, keys * value_width_);
      put_rows(d_k_, width_, from_, keys, a_.features, call_.d_k, segment > 0);
      put_rows(d_v_, value_width_, from_, keys, a_.value_features, call_.d_v, segment > 0);
      if (of_keys_) {
        if (!taken_) clear(of_keys_, keys);
        put_rows(of_keys_, 1, from_, keys, 1, call_.d_of_keys, segment > 0);
      }
    }
    next_turn(turn, int32_t(segment));
    if (!line_) return;
    const auto mine = int32_t(segment * chunks_ + chunk_);
    wait_for_turn(call_.turn_of_diagonal + head_, mine, call_.not_finite);
    const ptrdiff_t queries = smaller(SEGMENT, a_.queries - first_query_);
    put_rows(line_, 1, first_query_ + a_.keys - to_, queries + keys - 1, 1, call_.d_diagonal, true);
    next_turn(call_.turn_of_diagonal + head_, mine);
  }

  const Backward& call_;
  const Attention& a_;
  const ptrdiff_t width_, value_width_;  // of a row, filled up to whole vectors
  const ptrdiff_t chunks_, blocks_;
  Scores<T> scores_;
  Matrix<T> k_{}, v_{}, q_{}, d_out_{};  // of the keys of the task, of a block of queries
  T *keys_room_, *values_room_, *queries_room_, *outputs_room_, *room_;
  T *d_k_, *d_v_, *d_q_;
  T* packed_;  // d_out transposed, [Dv][QUERIES]
  T *weights_, *d_scores_, *capped_;
  T *shift_, *share_, *row_sum_, *of_queries_, *of_keys_, *line_;
  ptrdiff_t head_ = 0, chunk_ = 0, from_ = 0, to_ = 0, first_query_ = 0, start_ = 0, count_ = 0, lanes_ = 0;
  bool taken_ = false;
};

// The sum over a row of P dP for each query of a block, which is dO . O.
template <class T> void sum_rows(const Backward& call, ptrdiff_t task, void* memory) {
  const Attention& a = call.call;
  Scratch scratch(memory);
  T* q_room = scratch.take<T>(QUERIES * a.features);
  T* d_room = scratch.take<T>(QUERIES * a.value_features);
  const ptrdiff_t blocks = blocks_of(a.queries, QUERIES), head = task / blocks, start = task % blocks * QUERIES;
  const ptrdiff_t count = smaller<ptrdiff_t>(QUERIES, a.queries - start), width = a.value_features;
  const Matrix<T> output = matrix_of<T>(a.output, head).from(start);
  const Matrix<T> d_output = rows_of<T>(call.d_output, head, start, count, width, d_room);
  const double* total = matrix_of<double>(a.total, head).data + start;
  T* sums = const_cast<T*>(matrix_of<T>(call.row_sums, head).data) + start;
  const Matrix<T> queries = rows_of<T>(a.q, head, start, count, a.features, q_room);
  const Cells<T> cells(a, head);
  bool finite = true;
  for (ptrdiff_t i = 0; i < count; ++i)
    if (total[i] != 0 && !is_finite(queries.from(i), 1, a.features))
      for (ptrdiff_t j = 0; j < a.keys && finite; ++j) finite = !cells.sees(start + i, j);
  for (ptrdiff_t i = 0; i < count; ++i) {
    sums[i] = 0;
    if (total[i] == 0) continue;  // what a row that sees nothing is told reaches nobody
    finite &= is_finite(d_output.from(i), 1, width);
    T* products = d_room + i * width;  // in whose place short floats were widened; the sum is the same for any strides
    for (ptrdiff_t d = 0; d < width; ++d)
      products[d] = d_output.from(i, d).data[0] * output.from(i, d).data[0];
    V<T> some = {};
    ptrdiff_t d = 0;
    for (; d + LANES<T> <= width; d += LANES<T>) some += load<T>(products + d);
    for (; d < width; ++d) sums[i] += products[d];
    sums[i] += sum<T>(some);
    finite &= sums[i] - sums[i] == 0 && total[i] - total[i] == 0;
  }
  if (!finite) __atomic_store_n(call.not_finite, true, __ATOMIC_RELAXED);
}

template <class T> size_t needed(const Backward& call) {
  Scratch scratch(nullptr);
  Pullback<T> pullback(call, scratch);
  const size_t width = size_t(round_up(call.call.features + call.call.value_features, 64));  // for sum_rows
  return larger<size_t>(scratch.used(), 2 * QUERIES * width * sizeof(T));
}

template <class T> void pull(const Backward& call, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Pullback<T>(call, scratch).pull(task);
}

}  // namespace

ptrdiff_t backward_tasks(const Backward& call) {
  const ptrdiff_t chunks = larger<ptrdiff_t>(1, blocks_of(call.call.keys, call.keys_of_task));
  return call.call.heads * chunks * larger<ptrdiff_t>(1, blocks_of(call.call.queries, SEGMENT));
}

size_t backward_scratch(const Backward& call) {
  return call.call.q.kind == Kind::float64 ? needed<double>(call) : needed<float>(call);
}

void backward_rows(const Backward& call, ptrdiff_t task, void* scratch) {
  call.call.q.kind == Kind::float64 ? sum_rows<double>(call, task, scratch) : sum_rows<float>(call, task, scratch);
}

void backward(const Backward& call, ptrdiff_t task, void* scratch) {
  call.call.q.kind == Kind::float64 ? pull<double>(call, task, scratch) : pull<float>(call, task, scratch);
}

}  // namespace regard::REGARD_ISA
