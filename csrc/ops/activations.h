// Activation functions of a vector.
#pragma once

#include "simd/simd.h"

namespace regard::REGARD_ISA {

// (z + 5/2) exp(z^2) erfc(z) for z >= 0 as a polynomial in t = (z - 5/2) / (z + 5/2), which maps the half line to
// -1 <= t < 1 (Shepherd and Laframboise, Math. Comp. 36, 1981): the first 11 (float64: 25) terms of the Chebyshev
// series, computed with 60 digits. The truncation error is below 2e-8 (4e-17).
template <class T> REGARD_INLINE V<T> erfc_series(V<T> t);

template <> REGARD_INLINE V<float> erfc_series<float>(V<float> t) {
  return polynomial<float>(t, -7.016012918e-5f, 2.700712982e-5f, 0.0006592908095f, -0.000413924985f, -0.004797361166f,
                           0.008383131874f, 0.02835667618f, -0.1712494874f, 0.4539145262f, -0.8046519288f,
                           1.054031815f);
}

template <> REGARD_INLINE V<double> erfc_series<double>(V<double> t) {
  return polynomial<double>(t, -1.139433757630502066e-9, -3.467388514566428437e-11, 1.136166546107783531e-8,
                            6.462039521335913439e-9, -5.368927359081467762e-8, -7.419956065343542452e-8,
                            1.392109955656964625e-7, 4.542632669297591858e-7, -6.74541909340868827e-9,
                            -1.968137420877815883e-6, -2.331994852886609436e-6, 6.757380560429953231e-6,
                            0.00001824430880021558592, -0.00001953333845777584021, -0.0001126048245604528508,
                            0.0000583080587353616045, 0.0007026937233533891564, -0.0004392083001058155139,
                            -0.004818785523205377207, 0.008393044304762170239, 0.02836155013199473049,
                            -0.171251145246119049, 0.4539141166480960283, -0.8046518494391481908, 1.054031820305717907);
}

// x * gate, where the gate is 0 at x = -infinity; there the limit, 0.
template <class T> REGARD_INLINE V<T> gated(V<T> x, V<T> gate) { return (x == -INF<T> ? V<T>{} : x) * gate; }

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi(-y) = erfc(y / sqrt 2) / 2, which is never computed as a difference, so
// that the tail keeps its precision. A result of 0 may have either sign.
template <class T> REGARD_INLINE V<T> gelu(V<T> x) {
  constexpr T root_half = T(0.70710678118654752440), shift = T(2.5) / root_half, saturated = 40;  // Phi(-40) is 0
  const V<T> size = min<T>(x < 0 ? -x : x, splat(saturated)), inverse = 1 / (size + shift);
  const V<T> tail = root_half * erfc_series<T>(fma<T>(splat(-2 * shift), inverse, splat(T(1)))) *
                    (inverse * exp<T>(T(-0.5) * size * size));
  return fma<T>(-size, tail, max<T>(x, V<T>{}));
}

// Phi(x) + x phi(x), phi the density of the normal distribution.
template <class T> REGARD_INLINE V<T> gelu_derivative(V<T> x) {
  constexpr T root_half = T(0.70710678118654752440), saturated = 250, density = T(0.39894228040143267794);
  const V<T> y = min<T>(max<T>(x, splat(-saturated)), splat(saturated)), z = (y < 0 ? -y : y) * root_half;
  const V<T> inverse = 1 / (z + T(2.5)), e = exp<T>(-z * z);
  const V<T> half_erfc = T(0.5) * erfc_series<T>(fma<T>(splat(T(-5)), inverse, splat(T(1)))) * inverse * e;
  const V<T> slope = fma<T>(y * e, splat(density), y < 0 ? half_erfc : 1 - half_erfc);
  return x == x ? slope : x;
}

// 1 / (1 + exp(-x)).
template <class T> REGARD_INLINE V<T> sigmoid(V<T> x) {
  const V<T> e = exp<T>(x < 0 ? x : -x);
  return (x < 0 ? e : (x == x ? splat(T(1)) : x)) / (1 + e);
}

template <class T> REGARD_INLINE V<T> silu(V<T> x) { return gated<T>(x, sigmoid<T>(x)); }

// s (1 + x (1 - s)) with s = sigmoid(x).
template <class T> REGARD_INLINE V<T> silu_derivative(V<T> x) {
  constexpr T saturated = 800;  // s or 1 - s is 0 from here on
  const V<T> s = sigmoid<T>(x), y = min<T>(max<T>(x, splat(-saturated)), splat(saturated));
  return s * fma<T>(y, 1 - s, splat(T(1)));
}

// x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
template <class T> REGARD_INLINE V<T> gelu_tanh(V<T> x) {
  constexpr T twice_root = T(1.59576912160573071176), saturated = 250;
  const V<T> y = min<T>(max<T>(x, splat(-saturated)), splat(saturated));
  return gated<T>(x, sigmoid<T>(twice_root * fma<T>(T(0.044715) * y * y, y, y)));
}

// s + x s (1 - s) (2 u)' with s = sigmoid(2 u).
template <class T> REGARD_INLINE V<T> gelu_tanh_derivative(V<T> x) {
  constexpr T twice_root = T(1.59576912160573071176), saturated = 250;
  const V<T> y = min<T>(max<T>(x, splat(-saturated)), splat(saturated)), square = T(0.044715) * y * y;
  const V<T> s = sigmoid<T>(twice_root * fma<T>(square, y, y));
  const V<T> slope = fma<T>(y * s * (1 - s) * twice_root, fma<T>(splat(T(3)), square, splat(T(1))), s);
  return x == x ? slope : x;
}

}  // namespace regard::REGARD_ISA
