// Python bindings of the linear map, of weight packing and of the fused tail of an encoder block.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings/linear.h"
#include "bindings/ops.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

DType dtype_of(const char* name, const Array& x) {
  const DType dtype = x.dtype() == nb::dtype<double>() ? DType::float64 : DType::float32;
  check_dtype(name, x, dtype);
  return dtype;
}

// Pack a weight, inputs x outputs, into panels, beginning at column `first_column`.
void pack(const WritableArray& panels, const Array& weight, ptrdiff_t first_column) {
  if (panels.ndim() != 3 || weight.ndim() != 2) throw_invalid("panels and weight", "need three axes and two");
  PackParams params;
  params.dtype = dtype_of("weight", weight);
  check_dtype("panels", panels, params.dtype);
  params.depth = ptrdiff_t(weight.shape(0)), params.columns = ptrdiff_t(weight.shape(1)),
  params.first_column = first_column;
  if (ptrdiff_t(panels.shape(1)) != params.depth || ptrdiff_t(panels.shape(2)) != NR || first_column < 0 ||
      first_column > ptrdiff_t(panels.shape(0)) * NR - params.columns)
    throw_invalid("the shapes", "do not fit");
  if (!is_contiguous(panels)) throw_invalid("panels", "must be contiguous");
  if (!params.depth || !params.columns) return;
  params.weight = data_ptr(weight), params.weight_row_stride = stride_of(weight, 0),
  params.weight_col_stride = stride_of(weight, 1);
  params.panels = static_cast<char*>(panels.data());
  const ptrdiff_t begin = first_panel(params), count = ceil_div(first_column + params.columns, NR) - begin;
  const KernelTable& isa = kernels();
  run_tasks(count, 8 * double(params.depth) * double(params.columns), 0,
            [&](ptrdiff_t task, void*) { isa.pack(params, begin + task); });
}

// The number of rows of x; the output must have the same axes before the last.
ptrdiff_t num_rows(const WritableArray& output, const Array& x) {
  if (x.ndim() == 0 || output.ndim() != x.ndim()) throw_invalid("x and the output", "need the same number of axes");
  ptrdiff_t rows = 1;
  for (size_t axis = 0; axis + 1 < x.ndim(); ++axis) {
    if (x.shape(axis) != output.shape(axis)) throw_invalid("x and the output", "have different shapes");
    rows = product(rows, x.shape(axis));
  }
  return rows;
}

// x and the output are contiguous, with any axes before the last.
void linear(const WritableArray& output, const Array& x, const Array& weight, const OptionalArray& bias,
            Activation activation, const std::string& quantization) {
  const ptrdiff_t rows = num_rows(output, x), columns = last_axis(output);
  const LinearParams params = linear_params(weight, bias, activation, dtype_of("x", x), last_axis(x), columns,
                                            quantization_named(quantization));
  check_dtype("the output", output, params.dtype);
  if (!rows || !columns) return;  // an empty array may have any strides
  if (!is_contiguous(x) || !is_contiguous(output)) throw_invalid("x and the output", "must be contiguous");
  run_linear(params, rows, data_ptr(x), static_cast<char*>(output.data()));
}

// Pack quantized weights, a row of blocks for each of `columns`, into groups.
void pack_quantized(const WritableArray& groups, const Array& blocks, const std::string& quantization) {
  const auto check_bytes = [](const char* name, const auto& x) {
    if (x.ndim() != 2 || x.dtype() != nb::dtype<uint8_t>() || stride_of(x, 1) != 1)
      throw_invalid(name, "must be rows of contiguous bytes");
  };
  check_bytes("blocks", blocks);
  check_bytes("groups", groups);
  QuantizedPackParams params;
  params.quantization = quantization_named(quantization);
  if (params.quantization == Quantization::none) throw_invalid("the quantization", "has no blocks");
  const BlockLayout block = block_layout(params.quantization);
  params.columns = ptrdiff_t(blocks.shape(0)), params.depth = ptrdiff_t(blocks.shape(1)) / block.bytes() * block.inputs;
  if (ptrdiff_t(blocks.shape(1)) % block.bytes() || !is_contiguous(groups) ||
      ptrdiff_t(groups.shape(0)) != ceil_div(params.columns, GROUP) ||
      ptrdiff_t(groups.shape(1)) != group_bytes(params.quantization, params.depth))
    throw_invalid("the shapes", "do not fit");
  if (!params.depth || !params.columns) return;
  params.blocks = data_ptr(blocks), params.row_stride = stride_of(blocks, 0);
  params.groups = static_cast<char*>(groups.data());
  const KernelTable& isa = kernels();
  run_tasks(ptrdiff_t(groups.shape(0)), double(blocks.size()), 0,
            [&](ptrdiff_t task, void*) { isa.pack_group(params, task); });
}

struct Norm {
  Array weight, bias;
  double eps;

  // norm(x + residual), all contiguous.
  void operator()(ptrdiff_t rows, const char* x, const char* residual, char* output, DType dtype) const {
    OpParams params;
    params.op = Op::layer_norm, params.rows = rows, params.columns = ptrdiff_t(weight.shape(0)), params.eps = eps;
    const auto rows_at = [&](const char* data, int axes) {
      StridedRows found;
      found.data = const_cast<char*>(data), found.axes = axes, found.dtype = dtype;
      found.shape[0] = rows, found.strides[0] = params.columns;
      return found;
    };
    params.x = rows_at(x, 1), params.other = rows_at(residual, 1), params.output = rows_at(output, 1);
    params.weight = rows_at(data_ptr(weight), 0), params.bias = rows_at(data_ptr(bias), 0);
    run_op(params);
  }

  void check(ptrdiff_t columns, DType dtype) const {
    for (const Array* x : {&weight, &bias}) {
      check_dtype("a norm's array", *x, dtype);
      if (x->ndim() != 1 || ptrdiff_t(x->shape(0)) != columns || stride_of(*x, 0) != 1)
        throw_invalid("a norm's array", "does not fit");
    }
  }
};

// Everything after the heads of an encoder block with norms after its sublayers (post-norm): output projection,
// residual and norm, feed-forward, residual and norm. Weights are packed. It is one call, because interpreter code is
// evicted from cache between calls.
class FusedBlockTail {
 public:
  FusedBlockTail(Array out, OptionalArray out_bias, Norm attn_norm, Array up, OptionalArray up_bias,
                 Activation activation, Array down, OptionalArray down_bias, Norm mlp_norm)
      : weights_{out, up, down}, biases_{out_bias, up_bias, down_bias}, attn_norm_(attn_norm), mlp_norm_(mlp_norm) {
    for (const Array& weight : weights_)
      if (weight.ndim() != 3) throw_invalid("the weights", "must be packed");
    const DType dtype = dtype_of("the weights", out);
    const ptrdiff_t width = ptrdiff_t(up.shape(1)), hidden = ptrdiff_t(down.shape(1));
    out_ = linear_params(out, out_bias, Activation::identity, dtype, ptrdiff_t(out.shape(1)), width);
    up_ = linear_params(up, up_bias, activation, dtype, width, hidden);
    down_ = linear_params(down, down_bias, Activation::identity, dtype, hidden, width);
    attn_norm_.check(width, dtype);
    mlp_norm_.check(width, dtype);
  }

  void operator()(const WritableArray& output, const Array& context, const Array& x) const {
    const ptrdiff_t rows = num_rows(output, x), width = out_.columns;
    const DType dtype = out_.dtype;
    if (num_rows(output, context) != rows || last_axis(x) != width || last_axis(output) != width ||
        last_axis(context) != out_.depth)
      throw_invalid("the shapes", "do not fit");
    check_dtype("the context", context, dtype);
    check_dtype("x", x, dtype);
    check_dtype("the output", output, dtype);
    if (!is_contiguous(output) || !is_contiguous(context) || !is_contiguous(x))
      throw_invalid("context, x and the output", "must be contiguous");
    if (!rows || !width) return;
    const TemporaryBuffer sum(rows, width, dtype), middle(rows, width, dtype), hidden(rows, up_.columns, dtype);
    run_linear(out_, rows, data_ptr(context), sum);
    attn_norm_(rows, data_ptr(x), sum, middle, dtype);
    run_linear(up_, rows, middle, hidden);
    run_linear(down_, rows, hidden, sum);
    mlp_norm_(rows, middle, sum, static_cast<char*>(output.data()), dtype);
  }

 private:
  const Array weights_[3];  // keep the memory of the linear maps alive
  const OptionalArray biases_[3];
  LinearParams out_, up_, down_;
  Norm attn_norm_, mlp_norm_;
};

}  // namespace

Quantization quantization_named(const std::string& name) {
  if (name == "none") return Quantization::none;
#define REGARD_CASE(known, inputs, halves, words) \
  if (name == #known) return Quantization::known;
  REGARD_QUANTIZATIONS(REGARD_CASE)
#undef REGARD_CASE
  throw_invalid("the quantization", "is unknown");
}

LinearParams linear_params(const Array& weight, const OptionalArray& bias, Activation activation, DType dtype,
                           ptrdiff_t depth, ptrdiff_t columns, Quantization quantization) {
  LinearParams params;
  params.dtype = dtype, params.activation = activation, params.depth = depth, params.columns = columns;
  params.quantization = quantization;
  const auto has_shape = [&](std::initializer_list<ptrdiff_t> shape) {
    size_t axis = 0;
    bool fits = weight.ndim() == shape.size();
    for (const ptrdiff_t length : shape) fits = fits && ptrdiff_t(weight.shape(axis++)) == length;
    return fits;
  };
  bool fits;
  if (quantization != Quantization::none) {
    fits = dtype == DType::float32 && weight.dtype() == nb::dtype<uint8_t>() && is_contiguous(weight) &&
           depth % block_layout(quantization).inputs == 0 &&
           has_shape({ceil_div(columns, GROUP), group_bytes(quantization, depth)});
  } else {
    check_dtype("weight", weight, dtype);
    params.is_packed = weight.ndim() == 3;
    fits = params.is_packed ? has_shape({ceil_div(columns, NR), depth, NR}) && is_contiguous(weight)
                            : has_shape({depth, columns});
  }
  if (bias) check_dtype("bias", *bias, dtype);
  if (!fits || depth < 0 || columns < 0 || (bias && (bias->ndim() != 1 || ptrdiff_t(bias->shape(0)) != columns)))
    throw_invalid("the shapes", "do not fit");
  if (bias && stride_of(*bias, 0) != 1) throw_invalid("bias", "must be contiguous");
  params.weight = data_ptr(weight), params.bias = bias ? data_ptr(*bias) : nullptr;
  params.weight_row_stride = ptrdiff_t(weight.stride(0)), params.weight_col_stride = ptrdiff_t(weight.stride(1));
  return params;
}

void run_linear(LinearParams params, ptrdiff_t rows, const char* x, char* output) {
  params.rows = rows, params.x = x, params.x_row_stride = params.depth, params.output = output;
  const KernelTable& isa = kernels();
  const double cost = double(params.rows) * double(params.depth) * double(params.columns);
  run_tasks(isa.linear_tasks(params), cost, isa.linear_scratch(params),
            [&](ptrdiff_t task, void* scratch) { isa.linear(params, task, scratch); });
}

void bind_linear(nb::module_& m) {
#define REGARD_VALUE(name) .value(#name, Activation::name)
  nb::enum_<Activation>(m, "Activation").value("identity", Activation::identity) REGARD_ACTIVATIONS(REGARD_VALUE);
#undef REGARD_VALUE
  m.attr("NR") = NR;
  m.attr("GROUP") = GROUP;
  m.def("pack", &pack, "panels"_a, "weight"_a, "first_column"_a);
  m.def("pack_quantized", &pack_quantized, "groups"_a, "blocks"_a, "quantization"_a);
  m.def("group_bytes", [](const std::string& quantization, ptrdiff_t depth) {
    return group_bytes(quantization_named(quantization), depth);
  });
  nb::class_<FusedBlockTail>(m, "FusedBlockTail")
      .def(
          "__init__",
          [](FusedBlockTail* self, Array out, OptionalArray out_bias, Array attn_norm_weight, Array attn_norm_bias,
             double attn_norm_eps, Array up, OptionalArray up_bias, Activation activation, Array down,
             OptionalArray down_bias, Array mlp_norm_weight, Array mlp_norm_bias, double mlp_norm_eps) {
            new (self) FusedBlockTail(out, out_bias, {attn_norm_weight, attn_norm_bias, attn_norm_eps}, up, up_bias,
                                      activation, down, down_bias, {mlp_norm_weight, mlp_norm_bias, mlp_norm_eps});
          },
          "out"_a, "out_bias"_a.none(), "attn_norm_weight"_a, "attn_norm_bias"_a, "attn_norm_eps"_a, "up"_a,
          "up_bias"_a.none(), "activation"_a, "down"_a, "down_bias"_a.none(), "mlp_norm_weight"_a, "mlp_norm_bias"_a,
          "mlp_norm_eps"_a)
      .def("__call__", &FusedBlockTail::operator(), "output"_a, "context"_a, "x"_a);
  m.def("linear", &linear, "output"_a, "x"_a, "weight"_a, "bias"_a.none(), "activation"_a = Activation::identity,
        "quantization"_a = "none");
}

}  // namespace regard
