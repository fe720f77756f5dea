// What Python sees: arrays in, arrays filled. Checks that what it is given fits together, so that no mistake above can
// read or write where it should not; what a person may give, and what it means, is said in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays.h"
#include "dispatch.h"
#include "room.h"

using namespace nb::literals;

namespace regard {
namespace {

// Turns arrays into operands, with the place of each head worked out.
class Operands {
 public:
  explicit Operands(Shape heads) : heads_(std::move(heads)) {
    for (const ptrdiff_t n : heads_) count_ *= n;
  }
  Operands(Operands&&) = default;
  ~Operands() {
    for (const auto& [room, bytes] : rooms_)
      if (room) give_room(room, bytes);
  }

  ptrdiff_t count() const { return count_; }
  const Shape& heads() const { return heads_; }
  size_t room() const {  // bytes
    size_t all = 0;
    for (const auto& [room, bytes] : rooms_) all += bytes;
    return all;
  }
  float* room(size_t numbers) {
    auto& [room, bytes] = rooms_.emplace_back(nullptr, numbers * sizeof(float));
    room = take_room(bytes);
    if (!room) throw std::bad_alloc();
    return static_cast<float*>(room);
  }

  // `x` holds for each head a matrix, rows x columns, or with trailing = 1 a row. An axis of length 1 repeats, as do
  // those that are missing; fewer heads than there are (the last of the leading axes) are shared by as many in turn.
  template <class X>
  Operand of(const char* name, const std::optional<X>& x, Kind kind, int trailing, ptrdiff_t rows, ptrdiff_t columns) {
    Operand found;
    if (!x) return found;
    check_kind(name, *x, kind);
    const int own = int(x->ndim()) - trailing, all = int(heads_.size());
    if (own < 0 || own > all) refuse(name, "has the wrong number of axes");
    const auto stride_of = [&](int axis, ptrdiff_t wanted) -> ptrdiff_t {
      const auto size = ptrdiff_t(x->shape(size_t(axis)));
      if (size != wanted && size != 1) refuse(name, "has an axis of the wrong length");
      return size == 1 ? 0 : ptrdiff_t(x->stride(size_t(axis)));
    };
    found.kind = kind;
    if (trailing > 0) found.row = stride_of(own, rows);
    if (trailing > 1) found.column = stride_of(own + 1, columns);

    Shape shape, strides;
    for (int axis = 0; axis < own; ++axis) {
      shape.push_back(ptrdiff_t(x->shape(size_t(axis))));
      strides.push_back(ptrdiff_t(x->stride(size_t(axis))));
    }
    found.offsets = places(name, shape, strides);
    kept_.push_back(Array(*x));
    static char nothing;  // an empty array may have no address
    found.data = const_cast<char*>(static_cast<const char*>(static_cast<const void*>(x->data())));
    if (!found.data) found.data = &nothing;
    return found;
  }

  // For each head where it begins in something with these leading axes, which repeat as those of an array do.
  const ptrdiff_t* places(const char* name, const Shape& shape, const Shape& strides) {
    std::vector<ptrdiff_t>& offsets = places_.emplace_back(size_t(count_), 0);
    const size_t missing = heads_.size() - shape.size();
    ptrdiff_t inner = 1;  // how many heads one step along the axis passes
    for (size_t axis = heads_.size(); axis-- > missing; inner *= heads_[axis]) {
      const ptrdiff_t size = shape[axis - missing], stride = strides[axis - missing], length = heads_[axis];
      if (size == 1 || length == 0) continue;
      const bool shared = axis + 1 == heads_.size() && size > 0 && length % size == 0;
      if (size != length && !shared) refuse(name, "has a leading axis of the wrong length");
      for (ptrdiff_t head = 0; head < count_; ++head)
        offsets[size_t(head)] += head / inner % length / (length / size) * stride;
    }
    return offsets.data();
  }

 private:
  Shape heads_;
  ptrdiff_t count_ = 1;
  std::vector<std::vector<ptrdiff_t>> places_;
  std::vector<std::pair<void*, size_t>> rooms_;
  std::vector<Array> kept_;  // what the operands point into stays while they are there
};

// The strides of what lies one behind the other, each piece of `size` numbers.
Shape one_behind_the_other(const Shape& shape, ptrdiff_t size) {
  Shape strides(shape.size(), size);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

// Complain unless each has a number for each row, one behind the other.
void side_by_side(std::initializer_list<const Operand*> of_rows, ptrdiff_t rows) {
  for (const Operand* x : of_rows)
    if (*x && rows > 1 && x->row != 1) refuse("what is known of each row", "must lie side by side");
}

// How many consecutive heads have the same keys and values.
ptrdiff_t sharing(const Attention& a) {
  const auto same = [&](ptrdiff_t one, ptrdiff_t other) {
    return a.k.offsets[one] == a.k.offsets[other] && (!a.v || a.v.offsets[one] == a.v.offsets[other]);
  };
  ptrdiff_t count = 1;
  while (count < a.heads && same(0, count)) ++count;
  if (a.heads % count != 0) return 1;
  for (ptrdiff_t head = 0; head < a.heads; ++head)
    if (!same(head, head / count * count)) return 1;
  return count;
}

// Keys or values that are short floats as float32: every block of queries reads them, so they are widened once.
Operand widened(Operands& operands, const char* name, const Array& x, Kind kind, ptrdiff_t rows, ptrdiff_t columns) {
  constexpr ptrdiff_t SOME = 256;  // rows of a task
  Shape own;
  for (size_t axis = 0; axis + 2 < x.ndim(); ++axis) own.push_back(ptrdiff_t(x.shape(axis)));
  Operands single(own);
  const size_t numbers = size_t(single.count() * rows * columns);
  const Operand from = single.of(name, Some(x), kind, 2, rows, columns);
  float* to = operands.room(numbers);
  const ptrdiff_t chunks = blocks_of(rows, SOME);
  const Kernels& isa = kernels();
  run(single.count() * chunks, double(numbers), 0, [&](ptrdiff_t task, void*) {
    const ptrdiff_t head = task / chunks, start = task % chunks * SOME;
    isa.widened(from, head, start, std::min(SOME, rows - start), columns, to + (head * rows + start) * columns);
  });
  const ptrdiff_t* places = operands.places(name, own, one_behind_the_other(own, rows * columns));
  return {reinterpret_cast<char*>(to), places, columns, 1, Kind::float32};
}

// The arguments of a call of attention, and its operands' places.
struct Call {
  Operands operands;
  Attention attention;
};

Call call_of(Shape heads, Kind kind, Array q, Array k, Some v, double scale, double softcap, Some first, Some last,
             Some mask, Some bias, Some diagonal, Some sinks, uint64_t dropout, uint64_t seed, double kept,
             ptrdiff_t first_query, ptrdiff_t all_queries, std::optional<Shape> score_heads) {
  Call call{Operands(std::move(heads)), {}};
  Attention& a = call.attention;
  if (q.ndim() < 2 || k.ndim() < 2 || (v && v->ndim() < 2)) refuse("q, k and v", "need two axes");
  const auto length = [](const Array& x, int from_last) { return ptrdiff_t(x.shape(x.ndim() - size_t(from_last))); };
  a.heads = call.operands.count(), a.queries = length(q, 2), a.keys = length(k, 2), a.features = length(q, 1);
  a.value_features = v ? length(*v, 1) : 0;
  if (a.keys >= (ptrdiff_t(1) << 30) || a.queries >= (ptrdiff_t(1) << 30)) refuse("the text", "is too long");
  const auto of = [&](const char* name, const Some& x, Kind its, int trailing, ptrdiff_t rows, ptrdiff_t columns) {
    return call.operands.of(name, x, its, trailing, rows, columns);
  };
  const Kind wide = computed(kind);
  a.q = of("q", q, kind, 2, a.queries, a.features);
  a.k = of("k", k, kind, 2, a.keys, a.features);
  a.v = of("v", v, kind, 2, a.keys, a.value_features);
  a.first = of("first", first, Kind::int32, 1, a.queries, 0);
  a.last = of("last", last, Kind::int32, 1, a.queries, 0);
  a.mask = of("mask", mask, Kind::boolean, 2, a.queries, a.keys);
  a.bias = of("bias", bias, wide, 2, a.queries, a.keys);
  a.diagonal = of("diagonal", diagonal, wide, 1, a.queries + a.keys - 1 + QUERIES, 0);
  if (a.diagonal && a.diagonal.row != 1) refuse("diagonal", "must have its numbers side by side");
  a.sinks = of("sinks", sinks, wide, 0, 0, 0);
  a.sharing = sharing(a);
  if ((kind == Kind::float16 || kind == Kind::bfloat16) && !is_few(a)) {
    a.k = widened(call.operands, "k", k, kind, a.keys, a.features);
    if (v) a.v = widened(call.operands, "v", *v, kind, a.keys, a.value_features);
  }
  a.scale = scale, a.softcap = softcap, a.dropout = dropout, a.seed = seed, a.kept = kept;
  const Shape lead = score_heads ? *score_heads : call.operands.heads();
  if (lead.size() > call.operands.heads().size()) refuse("score_heads", "has too many axes");
  a.numbers = call.operands.places("score_heads", lead, one_behind_the_other(lead, 1));
  a.first_query = first_query, a.all_queries = std::max(all_queries, a.queries);
  return call;
}

void forward(Call& call, std::optional<Writable> output, std::optional<Writable> highest,
             std::optional<Writable> total) {
  Attention& a = call.attention;
  const Kind wide = computed(a.q.kind);
  const bool rounded = output && output->dtype() == nb::dtype<uint16_t>();
  a.output = call.operands.of("output", output, rounded ? a.q.kind : wide, 2, a.queries, a.value_features);
  a.highest = call.operands.of("highest", highest, wide, 1, a.queries, 0);
  a.total = call.operands.of("total", total, Kind::float64, 1, a.queries, 0);
  side_by_side({&a.highest, &a.total}, a.heads ? a.queries : 0);
  if (bool(a.output) != bool(a.v) || bool(a.highest) != bool(a.total)) refuse("the output", "does not fit");
  const Kernels& isa = kernels();
  const double cost = double(a.heads) * double(a.queries) * double(a.keys) * double(a.features + a.value_features + 20);
  if (!is_few(a)) {
    run(isa.forward_tasks(a), cost, isa.forward_scratch(a), [&](ptrdiff_t task, void* room) { isa.forward(a, task, room); });
    return;
  }
  const std::unique_ptr<char[]> partials(new char[isa.few_partials(a)]);
  a.partials = partials.get();
  run(a.heads / a.sharing * few_chunks(a), cost, isa.few_scratch(a), [&](ptrdiff_t task, void* room) { isa.few(a, task, room); });
  run(a.heads * a.queries, double(a.heads * a.queries) * double(few_chunks(a) * a.value_features), 0, [&](ptrdiff_t task, void*) { isa.few_together(a, task); });
  a.partials = nullptr;
}

// Bytes beside the inputs and the output that the forward pass takes, on all threads.
size_t forward_memory(const Call& call) {
  const Attention& a = call.attention;
  const Kernels& isa = kernels();
  const size_t threads = size_t(num_threads());
  if (is_few(a)) return threads * isa.few_scratch(a) + isa.few_partials(a);
  return threads * isa.forward_scratch(a) + call.operands.room();
}

// The gradients; false where something that was read is not finite, and the gradients hold nothing.
bool backward(const Call& call, Array d_output, Array output, Array highest, Array total, Writable row_sums,
              Writable d_q, Writable d_k, Writable d_v, std::optional<Writable> d_bias,
              std::optional<Writable> d_of_keys, std::optional<Writable> d_of_queries,
              std::optional<Writable> d_diagonal) {
  Operands operands(call.operands.heads());  // the call itself may be pulled back by several threads at once
  bool not_finite = false;
  Backward b{};
  b.call = call.attention;
  Attention& a = b.call;
  const Kind wide = computed(a.q.kind);
  const auto given = [&](const char* name, const Array& x, Kind kind, int trailing, ptrdiff_t columns) {
    return operands.of(name, Some(x), kind, trailing, a.queries, columns);
  };
  const auto wanted = [&](const char* name, const std::optional<Writable>& x, int trailing, ptrdiff_t rows,
                          ptrdiff_t columns) {
    if (x && ptrdiff_t(x->size()) != a.heads * rows * columns) refuse(name, "needs numbers of its own for each head");
    return operands.of(name, x, wide, trailing, rows, columns);
  };
  if (!a.v) refuse("v", "is not there");
  const bool is_short = d_output.dtype() == nb::dtype<uint16_t>();
  b.d_output = given("d_output", d_output, is_short ? a.q.kind : wide, 2, a.value_features);
  a.output = given("output", output, wide, 2, a.value_features);
  a.highest = given("highest", highest, wide, 1, 0);
  a.total = given("total", total, Kind::float64, 1, 0);
  b.row_sums = wanted("row_sums", row_sums, 1, a.queries, 1);
  side_by_side({&a.highest, &a.total, &b.row_sums}, a.heads ? a.queries : 0);
  b.d_q = wanted("d_q", d_q, 2, a.queries, a.features);
  b.d_k = wanted("d_k", d_k, 2, a.keys, a.features);
  b.d_v = wanted("d_v", d_v, 2, a.keys, a.value_features);
  b.d_of_keys = wanted("d_of_keys", d_of_keys, 1, a.keys, 1);
  b.d_of_queries = wanted("d_of_queries", d_of_queries, 1, a.queries, 1);
  b.d_diagonal = wanted("d_diagonal", d_diagonal, 1, a.queries + a.keys - 1, 1);
  b.d_bias = operands.of("d_bias", d_bias, wide, 2, a.queries, a.keys);
  if (b.d_bias && ((b.d_bias.row == 0 && a.queries > 1) || (b.d_bias.column == 0 && a.keys > 1)))
    refuse("d_bias", "must have a number for each query and key");

  b.keys_of_task = keys_of_task(a);
  const auto blocks = size_t(blocks_of(a.queries, QUERIES)), heads = size_t(a.heads);
  const auto chunks = std::max<size_t>(1, size_t(blocks_of(a.keys, b.keys_of_task)));
  std::vector<int32_t> of_queries(heads * blocks), of_keys(heads * chunks), of_diagonal(heads);
  std::vector<int32_t> of_bias(b.d_bias ? heads * chunks * blocks : 0), owner(heads), rank(heads);
  std::unordered_map<ptrdiff_t, std::pair<int32_t, int32_t>> found;
  for (size_t head = 0; b.d_bias && head < heads; ++head) {
    auto& [first, before] = found.try_emplace(b.d_bias.offsets[head], int32_t(head), 0).first->second;
    owner[head] = first, rank[head] = before++;
  }
  b.turn_of_queries = of_queries.data(), b.turn_of_keys = of_keys.data(), b.turn_of_diagonal = of_diagonal.data();
  b.turn_of_bias = of_bias.data(), b.owner = owner.data(), b.rank = rank.data(), b.not_finite = &not_finite;
  const Kernels& isa = kernels();
  const size_t scratch = isa.backward_scratch(b);
  const double rows = double(a.heads) * double(a.queries), width = double(a.features + a.value_features);
  const auto with = [&](auto f) { return [&b, f](ptrdiff_t task, void* room) { f(b, task, room); }; };
  run(ptrdiff_t(heads * blocks), rows * width, scratch, with(isa.backward_rows));
  run(isa.backward_tasks(b), rows * double(a.keys) * (3 * width + 20), scratch, with(isa.backward));
  return !not_finite;
}

// Numbers from Python, in a row: which keys, or where cells begin and end.
using Numbers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Look look_of(Sight sight, Call& call, const Some& highest, const Some& total) {
  Look look;
  look.sight = sight, look.call = call.attention;
  const ptrdiff_t queries = look.call.queries;
  if (highest.has_value() != total.has_value()) refuse("highest and total", "belong together");
  look.highest = call.operands.of("highest", highest, computed(look.call.q.kind), 1, queries, 0);
  look.total = call.operands.of("total", total, Kind::float64, 1, queries, 0);
  return look;
}

void look_at(const Look& look) {
  const Kernels& isa = kernels();
  const Attention& a = look.call;
  const double cost = double(a.heads) * double(a.queries) * double(a.keys) * double(a.features + 20);
  run(isa.look_tasks(look), cost, isa.look_scratch(look), [&](ptrdiff_t task, void* room) { isa.look(look, task, room); });
}

void look_sums(Call& call, Writable highest, Writable total) {
  look_at(look_of(Sight::sums, call, Array(highest), Array(total)));
}

// `stage` counts from the scores: 0 scaled, 1 capped, 2 biased and masked, 3 weights.
void look_tile(Call& call, int stage, Numbers keys, Writable tile, Some highest, Some total) {
  Look look = look_of(Sight::tile, call, highest, total);
  const bool rounded = tile.dtype() == nb::dtype<uint16_t>();
  look.shares = stage == 3;
  look.column = keys.data(), look.columns = ptrdiff_t(keys.shape(0));
  look.every_column = look.columns == look.call.keys;
  for (ptrdiff_t c = 0; c < look.columns; ++c) {
    if (look.column[c] < 0 || look.column[c] >= look.call.keys) refuse("keys", "has one that is not there");
    look.every_column &= look.column[c] == c;
  }
  look.tile = call.operands.of("tile", Some(Array(tile)), rounded ? look.call.q.kind : computed(look.call.q.kind), 2,
                               look.call.queries, look.columns);
  if (stage < 1) look.call.softcap = 0;
  if (stage < 2) look.call.bias = look.call.diagonal = look.call.mask = look.call.first = look.call.last = Operand();
  look_at(look);
}

void look_rows(Call& call, Array highest, Array total, Some offset, std::optional<Writable> entropy,
               std::optional<Writable> distance, std::optional<Writable> best, std::optional<Writable> best_keys) {
  Look look = look_of(Sight::rows, call, highest, total);
  const ptrdiff_t queries = look.call.queries;
  look.offset = call.operands.of("offset", offset, Kind::int32, 0, 0, 0);
  look.entropy = call.operands.of("entropy", entropy, Kind::float64, 1, queries, 0);
  look.distance = call.operands.of("distance", distance, Kind::float64, 1, queries, 0);
  if (best.has_value() != best_keys.has_value()) refuse("best and best_keys", "belong together");
  if (best && best->ndim() > 0) look.top = ptrdiff_t(best->shape(best->ndim() - 1));
  if (best && look.top < 1) refuse("best", "has no room");
  look.best = call.operands.of("best", best, computed(look.call.q.kind), 2, queries, look.top);
  look.best_keys = call.operands.of("best_keys", best_keys, Kind::int32, 2, queries, look.top);
  look_at(look);
}

void look_received(Call& call, Array highest, Array total, Writable received) {
  Look look = look_of(Sight::received, call, highest, total);
  look.received = call.operands.of("received", Some(Array(received)), Kind::float64, 1, look.call.keys, 0);
  look_at(look);
}

void check_edges(const char* name, const Numbers& edges, ptrdiff_t length, ptrdiff_t widest) {
  const size_t count = edges.shape(0);
  if (count < 2 || edges.data()[0] != 0 || edges.data()[count - 1] != length) refuse(name, "do not cover the map");
  for (size_t i = 1; i < count; ++i)
    if (edges.data()[i] <= edges.data()[i - 1] || edges.data()[i] - edges.data()[i - 1] > widest)
      refuse(name, "make a cell that is empty or too wide");
}

void look_pooled(Call& call, Numbers row_edges, Numbers col_edges, bool mean, Writable pooled, Writable highest,
                 Writable total) {
  Look look = look_of(Sight::pooled, call, Array(highest), Array(total));
  check_edges("row_edges", row_edges, look.call.queries, QUERIES);
  check_edges("col_edges", col_edges, look.call.keys, look.call.keys);
  const auto row_cells = ptrdiff_t(row_edges.shape(0)) - 1;
  look.row_edges = row_edges.data(), look.col_edges = col_edges.data();
  look.col_cells = ptrdiff_t(col_edges.shape(0)) - 1, look.mean = mean;
  std::vector<int32_t> strips{0};  // as many cells as are one block of queries
  for (ptrdiff_t cell = 1; cell < row_cells; ++cell)
    if (look.row_edges[cell + 1] - look.row_edges[strips.back()] > QUERIES) strips.push_back(int32_t(cell));
  strips.push_back(int32_t(row_cells));
  look.strips = strips.data(), look.strip_count = ptrdiff_t(strips.size()) - 1;
  look.pooled = call.operands.of("pooled", Some(Array(pooled)), Kind::float64, 2, row_cells, look.col_cells);
  look_at(look);
}

// Fused multiply-adds of float32 a second that all threads together do: the best of a few tries.
double peak() {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    std::vector<double> done(size_t(num_threads()), 0.0);
    const auto start = std::chrono::steady_clock::now();
    run(ptrdiff_t(done.size()), 1e9, 0, [&](ptrdiff_t n, void*) { done[size_t(n)] = kernels().multiply_adds(4'000'000); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / seconds);
  }
  return best;
}

}  // namespace
}  // namespace regard

NB_MODULE(_kernel, m) {
  using namespace regard;
  m.doc() = "Attention, compiled.";
  nb::enum_<Kind>(m, "Kind")
      .value("float32", Kind::float32)
      .value("float64", Kind::float64)
      .value("float16", Kind::float16)
      .value("bfloat16", Kind::bfloat16);
  nb::class_<Call>(m, "Call").def(
      "__init__",
      [](Call* self, Shape heads, Kind kind, Array q, Array k, Some v, double scale, double softcap, Some first,
         Some last, Some mask, Some bias, Some diagonal, Some sinks, uint64_t dropout, uint64_t seed, double kept,
         ptrdiff_t first_query, ptrdiff_t all_queries, std::optional<Shape> score_heads) {
        new (self) Call(call_of(std::move(heads), kind, q, k, v, scale, softcap, first, last, mask, bias, diagonal,
                                sinks, dropout, seed, kept, first_query, all_queries, std::move(score_heads)));
      },
      "heads"_a, "kind"_a, "q"_a, "k"_a, "v"_a.none(), "scale"_a, "softcap"_a = 0.0, "first"_a.none() = nb::none(),
      "last"_a.none() = nb::none(), "mask"_a.none() = nb::none(), "bias"_a.none() = nb::none(),
      "diagonal"_a.none() = nb::none(), "sinks"_a.none() = nb::none(), "dropout"_a = 0, "seed"_a = 0, "kept"_a = 1.0,
      "first_query"_a = 0, "all_queries"_a = 0, "score_heads"_a.none() = nb::none());
  m.def("forward", &forward, "call"_a, "output"_a.none(), "highest"_a.none(), "total"_a.none());
  m.def("backward", &backward, "call"_a, "d_output"_a, "output"_a, "highest"_a, "total"_a, "row_sums"_a, "d_q"_a,
        "d_k"_a, "d_v"_a, "d_bias"_a.none() = nb::none(), "d_of_keys"_a.none() = nb::none(),
        "d_of_queries"_a.none() = nb::none(), "d_diagonal"_a.none() = nb::none());
  m.def("is_few", [](const Call& call) { return is_few(call.attention); }, "call"_a);
  m.def("forward_memory", &forward_memory, "call"_a);
  m.def("look_sums", &look_sums, "call"_a, "highest"_a, "total"_a);
  m.def("look_tile", &look_tile, "call"_a, "stage"_a, "keys"_a, "tile"_a, "highest"_a.none() = nb::none(),
        "total"_a.none() = nb::none());
  m.def("look_rows", &look_rows, "call"_a, "highest"_a, "total"_a, "offset"_a.none() = nb::none(),
        "entropy"_a.none() = nb::none(), "distance"_a.none() = nb::none(), "best"_a.none() = nb::none(),
        "best_keys"_a.none() = nb::none());
  m.def("look_received", &look_received, "call"_a, "highest"_a, "total"_a, "received"_a);
  m.def("look_pooled", &look_pooled, "call"_a, "row_edges"_a, "col_edges"_a, "mean"_a, "pooled"_a,
        "highest"_a, "total"_a);
  bind_around(m);
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, "count"_a);
  m.def("instruction_sets", &instruction_sets);
  m.def("instruction_set", [] { return std::string(kernels().name); });
  m.def("use_instruction_set", &use_instruction_set, "name"_a);
  m.def("peak", &peak);
  m.attr("QUERIES") = QUERIES;
  m.attr("KEYS") = KEYS;
  m.attr("FEW_ROWS") = FEW_ROWS;
  m.attr("FEW_KEYS") = FEW_KEYS;
}
