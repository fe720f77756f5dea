// An attention call with the arrays that it reads.
#pragma once

#include "attention/params.h"
#include "bindings/operands.h"
#include "tile_kernels.h"

namespace regard {

struct AttentionCall {
  Operands operands;
  AttentionParams params;
  const TileKernelTable* tiles = nullptr;  // computes the call in bfloat16, if not null
};

// The forward pass, with outputs; on all threads. False if a score or a result is not finite: sums may have overflowed.
bool run_forward(AttentionParams&);

}  // namespace regard
