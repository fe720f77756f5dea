// Python bindings of the attention map: tiles, softmax and row statistics, column sums, pooled overviews.
#include <algorithm>
#include <vector>

#include "bindings/attention.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

using IndexArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

MapParams map_params(MapQuantity quantity, AttentionCall& call, const OptionalArray& row_max,
                     const OptionalArray& row_sum) {
  MapParams params;
  params.quantity = quantity, params.attention = call.params;
  if (params.attention.mask_blocks) throw_invalid("mask_blocks", "are not for maps");
  const ptrdiff_t queries = params.attention.queries;
  if (row_max.has_value() != row_sum.has_value()) throw_invalid("row_max and row_sum", "belong together");
  params.row_max = call.operands.make("row_max", row_max, compute_dtype(params.attention.q.dtype), 1, queries, 0);
  params.row_sum = call.operands.make("row_sum", row_sum, DType::float64, 1, queries, 0);
  return params;
}

void run_map(const MapParams& params) {
  const KernelTable& isa = kernels();
  const AttentionParams& a = params.attention;
  const double cost = double(a.heads) * double(a.queries) * double(a.keys) * double(a.head_dim + 20);
  run_tasks(isa.map_tasks(params), cost, isa.map_scratch(params),
            [&](ptrdiff_t task, void* scratch) { isa.map(params, task, scratch); });
}

void map_softmax_stats(AttentionCall& call, WritableArray row_max, WritableArray row_sum) {
  run_map(map_params(MapQuantity::softmax_stats, call, Array(row_max), Array(row_sum)));
}

// `stage`: 0 scaled scores, 1 after softcap, 2 after bias and mask, 3 weights.
void map_tile(AttentionCall& call, int stage, IndexArray keys, WritableArray tile, OptionalArray row_max,
              OptionalArray row_sum) {
  MapParams params = map_params(MapQuantity::tile, call, row_max, row_sum);
  const bool half_tile = tile.dtype() == nb::dtype<uint16_t>();
  params.as_weights = stage == 3;
  params.column_keys = keys.data(), params.columns = ptrdiff_t(keys.shape(0));
  params.all_keys = params.columns == params.attention.keys;
  for (ptrdiff_t c = 0; c < params.columns; ++c) {
    if (params.column_keys[c] < 0 || params.column_keys[c] >= params.attention.keys)
      throw_invalid("keys", "has an index out of range");
    params.all_keys &= params.column_keys[c] == c;
  }
  params.tile = call.operands.make("tile", OptionalArray(Array(tile)),
                                   half_tile ? params.attention.q.dtype : compute_dtype(params.attention.q.dtype), 2,
                                   params.attention.queries, params.columns);
  if (stage < 1) params.attention.softcap = 0;
  if (stage < 2)
    params.attention.bias = params.attention.distance_bias = params.attention.mask = params.attention.key_begin =
        params.attention.key_end = Operand();
  run_map(params);
}

void map_row_statistics(AttentionCall& call, Array row_max, Array row_sum, OptionalArray offset,
                        std::optional<WritableArray> entropy, std::optional<WritableArray> distance,
                        std::optional<WritableArray> top_weights, std::optional<WritableArray> top_keys) {
  MapParams params = map_params(MapQuantity::row_statistics, call, row_max, row_sum);
  const ptrdiff_t queries = params.attention.queries;
  params.offset = call.operands.make("offset", offset, DType::int32, 0, 0, 0);
  params.entropy = call.operands.make("entropy", entropy, DType::float64, 1, queries, 0);
  params.distance = call.operands.make("distance", distance, DType::float64, 1, queries, 0);
  if (top_weights.has_value() != top_keys.has_value()) throw_invalid("top_weights and top_keys", "belong together");
  if (top_weights && top_weights->ndim() > 0) params.top_k = ptrdiff_t(top_weights->shape(top_weights->ndim() - 1));
  if (top_weights && params.top_k < 1) throw_invalid("top_weights", "needs a last axis of at least 1");
  params.top_weights =
      call.operands.make("top_weights", top_weights, compute_dtype(params.attention.q.dtype), 2, queries, params.top_k);
  params.top_keys = call.operands.make("top_keys", top_keys, DType::int32, 2, queries, params.top_k);
  run_map(params);
}

void map_column_sums(AttentionCall& call, Array row_max, Array row_sum, WritableArray column_sums) {
  MapParams params = map_params(MapQuantity::column_sums, call, row_max, row_sum);
  params.column_sums =
      call.operands.make("column_sums", OptionalArray(Array(column_sums)), DType::float64, 1, params.attention.keys, 0);
  run_map(params);
}

void check_edges(const char* name, const IndexArray& edges, ptrdiff_t length, ptrdiff_t max_width) {
  const size_t count = edges.shape(0);
  if (count < 2 || edges.data()[0] != 0 || edges.data()[count - 1] != length)
    throw_invalid(name, "do not cover the map");
  for (size_t i = 1; i < count; ++i)
    if (edges.data()[i] <= edges.data()[i - 1] || edges.data()[i] - edges.data()[i - 1] > max_width)
      throw_invalid(name, "have a cell that is empty or too large");
}

void map_pooled(AttentionCall& call, IndexArray row_edges, IndexArray col_edges, bool mean, WritableArray pooled,
                WritableArray row_max, WritableArray row_sum) {
  MapParams params = map_params(MapQuantity::pooled, call, Array(row_max), Array(row_sum));
  check_edges("row_edges", row_edges, params.attention.queries, BLOCK_QUERIES);
  check_edges("col_edges", col_edges, params.attention.keys, params.attention.keys);
  const auto num_row_cells = ptrdiff_t(row_edges.shape(0)) - 1;
  params.row_edges = row_edges.data(), params.col_edges = col_edges.data();
  params.num_col_cells = ptrdiff_t(col_edges.shape(0)) - 1, params.mean = mean;
  std::vector<int32_t> row_strips{0};  // of row cells that fit into one block of queries
  for (ptrdiff_t cell = 1; cell < num_row_cells; ++cell)
    if (params.row_edges[cell + 1] - params.row_edges[row_strips.back()] > BLOCK_QUERIES)
      row_strips.push_back(int32_t(cell));
  row_strips.push_back(int32_t(num_row_cells));
  params.row_strips = row_strips.data(), params.num_strips = ptrdiff_t(row_strips.size()) - 1;
  params.pooled = call.operands.make("pooled", OptionalArray(Array(pooled)), DType::float64, 2, num_row_cells,
                                     params.num_col_cells);
  run_map(params);
}

}  // namespace

void bind_map(nb::module_& m) {
  m.def("map_softmax_stats", &map_softmax_stats, "call"_a, "row_max"_a, "row_sum"_a);
  m.def("map_tile", &map_tile, "call"_a, "stage"_a, "keys"_a, "tile"_a, "row_max"_a.none() = nb::none(),
        "row_sum"_a.none() = nb::none());
  m.def("map_row_statistics", &map_row_statistics, "call"_a, "row_max"_a, "row_sum"_a, "offset"_a.none() = nb::none(),
        "entropy"_a.none() = nb::none(), "distance"_a.none() = nb::none(), "top_weights"_a.none() = nb::none(),
        "top_keys"_a.none() = nb::none());
  m.def("map_column_sums", &map_column_sums, "call"_a, "row_max"_a, "row_sum"_a, "column_sums"_a);
  m.def("map_pooled", &map_pooled, "call"_a, "row_edges"_a, "col_edges"_a, "mean"_a, "pooled"_a, "row_max"_a,
        "row_sum"_a);
}

}  // namespace regard
