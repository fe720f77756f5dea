// The linear map, x W + b, for weights as they lie in a file: a row for each output (W is then the transposed view) or
// a row for each input.
//
// With few rows of x what takes its time is reading the weights. They are read once, in the order in which they lie,
// and nothing is packed: where an output's weights are neighbours, by dot products, whose vectors run along the inputs.
// With many rows a panel of weights is packed once and multiplied with all of them. Weights that were packed ahead,
// because they do not change, are multiplied so with any number of rows.
#include "bends.h"
#include "lines.h"

namespace regard::REGARD_ISA {
namespace {

// With 32 registers a tile is 8 rows high, for numbers of rows are more often multiples of 8 than of 6.
constexpr int TALL = BYTES == 64 ? 8 : ROWS, WIDE = BYTES == 64 ? 3 : VECTORS;
constexpr ptrdiff_t FEW = 48;       // rows: up to so many, dot products are quicker
constexpr ptrdiff_t STREAM = 96;    // the same with few rows
constexpr ptrdiff_t DEPTH = 384;   // inputs of a packed panel, which then stays in the second cache; a longer sum rounds more
constexpr ptrdiff_t HEIGHT = 256;  // rows of x of a task
constexpr ptrdiff_t AHEAD = 16384;  // bytes, at least, by which weights are called for early

// A tile of dot products has as many sums as a vector has lanes, so that they end up in one vector: those of `inputs` rows
// of x with LANES / inputs outputs.
template <class T> constexpr int MOST_INPUTS = LANES<T> < 4 ? LANES<T> : 4;

bool by_dots(const Linear& call) { return !call.is_packed && call.weight_row == 1 && call.rows <= FEW; }
bool is_copied(const Linear& call) { return !call.is_packed && (call.weight_column != 1 || call.rows > FEW); }

// Pairs of vectors are folded: pieces of `unit` numbers from the lower, or the upper, halves of blocks of each, in turn.
// The blocks are those of 16 bytes, inside which this is cheap, as long as they hold two pieces.
template <class T, int unit, bool upper> constexpr int from_place(int to) {
  constexpr int small = 16 / int(sizeof(T)), block = 2 * unit <= small ? small : LANES<T>;
  const int piece = to % block / unit, of_block = piece / 2 + (upper ? block / unit / 2 : 0);
  return to / block * block + of_block * unit + to % unit + (piece % 2 ? LANES<T> : 0);
}

template <class T, int unit, int... I> REGARD_INLINE V<T> folded(V<T> a, V<T> b, Numbers<I...>) {
  return __builtin_shufflevector(a, b, from_place<T, unit, false>(I)...) +
         __builtin_shufflevector(a, b, from_place<T, unit, true>(I)...);
}

// The sum of each of LANES vectors, in order: each stage leaves half as many, whose pieces are twice as long.
template <class T, int unit> REGARD_INLINE V<T> sums_of(V<T> (&x)[LANES<T>]) {
  if constexpr (unit == LANES<T>) {
    return x[0];
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < LANES<T> / unit / 2; ++i)
      x[i] = folded<T, unit>(x[2 * i], x[2 * i + 1], typename CountTo<LANES<T>>::type{});
    return sums_of<T, 2 * unit>(x);
  }
}

template <class T, int inputs, bool ahead_too>
void dots(const T* const (&x)[inputs], const T* const (&w)[LANES<T> / inputs], ptrdiff_t depth, ptrdiff_t ahead, T* sums) {
  constexpr int outputs = LANES<T> / inputs;
  V<T> tile[LANES<T>] = {};
  ptrdiff_t t = 0;
  for (; t + LANES<T> <= depth; t += LANES<T>) {
    V<T> of_w[outputs];
#pragma GCC unroll 16
    for (int j = 0; j < outputs; ++j) {
      of_w[j] = load<T>(w[j] + t);
      if (ahead_too) __builtin_prefetch(w[j] + t + ahead, 0, 2);  // into the second cache
    }
#pragma GCC unroll 4
    for (int i = 0; i < inputs; ++i) {
      const V<T> of_x = load<T>(x[i] + t);
#pragma GCC unroll 16
      for (int j = 0; j < outputs; ++j) tile[i * outputs + j] += of_x * of_w[j];
    }
  }
  if (t < depth)
    for (int i = 0; i < inputs; ++i)
      for (int j = 0; j < outputs; ++j)
        tile[i * outputs + j] += load_some<T>(x[i] + t, depth - t) * load_some<T>(w[j] + t, depth - t);
  store<T>(sums, sums_of<T, 1>(tile));
}

template <class T, int inputs> void stream(const Linear& call, ptrdiff_t start, ptrdiff_t count) {
  constexpr int outputs = LANES<T> / inputs;
  const T* x = reinterpret_cast<const T*>(call.x);
  const T* w = reinterpret_cast<const T*>(call.weight);
  const T* bias = reinterpret_cast<const T*>(call.bias);
  T* out = reinterpret_cast<T*>(call.output);
  const ptrdiff_t step = outputs * call.weight_column, bytes = larger<ptrdiff_t>(step * ptrdiff_t(sizeof(T)), 1);
  const ptrdiff_t ahead = blocks_of(AHEAD, bytes) * step;
  for (ptrdiff_t at = 0; at < AHEAD; at += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(w + start * call.weight_column) + at, 0, 2);
  for (ptrdiff_t n = start; n < start + count; n += outputs) {
    const T* of_w[outputs];  // what is beyond the last row repeats it
    T added[outputs] = {};
    for (int j = 0; bias && j < outputs; ++j) added[j] = bias[smaller<ptrdiff_t>(n + j, call.columns - 1)];
    for (int j = 0; j < outputs; ++j) of_w[j] = w + smaller<ptrdiff_t>(n + j, call.columns - 1) * call.weight_column;
    for (ptrdiff_t m = 0; m < call.rows; m += inputs) {
      const T* of_x[inputs];
      for (int i = 0; i < inputs; ++i) of_x[i] = x + smaller<ptrdiff_t>(m + i, call.rows - 1) * call.x_row;
      T sums[LANES<T>];
      if (m == 0) dots<T, inputs, true>(of_x, of_w, call.depth, ahead, sums);
      else dots<T, inputs, false>(of_x, of_w, call.depth, ahead, sums);
      const ptrdiff_t width = smaller<ptrdiff_t>(outputs, start + count - n);
      for (int i = 0; i < inputs && m + i < call.rows; ++i) {
        for (int j = 0; j < outputs; ++j) sums[i * outputs + j] += added[j];
        T* to = out + (m + i) * call.columns + n;
        if (width == outputs) __builtin_memcpy(to, sums + i * outputs, outputs * sizeof(T));
        else for (ptrdiff_t j = 0; j < width; ++j) to[j] = sums[i * outputs + j];
      }
    }
  }
}

template <class T> struct Panel {
  T *weights, *sums;

  Panel(const Linear& call, Scratch& scratch)
      : weights(scratch.take<T>(smaller(DEPTH, call.depth) * PANEL)), sums(scratch.take<T>(HEIGHT * PANEL)) {}
};

// A row of `width` numbers for each of `depth` inputs, in which `count` columns stand.
template <class T>
void columns(const T* from, ptrdiff_t row, ptrdiff_t column, ptrdiff_t count, ptrdiff_t depth, T* to, ptrdiff_t width) {
  if (row == 1) return transposed<T>(from, column, count, depth, to, width);
  for (ptrdiff_t i = 0; i < depth; ++i)
    for (ptrdiff_t j = 0; j < count; ++j) to[i * width + j] = from[i * row + j * column];
}

// Columns of W, `width` of them for each input, of which `count` are there.
template <class T>
void copy(const Linear& call, ptrdiff_t t, ptrdiff_t depth, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* to) {
  const T* from = reinterpret_cast<const T*>(call.weight) + t * call.weight_row + start * call.weight_column;
  columns<T>(from, call.weight_row, call.weight_column, count, depth, to, width);
  for (ptrdiff_t i = 0; count < width && i < depth; ++i)
    for (ptrdiff_t j = count; j < width; ++j) to[i * width + j] = 0;
}

template <class T>
void many_rows(const Linear& call, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count, void* memory) {
  Scratch scratch(memory);
  Panel<T> panel(call, scratch);
  const T* x = reinterpret_cast<const T*>(call.x) + first * call.x_row;
  T* out = reinterpret_cast<T*>(call.output) + first * call.columns + start;
  const ptrdiff_t width = call.is_packed ? PANEL : round_up(count, LANES<T>);
  T* sums = count == width ? out : panel.sums;  // a last panel that is not whole vectors wide has no room there
  const ptrdiff_t sums_row = count == width ? call.columns : width;
  ptrdiff_t t = 0;
  do {
    const ptrdiff_t depth = smaller(DEPTH, call.depth - t);
    const Matrix<T> of_x{x + t, call.x_row, 1};
    const T* weights = panel.weights;
    ptrdiff_t weights_row = width;
    if (call.is_packed) {
      weights = reinterpret_cast<const T*>(call.weight) + start * call.depth + t * PANEL;
    } else if (is_copied(call) || count < width) {
      copy<T>(call, t, depth, start, count, width, panel.weights);
    } else {
      weights = reinterpret_cast<const T*>(call.weight) + t * call.weight_row + start;
      weights_row = call.weight_row;
    }
    if (t == 0) product<T, Into::set, TALL, WIDE>(of_x, rows, depth, weights, weights_row, sums, sums_row, width);
    else product<T, Into::add, TALL, WIDE>(of_x, rows, depth, weights, weights_row, sums, sums_row, width);
    t += depth;
  } while (t < call.depth);
  const T* bias = reinterpret_cast<const T*>(call.bias);
  if (!bias && sums == out) return;
  for (ptrdiff_t i = 0; i < rows; ++i)
    for (ptrdiff_t j = 0; j < count; ++j)
      out[i * call.columns + j] = sums[i * sums_row + j] + (bias ? bias[start + j] : T(0));
}

template <class T, class F> void bend(const Linear& call, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count, F f) {
  for (ptrdiff_t i = first; i < first + rows; ++i) {
    T* row = reinterpret_cast<T*>(call.output) + i * call.columns + start;
    for_each_vector<T>(count, [&](ptrdiff_t j, ptrdiff_t n) __attribute__((always_inline)) {
      store_up_to<T>(row + j, f(load_up_to<T>(row + j, n)), n);
    });
  }
}

// Bend what a task has found while it is still near.
template <class T> void finish(const Linear& call, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count) {
  switch (call.bend) {
    case Linear::straight: break;
    case Linear::gelu: bend<T>(call, first, rows, start, count, gelu<T>); break;
    case Linear::gelu_tanh: bend<T>(call, first, rows, start, count, gelu_tanh<T>); break;
    case Linear::silu: bend<T>(call, first, rows, start, count, silu<T>); break;
  }
}

template <class T> void pack_panel(const Packing& call, ptrdiff_t panel) {
  const ptrdiff_t start = larger(call.first, panel * PANEL), stop = smaller(call.first + call.columns, (panel + 1) * PANEL);
  columns<T>(reinterpret_cast<const T*>(call.weight) + (start - call.first) * call.weight_column, call.weight_row,
             call.weight_column, stop - start, call.depth,
             reinterpret_cast<T*>(call.panels) + panel * PANEL * call.depth + start % PANEL, PANEL);
}

ptrdiff_t outputs(const Linear& call) { return by_dots(call) ? STREAM : PANEL; }
ptrdiff_t row_blocks(const Linear& call) { return by_dots(call) ? 1 : blocks_of(call.rows, HEIGHT); }

template <class T> void do_task(const Linear& call, ptrdiff_t task, void* memory) {
  const ptrdiff_t blocks = row_blocks(call), start = task / blocks * outputs(call);
  const ptrdiff_t count = smaller(outputs(call), call.columns - start);
  if (by_dots(call)) {
    if (call.rows == 1) stream<T, 1>(call, start, count);
    else stream<T, MOST_INPUTS<T>>(call, start, count);
    return finish<T>(call, 0, call.rows, start, count);
  }
  const ptrdiff_t height = smaller(HEIGHT, round_up(blocks_of(call.rows, blocks), TALL));  // of equal size
  const ptrdiff_t first = task % blocks * height;
  if (first >= call.rows) return;
  const ptrdiff_t rows = smaller(height, call.rows - first);
  many_rows<T>(call, first, rows, start, count, memory);
  finish<T>(call, first, rows, start, count);
}

}  // namespace

ptrdiff_t linear_tasks(const Linear& call) {
  return call.rows ? blocks_of(call.columns, outputs(call)) * row_blocks(call) : 0;
}

size_t linear_scratch(const Linear& call) {
  if (by_dots(call)) return 0;
  Scratch scratch(nullptr);
  if (call.kind == Kind::float64) Panel<double>(call, scratch);
  else Panel<float>(call, scratch);
  return scratch.used();
}

void pack(const Packing& call, ptrdiff_t panel) {
  call.kind == Kind::float64 ? pack_panel<double>(call, panel) : pack_panel<float>(call, panel);
}

void linear(const Linear& call, ptrdiff_t task, void* scratch) {
  call.kind == Kind::float64 ? do_task<double>(call, task, scratch) : do_task<float>(call, task, scratch);
}

}  // namespace regard::REGARD_ISA
