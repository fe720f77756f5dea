// Attention forward pass in bfloat16: products of bfloat16 with float32 sums, softmax in float32.
//
// The weights are rounded to bfloat16 for the product with the values, and divided by the sum of the rounded ones, so
// that the context is a mean of the values. Compiled for processors with instructions for such products, and as a model
// in C++; runtime/tile_dispatch.h chooses. Numbers are within the limits of tile_kernels.h.
#include "attention/scores.h"
#include "simd/bfloat16_tiles.h"
#include "tile_kernels.h"

namespace regard::REGARD_ISA {
namespace {

constexpr float LOG2_E = 1.44269504f;

// Weights are relative to a score that may be lower than the maximum of the row by this much (base 2): bfloat16 has
// the same precision at 2^8, and the context is seldom rescaled.
constexpr float MAX_LAG = 8;
constexpr float NO_SCORE = -1.7e38f;  // below every score

// 2^x for x <= MAX_LAG with a relative error of 3e-6, small beside the rounding to bfloat16; 0 on underflow.
REGARD_INLINE V<float> exp2(V<float> x) {
#if defined(__AVX512F__)
  const V<float> r = V<float>(_mm512_reduce_ps(__m512(x), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));  // x - floor(x)
#else
  const V<float> clamped = max<float>(x, splat(-126.0f)), shifted = (clamped - 0.5f) + Exponential<float>::SHIFTER;
  const V<float> r = clamped - (shifted - Exponential<float>::SHIFTER);
#endif
  // minimax on [0, 1]
  const V<float> p = polynomial<float>(r, 0.0135341678f, 0.0520114061f, 0.241442755f, 0.693003833f, 1.00000262f);
#if defined(__AVX512F__)
  return V<float>(_mm512_scalef_ps(__m512(p), __m512(x)));
#else
  const V<float> scaled = V<float>(V<uint32_t>(p) + (V<uint32_t>(shifted) << 23));
  return x < -126.0f ? V<float>{} : scaled;
#endif
}

// Copy a row, padded with zeros to a multiple of TILE_DEPTH. Returns whether its numbers are within the limits.
bool copy_row(const Operand& x, ptrdiff_t head, ptrdiff_t row, ptrdiff_t width, uint16_t limit, uint16_t* to) {
  const uint16_t* from = reinterpret_cast<const uint16_t*>(x.data) + x.offsets[head] + row * x.row_stride;
  uint16_t outside = 0;
  const auto copy = [&](ptrdiff_t stride) __attribute__((always_inline)) {
    for (ptrdiff_t j = 0; j < width; ++j) {
      const uint16_t bits = from[j * stride], magnitude = bits & 0x7fff;
      to[j] = bits;
      outside |= uint16_t((magnitude != 0) & ((magnitude < TILE_MIN) | (magnitude > limit)));
    }
  };
  x.col_stride == 1 ? copy(1) : copy(x.col_stride);
  for (ptrdiff_t j = width; j < round_up(width, TILE_DEPTH); ++j) to[j] = 0;
  return !outside;
}

class Bfloat16Forward {
 public:
  Bfloat16Forward(const AttentionParams& params, Scratch& scratch)
      : params_(params),
        block_(params, scratch),
        depth_(key_tile_columns(params)),
        width_(value_tile_rows(params)),
        rows_(scratch.allocate<uint16_t>(BLOCK_QUERIES, depth_)),
        queries_(scratch.allocate<uint32_t>(depth_ / 2, BLOCK_QUERIES)),
        scores_(scratch.allocate<float>(BLOCK_KEYS, BLOCK_QUERIES)),
        context_(scratch.allocate<float>(width_, BLOCK_QUERIES)),
        buffer_(scratch.allocate<float>(width_, BLOCK_QUERIES)),
        shift_(scratch.allocate<float>(BLOCK_QUERIES)),
        row_sum_(scratch.allocate<float>(BLOCK_QUERIES)) {}

  void run(ptrdiff_t head, ptrdiff_t start, ptrdiff_t count) {
    head_ = head, start_ = start, count_ = count, lanes_ = round_up(count, TILE_ROWS);
    block_.set_block(head, start, count);
    load_queries();
    reset();
    [[maybe_unused]] const TileSession session;
    for (ptrdiff_t j = block_.begin() / TILE_DEPTH * TILE_DEPTH; j < block_.end(); j += BLOCK_KEYS)
      add_keys(j, min_of<ptrdiff_t>(BLOCK_KEYS, block_.end() - j));
    finish();
  }

 private:
  static_assert(BLOCK_KEYS % TILE_DEPTH == 0 && BLOCK_QUERIES % TILE_ROWS == 0 && TILE_ROWS % LANES<float> == 0);

  void load_queries() {
    for (ptrdiff_t i = 0; i < count_; ++i)
      copy_row(params_.q, head_, start_ + i, params_.head_dim, TILE_MAX, rows_ + i * depth_);
    for (ptrdiff_t i = count_ * depth_; i < lanes_ * depth_; ++i) rows_[i] = 0;
    transpose_pairs(rows_, depth_, lanes_, queries_);
  }

  // to[p][i] = the pair p of row i.
  static void transpose_pairs(const uint16_t* rows, ptrdiff_t depth, ptrdiff_t count, uint32_t* to) {
    transpose_copy<uint32_t>(reinterpret_cast<const uint32_t*>(rows), depth / 2, count, depth / 2, to, BLOCK_QUERIES);
  }

  void reset() {
    float sink = -INF<float>;
    if (params_.sinks) sink = head_matrix<float>(params_.sinks, head_).data[0];
    const float shift = sink == -INF<float> ? NO_SCORE : max_of(min_of(sink * LOG2_E, -NO_SCORE), 0.9f * NO_SCORE);
    for (int i = 0; i < BLOCK_QUERIES; ++i) shift_[i] = shift, row_sum_[i] = sink == -INF<float> ? 0 : 1;
    for (ptrdiff_t i = 0; i < width_ * BLOCK_QUERIES; ++i) context_[i] = 0;
  }

  void add_keys(ptrdiff_t start, ptrdiff_t count) {
    if (!block_.any_allowed(start, count)) return;
    const ptrdiff_t padded = round_up(count, TILE_DEPTH);
    multiply({tiles(params_.k_tiles) + start * depth_, TILE_ROWS * depth_, TILE_ROWS * TILE_DEPTH},
             ceil_div(count, TILE_ROWS), depth_ / TILE_DEPTH, queries_, lanes_, scores_, false);
    float factor = float(params_.scale) * LOG2_E;
    if (params_.softcap > 0) {
      const float scale = float(params_.scale);
      for (ptrdiff_t i = 0; i < count * BLOCK_QUERIES; ++i) scores_[i] *= scale;
      factor = LOG2_E;
    }
    block_.finish(start, count, scores_);
    for (ptrdiff_t i = count * BLOCK_QUERIES; i < padded * BLOCK_QUERIES; ++i) scores_[i] = -INF<float>;
    constexpr ptrdiff_t VECTORS = TILE_ROWS / LANES<float> > TILE_VECTORS ? TILE_ROWS / LANES<float> : TILE_VECTORS;
    ptrdiff_t lane = 0;
    for (; lane + VECTORS * LANES<float> <= lanes_; lane += VECTORS * LANES<float>)
      weigh<VECTORS>(padded, lane, factor);
    for (; lane < lanes_; lane += LANES<float>) weigh<1>(padded, lane, factor);
    multiply({tiles(params_.v_tiles) + start * width_, TILE_ROWS * TILE_DEPTH, width_ * TILE_DEPTH}, width_ / TILE_ROWS,
             padded / TILE_DEPTH, reinterpret_cast<const uint32_t*>(scores_), lanes_, context_, true);
  }

  const uint16_t* tiles(const Operand& x) const { return reinterpret_cast<const uint16_t*>(x.data) + x.offsets[head_]; }

  // Replace the scores of some lanes by weights in bfloat16, in place: those of keys 2p and 2p + 1 are the pair p.
  template <int vectors> void weigh(ptrdiff_t keys, ptrdiff_t lane, float factor) {
    V<float> highest[vectors], shift[vectors], sums[vectors];
    for (int n = 0; n < vectors; ++n) highest[n] = splat(-INF<float>);
    for (ptrdiff_t j = 0; j < keys; ++j)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) highest[n] = max<float>(load<float>(at(j, lane, n)), highest[n]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      float* const from = shift_ + lane + n * LANES<float>;
      const V<float> row_max = highest[n] * factor;
      if (any(row_max > load<float>(from) + MAX_LAG)) rescale(lane + n * LANES<float>, row_max);
      shift[n] = load<float>(from), sums[n] = load<float>(row_sum_ + lane + n * LANES<float>);
    }
    for (ptrdiff_t j = 0; j < keys; j += 2)
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n) {
        const V<uint32_t> even = rounded(exp2(fma<float>(load<float>(at(j, lane, n)), splat(factor), -shift[n]))),
                          odd = rounded(exp2(fma<float>(load<float>(at(j + 1, lane, n)), splat(factor), -shift[n])));
        sums[n] += V<float>(even) + V<float>(odd);
        store<float>(at(j / 2, lane, n), V<float>(even >> 16 | odd));
      }
    for (int n = 0; n < vectors; ++n) store<float>(row_sum_ + lane + n * LANES<float>, sums[n]);
  }

  float* at(ptrdiff_t key, ptrdiff_t lane, int n) { return scores_ + key * BLOCK_QUERIES + lane + n * LANES<float>; }

  // The float32 nearest to a weight that bfloat16 has; ties away from 0.
  static REGARD_INLINE V<uint32_t> rounded(V<float> weight) { return (V<uint32_t>(weight) + 0x8000) & 0xffff0000; }

  void rescale(ptrdiff_t lane, V<float> row_max) {
    const V<float> before = load<float>(shift_ + lane), after = max<float>(row_max, before);
    const V<float> correction = exp2(before - after);
    store<float>(shift_ + lane, after);
    store<float>(row_sum_ + lane, load<float>(row_sum_ + lane) * correction);
    for (ptrdiff_t f = 0; f < params_.value_dim; ++f) {
      float* const to = context_ + f * BLOCK_QUERIES + lane;
      store<float>(to, load<float>(to) * correction);
    }
  }

  void finish() {
    for (ptrdiff_t i = 0; i < lanes_; i += LANES<float>) {
      const V<float> sum = load<float>(row_sum_ + i), factor = 1.0f / (sum == 0 ? splat(1.0f) : sum);
      for (ptrdiff_t f = 0; f < params_.value_dim; ++f) {
        float* const to = context_ + f * BLOCK_QUERIES + i;
        store<float>(to, load<float>(to) * factor);
      }
    }
    store_transposed<float>(context_, count_, params_.value_dim, params_.output, head_, start_, buffer_);
  }

  const AttentionParams& params_;
  ScoreBlock<float> block_;
  const ptrdiff_t depth_, width_;  // of the keys and of the values, padded
  uint16_t* rows_;
  uint32_t* queries_;  // pairs of features, [depth / 2][BLOCK_QUERIES]
  float *scores_, *context_, *buffer_;
  float *shift_, *row_sum_;  // of each query, in base 2: the score to which weights are relative; their sum
  ptrdiff_t head_ = 0, start_ = 0, count_ = 0, lanes_ = 0;
};

}  // namespace

size_t bfloat16_scratch(const AttentionParams& params) {
  Scratch scratch(nullptr);
  Bfloat16Forward kernel(params, scratch);
  return scratch.used();
}

void bfloat16_forward(const AttentionParams& params, ptrdiff_t task, void* memory) {
  Scratch scratch(memory);
  Bfloat16Forward kernel(params, scratch);
  const ptrdiff_t blocks = ceil_div(params.queries, BLOCK_QUERIES);
  const ptrdiff_t start = (blocks - 1 - task % blocks) * BLOCK_QUERIES;  // last queries first, as in forward.cpp
  kernel.run(task / blocks, start, min_of<ptrdiff_t>(BLOCK_QUERIES, params.queries - start));
}

bool within_tile_limits(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width,
                        uint16_t limit, void* memory) {
  bool within = true;
  for (ptrdiff_t i = start; i < start + count; ++i)
    within &= copy_row(x, head, i, width, limit, static_cast<uint16_t*>(memory));
  return within;
}

bool pack_key_tiles(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width, uint16_t limit,
                    void* memory, uint16_t* to) {
  const ptrdiff_t depth = round_up(width, TILE_DEPTH);
  uint16_t* const row = static_cast<uint16_t*>(memory);
  bool within = true;
  for (ptrdiff_t i = 0; i < round_up(count, TILE_DEPTH); ++i) {
    if (i < count) within &= copy_row(x, head, start + i, width, limit, row);
    uint16_t* const tiles = to + i / TILE_ROWS * TILE_ROWS * depth + i % TILE_ROWS * TILE_DEPTH;
    for (ptrdiff_t j = 0; j < depth; j += TILE_DEPTH)
      for (ptrdiff_t n = 0; n < TILE_DEPTH; ++n) tiles[j * TILE_ROWS + n] = i < count ? row[j + n] : uint16_t(0);
  }
  return within;
}

bool pack_value_tiles(const Operand& x, ptrdiff_t head, ptrdiff_t start, ptrdiff_t count, ptrdiff_t width,
                      uint16_t limit, void* memory, uint16_t* to) {
  const ptrdiff_t depth = round_up(width, TILE_DEPTH), padded = round_up(width, TILE_ROWS);
  uint16_t* const even = static_cast<uint16_t*>(memory);
  uint16_t* const odd = even + depth;
  uint32_t* const pairs = reinterpret_cast<uint32_t*>(odd + depth);  // [TILE_DEPTH / 2][padded]
  bool within = true;
  for (ptrdiff_t block = 0; block < count; block += TILE_DEPTH, to += padded * TILE_DEPTH) {
    for (ptrdiff_t p = 0; p < TILE_DEPTH / 2; ++p) {
      const ptrdiff_t i = block + 2 * p;
      if (i < count) within &= copy_row(x, head, start + i, width, limit, even);
      if (i + 1 < count) within &= copy_row(x, head, start + i + 1, width, limit, odd);
      const uint32_t has_even = i < count ? ~0u : 0u, has_odd = i + 1 < count ? ~0u : 0u;
      for (ptrdiff_t f = 0; f < padded; ++f)
        pairs[p * padded + f] = (even[f] & has_even) | ((uint32_t(odd[f]) << 16) & has_odd);
    }
    transpose_copy<uint32_t>(pairs, padded, TILE_DEPTH / 2, padded, reinterpret_cast<uint32_t*>(to), TILE_DEPTH / 2);
  }
  return within;
}

size_t pack_tiles_scratch(ptrdiff_t width) { return size_t(product(round_up(width, TILE_DEPTH), 4 + 2 * TILE_DEPTH)); }

}  // namespace regard::REGARD_ISA
