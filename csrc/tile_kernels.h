// The functions of the bfloat16 forward pass, compiled once for each kind of instruction that multiplies tiles.
// Bindings call them through a TileKernelTable (runtime/tile_dispatch.h).
#pragma once

#include "attention/params.h"

namespace regard {

// Numbers of a call in tiles are 0 or have magnitudes from TILE_MIN, 2^-50 as bits of bfloat16, so that no product is
// subnormal, to a limit: TILE_MAX for values, so that no sum overflows; for queries and keys one below which all scores
// in base 2 are below TILE_MAX_SCORE, so that rounding moves a maximum by few units.
constexpr uint16_t TILE_MIN = (127 - 50) << 7, TILE_MAX = (127 + 40) << 7;
constexpr double TILE_MAX_SCORE = 0x1p26, TILE_MIN_SCALE = 0x1p-50, TILE_MAX_SCALE = 0x1p16;

// Packing functions take rows start <= i < start + count of a head, and return whether all are within the limits.
// Keys and values are packed from a multiple of TILE_DEPTH on; `scratch` is pack_tiles_scratch(width) bytes.
// clang-format off
#define REGARD_TILE_FUNCTIONS(f)                                                                 \
  f(size_t, bfloat16_scratch, (const AttentionParams&))                                          \
  f(void, bfloat16_forward, (const AttentionParams&, ptrdiff_t task, void* scratch))             \
  f(size_t, pack_tiles_scratch, (ptrdiff_t width))                                               \
  f(bool, within_tile_limits, (const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, uint16_t limit, void* scratch)) \
  f(bool, pack_key_tiles, (const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, uint16_t limit, void* scratch, uint16_t* to)) \
  f(bool, pack_value_tiles, (const Operand&, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, uint16_t limit, void* scratch, uint16_t* to))
// clang-format on

struct TileKernelTable {
  const char* name;
#define REGARD_POINTER(returned, name, arguments) returned(*name) arguments;
  REGARD_TILE_FUNCTIONS(REGARD_POINTER)
#undef REGARD_POINTER
};

// clang-format off
#define REGARD_DECLARATION(returned, name, arguments) returned name arguments;
namespace amx { REGARD_TILE_FUNCTIONS(REGARD_DECLARATION) }
namespace avx512bf16 { REGARD_TILE_FUNCTIONS(REGARD_DECLARATION) }
namespace generic { REGARD_TILE_FUNCTIONS(REGARD_DECLARATION) }
#undef REGARD_DECLARATION
// clang-format on

}  // namespace regard
