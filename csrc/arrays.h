// Arrays as Python hands them over, and what every binding does with them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "threads.h"

namespace nb = nanobind;

namespace regard {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Writable = nb::ndarray<nb::device::cpu>;
using Some = std::optional<Array>;
using Shape = std::vector<ptrdiff_t>;

void bind_around(nb::module_&);

[[noreturn]] inline void refuse(const char* name, const char* why) {
  throw std::invalid_argument(std::string(name) + " " + why);
}

template <class X> void check_kind(const char* name, const X& x, Kind kind) {
  const auto dtype = x.dtype();
  bool fits = dtype.lanes == 1;
  switch (kind) {
    case Kind::float32: fits &= dtype == nb::dtype<float>(); break;
    case Kind::float64: fits &= dtype == nb::dtype<double>(); break;
    case Kind::float16:
    case Kind::bfloat16: fits &= dtype == nb::dtype<uint16_t>(); break;
    case Kind::boolean: fits &= dtype == nb::dtype<uint8_t>() || dtype == nb::dtype<bool>(); break;
    case Kind::int32: fits &= dtype == nb::dtype<int32_t>(); break;
  }
  if (!fits) refuse(name, "has the wrong dtype");
}

inline Kind computed(Kind kind) { return kind == Kind::float64 ? Kind::float64 : Kind::float32; }

constexpr double WORTH_A_THREAD = 500'000;  // multiply-adds: some 20 microseconds

// Do the tasks on all threads, without Python's lock; Ctrl-C ends it between two tasks. `cost`, in multiply-adds, says
// how many threads are worth waking.
template <class Work> void run(ptrdiff_t tasks, double cost, size_t scratch, Work work) {
  bool interrupted = false, done;
  {
    nb::gil_scoped_release release;
    done = parallel(tasks, int(std::min(1 + cost / WORTH_A_THREAD, 1024.0)), scratch, work, [&] {
      nb::gil_scoped_acquire acquire;
      return interrupted = PyErr_CheckSignals() != 0;
    });
  }
  if (!done && interrupted) throw nb::python_error();
}

}  // namespace regard
