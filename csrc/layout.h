// From the caller's arrays to what the product reads, and back: kinds of floats, transposed blocks.
#pragma once

#include "kernels.h"
#include "product.h"
#include "simd.h"

namespace regard::REGARD_ISA {

// Sixteen bits and float32. bfloat16 is its upper half. float16 has other widths: its bits, moved, are a float32 whose
// exponent is too small by 112.
REGARD_INLINE uint32_t bits_of(float x) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); return bits; }
REGARD_INLINE float float_of(uint32_t bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }

REGARD_INLINE float from_bfloat16(uint16_t x) { return float_of(uint32_t(x) << 16); }

REGARD_INLINE float from_float16(uint16_t x) {
  const uint32_t magnitude = uint32_t(x & 0x7fff) << 13, sign = uint32_t(x & 0x8000) << 16;
  const float finite = float_of(magnitude) * 0x1p112f;
  const uint32_t special = magnitude | 0x7f800000;  // infinity and NaN
  return float_of((magnitude >= 0x0f800000 ? special : bits_of(finite)) | sign);
}

REGARD_INLINE uint16_t to_bfloat16(float x) {  // to the nearest, ties to even
  const uint32_t bits = bits_of(x);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

REGARD_INLINE uint16_t to_float16(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);        // NaN
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);       // rounds to infinity
  if (magnitude < 0x38800000)                                        // below the normal numbers: added to 1/2,
    return uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));  // it is rounded at their last bit
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

// Rows of short floats, a vector at a time and the rest one by one.
typedef uint16_t Shorts __attribute__((vector_size(BYTES / 2)));
typedef uint32_t Bits __attribute__((vector_size(BYTES)));

inline void widen(Kind kind, const uint16_t* from, ptrdiff_t count, float* to) {
  ptrdiff_t i = 0;
  for (; i + LANES<float> <= count; i += LANES<float>) {
    Shorts x;
    __builtin_memcpy(&x, from + i, sizeof x);
    Bits bits = __builtin_convertvector(x, Bits);
    if (kind == Kind::bfloat16) {
      bits <<= 16;
    } else {
#if defined(__AVX512F__)
      bits = Bits(_mm512_cvtph_ps(__m256i(x)));
#elif defined(__F16C__)
      bits = Bits(_mm256_cvtph_ps(__m128i(x)));
#else
      const Bits magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
      const Bits finite = Bits(V<float>(magnitude) * 0x1p112f);
      bits = (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite) | sign;
#endif
    }
    store<float>(to + i, V<float>(bits));
  }
  for (; i < count; ++i) to[i] = kind == Kind::bfloat16 ? from_bfloat16(from[i]) : from_float16(from[i]);
}

inline void narrow(Kind kind, const float* from, ptrdiff_t count, uint16_t* to) {
  ptrdiff_t i = 0;
#if defined(__AVX512F__) || defined(__F16C__)
  constexpr bool halves = true;
#else
  constexpr bool halves = false;
#endif
  for (; (halves || kind == Kind::bfloat16) && i + LANES<float> <= count; i += LANES<float>) {
    Shorts x;
    if (kind == Kind::bfloat16) {
      const V<float> numbers = load<float>(from + i);
      const Bits bits = Bits(numbers), rounded = bits + 0x7fff + (bits >> 16 & 1);
      x = __builtin_convertvector((numbers != numbers ? bits | 0x400000 : rounded) >> 16, Shorts);
    } else {
#if defined(__AVX512F__)
      x = Shorts(_mm512_cvtps_ph(__m512(load<float>(from + i)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
      x = Shorts(_mm256_cvtps_ph(__m256(load<float>(from + i)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    }
    __builtin_memcpy(to + i, &x, sizeof x);
  }
  for (; i < count; ++i) to[i] = kind == Kind::bfloat16 ? to_bfloat16(from[i]) : to_float16(from[i]);
}

constexpr bool is_short(Kind kind) { return kind == Kind::float16 || kind == Kind::bfloat16; }

// The matrix of one head, which has to hold the numbers computed with.
template <class T> REGARD_INLINE Matrix<T> matrix_of(const Operand& x, ptrdiff_t head) {
  return {reinterpret_cast<const T*>(x.data) + x.offsets[head], x.row, x.column};
}

// Rows of an operand as numbers to compute with: where they are, or, if they are short floats, widened into `room`,
// which has `width` numbers for each row.
template <class T>
Matrix<T> rows_of(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, T* room) {
  if (!is_short(x.kind)) return matrix_of<T>(x, head).from(start);
  if constexpr (sizeof(T) == 4) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + x.offsets[head] + start * x.row;
    for (ptrdiff_t i = 0; i < count; ++i, from += x.row)
      if (x.column == 1) widen(x.kind, from, width, room + i * width);
      else
        for (ptrdiff_t j = 0; j < width; ++j) widen(x.kind, from + j * x.column, 1, room + i * width + j);
  }
  return {room, width, 1};
}

// Write a row to an operand, rounded to its kind.
template <class T>
void write_row(const T* from, ptrdiff_t width, const Operand& to, ptrdiff_t head, ptrdiff_t row) {
  const ptrdiff_t at = to.offsets[head] + row * to.row;
  if (!is_short(to.kind)) {
    for (ptrdiff_t j = 0; j < width; ++j) reinterpret_cast<T*>(to.data)[at + j * to.column] = from[j];
  } else if constexpr (sizeof(T) == 4) {
    uint16_t* out = reinterpret_cast<uint16_t*>(to.data) + at;
    if (to.column == 1) narrow(to.kind, from, width, out);
    else
      for (ptrdiff_t j = 0; j < width; ++j) narrow(to.kind, from + j, 1, out + j * to.column);
  }
}

// For `rows` x `columns` numbers, those of a row side by side: take(j, i, x) with x[n] = from[i + n][j], for vectors of
// as many rows as there are whole ones. Returns how many rows that were.
template <class T, class F>
REGARD_INLINE ptrdiff_t for_each_column(const T* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns, F take) {
  constexpr int N = LANES<T>;
  ptrdiff_t i = 0;
  for (; i + N <= rows; i += N) {
    ptrdiff_t j = 0;
    for (; j + N <= columns; j += N) {
      V<T> x[N];
#pragma GCC unroll 32
      for (int r = 0; r < N; ++r) x[r] = load<T>(from + (i + r) * from_row + j);
      transpose<N>(x);
#pragma GCC unroll 32
      for (int r = 0; r < N; ++r) take(j + r, i, x[r]);
    }
    for (; j < columns; ++j) {
      V<T> x;
      for (int r = 0; r < N; ++r) x[r] = from[(i + r) * from_row + j];
      take(j, i, x);
    }
  }
  return i;
}

// to[j][i] = from[i][j] for `rows` x `columns` numbers; the numbers of a row of `from` lie side by side.
template <class T>
void transposed(const T* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns, T* to, ptrdiff_t to_row) {
  ptrdiff_t i = for_each_column<T>(from, from_row, rows, columns, [=](ptrdiff_t j, ptrdiff_t at, V<T> x) __attribute__((always_inline)) {
    store<T>(to + j * to_row + at, x);
  });
  for (; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

template <class T> void transposed(Matrix<T> from, ptrdiff_t rows, ptrdiff_t columns, T* to, ptrdiff_t to_row) {
  if (from.column == 1) return transposed<T>(from.data, from.row, rows, columns, to, to_row);
  for (ptrdiff_t i = 0; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j) to[j * to_row + i] = from.data[i * from.row + j * from.column];
}

// Bytes, such as those of a mask, in tiles of 16 x 16.
inline void transposed(const uint8_t* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns, uint8_t* to,
                       ptrdiff_t to_row) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  ptrdiff_t i = 0;
  for (; i + 16 <= rows; i += 16) {
    ptrdiff_t j = 0;
    for (; j + 16 <= columns; j += 16) {
      Bytes x[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) __builtin_memcpy(&x[r], from + (i + r) * from_row + j, 16);
      transpose<16>(x);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) __builtin_memcpy(to + (j + r) * to_row + i, &x[r], 16);
    }
    for (; j < columns; ++j)
      for (int r = 0; r < 16; ++r) to[j * to_row + i + r] = from[(i + r) * from_row + j];
  }
  for (; i < rows; ++i)
    for (ptrdiff_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

// Write `rows` rows of `width` numbers, which lie transposed ([width][QUERIES]), to an operand, rounded to its kind.
// `room` holds QUERIES * width numbers.
template <class T>
void write_transposed(const T* from, ptrdiff_t rows, ptrdiff_t width, const Operand& to, ptrdiff_t head,
                      ptrdiff_t start, T* room) {
  if (!is_short(to.kind) && to.column == 1) {
    T* out = reinterpret_cast<T*>(to.data) + to.offsets[head] + start * to.row;
    return transposed<T>(from, QUERIES, width, rows, out, to.row);
  }
  transposed<T>(from, QUERIES, width, rows, room, width);
  for (ptrdiff_t i = 0; i < rows; ++i) write_row<T>(room + i * width, width, to, head, start + i);
}

// Whether all numbers are finite.
template <class T> bool is_finite(Matrix<T> x, ptrdiff_t rows, ptrdiff_t columns) {
  bool finite = true;
  V<T> zeros = {};
  for (ptrdiff_t i = 0; i < rows; ++i) {
    const T* row = x.data + i * x.row;
    ptrdiff_t j = 0;
    for (; x.column == 1 && j + LANES<T> <= columns; j += LANES<T>) {
      const V<T> some = load<T>(row + j);
      zeros += some - some;  // 0, or NaN for what is not finite
    }
    for (; j < columns; ++j) finite &= row[j * x.column] - row[j * x.column] == 0;
  }
  return finite && !any(zeros != 0);
}

// Numbers of scratch memory, handed out one piece behind the other, each on a line of the cache. With no memory it
// counts how much is needed: the same code asks for it and measures it.
class Scratch {
 public:
  explicit Scratch(void* memory) : base_(static_cast<char*>(memory)) {}

  template <class T> T* take(ptrdiff_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += size_t(round_up(count * ptrdiff_t(sizeof(T)), 64));
    return piece;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

}  // namespace regard::REGARD_ISA
