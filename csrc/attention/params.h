// Parameters of the attention kernels: forward, split-KV decoding, backward, attention map.
// Axis letters: H heads, T queries, S keys, D head_dim, Dv value_dim. All axes before T are flattened to `heads`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.h"

namespace regard {

constexpr int BLOCK_QUERIES = 64;  // the score block is stored transposed: this many lanes for each key
constexpr int BLOCK_KEYS = 96;     // a score block is 24 KB in float32 and stays in L1/L2

// Split-KV decoding (decode.cpp) is used for at most this many queries, of any number of heads.
constexpr int SPLITKV_MAX_QUERIES = 12;
constexpr int SPLITKV_KEYS = 512;  // keys of one split

// bfloat16_forward.cpp multiplies packed tiles (simd/bfloat16_tiles.h) of this many rows and columns.
constexpr int TILE_ROWS = 16, TILE_DEPTH = 32;

// Blocks of a mask that need no bits (AttentionParams::mask_blocks).
constexpr int32_t EMPTY_BLOCK = -1, FULL_BLOCK = -2;

// One matrix for each head. Offsets and strides count elements; a stride of 0 broadcasts. Absent: data is null.
struct Operand {
  char* data = nullptr;
  const ptrdiff_t* offsets = nullptr;  // H
  ptrdiff_t row_stride = 0, col_stride = 0;
  DType dtype = DType::float32;

  // A paged cache: row i is row i % page_rows of page pages[i / page_rows], and pages are page_stride elements apart.
  const int32_t* pages = nullptr;
  ptrdiff_t page_rows = 0, page_stride = 0;
  // int8: an element is its integer times the scale of its row, which lies as the row does; a stride of 0: of the head.
  const float* scales = nullptr;
  const ptrdiff_t* scale_offsets = nullptr;  // H
  ptrdiff_t scale_row_stride = 0, scale_page_stride = 0;

  explicit __attribute__((always_inline)) operator bool() const { return data != nullptr; }
};

struct DropoutParams {
  uint64_t threshold = 0, seed = 0;  // a cell is dropped if its 53 random bits are below `threshold`; 0: no dropout
  double scale = 1;                  // of the weights that are kept, 1 / (1 - p)
  // The random bits depend on the cell's index in the whole problem, of which this call may hold only some queries.
  ptrdiff_t first_query = 0, queries = 0;
  const ptrdiff_t* head_ids = nullptr;  // H; heads that differ only in their values have the same id
};

struct AttentionParams {
  ptrdiff_t heads, queries, keys, head_dim, value_dim;
  Operand q, k, v;
  double scale = 1, softcap = 0;  // softcap 0: none

  // Query i attends to keys key_begin[i] <= j < key_end[i] (int32, T) for which the mask (boolean, T S) is true and the
  // bias is not -infinity.
  Operand key_begin, key_end;
  Operand mask;
  // A mask in blocks of BLOCK_QUERIES x BLOCK_KEYS, beginning at query and key 0, T / BLOCK_QUERIES x S / BLOCK_KEYS
  // (int32): EMPTY_BLOCK, FULL_BLOCK, or the index of a row of mask_tiles. A row has 64 bits for each key of the block,
  // least significant first: whether query i of the block attends to it. Not for attention maps.
  Operand mask_blocks, mask_tiles;
  // Biases and sinks have the compute dtype.
  Operand bias;           // T S
  Operand distance_bias;  // T + S - 1: cell (i, j) gets element i - j + S - 1. BLOCK_QUERIES more elements are read
                          // and not used
  Operand sinks;          // one score for each head
  DropoutParams dropout;

  ptrdiff_t heads_per_kv = 1;  // consecutive heads with the same keys and values (GQA)
  // bfloat16_forward.cpp: keys (row by row) and transposed values as packed tiles, TILE_DEPTH keys after the other.
  Operand k_tiles, v_tiles;
  void* partials = nullptr;  // split-KV: partial results, splitkv_partials_bytes() large

  Operand output;             // T Dv
  Operand row_max, row_sum;   // T, row_sum in float64; weight = exp(score - row_max) / row_sum
  Operand weights;            // T S in the compute dtype, rows contiguous; only where keeps_weights()
  bool* nonfinite = nullptr;  // set if a score or a result is NaN, infinite or close to it: sums may have overflowed
};

static inline void set_flag(bool* flag) { __atomic_store_n(flag, true, __ATOMIC_RELAXED); }

// Gradients have the compute dtype; those not wanted are absent. Heads that share an operand get separate gradients,
// except in `d_bias`.
struct BackwardParams {
  AttentionParams attention;  // with `output`, `row_max` and `row_sum` of the forward pass
  Operand d_output;           // T Dv
  Operand delta;              // T, rowsum(dO * O); written by backward_delta
  Operand d_q, d_k, d_v;
  Operand d_bias;           // T S, accumulated
  Operand d_key_bias;       // S, gradient of a bias that broadcasts over queries
  Operand d_query_bias;     // T, or over keys
  Operand d_distance_bias;  // T + S - 1

  ptrdiff_t keys_per_task;
  // Tickets of the ordered accumulation into shared gradients, initially 0 (runtime/ordered_accumulation.h).
  int32_t *d_q_tickets, *d_kv_tickets, *d_distance_bias_tickets, *d_bias_tickets;
  const int32_t *d_bias_owner, *d_bias_rank;  // H; the first head with the same d_bias, and how many precede this one
  bool* nonfinite;                            // set if an input is NaN or infinite: the gradients are then invalid
};

// A part or a statistic of the attention map, which is never stored.
enum class MapQuantity : int {
  softmax_stats,   // row_max and row_sum
  tile,            // scores or weights of some keys
  row_statistics,  // entropy, mean distance and the top k weights of each row
  column_sums,     // the total weight of each key
  pooled,          // maximum or sum of the weights in each cell of a grid
};

struct MapParams {
  MapQuantity quantity;
  AttentionParams attention;
  Operand row_max, row_sum;  // T; input or output. row_sum in float64

  bool as_weights = false;               // tile: weights, otherwise scores
  const int32_t* column_keys = nullptr;  // the keys of the tile
  ptrdiff_t columns = 0;
  bool all_keys = false;  // column_keys is 0, 1, ..., S - 1
  Operand tile;           // T C

  Operand offset;                 // row_statistics: query i has position i + offset among the keys
  Operand entropy, distance;      // T, float64
  Operand top_weights, top_keys;  // T top_k
  ptrdiff_t top_k = 0;

  Operand column_sums;  // S, float64

  // pooled: row cell r covers queries row_edges[r] <= i < row_edges[r + 1], at most BLOCK_QUERIES. One task computes
  // the row cells row_strips[n] <= r < row_strips[n + 1].
  const int32_t *row_edges = nullptr, *col_edges = nullptr, *row_strips = nullptr;
  ptrdiff_t num_col_cells = 0, num_strips = 0;
  bool mean = false;  // sum, otherwise maximum
  Operand pooled;     // row cells, column cells; float64
};

// The columns of the packed tiles of a head's keys, and the rows of those of its values.
static inline ptrdiff_t key_tile_columns(const AttentionParams& params) {
  return product(ceil_div(params.head_dim, TILE_DEPTH), TILE_DEPTH);
}
static inline ptrdiff_t value_tile_rows(const AttentionParams& params) {
  return product(ceil_div(params.value_dim, TILE_ROWS), TILE_ROWS);
}

// Bytes of a row of mask_tiles.
constexpr ptrdiff_t MASK_TILE_BYTES = BLOCK_KEYS * 8;
static_assert(BLOCK_QUERIES == 64, "a key has a word of 64 bits");

// The block of the mask that query i and key j of a head lie in.
static inline int32_t mask_block(const AttentionParams& params, ptrdiff_t head, ptrdiff_t i, ptrdiff_t j) {
  const Operand& x = params.mask_blocks;
  return reinterpret_cast<const int32_t*>(
      x.data)[x.offsets[head] + i / BLOCK_QUERIES * x.row_stride + j / BLOCK_KEYS * x.col_stride];
}

// The bits of key j, of a block that is neither empty nor full.
static inline uint64_t mask_word(const AttentionParams& params, int32_t block, ptrdiff_t j) {
  uint64_t word;
  __builtin_memcpy(&word, params.mask_tiles.data + block * params.mask_tiles.row_stride + j % BLOCK_KEYS * 8, 8);
  return word;
}

// Query rows that share keys and values.
static inline ptrdiff_t splitkv_rows(const AttentionParams& params) {
  return product(params.heads_per_kv, params.queries);
}
static inline ptrdiff_t num_splits(const AttentionParams& params) { return ceil_div(params.keys, SPLITKV_KEYS); }
static inline bool uses_splitkv(const AttentionParams& params) {
  if (params.keys == 0) return false;  // no split would write a result
  return params.queries == 1 || (params.queries <= SPLITKV_MAX_QUERIES && params.keys > BLOCK_QUERIES);
}

// At most as many rows of a split are one task: few where there would otherwise be few tasks, since tasks with the same
// split each read its keys.
static inline ptrdiff_t splitkv_task_rows(const AttentionParams& params) {
  const ptrdiff_t most = product(params.heads / params.heads_per_kv, num_splits(params)) < 16 ? 8 : 64;
  const ptrdiff_t rows = splitkv_rows(params);
  return rows < most ? rows : most;
}
static inline ptrdiff_t splitkv_tasks(const AttentionParams& params) {
  const ptrdiff_t rows = splitkv_rows(params);
  if (rows == 0) return 0;
  return product(params.heads / params.heads_per_kv, num_splits(params), ceil_div(rows, splitkv_task_rows(params)));
}

// Whether the forward pass can keep the exponentials of all keys of a block of queries, in a core's own cache.
static inline bool keeps_weights(const AttentionParams& params) {
  const ptrdiff_t size = params.q.dtype == DType::float64 ? 8 : 4;
  return params.v && !params.dropout.threshold && !uses_splitkv(params) &&
         params.keys <= (ptrdiff_t(1) << 19) / (BLOCK_QUERIES * size);
}

// Weights of at least so many bytes are stored past the caches.
constexpr ptrdiff_t STREAMING_STORE_BYTES = ptrdiff_t(1) << 23;
static inline bool streams_weights(const AttentionParams& params, ptrdiff_t itemsize) {
  return product(params.heads, params.queries, params.keys, itemsize) >= STREAMING_STORE_BYTES;
}

// Keys of one task of the backward pass: few enough for several tasks a thread, many enough to amortise loading the
// queries, and no more than fit into L2 with their gradients.
static inline ptrdiff_t keys_per_task(const AttentionParams& params) {
  const ptrdiff_t least = 2, most = 131072 / (params.head_dim + params.value_dim + 1) / BLOCK_KEYS;
  const ptrdiff_t wanted = ceil_div(product(params.heads, params.keys) / 48, BLOCK_KEYS),
                  blocks = wanted < 8 ? wanted : 8;
  return BLOCK_KEYS * (blocks < least || most < least ? least : blocks < most ? blocks : most);
}

}  // namespace regard
