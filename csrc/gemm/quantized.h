// Weights that stay in the blocks in which GGUF stores them, and are read in registers.
//
// A weight of a block is scale * code + offset, with a code of at most eight bits. Blocks of GROUP outputs are
// interleaved (pack_group): each 16-bit field and each 32-bit word of a block is followed by that of the next output,
// so that one load reads the same inputs of as many outputs as a vector has lanes. A group has first the 16-bit fields
// of all blocks, then their words, as many bytes as the blocks have.
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

// The low `bits` bits of each byte of x, from `shift` on.
REGARD_INLINE Words byte_fields(Words x, int shift, int bits) {
  return x >> shift & (0x01010101u * ((1u << bits) - 1));
}

// Each kind has INPUTS weights in a block, in parts of PART inputs with one scale and one offset. Byte k of
// codes(block, part, w) is the code of input 4 w + k of a part, at most MAX_CODE; scale(block, part) and offset(block,
// part) are those of codes less ZERO. Sums of codes less CENTER are smaller, and round less. A stored block has HALVES
// 16-bit fields and WORDS words, which begin at bytes FIRST_HALF and FIRST_WORD.

// With one scale: codes less their middle.
template <int max_code> struct ScaledBlock {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 1, FIRST_HALF = 0, FIRST_WORD = 2;
  static constexpr int MAX_CODE = max_code, ZERO = (max_code + 1) / 2, CENTER = ZERO;
  static constexpr bool HAS_OFFSET = false;
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor, int) { return V<float>{}; }
};

// With a scale and an offset.
template <int max_code> struct OffsetBlock {
  static constexpr int INPUTS = 32, PART = 32, HALVES = 2, FIRST_HALF = 0, FIRST_WORD = 4;
  static constexpr int MAX_CODE = max_code, ZERO = 0, CENTER = (max_code + 1) / 2;
  static constexpr bool HAS_OFFSET = true;
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return block.half(0); }
  static REGARD_INLINE V<float> offset(BlockCursor block, int) { return block.half(1); }
};

// The second half of 32 inputs is in the upper four bits of the bytes that have the first.
template <class Block> struct FourBits : Block {
  static constexpr int WORDS = 4;
  static REGARD_INLINE Words codes(BlockCursor block, int, int w) {
    return byte_fields(block.word(w % 4), w / 4 * 4, 4);
  }
};
typedef FourBits<ScaledBlock<15>> Q4_0;
typedef FourBits<OffsetBlock<15>> Q4_1;

// The fifth bits of all inputs are one word, before those of the other four. The product puts four of them into as many
// bytes.
template <class Block> struct FiveBits : Block {
  static constexpr int WORDS = 5;
  static REGARD_INLINE Words codes(BlockCursor block, int, int w) {
    const Words fifth = (block.word(0) >> 4 * w & 15) * 0x02040810 & 0x10101010;
    return byte_fields(block.word(1 + w % 4), w / 4 * 4, 4) | fifth;
  }
};
typedef FiveBits<ScaledBlock<31>> Q5_0;
typedef FiveBits<OffsetBlock<31>> Q5_1;

struct Q8_0 : ScaledBlock<255> {
  static constexpr int WORDS = 8;
  static REGARD_INLINE Words codes(BlockCursor block, int, int w) { return block.word(w) ^ 0x80808080; }
};

// The K kinds have 256 inputs, and a scale of the scales. The scales and minima of Q4_K and Q5_K have six bits each, in
// three words: bytes 0 to 3 have the scales of parts 0 to 3, bytes 4 to 7 their minima, bytes 8 to 11 the low four bits
// of both for parts 4 to 7, whose upper bits are on top of bytes 0 to 7.
template <int max_code> struct SixBitScales {
  static constexpr int INPUTS = 256, PART = 32, HALVES = 2, FIRST_HALF = 0, FIRST_WORD = 4;
  static constexpr int MAX_CODE = max_code, ZERO = 0, CENTER = (max_code + 1) / 2;
  static constexpr bool HAS_OFFSET = true;
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

struct Q4_K : SixBitScales<15> {
  static constexpr int WORDS = 35;
  static REGARD_INLINE Words codes(BlockCursor block, int part, int w) {
    return byte_fields(block.word(3 + part / 2 * 8 + w), part % 2 * 4, 4);
  }
};

struct Q5_K : SixBitScales<31> {
  static constexpr int WORDS = 43;
  static REGARD_INLINE Words codes(BlockCursor block, int part, int w) {
    return byte_fields(block.word(11 + part / 2 * 8 + w), part % 2 * 4, 4) | byte_fields(block.word(3 + w), part, 1)
                                                                                 << 4;
  }
};

struct Q6_K : ScaledBlock<63> {
  static constexpr int INPUTS = 256, PART = 16, WORDS = 52, FIRST_HALF = 208, FIRST_WORD = 0;
  static REGARD_INLINE Words codes(BlockCursor block, int part, int w) {
    const int half = part / 8, quarter = part % 8 / 2, at = part % 2 * 4 + w;  // 128 inputs, 32 of these, and four
    return byte_fields(block.word(half * 16 + quarter % 2 * 8 + at), quarter / 2 * 4, 4) |
           byte_fields(block.word(32 + half * 8 + at), quarter * 2, 2) << 4;
  }
  static REGARD_INLINE V<float> scale(BlockCursor block, int part) {
    return block.half(0) * to_float(Ints(block.word(48 + part / 4) << (24 - part % 4 * 8)) >> 24);
  }
};

// Half precision: a block is one weight.
template <DType dtype> struct Half {
  static constexpr int INPUTS = 1, PART = 1, HALVES = 1, WORDS = 0, FIRST_HALF = 0, FIRST_WORD = 2, MAX_CODE = 0xffff;
  static constexpr bool HAS_OFFSET = false;
  static REGARD_INLINE V<float> weight(BlockCursor block) { return block.half(0, dtype); }
};
template <class Format> constexpr bool IS_HALF = Format::PART == 1;

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

// Code i of a part, less `center`, and the offset of codes less CENTER.
template <class Format> REGARD_INLINE V<float> code_at(BlockCursor block, int part, int i, int center) {
  return to_float(bits_at(Format::codes(block, part, i / 4), i % 4 * 8, 255) - center);
}
template <class Format> REGARD_INLINE V<float> centered_offset(BlockCursor block, int part, V<float> scale) {
  if constexpr (!Format::HAS_OFFSET) return V<float>{};
  return fma<float>(scale, splat(float(Format::CENTER)), Format::offset(block, part));
}

// Call f(i, weights) for each input i of a part of a vector of outputs.
template <class Format, class F> REGARD_INLINE void for_each_weight(BlockCursor block, int part, F f) {
  if constexpr (IS_HALF<Format>) {
    f(0, Format::weight(block));
  } else {
    const V<float> scale = Format::scale(block, part), offset = Format::offset(block, part);
#pragma GCC unroll 32
    for (int i = 0; i < Format::PART; ++i) {
      const V<float> code = code_at<Format>(block, part, i, Format::ZERO);
      f(i, Format::HAS_OFFSET ? fma<float>(code, scale, offset) : code * scale);
    }
  }
}

// Dequantize `depth` inputs, from `start` on, of a vector of outputs: row t of `to` has those of one input.
template <class Format>
void dequantize(BlockCursor block, ptrdiff_t start, ptrdiff_t depth, float* to, ptrdiff_t to_stride) {
  block = block.next<Format>(ceil_div(start, Format::INPUTS));
  for (ptrdiff_t t = 0; t < depth; t += Format::INPUTS, block = block.next<Format>())
    for (int part = 0; part < Format::INPUTS / Format::PART; ++part, to += Format::PART * to_stride)
      for_each_weight<Format>(block, part, [&](int i, V<float> weights) __attribute__((always_inline)) {
        store<float>(to + i * to_stride, weights);
      });
}

// The same transposed: row n of `to` has the inputs of output n. `start` and `count` are those of whole parts; of half
// precision any, and rows are padded with zeros to whole vectors.
template <class Format>
void dequantize_transposed(BlockCursor first, ptrdiff_t start, ptrdiff_t count, float* to, ptrdiff_t to_stride) {
  constexpr int N = LANES<float>, PART = Format::PART < N ? N : Format::PART;
  for (ptrdiff_t t = 0; t < count; t += PART) {
    V<float> x[PART] = {};
    for (int i = 0; i < PART && t + i < count; i += Format::PART) {
      const BlockCursor block = first.next<Format>((start + t + i) / Format::INPUTS);
      const int part = int((start + t + i) % Format::INPUTS) / Format::PART;
      for_each_weight<Format>(block, part,
                              [&](int j, V<float> weights) __attribute__((always_inline)) { x[i + j] = weights; });
    }
    for (int i = 0; i < PART; i += N) {
      V<float>(&tile)[N] = reinterpret_cast<V<float>(&)[N]>(x[i]);
      transpose<N>(tile);
#pragma GCC unroll 32
      for (int j = 0; j < N; ++j) store<float>(to + j * to_stride + t + i, tile[j]);
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
REGARD_INLINE void dot_floats(BlockCursor block, const char* ahead, ptrdiff_t depth, const float* const (&x)[rows],
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
        const V<float> code = code_at<Format>(block, part, i, Format::CENTER);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sums[r][i % CHAINS] = fma<float>(code, splat(x[r][at + i]), sums[r][i % CHAINS]);
      }
      const V<float> scale = Format::scale(block, part), offset = centered_offset<Format>(block, part, scale);
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
      const V<float> weight = HalfFormat::weight(block);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sums[r][chain] = fma<float>(weight, splat(x[r][t + chain]), sums[r][chain]);
    }
  }
  for (; t < depth; ++t, block = block.next<HalfFormat>())
    for (int r = 0; r < rows; ++r) sums[r][0] = fma<float>(HalfFormat::weight(block), splat(x[r][t]), sums[r][0]);
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
