// Vectors: as many numbers as one register of this instruction set holds, and what is done with them.
//
// Everything is written with the vector extensions that GCC and Clang share: a vector adds, multiplies, compares and
// selects as a number does, and the compiler chooses the instructions. The same source is compiled once for each
// instruction set (see CMakeLists.txt) into a namespace of its own, REGARD_ISA, so that no function compiled for one
// processor can be linked into the code of another. For the same reason nothing of the C++ library is used here whose
// templates the linker would merge.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef REGARD_ISA
#define REGARD_ISA generic
#endif

#define REGARD_INLINE inline __attribute__((always_inline))

namespace regard::REGARD_ISA {

// Bytes of a register, and how many registers wide the product's tile is: with ROWS rows it has to leave room for the
// operands, 6 x 4 + 4 of 32 registers, or 6 x 2 + 3 of 16.
#if defined(__AVX512F__)
constexpr int BYTES = 64, VECTORS = 4;
#elif defined(__AVX2__)
constexpr int BYTES = 32, VECTORS = 2;
#elif defined(__aarch64__)
constexpr int BYTES = 16, VECTORS = 4;
#else
constexpr int BYTES = 16, VECTORS = 2;
#endif
constexpr int ROWS = 6;

template <class T> struct VectorOf;
template <> struct VectorOf<float> { typedef float type __attribute__((vector_size(BYTES))); };
template <> struct VectorOf<double> { typedef double type __attribute__((vector_size(BYTES))); };
template <> struct VectorOf<int32_t> { typedef int32_t type __attribute__((vector_size(BYTES))); };
template <> struct VectorOf<int64_t> { typedef int64_t type __attribute__((vector_size(BYTES))); };
template <> struct VectorOf<uint32_t> { typedef uint32_t type __attribute__((vector_size(BYTES))); };
template <> struct VectorOf<uint64_t> { typedef uint64_t type __attribute__((vector_size(BYTES))); };
template <class T> using V = typename VectorOf<T>::type;

// The integer as wide as a number: what comparing two vectors gives, and what indices of lanes are held in.
template <class T> struct IntegerOf;
template <> struct IntegerOf<float> { typedef int32_t type; typedef uint32_t unsigned_type; };
template <> struct IntegerOf<double> { typedef int64_t type; typedef uint64_t unsigned_type; };
template <class T> using Int = typename IntegerOf<T>::type;
template <class T> using Unsigned = typename IntegerOf<T>::unsigned_type;  // without a sign: those of NaN may overflow

template <class T> constexpr int LANES = BYTES / static_cast<int>(sizeof(T));
template <class T> constexpr T INFINITE = static_cast<T>(__builtin_inf());
template <class T> constexpr T LARGEST = static_cast<T>(sizeof(T) == 4 ? 3.40282346638528859812e+38 : 1.79769313486231570815e+308);

template <class T> REGARD_INLINE V<T> load(const T* from) {
  V<T> x;
  __builtin_memcpy(&x, from, sizeof x);  // any alignment
  return x;
}

template <class T> REGARD_INLINE void store(T* to, V<T> x) { __builtin_memcpy(to, &x, sizeof x); }

// A streaming (non-temporal) store: a vector as wide as a line of the caches goes past them, without a look at what was
// there. `to` begins a line. What was stored so is to be seen by others after finish_streaming().
#if defined(__AVX512F__)
constexpr bool STREAMS = true;
template <class T> REGARD_INLINE void store_streaming(T* to, V<T> x) {
  if constexpr (sizeof(T) == 4) _mm512_stream_ps(to, __m512(x));
  else _mm512_stream_pd(to, __m512d(x));
}
REGARD_INLINE void finish_streaming() { _mm_sfence(); }
#else
constexpr bool STREAMS = false;
template <class T> REGARD_INLINE void store_streaming(T* to, V<T> x) { store<T>(to, x); }
REGARD_INLINE void finish_streaming() {}
#endif

template <class T> REGARD_INLINE V<T> splat(T x) { return x - V<T>{}; }

// The larger, and the smaller, of two; NaN in `a` stays, for no comparison with it holds. (The one instruction for it is
// named where the compiler does not find it by itself.)
template <class T> REGARD_INLINE V<T> at_least(V<T> a, V<T> low) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return V<T>(_mm512_max_ps(__m512(low), __m512(a)));
  else return V<T>(_mm512_max_pd(__m512d(low), __m512d(a)));
#else
  return a < low ? low : a;
#endif
}
template <class T> REGARD_INLINE V<T> at_most(V<T> a, V<T> high) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return V<T>(_mm512_min_ps(__m512(high), __m512(a)));
  else return V<T>(_mm512_min_pd(__m512d(high), __m512d(a)));
#else
  return a > high ? high : a;
#endif
}

template <class A> REGARD_INLINE A smaller(A a, A b) { return b < a ? b : a; }
template <class A> REGARD_INLINE A larger(A a, A b) { return a < b ? b : a; }
REGARD_INLINE ptrdiff_t round_up(ptrdiff_t n, ptrdiff_t to) { return (n + to - 1) / to * to; }

// Whether a comparison holds in any lane.
template <class M> REGARD_INLINE bool any(M mask) {
  bool found = false;
  for (size_t i = 0; i < sizeof(M) / sizeof(mask[0]); ++i) found |= mask[i] != 0;
  return found;
}

template <int... I> struct Numbers {};
template <int N, int... I> struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <int... I> struct CountTo<0, I...> { typedef Numbers<I...> type; };

// What `both` makes of all lanes: of two halves first, then of their halves.
template <class T, int half, int... I> REGARD_INLINE V<T> turned(V<T> x, Numbers<I...>) {
  return __builtin_shufflevector(x, x, (I + half) % LANES<T>...);
}
template <class T, int half = LANES<T> / 2, class F> REGARD_INLINE T over_lanes(V<T> x, F both) {
  if constexpr (half == 0) return x[0];
  else return over_lanes<T, half / 2>(both(x, turned<T, half>(x, typename CountTo<LANES<T>>::type{})), both);
}

template <class T> REGARD_INLINE T sum(V<T> x) {
  return over_lanes<T>(x, [](V<T> a, V<T> b) __attribute__((always_inline)) { return a + b; });
}
template <class T> REGARD_INLINE T maximum(V<T> x) {  // NaN wins, so that it is not lost
  return over_lanes<T>(x, [](V<T> a, V<T> b) __attribute__((always_inline)) { return a > b || a != a ? a : b; });
}

// exp(x) = 2^n exp(r) with a whole n and |r| <= log(2) / 2. n log(2) is subtracted in two parts, the first of which has
// so few digits that the product is exact. exp(r) = 1 + r + r^2 q(r), where q is a polynomial that interpolates at
// Chebyshev nodes (the relative error of the sum is below 5e-9 in float32, 2e-17 in float64); 2^n is put together from
// bits. The error is below 1 ulp, or 1.3 where multiplication and addition are not fused.
template <class T> struct Exponential;

template <> struct Exponential<float> {
  static constexpr float LOG2_E = 1.44269504f, LN2_HIGH = 0x1.63p-1f, LN2_LOW = -2.12194440054690583e-4f;
  static constexpr float ZERO_BELOW = -104, NORMAL_BELOW = -87.3365f, SHIFTER = 0x1.8p23f;
  static constexpr int MANTISSA = 23;

  static REGARD_INLINE V<float> rest(V<float> r) {  // (exp(r) - 1 - r) / r^2
    V<float> q = splat(0.00139261835877134945f);
    q = q * r + 0.00836317905272257737f;
    q = q * r + 0.0416665546172045742f;
    q = q * r + 0.166665769896987757f;
    return q * r + 0.5f;
  }
};

template <> struct Exponential<double> {
  static constexpr double LOG2_E = 1.44269504088896340736, LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 1.90821492927058770002e-10;
  static constexpr double ZERO_BELOW = -746, NORMAL_BELOW = -708.3964, SHIFTER = 0x1.8p52;
  static constexpr int MANTISSA = 52;

  static REGARD_INLINE V<double> rest(V<double> r) {
    V<double> q = splat(2.51003854955103191e-8);
    q = q * r + 2.76200884454097482e-7;
    q = q * r + 2.75572684599970648e-6;
    q = q * r + 0.0000248015212959543751;
    q = q * r + 0.000198412698630536169;
    q = q * r + 0.00138888889172137169;
    q = q * r + 0.00833333333333006183;
    q = q * r + 0.0416666666666241279;
    q = q * r + 0.166666666666666675;
    return q * r + 0.500000000000000102;
  }
};

template <class T> REGARD_INLINE V<T> polynomial_of_exp(V<T> r) { return (Exponential<T>::rest(r) * r + T(1)) * r + T(1); }

// exp(x) for x <= 0, and somewhat above; 0 where it is below the smallest number, and NaN for NaN.
template <class T> REGARD_INLINE V<T> exp(V<T> x) {
  typedef Exponential<T> E;
#if defined(__AVX512F__)
  // Two instructions round, and scale by a power of two down to the numbers below the normal ones, and to 0.
  x = at_least<T>(x, splat(E::ZERO_BELOW));
  V<T> n = x * E::LOG2_E;
  if constexpr (sizeof(T) == 4) n = V<T>(_mm512_roundscale_ps(__m512(n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  else n = V<T>(_mm512_roundscale_pd(__m512d(n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const V<T> p = polynomial_of_exp<T>((x - n * E::LN2_HIGH) - n * E::LN2_LOW);
  if constexpr (sizeof(T) == 4) return V<T>(_mm512_scalef_ps(__m512(p), __m512(n)));
  else return V<T>(_mm512_scalef_pd(__m512d(p), __m512d(n)));
#else
  // Added to 1.5 * 2^MANTISSA, a number is rounded to a whole one, which then stands in the low bits, from where it is
  // added to the exponent. What lies below the normal numbers becomes 0.
  const V<T> within = at_least<T>(x, splat(E::NORMAL_BELOW));
  const V<T> shifted = within * E::LOG2_E + E::SHIFTER, n = shifted - E::SHIFTER;
  const V<T> p = polynomial_of_exp<T>((within - n * E::LN2_HIGH) - n * E::LN2_LOW);
  const V<T> scaled = V<T>(V<Unsigned<T>>(p) + (V<Unsigned<T>>(shifted) << E::MANTISSA));
  return x < E::NORMAL_BELOW ? V<T>{} : (x == x ? scaled : x);  // adding to the bits of NaN would lose it
#endif
}

template <class T> REGARD_INLINE T one_exp(T x) { return exp<T>(splat(x))[0]; }

// tanh(x) = e / (e + 2) with e = exp(2x) - 1, which is summed without its 1 so that small numbers keep their digits.
template <class T> REGARD_INLINE V<T> tanh(V<T> x) {
  typedef Exponential<T> E;
  const V<T> y = at_most<T>(at_least<T>(2 * x, splat(T(-40))), splat(T(40)));  // beyond, the quotient is -1 or 1
  const V<T> shifted = y * E::LOG2_E + E::SHIFTER, n = shifted - E::SHIFTER;
  const V<T> r = (y - n * E::LN2_HIGH) - n * E::LN2_LOW;
  const V<T> power = V<T>((V<Unsigned<T>>(shifted) << E::MANTISSA) + V<Unsigned<T>>(splat(T(1))));
  const V<T> e = power * ((E::rest(r) * r + T(1)) * r) + (power - 1);
  return e / (e + 2);
}

// Tiles of N x N numbers change rows and columns: blocks of 2 x 2 squares, of N / 2 numbers a side, then of half as many,
// and so on, change the two squares beside the diagonal. A pair of rows is all that a step needs.

template <int N, int SIDE, class X, int... I> REGARD_INLINE void swap_squares(X& upper, X& lower, Numbers<I...>) {
  const X a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, (I & SIDE ? N + I - SIDE : I)...);
  lower = __builtin_shufflevector(a, b, (I & SIDE ? N + I : I + SIDE)...);
}

template <int N, int SIDE = N / 2, class X> REGARD_INLINE void transpose(X (&x)[N]) {
#pragma GCC unroll 32
  for (int i = 0; i < N; ++i)
    if (!(i & SIDE)) swap_squares<N, SIDE>(x[i], x[i + SIDE], typename CountTo<N>::type{});
  if constexpr (SIDE > 1) transpose<N, SIDE / 2>(x);
}

}  // namespace regard::REGARD_ISA
