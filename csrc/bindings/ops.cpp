// Python bindings of the row-wise operations.
#include "bindings/ops.h"

#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

// Arrays whose axes before the last broadcast to those of the output. Half-precision arrays come as 16-bit integers;
// `half_dtype` is the type of their elements.
class RowArgs {
 public:
  RowArgs(const WritableArray& output, DType half_dtype) : output_(output), half_dtype_(half_dtype) {
    if (output.ndim() < 1 || output.ndim() > size_t(MAX_AXES))
      throw_invalid("the output", "has the wrong number of axes");
    for (size_t axis = 0; axis + 1 < output.ndim(); ++axis) count = product(count, output.shape(axis));
    columns = ptrdiff_t(output.shape(output.ndim() - 1));
  }

  ptrdiff_t count = 1, columns;

  StridedRows output() const { return make("the output", output_, columns); }
  StridedRows make(const char* name, const OptionalArray& x, ptrdiff_t length) const {
    return x ? make(name, *x, length) : StridedRows();
  }

  template <class X> StridedRows make(const char* name, const X& x, ptrdiff_t length) const {
    StridedRows operand;
    operand.dtype = x.dtype() == nb::dtype<double>()  ? DType::float64
                    : x.dtype() == nb::dtype<float>() ? DType::float32
                                                      : half_dtype_;
    check_dtype(name, x, operand.dtype);
    if (x.ndim() < 1 || x.ndim() > output_.ndim()) throw_invalid(name, "has the wrong number of axes");
    const size_t own = x.ndim() - 1, missing = output_.ndim() - x.ndim();
    if (ptrdiff_t(x.shape(own)) != length) throw_invalid(name, "has a last axis of the wrong length");
    operand.col_stride = length == 1 ? 1 : ptrdiff_t(x.stride(own));
    ptrdiff_t merged_length = 1;  // of the outermost axis so far; axes contiguous with it are merged
    for (size_t axis = output_.ndim() - 1; axis-- > 0;) {
      const ptrdiff_t wanted = ptrdiff_t(output_.shape(axis));
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
  const WritableArray& output_;
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
  params.output = rows.output();
  for (const StridedRows* operand : {&params.other, &params.weight, &params.bias, &params.output})
    if (*operand && compute_dtype(operand->dtype) != compute_dtype(params.x.dtype))
      throw_invalid("an array", "has the wrong dtype");
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

template <Op op>
void norm_vjp(const WritableArray& output, const Array& x, const Array& d, const OptionalArray& weight, double eps,
              DType half_dtype) {
  call_op(op, output, x, d, weight, {}, eps, half_dtype);
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
        half_dtype_arg);
  m.def("rms_norm_vjp", &norm_vjp<Op::rms_norm_vjp>, "output"_a, "x"_a, "d"_a, "weight"_a.none(), "eps"_a,
        half_dtype_arg);
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
