// Weights that stay in the blocks in which GGUF stores them, and are dequantized in registers.
//
// A weight of a block is scale * code + offset, with a small integer code. Blocks of GROUP outputs are interleaved
// (pack_group): each 16-bit field and each 32-bit word of a block is followed by that of the next output, so that one
// load reads the same inputs of as many outputs as a vector has lanes. A group has first the 16-bit fields of all
// blocks, then their words, as many bytes as the blocks have.
//
// The blocks are those of ggml (https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h).
#pragma once

#include "gemm/params.h"
#include "simd/half_precision.h"
#include "simd/simd.h"

namespace regard::REGARD_ISA {

typedef V<uint32_t> Words;
typedef V<int32_t> Ints;

// The blocks of one group, beginning with some block and some lane.
struct BlockCursor {
  const uint16_t* halves;  // 16-bit fields
  const uint32_t* words;

  template <class Format> REGARD_INLINE BlockCursor next(ptrdiff_t blocks = 1) const {
    return {halves + blocks * (Format::HALVES * GROUP), words + blocks * (Format::WORDS * GROUP)};
  }
  REGARD_INLINE V<float> half(int field, DType dtype = DType::float16) const {
    return upcast_vector(dtype, load_half_vector(halves + field * GROUP));
  }
  REGARD_INLINE Words word(int field) const {
    Words x;
    __builtin_memcpy(&x, words + field * GROUP, sizeof x);
    return x;
  }
};

REGARD_INLINE V<float> to_float(Ints x) { return __builtin_convertvector(x, V<float>); }
REGARD_INLINE Ints bits_at(Words x, int shift, uint32_t mask) { return Ints((x >> shift) & mask); }

// Four bits from `shift` on, less `center`.
template <int center> REGARD_INLINE V<float> nibble(Words x, int shift) {
#if defined(__AVX512F__)
  constexpr float c = center;
  const __m512 table = _mm512_setr_ps(-c, 1 - c, 2 - c, 3 - c, 4 - c, 5 - c, 6 - c, 7 - c, 8 - c, 9 - c, 10 - c, 11 - c,
                                      12 - c, 13 - c, 14 - c, 15 - c);
  return V<float>(_mm512_permutexvar_ps(_mm512_srli_epi32(__m512i(x), unsigned(shift)), table));
#else
  return to_float(bits_at(x, shift, 15) - center);
#endif
}

// Each kind has INPUTS weights in a block, in parts of PART inputs with one scale and one offset. code<center>(block,
// part, i) is the code of input i of a part, less `center` if the kind has offsets; scale(block, part) and
// offset(block, part) are those of codes without center. Sums of codes less CENTER are smaller, and round less.
// A stored block has HALVES 16-bit fields and WORDS words, which begin at bytes FIRST_HALF and FIRST_WORD.

struct Q4_0 {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 1, WORDS = 4, FIRST_HALF = 0, FIRST_WORD = 2, CENTER = 0;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = false;
  template <int> static REGARD_INLINE V<float> code(BlockCursor block, int, int i) {
    return nibble<8>(block.word(i % 16 / 4), i % 4 * 8 + i / 16 * 4);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

struct Q4_1 {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 2, WORDS = 4, FIRST_HALF = 0, FIRST_WORD = 4, CENTER = 8;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = true;
  template <int center> static REGARD_INLINE V<float> code(BlockCursor block, int, int i) {
    return nibble<center>(block.word(i % 16 / 4), i % 4 * 8 + i / 16 * 4);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor block, int) { return block.half(1); }
};

// The fifth bits of all inputs are one word, before those of the other four.
REGARD_INLINE Ints five_bits(BlockCursor block, int i) {
  const Ints low = bits_at(block.word(1 + i % 16 / 4), i % 4 * 8 + i / 16 * 4, 15);
  return low | bits_at(block.word(0), i, 1) << 4;
}

struct Q5_0 {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 1, WORDS = 5, FIRST_HALF = 0, FIRST_WORD = 2, CENTER = 0;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = false;
  template <int> static REGARD_INLINE V<float> code(BlockCursor block, int, int i) {
    return to_float(five_bits(block, i) - 16);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

struct Q5_1 {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 2, WORDS = 5, FIRST_HALF = 0, FIRST_WORD = 4, CENTER = 16;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = true;
  template <int center> static REGARD_INLINE V<float> code(BlockCursor block, int, int i) {
    return to_float(five_bits(block, i) - center);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor block, int) { return block.half(1); }
};

struct Q8_0 {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 1, WORDS = 8, FIRST_HALF = 0, FIRST_WORD = 2, CENTER = 0;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = false;
  template <int> static REGARD_INLINE V<float> code(BlockCursor block, int, int i) {
    return to_float(Ints(block.word(i / 4) << (24 - i % 4 * 8)) >> 24);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

// The K kinds have 256 inputs, and a scale of the scales. The scales and minima of Q4_K and Q5_K have six bits each, in
// three words: bytes 0 to 3 have the scales of parts 0 to 3, bytes 4 to 7 their minima, bytes 8 to 11 the low four bits
// of both for parts 4 to 7, whose upper bits are on top of bytes 0 to 7.
struct SixBitScales {
  static REGARD_INLINE V<float> scale(BlockCursor block, int part) {
    return block.half(0) * to_float(part < 4 ? bits_at(block.word(0), part * 8, 63)
                                             : bits_at(block.word(2), part % 4 * 8, 15) |
                                                   bits_at(block.word(0), part % 4 * 8 + 6, 3) << 4);
  }
  static REGARD_INLINE V<float> offset(BlockCursor block, int part) {
    return -block.half(1) * to_float(part < 4 ? bits_at(block.word(1), part * 8, 63)
                                              : bits_at(block.word(2), part % 4 * 8 + 4, 15) |
                                                    bits_at(block.word(1), part % 4 * 8 + 6, 3) << 4);
  }
};

struct Q4_K : SixBitScales {
  static constexpr int INPUTS = 256, PART = 32, HALVES = 2, WORDS = 35, FIRST_HALF = 0, FIRST_WORD = 4, CENTER = 8;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = true;
  template <int center> static REGARD_INLINE V<float> code(BlockCursor block, int part, int i) {
    return nibble<center>(block.word(3 + part / 2 * 8 + i / 4), i % 4 * 8 + part % 2 * 4);
  }
};

struct Q5_K : SixBitScales {
  static constexpr int INPUTS = 256, PART = 32, HALVES = 2, WORDS = 43, FIRST_HALF = 0, FIRST_WORD = 4, CENTER = 16;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = true;
  template <int center> static REGARD_INLINE V<float> code(BlockCursor block, int part, int i) {
    const Ints low = bits_at(block.word(11 + part / 2 * 8 + i / 4), i % 4 * 8 + part % 2 * 4, 15);
    return to_float((low | bits_at(block.word(3 + i / 4), i % 4 * 8 + part, 1) << 4) - center);
  }
};

struct Q6_K {
  static constexpr int INPUTS = 256, PART = 16, HALVES = 1, WORDS = 52, FIRST_HALF = 208, FIRST_WORD = 0, CENTER = 0;
  static constexpr bool HAS_SCALE = true, HAS_OFFSET = false;
  template <int> static REGARD_INLINE V<float> code(BlockCursor block, int part, int i) {
    const int half = part / 8, quarter = part % 8 / 2, at = part % 2 * 16 + i;  // 128 inputs, 32 of these, and one
    const Words low = block.word(half * 16 + quarter % 2 * 8 + at / 4), high = block.word(32 + half * 8 + at / 4);
    const int shift = at % 4 * 8;
    return to_float((bits_at(low, shift + quarter / 2 * 4, 15) | bits_at(high, shift + quarter * 2, 3) << 4) - 32);
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int part) {
    return block.half(0) * to_float(Ints(block.word(48 + part / 4) << (24 - part % 4 * 8)) >> 24);
  }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

// Half precision: a block is one weight, which is its own code.
template <DType dtype> struct Half {
  static constexpr int INPUTS = 1, PART = 1, HALVES = 1, WORDS = 0, FIRST_HALF = 0, FIRST_WORD = 2, CENTER = 0;
  static constexpr bool HAS_SCALE = false, HAS_OFFSET = false;
  template <int> static REGARD_INLINE V<float> code(BlockCursor block, int, int) { return block.half(0, dtype); }
  static REGARD_INLINE V<float> scale(BlockCursor, int) { return splat(1.0f); }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

// Groups lie one after the other; what comes this many bytes later is fetched while a part is multiplied, and displaces
// nothing else in the caches, such as what the interpreter needs between two calls.
constexpr ptrdiff_t PREFETCH_GROUP_BYTES = 8192;

REGARD_INLINE const char* group_at(const LinearParams& params, ptrdiff_t group) {
  return params.weight + group * group_bytes(params.quantization, params.depth);
}

// Where the blocks of a group begin, from the lane `lane` on.
REGARD_INLINE BlockCursor first_block(const LinearParams& params, ptrdiff_t group, int lane) {
  const char* at = group_at(params, group);
  return {reinterpret_cast<const uint16_t*>(at) + lane,
          reinterpret_cast<const uint32_t*>(at + group_halves_bytes(params.quantization, params.depth)) + lane};
}

// Input i of a part, for a vector of outputs.
template <class Format>
REGARD_INLINE V<float> dequantized(BlockCursor block, int part, int i, V<float> scale, V<float> offset) {
  const V<float> code = Format::template code<0>(block, part, i);
  if constexpr (Format::HAS_OFFSET) return fma<float>(code, scale, offset);
  if constexpr (Format::HAS_SCALE) return code * scale;
  return code;
}

// Dequantize `depth` inputs, from `start` on, of a vector of outputs: row t of `to` has those of one input.
template <class Format>
void dequantize(BlockCursor block, ptrdiff_t start, ptrdiff_t depth, float* to, ptrdiff_t to_stride) {
  block = block.next<Format>(ceil_div(start, Format::INPUTS));
  for (ptrdiff_t t = 0; t < depth; t += Format::INPUTS, block = block.next<Format>())
    for (int part = 0; part < Format::INPUTS / Format::PART; ++part) {
      const V<float> scale = Format::scale(block, part), offset = Format::offset(block, part);
#pragma GCC unroll 32
      for (int i = 0; i < Format::PART; ++i, to += to_stride)
        store<float>(to, dequantized<Format>(block, part, i, scale, offset));
    }
}

// The same transposed: row n of `to` has the inputs of output n. `start` and `count` are those of whole parts; of half
// precision any, and rows are padded with zeros to whole vectors.
template <class Format>
void dequantize_transposed(BlockCursor first, ptrdiff_t start, ptrdiff_t count, float* to, ptrdiff_t to_stride) {
  constexpr int N = LANES<float>, PART = Format::PART < N ? N : Format::PART;
  for (ptrdiff_t t = 0; t < count; t += PART) {
    const BlockCursor block = first.next<Format>((start + t) / Format::INPUTS);
    const int part = int((start + t) % Format::INPUTS) / Format::PART;
    const V<float> scale = Format::scale(block, part), offset = Format::offset(block, part);
#pragma GCC unroll 1
    for (int i = 0; i < PART; i += N) {
      V<float> x[N] = {};
      if constexpr (Format::PART == 1) {
        for (int j = 0; j < N && t + j < count; ++j) x[j] = Format::template code<0>(block.next<Format>(j), 0, 0);
      } else {
#pragma GCC unroll 32
        for (int j = 0; j < N; ++j) x[j] = dequantized<Format>(block, part, i + j, scale, offset);
      }
      transpose<N>(x);
#pragma GCC unroll 32
      for (int j = 0; j < N; ++j) store<float>(to + j * to_stride + t + i, x[j]);
    }
  }
}

// Fetch the bytes of `inputs` inputs of a group, from `at` on, which is moved.
template <class Format> REGARD_INLINE void prefetch_inputs(const char*& at, int inputs) {
  const int bytes = GROUP * (2 * Format::HALVES + 4 * Format::WORDS) * inputs / Format::INPUTS;
#pragma GCC unroll 16
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 0);
  at += bytes;
}

// Dot products of rows of x with a vector of outputs. x_sums has the sum of x over each part, if there are offsets;
// `ahead` is fetched for later. Independent chains of sums hide the latency of additions.
template <class Format, int rows>
REGARD_INLINE void dot_blocks(BlockCursor block, const char* ahead, ptrdiff_t depth, const float* const (&x)[rows],
                              const float* const (&x_sums)[rows], V<float> (&totals)[rows]) {
  constexpr int CHAINS = rows == 1 ? 4 : 2;
  ptrdiff_t part_index = 0;
  for (ptrdiff_t t = 0; t < depth; t += Format::INPUTS, block = block.next<Format>()) {
#pragma GCC unroll 2
    for (int part = 0; part < Format::INPUTS / Format::PART; ++part, ++part_index) {
      prefetch_inputs<Format>(ahead, Format::PART);
      V<float> sums[rows][CHAINS] = {};
      const ptrdiff_t at = t + part * Format::PART;
#pragma GCC unroll 32
      for (int i = 0; i < Format::PART; ++i) {
        const V<float> code = Format::template code<Format::CENTER>(block, part, i);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sums[r][i % CHAINS] = fma<float>(code, splat(x[r][at + i]), sums[r][i % CHAINS]);
      }
      const V<float> scale = Format::scale(block, part);
      V<float> offset = {};
      if (Format::HAS_OFFSET) offset = fma<float>(scale, splat(float(Format::CENTER)), Format::offset(block, part));
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        V<float> sum = sums[r][0];
#pragma GCC unroll 4
        for (int chain = 1; chain < CHAINS; ++chain) sum += sums[r][chain];
        totals[r] = fma<float>(sum, scale, totals[r]);
        if (Format::HAS_OFFSET) totals[r] = fma<float>(offset, splat(x_sums[r][part_index]), totals[r]);
      }
    }
  }
}

template <class HalfFormat, int rows>
REGARD_INLINE void dot_halves(BlockCursor block, const char* ahead, ptrdiff_t depth, const float* const (&x)[rows],
                              V<float> (&totals)[rows]) {
  constexpr int CHAINS = 4;
  V<float> sums[rows][CHAINS] = {};
  ptrdiff_t t = 0;
  for (; t + CHAINS <= depth; t += CHAINS) {
    prefetch_inputs<HalfFormat>(ahead, CHAINS);
#pragma GCC unroll 4
    for (int chain = 0; chain < CHAINS; ++chain, block = block.next<HalfFormat>()) {
      const V<float> weight = HalfFormat::template code<0>(block, 0, 0);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sums[r][chain] = fma<float>(weight, splat(x[r][t + chain]), sums[r][chain]);
    }
  }
  for (; t < depth; ++t, block = block.next<HalfFormat>())
    for (int r = 0; r < rows; ++r)
      sums[r][0] = fma<float>(HalfFormat::template code<0>(block, 0, 0), splat(x[r][t]), sums[r][0]);
  for (int r = 0; r < rows; ++r)
    for (int chain = 0; chain < CHAINS; ++chain) totals[r] += sums[r][chain];
}

// Call f(format) with the type above that belongs to a kind.
template <class F> REGARD_INLINE auto with_format(Quantization quantization, F f) {
  switch (quantization) {
    case Quantization::q4_0: return f(Q4_0{});
    case Quantization::q4_1: return f(Q4_1{});
    case Quantization::q5_0: return f(Q5_0{});
    case Quantization::q5_1: return f(Q5_1{});
    case Quantization::q8_0: return f(Q8_0{});
    case Quantization::q4_k: return f(Q4_K{});
    case Quantization::q5_k: return f(Q5_K{});
    case Quantization::q6_k: return f(Q6_K{});
    case Quantization::bf16: return f(Half<DType::bfloat16>{});
    default: return f(Half<DType::float16>{});
  }
}

}  // namespace regard::REGARD_ISA
