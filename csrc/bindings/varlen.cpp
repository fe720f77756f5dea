// Python bindings of attention over sequences of different lengths, which lie one after the other along one axis; keys
// and values may lie in pages instead. The tasks of all sequences are shared by all threads. A sequence has the bits
// that it has alone.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "attention/params.h"
#include "bindings/arrays.h"
#include "runtime/dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

constexpr ptrdiff_t MAX_POSITIONS = ptrdiff_t(1) << 30, MAX_FEATURES = ptrdiff_t(1) << 60;

ptrdiff_t length(const Array& x, size_t axis) { return ptrdiff_t(x.shape(axis)); }
ptrdiff_t stride(const Array& x, size_t axis) { return length(x, axis) == 1 ? 0 : ptrdiff_t(x.stride(axis)); }

// Where each sequence begins and the last one ends: not negative, not decreasing.
std::vector<ptrdiff_t> starts_of(const char* name, const Array& x) {
  check_dtype(name, x, DType::int32);
  if (x.ndim() != 1 || x.shape(0) < 1) throw_invalid(name, "needs one axis");
  std::vector<ptrdiff_t> starts(x.shape(0));
  for (size_t i = 0; i < starts.size(); ++i)
    starts[i] = static_cast<const int32_t*>(x.data())[ptrdiff_t(i) * stride(x, 0)];
  if (starts.front() < 0 || !std::is_sorted(starts.begin(), starts.end())) throw_invalid(name, "must not decrease");
  return starts;
}

bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

// The sequences of a call, each with the parameters of its own attention.
class VarlenCall {
 public:
  VarlenCall(DType dtype, Array q, Array k, Array v, Array cu_seqlens_q, Array cu_seqlens_k, double scale,
             double softcap, OptionalArray key_begin, OptionalArray key_end, OptionalArray distance_bias,
             OptionalArray block_table, std::optional<DType> k_dtype, std::optional<DType> v_dtype,
             OptionalArray k_scale, OptionalArray v_scale)
      : query_starts_(starts_of("cu_seqlens_q", cu_seqlens_q)), key_starts_(starts_of("cu_seqlens_k", cu_seqlens_k)) {
    const bool paged = block_table.has_value();
    if (q.ndim() != 3 || k.ndim() != (paged ? 4 : 3) || v.ndim() != k.ndim())
      throw_invalid("q, k and v", "have the wrong number of axes");
    if (query_starts_.size() != key_starts_.size()) throw_invalid("cu_seqlens_q and cu_seqlens_k", "differ in length");
    const size_t head_axis = paged ? 2 : 1;
    queries_ = length(q, 0), keys_ = paged ? 0 : length(k, 0), heads_ = length(q, 1);
    head_dim_ = length(q, 2), value_dim_ = length(v, head_axis + 1);
    groups_ = length(k, head_axis);
    if (std::max({head_dim_, value_dim_, heads_}) >= MAX_FEATURES)
      throw_invalid("q, k and v", "must have fewer than 2^60 features");
    if (length(k, head_axis + 1) != head_dim_ || length(v, head_axis) != groups_ ||
        (heads_ != 0 && (groups_ == 0 || heads_ % groups_ != 0)))
      throw_invalid("q, k and v", "do not fit together");
    for (size_t axis = 0; axis < head_axis; ++axis)
      if (length(k, axis) != length(v, axis)) throw_invalid("k and v", "differ in length");

    AttentionParams whole{};  // of all sequences at once
    whole.heads = heads_, whole.head_dim = head_dim_, whole.value_dim = value_dim_;
    whole.heads_per_kv = groups_ ? std::max<ptrdiff_t>(1, heads_ / groups_) : 1;
    whole.scale = scale, whole.softcap = softcap;
    whole.q = rows("q", q, dtype, 1);
    whole.k = cache("k", k, k_dtype.value_or(dtype), dtype, k_scale, paged);
    whole.v = cache("v", v, v_dtype.value_or(dtype), dtype, v_scale, paged);
    whole.key_begin = range("key_begin", key_begin), whole.key_end = range("key_end", key_end);
    if (paged)
      copy_pages(*block_table, length(k, 0), length(k, 1));
    else if (key_starts_.back() > keys_)
      throw_invalid("cu_seqlens_k", "is beyond the keys");
    if (query_starts_.back() > queries_) throw_invalid("cu_seqlens_q", "is beyond the queries");

    const size_t count = query_starts_.size() - 1;
    ptrdiff_t longest = 0;
    for (size_t n = 0; n < count; ++n) longest = std::max(longest, query_starts_[n + 1] - query_starts_[n]);
    for (size_t n = 0; n < count; ++n) {
      AttentionParams& a = sequences_.emplace_back(whole);
      a.queries = query_starts_[n + 1] - query_starts_[n], a.keys = key_starts_[n + 1] - key_starts_[n];
      if (std::max(a.queries, a.keys) >= MAX_POSITIONS) throw_invalid("q and k", "must have fewer than 2^30 positions");
      shift(a.q, query_starts_[n]), shift(a.key_begin, query_starts_[n]), shift(a.key_end, query_starts_[n]);
      if (paged)
        a.k.pages = a.v.pages = pages_.data() + ptrdiff_t(n) * pages_per_sequence_;
      else
        shift(a.k, key_starts_[n]), shift(a.v, key_starts_[n]);
    }
    if (distance_bias) add_distance_bias(*distance_bias, compute_dtype(dtype), longest);
  }

  // Write the output, and the softmax statistics, if given. Returns the sequences of which a score or a result is not
  // finite: sums may have overflowed.
  std::vector<size_t> forward(WritableArray output, std::optional<WritableArray> row_max,
                              std::optional<WritableArray> row_sum) const {
    std::vector<AttentionParams> sequences = sequences_;
    Call call(*this, sequences);
    const DType dtype = call.dtype(), compute = compute_dtype(dtype);
    const bool half_output = output.dtype() == nb::dtype<uint16_t>();
    const Operand out = call.rows("output", Array(output), half_output ? dtype : compute, queries_, value_dim_);
    Operand maximum, sum;
    if (row_max.has_value() != row_sum.has_value()) throw_invalid("the softmax statistics", "are two");
    if (row_max) {
      maximum = call.statistics("row_max", Array(*row_max), compute);
      sum = call.statistics("row_sum", Array(*row_sum), DType::float64);
    }
    for (size_t n = 0; n < sequences.size(); ++n) {
      AttentionParams& a = sequences[n];
      a.output = shifted(out, query_starts_[n]), a.row_max = shifted(maximum, query_starts_[n]);
      a.row_sum = shifted(sum, query_starts_[n]), a.nonfinite = call.flag(n);
    }
    call.run_forward();
    return call.flagged();
  }

  // Write the gradients of the queries, T H D, and of keys and values for each query head, T H F, given those of the
  // output; `delta`, H T, is temporary. Returns the sequences of which an input is not finite: theirs are invalid.
  std::vector<size_t> backward(Array d_output, Array output, Array row_max, Array row_sum, WritableArray delta,
                               WritableArray d_q, WritableArray d_k, WritableArray d_v) const {
    std::vector<AttentionParams> sequences = sequences_;
    Call call(*this, sequences);
    if (sequences.empty() || !heads_) return {};
    if (sequences.front().k.pages || sequences.front().k.scales || sequences.front().v.scales)
      throw_invalid("gradients", "are not of pages or int8");
    const DType dtype = call.dtype(), compute = compute_dtype(dtype);
    const bool is_half = d_output.dtype() == nb::dtype<uint16_t>();
    BackwardParams whole{};
    whole.d_output = call.rows("d_output", d_output, is_half ? dtype : compute, queries_, value_dim_);
    whole.delta = call.statistics("delta", Array(delta), compute);
    whole.d_q = call.rows("d_q", Array(d_q), compute, queries_, head_dim_);
    whole.d_k = call.rows("d_k", Array(d_k), compute, keys_, head_dim_);
    whole.d_v = call.rows("d_v", Array(d_v), compute, keys_, value_dim_);
    const Operand out = call.rows("output", output, compute, queries_, value_dim_);
    const Operand maximum = call.statistics("row_max", row_max, compute),
                  sum = call.statistics("row_sum", row_sum, DType::float64);
    std::vector<BackwardParams> each;
    for (size_t n = 0; n < sequences.size(); ++n) {
      const ptrdiff_t query = query_starts_[n], key = key_starts_[n];
      BackwardParams& b = each.emplace_back(whole);
      b.attention = sequences[n], b.nonfinite = call.flag(n), b.keys_per_task = keys_per_task(sequences[n]);
      b.attention.output = shifted(out, query), b.attention.row_max = shifted(maximum, query);
      b.attention.row_sum = shifted(sum, query);
      for (Operand* x : {&b.d_output, &b.delta, &b.d_q}) shift(*x, query);
      for (Operand* x : {&b.d_k, &b.d_v}) shift(*x, key);
    }
    call.run_backward(each);
    return call.flagged();
  }

 private:
  // A call adds operands of its results, and flags. Several threads may share a VarlenCall.
  class Call {
   public:
    Call(const VarlenCall& of, std::vector<AttentionParams>& sequences)
        : of_(of), sequences_(sequences), flags_(new bool[sequences.size()]()) {}

    DType dtype() const { return sequences_.empty() ? DType::float32 : sequences_.front().q.dtype; }
    bool* flag(size_t n) { return &flags_[n]; }
    std::vector<size_t> flagged() const {
      std::vector<size_t> found;
      for (size_t n = 0; n < sequences_.size(); ++n)
        if (flags_[n]) found.push_back(n);
      return found;
    }

    // An array `count` H F.
    Operand rows(const char* name, const Array& x, DType dtype, ptrdiff_t count, ptrdiff_t features) {
      if (x.ndim() != 3 || length(x, 0) != count || length(x, 1) != of_.heads_ || length(x, 2) != features)
        throw_invalid(name, "has the wrong shape");
      return operand(name, x, dtype, 1, of_.heads_, 0, 2, offsets_);
    }

    // An array H T, whose rows are contiguous.
    Operand statistics(const char* name, const Array& x, DType dtype) {
      if (x.ndim() != 2 || length(x, 0) != of_.heads_ || length(x, 1) != of_.queries_)
        throw_invalid(name, "has the wrong shape");
      Operand made = operand(name, x, dtype, 0, of_.heads_, 1, 1, offsets_);
      if (of_.queries_ > 1 && made.row_stride != 1) throw_invalid(name, "must be contiguous");
      made.row_stride = 1, made.col_stride = 0;
      return made;
    }

    void run_forward() {
      if (!of_.heads_) return;
      const KernelTable& isa = kernels();
      size_t scratch = 0, partials_bytes = 0;
      double cost = 0;
      Stage<AttentionParams> tasks, combinations;
      for (const size_t n : costliest_first()) {
        AttentionParams& a = sequences_[n];
        if (!a.queries) continue;
        const bool few = uses_splitkv(a);
        if (few) partials_bytes += round_to_line(isa.splitkv_partials_bytes(a));
        scratch = std::max(scratch, few ? isa.splitkv_scratch(a) : isa.forward_scratch(a));
        tasks.add(a, few ? splitkv_tasks(a) : isa.forward_tasks(a));
        if (few) combinations.add(a, product(a.heads, a.queries));
        cost += double(a.heads) * double(a.queries) * double(a.keys) * double(a.head_dim + a.value_dim + 20);
      }
      const std::unique_ptr<char[]> partials(new char[partials_bytes]);
      char* next = partials.get();
      for (const AttentionParams* a : combinations.sequences) {
        const_cast<AttentionParams*>(a)->partials = next;
        next += round_to_line(isa.splitkv_partials_bytes(*a));
      }
      run_tasks(tasks.count(), cost, scratch, [&](ptrdiff_t task, void* memory) {
        const auto [a, own] = tasks.find(task);
        uses_splitkv(*a) ? isa.splitkv(*a, own, memory) : isa.forward(*a, own, memory);
      });
      run_tasks(combinations.count(), cost / SPLITKV_KEYS, 0, [&](ptrdiff_t task, void*) {
        const auto [a, own] = combinations.find(task);
        isa.splitkv_combine(*a, own);
      });
    }

    void run_backward(std::vector<BackwardParams>& each) {
      const KernelTable& isa = kernels();
      size_t scratch = 0;
      double rows_cost = 0, cost = 0;
      ptrdiff_t count = 0;  // of tickets
      Stage<BackwardParams> deltas, tasks;
      const auto blocks = [](const BackwardParams& b) { return ceil_div(b.attention.queries, BLOCK_QUERIES); };
      const auto splits = [](const BackwardParams& b) {
        return std::max<ptrdiff_t>(1, ceil_div(b.attention.keys, b.keys_per_task));
      };
      for (const size_t n : costliest_first()) {
        BackwardParams& b = each[n];
        const AttentionParams& a = b.attention;
        const double rows = double(a.heads) * double(a.queries), width = double(a.head_dim + a.value_dim);
        deltas.add(b, product(a.heads, blocks(b))), tasks.add(b, isa.backward_tasks(b));
        scratch = std::max(scratch, isa.backward_scratch(b));
        rows_cost += rows * width, cost += rows * double(a.keys) * (3 * width + 20);
        count += product(a.heads, blocks(b) + splits(b) + 1);
      }
      std::vector<int32_t> tickets(size_t(count), 0);
      int32_t* next = tickets.data();
      const auto take = [&](ptrdiff_t wanted) {
        next += wanted;
        return next - wanted;
      };
      for (BackwardParams& b : each) {
        b.d_q_tickets = take(b.attention.heads * blocks(b)), b.d_kv_tickets = take(b.attention.heads * splits(b));
        b.d_distance_bias_tickets = take(b.attention.heads);
      }
      run_tasks(deltas.count(), rows_cost, scratch, [&](ptrdiff_t task, void* memory) {
        const auto [b, own] = deltas.find(task);
        isa.backward_delta(*b, own, memory);
      });
      run_tasks(tasks.count(), cost, scratch, [&](ptrdiff_t task, void* memory) {
        const auto [b, own] = tasks.find(task);
        isa.backward(*b, own, memory);
      });
    }

   private:
    // The tasks of several sequences, one sequence after the other.
    template <class P> struct Stage {
      std::vector<const P*> sequences;
      std::vector<ptrdiff_t> ends;

      void add(const P& a, ptrdiff_t tasks) {
        if (__builtin_add_overflow(count(), tasks, &tasks)) throw_out_of_memory();
        sequences.push_back(&a), ends.push_back(tasks);
      }
      ptrdiff_t count() const { return ends.empty() ? 0 : ends.back(); }
      std::pair<const P*, ptrdiff_t> find(ptrdiff_t task) const {
        const size_t n = size_t(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
        return {sequences[n], task - (n ? ends[n - 1] : 0)};
      }
    };

    static size_t round_to_line(size_t bytes) { return size_t(product(ceil_div(ptrdiff_t(bytes), 64), 64)); }

    // The sequences whose tasks take longest come first, so that no thread begins a long one when the others are done.
    std::vector<size_t> costliest_first() const {
      std::vector<size_t> order(sequences_.size());
      std::iota(order.begin(), order.end(), size_t(0));
      const auto cost = [&](size_t n) {
        const AttentionParams& a = sequences_[n];
        return uses_splitkv(a) ? splitkv_task_rows(a) * std::min<ptrdiff_t>(a.keys, SPLITKV_KEYS)
                               : std::min<ptrdiff_t>(a.queries, BLOCK_QUERIES) * a.keys;
      };
      std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return cost(x) > cost(y); });
      return order;
    }

    const VarlenCall& of_;
    std::vector<AttentionParams>& sequences_;
    std::unique_ptr<bool[]> flags_;
    std::deque<std::vector<ptrdiff_t>> offsets_;
  };

  // The operand of an array with these axes of heads, rows and columns; a head of `x` serves `heads` / its heads.
  static Operand operand(const char* name, const Array& x, DType dtype, size_t head_axis, ptrdiff_t heads,
                         size_t row_axis, size_t column_axis, std::deque<std::vector<ptrdiff_t>>& all_offsets) {
    check_dtype(name, x, dtype);
    std::vector<ptrdiff_t>& offsets = all_offsets.emplace_back(size_t(heads));
    const ptrdiff_t own = length(x, head_axis);
    for (ptrdiff_t head = 0; own && head < heads; ++head)
      offsets[size_t(head)] = head / (heads / own) * stride(x, head_axis);
    Operand made;
    made.dtype = dtype, made.offsets = offsets.data();
    made.row_stride = stride(x, row_axis), made.col_stride = stride(x, column_axis);
    static char nothing;  // the data pointer of an empty array may be null
    made.data = const_cast<char*>(static_cast<const char*>(x.data()));
    if (!made.data) made.data = &nothing;
    return made;
  }

  Operand rows(const char* name, const Array& x, DType dtype, size_t head_axis) {
    arrays_.push_back(x);
    return operand(name, x, dtype, head_axis, heads_, head_axis - 1, head_axis + 1, offsets_);
  }

  // Keys or values, T G F or N P G F, with the scales of int8: G, or one for each row and head.
  Operand cache(const char* name, const Array& x, DType dtype, DType of_queries, const OptionalArray& scale,
                bool paged) {
    const bool widens = dtype == DType::int8 || (is_half(dtype) && compute_dtype(of_queries) == DType::float32);
    if (dtype != of_queries && !widens) throw_invalid(name, "has the wrong dtype");
    if (scale.has_value() != (dtype == DType::int8)) throw_invalid(name, "needs scales if it is int8");
    const size_t head_axis = paged ? 2 : 1;
    Operand made = rows(name, x, dtype, head_axis);
    if (paged) made.page_rows = length(x, 1), made.page_stride = stride(x, 0);
    if (!scale) return made;
    check_dtype(name, *scale, DType::float32);
    const bool of_head = scale->ndim() == 1;
    if (!of_head && scale->ndim() != head_axis + 1) throw_invalid(name, "has scales with the wrong number of axes");
    for (size_t axis = of_head ? head_axis : 0; axis <= head_axis; ++axis)
      if (length(*scale, of_head ? 0 : axis) != length(x, axis)) throw_invalid(name, "has scales of the wrong shape");
    arrays_.push_back(*scale);
    std::vector<ptrdiff_t>& offsets = offsets_.emplace_back(size_t(heads_));
    for (ptrdiff_t head = 0; groups_ && head < heads_; ++head)
      offsets[size_t(head)] = head / (heads_ / groups_) * stride(*scale, of_head ? 0 : head_axis);
    static const float nothing = 0;
    made.scales = scale->data() ? static_cast<const float*>(scale->data()) : &nothing;
    made.scale_offsets = offsets.data();
    if (!of_head) made.scale_row_stride = stride(*scale, head_axis - 1);
    if (!of_head && paged) made.scale_page_stride = stride(*scale, 0);
    return made;
  }

  // The first key of each query, or the end of its keys: T.
  Operand range(const char* name, const OptionalArray& x) {
    if (!x) return {};
    check_dtype(name, *x, DType::int32);
    if (x->ndim() != 1 || length(*x, 0) != queries_) throw_invalid(name, "has the wrong shape");
    arrays_.push_back(*x);
    Operand made;
    made.dtype = DType::int32, made.row_stride = stride(*x, 0);
    made.offsets = offsets_.emplace_back(size_t(heads_)).data();
    static char nothing;
    made.data = x->data() ? const_cast<char*>(static_cast<const char*>(x->data())) : &nothing;
    return made;
  }

  // Copy the table, so that what is read is what was checked.
  void copy_pages(const Array& table, ptrdiff_t pages, ptrdiff_t page_rows) {
    check_dtype("block_table", table, DType::int32);
    const size_t count = key_starts_.size() - 1;
    if (table.ndim() != 2 || table.shape(0) != count) throw_invalid("block_table", "has the wrong shape");
    pages_per_sequence_ = length(table, 1);
    pages_.assign(size_t(product(ptrdiff_t(count), pages_per_sequence_)), 0);
    for (size_t n = 0; n < count; ++n) {
      const ptrdiff_t keys = key_starts_[n + 1] - key_starts_[n];
      if (keys == 0) continue;
      if (page_rows == 0 || ceil_div(keys, page_rows) > pages_per_sequence_)
        throw_invalid("block_table", "has too few pages for a sequence");
      for (ptrdiff_t i = 0; i < ceil_div(keys, page_rows); ++i) {
        const int32_t page =
            static_cast<const int32_t*>(table.data())[ptrdiff_t(n) * stride(table, 0) + i * stride(table, 1)];
        if (page < 0 || page >= pages) throw_invalid("block_table", "names a page that is not there");
        pages_[n * size_t(pages_per_sequence_) + size_t(i)] = page;
      }
    }
  }

  // The bias of each distance, H N or B H N: element m is of the distance m - (longest - 1) between a key and the
  // position of a query, whichever comes first.
  void add_distance_bias(const Array& x, DType compute, ptrdiff_t longest) {
    check_dtype("distance_bias", x, compute);
    const size_t lead = x.ndim() - 2;
    ptrdiff_t most_keys = 0;
    for (const AttentionParams& a : sequences_) most_keys = std::max(most_keys, a.keys);
    if (x.ndim() < 2 || x.ndim() > 3 || (lead && x.shape(0) != sequences_.size()) || length(x, lead) != heads_ ||
        length(x, lead + 1) < longest + most_keys + BLOCK_QUERIES)
      throw_invalid("distance_bias", "has the wrong shape");
    if (heads_ && stride(x, lead + 1) != 1) throw_invalid("distance_bias", "must be contiguous");
    arrays_.push_back(x);
    Operand made = operand("distance_bias", x, compute, lead, heads_, lead + 1, lead + 1, offsets_);
    made.col_stride = 0;
    for (size_t n = 0; n < sequences_.size(); ++n) {
      AttentionParams& a = sequences_[n];
      a.distance_bias = shifted(made, longest - a.queries + (lead ? ptrdiff_t(n) * stride(x, 0) : 0));
    }
  }

  // Move an operand by some rows.
  static void shift(Operand& x, ptrdiff_t count) {
    if (!x) return;
    const ptrdiff_t itemsize = x.dtype == DType::float64 ? 8 : is_half(x.dtype) ? 2 : x.dtype == DType::int8 ? 1 : 4;
    x.data += count * x.row_stride * itemsize;
    if (x.scales) x.scales += count * x.scale_row_stride;
  }
  static Operand shifted(Operand x, ptrdiff_t count) {
    shift(x, count);
    return x;
  }

  std::vector<ptrdiff_t> query_starts_, key_starts_;
  ptrdiff_t queries_ = 0, keys_ = 0, heads_ = 0, groups_ = 0, head_dim_ = 0, value_dim_ = 0, pages_per_sequence_ = 0;
  std::vector<int32_t> pages_;
  std::deque<std::vector<ptrdiff_t>> offsets_;
  std::vector<Array> arrays_;  // keeps the operands' memory alive
  std::vector<AttentionParams> sequences_;
};

}  // namespace

void bind_varlen(nb::module_& m) {
  nb::class_<VarlenCall>(m, "VarlenCall")
      .def(nb::init<DType, Array, Array, Array, Array, Array, double, double, OptionalArray, OptionalArray,
                    OptionalArray, OptionalArray, std::optional<DType>, std::optional<DType>, OptionalArray,
                    OptionalArray>(),
           "dtype"_a, "q"_a, "k"_a, "v"_a, "cu_seqlens_q"_a, "cu_seqlens_k"_a, "scale"_a, "softcap"_a = 0.0,
           "key_begin"_a.none() = nb::none(), "key_end"_a.none() = nb::none(), "distance_bias"_a.none() = nb::none(),
           "block_table"_a.none() = nb::none(), "k_dtype"_a.none() = nb::none(), "v_dtype"_a.none() = nb::none(),
           "k_scale"_a.none() = nb::none(), "v_scale"_a.none() = nb::none())
      .def("forward", &VarlenCall::forward, "output"_a, "row_max"_a.none() = nb::none(),
           "row_sum"_a.none() = nb::none())
      .def("backward", &VarlenCall::backward, "d_output"_a, "output"_a, "row_max"_a, "row_sum"_a, "delta"_a, "d_q"_a,
           "d_k"_a, "d_v"_a);
}

}  // namespace regard
