// The linear map x W + b for weights in either storage order: a row for each output (W is then a transposed view) or a
// row for each input.
//
// With few rows of x, reading the weights dominates. If the weights of an output are contiguous, they are read once, in
// memory order, by dot products along the inputs (GEMV). Otherwise a panel of NR columns is packed and multiplied by
// all rows (GEMM). Weights packed in advance take the GEMM path with any number of rows. Quantized weights are
// multiplied in fixed point (fixed_point.h), with VNNI by any number of rows; else by few rows as floats, and by more,
// and in half precision, panel by panel. The product with their transpose, which gradients need, has panels of inputs
// in the place of outputs. SwiGLU is applied to sums that are still in the caches.
#include "gemm/gemm.h"
#include "gemm/gemv.h"
#include "gemm/quantized.h"
#include "kernels.h"
#include "ops/activations.h"
#include "ops/strided_rows.h"
#include "runtime/scratch.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t GEMV_MAX_ROWS = 48;  // rows of x up to which dot products are faster
constexpr ptrdiff_t QUANTIZED_GEMV_MAX_ROWS = VECTOR_BYTES == 64 ? 16 : 8;  // wide registers dequantize faster
constexpr ptrdiff_t STORED_MAX_ROWS = 4;     // in fixed point, for which blocks are not unpacked
constexpr ptrdiff_t GEMV_TASK_COLUMNS = 96;  // outputs of a task of dot products
constexpr ptrdiff_t KC = 384;                // inputs of a panel, which then stays in L2; shorter sums also round less
constexpr ptrdiff_t QUANTIZED_KC = 192;      // a panel then stays in L1
constexpr ptrdiff_t MC = 256;                // rows of x of a task
constexpr ptrdiff_t TRANSPOSED_INPUTS = 256, TRANSPOSED_OUTPUTS = 64;  // of a panel of W^T, at most

bool is_quantized(const LinearParams& params) { return params.quantization != Quantization::none; }
// Call f(format) for a kind that may be multiplied in fixed point.
template <class F> REGARD_INLINE void with_fixed_point(const LinearParams& params, F f) {
  if (is_quantized(params))
    with_format(params.quantization, [&](auto format) {
      if constexpr (FIXED_POINT_MAX_ROWS<decltype(format)> > 0) f(format);
    });
}
bool uses_fixed_point(const LinearParams& params) {
  bool uses = false;
  with_fixed_point(params, [&](auto format) { uses = params.rows <= FIXED_POINT_MAX_ROWS<decltype(format)>; });
  return uses && !params.is_transposed;
}
bool uses_gemv(const LinearParams& params) {
  if (params.x_col_stride != 1 || params.is_transposed) return false;
  if (uses_fixed_point(params)) return params.rows <= STORED_MAX_ROWS;
  if (is_quantized(params)) return params.rows <= QUANTIZED_GEMV_MAX_ROWS;
  return !params.is_packed && params.weight_row_stride == 1 && params.rows <= GEMV_MAX_ROWS;
}
bool uses_group_runs(const LinearParams& params) { return is_quantized(params) && uses_gemv(params); }
bool packs_weights(const LinearParams& params) {
  return !params.is_packed && (params.weight_col_stride != 1 || params.rows > GEMV_MAX_ROWS);
}

// Dequantize `depth` inputs of columns into a panel with rows of `width` elements.
void dequantize_panel(const LinearParams& params, ptrdiff_t t, ptrdiff_t depth, ptrdiff_t start, ptrdiff_t width,
                      float* to) {
  with_format(params.quantization, [&](auto format) {
    for (ptrdiff_t n = 0; n < width; n += LANES<float>)
      dequantize<decltype(format)>(first_block(params, (start + n) / GROUP, int((start + n) % GROUP)), t, depth, to + n,
                                   width);
  });
}

// Inputs of a panel: whole blocks if quantized, and panels of about equal depth.
ptrdiff_t panel_depth(const LinearParams& params) {
  if (!is_quantized(params)) return KC;
  const ptrdiff_t inputs = block_layout(params.quantization).inputs;
  return round_up(ceil_div(params.depth, max_of<ptrdiff_t>(1, ceil_div(params.depth, QUANTIZED_KC))), inputs);
}

ptrdiff_t row_blocks(const LinearParams& params) {
  return uses_gemv(params) || uses_fixed_point(params) ? 1 : ceil_div(params.rows, MC);
}

ptrdiff_t columns_per_task(const LinearParams& params) {
  return uses_gemv(params) ? GEMV_TASK_COLUMNS : params.panels_per_task * NR;
}

template <class T> struct PanelScratch {
  T *weights, *sums, *bias, *gates;

  PanelScratch(const LinearParams& params, Scratch& scratch)
      : weights(scratch.allocate<T>(min_of(panel_depth(params), params.depth), NR)),
        sums(scratch.allocate<T>(MC, NR)),
        bias(scratch.allocate<T>(NR)),
        gates(scratch.allocate<T>(params.is_gated ? columns_per_task(params) : 0, MC)) {}
};

struct GemvScratch {
  float* x_sums;

  GemvScratch(const LinearParams& params, Scratch& scratch)
      : x_sums(scratch.allocate<float>(is_quantized(params) ? params.rows : 0, ceil_div(params.depth, 16))) {}
};

struct FixedPointScratch {
  uint32_t* unpacked = nullptr;
  float* gates = nullptr;

  FixedPointScratch(const LinearParams& params, Scratch& scratch) {
    if (uses_gemv(params)) return;
    with_fixed_point(params,
                     [&](auto format) { unpacked = scratch.allocate<uint32_t>(UNPACKED_WORDS<decltype(format)>); });
    gates = scratch.allocate<float>(params.is_gated ? columns_per_task(params) : 0, params.rows);
  }
};

// Copy `count` columns into rows of `width` elements, one for each of `depth` inputs.
template <class T>
void pack_columns(const T* from, ptrdiff_t row_stride, ptrdiff_t col_stride, ptrdiff_t count, ptrdiff_t depth, T* to,
                  ptrdiff_t width) {
  if (row_stride == 1) return transpose_copy<T>(from, col_stride, count, depth, to, width);
  for (ptrdiff_t i = 0; i < depth; ++i)
    for (ptrdiff_t j = 0; j < count; ++j) to[i * width + j] = from[i * row_stride + j * col_stride];
}

// Copy columns of W, padded with zeros from `count` to `width`.
template <class T>
void pack_weights(const LinearParams& params, ptrdiff_t t, ptrdiff_t depth, ptrdiff_t start, ptrdiff_t count,
                  ptrdiff_t width, T* to) {
  const T* from =
      reinterpret_cast<const T*>(params.weight) + t * params.weight_row_stride + start * params.weight_col_stride;
  pack_columns<T>(from, params.weight_row_stride, params.weight_col_stride, count, depth, to, width);
  for (ptrdiff_t i = 0; count < width && i < depth; ++i)
    for (ptrdiff_t j = count; j < width; ++j) to[i * width + j] = 0;
}

// Call f(function) with the activation as a function of a vector.
template <class T, class F> REGARD_INLINE void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::identity: return f([](V<T> x) __attribute__((always_inline)) { return x; });
#define REGARD_CASE(name) \
  case Activation::name: return f([](V<T> x) __attribute__((always_inline)) { return name<T>(x); });
      REGARD_ACTIVATIONS(REGARD_CASE)
#undef REGARD_CASE
  }
}

// out = activation(sums), which may be in place, for `rows` rows of `count` columns.
template <class T>
void activate_rows(Activation activation, const T* sums, ptrdiff_t sums_row, ptrdiff_t rows, ptrdiff_t count, T* out,
                   ptrdiff_t out_row) {
  if (sums == out && activation == Activation::identity) return;
  with_activation<T>(activation, [&](auto f) __attribute__((always_inline)) {
    for (ptrdiff_t i = 0; i < rows; ++i)
      for_each_vector<T>(count, [&](ptrdiff_t j, ptrdiff_t n) __attribute__((always_inline)) {
        store_n<T>(out + i * out_row + j, f(load_n<T>(sums + i * sums_row + j, n)), n);
      });
  });
}

// out = silu(gates) * out
template <class T>
void gate_rows(const T* gates, ptrdiff_t gates_row, ptrdiff_t rows, ptrdiff_t count, T* out, ptrdiff_t out_row) {
  for (ptrdiff_t i = 0; i < rows; ++i)
    for_each_vector<T>(count, [&](ptrdiff_t j, ptrdiff_t n) __attribute__((always_inline)) {
      T* const at = out + i * out_row + j;
      store_n<T>(at, silu<T>(load_n<T>(gates + i * gates_row + j, n)) * load_n<T>(at, n), n);
    });
}

// The part of what `parts` tiles fetch that `count` of them, from `part` on, fetch.
Prefetch part_of(const Prefetch& all, ptrdiff_t part, ptrdiff_t count, ptrdiff_t parts) {
  const ptrdiff_t lines = ceil_div(all.lines, parts), first = min_of(all.lines, part * lines);
  return {all.at + 64 * first, min_of(lines * count, all.lines - first)};
}

// At most NR columns of W, where their products with a block of x go, and the gates of these.
template <class T> struct Panel {
  ptrdiff_t start, count;
  T* out;
  ptrdiff_t out_row;
  const T* gates = nullptr;  // in rows of NR
};

// Multiply `depth` inputs, from t on, of a block of x by those of a panel.
template <class T>
void multiply_panel(const LinearParams& params, Matrix<T> x, ptrdiff_t rows, ptrdiff_t t, ptrdiff_t depth,
                    const Panel<T>& panel, const PanelScratch<T>& scratch, const Prefetch& next) {
  const auto [start, count, out, out_row, gates] = panel;
  const ptrdiff_t width = params.is_packed ? NR : round_up(count, is_quantized(params) ? GROUP : LANES<T>);
  T* sums = count == width ? out : scratch.sums;  // a partial last vector would overwrite the output
  const ptrdiff_t sums_row = count == width ? out_row : width;
  const T* weights = scratch.weights;
  ptrdiff_t weights_row = width;
  if (params.is_packed) {
    weights = reinterpret_cast<const T*>(params.weight) + start * params.depth + t * NR;
  } else if (is_quantized(params)) {
    if constexpr (sizeof(T) == 4) dequantize_panel(params, t, depth, start, width, scratch.weights);
  } else if (packs_weights(params) || count < width) {
    pack_weights<T>(params, t, depth, start, count, width, scratch.weights);
  } else {
    weights = reinterpret_cast<const T*>(params.weight) + t * params.weight_row_stride + start;
    weights_row = params.weight_row_stride;
  }
  const bool is_last = t + depth >= params.depth;
  for (ptrdiff_t j = 0; j < width; ++j)  // x + -0 is x, whatever x
    scratch.bias[j] =
        is_last && params.bias && j < count ? reinterpret_cast<const T*>(params.bias)[start + j] : T(-0.0);
  const bool is_activated = is_last && (params.activation != Activation::identity || gates);
  const ptrdiff_t step = is_activated ? LINEAR_MR : rows;  // while in L1
  for (ptrdiff_t i = 0; i < rows; i += step) {
    const ptrdiff_t tile = min_of(step, rows - i);
    const Prefetch prefetch = part_of(next, i / LINEAR_MR, ceil_div(tile, LINEAR_MR), ceil_div(rows, LINEAR_MR));
    T* to = sums + i * sums_row;
    gemm<T>(t == 0 ? Epilogue::bias : Epilogue::add_bias,
            {x.block(i), tile, depth, weights, weights_row, to, sums_row, width, scratch.bias, nullptr, prefetch});
    if (is_last) activate_rows<T>(params.activation, to, sums_row, tile, count, out + i * out_row, out_row);
    if (is_last && gates) gate_rows<T>(gates + i * NR, NR, tile, count, out + i * out_row, out_row);
  }
}

// The tasks of dot products with quantized weights: first a long run of groups for each thread, which it reads as fast
// as memory gives them, and then short runs, which balance the threads.
struct GroupRuns {
  ptrdiff_t groups, long_run, threads, short_run;  // `threads` long runs

  explicit GroupRuns(const LinearParams& params)
      : groups(ceil_div(params.columns, GROUP)),
        long_run(groups * 2 / (3 * params.threads)),
        threads(long_run ? params.threads : 0),
        short_run(max_of<ptrdiff_t>(1, ceil_div(groups - long_run * threads, 4 * params.threads))) {}

  ptrdiff_t begin(ptrdiff_t task) const {
    return min_of(groups, min_of(task, threads) * long_run + max_of<ptrdiff_t>(0, task - threads) * short_run);
  }
  ptrdiff_t tasks() const { return threads + ceil_div(groups - threads * long_run, short_run); }
};

// The packed weights that a task, of `count` columns from `start` on, multiplies by after those of inputs t and column
// start + n: those that are gated, the next columns, the next inputs, or those of the next task.
template <class T>
Prefetch next_weights(const LinearParams& params, ptrdiff_t t, ptrdiff_t n, bool is_gate, ptrdiff_t start,
                      ptrdiff_t count) {
  if (!params.is_packed) return {};
  const ptrdiff_t depth = panel_depth(params);
  if (is_gate) {
    start += params.output_columns();
  } else {
    if (n += NR; n >= count) n = 0, t += depth;
    if (t >= params.depth) t = 0, start += ceil_div(params.threads, row_blocks(params)) * columns_per_task(params);
    if (start + n >= params.output_columns()) return {};
  }
  const ptrdiff_t inputs = min_of(depth, params.depth - t);
  return {params.weight + ((start + n) * params.depth + t * NR) * ptrdiff_t(sizeof(T)),
          ceil_div(inputs * NR * ptrdiff_t(sizeof(T)), 64)};
}

template <class T>
void gemm_block(const LinearParams& params, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count,
                void* memory) {
  Scratch scratch(memory);
  PanelScratch<T> buffers(params, scratch);
  const Matrix<T> x =
      Matrix<T>{reinterpret_cast<const T*>(params.x), params.x_row_stride, params.x_col_stride}.block(first);
  const ptrdiff_t columns = params.output_columns();
  ptrdiff_t t = 0;
  do {
    const ptrdiff_t depth = min_of(panel_depth(params), params.depth - t);
    const auto multiply = [&](ptrdiff_t n, bool is_gate, const Panel<T>& panel) {
      multiply_panel<T>(params, x.block(0, t), rows, t, depth, panel, buffers,
                        next_weights<T>(params, t, n, is_gate, start, count));
    };
    for (ptrdiff_t n = 0; n < count; n += NR) {
      const ptrdiff_t width = min_of(NR, count - n);
      T* const out = reinterpret_cast<T*>(params.output) + first * columns + start + n;
      T* const gates = params.is_gated ? buffers.gates + n * MC : nullptr;
      if (gates) multiply(n, true, {start + n, width, gates, NR});
      multiply(n, false, {start + n + (gates ? columns : 0), width, out, columns, gates});
    }
    t += depth;
  } while (t < params.depth);
}

template <class T> void pack_panel(const PackParams& params, ptrdiff_t panel) {
  const ptrdiff_t start = max_of(params.first_column, panel * NR),
                  stop = min_of(params.first_column + params.columns, (panel + 1) * NR);
  pack_columns<T>(reinterpret_cast<const T*>(params.weight) + (start - params.first_column) * params.weight_col_stride,
                  params.weight_row_stride, params.weight_col_stride, stop - start, params.depth,
                  reinterpret_cast<T*>(params.panels) + panel * NR * params.depth + start % NR, NR);
}

// Inputs of a task of a product with W^T, whole parts of blocks: fewer where there would be no task for each thread.
ptrdiff_t inputs_per_task(const LinearParams& params) {
  ptrdiff_t inputs = TRANSPOSED_INPUTS;
  while (inputs > 32 && params.depth < inputs * params.threads) inputs /= 2;
  return inputs;
}

struct TransposedScratch {
  float *weights, *sums;

  explicit TransposedScratch(Scratch& scratch)
      : weights(scratch.allocate<float>(TRANSPOSED_OUTPUTS, TRANSPOSED_INPUTS)),
        sums(scratch.allocate<float>(MC, TRANSPOSED_INPUTS)) {}
};

// Columns of x W^T, `count` from `start` on, for a block of rows of x: a panel after the other of outputs of W.
void transposed_block(const LinearParams& params, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count,
                      void* memory) {
  Scratch scratch(memory);
  const TransposedScratch buffers(scratch);
  const Matrix<float> x =
      Matrix<float>{reinterpret_cast<const float*>(params.x), params.x_row_stride, params.x_col_stride}.block(first);
  const ptrdiff_t width = round_up(count, LANES<float>);
  ptrdiff_t n = 0;
  do {
    const ptrdiff_t depth = min_of(TRANSPOSED_OUTPUTS, params.columns - n);
    with_format(params.quantization, [&](auto format) {
      for (ptrdiff_t j = 0; j < depth; j += LANES<float>)
        dequantize_transposed<decltype(format)>(first_block(params, (n + j) / GROUP, int((n + j) % GROUP)), start,
                                                count, buffers.weights + j * width, width);
    });
    gemm<float>(n == 0 ? Epilogue::set : Epilogue::add,
                {x.block(0, n), rows, depth, buffers.weights, width, buffers.sums, width, width});
    n += depth;
  } while (n < params.columns);
  for (ptrdiff_t i = 0; i < rows; ++i)
    __builtin_memcpy(reinterpret_cast<float*>(params.output) + (first + i) * params.depth + start,
                     buffers.sums + i * width, size_t(count) * sizeof(float));
}

// The activation, or the gates, of `count` columns in fixed point, from `start` on.
void fixed_point_columns(const LinearParams& params, ptrdiff_t start, ptrdiff_t count, void* memory) {
  Scratch scratch(memory);
  const FixedPointScratch buffers(params, scratch);
  const ptrdiff_t columns = params.output_columns();
  float* out = reinterpret_cast<float*>(params.output) + start;
  with_fixed_point(params, [&](auto format) {
    const auto multiply = [&](ptrdiff_t first, float* to, ptrdiff_t to_row) {
      multiply_fixed_point<decltype(format)>(params, first, count, to, to_row, buffers.unpacked);
    };
    if (params.is_gated) multiply(start, buffers.gates, count);
    multiply(start + (params.is_gated ? columns : 0), out, columns);
  });
  if (params.is_gated) return gate_rows<float>(buffers.gates, count, params.rows, count, out, columns);
  activate_rows<float>(params.activation, out, columns, params.rows, count, out, columns);
}

// Add what a task has computed to the residual while it is in the caches.
template <class T>
void add_to_residual(const LinearParams& params, ptrdiff_t first, ptrdiff_t rows, ptrdiff_t start, ptrdiff_t count) {
  if (!params.residual) return;
  for (ptrdiff_t i = first; i < first + rows; ++i) {
    const T* from = reinterpret_cast<const T*>(params.output) + i * params.output_columns() + start;
    T* to = reinterpret_cast<T*>(params.residual) + i * params.output_columns() + start;
    for_each_vector<T>(count, [&](ptrdiff_t j, ptrdiff_t n) __attribute__((always_inline)) {
      store_n<T>(to + j, load_n<T>(to + j, n) + load_n<T>(from + j, n), n);
    });
  }
}

template <class T> void run_task(const LinearParams& params, ptrdiff_t task, void* memory) {
  const ptrdiff_t blocks = row_blocks(params);
  const ptrdiff_t height = min_of(MC, round_up(ceil_div(params.rows, blocks), LINEAR_MR));  // of equal size
  const ptrdiff_t first = task % blocks * height, rows = min_of(height, params.rows - first);
  if (params.is_transposed) {
    const ptrdiff_t inputs = inputs_per_task(params), start = task / blocks * inputs;
    if (rows > 0) transposed_block(params, first, rows, start, min_of(inputs, params.depth - start), memory);
    return;
  }
  ptrdiff_t start = task / blocks * columns_per_task(params), stop = start + columns_per_task(params);
  if (uses_group_runs(params)) {
    const GroupRuns runs(params);
    start = runs.begin(task) * GROUP, stop = runs.begin(task + 1) * GROUP;
  }
  const ptrdiff_t count = min_of(stop, params.output_columns()) - start;
  if (uses_fixed_point(params)) {
    fixed_point_columns(params, start, count, memory);
    return add_to_residual<float>(params, 0, params.rows, start, count);
  }
  if (uses_gemv(params)) {
    if (is_quantized(params)) {
      Scratch scratch(memory);
      const GemvScratch buffers(params, scratch);
      if constexpr (sizeof(T) == 4)
        with_format(params.quantization,
                    [&](auto format) { quantized_gemv<decltype(format)>(params, start, count, buffers.x_sums); });
    } else if (params.rows == 1)
      gemv<T, 1>(params, start, count);
    else
      gemv<T, GEMV_ROWS<T>>(params, start, count);
    T* out = reinterpret_cast<T*>(params.output) + start;
    activate_rows<T>(params.activation, out, params.columns, params.rows, count, out, params.columns);
    return add_to_residual<T>(params, 0, params.rows, start, count);
  }
  if (rows <= 0) return;
  gemm_block<T>(params, first, rows, start, count, memory);
  add_to_residual<T>(params, first, rows, start, count);
}

}  // namespace

ptrdiff_t linear_tasks(const LinearParams& params) {
  if (!params.rows) return 0;
  if (params.is_transposed) return product(ceil_div(params.depth, inputs_per_task(params)), row_blocks(params));
  if (uses_group_runs(params)) return GroupRuns(params).tasks();
  return product(ceil_div(params.output_columns(), columns_per_task(params)), row_blocks(params));
}

// Few tasks would keep fewer threads busy than those of the product alone.
bool supports_swiglu(const LinearParams& params) {
  const ptrdiff_t unit = params.is_packed ? NR : is_quantized(params) ? GROUP : 0;  // of which both halves are whole
  return unit && !uses_gemv(params) && params.columns % (2 * unit) == 0 && linear_tasks(params) >= params.threads &&
         params.activation == Activation::identity && !params.residual;
}

size_t linear_scratch(const LinearParams& params) {
  Scratch scratch(nullptr);
  if (params.is_transposed)
    TransposedScratch{scratch};
  else if (uses_fixed_point(params))
    FixedPointScratch(params, scratch);
  else if (uses_gemv(params))
    GemvScratch(params, scratch);
  else if (params.dtype == DType::float64)
    PanelScratch<double>(params, scratch);
  else
    PanelScratch<float>(params, scratch);
  return scratch.used();
}

size_t fixed_point_bytes(const LinearParams& params) {
  size_t bytes = 0;
  if (uses_fixed_point(params))
    with_fixed_point(params, [&](auto format) {
      constexpr int PART = decltype(format)::PART;
      bytes = size_t(params.depth / PART) * sizeof(FixedPart<PART>);
    });
  return bytes;
}

void to_fixed_point(const LinearParams& params, ptrdiff_t row) {
  with_fixed_point(params, [&](auto format) {
    typedef decltype(format) Format;
    const float* x = reinterpret_cast<const float*>(params.x) + row * params.x_row_stride;
    const ptrdiff_t parts = params.depth / Format::PART;
    auto* to = reinterpret_cast<FixedPart<Format::PART>*>(params.fixed_x) + row * parts;
    for (ptrdiff_t p = 0; p < parts; ++p) to_fixed_point<Format>(x + p * Format::PART, to + p);
  });
}

void pack(const PackParams& params, ptrdiff_t panel) {
  params.dtype == DType::float64 ? pack_panel<double>(params, panel) : pack_panel<float>(params, panel);
}

// Interleave the blocks of the outputs of a group; outputs that do not exist are zeros.
void pack_group(const QuantizedPackParams& params, ptrdiff_t group) {
  with_format(params.quantization, [&](auto format) {
    typedef decltype(format) Format;
    const ptrdiff_t blocks = params.depth / Format::INPUTS, stride = block_layout(params.quantization).bytes();
    char* to = params.groups + group * group_bytes(params.quantization, params.depth);
    uint16_t* halves = reinterpret_cast<uint16_t*>(to);
    uint32_t* words = reinterpret_cast<uint32_t*>(to + group_halves_bytes(params.quantization, params.depth));
    __builtin_memset(to, 0, size_t(group_bytes(params.quantization, params.depth)));
    for (ptrdiff_t lane = 0; lane < min_of(GROUP, params.columns - group * GROUP); ++lane) {
      const char* from = params.blocks + (group * GROUP + lane) * params.row_stride;
      for (ptrdiff_t block = 0; block < blocks; ++block, from += stride) {
        for (int field = 0; field < Format::HALVES; ++field)
          __builtin_memcpy(halves + (block * Format::HALVES + field) * GROUP + lane,
                           from + Format::FIRST_HALF + 2 * field, 2);
        for (int field = 0; field < Format::WORDS; ++field)
          __builtin_memcpy(words + (block * Format::WORDS + field) * GROUP + lane,
                           from + Format::FIRST_WORD + 4 * field, 4);
      }
    }
  });
}

void linear(const LinearParams& params, ptrdiff_t task, void* scratch) {
  params.dtype == DType::float64 ? run_task<double>(params, task, scratch) : run_task<float>(params, task, scratch);
}

}  // namespace regard::REGARD_ISA
