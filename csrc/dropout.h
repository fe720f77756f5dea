// Which cells are dropped: a hash of the seed and the number of the cell, as in functional/_dropout.py.
#pragma once

#include "scores.h"

namespace regard::REGARD_ISA {

REGARD_INLINE uint64_t mixed(uint64_t bits) {  // the finaliser of SplitMix64
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

// What to multiply the weight of a cell with: 0, or what keeps the mean of all.
template <class T> REGARD_INLINE T dropped(const Attention& call, ptrdiff_t head, ptrdiff_t query, ptrdiff_t key) {
  const uint64_t row = uint64_t(call.numbers[head]) * uint64_t(call.all_queries) + uint64_t(call.first_query + query);
  const uint64_t cell = row * uint64_t(call.keys) + uint64_t(key);
  return mixed(cell * 0x9E3779B97F4A7C15u + call.seed) >> 11 >= call.dropout ? T(call.kept) : T(0);
}

// Multiply the weights of keys start <= j < start + count, [key][QUERIES].
template <class T>
void drop(const Attention& call, ptrdiff_t head, ptrdiff_t query, ptrdiff_t lanes, ptrdiff_t start,
          ptrdiff_t count, T* weights) {
  for (ptrdiff_t j = 0; j < count; ++j)
    for (ptrdiff_t i = 0; i < lanes; ++i) weights[j * QUERIES + i] *= dropped<T>(call, head, query + i, start + j);
}

}  // namespace regard::REGARD_ISA
