// The blocks of a decoder for the new tokens of each text, in one call. Of the few tokens that generation adds at a
// time, the interpreter would take longer than the kernels if Python called each.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/attention.h"
#include "bindings/linear.h"
#include "bindings/ops.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

constexpr DType F32 = DType::float32;

void check(bool fits, const char* what) {
  if (!fits) throw_invalid(what, "does not fit");
}

// A linear map with packed weights, and its arrays.
struct PackedMap {
  Array weight;
  OptionalArray bias;
  LinearParams params;

  PackedMap(Array weight_, const std::string& quantization, OptionalArray bias_, ptrdiff_t depth, ptrdiff_t columns)
      : weight(std::move(weight_)),
        bias(std::move(bias_)),
        params(
            linear_params(weight, bias, Activation::identity, F32, depth, columns, quantization_named(quantization))) {
    check(params.is_packed || params.quantization != Quantization::none, "a weight");
  }
};

struct RMSNorm {
  Array weight;
  double eps;

  RMSNorm(Array weight_, double eps_) : weight(std::move(weight_)), eps(eps_) {
    check_dtype("a norm's weight", weight, F32);
    check(weight.ndim() == 1 && stride_of(weight, 0) == 1, "a norm's weight");
  }
  ptrdiff_t features() const { return ptrdiff_t(weight.shape(0)); }
};

// Rows of features in a buffer: for each token its heads, `row_stride` elements between tokens.
struct HeadRows {
  char* data;
  ptrdiff_t tokens, row_stride, heads, features;

  StridedRows strided() const {
    StridedRows rows;
    rows.data = data, rows.axes = 2, rows.dtype = F32;
    rows.shape[0] = tokens, rows.shape[1] = heads, rows.strides[0] = row_stride, rows.strides[1] = features;
    return rows;
  }
  float* at(ptrdiff_t token, ptrdiff_t head) const {
    return reinterpret_cast<float*>(data) + token * row_stride + head * features;
  }
};

// The same row for all rows of a call, or with a stride one for each token.
StridedRows shared_row(const char* data, ptrdiff_t token_stride, const HeadRows& rows) {
  StridedRows row = rows.strided();
  row.data = const_cast<char*>(data), row.strides[0] = token_stride, row.strides[1] = 0;
  return row;
}

void rms_norm(const RMSNorm& norm, const HeadRows& x, const HeadRows& output) {
  OpParams params;
  params.op = Op::rms_norm, params.rows = x.tokens * x.heads, params.columns = norm.features(), params.eps = norm.eps;
  params.x = x.strided(), params.output = output.strided(), params.weight = shared_row(data_ptr(norm.weight), 0, x);
  run_op(params);
}

void swiglu(const HeadRows& gate, const HeadRows& up, const HeadRows& output) {
  OpParams params;
  params.op = Op::swiglu, params.rows = gate.tokens, params.columns = gate.features;
  params.x = gate.strided(), params.other = up.strided(), params.output = output.strided();
  run_op(params);
}

// Cosines and sines, a row for each token, or one for all.
struct Rotation {
  Array cos, sin;
  bool interleaved;  // whether neighbouring features are a pair

  void apply(const HeadRows& x) const {
    OpParams params;
    params.op = interleaved ? Op::rope_interleaved : Op::rope_half, params.rows = x.tokens * x.heads,
    params.columns = x.features;
    params.pairs = last_axis(cos);
    const ptrdiff_t stride = cos.shape(0) == 1 ? 0 : last_axis(cos);
    params.x = params.output = x.strided();
    params.weight = shared_row(data_ptr(cos), stride, x), params.bias = shared_row(data_ptr(sin), stride, x);
    run_op(params);
  }
};

struct DecoderBlock {
  RMSNorm attn_norm;
  std::vector<PackedMap> qkv;  // one map for all, or three
  std::optional<RMSNorm> q_norm, k_norm;
  OptionalArray sinks;
  PackedMap out;
  RMSNorm mlp_norm;
  std::vector<PackedMap> gate_up;  // one map for both, or two
  PackedMap down;
};

class DecoderStep {
 public:
  DecoderStep(ptrdiff_t num_heads, ptrdiff_t num_kv_heads, ptrdiff_t head_dim, double scale, double softcap,
              double residual_scale, bool interleaved, std::vector<DecoderBlock> blocks)
      : heads_(num_heads),
        kv_heads_(num_kv_heads),
        head_dim_(head_dim),
        scale_(scale),
        softcap_(softcap),
        residual_scale_(float(residual_scale)),
        interleaved_(interleaved),
        blocks_(std::move(blocks)) {
    check(!blocks_.empty() && num_kv_heads > 0 && num_heads % num_kv_heads == 0 && head_dim > 0, "the number of heads");
    width_ = blocks_[0].attn_norm.features();
    hidden_ = blocks_[0].down.params.depth;
    const ptrdiff_t q = product(num_heads, head_dim), kv = product(num_kv_heads, head_dim);
    const auto is_map = [](const PackedMap& map, ptrdiff_t depth, ptrdiff_t columns) {
      return map.params.depth == depth && map.params.columns == columns;
    };
    for (const DecoderBlock& block : blocks_) {
      const auto& [attn_norm, qkv, q_norm, k_norm, sinks, out, mlp_norm, gate_up, down] = block;
      bool fits = attn_norm.features() == width_ && mlp_norm.features() == width_;
      fits &= qkv.size() == 1   ? is_map(qkv[0], width_, q + 2 * kv)
              : qkv.size() == 3 ? is_map(qkv[0], width_, q) && is_map(qkv[1], width_, kv) && is_map(qkv[2], width_, kv)
                                : false;
      fits &= gate_up.size() == 1   ? is_map(gate_up[0], width_, 2 * hidden_)
              : gate_up.size() == 2 ? is_map(gate_up[0], width_, hidden_) && is_map(gate_up[1], width_, hidden_)
                                    : false;
      fits &= is_map(out, q, width_) && is_map(down, hidden_, width_);
      for (const auto* norm : {&q_norm, &k_norm}) fits &= !*norm || (*norm)->features() == head_dim;
      if (sinks) check_dtype("sinks", *sinks, F32);
      fits &= !sinks || (sinks->ndim() == 1 && ptrdiff_t(sinks->shape(0)) == num_heads && stride_of(*sinks, 0) == 1);
      check(fits, "a block");
    }
  }

  // Replace x, B T E, by the output of the blocks. The keys and values of each block, B G S D, have space for those of
  // the new tokens at their last T positions, each of which attends to what is before it and to itself. False, with x
  // of no use, where attention may have overflowed.
  bool operator()(const WritableArray& x, const Array& cos, const Array& sin, const std::vector<WritableArray>& keys,
                  const std::vector<WritableArray>& values) const {
    check_dtype("x", x, F32);
    check(x.ndim() == 3 && last_axis(x) == width_ && is_contiguous(x), "x");
    const ptrdiff_t texts = ptrdiff_t(x.shape(0)), tokens = product(texts, ptrdiff_t(x.shape(1)));
    for (const Array* row : {&cos, &sin}) {
      check_dtype("the rotation", *row, F32);
      check(row->ndim() == 2 && (row->shape(0) == 1 || ptrdiff_t(row->shape(0)) == tokens) &&
                row->shape(0) == cos.shape(0) && is_contiguous(*row) && last_axis(*row) == last_axis(cos) &&
                2 * last_axis(*row) <= head_dim_,
            "the rotation");
    }
    check(keys.size() == blocks_.size() && values.size() == blocks_.size(), "the cache");
    for (const auto* cache : {&keys, &values})
      for (const WritableArray& array : *cache) {
        check_dtype("the cache", array, F32);
        check(array.ndim() == 4 && ptrdiff_t(array.shape(0)) == texts && ptrdiff_t(array.shape(1)) == kv_heads_ &&
                  array.shape(2) >= x.shape(1) && array.shape(2) < (size_t(1) << 30) && last_axis(array) == head_dim_ &&
                  stride_of(array, 3) == 1,
              "the cache");
      }
    if (!tokens) return true;
    const Rotation rotation{cos, sin, interleaved_};
    const ReleasedGil released;
    const ParallelRegion region(num_threads());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      check(keys[i].shape(2) == values[i].shape(2), "the cache");
      if (!run(blocks_[i], texts, tokens, static_cast<char*>(x.data()), rotation, keys[i], values[i])) return false;
    }
    return true;
  }

 private:
  bool run(const DecoderBlock& block, ptrdiff_t texts, ptrdiff_t tokens, char* x, const Rotation& rotation,
           const WritableArray& keys, const WritableArray& values) const {
    const ptrdiff_t q_width = heads_ * head_dim_, kv_width = kv_heads_ * head_dim_, all = q_width + 2 * kv_width;
    const TemporaryBuffer y(tokens, width_, F32), qkv(tokens, all, F32), context(tokens, q_width, F32);
    const HeadRows x_rows{x, tokens, width_, 1, width_}, y_rows{y, tokens, width_, 1, width_};
    rms_norm(block.attn_norm, x_rows, y_rows);
    // One product puts q, k and v of a token side by side; three put those of all tokens one after the other.
    const bool joint = block.qkv.size() == 1;
    HeadRows q{qkv, tokens, joint ? all : q_width, heads_, head_dim_};
    HeadRows k{qkv + 4 * (joint ? 1 : tokens) * q_width, tokens, joint ? all : kv_width, kv_heads_, head_dim_};
    HeadRows v{k.data + 4 * (joint ? 1 : tokens) * kv_width, tokens, k.row_stride, kv_heads_, head_dim_};
    const HeadRows* outputs[] = {&q, &k, &v};
    for (size_t i = 0; i < block.qkv.size(); ++i) run_linear(block.qkv[i].params, tokens, y, outputs[i]->data);
    if (block.q_norm) rms_norm(*block.q_norm, q, q);
    if (block.k_norm) rms_norm(*block.k_norm, k, k);
    rotation.apply(q);
    rotation.apply(k);
    append(k, texts, keys);
    append(v, texts, values);
    if (!attend(block, q, texts, keys, values, context)) return false;
    add_output(block.out, tokens, context, y, x);

    rms_norm(block.mlp_norm, x_rows, y_rows);
    const TemporaryBuffer hidden(tokens, hidden_, F32);
    const bool both = block.gate_up.size() == 1;
    if (!both || !run_gated_linear(block.gate_up[0].params, tokens, y, hidden)) {
      const TemporaryBuffer gate_up(tokens, 2 * hidden_, F32);
      const HeadRows gate{gate_up, tokens, both ? 2 * hidden_ : hidden_, 1, hidden_};
      const HeadRows up{gate_up + 4 * (both ? 1 : tokens) * hidden_, tokens, gate.row_stride, 1, hidden_};
      run_linear(block.gate_up[0].params, tokens, y, gate.data);
      if (!both) run_linear(block.gate_up[1].params, tokens, y, up.data);
      swiglu(gate, up, {hidden, tokens, hidden_, 1, hidden_});
    }
    add_output(block.down, tokens, hidden, y, x);
    return true;
  }

  // Add the output of a map to x, times the residual scale; y is of no use afterwards.
  void add_output(const PackedMap& map, ptrdiff_t tokens, const char* input, char* y, char* x) const {
    if (residual_scale_ == 1.0f) return run_linear(map.params, tokens, input, y, x);
    run_linear(map.params, tokens, input, y);
    float* sum = reinterpret_cast<float*>(x);
    const float* output = reinterpret_cast<const float*>(y);
    for (ptrdiff_t i = 0; i < tokens * width_; ++i) sum[i] += residual_scale_ * output[i];
  }

  // Copy keys or values of the new tokens to the last positions of the cache.
  void append(const HeadRows& rows, ptrdiff_t texts, const WritableArray& cache) const {
    const ptrdiff_t count = rows.tokens / texts, position = ptrdiff_t(cache.stride(2));
    float* first = static_cast<float*>(cache.data()) + (ptrdiff_t(cache.shape(2)) - count) * position;
    constexpr ptrdiff_t PER_TASK = 64;
    run_tasks(ceil_div(rows.tokens, PER_TASK), double(rows.tokens * kv_heads_ * head_dim_), 0,
              [&](ptrdiff_t task, void*) {
                const ptrdiff_t stop = std::min(rows.tokens, (task + 1) * PER_TASK);
                for (ptrdiff_t token = task * PER_TASK; token < stop; ++token)
                  for (ptrdiff_t head = 0; head < kv_heads_; ++head)
                    std::copy_n(rows.at(token, head), head_dim_,
                                first + token / count * ptrdiff_t(cache.stride(0)) + head * ptrdiff_t(cache.stride(1)) +
                                    token % count * position);
              });
  }

  bool attend(const DecoderBlock& block, const HeadRows& q, ptrdiff_t texts, const WritableArray& keys,
              const WritableArray& values, char* context) const {
    const ptrdiff_t queries = q.tokens / texts, heads = texts * heads_, group = heads_ / kv_heads_;
    std::vector<ptrdiff_t> offsets(size_t(6 * heads));
    ptrdiff_t *q_at = offsets.data(), *k_at = q_at + heads, *v_at = k_at + heads, *out_at = v_at + heads,
              *sinks_at = out_at + heads, *zeros = sinks_at + heads;
    for (ptrdiff_t i = 0; i < heads; ++i) {
      const ptrdiff_t text = i / heads_, head = i % heads_;
      q_at[i] = text * queries * q.row_stride + head * head_dim_;
      k_at[i] = text * ptrdiff_t(keys.stride(0)) + head / group * ptrdiff_t(keys.stride(1));
      v_at[i] = text * ptrdiff_t(values.stride(0)) + head / group * ptrdiff_t(values.stride(1));
      out_at[i] = (text * queries * heads_ + head) * head_dim_;
      sinks_at[i] = head;
    }
    AttentionParams a{};
    a.heads = heads, a.queries = queries, a.keys = ptrdiff_t(keys.shape(2)), a.head_dim = a.value_dim = head_dim_;
    a.heads_per_kv = group, a.scale = scale_, a.softcap = softcap_;
    a.q = {q.data, q_at, q.row_stride, 1, F32};
    a.k = {static_cast<char*>(keys.data()), k_at, ptrdiff_t(keys.stride(2)), 1, F32};
    a.v = {static_cast<char*>(values.data()), v_at, ptrdiff_t(values.stride(2)), 1, F32};
    a.output = {context, out_at, heads_ * head_dim_, 1, F32};
    if (block.sinks) a.sinks = {const_cast<char*>(data_ptr(*block.sinks)), sinks_at, 0, 0, F32};
    std::vector<int32_t> range(size_t(2 * queries));  // each query attends to the keys up to its own
    if (queries > 1) {
      for (ptrdiff_t i = 0; i < queries; ++i) range[size_t(queries + i)] = int32_t(a.keys - queries + i + 1);
      a.key_begin = {reinterpret_cast<char*>(range.data()), zeros, 1, 1, DType::int32};
      a.key_end = {reinterpret_cast<char*>(range.data() + queries), zeros, 1, 1, DType::int32};
    }
    return run_forward(a);
  }

  const ptrdiff_t heads_, kv_heads_, head_dim_;
  const double scale_, softcap_;
  const float residual_scale_;
  const bool interleaved_;
  ptrdiff_t width_, hidden_;
  const std::vector<DecoderBlock> blocks_;
};

}  // namespace

void bind_decoder(nb::module_& m) {
  nb::class_<PackedMap>(m, "PackedMap")
      .def(nb::init<Array, const std::string&, OptionalArray, ptrdiff_t, ptrdiff_t>(), "weight"_a, "quantization"_a,
           "bias"_a.none(), "depth"_a, "columns"_a);
  nb::class_<RMSNorm>(m, "RMSNorm").def(nb::init<Array, double>(), "weight"_a, "eps"_a);
  nb::class_<DecoderBlock>(m, "DecoderBlock")
      .def(
          "__init__",
          [](DecoderBlock* self, RMSNorm attn_norm, std::vector<PackedMap> qkv, std::optional<RMSNorm> q_norm,
             std::optional<RMSNorm> k_norm, OptionalArray sinks, PackedMap out, RMSNorm mlp_norm,
             std::vector<PackedMap> gate_up, PackedMap down) {
            new (self) DecoderBlock{attn_norm, qkv, q_norm, k_norm, sinks, out, mlp_norm, gate_up, down};
          },
          "attn_norm"_a, "qkv"_a, "q_norm"_a.none(), "k_norm"_a.none(), "sinks"_a.none(), "out"_a, "mlp_norm"_a,
          "gate_up"_a, "down"_a);
  nb::class_<DecoderStep>(m, "DecoderStep")
      .def(nb::init<ptrdiff_t, ptrdiff_t, ptrdiff_t, double, double, double, bool, std::vector<DecoderBlock>>(),
           "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "scale"_a, "softcap"_a, "residual_scale"_a, "interleaved"_a,
           "blocks"_a)
      .def("__call__", &DecoderStep::operator(), "x"_a, "cos"_a, "sin"_a, "keys"_a, "values"_a);
}

}  // namespace regard
