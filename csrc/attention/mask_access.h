// Mask and bias of single cells, for rare or small cases; score blocks are masked in scores.h.
#pragma once

#include "attention/operand.h"

namespace regard::REGARD_ISA {

template <class T> class MaskAccess {
 public:
  MaskAccess(const AttentionParams& params, ptrdiff_t head) : params_(params), head_(head) {}

  // Query i attends to no key outside key_begin(i) <= j < key_end(i).
  ptrdiff_t key_begin(ptrdiff_t i) const { return params_.key_begin ? at<int32_t>(params_.key_begin, i, 0) : 0; }
  ptrdiff_t key_end(ptrdiff_t i) const { return params_.key_end ? at<int32_t>(params_.key_end, i, 0) : params_.keys; }

  // Whether query i attends to key j.
  bool allows(ptrdiff_t i, ptrdiff_t j) const {
    if (j < key_begin(i) || j >= key_end(i)) return false;
    if (params_.mask && !at<uint8_t>(params_.mask, i, j)) return false;
    if (params_.mask_blocks && !block_allows(i, j)) return false;
    return !params_.bias || at<T>(params_.bias, i, j) != -INF<T>;
  }

  // The bias of cell (i, j).
  T bias(ptrdiff_t i, ptrdiff_t j) const {
    T sum = 0;
    if (params_.bias) sum += at<T>(params_.bias, i, j);
    if (params_.distance_bias) sum += at<T>(params_.distance_bias, i - j + params_.keys - 1, 0);
    return sum;
  }

 private:
  template <class X> X at(const Operand& x, ptrdiff_t i, ptrdiff_t j) const {
    return reinterpret_cast<const X*>(x.data)[x.offsets[head_] + i * x.row_stride + j * x.col_stride];
  }

  bool block_allows(ptrdiff_t i, ptrdiff_t j) const {
    const int32_t block = mask_block(params_, head_, i, j);
    if (block < 0) return block == FULL_BLOCK;
    return mask_word(params_, block, j) >> i % BLOCK_QUERIES & 1;
  }

  const AttentionParams& params_;
  ptrdiff_t head_;
};

}  // namespace regard::REGARD_ISA
