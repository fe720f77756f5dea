// What Python sees of the rows around attention and of the linear map.
#include "arrays.h"
#include "dispatch.h"
#include "room.h"

using namespace nb::literals;

namespace regard {
namespace {

// Arrays whose axes before the last one broadcast to those of the output.
class Rows {
 public:
  Rows(const Writable& output, Kind of_16_bits) : output_(output), of_16_bits_(of_16_bits) {
    if (output.ndim() < 1 || output.ndim() > size_t(AXES)) refuse("the output", "has the wrong number of axes");
    for (size_t axis = 0; axis + 1 < output.ndim(); ++axis) count *= ptrdiff_t(output.shape(axis));
    columns = ptrdiff_t(output.shape(output.ndim() - 1));
  }

  ptrdiff_t count = 1, columns;

  Lines output() const { return of("the output", output_, columns); }
  Lines of(const char* name, const Some& x, ptrdiff_t length) const { return x ? of(name, *x, length) : Lines(); }

  template <class X> Lines of(const char* name, const X& x, ptrdiff_t length) const {
    Lines found;
    found.kind = x.dtype() == nb::dtype<double>() ? Kind::float64
                 : x.dtype() == nb::dtype<float>() ? Kind::float32 : of_16_bits_;
    check_kind(name, x, found.kind);
    if (x.ndim() < 1 || x.ndim() > output_.ndim()) refuse(name, "has the wrong number of axes");
    const size_t own = x.ndim() - 1, missing = output_.ndim() - x.ndim();
    if (ptrdiff_t(x.shape(own)) != length) refuse(name, "has a last axis of the wrong length");
    found.column = length == 1 ? 1 : ptrdiff_t(x.stride(own));
    ptrdiff_t length_so_far = 1;  // of the axis last put down, which takes in those that go on with its steps
    for (size_t axis = output_.ndim() - 1; axis-- > 0;) {
      const ptrdiff_t wanted = ptrdiff_t(output_.shape(axis));
      const ptrdiff_t size = axis < missing ? 1 : ptrdiff_t(x.shape(axis - missing));
      if (size != wanted && size != 1) refuse(name, "has an axis of the wrong length");
      if (wanted == 1) continue;
      const ptrdiff_t stride = size == 1 ? 0 : ptrdiff_t(x.stride(axis - missing));
      if (found.axes && stride == found.strides[0] * length_so_far) {
        found.lengths[0] = length_so_far *= wanted;
        continue;
      }
      for (int i = found.axes++; i > 0; --i)
        found.lengths[i] = found.lengths[i - 1], found.strides[i] = found.strides[i - 1];
      found.lengths[0] = length_so_far = wanted, found.strides[0] = stride;
    }
    static char nothing;  // an empty array may have no address
    found.data = const_cast<char*>(static_cast<const char*>(static_cast<const void*>(x.data())));
    if (!found.data) found.data = &nothing;
    return found;
  }

 private:
  const Writable& output_;
  Kind of_16_bits_;
};

bool is_one_row(const Lines& x, ptrdiff_t columns) {
  return !x || (x.column == 1 && (x.axes == 0 || (x.axes == 1 && x.strides[0] == columns)));
}

void go_through(const Around& call) {
  const Kernels& isa = kernels();
  const double cost = double(call.rows) * double(call.columns) * 20;  // of a number, about
  run(isa.around_tasks(call), cost, isa.around_scratch(call), [&](ptrdiff_t task, void* room) { isa.around(call, task, room); });
}

void around(Around::What what, const Writable& output, const Array& x, const Some& other, const Some& weight,
            const Some& bias, double eps, Kind of_16_bits) {
  const bool turns = what == Around::turn_halves || what == Around::turn_neighbours;
  const Rows rows(output, of_16_bits);
  Around call;
  call.what = what, call.eps = eps, call.rows = rows.count, call.columns = rows.columns;
  if (turns) call.half = weight && weight->ndim() ? ptrdiff_t(weight->shape(weight->ndim() - 1)) : 0;
  if (2 * call.half > call.columns || (turns && !(weight && bias))) refuse("cos", "does not fit");
  if (what == Around::swiglu && !other) refuse("swiglu", "multiplies two arrays");
  const ptrdiff_t length = turns ? call.half : call.columns;
  call.x = rows.of("x", x, call.columns), call.other = rows.of("the other array", other, call.columns);
  call.weight = rows.of("weight", weight, length), call.bias = rows.of("bias", bias, length);
  call.output = rows.output();
  for (const Lines* one : {&call.other, &call.weight, &call.bias, &call.output})
    if (*one && computed(one->kind) != computed(call.x.kind)) refuse("an array", "has the wrong dtype");
  const bool bends = what == Around::gelu || what == Around::gelu_tanh || what == Around::silu || what == Around::swiglu;
  if (bends && !weight && !bias && is_one_row(call.x, call.columns) && is_one_row(call.other, call.columns) &&
      is_one_row(call.output, call.columns))
    call.columns *= call.rows, call.rows = 1;
  go_through(call);
}

Kind kind_of(const char* name, const Array& x) {
  const Kind kind = x.dtype() == nb::dtype<double>() ? Kind::float64 : Kind::float32;
  check_kind(name, x, kind);
  return kind;
}

const char* place(const Array& a) { return static_cast<const char*>(static_cast<const void*>(a.data())); }
template <class A> ptrdiff_t steps(const A& a, size_t axis) { return a.shape(axis) < 2 ? 1 : ptrdiff_t(a.stride(axis)); }
template <class A> bool is_whole(const A& a) {  // in the order of its axes, without gaps
  if (a.size() == 0) return true;
  ptrdiff_t step = 1;
  for (size_t axis = a.ndim(); axis-- > 0; step *= ptrdiff_t(a.shape(axis)))
    if (a.shape(axis) > 1 && ptrdiff_t(a.stride(axis)) != step) return false;
  return true;
}

// Put a weight, inputs by outputs, into panels from column `first` on.
void pack(const Writable& panels, const Array& weight, ptrdiff_t first) {
  if (panels.ndim() != 3 || weight.ndim() != 2) refuse("panels and weight", "need three axes and two");
  Packing call;
  call.kind = kind_of("weight", weight);
  check_kind("panels", panels, call.kind);
  call.depth = ptrdiff_t(weight.shape(0)), call.columns = ptrdiff_t(weight.shape(1)), call.first = first;
  if (ptrdiff_t(panels.shape(1)) != call.depth || ptrdiff_t(panels.shape(2)) != PANEL || first < 0 ||
      first > ptrdiff_t(panels.shape(0)) * PANEL - call.columns)
    refuse("the shapes", "do not fit");
  if (!is_whole(panels)) refuse("panels", "must lie one behind the other");
  if (!call.depth || !call.columns) return;
  call.weight = place(weight), call.weight_row = steps(weight, 0), call.weight_column = steps(weight, 1);
  call.panels = static_cast<char*>(panels.data());
  const ptrdiff_t begin = first_panel(call), count = blocks_of(first + call.columns, PANEL) - begin;
  const Kernels& isa = kernels();
  run(count, 8 * double(call.depth) * double(call.columns), 0, [&](ptrdiff_t task, void*) { isa.pack(call, begin + task); });
}

// The axes before the last one must be those of x.
ptrdiff_t rows_of(const Writable& output, const Array& x) {
  if (x.ndim() == 0 || output.ndim() != x.ndim()) refuse("x and the output", "need the same number of axes");
  ptrdiff_t rows = 1;
  for (size_t axis = 0; axis + 1 < x.ndim(); ++axis) {
    if (x.shape(axis) != output.shape(axis)) refuse("x and the output", "have different shapes");
    rows *= ptrdiff_t(x.shape(axis));
  }
  return rows;
}
template <class A> ptrdiff_t last_of(const A& a) { return ptrdiff_t(a.shape(a.ndim() - 1)); }

// A map of vectors with `depth` numbers to such with `columns`; which, is not said yet.
Linear map_of(const Array& weight, const Some& bias, Linear::Bend bend, Kind kind, ptrdiff_t depth, ptrdiff_t columns) {
  Linear call;
  call.kind = kind, call.bend = bend, call.depth = depth, call.columns = columns;
  call.is_packed = weight.ndim() == 3;
  if ((weight.ndim() != 2 && !call.is_packed) || (bias && bias->ndim() != 1)) refuse("weight and bias", "need two axes and one");
  check_kind("weight", weight, kind);
  if (bias) check_kind("bias", *bias, kind);
  const bool fits = call.is_packed ? ptrdiff_t(weight.shape(0)) == blocks_of(columns, PANEL) &&
                                         ptrdiff_t(weight.shape(1)) == depth && ptrdiff_t(weight.shape(2)) == PANEL &&
                                         is_whole(weight)
                                   : ptrdiff_t(weight.shape(0)) == depth && ptrdiff_t(weight.shape(1)) == columns;
  if (!fits || (bias && ptrdiff_t(bias->shape(0)) != columns)) refuse("the shapes", "do not fit");
  if (bias && steps(*bias, 0) != 1) refuse("the numbers of bias", "must lie side by side");
  call.weight = place(weight), call.bias = bias ? place(*bias) : nullptr;
  call.weight_row = ptrdiff_t(weight.stride(0)), call.weight_column = ptrdiff_t(weight.stride(1));
  return call;
}

void map(Linear call, ptrdiff_t rows, const char* x, char* output) {
  call.rows = rows, call.x = x, call.x_row = call.depth, call.output = output;
  const Kernels& isa = kernels();
  const double cost = double(call.rows) * double(call.depth) * double(call.columns);
  run(isa.linear_tasks(call), cost, isa.linear_scratch(call), [&](ptrdiff_t task, void* room) { isa.linear(call, task, room); });
}

// x and the output have any axes before the last; their rows lie one behind the other.
void linear(const Writable& output, const Array& x, const Array& weight, const Some& bias, Linear::Bend bend) {
  const ptrdiff_t rows = rows_of(output, x), columns = last_of(output);
  const Linear call = map_of(weight, bias, bend, kind_of("x", x), last_of(x), columns);
  check_kind("the output", output, call.kind);
  if (!rows || !columns) return;  // the strides of nothing may be anything
  if (!is_whole(x) || !is_whole(output)) refuse("the rows of x and the output", "must lie one behind the other");
  map(call, rows, place(x), static_cast<char*>(output.data()));
}

// Room for what lies between two steps.
class Between {
 public:
  Between(ptrdiff_t numbers, Kind kind) : bytes_(size_t(numbers) * (kind == Kind::float64 ? 8 : 4)), room_(take_room(bytes_)) {
    if (!room_) throw std::bad_alloc();
  }
  Between(const Between&) = delete;
  ~Between() { give_room(room_, bytes_); }
  operator char*() const { return static_cast<char*>(room_); }

 private:
  const size_t bytes_;
  void* const room_;
};

struct Norm {
  Array weight, bias;
  double eps;

  // The norm of x + residual, all whole rows.
  void operator()(ptrdiff_t rows, const char* x, const char* residual, char* output, Kind kind) const {
    Around call;
    call.what = Around::layer_norm, call.rows = rows, call.columns = ptrdiff_t(weight.shape(0)), call.eps = eps;
    const auto lines = [&](const char* data, int axes) {
      Lines found;
      found.data = const_cast<char*>(data), found.axes = axes, found.kind = kind;
      found.lengths[0] = rows, found.strides[0] = call.columns;
      return found;
    };
    call.x = lines(x, 1), call.other = lines(residual, 1), call.output = lines(output, 1);
    call.weight = lines(place(weight), 0), call.bias = lines(place(bias), 0);
    go_through(call);
  }

  void check(ptrdiff_t columns, Kind kind) const {
    for (const Array* x : {&weight, &bias}) {
      check_kind("a norm's array", *x, kind);
      if (x->ndim() != 1 || ptrdiff_t(x->shape(0)) != columns || steps(*x, 0) != 1) refuse("a norm's array", "does not fit");
    }
  }
};

// What stands behind the heads of an encoder block whose norms come last: the map of the context; the norm of it and of
// the block's own x; the feed-forward; the norm of that and of what went in. Weights are packed. In one call, for
// between two the caches have forgotten Python.
class BlockEnd {
 public:
  BlockEnd(Array out, Some out_bias, Norm first, Array up, Some up_bias, Linear::Bend bend, Array down, Some down_bias, Norm second)
      : held_{out, up, down}, held_biases_{out_bias, up_bias, down_bias}, first_(first), second_(second) {
    for (const Array& weight : held_)
      if (weight.ndim() != 3) refuse("the weights", "must be packed");
    const Kind kind = kind_of("the weights", out);
    const ptrdiff_t width = ptrdiff_t(up.shape(1)), hidden = ptrdiff_t(down.shape(1));
    out_ = map_of(out, out_bias, Linear::straight, kind, ptrdiff_t(out.shape(1)), width);
    up_ = map_of(up, up_bias, bend, kind, width, hidden);
    down_ = map_of(down, down_bias, Linear::straight, kind, hidden, width);
    first_.check(width, kind);
    second_.check(width, kind);
  }

  void operator()(const Writable& output, const Array& context, const Array& x) const {
    const ptrdiff_t rows = rows_of(output, x), width = out_.columns;
    const Kind kind = out_.kind;
    if (rows_of(output, context) != rows || last_of(x) != width || last_of(output) != width || last_of(context) != out_.depth)
      refuse("the shapes", "do not fit");
    check_kind("the context", context, kind);
    check_kind("x", x, kind);
    check_kind("the output", output, kind);
    if (!is_whole(output) || !is_whole(context) || !is_whole(x)) refuse("the rows", "must lie one behind the other");
    if (!rows || !width) return;
    const Between sum(rows * width, kind), middle(rows * width, kind), hidden(rows * up_.columns, kind);
    map(out_, rows, place(context), sum);
    first_(rows, place(x), sum, middle, kind);
    map(up_, rows, middle, hidden);
    map(down_, rows, hidden, sum);
    second_(rows, middle, sum, static_cast<char*>(output.data()), kind);
  }

 private:
  const Array held_[3];  // what the maps point to
  const Some held_biases_[3];
  Linear out_, up_, down_;
  Norm first_, second_;
};

template <Around::What what> void bend(const Writable& output, const Array& x, const Some& bias, Kind of_16_bits) {
  around(what, output, x, {}, {}, bias, 0, of_16_bits);
}

template <Around::What what>
void norm(const Writable& output, const Array& x, const Some& residual, const Some& weight, const Some& bias,
          double eps, Kind of_16_bits) {
  around(what, output, x, residual, weight, bias, eps, of_16_bits);
}

}  // namespace

// Bytes that nobody has written to yet, for a result.
nb::object room(size_t bytes) {
  struct Lent { void* data; size_t bytes; };
  Lent* const lent = new Lent{nullptr, bytes};
  nb::capsule owner(lent, [](void* p) noexcept {
    const Lent* const its = static_cast<Lent*>(p);
    if (its->data) give_room(its->data, its->bytes);
    delete its;
  });
  lent->data = take_room(bytes);
  if (!lent->data) throw std::bad_alloc();
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(lent->data, {bytes}, owner));
}

// `of_16_bits` says which floats arrays of 16 bits hold, which come as integers.
void bind_around(nb::module_& m) {
  const auto is_short = "of_16_bits"_a = Kind::float16;
  m.def("softmax", [](const Writable& output, const Array& x, Kind of_16_bits) {
    around(Around::softmax, output, x, {}, {}, {}, 0, of_16_bits);
  }, "output"_a, "x"_a, is_short);
  m.def("layer_norm", &norm<Around::layer_norm>, "output"_a, "x"_a, "residual"_a.none(), "weight"_a.none(),
        "bias"_a.none(), "eps"_a, is_short);
  m.def("rms_norm", &norm<Around::rms_norm>, "output"_a, "x"_a, "residual"_a.none(), "weight"_a.none(),
        "bias"_a.none(), "eps"_a, is_short);
  m.def("gelu", &bend<Around::gelu>, "output"_a, "x"_a, "bias"_a.none(), is_short);
  m.def("gelu_tanh", &bend<Around::gelu_tanh>, "output"_a, "x"_a, "bias"_a.none(), is_short);
  m.def("silu", &bend<Around::silu>, "output"_a, "x"_a, "bias"_a.none(), is_short);
  m.def("swiglu", [](const Writable& output, const Array& gate, const Array& up, const Some& gate_bias,
                     const Some& up_bias, Kind of_16_bits) {
    around(Around::swiglu, output, gate, up, up_bias, gate_bias, 0, of_16_bits);
  }, "output"_a, "gate"_a, "up"_a, "gate_bias"_a.none(), "up_bias"_a.none(), is_short);
  m.def("rotate", [](const Writable& output, const Array& x, const Array& cos, const Array& sin, bool interleaved,
                     Kind of_16_bits) {
    around(interleaved ? Around::turn_neighbours : Around::turn_halves, output, x, {}, cos, sin, 0, of_16_bits);
  }, "output"_a, "x"_a, "cos"_a, "sin"_a, "interleaved"_a, is_short);
  nb::enum_<Linear::Bend>(m, "Bend")
      .value("straight", Linear::straight)
      .value("gelu", Linear::gelu)
      .value("gelu_tanh", Linear::gelu_tanh)
      .value("silu", Linear::silu);
  m.def("room", &room, "bytes"_a);
  m.attr("PANEL") = PANEL;
  m.def("pack", &pack, "panels"_a, "weight"_a, "first"_a);
  nb::class_<BlockEnd>(m, "FusedBlockTail")
      .def("__init__", [](BlockEnd* self, Array out, Some out_bias, Array first_weight, Array first_bias, double first_eps,
                          Array up, Some up_bias, Linear::Bend bend, Array down, Some down_bias, Array second_weight,
                          Array second_bias, double second_eps) {
        new (self) BlockEnd(out, out_bias, {first_weight, first_bias, first_eps}, up, up_bias, bend, down, down_bias,
                            {second_weight, second_bias, second_eps});
      }, "out"_a, "out_bias"_a.none(), "first_weight"_a, "first_bias"_a, "first_eps"_a, "up"_a, "up_bias"_a.none(), "bend"_a,
         "down"_a, "down_bias"_a.none(), "second_weight"_a, "second_bias"_a, "second_eps"_a)
      .def("__call__", &BlockEnd::operator(), "output"_a, "context"_a, "x"_a);
  m.def("linear", &linear, "output"_a, "x"_a, "weight"_a, "bias"_a.none(), "bend"_a = Linear::straight);
}

}  // namespace regard
