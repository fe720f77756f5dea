#include "runtime/processor.h"

#include <cstdint>
#if defined(REGARD_X86)
#include <cpuid.h>
#endif

namespace regard {
namespace {

#if defined(REGARD_X86)
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Leaf() = default;
  explicit Leaf(unsigned leaf, unsigned part = 0) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }  // else all 0
};

bool has(unsigned value, unsigned bits) { return (value & bits) == bits; }

// Registers that the system saves.
uint64_t saved_state() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

Processor detect() {
  constexpr unsigned FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28, F16C = 1u << 29;  // 1, c
  constexpr unsigned AVX2 = 1u << 5;                                                       // 7, b
  constexpr unsigned AVX512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  constexpr unsigned AVX512_VNNI = 1u << 11;                    // 7, c
  constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24;  // 7, d
  constexpr unsigned AVX512_BF16 = 1u << 5;                     // 7, 1, a
  constexpr uint64_t AVX_STATE = 6, TILE_STATE = uint64_t(3) << 17;
#if defined(__APPLE__)
  constexpr uint64_t AVX512_STATE = AVX_STATE;  // Darwin adds the rest when a thread first uses AVX-512
#else
  constexpr uint64_t AVX512_STATE = 0xe6;
#endif
  Processor found;
  const Leaf vendor(0), basic(1), extended(7), more = extended.a >= 1 ? Leaf(7, 1) : Leaf();
  found.is_amd = vendor.b == 0x68747541;  // "Auth" of AuthenticAMD
  if (!has(basic.c, OSXSAVE)) return found;
  const uint64_t saved = saved_state();
  found.avx2 = has(basic.c, FMA | AVX | F16C) && has(extended.b, AVX2) && (saved & AVX_STATE) == AVX_STATE;
  found.avx512 = found.avx2 && has(extended.b, AVX512) && (saved & AVX512_STATE) == AVX512_STATE;
  found.avx512vnni = found.avx512 && has(extended.c, AVX512_VNNI);
  found.avx512bf16 = found.avx512 && has(more.a, AVX512_BF16);
  const Leaf palette(0x1d, 1);
  found.amx = found.avx512bf16 && has(extended.d, AMX_BF16 | AMX_TILE) && (saved & TILE_STATE) == TILE_STATE &&
              palette.a >> 16 >= 1024 && (palette.b & 0xffff) >= 64 && palette.b >> 16 >= 8 &&
              (palette.c & 0xffff) >= 16;
  return found;
}
#else
Processor detect() { return {}; }
#endif

}  // namespace

const Processor& processor() {
  static const Processor found = detect();
  return found;
}

}  // namespace regard
