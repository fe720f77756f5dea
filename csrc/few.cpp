// Few queries, many keys, as when a text is continued word by word: what counts is that each key and value is read
// once, and that all threads read.
//
// Here a vector holds features of one key, not queries. The keys are cut into chunks, each a task: the scores of its
// keys, their exponentials relative to the chunk's own largest score, and the sum of values that goes with them. Then
// the chunks of each row are put together, in their order. Query heads that share keys and values are rows of one task.
#include "dropout.h"
#include "rows.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t STEP = FEW_KEYS + 16;  // between rows of scores: room for a last vector that is not full

// Rows of keys or values with a whole number of vectors in each: where they are, or copied, with zeros behind them.
// `room` has one row more than that.
template <class T>
Matrix<T> whole_vectors(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* room) {
  const ptrdiff_t padded = round_up(width, LANES<T>);
  if (!is_short(x.kind) && x.column == 1 && padded == width) return matrix_of<T>(x, head).from(start);
  for (ptrdiff_t i = 0; i < count; ++i, room += padded) {
    const Matrix<T> row = rows_of<T>(x, head, start + i, 1, width, room);
    for (ptrdiff_t f = 0; f < width; ++f) room[f] = row.data[f * row.column];
    for (ptrdiff_t f = width; f < padded; ++f) room[f] = 0;
  }
  return {room - count * padded, padded, 1};
}

// scores[r][j] = queries[r] . keys[j] * scale, for `rows` rows and as many keys as make a dot product for each lane.
template <class T, int rows>
REGARD_INLINE void dots(const T* queries, ptrdiff_t width, Matrix<T> keys, T scale, T* scores) {
  constexpr int N = LANES<T>, columns = N / rows;
  V<T> sums[N] = {};  // that of row r and key j is number r * columns + j
  for (ptrdiff_t f = 0; f < width; f += N) {
    V<T> key[columns];
#pragma GCC unroll 16
    for (int j = 0; j < columns; ++j) key[j] = load<T>(keys.data + j * keys.row + f);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V<T> query = load<T>(queries + r * width + f);
#pragma GCC unroll 16
      for (int j = 0; j < columns; ++j) sums[r * columns + j] += query * key[j];
    }
  }
  transpose<N>(sums);  // lane n of each is now a part of sum number n
#pragma GCC unroll 8
  for (int half = N / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int n = 0; n < half; ++n) sums[n] += sums[n + half];
  T found[N];
  store<T>(found, sums[0] * scale);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) __builtin_memcpy(scores + r * STEP, found + r * columns, columns * sizeof(T));
}

template <class T, int rows>
void all_dots(const T* queries, ptrdiff_t width, Matrix<T> keys, ptrdiff_t count, T scale, T* scores, T* room) {
  constexpr int columns = LANES<T> / rows;
  ptrdiff_t j = 0;
  for (; j + columns <= count; j += columns) dots<T, rows>(queries, width, keys.from(j), scale, scores + j);
  if (j == count) return;
  for (ptrdiff_t n = 0; n < columns; ++n)  // fewer are left: the last one as often as it takes
    __builtin_memcpy(room + n * width, keys.from(smaller(j + n, count - 1)).data, size_t(width) * sizeof(T));
  dots<T, rows>(queries, width, {room, width, 1}, scale, scores + j);
}

// What a chunk says to one row: the largest score, the sum of exponentials, and the sum of values weighted with them.
template <class T> struct Partial {
  T *highest, *total, *sums;

  Partial(const Attention& call, ptrdiff_t group, ptrdiff_t chunk, ptrdiff_t row) {
    const ptrdiff_t width = round_up(call.value_features, LANES<T>) + 2, rows = few_rows(call);
    highest = static_cast<T*>(call.partials) + ((group * few_chunks(call) + chunk) * rows + row) * width;
    total = highest + 1, sums = highest + 2;
  }

  void clear(ptrdiff_t width) {  // nothing is seen
    *highest = -INFINITE<T>, *total = 0;
    for (ptrdiff_t f = 0; f < width; ++f) sums[f] = 0;
  }
};

template <class T> class Chunk {
 public:
  Chunk(const Attention& call, Scratch& scratch)
      : call_(call),
        width_(round_up(call.features, LANES<T>)),
        value_width_(round_up(call.value_features, LANES<T>)),
        queries_(scratch.take<T>((FEW_ROWS + 1) * width_)),
        last_keys_(scratch.take<T>(LANES<T> * width_)),
        room_(scratch.take<T>((FEW_KEYS + 1) * larger(width_, value_width_))),
        scores_(scratch.take<T>(FEW_ROWS * STEP)) {}

  void attend(ptrdiff_t group, ptrdiff_t chunk) {
    const ptrdiff_t rows = few_rows(call_), head = group * call_.sharing;
    ptrdiff_t start = chunk * FEW_KEYS, end = smaller(start + FEW_KEYS, call_.keys);
    leave_out_unseen(head, rows, start, end);
    const ptrdiff_t count = end - start;
    if (count <= 0) {
      for (ptrdiff_t r = 0; r < rows; ++r) Partial<T>(call_, group, chunk, r).clear(value_width_);
      return;
    }
    score(head, rows, start, count);
    for (ptrdiff_t r = 0; r < rows; ++r) weigh(head, r, start, count, Partial<T>(call_, group, chunk, r));
    if (!call_.v) return;
    const Matrix<T> values = whole_vectors<T>(call_.v, head, start, count, call_.value_features, room_);
    const Partial<T> first(call_, group, chunk, 0);
    if (is_finite(values, count, value_width_))
      product<T, Into::set>({scores_, STEP, 1}, rows, count, values.data, values.row, first.sums, value_width_ + 2, value_width_);
    else
      for (ptrdiff_t r = 0; r < rows; ++r) add_what_is_seen(head, r, start, count, values, Partial<T>(call_, group, chunk, r));
  }

 private:
  ptrdiff_t head_of(ptrdiff_t head, ptrdiff_t row) const { return head + row / call_.queries; }
  ptrdiff_t query_of(ptrdiff_t row) const { return row % call_.queries; }

  // Make start <= j < end as short as it can be: what no row sees is not read.
  void leave_out_unseen(ptrdiff_t head, ptrdiff_t rows, ptrdiff_t& start, ptrdiff_t& end) const {
    ptrdiff_t first = call_.keys, last = 0;
    for (ptrdiff_t r = 0; r < rows; ++r) {
      const Cells<T> cells(call_, head_of(head, r));
      first = smaller(first, cells.first(query_of(r))), last = larger(last, cells.last(query_of(r)));
    }
    start = larger(start, first), end = smaller(end, last);
    const auto seen = [&](ptrdiff_t j) {
      for (ptrdiff_t r = 0; r < rows; ++r)
        if (Cells<T>(call_, head_of(head, r)).sees(query_of(r), j)) return true;
      return false;
    };
    if (!call_.mask) return;
    while (start < end && !seen(start)) ++start;
    while (start < end && !seen(end - 1)) --end;
  }

  void score(ptrdiff_t head, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count) {
    for (ptrdiff_t r = 0; r < rows; ++r) {
      T* to = queries_ + r * width_;
      const Matrix<T> query = whole_vectors<T>(call_.q, head_of(head, r), query_of(r), 1, call_.features, to);
      if (query.data != to) __builtin_memcpy(to, query.data, size_t(width_) * sizeof(T));
    }
    const Matrix<T> keys = whole_vectors<T>(call_.k, head, start, count, call_.features, room_);
    const T scale = T(call_.scale);
    ptrdiff_t r = 0;
    for (; r + 4 <= rows && LANES<T> >= 4; r += 4)
      all_dots<T, LANES<T> < 4 ? 1 : 4>(queries_ + r * width_, width_, keys, count, scale, scores_ + r * STEP, last_keys_);
    for (; r + 2 <= rows; r += 2)
      all_dots<T, 2>(queries_ + r * width_, width_, keys, count, scale, scores_ + r * STEP, last_keys_);
    for (; r < rows; ++r)
      all_dots<T, 1>(queries_ + r * width_, width_, keys, count, scale, scores_ + r * STEP, last_keys_);
  }

  // Softcap, bias and mask of a row of scores; then their exponentials.
  void weigh(ptrdiff_t head, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, Partial<T> to) {
    const Cells<T> cells(call_, head_of(head, row));
    const ptrdiff_t i = query_of(row);
    T* scores = scores_ + row * STEP;
    for (ptrdiff_t j = count; j < round_up(count, LANES<T>); ++j) scores[j] = -INFINITE<T>;
    if (call_.softcap > 0) {
      const T cap = T(call_.softcap);
      for (ptrdiff_t j = 0; j < count; j += LANES<T>)
        store<T>(scores + j, cap * tanh<T>(load<T>(scores + j) / cap));
      for (ptrdiff_t j = count; j < round_up(count, LANES<T>); ++j) scores[j] = -INFINITE<T>;
    }
    if (call_.bias || call_.diagonal)
      for (ptrdiff_t j = 0; j < count; ++j) scores[j] += cells.bias(i, start + j);
    if (call_.first || call_.last || call_.mask || call_.bias)
      for (ptrdiff_t j = 0; j < count; ++j)
        if (!cells.sees(i, start + j)) scores[j] = -INFINITE<T>;

    V<T> top = splat(-INFINITE<T>), sums = {};
    for (ptrdiff_t j = 0; j < count; j += LANES<T>) {
      const V<T> known = at_most<T>(load<T>(scores + j), splat(FAR<T>));
      store<T>(scores + j, known);
      top = at_least<T>(known, top);
    }
    T highest = -INFINITE<T>;
    for (int n = 0; n < LANES<T>; ++n) highest = larger(highest, T(top[n]));
    const T shift = highest == -INFINITE<T> ? T(0) : highest;
    for (ptrdiff_t j = 0; j < count; j += LANES<T>) {
      const V<T> e = exp<T>(load<T>(scores + j) - shift);
      sums += e;
      store<T>(scores + j, e);
    }
    *to.highest = highest, *to.total = sum<T>(sums);
    for (ptrdiff_t j = 0; call_.dropout && j < count; ++j)
      scores[j] *= dropped<T>(call_, head_of(head, row), i, start + j);
  }

  // Where values are not all finite: an infinity, or NaN, reaches the rows that see it, whatever its weight.
  void add_what_is_seen(ptrdiff_t head, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, Matrix<T> values, Partial<T> to) {
    const Cells<T> cells(call_, head_of(head, row));
    for (ptrdiff_t f = 0; f < value_width_; ++f) {
      T total = 0, infinities = 0;
      for (ptrdiff_t j = 0; j < count; ++j) {
        const T x = values.data[j * values.row + f];
        if (x - x == 0) total += scores_[row * STEP + j] * x;
        else if (cells.sees(query_of(row), start + j)) infinities += x;
      }
      to.sums[f] = total + infinities;
    }
  }

  const Attention& call_;
  ptrdiff_t width_, value_width_;
  T *queries_, *last_keys_, *room_, *scores_;
};

template <class T> void put_together(const Attention& call, ptrdiff_t task) {
  const ptrdiff_t head = task / call.queries, i = task % call.queries, chunks = few_chunks(call);
  const ptrdiff_t group = head / call.sharing, row = head % call.sharing * call.queries + i;
  T sink = -INFINITE<T>;
  if (call.sinks) sink = held_sink(matrix_of<T>(call.sinks, head).data[0]);
  T highest = sink;
  for (ptrdiff_t c = 0; c < chunks; ++c) highest = larger(highest, *Partial<T>(call, group, c, row).highest);
  const T shift = highest == -INFINITE<T> ? T(0) : highest;
  double total = double(one_exp(sink - shift));
  for (ptrdiff_t c = 0; c < chunks; ++c) {
    const Partial<T> part(call, group, c, row);
    total += double(*part.total) * double(one_exp(*part.highest - shift));
  }
  if (call.highest) {
    const_cast<T&>(matrix_of<T>(call.highest, head).from(i).data[0]) = highest;
    const_cast<double&>(matrix_of<double>(call.total, head).from(i).data[0]) = total;
  }
  if (!call.v) return;
  T* sums = Partial<T>(call, group, 0, row).sums;  // those of the first chunk get the others'
  const T share = T(1 / (total == 0 ? 1 : total));
  for (ptrdiff_t c = 0; c < chunks; ++c) {
    const Partial<T> part(call, group, c, row);
    const T factor = one_exp(*part.highest - shift);
    for (ptrdiff_t f = 0; f < call.value_features; ++f) {
      const T x = part.sums[f], grown = x - x == 0 ? x * factor : x;  // an infinity that was seen stays one
      sums[f] = c == 0 ? grown : sums[f] + grown;
    }
  }
  for (ptrdiff_t f = 0; f < call.value_features; ++f) sums[f] *= share;
  write_row<T>(sums, call.value_features, call.output, head, i);
}

template <class T> void attend(const Attention& call, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Chunk<T> chunk(call, scratch);
  chunk.attend(task / few_chunks(call), task % few_chunks(call));
}

template <class T> size_t needed(const Attention& call) {
  Scratch scratch(nullptr);
  Chunk<T> chunk(call, scratch);
  return scratch.used();
}

}  // namespace

size_t few_scratch(const Attention& call) {
  return call.q.kind == Kind::float64 ? needed<double>(call) : needed<float>(call);
}

size_t few_partials(const Attention& call) {
  const ptrdiff_t rows = call.heads / call.sharing * few_chunks(call) * few_rows(call);
  const ptrdiff_t width = round_up(call.value_features, 64) + 2;
  return size_t(rows * width) * (call.q.kind == Kind::float64 ? sizeof(double) : sizeof(float));
}

void few(const Attention& call, ptrdiff_t task, void* scratch) {
  call.q.kind == Kind::float64 ? attend<double>(call, task, scratch) : attend<float>(call, task, scratch);
}

void few_together(const Attention& call, ptrdiff_t task) {
  call.q.kind == Kind::float64 ? put_together<double>(call, task) : put_together<float>(call, task);
}

}  // namespace regard::REGARD_ISA
