// Row-wise operations: softmax, norms, activations, rotary embeddings, embeddings with their norm, sums. Each reads and
// writes its rows once, where NumPy passes over memory for every step of the formula.
#include "kernels.h"
#include "ops/activations.h"
#include "ops/strided_rows.h"
#include "runtime/scratch.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t ELEMENTS_PER_TASK = 16384;  // enough work to wake a thread

ptrdiff_t columns_per_task(const OpParams& params) {
  return is_elementwise(params.op) ? min_of<ptrdiff_t>(params.columns, ELEMENTS_PER_TASK) : params.columns;
}
ptrdiff_t rows_per_task(const OpParams& params) {
  return max_of<ptrdiff_t>(params.sums ? SUMMED_ROWS : 1, ELEMENTS_PER_TASK / max_of<ptrdiff_t>(1, params.columns));
}

// A vector of which only the first `count` elements count; the others become 0.
template <class T> REGARD_INLINE V<T> without_padding(V<T> x, ptrdiff_t count) {
  for (ptrdiff_t i = count; i < LANES<T>; ++i) x[i] = 0;
  return x;
}

// The largest element of a row.
template <class T> REGARD_INLINE T max_of_row(const T* x, ptrdiff_t columns) {
  V<T> lane_max = splat(-INF<T>);
  T tail_max = -INF<T>;
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    if (count == LANES<T>)
      lane_max = max<T>(load<T>(x + j), lane_max);
    else
      for (ptrdiff_t i = j; i < j + count; ++i) tail_max = x[i] < tail_max ? tail_max : x[i];
  });
  const T vector_max = reduce_max<T>(lane_max);
  return tail_max < vector_max || vector_max != vector_max ? vector_max : tail_max;
}

// Softmax of a row; +infinity counts as MAX_FINITE.
template <class T> void softmax(const T* x, ptrdiff_t columns, T* out) {
  const T row_max = max_of_row<T>(x, columns);
  const V<T> shift = splat(row_max == -INF<T> ? T(0) : row_max > MAX_FINITE<T> ? MAX_FINITE<T> : row_max);
  const double row_sum =
      sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum) __attribute__((always_inline)) {
        V<T> e = load_n<T>(x + j, count);
        e = exp<T>(min<T>(e, splat(MAX_FINITE<T>)) - shift);
        store_n<T>(out + j, e, count);
        return sum + (count == LANES<T> ? e : load_partial<T>(out + j, count));
      });
  const T divisor = row_sum == 0 ? T(1) : T(row_sum);
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    store_n<T>(out + j, load_n<T>(out + j, count) / divisor, count);
  });
}

// The maximum of a row and the sum of the exponentials of what the elements are less; +infinity counts as MAX_FINITE.
template <class T> void softmax_stats(const T* x, ptrdiff_t columns, T* out) {
  const T row_max = max_of_row<T>(x, columns);
  const V<T> shift = splat(row_max == -INF<T> ? T(0) : row_max > MAX_FINITE<T> ? MAX_FINITE<T> : row_max);
  out[0] = row_max;
  out[1] = T(sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum) __attribute__((always_inline)) {
    return sum + without_padding<T>(exp<T>(min<T>(load_n<T>(x + j, count), splat(MAX_FINITE<T>)) - shift), count);
  }));
}

// factor * exp(x - log_sum_exp), the softmax times a factor.
template <class T> void scaled_softmax(const T* x, ptrdiff_t columns, T log_sum_exp, T factor, T* out) {
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    store_n<T>(out + j, factor * exp<T>(load_n<T>(x + j, count) - log_sum_exp), count);
  });
}

// sums += x
template <class T> REGARD_INLINE void add_row(const T* x, ptrdiff_t columns, T* sums) {
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    store_n<T>(sums + j, load_n<T>(sums + j, count) + load_n<T>(x + j, count), count);
  });
}

template <class T> struct Moments {
  T mean, inverse_std;
};

template <class T, bool subtract_mean> REGARD_INLINE Moments<T> moments(const T* x, ptrdiff_t columns, double eps) {
  T mean = 0;
  if (subtract_mean)
    mean = T(sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum)
                                         __attribute__((always_inline)) { return sum + load_n<T>(x + j, count); }) /
             double(columns));
  const double squares =
      sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum) __attribute__((always_inline)) {
        const V<T> centered = without_padding<T>(load_n<T>(x + j, count) - mean, count);
        return fma<T>(centered, centered, sum);
      });
  return {mean, T(1 / __builtin_sqrt(squares / double(columns) + eps))};
}

// (x - mean) / sqrt(variance + eps) * weight + bias; without `subtract_mean` (RMS norm) the mean counts as 0.
template <class T, bool subtract_mean>
void norm(const T* x, const T* residual, ptrdiff_t columns, double eps, const T* weight, const T* bias, T* out) {
  if (residual) {
    for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
      store_n<T>(out + j, load_n<T>(x + j, count) + load_n<T>(residual + j, count), count);
    });
    x = out;
  }
  const auto [mean, inverse_std] = moments<T, subtract_mean>(x, columns, eps);
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    const V<T> normal = (load_n<T>(x + j, count) - mean) * inverse_std;
    const V<T> gain = weight ? load_n<T>(weight + j, count) : splat(T(1));
    const V<T> offset = bias ? load_n<T>(bias + j, count) : splat(T(-0.0));  // x + -0 is x, whatever x
    store_n<T>(out + j, fma<T>(normal, gain, offset), count);
  });
}

// The gradient of x for that of the norm, d, without residual: with n the norm without weight, and g = d * weight,
// (g - mean(g) - n * mean(g n)) / standard deviation. The gradients of weight and bias, d * n and d, are added to
// `sums`.
template <class T, bool subtract_mean>
void norm_vjp(const T* x, const T* d, ptrdiff_t columns, double eps, const T* weight, T* out, T* sums) {
  const auto [mean, inverse_std] = moments<T, subtract_mean>(x, columns, eps);
  const auto normal = [&](ptrdiff_t j, ptrdiff_t count)
                          __attribute__((always_inline)) { return (load_n<T>(x + j, count) - mean) * inverse_std; };
  const double sum_g =
      sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum) __attribute__((always_inline)) {
        V<T> g = load_n<T>(d + j, count);
        if (weight) g *= load_n<T>(weight + j, count);
        store_n<T>(out + j, g, count);  // rounded once, so that g of one feature is its mean
        return sum + without_padding<T>(g, count);
      });
  const double sum_gn =
      sum_vectors<T>(columns, [&](ptrdiff_t j, ptrdiff_t count, V<T> sum) __attribute__((always_inline)) {
        return fma<T>(load_n<T>(out + j, count), without_padding<T>(normal(j, count), count), sum);
      });
  const T mean_g = subtract_mean ? T(sum_g / double(columns)) : T(0), mean_gn = T(sum_gn / double(columns));
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    const V<T> n = normal(j, count);
    store_n<T>(out + j, fma<T>(n, splat(-mean_gn), load_n<T>(out + j, count) - mean_g) * inverse_std, count);
    if (sums) store_n<T>(sums + j, fma<T>(load_n<T>(d + j, count), n, load_n<T>(sums + j, count)), count);
  });
  if (sums) add_row<T>(d, columns, sums + columns);
}

template <class T, class F> REGARD_INLINE void apply(const T* x, const T* bias, ptrdiff_t columns, T* out, F f) {
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    V<T> y = load_n<T>(x + j, count);
    if (bias) y += load_n<T>(bias + j, count);
    store_n<T>(out + j, f(j, count, y), count);
  });
}

// Rotary embedding: each pair (a, b) becomes (a cos - b sin, a sin + b cos). The elements of a pair are neighbours
// (interleaved) or `pairs` apart.
template <class T>
void rope(const T* x, ptrdiff_t columns, const T* cos, const T* sin, ptrdiff_t pairs, bool interleaved, T* out) {
  if (interleaved) {
    for (ptrdiff_t j = 0; j < pairs; ++j) {
      const T a = x[2 * j], b = x[2 * j + 1];
      out[2 * j] = a * cos[j] - b * sin[j];
      out[2 * j + 1] = a * sin[j] + b * cos[j];
    }
  } else {
    for_each_vector<T>(pairs, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
      const V<T> a = load_n<T>(x + j, count), b = load_n<T>(x + pairs + j, count);
      const V<T> c = load_n<T>(cos + j, count), s = load_n<T>(sin + j, count);
      store_n<T>(out + j, fma<T>(-b, s, a * c), count);
      store_n<T>(out + pairs + j, fma<T>(a, s, b * c), count);
    });
  }
  for (ptrdiff_t j = 2 * pairs; j < columns; ++j) out[j] = x[j];
}

template <class T> struct RowScratch {  // buffers for converted rows, one for each operand
  T *x, *other, *weight, *bias, *out;

  RowScratch(const OpParams& params, Scratch& scratch)
      : x(scratch.allocate<T>(columns_per_task(params))),
        other(scratch.allocate<T>(columns_per_task(params))),
        weight(scratch.allocate<T>(columns_per_task(params))),
        bias(scratch.allocate<T>(columns_per_task(params))),
        out(scratch.allocate<T>(max_of<ptrdiff_t>(columns_per_task(params), 2))) {}
};

// Numbers of a row of `weight` and `bias`, for `count` numbers of x.
ptrdiff_t features_of_row(const OpParams& params, ptrdiff_t count) {
  switch (params.op) {
    case Op::rope_half:
    case Op::rope_interleaved: return params.pairs;
    case Op::scaled_softmax: return 1;
    default: return count;
  }
}

template <class T>
void run_row(const OpParams& params, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, RowScratch<T>& buffers, T* sums) {
  const auto input = [&](const StridedRows& operand, ptrdiff_t length, T* buffer) -> const T* {
    return operand ? row_ptr<T>(operand, row, start, length, buffer) : nullptr;
  };
  const ptrdiff_t features = features_of_row(params, count);
  const T* x = input(params.x, count, buffers.x);
  const T* other = input(params.other, count, buffers.other);
  const T* weight = input(params.weight, features, buffers.weight);
  const T* bias = input(params.bias, features, buffers.bias);
  if (params.op == Op::column_sums) return add_row<T>(x, count, sums + params.columns);
  T* out = output_row_ptr<T>(params.output, row, start, buffers.out);
  switch (params.op) {
    case Op::softmax: softmax<T>(x, count, out); break;
    case Op::layer_norm: norm<T, true>(x, other, count, params.eps, weight, bias, out); break;
    case Op::rms_norm: norm<T, false>(x, other, count, params.eps, weight, bias, out); break;
    case Op::layer_norm_vjp: norm_vjp<T, true>(x, other, count, params.eps, weight, out, sums); break;
    case Op::rms_norm_vjp: norm_vjp<T, false>(x, other, count, params.eps, weight, out, sums); break;
    case Op::column_sums: break;
    case Op::softmax_stats: softmax_stats<T>(x, count, out); break;
    case Op::scaled_softmax: scaled_softmax<T>(x, count, *weight, *bias, out); break;
    case Op::add:
      apply<T>(x, nullptr, count, out, [&](ptrdiff_t j, ptrdiff_t n, V<T> v) __attribute__((always_inline)) {
        return v + load_n<T>(other + j, n);
      });
      break;
#define REGARD_CASE(name)                                                                                   \
  case Op::name:                                                                                            \
    apply<T>(x, bias, count, out,                                                                           \
             [](ptrdiff_t, ptrdiff_t, V<T> v) __attribute__((always_inline)) { return name<T>(v); });       \
    break;                                                                                                  \
  case Op::name##_vjp:                                                                                      \
    apply<T>(x, nullptr, count, out, [&](ptrdiff_t j, ptrdiff_t n, V<T> v) __attribute__((always_inline)) { \
      return name##_derivative<T>(v) * load_n<T>(other + j, n);                                             \
    });                                                                                                     \
    break;
      REGARD_ACTIVATIONS(REGARD_CASE)
#undef REGARD_CASE
    case Op::swiglu:  // `weight` is the bias of `other`
      apply<T>(x, bias, count, out, [&](ptrdiff_t j, ptrdiff_t n, V<T> v) __attribute__((always_inline)) {
        V<T> up = load_n<T>(other + j, n);
        if (weight) up += load_n<T>(weight + j, n);
        return silu<T>(v) * up;
      });
      break;
    case Op::rope_half:
    case Op::rope_interleaved:  // `weight` and `bias` are cosines and sines
      rope<T>(x, count, weight, bias, params.pairs, params.op == Op::rope_interleaved, out);
      break;
  }
  store_row<T>(out, params.output, row, start, params.op == Op::softmax_stats ? 2 : count);
}

template <class T> void run_task(const OpParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  RowScratch<T> buffers(params, scratch);
  const ptrdiff_t width = columns_per_task(params), pieces = ceil_div(params.columns, max_of<ptrdiff_t>(width, 1));
  const ptrdiff_t height = rows_per_task(params), first = task / pieces * height, start = task % pieces * width;
  const ptrdiff_t last = min_of<ptrdiff_t>(params.rows, first + height);
  T* const sums = params.sums ? reinterpret_cast<T*>(params.sums) + task * 2 * params.columns : nullptr;
  for (ptrdiff_t j = 0; sums && j < 2 * params.columns; ++j) sums[j] = 0;
  for (ptrdiff_t row = first; row < last; ++row)
    run_row<T>(params, row, start, min_of<ptrdiff_t>(width, params.columns - start), buffers, sums);
}

template <class T> void embed_rows(const EmbedParams& params, ptrdiff_t first, ptrdiff_t stop) {
  constexpr ptrdiff_t PREFETCH_ROWS = 4;  // prefetch distance: a row is wherever its token is in the table
  const ptrdiff_t columns = params.columns;
  const auto array = [](const char* data) { return reinterpret_cast<const T*>(data); };
  const auto token = [&](ptrdiff_t row) { return array(params.token_embeddings) + params.ids[row] * columns; };
  for (ptrdiff_t row = first; row < stop; ++row) {
    const ptrdiff_t prefetched = row + PREFETCH_ROWS < stop ? columns : 0;
    for (ptrdiff_t j = 0; j < prefetched; j += 64 / ptrdiff_t(sizeof(T)))
      __builtin_prefetch(token(row + PREFETCH_ROWS) + j);
    T* const out = reinterpret_cast<T*>(params.output) + row * columns;
    const T *x = token(row), *position = array(params.position_embeddings) + row % params.num_positions * columns;
    for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
      store_n<T>(out + j, load_n<T>(x + j, count) + load_n<T>(position + j, count), count);
    });
    norm<T, true>(out, array(params.type_embedding), columns, params.eps, array(params.weight), array(params.bias),
                  out);
  }
}

}  // namespace

void embed(const EmbedParams& params, ptrdiff_t task) {
  const ptrdiff_t first = task * EMBED_ROWS_PER_TASK, stop = min_of(params.rows, first + EMBED_ROWS_PER_TASK);
  params.dtype == DType::float64 ? embed_rows<double>(params, first, stop) : embed_rows<float>(params, first, stop);
}

ptrdiff_t op_tasks(const OpParams& params) {
  if (!params.columns) return 0;
  return product(ceil_div(params.rows, rows_per_task(params)), ceil_div(params.columns, columns_per_task(params)));
}

size_t op_scratch(const OpParams& params) {
  Scratch scratch(nullptr);
  if (params.x.dtype == DType::float64)
    RowScratch<double>(params, scratch);
  else
    RowScratch<float>(params, scratch);
  return scratch.used();
}

void op(const OpParams& params, ptrdiff_t task, void* scratch) {
  params.x.dtype == DType::float64 ? run_task<double>(params, task, scratch) : run_task<float>(params, task, scratch);
}

}  // namespace regard::REGARD_ISA
