// Peak fused multiply-adds of the processor, the reference of the benchmarks.
#include "kernels.h"
#include "simd/simd.h"

namespace regard::REGARD_ISA {

// Run independent float32 fused multiply-adds in registers; return their number.
double run_fmas(ptrdiff_t rounds) {
  constexpr int chains = 12;
  V<float> x[chains], a = splat(0.999f), b = splat(0.001f);
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) x[i] = splat(float(i + 2));  // not 1, which stays 1: no chain is constant
  for (ptrdiff_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) x[i] = fma<float>(x[i], a, b);
  }
  V<float> all = {};
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) all += x[i];
  return reduce_sum<float>(all) > 0 ? double(rounds) * chains * LANES<float>
                                    : 0;  // the result is used, so that the loop is not removed
}

}  // namespace regard::REGARD_ISA
