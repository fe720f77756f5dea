// What stands around attention in a transformer: softmax, norms, bends and rotations, each in one go over the rows.
// In NumPy every step of these formulas is a pass over memory of its own.
#include "bends.h"
#include "lines.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t TASK = 16384;  // numbers that are worth a thread

bool by_number(Around::What what) {  // each number by itself, so that a row can be cut
  switch (what) {
    case Around::gelu:
    case Around::gelu_tanh:
    case Around::silu:
    case Around::swiglu: return true;
    default: return false;
  }
}

ptrdiff_t columns_of_task(const Around& call) {
  return by_number(call.what) ? smaller<ptrdiff_t>(call.columns, TASK) : call.columns;
}
ptrdiff_t rows_of_task(const Around& call) { return larger<ptrdiff_t>(1, TASK / larger<ptrdiff_t>(1, call.columns)); }

// Scores shifted by the largest; one of +infinity counts as the largest number, next to which others vanish.
template <class T> void softmax(const T* x, ptrdiff_t columns, T* out) {
  V<T> tops = splat(-INFINITE<T>);
  T top = -INFINITE<T>;
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    if (count == LANES<T>) tops = at_least<T>(load<T>(x + j), tops);
    else for (ptrdiff_t i = j; i < j + count; ++i) top = x[i] < top ? top : x[i];
  });
  const T both = maximum<T>(tops), highest = top < both || both != both ? both : top;
  const V<T> shift = splat(highest == -INFINITE<T> ? T(0) : highest > LARGEST<T> ? LARGEST<T> : highest);
  const double total = sum_over<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    V<T> some = load_up_to<T>(x + j, count);
    some = exp<T>(at_most<T>(some, splat(LARGEST<T>)) - shift);
    store_up_to<T>(out + j, some, count);
    return count == LANES<T> ? some : load_some<T>(out + j, count);
  });
  const T divisor = total == 0 ? T(1) : T(total);
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    store_up_to<T>(out + j, load_up_to<T>(out + j, count) / divisor, count);
  });
}

// (x - mean) / sqrt(variance + eps) * weight + bias; without `centred` the mean counts as 0.
template <class T, bool centred>
void norm(const T* x, const T* residual, ptrdiff_t columns, double eps, const T* weight, const T* bias, T* out) {
  if (residual) {
    for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
      store_up_to<T>(out + j, load_up_to<T>(x + j, count) + load_up_to<T>(residual + j, count), count);
    });
    x = out;
  }
  T mean = 0;
  if (centred)
    mean = T(sum_over<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
             return load_up_to<T>(x + j, count);
           }) / double(columns));
  const double squares = sum_over<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    const V<T> away = load_up_to<T>(x + j, count) - mean;
    V<T> square = away * away;
    for (ptrdiff_t i = count; i < LANES<T>; ++i) square[i] = 0;
    return square;
  });
  const T grown = T(1 / __builtin_sqrt(squares / double(columns) + eps));
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    V<T> normal = (load_up_to<T>(x + j, count) - mean) * grown;
    if (weight) normal *= load_up_to<T>(weight + j, count);
    if (bias) normal += load_up_to<T>(bias + j, count);
    store_up_to<T>(out + j, normal, count);
  });
}

template <class T, class F>
REGARD_INLINE void bend(const T* x, const T* bias, ptrdiff_t columns, T* out, F f) {
  for_each_vector<T>(columns, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
    V<T> some = load_up_to<T>(x + j, count);
    if (bias) some += load_up_to<T>(bias + j, count);
    store_up_to<T>(out + j, f(j, count, some), count);
  });
}

// Each pair (a, b) to (a cos - b sin, a sin + b cos), `a` and `b` so many numbers apart.
template <class T>
void turn(const T* x, ptrdiff_t columns, const T* cos, const T* sin, ptrdiff_t half, bool neighbours, T* out) {
  if (neighbours) {
    for (ptrdiff_t j = 0; j < half; ++j) {
      const T a = x[2 * j], b = x[2 * j + 1];
      out[2 * j] = a * cos[j] - b * sin[j];
      out[2 * j + 1] = a * sin[j] + b * cos[j];
    }
  } else {
    for_each_vector<T>(half, [&](ptrdiff_t j, ptrdiff_t count) __attribute__((always_inline)) {
      const V<T> a = load_up_to<T>(x + j, count), b = load_up_to<T>(x + half + j, count);
      const V<T> c = load_up_to<T>(cos + j, count), s = load_up_to<T>(sin + j, count);
      store_up_to<T>(out + j, a * c - b * s, count);
      store_up_to<T>(out + half + j, a * s + b * c, count);
    });
  }
  for (ptrdiff_t j = 2 * half; j < columns; ++j) out[j] = x[j];
}

template <class T> struct Room {  // where rows are widened, one for each operand
  T *x, *other, *weight, *bias, *out;

  Room(const Around& call, Scratch& scratch)
      : x(scratch.take<T>(columns_of_task(call))),
        other(scratch.take<T>(columns_of_task(call))),
        weight(scratch.take<T>(columns_of_task(call))),
        bias(scratch.take<T>(columns_of_task(call))),
        out(scratch.take<T>(columns_of_task(call))) {}
};

template <class T> void row_of(const Around& call, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, Room<T>& room) {
  const auto line = [&](const Lines& x, ptrdiff_t length, T* widened) -> const T* {
    return x ? line_of<T>(x, row, start, length, widened) : nullptr;
  };
  const bool turns = call.what == Around::turn_halves || call.what == Around::turn_neighbours;
  const T* x = line(call.x, count, room.x);
  const T* other = line(call.other, count, room.other);
  const T* weight = line(call.weight, turns ? call.half : count, room.weight);
  const T* bias = line(call.bias, turns ? call.half : count, room.bias);
  T* out = line_for<T>(call.output, row, start, room.out);
  switch (call.what) {
    case Around::softmax: softmax<T>(x, count, out); break;
    case Around::layer_norm: norm<T, true>(x, other, count, call.eps, weight, bias, out); break;
    case Around::rms_norm: norm<T, false>(x, other, count, call.eps, weight, bias, out); break;
    case Around::gelu:
      bend<T>(x, bias, count, out, [](ptrdiff_t, ptrdiff_t, V<T> some) __attribute__((always_inline)) { return gelu<T>(some); });
      break;
    case Around::gelu_tanh:
      bend<T>(x, bias, count, out, [](ptrdiff_t, ptrdiff_t, V<T> some) __attribute__((always_inline)) { return gelu_tanh<T>(some); });
      break;
    case Around::silu:
      bend<T>(x, bias, count, out, [](ptrdiff_t, ptrdiff_t, V<T> some) __attribute__((always_inline)) { return silu<T>(some); });
      break;
    case Around::swiglu:  // `weight` is the bias of the other
      bend<T>(x, bias, count, out, [&](ptrdiff_t j, ptrdiff_t n, V<T> some) __attribute__((always_inline)) {
        V<T> up = load_up_to<T>(other + j, n);
        if (weight) up += load_up_to<T>(weight + j, n);
        return silu<T>(some) * up;
      });
      break;
    case Around::turn_halves:
    case Around::turn_neighbours:  // `weight` and `bias` are the cosines and the sines
      turn<T>(x, count, weight, bias, call.half, call.what == Around::turn_neighbours, out);
      break;
  }
  write_line<T>(out, call.output, row, start, count);
}

template <class T> void do_rows(const Around& call, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Room<T> room(call, scratch);
  const ptrdiff_t width = columns_of_task(call), pieces = blocks_of(call.columns, larger<ptrdiff_t>(width, 1));
  const ptrdiff_t height = rows_of_task(call), first = task / pieces * height, start = task % pieces * width;
  const ptrdiff_t last = smaller<ptrdiff_t>(call.rows, first + height);
  for (ptrdiff_t row = first; row < last; ++row)
    row_of<T>(call, row, start, smaller<ptrdiff_t>(width, call.columns - start), room);
}

}  // namespace

ptrdiff_t around_tasks(const Around& call) {
  if (!call.columns) return 0;
  return blocks_of(call.rows, rows_of_task(call)) * blocks_of(call.columns, columns_of_task(call));
}

size_t around_scratch(const Around& call) {
  Scratch scratch(nullptr);
  if (call.x.kind == Kind::float64) Room<double>(call, scratch);
  else Room<float>(call, scratch);
  return scratch.used();
}

void around(const Around& call, ptrdiff_t task, void* scratch) {
  call.x.kind == Kind::float64 ? do_rows<double>(call, task, scratch) : do_rows<float>(call, task, scratch);
}

}  // namespace regard::REGARD_ISA
