// Vectors of one register of the instruction set, and their operations.
//
// The code uses the vector extensions of GCC and Clang: arithmetic, comparison and selection are written as for
// scalars. The same sources are compiled once for each instruction set (CMakeLists.txt) into its own namespace,
// REGARD_ISA, so that no function compiled for one processor is linked into the code of another. For the same reason
// they use no templates of the C++ standard library (std::min, ...): the linker would merge their instances.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "common.h"

#ifndef REGARD_ISA
#define REGARD_ISA generic
#endif

#define REGARD_INLINE inline __attribute__((always_inline))

namespace regard::REGARD_ISA {

// The microkernel's tile (gemm.cpp) is MR rows by TILE_VECTORS registers; with its operands it takes 6 x 4 + 4 of 32
// registers, or 6 x 2 + 3 of 16.
#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64, TILE_VECTORS = 4;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32, TILE_VECTORS = 2;
#elif defined(__aarch64__)
constexpr int VECTOR_BYTES = 16, TILE_VECTORS = 4;
#else
constexpr int VECTOR_BYTES = 16, TILE_VECTORS = 2;
#endif
constexpr int MR = 6;

template <class T> struct VectorOf;
template <> struct VectorOf<float> {
  typedef float type __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct VectorOf<double> {
  typedef double type __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct VectorOf<int32_t> {
  typedef int32_t type __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct VectorOf<int64_t> {
  typedef int64_t type __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct VectorOf<uint32_t> {
  typedef uint32_t type __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct VectorOf<uint64_t> {
  typedef uint64_t type __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T> using V = typename VectorOf<T>::type;

// The integer of the same width: the type of comparison results and of lane indices.
template <class T> struct IntegerOf;
template <> struct IntegerOf<float> {
  typedef int32_t type;
  typedef uint32_t unsigned_type;
};
template <> struct IntegerOf<double> {
  typedef int64_t type;
  typedef uint64_t unsigned_type;
};
template <class T> using Int = typename IntegerOf<T>::type;
template <class T> using Unsigned = typename IntegerOf<T>::unsigned_type;  // bit patterns, whose arithmetic may wrap

template <class T> constexpr int LANES = VECTOR_BYTES / static_cast<int>(sizeof(T));
template <class T> constexpr T INF = static_cast<T>(__builtin_inf());
template <class T>
constexpr T MAX_FINITE = static_cast<T>(sizeof(T) == 4 ? 3.40282346638528859812e+38 : 1.79769313486231570815e+308);

template <class T> REGARD_INLINE V<T> load(const T* from) {
  V<T> x;
  __builtin_memcpy(&x, from, sizeof x);  // any alignment
  return x;
}

template <class T> REGARD_INLINE void store(T* to, V<T> x) { __builtin_memcpy(to, &x, sizeof x); }

// A streaming (non-temporal) store of a vector as wide as a cache line; `to` is aligned to a line. Other threads see
// the data after streaming_fence().
#if defined(__AVX512F__)
constexpr bool HAS_STREAMING_STORES = true;
template <class T> REGARD_INLINE void store_streaming(T* to, V<T> x) {
  if constexpr (sizeof(T) == 4)
    _mm512_stream_ps(to, __m512(x));
  else
    _mm512_stream_pd(to, __m512d(x));
}
REGARD_INLINE void streaming_fence() { _mm_sfence(); }
#else
constexpr bool HAS_STREAMING_STORES = false;
template <class T> REGARD_INLINE void store_streaming(T* to, V<T> x) { store<T>(to, x); }
REGARD_INLINE void streaming_fence() {}
#endif

// Copy `count` elements, whole cache lines of `to` by streaming stores.
template <class T> void copy_streaming(const T* from, ptrdiff_t count, T* to) {
  constexpr ptrdiff_t line = VECTOR_BYTES / ptrdiff_t(sizeof(T));
  const ptrdiff_t before = ptrdiff_t(-reinterpret_cast<uintptr_t>(to) % VECTOR_BYTES / sizeof(T));
  ptrdiff_t j = before < count ? before : count;
  __builtin_memcpy(to, from, size_t(j) * sizeof(T));
  for (; j + line <= count; j += line) store_streaming<T>(to + j, load<T>(from + j));
  __builtin_memcpy(to + j, from + j, size_t(count - j) * sizeof(T));
}

template <class T> REGARD_INLINE V<T> splat(T x) { return x - V<T>{}; }

// a b + c, rounded once where the instruction set has a fused multiply-add, else twice. The compiler makes none by
// itself (-ffp-contract=off): what it would fuse depends on its version and on the loop around an expression, and a
// remainder would have other bits than whole vectors.
template <class T> REGARD_INLINE V<T> fma(V<T> a, V<T> b, V<T> c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return V<T>(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
  else
    return V<T>(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
#elif defined(__FMA__)
  if constexpr (sizeof(T) == 4)
    return V<T>(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
  else
    return V<T>(_mm256_fmadd_pd(__m256d(a), __m256d(b), __m256d(c)));
#elif defined(__aarch64__)
  if constexpr (sizeof(T) == 4)
    return V<T>(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
  else
    return V<T>(vfmaq_f64(float64x2_t(c), float64x2_t(a), float64x2_t(b)));
#else
  return a * b + c;
#endif
}

// The polynomial in x with these coefficients, the highest first, by Horner's rule.
template <class T, class... Lower> REGARD_INLINE V<T> polynomial(V<T> x, T highest, Lower... lower) {
  V<T> p = splat(highest);
  ((p = fma<T>(p, x, splat(T(lower)))), ...);
  return p;
}

// Lane-wise maximum and minimum; NaN in `a` propagates. (Intrinsics where the compiler does not find the instruction.)
template <class T> REGARD_INLINE V<T> max(V<T> a, V<T> low) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return V<T>(_mm512_max_ps(__m512(low), __m512(a)));
  else
    return V<T>(_mm512_max_pd(__m512d(low), __m512d(a)));
#else
  return a < low ? low : a;
#endif
}
template <class T> REGARD_INLINE V<T> min(V<T> a, V<T> high) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return V<T>(_mm512_min_ps(__m512(high), __m512(a)));
  else
    return V<T>(_mm512_min_pd(__m512d(high), __m512d(a)));
#else
  return a > high ? high : a;
#endif
}

// Scalar minimum and maximum, in place of std::min and std::max (see above).
template <class A> REGARD_INLINE A min_of(A a, A b) { return b < a ? b : a; }
template <class A> REGARD_INLINE A max_of(A a, A b) { return a < b ? b : a; }
REGARD_INLINE ptrdiff_t round_up(ptrdiff_t n, ptrdiff_t to) { return product(ceil_div(n, to), to); }

// Whether a comparison is true in any lane.
template <class M> REGARD_INLINE bool any(M mask) {
  bool found = false;
  for (size_t i = 0; i < sizeof(M) / sizeof(mask[0]); ++i) found |= mask[i] != 0;
  return found;
}

template <int... I> struct IndexSequence {};
template <int N, int... I> struct MakeIndexSequence : MakeIndexSequence<N - 1, N - 1, I...> {};
template <int... I> struct MakeIndexSequence<0, I...> {
  typedef IndexSequence<I...> type;
};

// Reduce all lanes with a binary function, pairwise from halves down to single lanes.
template <class T, int half, int... I> REGARD_INLINE V<T> rotate_lanes(V<T> x, IndexSequence<I...>) {
  return __builtin_shufflevector(x, x, (I + half) % LANES<T>...);
}
template <class T, int half = LANES<T> / 2, class F> REGARD_INLINE T reduce_lanes(V<T> x, F combine) {
  if constexpr (half == 0)
    return x[0];
  else
    return reduce_lanes<T, half / 2>(combine(x, rotate_lanes<T, half>(x, typename MakeIndexSequence<LANES<T>>::type{})),
                                     combine);
}

template <class T> REGARD_INLINE T reduce_sum(V<T> x) {
  return reduce_lanes<T>(x, [](V<T> a, V<T> b) __attribute__((always_inline)) { return a + b; });
}
template <class T> REGARD_INLINE T reduce_max(V<T> x) {  // NaN propagates
  return reduce_lanes<T>(x, [](V<T> a, V<T> b) __attribute__((always_inline)) { return a > b || a != a ? a : b; });
}

// exp(x) = 2^n exp(r) with integer n and |r| <= log(2) / 2. n log(2) is subtracted in two parts (Cody and Waite), the
// first with so few bits that its product is exact. exp(r) = 1 + r + r^2 q(r), where q is a polynomial that
// interpolates at Chebyshev nodes (relative error below 5e-9 in float32, 2e-17 in float64); 2^n is assembled from bits.
// The error is below 1 ulp, or 1.3 ulp without fused multiply-add.
template <class T> struct Exponential;

template <> struct Exponential<float> {
  static constexpr float LOG2_E = 1.44269504f, LN2_HIGH = 0x1.63p-1f, LN2_LOW = -2.12194440054690583e-4f;
  static constexpr float ZERO_BELOW = -104, NORMAL_BELOW = -87.3365f, SHIFTER = 0x1.8p23f;
  static constexpr int MANTISSA = 23;

  static REGARD_INLINE V<float> tail(V<float> r) {  // (exp(r) - 1 - r) / r^2
    return polynomial<float>(r, 0.00139261835877134945f, 0.00836317905272257737f, 0.0416665546172045742f,
                             0.166665769896987757f, 0.5f);
  }
};

template <> struct Exponential<double> {
  static constexpr double LOG2_E = 1.44269504088896340736, LN2_HIGH = 0x1.62e42feep-1,
                          LN2_LOW = 1.90821492927058770002e-10;
  static constexpr double ZERO_BELOW = -746, NORMAL_BELOW = -708.3964, SHIFTER = 0x1.8p52;
  static constexpr int MANTISSA = 52;

  static REGARD_INLINE V<double> tail(V<double> r) {
    return polynomial<double>(r, 2.51003854955103191e-8, 2.76200884454097482e-7, 2.75572684599970648e-6,
                              0.0000248015212959543751, 0.000198412698630536169, 0.00138888889172137169,
                              0.00833333333333006183, 0.0416666666666241279, 0.166666666666666675,
                              0.500000000000000102);
  }
};

template <class T> REGARD_INLINE V<T> exp_polynomial(V<T> r) {
  return fma<T>(fma<T>(Exponential<T>::tail(r), r, splat(T(1))), r, splat(T(1)));
}

// x - n log(2)
template <class T> REGARD_INLINE V<T> minus_logs_of_2(V<T> x, V<T> n) {
  typedef Exponential<T> E;
  return fma<T>(n, splat(-E::LN2_LOW), fma<T>(n, splat(-E::LN2_HIGH), x));
}

// exp(x) for x <= 0, and moderate x > 0; 0 on underflow, NaN for NaN.
template <class T> REGARD_INLINE V<T> exp(V<T> x) {
  typedef Exponential<T> E;
#if defined(__AVX512F__)
  // Single instructions round, and scale by a power of two, including subnormal results and 0.
  x = max<T>(x, splat(E::ZERO_BELOW));
  V<T> n = x * E::LOG2_E;
  if constexpr (sizeof(T) == 4)
    n = V<T>(_mm512_roundscale_ps(__m512(n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  else
    n = V<T>(_mm512_roundscale_pd(__m512d(n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const V<T> p = exp_polynomial<T>(minus_logs_of_2<T>(x, n));
  if constexpr (sizeof(T) == 4)
    return V<T>(_mm512_scalef_ps(__m512(p), __m512(n)));
  else
    return V<T>(_mm512_scalef_pd(__m512d(p), __m512d(n)));
#else
  // Adding 1.5 * 2^MANTISSA rounds to an integer in the low bits, which is then added to the exponent. Subnormal
  // results become 0.
  const V<T> clamped = max<T>(x, splat(E::NORMAL_BELOW));
  const V<T> shifted = fma<T>(clamped, splat(E::LOG2_E), splat(E::SHIFTER)), n = shifted - E::SHIFTER;
  const V<T> p = exp_polynomial<T>(minus_logs_of_2<T>(clamped, n));
  const V<T> scaled = V<T>(V<Unsigned<T>>(p) + (V<Unsigned<T>>(shifted) << E::MANTISSA));
  return x < E::NORMAL_BELOW ? V<T>{} : (x == x ? scaled : x);  // bit arithmetic would lose NaN
#endif
}

// exp(x) for the weights of a softmax, x <= 0, in fewer steps: x log2(e) is rounded once, so that the relative error
// grows by |x| / 2 ulp, as much as that of x, a difference of rounded scores. exp(0) is 1.
template <class T> REGARD_INLINE V<T> softmax_exp(V<T> x) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  if constexpr (sizeof(T) == 4) {
    const V<float> y = x * Exponential<float>::LOG2_E;
    const V<float> r =
        V<float>(_mm512_reduce_ps(__m512(y), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));  // y - floor(y)
    const V<float> p = polynomial<float>(r, 0.000208179150435f, 0.00126921660691f, 0.00965219505601f, 0.055496023564f,
                                         0.240227204181f, 0.693147170865f, 1.0f);
    return V<float>(_mm512_scalef_ps(__m512(p), __m512(y)));  // times 2^floor(y); 0 for -infinity
  }
#endif
  return exp<T>(x);
}

template <class T> REGARD_INLINE T scalar_exp(T x) { return exp<T>(splat(x))[0]; }

// tanh(x) = e / (e + 2) with e = exp(2x) - 1, computed as expm1 so that small x keep their precision.
template <class T> REGARD_INLINE V<T> tanh(V<T> x) {
  typedef Exponential<T> E;
  const V<T> y = min<T>(max<T>(2 * x, splat(T(-40))), splat(T(40)));  // beyond, tanh is -1 or 1
  const V<T> shifted = fma<T>(y, splat(E::LOG2_E), splat(E::SHIFTER)), n = shifted - E::SHIFTER;
  const V<T> r = minus_logs_of_2<T>(y, n);
  const V<T> power = V<T>((V<Unsigned<T>>(shifted) << E::MANTISSA) + V<Unsigned<T>>(splat(T(1))));
  const V<T> e = fma<T>(power, fma<T>(E::tail(r), r, splat(T(1))) * r, power - 1);
  return e / (e + 2);
}

// In-register transpose of an N x N tile: swap the off-diagonal blocks of side N / 2, then within each block those of
// half the side, and so on. Each step works on pairs of rows.

template <int N, int SIDE, class X, int... I> REGARD_INLINE void swap_blocks(X& upper, X& lower, IndexSequence<I...>) {
  const X a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, (I & SIDE ? N + I - SIDE : I)...);
  lower = __builtin_shufflevector(a, b, (I & SIDE ? N + I : I + SIDE)...);
}

template <int N, int SIDE = N / 2, class X> REGARD_INLINE void transpose(X (&x)[N]) {
#pragma GCC unroll 32
  for (int i = 0; i < N; ++i)
    if (!(i & SIDE)) swap_blocks<N, SIDE>(x[i], x[i + SIDE], typename MakeIndexSequence<N>::type{});
  if constexpr (SIDE > 1) transpose<N, SIDE / 2>(x);
}

// The sums of the lanes of x[0], x[1], ..., one in each lane: as after a transposition, in a third of its steps.
template <class T, int SIDE = LANES<T> / 2> REGARD_INLINE V<T> sum_lanes(V<T> (&x)[LANES<T>]) {
#pragma GCC unroll 32
  for (int i = 0; i < SIDE; ++i) {
    V<T> upper = x[i], lower = x[i + SIDE];
    swap_blocks<LANES<T>, SIDE>(upper, lower, typename MakeIndexSequence<LANES<T>>::type{});
    x[i] = upper + lower;
  }
  if constexpr (SIDE > 1) return sum_lanes<T, SIDE / 2>(x);
  return x[0];
}

}  // namespace regard::REGARD_ISA
