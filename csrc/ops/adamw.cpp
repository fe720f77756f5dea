// The update of AdamW, and the norm of the gradient: each number is read and written once.
#include "kernels.h"
#include "ops/strided_rows.h"

namespace regard::REGARD_ISA {
namespace {

constexpr ptrdiff_t NUMBERS_PER_TASK = 16384;

template <class T> REGARD_INLINE V<T> sqrt(V<T> x) {
  for (int i = 0; i < LANES<T>; ++i) x[i] = T(sizeof(T) == 4 ? __builtin_sqrtf(float(x[i])) : __builtin_sqrt(x[i]));
  return x;
}

template <class T> void update(const AdamWParams& params, ptrdiff_t start, ptrdiff_t stop) {
  T *x = reinterpret_cast<T*>(params.x) + start, *m = reinterpret_cast<T*>(params.first) + start,
    *v = reinterpret_cast<T*>(params.second) + start;
  const T* gradient = reinterpret_cast<const T*>(params.gradient) + start;
  const T decay = T(start < params.decayed ? params.decay : 1), scale = T(params.scale), root = T(params.root);
  const T from_g = T(1 - params.beta1), keep = T(params.beta2), from_squares = T(1 - params.beta2);
  const T eps = T(params.eps), size = T(params.size_of_step);
  for_each_vector<T>(stop - start, [&](ptrdiff_t j, ptrdiff_t n) __attribute__((always_inline)) {
    const V<T> g = load_n<T>(gradient + j, n) * scale, before = load_n<T>(m + j, n);
    const V<T> first = fma<T>(splat(from_g), g - before, before);
    const V<T> second = fma<T>(splat(keep), load_n<T>(v + j, n), from_squares * (g * g));
    store_n<T>(m + j, first, n);
    store_n<T>(v + j, second, n);
    const V<T> step = first / (sqrt<T>(second) / root + eps);
    store_n<T>(x + j, fma<T>(splat(-size), step, decay * load_n<T>(x + j, n)), n);
  });
}

}  // namespace

ptrdiff_t flat_tasks(ptrdiff_t size) { return ceil_div(size, NUMBERS_PER_TASK); }

void adamw(const AdamWParams& params, ptrdiff_t task) {
  const ptrdiff_t start = task * NUMBERS_PER_TASK, stop = min_of(params.size, start + NUMBERS_PER_TASK);
  const ptrdiff_t boundary = max_of(start, min_of(stop, params.decayed));
  const auto run = params.dtype == DType::float64 ? &update<double> : &update<float>;
  run(params, start, boundary);
  run(params, boundary, stop);
}

double square_sum(const char* x, DType dtype, ptrdiff_t size, ptrdiff_t task) {
  const ptrdiff_t start = task * NUMBERS_PER_TASK, count = min_of(size - start, NUMBERS_PER_TASK);
  const auto sum = [&](auto zero) {
    typedef decltype(zero) T;
    const T* from = reinterpret_cast<const T*>(x) + start;
    return sum_vectors<T>(count, [&](ptrdiff_t j, ptrdiff_t n, V<T> sum) __attribute__((always_inline)) {
      const V<T> a = load_n<T>(from + j, n);
      return fma<T>(a, a, sum);
    });
  };
  return dtype == DType::float64 ? sum(double()) : sum(float());
}

}  // namespace regard::REGARD_ISA
