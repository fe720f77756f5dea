// The instruction sets of an x86 processor that the system lets programs use, read from the processor itself: where
// Zig's Clang compiles, __builtin_cpu_supports() denies everything.
#pragma once

namespace regard {

struct Processor {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ and VL
  bool avx512vnni = false;
  bool avx512bf16 = false;
  bool amx = false;  // with bfloat16, and the tiles that simd/bfloat16_tiles.h configures: 8 of 16 rows of 64 bytes
  bool is_amd = false;
};

const Processor& processor();

}  // namespace regard
