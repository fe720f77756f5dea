// Array types of the bindings, and helpers common to them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/gil.h"
#include "common.h"
#include "runtime/threads.h"

namespace nb = nanobind;

namespace regard {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using WritableArray = nb::ndarray<nb::device::cpu>;
using OptionalArray = std::optional<Array>;
using Shape = std::vector<ptrdiff_t>;

// Each adds its functions to the module.
void bind_attention(nb::module_&);
void bind_varlen(nb::module_&);
void bind_map(nb::module_&);
void bind_ops(nb::module_&);
void bind_linear(nb::module_&);
void bind_decoder(nb::module_&);
void bind_encoder(nb::module_&);
void bind_optimizer(nb::module_&);

[[noreturn]] inline void throw_invalid(const char* name, const char* why) {
  throw std::invalid_argument(std::string(name) + " " + why);
}

template <class X> void check_dtype(const char* name, const X& x, DType dtype) {
  const auto actual = x.dtype();
  bool fits = actual.lanes == 1;
  switch (dtype) {
    case DType::float32: fits &= actual == nb::dtype<float>(); break;
    case DType::float64: fits &= actual == nb::dtype<double>(); break;
    case DType::float16:
    case DType::bfloat16: fits &= actual == nb::dtype<uint16_t>(); break;
    case DType::boolean: fits &= actual == nb::dtype<uint8_t>() || actual == nb::dtype<bool>(); break;
    case DType::int32: fits &= actual == nb::dtype<int32_t>(); break;
    case DType::int8: fits &= actual == nb::dtype<int8_t>(); break;
  }
  if (!fits) throw_invalid(name, "has the wrong dtype");
}

inline DType compute_dtype(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

// The GIL is released while this lives; there may be another on the same thread. A thread that asks for it while the
// interpreter shuts down never returns (gil.h).
class ReleasedGil {
 public:
  ReleasedGil() : outer_(current()), thread_(outer_ ? nullptr : PyEval_SaveThread()) {
    if (!outer_) current() = this;
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ~ReleasedGil() {
    if (outer_) return;
    current() = nullptr;
    restore_thread(thread_);
  }

  // Return f() with the GIL.
  template <class F> bool reacquired(F f) {
    if (outer_) return outer_->reacquired(f);
    current() = nullptr;
    restore_thread(thread_);
    const bool result = f();
    thread_ = PyEval_SaveThread();
    current() = this;
    return result;
  }

 private:
  static ReleasedGil*& current() {  // that of this thread
    static thread_local ReleasedGil* gil = nullptr;
    return gil;
  }

  ReleasedGil* const outer_;  // the one that released it, if it was before
  PyThreadState* thread_;
};

constexpr double COST_PER_THREAD = 500'000;       // multiply-adds: about 20 microseconds
constexpr double COST_PER_AWAKE_THREAD = 30'000;  // in a ParallelRegion

// Thrown, perhaps without the GIL, when Python's error is set already; the module's translator leaves it as it is.
struct Interrupted {};

// Run tasks on all threads without holding the GIL; Ctrl-C interrupts between tasks. `cost`, in multiply-adds, limits
// the number of threads.
template <class Work> void run_tasks(ptrdiff_t tasks, double cost, size_t scratch, Work work) {
  bool interrupted = false, done;
  {
    ReleasedGil released;
    const double cost_per_thread = in_parallel_region() ? COST_PER_AWAKE_THREAD : COST_PER_THREAD;
    done = parallel_for(tasks, int(std::min(1 + cost / cost_per_thread, 1024.0)), scratch, work,
                        [&] { return released.reacquired([&] { return interrupted = PyErr_CheckSignals() != 0; }); });
  }
  if (!done && interrupted) throw Interrupted{};
}

}  // namespace regard
