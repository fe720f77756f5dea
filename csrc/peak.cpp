// How many multiplications and additions this processor can do at best: the yardstick of the benchmarks.
#include "simd.h"

namespace regard::REGARD_ISA {

// Do `rounds` rounds of independent fused multiply-adds of float32 in registers; return how many those were.
double multiply_adds(ptrdiff_t rounds) {
  constexpr int chains = 12;
  V<float> x[chains], a = splat(0.999f), b = splat(0.001f);
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) x[i] = splat(float(i));
  for (ptrdiff_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) x[i] = x[i] * a + b;
  }
  V<float> all = {};
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) all += x[i];
  return sum<float>(all) > 0 ? double(rounds) * chains * LANES<float> : 0;  // asked for, lest it be left out
}

}  // namespace regard::REGARD_ISA
