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

template <class T, Kind kind> struct Stored;  // how a number that is computed with as T lies in memory
template <> struct Stored<float, Kind::float32> {
  typedef float type;
  static REGARD_INLINE float read(float x) { return x; }
  static REGARD_INLINE float write(float x) { return x; }
};
template <> struct Stored<double, Kind::float64> {
  typedef double type;
  static REGARD_INLINE double read(double x) { return x; }
  static REGARD_INLINE double write(double x) { return x; }
};
template <> struct Stored<float, Kind::float16> {
  typedef uint16_t type;
  static REGARD_INLINE float read(uint16_t x) { return from_float16(x); }
  static REGARD_INLINE uint16_t write(float x) { return to_float16(x); }
};
template <> struct Stored<float, Kind::bfloat16> {
  typedef uint16_t type;
  static REGARD_INLINE float read(uint16_t x) { return from_bfloat16(x); }
  static REGARD_INLINE uint16_t write(float x) { return to_bfloat16(x); }
};

// Call f with the way in which numbers of `kind` are stored.
template <class T, class F> REGARD_INLINE void as_stored(Kind kind, F f) {
  if constexpr (sizeof(T) == 8) {
    f(Stored<double, Kind::float64>{});
  } else {
    if (kind == Kind::float16) f(Stored<float, Kind::float16>{});
    else if (kind == Kind::bfloat16) f(Stored<float, Kind::bfloat16>{});
    else f(Stored<float, Kind::float32>{});
  }
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
  as_stored<T>(x.kind, [&](auto stored) __attribute__((always_inline)) {
    typedef typename decltype(stored)::type S;
    const S* from = reinterpret_cast<const S*>(x.data) + x.offsets[head] + start * x.row;
    for (ptrdiff_t i = 0; i < count; ++i, from += x.row) {
      T* to = room + i * width;
      if (x.column == 1)
        for (ptrdiff_t j = 0; j < width; ++j) to[j] = stored.read(from[j]);
      else
        for (ptrdiff_t j = 0; j < width; ++j) to[j] = stored.read(from[j * x.column]);
    }
  });
  return {room, width, 1};
}

// to[j][i] = from[i][j] for `rows` x `columns` numbers; the numbers of a row of `from` lie side by side.
template <class T>
void transposed(const T* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns, T* to, ptrdiff_t to_row) {
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
      for (int r = 0; r < N; ++r) store<T>(to + (j + r) * to_row + i, x[r]);
    }
    for (; j < columns; ++j)
      for (int r = 0; r < N; ++r) to[j * to_row + i + r] = from[(i + r) * from_row + j];
  }
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
  as_stored<T>(to.kind, [&](auto stored) __attribute__((always_inline)) {
    typedef typename decltype(stored)::type S;
    S* out = reinterpret_cast<S*>(to.data) + to.offsets[head] + start * to.row;
    for (ptrdiff_t i = 0; i < rows; ++i)
      for (ptrdiff_t j = 0; j < width; ++j) out[i * to.row + j * to.column] = stored.write(room[i * width + j]);
  });
}

// Whether all numbers are finite.
template <class T> bool is_finite(Matrix<T> x, ptrdiff_t rows, ptrdiff_t columns) {
  bool finite = true;
  for (ptrdiff_t i = 0; i < rows; ++i) {
    const T* row = x.data + i * x.row;
    ptrdiff_t j = 0;
    if (x.column == 1) {
      V<T> zeros = {};
      for (; j + LANES<T> <= columns; j += LANES<T>) {
        const V<T> some = load<T>(row + j);
        zeros += some - some;  // 0, or NaN for what is not finite
      }
      finite &= !any(zeros != 0);
    }
    for (; j < columns; ++j) finite &= row[j * x.column] - row[j * x.column] == 0;
  }
  return finite;
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
