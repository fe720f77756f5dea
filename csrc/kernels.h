// The functions compiled once for each instruction set. Bindings call them through a KernelTable (runtime/dispatch.h);
// parameters are plain data, so that the kernels do not depend on Python.
#pragma once

#include "attention/params.h"
#include "gemm/params.h"
#include "ops/params.h"

namespace regard {

// f(return type, name, parameters) for each function. A task is the unit of work of one thread; tasks depend on the
// parameters alone, so that results are bit-identical for any number of threads. X_scratch() returns the bytes of
// scratch memory that a thread needs for X.
// clang-format off
#define REGARD_LINEAR_FUNCTIONS(f)                                                               \
  f(ptrdiff_t, linear_tasks, (const LinearParams&))                                              \
  f(size_t, linear_scratch, (const LinearParams&))                                               \
  /* whether `linear` can be gated */                                                            \
  f(bool, supports_swiglu, (const LinearParams&))                                                \
  /* bytes of a row of x in fixed point, 0 where it is not used; and what computes a row, before `linear` */ \
  f(size_t, fixed_point_bytes, (const LinearParams&))                                            \
  f(void, to_fixed_point, (const LinearParams&, ptrdiff_t row))                                  \
  f(void, linear, (const LinearParams&, ptrdiff_t task, void* scratch))                          \
  f(void, pack, (const PackParams&, ptrdiff_t panel))                                            \
  f(void, pack_group, (const QuantizedPackParams&, ptrdiff_t group))
#define REGARD_FUNCTIONS(f)                                                                      \
  f(ptrdiff_t, forward_tasks, (const AttentionParams&))                                          \
  f(size_t, forward_scratch, (const AttentionParams&))                                           \
  f(void, forward, (const AttentionParams&, ptrdiff_t task, void* scratch))                      \
  /* half-precision rows of an operand, to contiguous float32 */                                 \
  f(void, upcast_rows, (const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, float* to)) \
  f(size_t, splitkv_scratch, (const AttentionParams&))                                           \
  f(size_t, splitkv_partials_bytes, (const AttentionParams&))                                    \
  f(void, splitkv, (const AttentionParams&, ptrdiff_t task, void* scratch))                      \
  f(void, splitkv_combine, (const AttentionParams&, ptrdiff_t task))                             \
  /* a task for each head and block of queries, all of them before `backward` */                 \
  f(void, backward_delta, (const BackwardParams&, ptrdiff_t task, void* scratch))                \
  f(ptrdiff_t, backward_tasks, (const BackwardParams&))                                          \
  f(size_t, backward_scratch, (const BackwardParams&))                                           \
  f(void, backward, (const BackwardParams&, ptrdiff_t task, void* scratch))                      \
  f(ptrdiff_t, map_tasks, (const MapParams&))                                                    \
  f(size_t, map_scratch, (const MapParams&))                                                     \
  f(void, map, (const MapParams&, ptrdiff_t task, void* scratch))                                \
  f(ptrdiff_t, op_tasks, (const OpParams&))                                                      \
  f(size_t, op_scratch, (const OpParams&))                                                       \
  f(void, op, (const OpParams&, ptrdiff_t task, void* scratch))                                  \
  f(void, embed, (const EmbedParams&, ptrdiff_t task))                                           \
  f(ptrdiff_t, flat_tasks, (ptrdiff_t size))                                                     \
  f(void, adamw, (const AdamWParams&, ptrdiff_t task))                                           \
  /* of the numbers of a task, of flat_tasks(size) */                                            \
  f(double, square_sum, (const char* x, DType, ptrdiff_t size, ptrdiff_t task))                  \
  REGARD_LINEAR_FUNCTIONS(f)                                                                     \
  f(double, run_fmas, (ptrdiff_t rounds))
// clang-format on

struct KernelTable {
  const char* name;
  int lanes;  // of float32
#define REGARD_POINTER(returned, name, arguments) returned(*name) arguments;
  REGARD_FUNCTIONS(REGARD_POINTER)
#undef REGARD_POINTER
};

// clang-format off
#define REGARD_DECLARATION(returned, name, arguments) returned name arguments;
namespace avx512 { REGARD_FUNCTIONS(REGARD_DECLARATION) }
namespace avx512vnni { using namespace avx512; REGARD_LINEAR_FUNCTIONS(REGARD_DECLARATION) }
namespace avx2 { REGARD_FUNCTIONS(REGARD_DECLARATION) }
namespace generic { REGARD_FUNCTIONS(REGARD_DECLARATION) }
#undef REGARD_DECLARATION
// clang-format on

}  // namespace regard
