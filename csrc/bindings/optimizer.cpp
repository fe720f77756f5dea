// Python bindings of the optimizer: flat arrays, updated in place.
#include <numeric>

#include "bindings/linear.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

void check_flat(const char* name, const WritableArray& x, size_t size, DType dtype) {
  check_dtype(name, x, dtype);
  if (x.ndim() != 1 || x.shape(0) != size || !is_contiguous(x)) throw_invalid(name, "must be flat, as x is");
}

char* data_of(const WritableArray& x) { return static_cast<char*>(x.data()); }

void adamw(const WritableArray& x, const WritableArray& gradient, const WritableArray& first,
           const WritableArray& second, ptrdiff_t decayed, double scale, double decay, double beta1, double beta2,
           double size_of_step, double root, double eps) {
  AdamWParams params;
  params.dtype = dtype_of("x", x);
  for (const WritableArray* array : {&x, &gradient, &first, &second})
    check_flat("an array", *array, x.size(), params.dtype);
  params.size = ptrdiff_t(x.size()), params.decayed = decayed;
  params.x = data_of(x), params.gradient = data_of(gradient);
  params.first = data_of(first), params.second = data_of(second);
  params.scale = scale, params.decay = decay, params.beta1 = beta1, params.beta2 = beta2;
  params.size_of_step = size_of_step, params.root = root, params.eps = eps;
  const KernelTable& isa = kernels();
  run_tasks(isa.flat_tasks(params.size), 20 * double(params.size), 0,
            [&](ptrdiff_t task, void*) { isa.adamw(params, task); });
}

// The sum of the squares of a flat array.
double square_sum(const WritableArray& x) {
  const DType dtype = dtype_of("x", x);
  check_flat("x", x, x.size(), dtype);
  const ptrdiff_t size = ptrdiff_t(x.size());
  const KernelTable& isa = kernels();
  std::vector<double> sums(size_t(isa.flat_tasks(size)));
  run_tasks(ptrdiff_t(sums.size()), double(size), 0,
            [&](ptrdiff_t task, void*) { sums[size_t(task)] = isa.square_sum(data_of(x), dtype, size, task); });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

void bind_optimizer(nb::module_& m) {
  m.def("adamw", &adamw, "x"_a, "gradient"_a, "first"_a, "second"_a, "decayed"_a, "scale"_a, "decay"_a, "beta1"_a,
        "beta2"_a, "size_of_step"_a, "root"_a, "eps"_a);
  m.def("square_sum", &square_sum, "x"_a);
}

}  // namespace regard
