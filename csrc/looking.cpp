// Looking at a map of weights that is never held: sums of rows, a tile, a pooled overview, entropy, distance and the
// largest of each row, and what each key receives. Each goes through blocks of scores as attention does.
//
// A row's weights are exp(score - highest) / total, and the score of a cell is the same number in every pass over it:
// so a tile that is computed with sums found earlier, or in another order, fits them to the last digit of a score.
#include "rows.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t NEAR = ptrdiff_t(1) << 19;  // bytes of scores that stay in a core's own cache
constexpr ptrdiff_t MUCH = ptrdiff_t(1) << 23;  // bytes of a result of which many caches keep little

// Call f(start, count) for the blocks of keys begin <= j < end. They begin at multiples of KEYS, whatever queries see
// them: the same portions are summed for a row, in whichever block of queries it is.
template <class F> void in_blocks(ptrdiff_t begin, ptrdiff_t end, F f) {
  for (ptrdiff_t j = begin / KEYS * KEYS; j < end; j += KEYS) f(j, smaller<ptrdiff_t>(KEYS, end - j));
}

// What turns the scores of a block of queries into weights.
template <class T> class Shares {
 public:
  explicit Shares(Scratch& scratch)
      : rows_(scratch),
        shift_(scratch.take<T>(QUERIES)),
        share_(scratch.take<T>(QUERIES)),
        log_total_(scratch.take<T>(QUERIES)) {}

  const T* highest() const { return rows_.highest; }
  const T* shift() const { return shift_; }
  const T* share() const { return share_; }
  const T* log_total() const { return log_total_; }
  const T* factor() const { return rows_.factor; }  // by which what was gathered before the last portion shrinks

  void begin(const Attention& call, ptrdiff_t head) { rows_.begin(call, head); }

  // Turn scores into exponentials relative to the largest so far, and add them up.
  void add(ptrdiff_t keys, ptrdiff_t lanes, T* scores) {
    for (ptrdiff_t j = 0; j < keys; j += PORTION)
      rows_.go_on(smaller(PORTION, keys - j), 0, lanes, scores + j * QUERIES);
  }

  // Take sums that are known, of rows start <= i < start + count, or give them.
  void read(const Look& look, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    const T* highest = matrix_of<T>(look.highest, head).data;
    const double* total = matrix_of<double>(look.total, head).data;
    for (ptrdiff_t i = 0; i < QUERIES; ++i) {
      rows_.highest[i] = i < count ? highest[(start + i) * look.highest.row] : -INFINITE<T>;
      rows_.total[i] = i < count ? total[(start + i) * look.total.row] : 0;
    }
  }
  void write(const Look& look, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) const {
    T* highest = const_cast<T*>(matrix_of<T>(look.highest, head).data);
    double* total = const_cast<double*>(matrix_of<double>(look.total, head).data);
    for (ptrdiff_t i = 0; i < count; ++i) {
      highest[(start + i) * look.highest.row] = rows_.highest[i];
      total[(start + i) * look.total.row] = rows_.total[i];
    }
  }

  // All keys are known: weights can be had.
  void finish() {
    far_ = false;
    for (int i = 0; i < QUERIES; ++i) {
      const T highest = rows_.highest[i];
      shift_[i] = highest == -INFINITE<T> ? T(0) : highest;
      share_[i] = rows_.total[i] == 0 ? T(0) : T(1 / rows_.total[i]);
      log_total_[i] = rows_.total[i] == 0 ? T(0) : T(__builtin_log(rows_.total[i]));
      far_ |= highest >= FAR<T>;
    }
  }

  // Scores that were held when they were summed are held again.
  void hold(ptrdiff_t keys, ptrdiff_t lanes, T* scores) const {
    for (ptrdiff_t i = 0; far_ && i < lanes; i += LANES<T>) rows_.template hold<1>(keys, scores + i);
  }

  void weigh(ptrdiff_t keys, ptrdiff_t lanes, T* scores) const {
    hold(keys, lanes, scores);
    for (ptrdiff_t i = 0; i < lanes; i += LANES<T>) {
      const V<T> shift = load<T>(shift_ + i), share = load<T>(share_ + i);
      for (ptrdiff_t j = 0; j < keys; ++j) {
        T* at = scores + j * QUERIES + i;
        store<T>(at, exp<T>(load<T>(at) - shift) * share);
      }
    }
  }

 private:
  Rows<T> rows_;
  T *shift_, *share_, *log_total_;
  bool far_ = false;
};

// The largest weights of each row, largest first. A weight has to be larger than the last of them to come in, so that
// of equal ones the first key stays; after a while few do.
template <class T> class Largest {
 public:
  Largest(const Look& look, Scratch& scratch)
      : count_(look.top),
        weights_(scratch.take<T>(look.top * QUERIES)),
        keys_(scratch.take<int32_t>(look.top * QUERIES)),
        limits_(scratch.take<T>(QUERIES)) {}

  void begin(const Attention& call, ptrdiff_t head, ptrdiff_t first) {
    call_ = &call, head_ = head, first_ = first;
    for (ptrdiff_t n = 0; n < count_ * QUERIES; ++n) weights_[n] = -1, keys_[n] = -1;
    for (int i = 0; i < QUERIES; ++i) limits_[i] = -1;
  }

  // The weights of keys start <= j < start + keys; what is hidden has weight -0.
  void add(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t queries, const T* weights) {
    for (ptrdiff_t i = 0; i < queries; i += LANES<T>) {
      V<T> top = splat(T(-1));
      for (ptrdiff_t j = 0; j < keys; ++j) top = at_least<T>(load<T>(weights + j * QUERIES + i), top);
      const V<Int<T>> larger = top > load<T>(limits_ + i);
      if (!any(larger)) continue;
      for (ptrdiff_t n = 0; n < LANES<T> && i + n < queries; ++n)
        if (larger[n]) search(start, keys, i + n, weights + i + n);
    }
  }

  void write(const Look& look, ptrdiff_t head, ptrdiff_t start, ptrdiff_t queries) const {
    const Matrix<T> to = matrix_of<T>(look.best, head);
    const Matrix<int32_t> to_keys = matrix_of<int32_t>(look.best_keys, head);
    for (ptrdiff_t i = 0; i < queries; ++i)
      for (ptrdiff_t n = 0; n < count_; ++n) {
        const bool found = keys_[i * count_ + n] >= 0;
        const_cast<T&>(*to.from(start + i, n).data) = found ? weights_[i * count_ + n] : T(0);
        const_cast<int32_t&>(*to_keys.from(start + i, n).data) = keys_[i * count_ + n];
      }
  }

 private:
  void search(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t query, const T* weights) {
    T* mine = weights_ + query * count_;
    int32_t* its_keys = keys_ + query * count_;
    for (ptrdiff_t j = 0; j < keys; ++j) {
      const T weight = weights[j * QUERIES];
      if (!(weight > mine[count_ - 1])) continue;
      if (__builtin_signbit(weight) && !Cells<T>(*call_, head_).sees(first_ + query, start + j)) continue;
      ptrdiff_t n = count_ - 1;
      for (; n > 0 && weight > mine[n - 1]; --n) mine[n] = mine[n - 1], its_keys[n] = its_keys[n - 1];
      mine[n] = weight == 0 ? T(0) : weight, its_keys[n] = int32_t(start + j);
    }
    limits_[query] = mine[count_ - 1];
  }

  ptrdiff_t count_;
  T* weights_;
  int32_t* keys_;
  T* limits_;
  const Attention* call_ = nullptr;
  ptrdiff_t head_ = 0, first_ = 0;
};

template <class T> class Looker {
 public:
  Looker(const Look& look, Scratch& scratch)
      : look_(look),
        call_(look.call),
        scores_(look.call, scratch),
        shares_(scratch),
        largest_(look, scratch),
        tile_(scratch.take<T>((holds_rows(look) ? round_up(look.call.keys, KEYS) : KEYS) * QUERIES)),
        known_(scratch.take<T>(holds_rows(look) ? (look.call.keys + PORTION) * QUERIES / PORTION : 0)),
        room_(scratch.take<T>(KEYS * QUERIES)),
        sums_(scratch.take<double>(3 * QUERIES)),
        received_(scratch.take<double>(look.sight == Sight::received ? keys_of_task(look.call) : 0)),
        cells_(scratch.take<double>(look.sight == Sight::pooled ? look.col_cells * QUERIES : 0)) {}

  // Keys that one task of `received` is for: as many as keep it well below a tenth of a second.
  static ptrdiff_t keys_of_task(const Attention& call) {
    const ptrdiff_t work = larger<ptrdiff_t>(1, call.queries * (call.features + 16));
    return KEYS * smaller<ptrdiff_t>(16, larger<ptrdiff_t>(1, (ptrdiff_t(1) << 30) / work / KEYS));
  }

  void sums(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    take(head, start, count);
    add_up();
    shares_.write(look_, head_, start_, count_);
  }

  void tile(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    take(head, start, count);
    if (look_.shares && holds_rows(look_)) return rows_of_weights();
    if (look_.shares) find_sums();
    for (ptrdiff_t c = 0; c < look_.columns; c += KEYS) {
      const ptrdiff_t columns = smaller<ptrdiff_t>(KEYS, look_.columns - c);
      scores_at(look_.column + c, columns);
      if (look_.shares) shares_.weigh(columns, scores_.lanes(), tile_);
      write(tile_, c, columns);
    }
  }

  // Entropy, distance and the largest weights in one pass.
  void rows(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    take(head, start, count);
    find_sums();
    for (int i = 0; i < 3 * QUERIES; ++i) sums_[i] = 0;
    if (look_.best) largest_.begin(call_, head, start);
    const ptrdiff_t offset = look_.offset ? matrix_of<int32_t>(look_.offset, head).data[0] : 0;
    in_seen_blocks(scores_.begin(), scores_.end(), [&](ptrdiff_t j, ptrdiff_t keys) {
      scores_.of(j, keys, tile_);
      shares_.hold(keys, scores_.lanes(), tile_);
      for (ptrdiff_t p = 0; p < keys; p += PORTION)
        add_to_rows(j + p - start - offset, smaller(PORTION, keys - p), tile_ + p * QUERIES);
      if (look_.best) largest_.add(j, keys, count_, tile_);
    });
    const double *mass = sums_, *entropy = sums_ + QUERIES, *distance = entropy + QUERIES;
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (look_.entropy) row_of(look_.entropy, i) = entropy[i];
      if (look_.distance) row_of(look_.distance, i) = distance[i] / (mass[i] == 0 ? 1 : mass[i]);
    }
    if (look_.best) largest_.write(look_, head, start, count);
  }

  // What the keys from `first` on, those of one task, get from all queries.
  void received(ptrdiff_t head, ptrdiff_t first) {
    const ptrdiff_t end = smaller(first + keys_of_task(call_), call_.keys);
    for (ptrdiff_t j = first; j < end; ++j) received_[j - first] = 0;
    for (ptrdiff_t start = 0; start < call_.queries; start += QUERIES) {
      take(head, start, smaller<ptrdiff_t>(QUERIES, call_.queries - start));
      shares_.read(look_, head_, start_, count_);
      shares_.finish();
      const ptrdiff_t begin = larger(first, scores_.begin() / KEYS * KEYS);
      in_seen_blocks(begin, smaller(end, scores_.end()), [&](ptrdiff_t j, ptrdiff_t keys) {
        scores_.of(j, keys, tile_);
        shares_.weigh(keys, scores_.lanes(), tile_);
        add_received(keys, received_ + j - first);
      });
    }
    double* to = const_cast<double*>(matrix_of<double>(look_.received, head).data);
    for (ptrdiff_t j = first; j < end; ++j) to[j * look_.received.row] = received_[j - first];
  }

  // The largest or the sum of the weights of each cell of the overview, for the strip of rows that one task is for, and
  // the sums of these rows. One pass is enough: with the sums go, for each query and cell, its largest score or the sum
  // of its exponentials, which shrinks as theirs does.
  void pooled(ptrdiff_t head, ptrdiff_t strip) {
    const int32_t first = look_.strips[strip], end = look_.strips[strip + 1];
    take(head, look_.row_edges[first], look_.row_edges[end] - look_.row_edges[first]);
    shares_.begin(call_, head);
    for (ptrdiff_t n = 0; n < look_.col_cells * QUERIES; ++n) cells_[n] = look_.mean ? 0 : -INFINITE<double>;
    ptrdiff_t cell = 0;
    in_seen_blocks(scores_.begin(), scores_.end(), [&](ptrdiff_t start, ptrdiff_t keys) {
      scores_.of(start, keys, tile_);
      for (ptrdiff_t p = 0; p < keys; p += PORTION) {
        T* portion = tile_ + p * QUERIES;
        const ptrdiff_t from = start + p, to = from + smaller(PORTION, keys - p);
        while (look_.col_edges[cell + 1] <= from) ++cell;
        if (!look_.mean) pool(cell, from, to, portion);
        shares_.add(to - from, scores_.lanes(), portion);
        if (look_.mean) {
          shrink(cell + 1);
          pool(cell, from, to, portion);
        }
      }
    });
    shares_.write(look_, head_, start_, count_);
    shares_.finish();
    for (ptrdiff_t c = 0; c < look_.col_cells; ++c) {
      weights_of(cells_ + c * QUERIES);
      for (int32_t r = first; r < end; ++r)
        const_cast<double&>(*matrix_of<double>(look_.pooled, head).from(r, c).data) = joined(r);
    }
  }

 private:
  // Whether the scores of all keys of a block of queries are kept: then there need be no second product.
  static bool holds_rows(const Look& look) {
    return look.sight == Sight::tile && look.shares && look.every_column && !look.highest &&
           look.call.keys * QUERIES * ptrdiff_t(sizeof(T)) <= NEAR;
  }

  void take(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    head_ = head, start_ = start, count_ = count;
    scores_.take_queries(head, start, count);
  }

  double& row_of(const Operand& x, ptrdiff_t i) const {
    return const_cast<double&>(matrix_of<double>(x, head_).data[(start_ + i) * x.row]);
  }

  // The same, without those that the mask hides from all queries of the block.
  template <class F> void in_seen_blocks(ptrdiff_t begin, ptrdiff_t end, F f) {
    in_blocks(begin, end, [&](ptrdiff_t j, ptrdiff_t keys) { if (scores_.sees_any_of(j, keys)) f(j, keys); });
  }

  void add_up() {
    shares_.begin(call_, head_);
    in_seen_blocks(scores_.begin(), scores_.end(), [&](ptrdiff_t j, ptrdiff_t keys) {
      scores_.of(j, keys, tile_);
      shares_.add(keys, scores_.lanes(), tile_);
    });
  }

  void find_sums() {
    if (look_.highest) shares_.read(look_, head_, start_, count_);
    else add_up();
    shares_.finish();
  }

  // All weights of a few rows: their exponentials are kept, with the largest score that each portion knew of.
  void rows_of_weights() {
    shares_.begin(call_, head_);
    const ptrdiff_t end = larger(scores_.begin(), scores_.end());
    in_blocks(scores_.begin(), end, [&](ptrdiff_t start, ptrdiff_t keys) {
      scores_.of(start, keys, tile_ + start * QUERIES);
      for (ptrdiff_t j = start; j < start + keys; j += PORTION) {
        shares_.add(smaller(PORTION, start + keys - j), scores_.lanes(), tile_ + j * QUERIES);
        for (int i = 0; i < QUERIES; ++i) known_[j / PORTION * QUERIES + i] = shares_.highest()[i];
      }
    });
    shares_.finish();
    const ptrdiff_t begin = scores_.begin() / KEYS * KEYS;
    for (ptrdiff_t c = 0; c < call_.keys; c += KEYS) {
      const ptrdiff_t columns = smaller<ptrdiff_t>(KEYS, call_.keys - c);
      for (ptrdiff_t j = c; j < c + columns; j += PORTION)
        share_out(j, smaller(PORTION, c + columns - j), j < begin ? 0 : smaller(PORTION, end - j));
      write(tile_ + c * QUERIES, c, columns);
    }
  }

  // Exponentials of a portion become weights; behind the first `seen` keys none is seen.
  void share_out(ptrdiff_t start, ptrdiff_t keys, ptrdiff_t seen) {
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      const V<T> share = load<T>(shares_.share() + i);
      T* at = tile_ + start * QUERIES + i;
      ptrdiff_t j = 0;
      if (seen > 0) {
        const V<T> known = load<T>(known_ + start / PORTION * QUERIES + i);
        const V<T> times = exp<T>(known - load<T>(shares_.shift() + i)) * share;
        for (; j < smaller(keys, seen); ++j) store<T>(at + j * QUERIES, load<T>(at + j * QUERIES) * times);
      }
      for (; j < keys; ++j) store<T>(at + j * QUERIES, V<T>{} * share);  // NaN where the row is
    }
  }

  // The scores of some keys, those that follow each other at once.
  void scores_at(const int32_t* column, ptrdiff_t columns) {
    for (ptrdiff_t c = 0, run; c < columns; c += run) {
      for (run = 1; c + run < columns && column[c + run] == column[c] + run;) ++run;
      T* to = tile_ + c * QUERIES;
      if (column[c] + run > scores_.begin() && column[c] < scores_.end()) {
        scores_.of(column[c], run, to);
      } else {
        for (ptrdiff_t n = 0; n < run * QUERIES; ++n) to[n] = -INFINITE<T>;
      }
    }
  }

  void write(const T* from, ptrdiff_t column, ptrdiff_t columns) {
    Operand to = look_.tile;
    to.data += column * to.column * ptrdiff_t(is_short(to.kind) ? 2 : sizeof(T));
    T* out = reinterpret_cast<T*>(to.data) + to.offsets[head_] + start_ * to.row;
    if (!is_streamed(out, columns)) return write_transposed<T>(from, count_, columns, to, head_, start_, room_);
    for_each_column<T>(from, QUERIES, columns, count_, [=](ptrdiff_t i, ptrdiff_t j, V<T> x) __attribute__((always_inline)) {
      store_streaming<T>(out + i * to.row + j, x);
    });
    finish_streaming();
  }

  // Whether a block is part of a tile too large to go through the caches, and consists of whole lines of theirs.
  bool is_streamed(const T* out, ptrdiff_t columns) const {
    const Operand& to = look_.tile;
    return STREAMS && call_.heads * call_.queries * look_.columns * ptrdiff_t(sizeof(T)) >= MUCH &&
           !is_short(to.kind) && to.column == 1 && to.row % LANES<T> == 0 && columns % LANES<T> == 0 &&
           reinterpret_cast<uintptr_t>(out) % BYTES == 0;
  }

  // Scores become weights; `away` is where the first key stands beside the first query.
  void add_to_rows(ptrdiff_t away, ptrdiff_t keys, T* scores) {
    V<Int<T>> lane;
    for (int i = 0; i < LANES<T>; ++i) lane[i] = i;
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      const V<T> shift = load<T>(shares_.shift() + i), share = load<T>(shares_.share() + i);
      const V<T> log_total = load<T>(shares_.log_total() + i);
      V<T> mass = {}, entropy = {}, distance = {};
      for (ptrdiff_t j = 0; j < keys; ++j) {
        T* at = scores + j * QUERIES + i;
        const V<T> score = load<T>(at), weight = exp<T>(score - shift) * share;
        const V<Int<T>> far = Int<T>(away + j - i) - lane;
        mass += weight;
        entropy += weight * at_most<T>(log_total - (score - shift), splat(LARGEST<T>));  // 0 times infinity is NaN
        distance += weight * __builtin_convertvector(far < 0 ? -far : far, V<T>);
        store<T>(at, score == -INFINITE<T> ? splat(T(-0.0)) : weight);
      }
      T found[3][LANES<T>];
      store<T>(found[0], mass), store<T>(found[1], entropy), store<T>(found[2], distance);
      for (int n = 0; n < 3; ++n)
        for (int l = 0; l < LANES<T>; ++l) sums_[n * QUERIES + i + l] += double(found[n][l]);
    }
  }

  // Add up the weights of each key: a vector for each, which then change rows and columns.
  void add_received(ptrdiff_t keys, double* to) {
    constexpr int N = LANES<T>;
    for (ptrdiff_t j = 0; j < keys; j += N) {
      V<T> of_key[N];
      for (int n = 0; n < N; ++n) {
        of_key[n] = V<T>{};
        const T* weights = tile_ + (j + n) * QUERIES;
        for (ptrdiff_t i = 0; j + n < keys && i < count_; i += N) {
          V<T> some = load<T>(weights + i);
          for (ptrdiff_t l = count_ - i; l < N; ++l) some[l] = 0;  // lanes that are no queries
          of_key[n] += some;
        }
      }
      transpose<N>(of_key);
      V<T> all = {};
#pragma GCC unroll 32
      for (int n = 0; n < N; ++n) all += of_key[n];
      for (ptrdiff_t n = 0; n < N && j + n < keys; ++n) to[j + n] += double(all[n]);
    }
  }

  // Take keys from <= j < to, a portion, into the cells that they fall into, of which `cell` is the first.
  void pool(ptrdiff_t cell, ptrdiff_t from, ptrdiff_t to, const T* portion) {
    for (ptrdiff_t j = from; j < to; ++cell) {
      const ptrdiff_t end = smaller<ptrdiff_t>(to, look_.col_edges[cell + 1]);
      double* into = cells_ + cell * QUERIES;
      const T* of_key = portion + (j - from) * QUERIES;
      look_.mean ? pool<true>(end - j, of_key, into) : pool<false>(end - j, of_key, into);
      j = end;
    }
  }

  template <bool mean> void pool(ptrdiff_t keys, const T* scores, double* into) {
    T found[QUERIES];
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      V<T> all = load<T>(scores + i);
      for (ptrdiff_t j = 1; j < keys; ++j) {
        const V<T> one = load<T>(scores + j * QUERIES + i);
        all = mean ? all + one : at_least<T>(one, all);
      }
      store<T>(found + i, all);
    }
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i)
      into[i] = mean ? into[i] + double(found[i]) : double(found[i]) > into[i] ? double(found[i]) : into[i];
  }

  void shrink(ptrdiff_t cells) {
    const T* factor = shares_.factor();
    bool moved = false;
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) moved |= factor[i] != 1;
    for (ptrdiff_t c = 0; moved && c < cells; ++c)
      for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) cells_[c * QUERIES + i] *= double(factor[i]);
  }

  // The largest scores or sums of exponentials of a cell as weights, in room_.
  void weights_of(const double* cell) {
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) room_[i] = T(cell[i]);
    if (!look_.mean) return shares_.weigh(1, scores_.lanes(), room_);
    for (ptrdiff_t i = 0; i < scores_.lanes(); ++i) room_[i] *= shares_.share()[i];
  }

  // The rows of one cell, joined; NaN stays.
  double joined(int32_t row_cell) const {
    double all = 0;
    for (ptrdiff_t i = look_.row_edges[row_cell] - start_; i < look_.row_edges[row_cell + 1] - start_; ++i) {
      const double one = double(room_[i]);
      all = look_.mean ? all + one : one > all || one != one ? one : all;
    }
    return all;
  }

  const Look& look_;
  const Attention& call_;
  Scores<T> scores_;
  Shares<T> shares_;
  Largest<T> largest_;
  T *tile_, *known_, *room_;
  double *sums_, *received_, *cells_;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0;
};

template <class T> void at_task(const Look& look, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Looker<T> looker(look, scratch);
  const ptrdiff_t parts = look_tasks(look) / larger<ptrdiff_t>(1, look.call.heads);
  const ptrdiff_t head = task / parts, part = task % parts;
  const ptrdiff_t start = (parts - 1 - part) * QUERIES;  // the last queries first: causal, they see most
  const ptrdiff_t count = smaller<ptrdiff_t>(QUERIES, look.call.queries - start);
  switch (look.sight) {
    case Sight::sums: return looker.sums(head, start, count);
    case Sight::tile: return looker.tile(head, start, count);
    case Sight::rows: return looker.rows(head, start, count);
    case Sight::received: return looker.received(head, part * Looker<T>::keys_of_task(look.call));
    case Sight::pooled: return looker.pooled(head, parts - 1 - part);
  }
}

template <class T> size_t needed(const Look& look) {
  Scratch scratch(nullptr);
  Looker<T> looker(look, scratch);
  return scratch.used();
}

}  // namespace

ptrdiff_t look_tasks(const Look& look) {
  const Attention& call = look.call;
  if (look.sight == Sight::pooled) return call.heads * look.strip_count;
  if (look.sight == Sight::received) return call.heads * blocks_of(call.keys, Looker<float>::keys_of_task(call));
  return call.heads * blocks_of(call.queries, QUERIES);
}

size_t look_scratch(const Look& look) {
  return look.call.q.kind == Kind::float64 ? needed<double>(look) : needed<float>(look);
}

void look(const Look& look, ptrdiff_t task, void* scratch) {
  look.call.q.kind == Kind::float64 ? at_task<double>(look, task, scratch) : at_task<float>(look, task, scratch);
}

}  // namespace regard::REGARD_ISA
