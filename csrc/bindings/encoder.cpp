// Encoder blocks: the tail of one in one call, and all blocks for the tokens of several texts.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/params.h"
#include "bindings/linear.h"
#include "bindings/ops.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

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

// The norm of the sums of the embeddings of tokens, N E, of their positions, which repeat, P E, and of a type, E. False
// where an id is outside the table.
bool embed(const WritableArray& output, const Array& ids, const Array& tokens, const Array& positions,
           const OptionalArray& type, const Array& weight, const Array& bias, double eps) {
  const DType dtype = dtype_of("the output", output);
  const Norm norm{weight, bias, eps};
  if (output.ndim() != 2 || ids.ndim() != 1 || tokens.ndim() != 2 || positions.ndim() != 2 || !positions.shape(0) ||
      output.shape(0) % positions.shape(0) || (type && type->ndim() != 1) || ids.shape(0) != output.shape(0) ||
      ids.dtype() != nb::dtype<int64_t>() || !is_contiguous(ids) || !is_contiguous(output))
    throw_invalid("the shapes", "do not fit");
  norm.check(last_axis(output), dtype);
  for (const Array& table : {tokens, positions, type ? *type : positions}) {
    check_dtype("a table", table, dtype);
    if (last_axis(table) != last_axis(output) || !is_contiguous(table)) throw_invalid("a table", "does not fit");
  }
  const int64_t* const all = static_cast<const int64_t*>(ids.data());
  for (size_t i = 0; i < ids.shape(0); ++i)
    if (all[i] < 0 || all[i] >= ptrdiff_t(tokens.shape(0))) return false;
  EmbedParams params;
  params.rows = ptrdiff_t(output.shape(0)), params.columns = last_axis(output), params.eps = eps, params.dtype = dtype;
  params.num_positions = ptrdiff_t(positions.shape(0)), params.ids = all,
  params.output = static_cast<char*>(output.data());
  params.token_embeddings = data_ptr(tokens), params.position_embeddings = data_ptr(positions);
  params.type_embedding = type ? data_ptr(*type) : nullptr;
  params.weight = data_ptr(weight), params.bias = data_ptr(bias);
  const KernelTable& isa = kernels();
  const ptrdiff_t tasks = params.columns ? ceil_div(params.rows, EMBED_ROWS_PER_TASK) : 0;
  run_tasks(tasks, 20 * double(params.rows) * double(params.columns), 0,
            [&](ptrdiff_t task, void*) { isa.embed(params, task); });
  return true;
}

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
    run(rows, data_ptr(context), data_ptr(x), static_cast<char*>(output.data()));
  }

  // All contiguous; the output may be x.
  void run(ptrdiff_t rows, const char* context, const char* x, char* output) const {
    const ptrdiff_t width = out_.columns;
    const DType dtype = out_.dtype;
    const TemporaryBuffer sum(rows, width, dtype), middle(rows, width, dtype), hidden(rows, up_.columns, dtype);
    run_linear(out_, rows, context, sum);
    attn_norm_(rows, x, sum, middle, dtype);
    run_linear(up_, rows, middle, hidden);
    run_linear(down_, rows, hidden, sum);
    mlp_norm_(rows, middle, sum, output, dtype);
  }

  ptrdiff_t width() const { return out_.columns; }
  ptrdiff_t context_width() const { return out_.depth; }
  DType dtype() const { return out_.dtype; }

 private:
  const Array weights_[3];  // keep the memory of the linear maps alive
  const OptionalArray biases_[3];
  LinearParams out_, up_, down_;
  Norm attn_norm_, mlp_norm_;
};

// An encoder block: the map to queries, keys and values, attention, and the tail.
struct EncoderBlock {
  Array qkv;
  OptionalArray qkv_bias;
  const FusedBlockTail* tail;
};

// Encoder blocks on rows of tokens, those of one text after those of another, without padding.
class EncoderBlocks {
 public:
  EncoderBlocks(ptrdiff_t num_heads, ptrdiff_t num_kv_heads, ptrdiff_t head_dim, double scale,
                std::vector<EncoderBlock> blocks)
      : heads_(num_heads), kv_heads_(num_kv_heads), head_dim_(head_dim), scale_(scale), blocks_(std::move(blocks)) {
    if (blocks_.empty() || num_kv_heads < 1 || head_dim < 1 || num_heads < 1 || num_heads % num_kv_heads)
      throw_invalid("the number of heads", "does not fit");
    qkv_width_ = product(num_heads + 2 * num_kv_heads, head_dim);
    for (const EncoderBlock& block : blocks_) {
      if (block.tail->dtype() != dtype() || block.tail->width() != width() ||
          block.tail->context_width() != product(num_heads, head_dim) || block.qkv.ndim() != 3)
        throw_invalid("a block", "does not fit");
      qkv_.push_back(linear_params(block.qkv, block.qkv_bias, Activation::identity, dtype(), width(), qkv_width_));
    }
  }

  // Whether the weights of texts of this length can be written.
  bool keeps_weights(ptrdiff_t length) const {
    static char nothing;
    return regard::keeps_weights(attention_of(&nothing, length));
  }

  // Write the output of the blocks for x, N E, whose rows are those of texts of these lengths; and, of texts of one
  // length, the weights of those blocks that are given an array, B H T T. False, with results of no use, where
  // attention may have overflowed.
  bool operator()(const WritableArray& output, const Array& x, const std::vector<ptrdiff_t>& lengths,
                  const std::vector<std::optional<WritableArray>>& weights) const {
    check_dtype("x", x, dtype());
    check_dtype("the output", output, dtype());
    const ptrdiff_t rows = num_rows(output, x);
    ptrdiff_t all = 0;
    for (const ptrdiff_t length : lengths) {
      if (length < 1 || length > rows - all) throw_invalid("the lengths", "do not fit");
      all += length;
    }
    if (x.ndim() != 2 || last_axis(x) != width() || last_axis(output) != width() || all != rows || !is_contiguous(x) ||
        !is_contiguous(output))
      throw_invalid("x and the output", "do not fit");
    if (!weights.empty() && weights.size() != blocks_.size()) throw_invalid("the weights", "do not fit");
    for (const auto& array : weights) {
      if (!array) continue;
      check_dtype("the weights", *array, dtype());
      bool fits = array->ndim() == 4 && !lengths.empty() && keeps_weights(lengths[0]) && is_contiguous(*array) &&
                  array->shape(0) == lengths.size() && ptrdiff_t(array->shape(1)) == heads_ &&
                  array->shape(2) == array->shape(3);
      for (const ptrdiff_t length : lengths) fits = fits && ptrdiff_t(array->shape(3)) == length;
      if (!fits) throw_invalid("the weights", "do not fit");
    }
    if (!rows) return true;
    // A few texts at a time, so that their intermediate results stay in the cores' own caches.
    const ptrdiff_t size = dtype() == DType::float64 ? 8 : 4;
    for (size_t first = 0, end; first < lengths.size(); first = end) {
      ptrdiff_t part = 0, before = 0;
      for (size_t i = 0; i < first; ++i) before += lengths[i];
      for (end = first; end < lengths.size() && (end == first || part + lengths[end] <= ROWS_AT_ONCE); ++end)
        part += lengths[end];
      std::vector<char*> maps;
      for (const auto& array : weights) {
        char* const data = array ? static_cast<char*>(array->data()) : nullptr;
        maps.push_back(data ? data + product(ptrdiff_t(first), heads_, lengths[0], lengths[0], size) : nullptr);
      }
      const ptrdiff_t offset = before * width() * size;
      if (!run(part, data_ptr(x) + offset,
               std::vector(lengths.begin() + ptrdiff_t(first), lengths.begin() + ptrdiff_t(end)), maps,
               static_cast<char*>(output.data()) + offset))
        return false;
    }
    return true;
  }

 private:
  static constexpr ptrdiff_t ROWS_AT_ONCE = 384;

  bool run(ptrdiff_t rows, const char* x, const std::vector<ptrdiff_t>& lengths, const std::vector<char*>& weights,
           char* output) const {
    const TemporaryBuffer qkv(rows, qkv_width_, dtype()), context(rows, heads_ * head_dim_, dtype());
    for (size_t i = 0; i < blocks_.size(); ++i, x = output) {
      run_linear(qkv_[i], rows, x, qkv);
      if (!attend(qkv, lengths, context, weights.empty() ? nullptr : weights[i])) return false;
      blocks_[i].tail->run(rows, context, x, output);
    }
    return true;
  }

  DType dtype() const { return blocks_[0].tail->dtype(); }
  ptrdiff_t width() const { return blocks_[0].tail->width(); }

  // Attention of a text to itself, without offsets and outputs.
  AttentionParams attention_of(char* qkv, ptrdiff_t length) const {
    AttentionParams a{};
    a.heads = heads_, a.queries = a.keys = length, a.head_dim = a.value_dim = head_dim_;
    a.heads_per_kv = heads_ / kv_heads_, a.scale = scale_;
    a.q = a.k = a.v = {qkv, nullptr, qkv_width_, 1, dtype()};
    return a;
  }

  // Attention of each text to itself. All texts share the tasks of one call, so that short ones keep the threads busy.
  bool attend(char* qkv, const std::vector<ptrdiff_t>& lengths, char* context, char* weights) const {
    const ptrdiff_t size = dtype() == DType::float64 ? 8 : 4, group = heads_ / kv_heads_;
    std::vector<ptrdiff_t> offsets(size_t(4 * heads_));
    ptrdiff_t *q_at = offsets.data(), *k_at = q_at + heads_, *v_at = k_at + heads_, *weights_at = v_at + heads_;
    for (ptrdiff_t head = 0; head < heads_; ++head) {
      q_at[head] = head * head_dim_;
      k_at[head] = (heads_ + head / group) * head_dim_;
      v_at[head] = k_at[head] + kv_heads_ * head_dim_;
      weights_at[head] = weights ? product(head, lengths[0], lengths[0]) : 0;
    }
    bool nonfinite = false;
    std::vector<AttentionParams> calls;
    std::vector<std::pair<size_t, ptrdiff_t>> tasks;
    const KernelTable& isa = kernels();
    size_t scratch = 0;
    double cost = 0;
    calls.reserve(lengths.size());
    for (const ptrdiff_t length : lengths) {
      AttentionParams a = attention_of(qkv, length);
      a.nonfinite = &nonfinite;
      a.q.offsets = q_at, a.k.offsets = k_at, a.v.offsets = v_at;
      a.output = {context, q_at, heads_ * head_dim_, 1, dtype()};
      if (weights) {
        a.weights = {weights, weights_at, length, 1, dtype()};
        weights += product(heads_, length, length, size);
      }
      for (ptrdiff_t task = 0; task < isa.forward_tasks(a); ++task) tasks.emplace_back(calls.size(), task);
      scratch = std::max(scratch, isa.forward_scratch(a));
      cost += double(heads_) * double(length) * double(length) * double(2 * head_dim_ + 20);
      qkv += product(length, qkv_width_, size), context += product(length, heads_ * head_dim_, size);
      calls.push_back(a);
    }
    run_tasks(ptrdiff_t(tasks.size()), cost, scratch, [&](ptrdiff_t task, void* memory) {
      const auto [text, part] = tasks[size_t(task)];
      isa.forward(calls[text], part, memory);
    });
    return !nonfinite;
  }

  const ptrdiff_t heads_, kv_heads_, head_dim_;
  const double scale_;
  ptrdiff_t qkv_width_;
  const std::vector<EncoderBlock> blocks_;
  std::vector<LinearParams> qkv_;
};

}  // namespace

void bind_encoder(nb::module_& m) {
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
  nb::class_<EncoderBlock>(m, "EncoderBlock")
      .def(
          "__init__",
          [](EncoderBlock* self, Array qkv, OptionalArray qkv_bias, const FusedBlockTail& tail) {
            new (self) EncoderBlock{qkv, qkv_bias, &tail};
          },
          "qkv"_a, "qkv_bias"_a.none(), "tail"_a, nb::keep_alive<1, 4>());
  nb::class_<EncoderBlocks>(m, "EncoderBlocks")
      .def(nb::init<ptrdiff_t, ptrdiff_t, ptrdiff_t, double, std::vector<EncoderBlock>>(), "num_heads"_a,
           "num_kv_heads"_a, "head_dim"_a, "scale"_a, "blocks"_a, nb::keep_alive<1, 6>())
      .def("__call__", &EncoderBlocks::operator(), "output"_a, "x"_a, "lengths"_a, "weights"_a)
      .def("keeps_weights", &EncoderBlocks::keeps_weights, "length"_a);
  m.def("embed", &embed, "output"_a, "ids"_a, "tokens"_a, "positions"_a, "type"_a.none(), "norm_weight"_a,
        "norm_bias"_a, "norm_eps"_a);
}

}  // namespace regard
