// Python bindings of the linear map and of weight packing.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings/linear.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

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

// Where x does not stay in the caches from panel to panel, tasks have several panels, and each thread several tasks.
// With few rows they have several as well: a thread then reads the weights in long runs, as fast as memory gives them.
ptrdiff_t panels_per_task(const LinearParams& params, ptrdiff_t single_tasks) {
  constexpr ptrdiff_t TASKS_PER_THREAD = 4, STREAMED_ROWS = 8, LONG_TASKS_PER_THREAD = 2;
  const ptrdiff_t most = params.is_gated ? 4 : 8;  // a gate and what it gates are two
  constexpr double CACHED = 1 << 18;               // numbers of x
  if (params.rows <= STREAMED_ROWS)
    return std::clamp<ptrdiff_t>(single_tasks / (LONG_TASKS_PER_THREAD * num_threads()), 1, most);
  if (double(params.rows) * double(params.depth) <= CACHED) return 1;
  return std::clamp<ptrdiff_t>(single_tasks / (TASKS_PER_THREAD * num_threads()), 1, most);
}

// Run a linear map whose x is set, and is in fixed point where it is multiplied so.
void run_rows(LinearParams params) {
  const KernelTable& isa = kernels();
  params.panels_per_task = panels_per_task(params, isa.linear_tasks(params));
  const double cost = double(params.rows) * double(params.depth) * double(params.columns);
  run_tasks(isa.linear_tasks(params), cost, isa.linear_scratch(params),
            [&](ptrdiff_t task, void* scratch) { isa.linear(params, task, scratch); });
}

// Run a linear map whose strides of x are set.
void run_strided(LinearParams params, ptrdiff_t rows, const char* x, char* output) {
  params.rows = rows, params.x = x, params.output = output, params.threads = num_threads();
  const KernelTable& isa = kernels();
  const size_t fixed_row = isa.fixed_point_bytes(params);
  if (!fixed_row || !rows) return run_rows(params);
  constexpr ptrdiff_t MOST_ROWS = 128;  // at a time: more in fixed point would take memory, and not stay in the caches
  const ptrdiff_t chunks = ceil_div(rows, MOST_ROWS), output_row = params.output_columns() * 4;
  const TemporaryBuffer fixed(ceil_div(rows, chunks), ptrdiff_t(fixed_row / 4), DType::float32);
  params.fixed_x = fixed;
  for (ptrdiff_t chunk = 0, first = 0; chunk < chunks; ++chunk, first += params.rows) {  // of equal size
    params.rows = (rows - first) / (chunks - chunk);
    params.x = x + first * params.x_row_stride * 4, params.output = output + first * output_row;
    run_tasks(params.rows, 2 * double(params.rows) * double(params.depth), 0,
              [&](ptrdiff_t row, void*) { isa.to_fixed_point(params, row); });
    run_rows(params);
    if (params.residual) params.residual += params.rows * output_row;
  }
}

// x and the output are contiguous, with any axes before the last; one matrix x may be transposed.
void linear(const WritableArray& output, const Array& x, const Array& weight, const OptionalArray& bias,
            Activation activation, const std::string& quantization) {
  const ptrdiff_t rows = num_rows(output, x), columns = last_axis(output);
  LinearParams params = linear_params(weight, bias, activation, dtype_of("x", x), last_axis(x), columns,
                                      quantization_named(quantization));
  check_dtype("the output", output, params.dtype);
  if (!rows || !columns) return;  // an empty array may have any strides
  const bool is_transposed = x.ndim() == 2 && params.quantization == Quantization::none && !is_contiguous(x) &&
                             (rows == 1 || stride_of(x, 0) == 1);
  if (!(is_contiguous(x) || is_transposed) || !is_contiguous(output))
    throw_invalid("x and the output", "must be contiguous");
  params.x_row_stride = is_transposed ? ptrdiff_t(x.stride(0)) : params.depth;
  params.x_col_stride = is_transposed ? ptrdiff_t(x.stride(1)) : 1;
  run_strided(params, rows, data_ptr(x), static_cast<char*>(output.data()));
}

// x W^T for quantized weights; x and the output are contiguous, with any axes before the last.
void linear_transposed(const WritableArray& output, const Array& x, const Array& weight,
                       const std::string& quantization) {
  const ptrdiff_t rows = num_rows(output, x);
  LinearParams params = linear_params(weight, {}, Activation::identity, dtype_of("x", x), last_axis(output),
                                      last_axis(x), quantization_named(quantization));
  if (params.quantization == Quantization::none) throw_invalid("the quantization", "has no blocks");
  check_dtype("the output", output, params.dtype);
  if (!rows || !params.depth) return;
  if (!is_contiguous(x) || !is_contiguous(output)) throw_invalid("x and the output", "must be contiguous");
  params.is_transposed = true, params.x_row_stride = params.columns, params.x_col_stride = 1;
  run_strided(params, rows, data_ptr(x), static_cast<char*>(output.data()));
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

void run_linear(LinearParams params, ptrdiff_t rows, const char* x, char* output, char* residual) {
  params.x_row_stride = params.depth, params.x_col_stride = 1, params.residual = residual;
  run_strided(params, rows, x, output);
}

bool run_gated_linear(LinearParams params, ptrdiff_t rows, const char* x, char* output) {
  params.rows = rows, params.x_row_stride = params.depth, params.x_col_stride = 1, params.is_gated = true;
  params.threads = num_threads();
  if (!kernels().supports_swiglu(params)) return false;
  run_strided(params, rows, x, output);
  return true;
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
  m.def("linear", &linear, "output"_a, "x"_a, "weight"_a, "bias"_a.none(), "activation"_a = Activation::identity,
        "quantization"_a = "none");
  m.def("linear_transposed", &linear_transposed, "output"_a, "x"_a, "weight"_a, "quantization"_a);
}

}  // namespace regard
