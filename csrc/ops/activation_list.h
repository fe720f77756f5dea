// The activation functions. A new one takes a line here and its formula, a function of the same name, in activations.h,
// with its derivative, NAME_derivative; the enumerations, the dispatch and the bindings follow from the list.
#pragma once

// clang-format off
#define REGARD_ACTIVATIONS(f) \
  f(gelu)                     \
  f(gelu_tanh)                \
  f(silu)
// clang-format on

#define REGARD_ENUMERATOR(name) name,
#define REGARD_VJP_ENUMERATOR(name) name##_vjp,
