// Rows of numbers, however the axes before the last lie in memory: read and written as the numbers computed with.
#pragma once

#include "layout.h"

namespace regard::REGARD_ISA {

REGARD_INLINE ptrdiff_t place_of(const Lines& x, ptrdiff_t row) {
  if (x.axes == 1) return row * x.strides[0];
  ptrdiff_t place = 0;
  for (int axis = x.axes - 1; axis >= 0; --axis) {
    place += row % x.lengths[axis] * x.strides[axis];
    row /= x.lengths[axis];
  }
  return place;
}

// Numbers `start` to `start + count` of a row: where they are, or widened and gathered into `room`.
template <class T> const T* line_of(const Lines& x, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count, T* room) {
  const ptrdiff_t place = place_of(x, row) + start * x.column;
  if (!is_short(x.kind)) {
    const T* from = reinterpret_cast<const T*>(x.data) + place;
    if (x.column == 1) return from;
    for (ptrdiff_t j = 0; j < count; ++j) room[j] = from[j * x.column];
  } else if constexpr (sizeof(T) == 4) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + place;
    if (x.column == 1) widen(x.kind, from, count, room);
    else
      for (ptrdiff_t j = 0; j < count; ++j) widen(x.kind, from + j * x.column, 1, room + j);
  }
  return room;
}

// Where to write those numbers: to their place, or to `room`, from where `write_line` takes them there.
template <class T> T* line_for(const Lines& x, ptrdiff_t row, ptrdiff_t start, T* room) {
  if (is_short(x.kind) || x.column != 1) return room;
  return reinterpret_cast<T*>(x.data) + place_of(x, row) + start;
}

template <class T> void write_line(const T* from, const Lines& x, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count) {
  const ptrdiff_t place = place_of(x, row) + start * x.column;
  if (!is_short(x.kind)) {
    for (ptrdiff_t j = 0; x.column != 1 && j < count; ++j) reinterpret_cast<T*>(x.data)[place + j * x.column] = from[j];
  } else if constexpr (sizeof(T) == 4) {
    uint16_t* to = reinterpret_cast<uint16_t*>(x.data) + place;
    if (x.column == 1) narrow(x.kind, from, count, to);
    else
      for (ptrdiff_t j = 0; j < count; ++j) narrow(x.kind, from + j, 1, to + j * x.column);
  }
}

// The first `count` numbers of a vector; the others are 0.
template <class T> REGARD_INLINE V<T> load_some(const T* from, ptrdiff_t count) {
  V<T> x = {};
  __builtin_memcpy(&x, from, size_t(count) * sizeof(T));
  return x;
}
template <class T> REGARD_INLINE void store_some(T* to, V<T> x, ptrdiff_t count) {
  __builtin_memcpy(to, &x, size_t(count) * sizeof(T));
}

// A sum of many parts in which what one addition rounds away is given to the next (Kahan, Neumaier).
struct Total {
  double sum = 0, lost = 0;

  REGARD_INLINE void add(double part) {
    const double now = sum + part;
    lost += __builtin_fabs(sum) >= __builtin_fabs(part) ? (sum - now) + part : (part - now) + sum;
    sum = now;
  }
  REGARD_INLINE double value() const { return sum + (lost - lost == 0 ? lost : 0); }  // infinity stays infinity
};

// The sum over a row of f(j), the vector that begins at number j, of which only `count` numbers are there. Vectors are
// added up over a stretch, stretches as above: so long rows keep their digits.
template <class T, class F> REGARD_INLINE double sum_over(ptrdiff_t columns, F f) {
  constexpr ptrdiff_t stretch = 64 * LANES<T>;
  Total total;
  for (ptrdiff_t start = 0; start < columns; start += stretch) {
    const ptrdiff_t end = smaller<ptrdiff_t>(columns, start + stretch);
    V<T> sums[4] = {};
    ptrdiff_t j = start;
    for (; j + 4 * LANES<T> <= end; j += 4 * LANES<T>)
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sums[n] += f(j + n * LANES<T>, ptrdiff_t(LANES<T>));
    for (; j < end; j += LANES<T>) sums[0] += f(j, smaller<ptrdiff_t>(LANES<T>, end - j));
    total.add(double(sum<T>((sums[0] + sums[1]) + (sums[2] + sums[3]))));
  }
  return total.value();
}

template <class T> REGARD_INLINE V<T> load_up_to(const T* from, ptrdiff_t count) {
  return count == LANES<T> ? load<T>(from) : load_some<T>(from, count);
}
template <class T> REGARD_INLINE void store_up_to(T* to, V<T> x, ptrdiff_t count) {
  count == LANES<T> ? store<T>(to, x) : store_some<T>(to, x, count);
}

// Call f(j, count) for the vectors of a row.
template <class T, class F> REGARD_INLINE void for_each_vector(ptrdiff_t columns, F f) {
  ptrdiff_t j = 0;
  for (; j + LANES<T> <= columns; j += LANES<T>) f(j, ptrdiff_t(LANES<T>));
  if (j < columns) f(j, columns - j);
}

}  // namespace regard::REGARD_ISA
