// Conversions between half precision (float16, bfloat16) and float32.
#pragma once

#include "common.h"
#include "simd/simd.h"

namespace regard::REGARD_ISA {

constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

REGARD_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
REGARD_INLINE float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// bfloat16 is the upper half of a float32.
REGARD_INLINE float from_bfloat16(uint16_t x) { return float_of(uint32_t(x) << 16); }

// The bits of a float16, shifted to those of a float32, give an exponent that is 112 too small.
REGARD_INLINE float from_float16(uint16_t x) {
  const uint32_t magnitude = uint32_t(x & 0x7fff) << 13, sign = uint32_t(x & 0x8000) << 16;
  const float finite = float_of(magnitude) * 0x1p112f;
  const uint32_t special = magnitude | 0x7f800000;  // infinity and NaN
  return float_of((magnitude >= 0x0f800000 ? special : bits_of(finite)) | sign);
}

REGARD_INLINE uint16_t to_bfloat16(float x) {  // round to nearest, ties to even
  const uint32_t bits = bits_of(x);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

REGARD_INLINE uint16_t to_float16(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);   // NaN
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to infinity
  // Subnormal: adding 1/2 rounds at the last bit of a subnormal float16.
  if (magnitude < 0x38800000) return uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

typedef uint16_t HalfVector __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint32_t Bits __attribute__((vector_size(VECTOR_BYTES)));

REGARD_INLINE HalfVector load_half_vector(const uint16_t* from) {
  HalfVector x;
  __builtin_memcpy(&x, from, sizeof x);
  return x;
}

REGARD_INLINE V<float> upcast_vector(DType dtype, HalfVector x) {
  if (dtype == DType::bfloat16) return V<float>(__builtin_convertvector(x, Bits) << 16);
#if defined(__AVX512F__)
  return V<float>(_mm512_cvtph_ps(__m256i(x)));
#elif defined(__F16C__)
  return V<float>(_mm256_cvtph_ps(__m128i(x)));
#else
  const Bits bits = __builtin_convertvector(x, Bits), magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  const Bits finite = Bits(V<float>(magnitude) * 0x1p112f);
  return V<float>((magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite) | sign);
#endif
}

// Convert `count` contiguous elements; `dtype` is that of the half-precision side.
inline void upcast(DType dtype, const uint16_t* from, ptrdiff_t count, float* to) {
  ptrdiff_t i = 0;
  for (; i + LANES<float> <= count; i += LANES<float>)
    store<float>(to + i, upcast_vector(dtype, load_half_vector(from + i)));
  for (; i < count; ++i) to[i] = dtype == DType::bfloat16 ? from_bfloat16(from[i]) : from_float16(from[i]);
}

inline void downcast(DType dtype, const float* from, ptrdiff_t count, uint16_t* to) {
  ptrdiff_t i = 0;
#if defined(__AVX512F__) || defined(__F16C__)
  constexpr bool has_f16 = true;
#else
  constexpr bool has_f16 = false;
#endif
  for (; (has_f16 || dtype == DType::bfloat16) && i + LANES<float> <= count; i += LANES<float>) {
    HalfVector x;
    if (dtype == DType::bfloat16) {
      const V<float> values = load<float>(from + i);
      const Bits bits = Bits(values), rounded = bits + 0x7fff + (bits >> 16 & 1);
      x = __builtin_convertvector((values != values ? bits | 0x400000 : rounded) >> 16, HalfVector);
    } else {
#if defined(__AVX512F__)
      x = HalfVector(_mm512_cvtps_ph(__m512(load<float>(from + i)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
      x = HalfVector(_mm256_cvtps_ph(__m256(load<float>(from + i)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    }
    __builtin_memcpy(to + i, &x, sizeof x);
  }
  for (; i < count; ++i) to[i] = dtype == DType::bfloat16 ? to_bfloat16(from[i]) : to_float16(from[i]);
}

}  // namespace regard::REGARD_ISA
