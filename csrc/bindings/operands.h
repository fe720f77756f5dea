// Operands (attention/params.h) made from Python arrays.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "attention/params.h"
#include "bindings/arrays.h"
#include "runtime/buffer_pool.h"

namespace regard {

// Makes operands for a call with the leading axes `heads`, and owns their memory.
class Operands {
 public:
  explicit Operands(Shape heads) : heads_(std::move(heads)) {
    for (const ptrdiff_t n : heads_) count_ = product(count_, n);
  }
  Operands(Operands&&) = default;
  ~Operands() {
    for (const auto& [data, bytes] : buffers_)
      if (data) release_buffer(data, bytes);
  }

  ptrdiff_t count() const { return count_; }
  const Shape& heads() const { return heads_; }
  size_t buffer_bytes() const {
    size_t all = 0;
    for (const auto& [data, bytes] : buffers_) all += bytes;
    return all;
  }
  // Memory that lives as long as the operands.
  float* add_buffer(ptrdiff_t elements) {
    auto& [data, bytes] = buffers_.emplace_back(nullptr, product(elements, sizeof(float)));
    data = acquire_buffer(bytes);
    return static_cast<float*>(data);
  }

  // The operand of `x`: one matrix, rows x columns, for each head, or with trailing = 1 one row, with 0 one element.
  // Axes of length 1 and missing axes broadcast; a last leading axis shorter than the heads is repeated (grouped
  // heads).
  template <class X>
  Operand make(const char* name, const std::optional<X>& x, DType dtype, int trailing, ptrdiff_t rows,
               ptrdiff_t columns) {
    Operand operand;
    if (!x) return operand;
    check_dtype(name, *x, dtype);
    const int own = int(x->ndim()) - trailing, all = int(heads_.size());
    if (own < 0 || own > all) throw_invalid(name, "has the wrong number of axes");
    const auto stride_of = [&](int axis, ptrdiff_t wanted) -> ptrdiff_t {
      const auto size = ptrdiff_t(x->shape(size_t(axis)));
      if (size != wanted && size != 1) throw_invalid(name, "has an axis of the wrong length");
      return size == 1 ? 0 : ptrdiff_t(x->stride(size_t(axis)));
    };
    operand.dtype = dtype;
    if (trailing > 0) operand.row_stride = stride_of(own, rows);
    if (trailing > 1) operand.col_stride = stride_of(own + 1, columns);

    Shape shape, strides;
    for (int axis = 0; axis < own; ++axis) {
      shape.push_back(ptrdiff_t(x->shape(size_t(axis))));
      strides.push_back(ptrdiff_t(x->stride(size_t(axis))));
    }
    operand.offsets = head_offsets(name, shape, strides);
    arrays_.push_back(Array(*x));
    static char nothing;  // the data pointer of an empty array may be null
    operand.data = const_cast<char*>(static_cast<const char*>(static_cast<const void*>(x->data())));
    if (!operand.data) operand.data = &nothing;
    return operand;
  }

  // The offset of each head in an array with these leading axes, which broadcast as above.
  const ptrdiff_t* head_offsets(const char* name, const Shape& shape, const Shape& strides) {
    std::vector<ptrdiff_t>& offsets = head_offsets_.emplace_back(size_t(count_), 0);
    const size_t missing = heads_.size() - shape.size();
    ptrdiff_t inner = 1;  // heads passed by one step along the axis
    for (size_t axis = heads_.size(); axis-- > missing; inner = product(inner, heads_[axis])) {
      const ptrdiff_t size = shape[axis - missing], stride = strides[axis - missing], length = heads_[axis];
      if (size == 1 || length == 0) continue;
      const bool shared = axis + 1 == heads_.size() && size > 0 && length % size == 0;
      if (size != length && !shared) throw_invalid(name, "has a leading axis of the wrong length");
      for (ptrdiff_t head = 0; head < count_; ++head)
        offsets[size_t(head)] += head / inner % length / (length / size) * stride;
    }
    return offsets.data();
  }

 private:
  Shape heads_;
  ptrdiff_t count_ = 1;
  std::vector<std::vector<ptrdiff_t>> head_offsets_;
  std::vector<std::pair<void*, size_t>> buffers_;
  std::vector<Array> arrays_;  // keeps the operands' memory alive
};

// The strides of contiguous leading axes whose last axis steps by `size` elements.
inline Shape contiguous_strides(const Shape& shape, ptrdiff_t size) {
  Shape strides(shape.size(), size);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = product(strides[axis], shape[axis]);
  return strides;
}

// Throw if there are several rows and the softmax statistics are not contiguous.
inline void check_contiguous_rows(std::initializer_list<const Operand*> softmax_stats, ptrdiff_t rows) {
  for (const Operand* x : softmax_stats)
    if (*x && rows > 1 && x->row_stride != 1) throw_invalid("softmax statistics", "must be contiguous");
}

}  // namespace regard
