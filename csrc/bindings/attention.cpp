// Python bindings of attention: forward, decoding, backward. They check that shapes, dtypes and strides fit together,
// so that no call from Python reads or writes out of bounds; the meaning of the arguments is checked in Python.
#include "bindings/attention.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/dispatch.h"
#include "runtime/tile_dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

// The number of consecutive heads with the same keys and values.
ptrdiff_t heads_per_kv(const AttentionParams& a) {
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

// Half-precision keys or values, converted to float32 once, because every block of queries reads them.
Operand upcast_operand(Operands& operands, const char* name, const Array& x, DType dtype, ptrdiff_t rows,
                       ptrdiff_t columns) {
  constexpr ptrdiff_t ROWS_PER_TASK = 256;
  Shape lead;
  for (size_t axis = 0; axis + 2 < x.ndim(); ++axis) lead.push_back(ptrdiff_t(x.shape(axis)));
  Operands source(lead);
  const ptrdiff_t elements = product(source.count(), rows, columns);
  const Operand from = source.make(name, OptionalArray(x), dtype, 2, rows, columns);
  float* to = operands.add_buffer(elements);
  const ptrdiff_t chunks = ceil_div(rows, ROWS_PER_TASK);
  const KernelTable& isa = kernels();
  run_tasks(product(source.count(), chunks), 8 * double(elements), 0, [&](ptrdiff_t task, void*) {
    const ptrdiff_t head = task / chunks, start = task % chunks * ROWS_PER_TASK;
    isa.upcast_rows(from, head, start, std::min(ROWS_PER_TASK, rows - start), columns,
                    to + (head * rows + start) * columns);
  });
  const ptrdiff_t* offsets = operands.head_offsets(name, lead, contiguous_strides(lead, product(rows, columns)));
  return {reinterpret_cast<char*>(to), offsets, columns, 1, DType::float32};
}

// The arguments of dropout (DropoutParams).
struct DropoutArgs {
  uint64_t threshold, seed;
  double scale;
  ptrdiff_t first_query, queries;
  Shape heads;  // leading axes of the scores; they broadcast to those of the call
};

// The keyword arguments of an attention call.
struct AttentionArgs {
  Shape heads;
  DType dtype;  // of q; k and v have the same or, where that is float32, half precision
  DType k_dtype, v_dtype;
  Array q, k;
  OptionalArray v;
  double scale, softcap;
  OptionalArray key_begin, key_end, mask, mask_blocks, mask_tiles, bias, distance_bias, sinks;
  std::optional<DropoutArgs> dropout;
  bool tiles;  // compute in bfloat16, if that is supported and in use
};

// An array of matrices, each once however many heads share it.
class SharedMatrices {
 public:
  SharedMatrices(const char* name, const Array& x, ptrdiff_t rows, ptrdiff_t columns)
      : name(name), lead(leading_axes(x)), rows(rows), columns(columns), operands_(lead) {
    operand = operands_.make(name, OptionalArray(x), DType::bfloat16, 2, rows, columns);
  }
  ptrdiff_t tasks() const { return product(operands_.count(), ceil_div(rows, ROWS_PER_TASK)); }
  ptrdiff_t count() const { return operands_.count(); }

  // f(matrix, first row, rows) of a task.
  template <class F> auto run(ptrdiff_t task, F f) const {
    const ptrdiff_t chunks = ceil_div(rows, ROWS_PER_TASK), start = task % chunks * ROWS_PER_TASK;
    return f(task / chunks, start, std::min(ROWS_PER_TASK, rows - start));
  }

  const char* name;
  const Shape lead;
  const ptrdiff_t rows, columns;
  Operand operand;

 private:
  static constexpr ptrdiff_t ROWS_PER_TASK = 256;
  static_assert(ROWS_PER_TASK % TILE_DEPTH == 0);
  static Shape leading_axes(const Array& x) {
    Shape lead;
    for (size_t axis = 0; axis + 2 < x.ndim(); ++axis) lead.push_back(ptrdiff_t(x.shape(axis)));
    return lead;
  }
  Operands operands_;
};

// The largest bfloat16 of at most x, as bits.
uint16_t to_bfloat16_down(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t(bits >> 16);
}

// Pack keys and values for bfloat16_forward. False, and the call is computed in float32, if it has a bias, dropout or
// an unusual scale, or if a number is not finite or too large or small (tile_kernels.h).
bool pack_tiles(AttentionCall& call, const AttentionArgs& args) {
  AttentionParams& a = call.params;
  const TileKernelTable* const isa = tile_kernels();
  const auto is_bfloat16 = [](DType dtype) { return dtype == DType::bfloat16; };
  if (!is_bfloat16(args.dtype) || !is_bfloat16(args.k_dtype) || !is_bfloat16(args.v_dtype)) return false;
  if (!isa || !args.v || a.bias || a.distance_bias || args.dropout) return false;
  if (!(a.scale >= TILE_MIN_SCALE && a.scale <= TILE_MAX_SCALE)) return false;
  if (!a.heads || !a.queries || !a.keys || !a.head_dim || !a.value_dim) return false;
  const double largest = std::sqrt(TILE_MAX_SCORE / (double(a.head_dim) * a.scale * 1.4427));
  const uint16_t limit = largest < 0x1p40 ? to_bfloat16_down(float(largest)) : TILE_MAX;
  const SharedMatrices queries("q", args.q, a.queries, a.head_dim), keys("k", args.k, a.keys, a.head_dim),
      values("v", *args.v, a.keys, a.value_dim);
  const ptrdiff_t padded_keys = product(ceil_div(a.keys, TILE_DEPTH), TILE_DEPTH);
  const auto allocate = [&](const SharedMatrices& x, ptrdiff_t columns) {
    const ptrdiff_t size = product(padded_keys, columns);
    Operand packed;
    packed.data = reinterpret_cast<char*>(call.operands.add_buffer(ceil_div(product(x.count(), size), 2)));
    packed.offsets = call.operands.head_offsets(x.name, x.lead, contiguous_strides(x.lead, size));
    packed.row_stride = columns, packed.col_stride = 1, packed.dtype = DType::bfloat16;
    return packed;
  };
  a.k_tiles = allocate(keys, key_tile_columns(a));
  a.v_tiles = allocate(values, value_tile_rows(a));
  const auto tiles_of = [&](const Operand& packed, ptrdiff_t matrix, ptrdiff_t start) {
    return reinterpret_cast<uint16_t*>(packed.data) + (matrix * padded_keys + start) * packed.row_stride;
  };
  std::atomic<bool> within{true};
  const ptrdiff_t of_keys = keys.tasks(), of_values = values.tasks();
  const double elements = double(queries.count()) * double(a.queries) * double(a.head_dim) +
                          double(padded_keys) * (double(keys.count()) * double(a.k_tiles.row_stride) +
                                                 double(values.count()) * double(a.v_tiles.row_stride));
  const size_t scratch = isa->pack_tiles_scratch(std::max(a.head_dim, a.value_dim));
  run_tasks(of_keys + of_values + queries.tasks(), 8 * elements, scratch, [&](ptrdiff_t task, void* memory) {
    if (!within) return;
    bool fits;
    if (task < of_keys)
      fits = keys.run(task, [&](ptrdiff_t matrix, ptrdiff_t start, ptrdiff_t count) {
        return isa->pack_key_tiles(keys.operand, matrix, start, count, a.head_dim, limit, memory,
                                   tiles_of(a.k_tiles, matrix, start));
      });
    else if (task < of_keys + of_values)
      fits = values.run(task - of_keys, [&](ptrdiff_t matrix, ptrdiff_t start, ptrdiff_t count) {
        return isa->pack_value_tiles(values.operand, matrix, start, count, a.value_dim, TILE_MAX, memory,
                                     tiles_of(a.v_tiles, matrix, start));
      });
    else
      fits = queries.run(task - of_keys - of_values, [&](ptrdiff_t matrix, ptrdiff_t start, ptrdiff_t count) {
        return isa->within_tile_limits(queries.operand, matrix, start, count, a.head_dim, limit, memory);
      });
    if (!fits) within = false;
  });
  if (within) call.tiles = isa;
  return within;
}

// A mask in blocks; each block has its bits, if it needs any.
void add_mask_blocks(AttentionParams& a, Operands& operands, const AttentionArgs& args) {
  if (bool(args.mask_blocks) != bool(args.mask_tiles)) throw_invalid("mask_blocks", "needs mask_tiles");
  if (!args.mask_blocks) return;
  const ptrdiff_t rows = ceil_div(a.queries, BLOCK_QUERIES), columns = ceil_div(a.keys, BLOCK_KEYS);
  a.mask_blocks = operands.make("mask_blocks", args.mask_blocks, DType::int32, 2, rows, columns);
  if (args.mask_tiles->ndim() != 2) throw_invalid("mask_tiles", "needs two axes");
  const auto tiles = ptrdiff_t(args.mask_tiles->shape(0));
  a.mask_tiles = operands.make("mask_tiles", args.mask_tiles, DType::boolean, 2, tiles, MASK_TILE_BYTES);
  if (a.mask_tiles.col_stride != 1 && tiles) throw_invalid("mask_tiles", "must be contiguous");
  const Operand& x = a.mask_blocks;
  for (ptrdiff_t head = 0; head < a.heads; ++head) {
    if (head && x.offsets[head] == x.offsets[head - 1]) continue;
    for (ptrdiff_t i = 0; i < rows; ++i)
      for (ptrdiff_t j = 0; j < columns; ++j) {
        const int32_t block = mask_block(a, head, i * BLOCK_QUERIES, j * BLOCK_KEYS);
        if (block >= tiles || block < FULL_BLOCK) throw_invalid("mask_blocks", "has a block without a tile");
      }
  }
}

AttentionCall make_call(const AttentionArgs& args) {
  AttentionCall call{Operands(args.heads), {}};
  Operands& operands = call.operands;
  AttentionParams& a = call.params;
  if (args.q.ndim() < 2 || args.k.ndim() < 2 || (args.v && args.v->ndim() < 2))
    throw_invalid("q, k and v", "need two axes");
  const auto length = [](const Array& x, int from_last) { return ptrdiff_t(x.shape(x.ndim() - size_t(from_last))); };
  a.heads = operands.count();
  a.queries = length(args.q, 2);
  a.keys = length(args.k, 2);
  a.head_dim = length(args.q, 1);
  a.value_dim = args.v ? length(*args.v, 1) : 0;
  if (a.keys >= (ptrdiff_t(1) << 30) || a.queries >= (ptrdiff_t(1) << 30))
    throw_invalid("q and k", "must have fewer than 2^30 positions");
  if (std::max(a.head_dim, a.value_dim) >= (ptrdiff_t(1) << 60))  // so that sums of sizes do not overflow
    throw_invalid("q, k and v", "must have fewer than 2^60 features");

  const DType dtype = args.dtype, compute = compute_dtype(dtype);
  const auto is_half = [](DType x) { return x == DType::float16 || x == DType::bfloat16; };
  for (const DType other : {args.k_dtype, args.v_dtype})
    if (other != dtype && !(dtype == DType::float32 && is_half(other)))
      throw_invalid("k and v", "have the wrong dtype");
  a.q = operands.make("q", OptionalArray(args.q), dtype, 2, a.queries, a.head_dim);
  a.k = operands.make("k", OptionalArray(args.k), args.k_dtype, 2, a.keys, a.head_dim);
  a.v = operands.make("v", args.v, args.v_dtype, 2, a.keys, a.value_dim);
  a.key_begin = operands.make("key_begin", args.key_begin, DType::int32, 1, a.queries, 0);
  a.key_end = operands.make("key_end", args.key_end, DType::int32, 1, a.queries, 0);
  a.mask = operands.make("mask", args.mask, DType::boolean, 2, a.queries, a.keys);
  add_mask_blocks(a, operands, args);
  a.bias = operands.make("bias", args.bias, compute, 2, a.queries, a.keys);
  const ptrdiff_t distances = a.queries + a.keys - 1 + BLOCK_QUERIES;  // with padding for the last vector loads
  a.distance_bias = operands.make("distance_bias", args.distance_bias, compute, 1, distances, 0);
  if (a.distance_bias && a.heads && a.distance_bias.row_stride != 1)
    throw_invalid("distance_bias", "must be contiguous");
  a.sinks = operands.make("sinks", args.sinks, compute, 0, 0, 0);
  a.scale = args.scale, a.softcap = args.softcap;

  a.heads_per_kv = heads_per_kv(a);
  const bool in_blocks = !uses_splitkv(a);
  if (in_blocks && args.tiles) pack_tiles(call, args);
  // Of few queries each block converts the keys that it reads: results of one core are slow to read from another one.
  const bool upcasts_in_tasks = args.tiles && a.queries <= 8 * BLOCK_QUERIES;
  if (in_blocks && !call.tiles && !upcasts_in_tasks) {
    if (is_half(args.k_dtype)) a.k = upcast_operand(operands, "k", args.k, args.k_dtype, a.keys, a.head_dim);
    if (args.v && is_half(args.v_dtype))
      a.v = upcast_operand(operands, "v", *args.v, args.v_dtype, a.keys, a.value_dim);
  }

  if (const auto& dropout = args.dropout) {
    if (dropout->heads.size() > operands.heads().size()) throw_invalid("dropout.heads", "has too many axes");
    a.dropout.threshold = dropout->threshold;
    a.dropout.seed = dropout->seed;
    a.dropout.scale = dropout->scale;
    a.dropout.first_query = dropout->first_query;
    a.dropout.queries = std::max(dropout->queries, a.queries);
    a.dropout.head_ids = operands.head_offsets("dropout.heads", dropout->heads, contiguous_strides(dropout->heads, 1));
  }
  return call;
}

double forward_cost(const AttentionParams& a) {
  return double(a.heads) * double(a.queries) * double(a.keys) * double(a.head_dim + a.value_dim + 20);
}

// Compute the output; false if a score or a result is not finite, or close to it: sums may have overflowed.
bool forward(AttentionCall& call, std::optional<WritableArray> output, std::optional<WritableArray> row_max,
             std::optional<WritableArray> row_sum, std::optional<WritableArray> weights) {
  AttentionParams& a = call.params;
  const DType compute = compute_dtype(a.q.dtype);
  const bool half_output = output && output->dtype() == nb::dtype<uint16_t>();
  a.output = call.operands.make("output", output, half_output ? a.q.dtype : compute, 2, a.queries, a.value_dim);
  a.row_max = call.operands.make("row_max", row_max, compute, 1, a.queries, 0);
  a.row_sum = call.operands.make("row_sum", row_sum, DType::float64, 1, a.queries, 0);
  check_contiguous_rows({&a.row_max, &a.row_sum}, a.heads ? a.queries : 0);
  a.weights = call.operands.make("weights", weights, compute, 2, a.queries, a.keys);
  if (a.weights && (!keeps_weights(a) || ptrdiff_t(weights->size()) != product(a.heads, a.queries, a.keys) ||
                    (weights->size() && a.keys > 1 && a.weights.col_stride != 1)))
    throw_invalid("weights", "cannot be written");
  if (bool(a.output) != bool(a.v) || bool(a.row_max) != bool(a.row_sum)) throw_invalid("the output", "does not fit");
  if (!call.tiles) return run_forward(a);
  if (a.row_max || a.weights) throw_invalid("softmax statistics and weights", "are those of a call without tiles");
  run_tasks(kernels().forward_tasks(a), forward_cost(a), call.tiles->bfloat16_scratch(a),
            [&](ptrdiff_t task, void* scratch) { call.tiles->bfloat16_forward(a, task, scratch); });
  return true;
}

// Write the context, B H 1 Dv, of a query, B H 1 D, that attends to all keys, B G S D. False if the arrays are others,
// or as `forward`.
bool forward_one_query(Array q, Array k, Array v, double scale, WritableArray output) {
  if (q.ndim() != 4 || k.ndim() != 4 || v.ndim() != 4 || q.shape(2) != 1) return false;
  if (!k.size() || !v.size() || !k.shape(1) || q.shape(1) % k.shape(1) || q.shape(3) != k.shape(3)) return false;
  for (const size_t axis : {0, 1, 2})
    if (v.shape(axis) != k.shape(axis) || (axis == 0 && q.shape(axis) != k.shape(axis))) return false;
  const bool is_double = q.dtype() == nb::dtype<double>();
  if (!is_double && q.dtype() != nb::dtype<float>()) return false;
  for (const Array* x : {&k, &v})
    if (x->dtype() != q.dtype()) return false;
  for (const Array* x : {&q, &k, &v})
    if (reinterpret_cast<uintptr_t>(x->data()) % (is_double ? 8 : 4)) return false;
  const DType dtype = is_double ? DType::float64 : DType::float32;
  AttentionArgs args{{ptrdiff_t(q.shape(0)), ptrdiff_t(q.shape(1))}, dtype, dtype, dtype, q, k, v, scale};
  AttentionCall call = make_call(args);
  return forward(call, output, {}, {}, {});
}

// Bytes of memory that the forward pass takes on all threads, besides inputs and output.
size_t forward_memory(const AttentionCall& call) {
  const AttentionParams& a = call.params;
  const KernelTable& isa = kernels();
  const auto on_all_threads = [](size_t bytes) { return size_t(product(num_threads(), bytes)); };
  if (uses_splitkv(a)) return on_all_threads(isa.splitkv_scratch(a)) + isa.splitkv_partials_bytes(a);
  if (call.tiles) return on_all_threads(call.tiles->bfloat16_scratch(a)) + call.operands.buffer_bytes();
  return on_all_threads(isa.forward_scratch(a)) + call.operands.buffer_bytes();
}

// Compute the gradients; false if an input or a sum is not finite: the gradients are then invalid.
bool backward(const AttentionCall& call, Array d_output, Array output, Array row_max, Array row_sum,
              WritableArray delta, WritableArray d_q, WritableArray d_k, WritableArray d_v,
              std::optional<WritableArray> d_bias, std::optional<WritableArray> d_key_bias,
              std::optional<WritableArray> d_query_bias, std::optional<WritableArray> d_distance_bias) {
  Operands operands(call.operands.heads());  // not those of `call`, which several threads may share
  bool nonfinite = false;
  BackwardParams b{};
  b.attention = call.params;
  AttentionParams& a = b.attention;
  const DType compute = compute_dtype(a.q.dtype);
  const auto input = [&](const char* name, const Array& x, DType dtype, int trailing, ptrdiff_t columns) {
    return operands.make(name, OptionalArray(x), dtype, trailing, a.queries, columns);
  };
  const auto gradient = [&](const char* name, const std::optional<WritableArray>& x, int trailing, ptrdiff_t rows,
                            ptrdiff_t columns) {
    if (x && ptrdiff_t(x->size()) != product(a.heads, rows, columns))
      throw_invalid(name, "needs elements of its own for each head");
    return operands.make(name, x, compute, trailing, rows, columns);
  };
  if (!a.v) throw_invalid("v", "is required");
  const bool is_half = d_output.dtype() == nb::dtype<uint16_t>();
  b.d_output = input("d_output", d_output, is_half ? a.q.dtype : compute, 2, a.value_dim);
  a.output = input("output", output, compute, 2, a.value_dim);
  a.row_max = input("row_max", row_max, compute, 1, 0);
  a.row_sum = input("row_sum", row_sum, DType::float64, 1, 0);
  b.delta = gradient("delta", delta, 1, a.queries, 1);
  check_contiguous_rows({&a.row_max, &a.row_sum, &b.delta}, a.heads ? a.queries : 0);
  b.d_q = gradient("d_q", d_q, 2, a.queries, a.head_dim);
  b.d_k = gradient("d_k", d_k, 2, a.keys, a.head_dim);
  b.d_v = gradient("d_v", d_v, 2, a.keys, a.value_dim);
  b.d_key_bias = gradient("d_key_bias", d_key_bias, 1, a.keys, 1);
  b.d_query_bias = gradient("d_query_bias", d_query_bias, 1, a.queries, 1);
  b.d_distance_bias = gradient("d_distance_bias", d_distance_bias, 1, a.queries + a.keys - 1, 1);
  b.d_bias = operands.make("d_bias", d_bias, compute, 2, a.queries, a.keys);
  if (b.d_bias && ((b.d_bias.row_stride == 0 && a.queries > 1) || (b.d_bias.col_stride == 0 && a.keys > 1)))
    throw_invalid("d_bias", "must have an element for each query and key");

  b.keys_per_task = keys_per_task(a);
  const ptrdiff_t blocks = ceil_div(a.queries, BLOCK_QUERIES), heads = a.heads;
  const ptrdiff_t key_splits = std::max<ptrdiff_t>(1, ceil_div(a.keys, b.keys_per_task));
  const auto zeros = [](auto... sizes) { return std::vector<int32_t>(size_t(product(sizes...))); };
  std::vector<int32_t> d_q_tickets = zeros(heads, blocks), d_kv_tickets = zeros(heads, key_splits);
  std::vector<int32_t> d_distance_bias_tickets = zeros(heads), d_bias_owner = zeros(heads), d_bias_rank = zeros(heads);
  std::vector<int32_t> d_bias_tickets = zeros(b.d_bias ? heads : 0, key_splits, blocks);
  std::unordered_map<ptrdiff_t, std::pair<int32_t, int32_t>> owners;
  for (size_t head = 0; b.d_bias && head < size_t(heads); ++head) {
    auto& [first, before] = owners.try_emplace(b.d_bias.offsets[head], int32_t(head), 0).first->second;
    d_bias_owner[head] = first, d_bias_rank[head] = before++;
  }
  b.d_q_tickets = d_q_tickets.data();
  b.d_kv_tickets = d_kv_tickets.data();
  b.d_distance_bias_tickets = d_distance_bias_tickets.data();
  b.d_bias_tickets = d_bias_tickets.data();
  b.d_bias_owner = d_bias_owner.data();
  b.d_bias_rank = d_bias_rank.data();
  b.nonfinite = &nonfinite;
  const KernelTable& isa = kernels();
  const size_t scratch = isa.backward_scratch(b);
  const double rows = double(a.heads) * double(a.queries), width = double(a.head_dim + a.value_dim);
  const auto task_of = [&](auto f) { return [&b, f](ptrdiff_t task, void* scratch) { f(b, task, scratch); }; };
  run_tasks(product(heads, blocks), rows * width, scratch, task_of(isa.backward_delta));
  run_tasks(isa.backward_tasks(b), rows * double(a.keys) * (3 * width + 20), scratch, task_of(isa.backward));
  return !nonfinite;
}

}  // namespace

bool run_forward(AttentionParams& a) {
  bool nonfinite = false;
  a.nonfinite = &nonfinite;
  const KernelTable& isa = kernels();
  const double cost = forward_cost(a);
  if (!uses_splitkv(a)) {
    run_tasks(isa.forward_tasks(a), cost, isa.forward_scratch(a),
              [&](ptrdiff_t task, void* scratch) { isa.forward(a, task, scratch); });
    return !nonfinite;
  }
  const std::unique_ptr<char[]> partials(new char[isa.splitkv_partials_bytes(a)]);
  a.partials = partials.get();
  run_tasks(splitkv_tasks(a), cost, isa.splitkv_scratch(a),
            [&](ptrdiff_t task, void* scratch) { isa.splitkv(a, task, scratch); });
  const ptrdiff_t rows = product(a.heads, a.queries);
  run_tasks(rows, double(rows) * double(num_splits(a)) * double(a.value_dim), 0,
            [&](ptrdiff_t task, void*) { isa.splitkv_combine(a, task); });
  a.partials = nullptr;
  return !nonfinite;
}

void bind_attention(nb::module_& m) {
  nb::class_<DropoutArgs>(m, "Dropout")
      .def(
          "__init__",
          [](DropoutArgs* self, uint64_t threshold, uint64_t seed, double scale, ptrdiff_t first_query,
             ptrdiff_t queries,
             Shape heads) { new (self) DropoutArgs{threshold, seed, scale, first_query, queries, std::move(heads)}; },
          "threshold"_a, "seed"_a, "scale"_a, "first_query"_a, "queries"_a, "heads"_a);
  nb::class_<AttentionCall>(m, "AttentionCall")
      .def(
          "__init__",
          [](AttentionCall* self, Shape heads, DType dtype, Array q, Array k, OptionalArray v, double scale,
             double softcap, OptionalArray key_begin, OptionalArray key_end, OptionalArray mask,
             OptionalArray mask_blocks, OptionalArray mask_tiles, OptionalArray bias, OptionalArray distance_bias,
             OptionalArray sinks, std::optional<DropoutArgs> dropout, std::optional<DType> k_dtype,
             std::optional<DType> v_dtype, bool tiles) {
            new (self)
                AttentionCall(make_call({std::move(heads), dtype, k_dtype.value_or(dtype), v_dtype.value_or(dtype), q,
                                         k, v, scale, softcap, key_begin, key_end, mask, mask_blocks, mask_tiles, bias,
                                         distance_bias, sinks, std::move(dropout), tiles}));
          },
          "heads"_a, "dtype"_a, "q"_a, "k"_a, "v"_a.none(), "scale"_a, "softcap"_a = 0.0,
          "key_begin"_a.none() = nb::none(), "key_end"_a.none() = nb::none(), "mask"_a.none() = nb::none(),
          "mask_blocks"_a.none() = nb::none(), "mask_tiles"_a.none() = nb::none(), "bias"_a.none() = nb::none(),
          "distance_bias"_a.none() = nb::none(), "sinks"_a.none() = nb::none(), "dropout"_a.none() = nb::none(),
          "k_dtype"_a.none() = nb::none(), "v_dtype"_a.none() = nb::none(), "tiles"_a = false)
      .def_prop_ro("tiles", [](const AttentionCall& call) { return call.tiles ? call.tiles->name : nullptr; });
  m.def("forward", &forward, "call"_a, "output"_a.none(), "row_max"_a.none(), "row_sum"_a.none(),
        "weights"_a.none() = nb::none());
  m.def("forward_one_query", &forward_one_query, "q"_a, "k"_a, "v"_a, "scale"_a, "output"_a);
  m.def("keeps_weights", [](const AttentionCall& call) { return keeps_weights(call.params); }, "call"_a);
  m.def("backward", &backward, "call"_a, "d_output"_a, "output"_a, "row_max"_a, "row_sum"_a, "delta"_a, "d_q"_a,
        "d_k"_a, "d_v"_a, "d_bias"_a.none() = nb::none(), "d_key_bias"_a.none() = nb::none(),
        "d_query_bias"_a.none() = nb::none(), "d_distance_bias"_a.none() = nb::none());
  m.def("uses_splitkv", [](const AttentionCall& call) { return uses_splitkv(call.params); }, "call"_a);
  m.def("forward_memory", &forward_memory, "call"_a);
  m.attr("BLOCK_QUERIES") = BLOCK_QUERIES;
  m.attr("BLOCK_KEYS") = BLOCK_KEYS;
  m.attr("SPLITKV_MAX_QUERIES") = SPLITKV_MAX_QUERIES;
  m.attr("SPLITKV_KEYS") = SPLITKV_KEYS;
}

}  // namespace regard
