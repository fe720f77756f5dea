// One cell of the scores at a time: for what is rare, or small.
#pragma once

#include "layout.h"

namespace regard::REGARD_ISA {

template <class T> class Cells {
 public:
  Cells(const Attention& call, ptrdiff_t head) : call_(call), head_(head) {}

  // The keys that query i may see, as far as the mask and the bias let it: first <= j < last.
  ptrdiff_t first(ptrdiff_t i) const { return call_.first ? at<int32_t>(call_.first, i, 0) : 0; }
  ptrdiff_t last(ptrdiff_t i) const { return call_.last ? at<int32_t>(call_.last, i, 0) : call_.keys; }

  // Whether query i may look at key j.
  bool sees(ptrdiff_t i, ptrdiff_t j) const {
    if (j < first(i) || j >= last(i)) return false;
    if (call_.mask && !at<uint8_t>(call_.mask, i, j)) return false;
    return !call_.bias || at<T>(call_.bias, i, j) != -INFINITE<T>;
  }

  // What is added to the score.
  T bias(ptrdiff_t i, ptrdiff_t j) const {
    T total = 0;
    if (call_.bias) total += at<T>(call_.bias, i, j);
    if (call_.diagonal) total += at<T>(call_.diagonal, i - j + call_.keys - 1, 0);
    return total;
  }

 private:
  template <class X> X at(const Operand& x, ptrdiff_t i, ptrdiff_t j) const {
    return reinterpret_cast<const X*>(x.data)[x.offsets[head_] + i * x.row + j * x.column];
  }

  const Attention& call_;
  ptrdiff_t head_;
};

}  // namespace regard::REGARD_ISA
