// Products of x in fixed point with the codes of quantized weights.
//
// The numbers of a part of x become integers of three signed bytes, times a factor of the part. Processors multiply
// bytes four at a time and add them as integers, without rounding: whatever the order, and the number of rows, a part
// has the same bits. x is rounded, by at most 3 * 2^-24 of the largest number of its part, and so is the sum of the
// parts, in floats.
#pragma once

#include "gemm/quantized.h"

namespace regard::REGARD_ISA {

// Rows of x for which this is faster than multiply-adds of floats.
#if defined(__AVX512VNNI__)
template <class Format> constexpr ptrdiff_t FIXED_POINT_MAX_ROWS = IS_HALF<Format> ? 0 : PTRDIFF_MAX;
#elif defined(__AVX2__)
template <class Format> constexpr ptrdiff_t FIXED_POINT_MAX_ROWS = Format::MAX_CODE < 128 ? 1 : 0;
#else
template <class Format> constexpr ptrdiff_t FIXED_POINT_MAX_ROWS = 0;
#endif

constexpr int DIGITS = 3;  // in base 256, the highest first
typedef int8_t DigitVector __attribute__((vector_size(VECTOR_BYTES / 4)));

// round_to_int: to the nearest integers, which fit. add_byte_products: sums + a0 b0 + a1 b1 + a2 b2 + a3 b3, of the
// four bytes of each lane; those of a have no sign, those of b have one.
#if defined(__AVX512F__)
REGARD_INLINE Ints round_to_int(V<float> x) { return Ints(_mm512_cvtps_epi32(__m512(x))); }
REGARD_INLINE Ints add_byte_products(Ints sums, Words a, int32_t b) {
#if defined(__AVX512VNNI__)
  return Ints(_mm512_dpbusd_epi32(__m512i(sums), __m512i(a), _mm512_set1_epi32(b)));
#else  // sums of two saturate at 2^15: bytes of a are below 128
  return sums + Ints(_mm512_madd_epi16(_mm512_maddubs_epi16(__m512i(a), _mm512_set1_epi32(b)), _mm512_set1_epi16(1)));
#endif
}
#elif defined(__AVX2__)
REGARD_INLINE Ints round_to_int(V<float> x) { return Ints(_mm256_cvtps_epi32(__m256(x))); }
REGARD_INLINE Ints add_byte_products(Ints sums, Words a, int32_t b) {
  return sums + Ints(_mm256_madd_epi16(_mm256_maddubs_epi16(__m256i(a), _mm256_set1_epi32(b)), _mm256_set1_epi16(1)));
}
#else  // not used
Ints round_to_int(V<float> x);
Ints add_byte_products(Ints sums, Words a, int32_t b);
#endif

// A part of a row of x: number i is scale * (65536 d[0][i] + 256 d[1][i] + d[2][i]), d as bytes.
template <int part> struct FixedPart {
  int32_t digits[DIGITS][part / 4];
  int32_t centers[2];  // -CENTER times the sums of 256 d[0] + d[1], and of d[2]: codes are summed with CENTER in them
  float scale, sum;    // of the numbers
};

// The units of the largest number of a part: with digits of 127, up to the rounding of the lowest.
constexpr float FIXED_POINT_UNITS = 0x7f7f00;
constexpr float FIXED_POINT_MIN = 0x1p-100f;  // smaller numbers have units of this one, so that their number is finite

template <class Format> void to_fixed_point(const float* x, FixedPart<Format::PART>* to) {
  constexpr int N = LANES<float>, VECTORS = Format::PART / N;
  const auto larger = [](Ints a, Ints b) __attribute__((always_inline)) { return a > b ? a : b; };
  Ints largest = {};  // as bits: those of infinity and NaN are the largest
  for (int i = 0; i < VECTORS; ++i) largest = larger(largest, Ints(load<float>(x + i * N)) & 0x7fffffff);
  const float most = float_of(uint32_t(reduce_lanes<int32_t>(largest, larger)));
  const float bounded = min_of(max_of(FIXED_POINT_MIN, most), MAX_FINITE<float>), factor = FIXED_POINT_UNITS / bounded;
  Ints sums[2] = {};
  for (int i = 0; i < VECTORS; ++i) {
    const V<float> limit = splat(FIXED_POINT_UNITS);  // for infinity and NaN, which the scale has
    Ints value = round_to_int(min<float>(max<float>(-limit, load<float>(x + i * N) * factor), limit));
    sums[1] += value;
    for (int d = DIGITS; d-- > 0; value = (value + 128) >> 8) {
      const DigitVector digit = __builtin_convertvector(value, DigitVector);
      __builtin_memcpy(reinterpret_cast<char*>(to->digits[d]) + i * N, &digit, N);
      if (d == 1) sums[0] += value;
    }
  }
  const int32_t upper = reduce_sum<int32_t>(sums[0]), all = reduce_sum<int32_t>(sums[1]);
  to->centers[0] = -Format::CENTER * upper, to->centers[1] = -Format::CENTER * (all - 256 * upper);
  to->scale = max_of(most, bounded) / FIXED_POINT_UNITS;
  to->sum = float(all) * to->scale;
}

// Dot products of rows of x with a vector of outputs, added to their totals; `ahead` is fetched for later.
template <class Format, int rows>
REGARD_INLINE void dot_codes(BlockCursor block, const char* ahead, ptrdiff_t depth,
                             const FixedPart<Format::PART>* const (&x)[rows], V<float> (&totals)[rows]) {
  ptrdiff_t p = 0;
  for (ptrdiff_t t = 0; t < depth; t += Format::INPUTS, block = block.next<Format>()) {
#pragma GCC unroll 2
    for (int part = 0; part < Format::INPUTS / Format::PART; ++part, ++p) {
      if (ahead) prefetch_inputs<Format>(ahead, Format::PART);
      Ints sums[rows][DIGITS] = {};
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < 2; ++i) sums[r][1 + i] += x[r][p].centers[i];
#pragma GCC unroll 8
      for (int w = 0; w < Format::PART / 4; ++w) {
        const Words codes = Format::codes(block, part, w);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
          for (int d = 0; d < DIGITS; ++d) sums[r][d] = add_byte_products(sums[r][d], codes, x[r][p].digits[d][w]);
      }
      const V<float> scale = Format::scale(block, part), offset = centered_offset<Format>(block, part, scale);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const Ints upper = (sums[r][0] << 8) + sums[r][1];
        V<float> sum;
        if constexpr (double(Format::CENTER) * Format::PART * FIXED_POINT_UNITS < 0x1p31)  // all digits fit
          sum = to_float((upper << 8) + sums[r][2]);
        else
          sum = fma<float>(to_float(upper), splat(256.0f), to_float(sums[r][2]));
        totals[r] = fma<float>(sum * x[r][p].scale, scale, totals[r]);
        if (Format::HAS_OFFSET) totals[r] = fma<float>(offset, splat(x[r][p].sum), totals[r]);
      }
    }
  }
}

constexpr ptrdiff_t UNPACKED_INPUTS = 1024;  // at a time, of a vector of outputs

// Blocks whose parts were unpacked: a word for each four inputs, and the scale and the offset as floats.
template <class Format> struct Unpacked {
  static constexpr int PART = Format::PART, INPUTS = PART, HALVES = 0, WORDS = PART / 4 + 1 + Format::HAS_OFFSET;
  static constexpr int MAX_CODE = Format::MAX_CODE, CENTER = Format::CENTER;
  static constexpr bool HAS_OFFSET = Format::HAS_OFFSET;
  static REGARD_INLINE Words codes(BlockCursor block, int, int w) { return block.word(w); }
  static REGARD_INLINE V<float> scale(BlockCursor block, int) { return V<float>(block.word(PART / 4)); }
  static REGARD_INLINE V<float> offset(BlockCursor block, int) { return V<float>(block.word(PART / 4 + 1)); }
};
template <class Format>
constexpr ptrdiff_t UNPACKED_WORDS = UNPACKED_INPUTS / Format::PART * Unpacked<Format>::WORDS * GROUP;

// Unpack `depth` inputs of a vector of outputs.
template <class Format> void unpack(BlockCursor block, ptrdiff_t depth, uint32_t* to) {
  const auto put = [](uint32_t* at, auto x) { __builtin_memcpy(at, &x, sizeof x); };
  for (ptrdiff_t t = 0; t < depth; t += Format::INPUTS, block = block.next<Format>())
    for (int part = 0; part < Format::INPUTS / Format::PART; ++part, to += Unpacked<Format>::WORDS * GROUP) {
#pragma GCC unroll 8
      for (int w = 0; w < Format::PART / 4; ++w) put(to + w * GROUP, Format::codes(block, part, w));
      put(to + Format::PART / 4 * GROUP, Format::scale(block, part));
      if (Format::HAS_OFFSET) put(to + (Format::PART / 4 + 1) * GROUP, Format::offset(block, part));
    }
}

}  // namespace regard::REGARD_ISA
