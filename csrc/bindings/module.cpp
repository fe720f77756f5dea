// The Python module.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "runtime/buffer_pool.h"
#include "runtime/dispatch.h"
#include "runtime/openmp.h"
#include "runtime/tile_dispatch.h"

using namespace nb::literals;

namespace regard {
namespace {

// Uninitialized bytes from the buffer pool, returned to it with the array.
nb::object acquire_array(size_t bytes) {
  struct Owned {
    void* data;
    size_t bytes;
  };
  Owned* const owned = new Owned{nullptr, bytes};
  nb::capsule owner(owned, [](void* p) noexcept {
    const Owned* const self = static_cast<Owned*>(p);
    if (self->data) release_buffer(self->data, self->bytes);
    delete self;
  });
  owned->data = acquire_buffer(bytes);
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(owned->data, {bytes}, owner));
}

// Peak float32 fused multiply-adds per second of all threads together: the best of several runs.
double fma_peak() {
  double peak_rate = 0;
  for (int i = 0; i < 5; ++i) {
    std::vector<double> fmas(size_t(num_threads()), 0.0);
    const auto start = std::chrono::steady_clock::now();
    run_tasks(ptrdiff_t(fmas.size()), 1e9, 0,
              [&](ptrdiff_t n, void*) { fmas[size_t(n)] = kernels().run_fmas(4'000'000); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    peak_rate = std::max(peak_rate, std::accumulate(fmas.begin(), fmas.end(), 0.0) / seconds);
  }
  return peak_rate;
}

// std::bad_alloc, and std::length_error of a vector of too many elements, as MemoryError.
void translate_out_of_memory(const std::exception_ptr& error, void*) {
  constexpr const char* message = "the kernel cannot allocate the memory of this call; its sizes are too large";
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, message);
  } catch (const std::length_error&) {
    PyErr_SetString(PyExc_MemoryError, message);
  }
}

void translate_interrupt(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Interrupted&) {  // what the signal's handler raised is set
  }
}

}  // namespace
}  // namespace regard

NB_MODULE(_kernel, m) {
  using namespace regard;
  nb::set_leak_warnings(false);  // a daemon thread may be in a call when the interpreter ends
  m.doc() = "The compiled kernels of regard.";
  nb::enum_<DType>(m, "DType")
      .value("float32", DType::float32)
      .value("float64", DType::float64)
      .value("float16", DType::float16)
      .value("bfloat16", DType::bfloat16)
      .value("int8", DType::int8);
  nb::register_exception_translator(&translate_out_of_memory);
  nb::register_exception_translator(&translate_interrupt);
  bind_attention(m);
  bind_varlen(m);
  bind_map(m);
  bind_ops(m);
  bind_linear(m);
  bind_decoder(m);
  bind_encoder(m);
  bind_optimizer(m);
  m.def("acquire_buffer", &acquire_array, "bytes"_a);
  m.def("keep_buffers", &keep_buffers, "keep"_a);
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, "count"_a);
  m.def("use_openmp", &use_openmp);
  m.def("instruction_sets", &instruction_sets);
  m.def("instruction_set", [] { return std::string(kernels().name); });
  m.def("use_instruction_set", &use_instruction_set, "name"_a);
  m.def("tile_implementations", &tile_implementations);
  m.def("tiles", [] { return std::string(tile_kernels() ? tile_kernels()->name : "float32"); });
  m.def("use_tiles", &use_tiles, "name"_a);
  m.def("fma_peak", &fma_peak);
}
