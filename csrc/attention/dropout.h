// Dropout decided by a hash of the seed and the cell's index, the same as in regard.functional's Python implementation.
#pragma once

#include "attention/scores.h"

namespace regard::REGARD_ISA {

REGARD_INLINE uint64_t splitmix64(uint64_t bits) {  // the finaliser of SplitMix64
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

// The factor of a cell's weight: 0 or 1 / (1 - p).
template <class T>
REGARD_INLINE T dropout_factor(const AttentionParams& params, ptrdiff_t head, ptrdiff_t query, ptrdiff_t key) {
  const uint64_t row = uint64_t(params.dropout.head_ids[head]) * uint64_t(params.dropout.queries) +
                       uint64_t(params.dropout.first_query + query);
  const uint64_t cell = row * uint64_t(params.keys) + uint64_t(key);
  return splitmix64(cell * 0x9E3779B97F4A7C15u + params.dropout.seed) >> 11 >= params.dropout.threshold
             ? T(params.dropout.scale)
             : T(0);
}

// Apply dropout to the weights of keys start <= j < start + count, [key][BLOCK_QUERIES].
template <class T>
void apply_dropout(const AttentionParams& params, ptrdiff_t head, ptrdiff_t query, ptrdiff_t lanes, ptrdiff_t start,
                   ptrdiff_t count, T* weights) {
  for (ptrdiff_t j = 0; j < count; ++j)
    for (ptrdiff_t i = 0; i < lanes; ++i)
      weights[j * BLOCK_QUERIES + i] *= dropout_factor<T>(params, head, query + i, start + j);
}

}  // namespace regard::REGARD_ISA
