// Python bindings of the row-wise operations.
#include "bindings/ops.h"

#include <memory>

#include "bindings/linear.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

// Arrays whose axes before the last broadcast to those of one of them. Half-precision arrays come as 16-bit integers;
// `half_dtype` is the type of their elements.
class RowArgs {
 public:
  template <class X> RowArgs(const X& like, DType half_dtype) : half_dtype_(half_dtype) {
    if (like.ndim() < 1 || like.ndim() > size_t(MAX_AXES)) throw_invalid("an array", "has the wrong number of axes");
    for (size_t axis = 0; axis + 1 < like.ndim(); ++axis) {
      lead_.push_back(ptrdiff_t(like.shape(axis)));
      count = product(count, lead_.back());
    }
    columns = ptrdiff_t(like.shape(like.ndim() - 1));
  }

  ptrdiff_t count = 1, columns;

  StridedRows make(const char* name, const OptionalArray& x, ptrdiff_t length) const {
    return x ? make(name, *x, length) : StridedRows();
  }

  template <class X> StridedRows make(const char* name, const X& x, ptrdiff_t length) const {
    StridedRows operand;
    operand.dtype = x.dtype() == nb::dtype<double>()  ? DType::float64
                    : x.dtype() == nb::dtype<float>() ? DType::float32
                                                      : half_dtype_;
    check_dtype(name, x, operand.dtype);
    if (x.ndim() < 1 || x.ndim() > lead_.size() + 1) throw_invalid(name, "has the wrong number of axes");
    const size_t own = x.ndim() - 1, missing = lead_.size() - own;
    if (ptrdiff_t(x.shape(own)) != length) throw_invalid(name, "has a last axis of the wrong length");
    operand.col_stride = length == 1 ? 1 : ptrdiff_t(x.stride(own));
    ptrdiff_t merged_length = 1;  // of the outermost axis so far; axes contiguous with it are merged
    for (size_t axis = lead_.size(); axis-- > 0;) {
      const ptrdiff_t wanted = lead_[axis];
      const ptrdiff_t size = axis < missing ? 1 : ptrdiff_t(x.shape(axis - missing));
      if (size != wanted && size != 1) throw_invalid(name, "has an axis of the wrong length");
      if (wanted == 1) continue;
      const ptrdiff_t stride = size == 1 ? 0 : ptrdiff_t(x.stride(axis - missing));
      if (operand.axes && stride == product(operand.strides[0], merged_length)) {
        operand.shape[0] = merged_length = product(merged_length, wanted);
        continue;
      }
      for (int i = operand.axes++; i > 0; --i)
        operand.shape[i] = operand.shape[i - 1], operand.strides[i] = operand.strides[i - 1];
      operand.shape[0] = merged_length = wanted, operand.strides[0] = stride;
    }
    static char nothing;  // the data pointer of an empty array may be null
    operand.data = const_cast<char*>(static_cast<const char*>(static_cast<const void*>(x.data())));
    if (!operand.data) operand.data = &nothing;
    return operand;
  }

 private:
  Shape lead_;  // the axes before the last
  DType half_dtype_;
};

bool is_one_row(const StridedRows& x, ptrdiff_t columns) {
  return !x || (x.col_stride == 1 && (x.axes == 0 || (x.axes == 1 && x.strides[0] == columns)));
}

}  // namespace

void run_op(const OpParams& params) {
  const KernelTable& isa = kernels();
  const double cost = double(params.rows) * double(params.columns) * 20;  // about 20 operations an element
  run_tasks(isa.op_tasks(params), cost, isa.op_scratch(params),
            [&](ptrdiff_t task, void* scratch) { isa.op(params, task, scratch); });
}

namespace {

void check_compute_dtype(const OpParams& params) {
  for (const StridedRows* operand : {&params.other, &params.weight, &params.bias, &params.output})
    if (*operand && compute_dtype(operand->dtype) != compute_dtype(params.x.dtype))
      throw_invalid("an array", "has the wrong dtype");
}

void call_op(Op op, const WritableArray& output, const Array& x, const OptionalArray& other,
             const OptionalArray& weight, const OptionalArray& bias, double eps, DType half_dtype) {
  const bool is_rope = op == Op::rope_half || op == Op::rope_interleaved;
  const RowArgs rows(output, half_dtype);
  OpParams params;
  params.op = op, params.eps = eps, params.rows = rows.count, params.columns = rows.columns;
  if (is_rope) params.pairs = weight && weight->ndim() ? ptrdiff_t(weight->shape(weight->ndim() - 1)) : 0;
  if (2 * params.pairs > params.columns || (is_rope && !(weight && bias))) throw_invalid("cos", "does not fit");
  if (op == Op::swiglu && !other) throw_invalid("swiglu", "multiplies two arrays");
  const ptrdiff_t length = is_rope ? params.pairs : params.columns;
  params.x = rows.make("x", x, params.columns), params.other = rows.make("the other array", other, params.columns);
  params.weight = rows.make("weight", weight, length), params.bias = rows.make("bias", bias, length);
  params.output = rows.make("the output", output, params.columns);
  check_compute_dtype(params);
  if (is_elementwise(op) && !weight && !bias && is_one_row(params.x, params.columns) &&
      is_one_row(params.other, params.columns) && is_one_row(params.output, params.columns))
    params.columns = product(params.columns, params.rows), params.rows = 1;
  run_op(params);
}

template <Op op>
void activation_op(const WritableArray& output, const Array& x, const OptionalArray& bias, DType half_dtype) {
  call_op(op, output, x, {}, {}, bias, 0, half_dtype);
}

template <Op op> void activation_vjp(const WritableArray& output, const Array& x, const Array& d, DType half_dtype) {
  call_op(op, output, x, d, {}, {}, 0, half_dtype);
}

// Run an operation that sums over the rows of each task, and sum over the tasks: d_weight and d_bias.
template <class T>
void run_with_sums(OpParams params, const std::optional<WritableArray>& d_weight,
                   const std::optional<WritableArray>& d_bias) {
  char some;
  params.sums = &some;  // the number of tasks depends on whether there are sums
  const ptrdiff_t tasks = kernels().op_tasks(params);
  const std::unique_ptr<T[]> sums(new T[size_t(product(tasks, 2, params.columns))]);
  params.sums = reinterpret_cast<char*>(sums.get());
  run_op(params);
  const auto total = [&](const std::optional<WritableArray>& output, ptrdiff_t first) {
    if (!output) return;
    std::vector<double> totals(size_t(params.columns));
    for (ptrdiff_t task = 0; task < tasks; ++task)
      for (ptrdiff_t j = 0; j < params.columns; ++j) totals[size_t(j)] += sums[(2 * task + first) * params.columns + j];
    std::copy(totals.begin(), totals.end(), static_cast<T*>(output->data()));
  };
  total(d_weight, 0), total(d_bias, 1);
}

void run_with_sums(const OpParams& params, const std::optional<WritableArray>& d_weight,
                   const std::optional<WritableArray>& d_bias) {
  for (const auto* sums : {&d_weight, &d_bias})
    if (*sums) {
      check_dtype("sums", **sums, compute_dtype(params.x.dtype));
      if ((*sums)->ndim() != 1 || ptrdiff_t((*sums)->shape(0)) != params.columns || !is_contiguous(**sums))
        throw_invalid("sums", "need an element for each column");
    }
  compute_dtype(params.x.dtype) == DType::float64 ? run_with_sums<double>(params, d_weight, d_bias)
                                                  : run_with_sums<float>(params, d_weight, d_bias);
}

template <Op op>
void norm_vjp(const WritableArray& output, const Array& x, const Array& d, const OptionalArray& weight, double eps,
              const std::optional<WritableArray>& d_weight, const std::optional<WritableArray>& d_bias,
              DType half_dtype) {
  const RowArgs rows(output, half_dtype);
  OpParams params;
  params.op = op, params.eps = eps, params.rows = rows.count, params.columns = rows.columns;
  params.x = rows.make("x", x, params.columns), params.other = rows.make("d", d, params.columns);
  params.weight = rows.make("weight", weight, params.columns);
  params.output = rows.make("the output", output, params.columns);
  check_compute_dtype(params);
  d_weight || d_bias ? run_with_sums(params, d_weight, d_bias) : run_op(params);
}

// The sum of all rows.
void column_sums(const WritableArray& sums, const Array& x, DType half_dtype) {
  const RowArgs rows(x, half_dtype);
  OpParams params;
  params.op = Op::column_sums, params.rows = rows.count, params.columns = rows.columns;
  params.x = rows.make("x", x, params.columns);
  run_with_sums(params, {}, sums);
}

// Of each row of x the maximum, and the sum of the exponentials of what its elements are less.
void softmax_stats(const WritableArray& stats, const Array& x, DType half_dtype) {
  const RowArgs rows(x, half_dtype);
  OpParams params;
  params.op = Op::softmax_stats, params.rows = rows.count, params.columns = rows.columns;
  params.x = rows.make("x", x, params.columns), params.output = rows.make("stats", stats, 2);
  if (params.output.dtype != compute_dtype(params.x.dtype)) throw_invalid("stats", "has the wrong dtype");
  run_op(params);
}

// factor * exp(x - log_sum_exp); both have a last axis of length 1.
void scaled_softmax(const WritableArray& output, const Array& x, const Array& log_sum_exp, const Array& factor,
                    DType half_dtype) {
  const RowArgs rows(output, half_dtype);
  OpParams params;
  params.op = Op::scaled_softmax, params.rows = rows.count, params.columns = rows.columns;
  params.x = rows.make("x", x, params.columns);
  params.weight = rows.make("log_sum_exp", log_sum_exp, 1), params.bias = rows.make("factor", factor, 1);
  params.output = rows.make("the output", output, params.columns);
  check_compute_dtype(params);
  run_op(params);
}

template <Op op>
void norm_op(const WritableArray& output, const Array& x, const OptionalArray& residual, const OptionalArray& weight,
             const OptionalArray& bias, double eps, DType half_dtype) {
  call_op(op, output, x, residual, weight, bias, eps, half_dtype);
}

}  // namespace

void bind_ops(nb::module_& m) {
  const auto half_dtype_arg = "half_dtype"_a = DType::float16;
  m.def(
      "softmax",
      [](const WritableArray& output, const Array& x, DType half_dtype) {
        call_op(Op::softmax, output, x, {}, {}, {}, 0, half_dtype);
      },
      "output"_a, "x"_a, half_dtype_arg);
  m.def("layer_norm", &norm_op<Op::layer_norm>, "output"_a, "x"_a, "residual"_a.none(), "weight"_a.none(),
        "bias"_a.none(), "eps"_a, half_dtype_arg);
  m.def("rms_norm", &norm_op<Op::rms_norm>, "output"_a, "x"_a, "residual"_a.none(), "weight"_a.none(), "bias"_a.none(),
        "eps"_a, half_dtype_arg);
  m.def("layer_norm_vjp", &norm_vjp<Op::layer_norm_vjp>, "output"_a, "x"_a, "d"_a, "weight"_a.none(), "eps"_a,
        "d_weight"_a.none(), "d_bias"_a.none(), half_dtype_arg);
  m.def("rms_norm_vjp", &norm_vjp<Op::rms_norm_vjp>, "output"_a, "x"_a, "d"_a, "weight"_a.none(), "eps"_a,
        "d_weight"_a.none(), "d_bias"_a.none(), half_dtype_arg);
  m.def(
      "add",
      [](const WritableArray& output, const Array& x, const Array& y, DType half_dtype) {
        call_op(Op::add, output, x, y, {}, {}, 0, half_dtype);
      },
      "output"_a, "x"_a, "y"_a, half_dtype_arg);
  m.def("column_sums", &column_sums, "sums"_a, "x"_a, half_dtype_arg);
  m.def("softmax_stats", &softmax_stats, "stats"_a, "x"_a, half_dtype_arg);
  m.def("scaled_softmax", &scaled_softmax, "output"_a, "x"_a, "log_sum_exp"_a, "factor"_a, half_dtype_arg);
#define REGARD_BIND(name)                                                                     \
  m.def(#name, &activation_op<Op::name>, "output"_a, "x"_a, "bias"_a.none(), half_dtype_arg); \
  m.def(#name "_vjp", &activation_vjp<Op::name##_vjp>, "output"_a, "x"_a, "d"_a, half_dtype_arg);
  REGARD_ACTIVATIONS(REGARD_BIND)
#undef REGARD_BIND
  m.def(
      "swiglu",
      [](const WritableArray& output, const Array& gate, const Array& up, const OptionalArray& gate_bias,
         const OptionalArray& up_bias,
         DType half_dtype) { call_op(Op::swiglu, output, gate, up, up_bias, gate_bias, 0, half_dtype); },
      "output"_a, "gate"_a, "up"_a, "gate_bias"_a.none(), "up_bias"_a.none(), half_dtype_arg);
  m.def(
      "apply_rotary",
      [](const WritableArray& output, const Array& x, const Array& cos, const Array& sin, bool interleaved,
         DType half_dtype) {
        call_op(interleaved ? Op::rope_interleaved : Op::rope_half, output, x, {}, cos, sin, 0, half_dtype);
      },
      "output"_a, "x"_a, "cos"_a, "sin"_a, "interleaved"_a, half_dtype_arg);
}

}  // namespace regard
