// Attention: the context of a block of queries is gathered as blocks of keys come in.
#include "dropout.h"
#include "rows.h"

namespace regard::REGARD_ISA {
namespace {

// A weight of exactly 0 times NaN is NaN, so that a hidden NaN would poison every row. Where values are not all finite,
// the finite ones are summed, and which infinities and NaN a query does see is put in at the end.
enum Mark : uint8_t { plus = 1, minus = 2, not_a_number = 4 };

template <class T> class Block {
 public:
  Block(const Attention& call, Scratch& scratch)
      : call_(call),
        scores_(call, scratch),
        rows_(scratch),
        tile_(scratch.take<T>(KEYS * QUERIES)),
        context_(scratch.take<T>(call.value_features * QUERIES)),
        values_(scratch.take<T>(larger<ptrdiff_t>(KEYS, QUERIES) * call.value_features)),
        marks_(scratch.take<uint8_t>(call.value_features * QUERIES)) {}

  void attend(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    head_ = head, start_ = start, count_ = count, marked_ = false;
    scores_.take_queries(head, start, count);
    rows_.begin(call_, head);
    const ptrdiff_t all = call_.value_features * QUERIES;
    for (ptrdiff_t i = 0; i < all; ++i) context_[i] = 0;
    for (ptrdiff_t j = scores_.begin(); j < scores_.end(); j += KEYS) add(j, smaller<ptrdiff_t>(KEYS, scores_.end() - j));
    finish();
  }

 private:
  void add(ptrdiff_t start, ptrdiff_t count) {
    if (!scores_.sees_any_of(start, count)) return;
    scores_.of(start, count, tile_);
    scores_.in_seen_parts(start, count, [&](ptrdiff_t lane, ptrdiff_t lanes, ptrdiff_t from, ptrdiff_t to) {
      rows_.go_on(to - from, lane, lanes, tile_ + from * QUERIES);
    });
    if (call_.dropout) drop<T>(call_, head_, start_, scores_.lanes(), start, count, tile_);
    if (!call_.v) return;
    Matrix<T> values = rows_of<T>(call_.v, head_, start, count, call_.value_features, values_);
    if (!is_finite(values, count, call_.value_features)) values = finite_part(values, start, count);
    scores_.in_seen_parts(start, count, [&](ptrdiff_t lane, ptrdiff_t lanes, ptrdiff_t from, ptrdiff_t to) {
      product<T, Into::rescale>(values.from(from).transposed(), call_.value_features, to - from,
                                tile_ + from * QUERIES + lane, QUERIES, context_ + lane, QUERIES, lanes,
                                rows_.factor + lane);
    });
  }

  Matrix<T> finite_part(Matrix<T> values, ptrdiff_t start, ptrdiff_t count) {
    const ptrdiff_t width = call_.value_features;
    if (!marked_)
      for (ptrdiff_t i = 0; i < width * QUERIES; ++i) marks_[i] = 0;
    marked_ = true;
    const Cells<T> cells(call_, head_);
    for (ptrdiff_t j = 0; j < count; ++j)
      for (ptrdiff_t f = 0; f < width; ++f) {
        const T x = values.data[j * values.row + f * values.column];
        const bool finite = x - x == 0;
        values_[j * width + f] = finite ? x : T(0);
        if (finite) continue;
        const uint8_t mark = x != x ? not_a_number : x > 0 ? plus : minus;
        for (ptrdiff_t i = 0; i < count_; ++i)
          if (cells.sees(start_ + i, start + j)) marks_[f * QUERIES + i] |= mark;
      }
    return {values_, width, 1};
  }

  void finish() {
    const ptrdiff_t width = call_.v ? call_.value_features : 0;
    for (ptrdiff_t i = 0; i < scores_.lanes(); i += LANES<T>) {
      V<T> total;
      for (ptrdiff_t n = 0; n < LANES<T>; ++n) total[n] = T(rows_.total[i + n]);
      const V<T> share = total == 0 ? splat(T(1)) : total;
      for (ptrdiff_t f = 0; f < width; ++f)
        store<T>(context_ + f * QUERIES + i, load<T>(context_ + f * QUERIES + i) / share);
    }
    for (ptrdiff_t n = 0; marked_ && n < width * QUERIES; ++n) {
      if (!marks_[n]) continue;
      const bool unclear = context_[n] != context_[n] || (marks_[n] != plus && marks_[n] != minus);
      context_[n] = unclear ? INFINITE<T> - INFINITE<T> : marks_[n] == plus ? INFINITE<T> : -INFINITE<T>;
    }
    if (width) write_transposed<T>(context_, count_, width, call_.output, head_, start_, values_);
    if (!call_.highest) return;
    for (ptrdiff_t i = 0; i < count_; ++i) {
      const_cast<T&>(matrix_of<T>(call_.highest, head_).data[start_ + i]) = rows_.highest[i];
      const_cast<double&>(matrix_of<double>(call_.total, head_).data[start_ + i]) = rows_.total[i];
    }
  }

  const Attention& call_;
  Scores<T> scores_;
  Rows<T> rows_;
  T *tile_, *context_, *values_;
  uint8_t* marks_;
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0;
  bool marked_ = false;
};

template <class T> void attend(const Attention& call, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Block<T> block(call, scratch);
  const ptrdiff_t blocks = blocks_of(call.queries, QUERIES);
  const ptrdiff_t start = (blocks - 1 - task % blocks) * QUERIES;  // the last queries first: causal, they see most
  block.attend(task / blocks, start, smaller<ptrdiff_t>(QUERIES, call.queries - start));
}

template <class T> size_t needed(const Attention& call) {
  Scratch scratch(nullptr);
  Block<T> block(call, scratch);
  return scratch.used();
}

}  // namespace

ptrdiff_t forward_tasks(const Attention& call) { return call.heads * blocks_of(call.queries, QUERIES); }

size_t forward_scratch(const Attention& call) {
  return call.q.kind == Kind::float64 ? needed<double>(call) : needed<float>(call);
}

void widened(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, float* to) {
  rows_of<float>(x, head, start, count, width, to);
}

void forward(const Attention& call, ptrdiff_t task, void* scratch) {
  call.q.kind == Kind::float64 ? attend<double>(call, task, scratch) : attend<float>(call, task, scratch);
}

}  // namespace regard::REGARD_ISA
