// What the kernel computes, as plain data: the one interface between the bindings, which know Python, and the code
// compiled for each instruction set, which knows numbers. Axis letters are those of the project: H heads, T queries,
// S keys, D features of a key, Dv features of a value. All the axes before T are one list of `heads` here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard {

enum class Kind : int { float32, float64, float16, bfloat16, boolean, int32 };

constexpr int QUERIES = 64;  // of a block: as many lanes as the scores of one key have
constexpr int KEYS = 96;     // of a block: its scores, 24 KB in float32, stay in the nearest caches
constexpr int FEW_ROWS = 8;  // as few queries, of all the heads that share their keys, go another way (few.cpp),
constexpr int FEW_KEYS = 512;  // with as many keys in a task

// A matrix for each head, somewhere in memory. Strides and offsets are counted in elements; 0 repeats.
struct Operand {
  char* data = nullptr;
  const ptrdiff_t* offsets = nullptr;  // of each head
  ptrdiff_t row = 0, column = 0;
  Kind kind = Kind::float32;

  explicit __attribute__((always_inline)) operator bool() const { return data != nullptr; }
};

// One call of attention. What is not there has no data.
struct Attention {
  ptrdiff_t heads, queries, keys, features, value_features;
  Operand q, k, v;
  double scale = 1, softcap = 0;  // a softcap of 0 is none

  // Query i sees the keys first[i] <= j < last[i] (one row of int32 for each head), where the mask, booleans of T S,
  // allows it and the bias is not -infinity.
  Operand first, last;
  Operand mask;
  Operand bias;      // T S, of the numbers computed with
  Operand diagonal;  // instead of T S a bias for each distance: that of cell (i, j) is number i - j + S - 1;
                     // QUERIES more numbers behind them are read, and do not count
  Operand sinks;     // one number for each head

  uint64_t dropout = 0, seed = 0;  // cells whose 53 random bits are below `dropout` are dropped; 0 is none
  double kept = 1;                 // what the others are multiplied with
  // How cells are numbered: these queries may be some of more, and several heads, which differ in their values alone,
  // may share their scores.
  ptrdiff_t first_query = 0, all_queries = 0;
  const ptrdiff_t* numbers = nullptr;  // of the scores of each head

  ptrdiff_t sharing = 1;     // how many consecutive heads have the same keys and values
  void* partials = nullptr;  // where few.cpp keeps what it has found

  Operand output;          // T Dv
  Operand highest, total;  // of each row, the totals in float64; weight = exp(score - highest) / total
};

// The gradients of one call, from the gradient of its output. All but `d_output` are of the numbers computed with;
// what is not wanted has no data. Heads that share an operand get their gradients beside each other, but for `d_bias`.
struct Backward {
  Attention call;      // with `output`, `highest` and `total` as the forward pass left them
  Operand d_output;    // T Dv
  Operand row_sums;    // T, of the gradients of the weights times these; backward_rows fills them in
  Operand d_q, d_k, d_v;
  Operand d_bias;      // T S, to which is added
  Operand d_of_keys;   // S, the gradients of a bias summed over the queries,
  Operand d_of_queries;  // T, or over the keys
  Operand d_diagonal;  // as many numbers as there are distances

  ptrdiff_t keys_of_task;
  // Who may add next to what several tasks add to, in the order of the tasks. At the start all are 0.
  int32_t *turn_of_queries, *turn_of_keys, *turn_of_diagonal, *turn_of_bias;
  const int32_t *owner, *rank;  // of each head: the first one with the same d_bias, and how many come before
  bool* not_finite;             // is set where a number read is NaN or infinite: the gradients then hold nothing
};

// What is looked at in a map of weights that is never held.
enum class Sight : int {
  sums,      // the largest score of each row and the sum of its exponentials
  tile,      // scores or weights of some keys
  rows,      // entropy, distance and the largest weights of each row
  received,  // what each key gets from all queries
  pooled,    // the largest or the sum of the weights of each cell of an overview
};

struct Look {
  Sight sight;
  Attention call;
  Operand highest, total;  // of each row, known or to be found; the totals in float64

  bool shares = false;        // tile: weights, else scores
  const int32_t* column = nullptr;  // the keys of the tile
  ptrdiff_t columns = 0;
  bool every_column = false;  // they are all keys in their order
  Operand tile;               // T C

  Operand offset;             // rows: query i of a head stands at key i + offset
  Operand entropy, distance;  // float64
  Operand best, best_keys;    // T `top`
  ptrdiff_t top = 0;

  Operand received;  // S, float64

  // pooled: row cell r holds the queries row_edges[r] <= i < row_edges[r + 1], of which there are at most QUERIES; a
  // task goes through the row cells strips[n] <= r < strips[n + 1].
  const int32_t *row_edges = nullptr, *col_edges = nullptr, *strips = nullptr;
  ptrdiff_t col_cells = 0, strip_count = 0;
  bool mean = false;  // their sum, else the largest
  Operand pooled;     // row cells, column cells; float64
};

// Rows of numbers: all the axes of an array before its last one. A stride of 0 repeats.
constexpr int AXES = 8;
struct Lines {
  char* data = nullptr;
  int axes = 0;
  ptrdiff_t lengths[AXES], strides[AXES];
  ptrdiff_t column = 1;
  Kind kind = Kind::float32;

  explicit __attribute__((always_inline)) operator bool() const { return data != nullptr; }
};

// One call of what is around attention, on the last axis. What is not there has no data.
struct Around {
  enum What : int { softmax, layer_norm, rms_norm, gelu, gelu_tanh, silu, swiglu, turn_halves, turn_neighbours };
  What what;
  ptrdiff_t rows, columns;
  ptrdiff_t half = 0;  // pairs that turn
  Lines x;
  Lines other;         // a norm's residual, or what the bent x multiplies
  Lines weight, bias;  // a norm's; x's bias, and that of the other; cosines and sines
  Lines output;
  double eps = 0;
};

// x W + b, bent at last. Strides count numbers; the rows of the output lie one behind the other. Packed weights are
// panels of PANEL columns, one behind the other, with a row for each input; the last is filled up with zeros.
constexpr ptrdiff_t PANEL = 48;
struct Linear {
  enum Bend : int { straight, gelu, gelu_tanh, silu };
  ptrdiff_t rows, depth, columns;
  const char *x, *weight, *bias;
  ptrdiff_t x_row, weight_row, weight_column;
  char* output;
  Kind kind;  // of all
  Bend bend = straight;
  bool is_packed = false;
};

// Columns of weights, to be packed from column `first` on.
struct Packing {
  ptrdiff_t depth, columns, first;
  const char* weight;
  ptrdiff_t weight_row, weight_column;
  char* panels;
  Kind kind;
};
static inline ptrdiff_t first_panel(const Packing& call) { return call.first / PANEL; }

static inline ptrdiff_t few_rows(const Attention& call) { return call.sharing * call.queries; }
static inline ptrdiff_t few_chunks(const Attention& call) { return (call.keys + FEW_KEYS - 1) / FEW_KEYS; }
static inline bool is_few(const Attention& call) { return few_rows(call) <= FEW_ROWS && call.keys > QUERIES; }
static inline ptrdiff_t blocks_of(ptrdiff_t length, ptrdiff_t size) { return (length + size - 1) / size; }

// A task of the backward pass takes as many keys that there are some tasks for each of many threads, but not so few that
// getting the queries ready for them takes long, nor so many that they and their gradients leave the caches.
static inline ptrdiff_t keys_of_task(const Attention& call) {
  const ptrdiff_t least = 2, most = 131072 / (call.features + call.value_features + 1) / KEYS;
  const ptrdiff_t wanted = blocks_of(call.heads * call.keys / 48, KEYS), blocks = wanted < 8 ? wanted : 8;
  return KEYS * (blocks < least || most < least ? least : blocks < most ? blocks : most);
}

// The functions that every instruction set has, listed once: f(what it returns, name, what it takes). A task is a part of
// the work that one thread does by itself; which tasks there are depends on the call alone, so that any number of threads
// gives the same bits. `_scratch` are the bytes that a thread needs.
#define REGARD_FUNCTIONS(f)                                                                                       \
  f(ptrdiff_t, forward_tasks, (const Attention&))                                                                 \
  f(size_t, forward_scratch, (const Attention&))                                                                  \
  f(void, forward, (const Attention&, ptrdiff_t task, void* scratch))                                             \
  /* rows of an operand of short floats as float32, one behind the other */                                       \
  f(void, widened, (const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, float* to)) \
  f(size_t, few_scratch, (const Attention&))                                                                      \
  f(size_t, few_partials, (const Attention&)) /* bytes for `partials` */                                          \
  f(void, few, (const Attention&, ptrdiff_t task, void* scratch))                                                 \
  f(void, few_together, (const Attention&, ptrdiff_t row))                                                        \
  /* a task for each head and block of queries, before all others */                                              \
  f(void, backward_rows, (const Backward&, ptrdiff_t task, void* scratch))                                        \
  f(ptrdiff_t, backward_tasks, (const Backward&))                                                                 \
  f(size_t, backward_scratch, (const Backward&))                                                                  \
  f(void, backward, (const Backward&, ptrdiff_t task, void* scratch))                                             \
  f(ptrdiff_t, look_tasks, (const Look&))                                                                         \
  f(size_t, look_scratch, (const Look&))                                                                          \
  f(void, look, (const Look&, ptrdiff_t task, void* scratch))                                                     \
  f(ptrdiff_t, around_tasks, (const Around&))                                                                     \
  f(size_t, around_scratch, (const Around&))                                                                      \
  f(void, around, (const Around&, ptrdiff_t task, void* scratch))                                                 \
  f(ptrdiff_t, linear_tasks, (const Linear&))                                                                     \
  f(size_t, linear_scratch, (const Linear&))                                                                      \
  f(void, linear, (const Linear&, ptrdiff_t task, void* scratch))                                                 \
  f(void, pack, (const Packing&, ptrdiff_t panel))                                                                \
  f(double, multiply_adds, (ptrdiff_t rounds))

struct Kernels {
  const char* name;
  int lanes;  // of float32
#define REGARD_POINTER(returned, name, arguments) returned(*name) arguments;
  REGARD_FUNCTIONS(REGARD_POINTER)
#undef REGARD_POINTER
};

#define REGARD_DECLARATION(returned, name, arguments) returned name arguments;
namespace avx512 { REGARD_FUNCTIONS(REGARD_DECLARATION) }
namespace avx2 { REGARD_FUNCTIONS(REGARD_DECLARATION) }
namespace generic { REGARD_FUNCTIONS(REGARD_DECLARATION) }
#undef REGARD_DECLARATION

}  // namespace regard
