// Which cells are dropped: a hash of the seed and the number of the cell, as in functional/_dropout.py.
#pragma once

#include "scores.h"

namespace regard::REGARD_ISA {

REGARD_INLINE uint64_t mixed(uint64_t bits) {  // the finaliser of SplitMix64
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

// Multiply the weights of keys start <= j < start + count, [key][QUERIES], with 0 or with what keeps their mean.
template <class T>
void drop(const Attention& call, ptrdiff_t head, ptrdiff_t query, ptrdiff_t lanes, ptrdiff_t start,
          ptrdiff_t count, T* weights) {
  const T kept = T(call.kept);
  for (ptrdiff_t j = 0; j < count; ++j)
    for (ptrdiff_t i = 0; i < lanes; ++i) {
      const uint64_t row = uint64_t(call.numbers[head]) * uint64_t(call.all_queries) + uint64_t(call.first_query + query + i);
      const uint64_t cell = row * uint64_t(call.keys) + uint64_t(start + j);
      const bool stays = mixed(cell * 0x9E3779B97F4A7C15u + call.seed) >> 11 >= call.dropout;
      weights[j * QUERIES + i] = stays ? weights[j * QUERIES + i] * kept : T(0);
    }
}

}  // namespace regard::REGARD_ISA
