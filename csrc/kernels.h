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

  explicit operator bool() const { return data != nullptr; }
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
  Operand highest, total;  // of each row, of the numbers computed with; weight = exp(score - highest) / total
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

static inline ptrdiff_t few_rows(const Attention& call) { return call.sharing * call.queries; }
static inline ptrdiff_t few_chunks(const Attention& call) {  // with no keys, one that says so
  return call.keys > FEW_KEYS ? (call.keys + FEW_KEYS - 1) / FEW_KEYS : 1;
}
static inline ptrdiff_t blocks_of(ptrdiff_t length, ptrdiff_t size) { return (length + size - 1) / size; }

// The functions that every instruction set has. A task is a part of the work that one thread does by itself; which
// tasks there are depends on the call alone, so that any number of threads gives the same bits.
struct Kernels {
  const char* name;
  int lanes;  // of float32

  ptrdiff_t (*forward_tasks)(const Attention&);
  size_t (*forward_scratch)(const Attention&);  // bytes that one thread needs
  void (*forward)(const Attention&, ptrdiff_t task, void* scratch);

  // Rows of an operand of short floats as float32, one behind the other.
  void (*widened)(const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, float* to);

  size_t (*few_scratch)(const Attention&);
  size_t (*few_partials)(const Attention&);  // bytes for `partials`
  void (*few)(const Attention&, ptrdiff_t task, void* scratch);
  void (*few_together)(const Attention&, ptrdiff_t row);

  ptrdiff_t (*look_tasks)(const Look&);
  size_t (*look_scratch)(const Look&);
  void (*look)(const Look&, ptrdiff_t task, void* scratch);

  double (*multiply_adds)(ptrdiff_t rounds);
};

#define REGARD_KERNELS(isa)                          \
  namespace isa {                                    \
  ptrdiff_t forward_tasks(const Attention&);         \
  size_t forward_scratch(const Attention&);          \
  void forward(const Attention&, ptrdiff_t, void*);  \
  void widened(const Operand&, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, float*); \
  size_t few_scratch(const Attention&);              \
  size_t few_partials(const Attention&);             \
  void few(const Attention&, ptrdiff_t, void*);      \
  void few_together(const Attention&, ptrdiff_t);    \
  ptrdiff_t look_tasks(const Look&);                 \
  size_t look_scratch(const Look&);                  \
  void look(const Look&, ptrdiff_t, void*);          \
  double multiply_adds(ptrdiff_t);                   \
  }
REGARD_KERNELS(avx512)
REGARD_KERNELS(avx2)
REGARD_KERNELS(generic)

}  // namespace regard
