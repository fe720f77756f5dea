// Products of bfloat16 matrices with float32 sums, C = A B or C += A B, on packed operands.
//
// A is packed in tiles of TILE_ROWS rows by TILE_DEPTH columns, 1 KB each. B is packed in pairs: element [p][n] holds
// B[2p][n] and, in the upper half, B[2p + 1][n]. Both are padded with zeros to whole tiles. C has BLOCK_QUERIES
// columns.
//
// A product of two bfloat16 is exact in float32. Sums are rounded to nearest; their order is the implementation's:
// - AMX: the products of even and of odd columns of a tile of A are summed apart, and both sums added to C;
// - AVX512-BF16: the products of each pair are added one after the other;
// - C++: a model of the tile instructions of AMX, so that its loops are tested on every machine.
// The instructions take subnormal numbers as 0, so numbers of a call are kept far from these (attention/params.h).
#pragma once

#include "attention/params.h"
#include "simd/half_precision.h"

namespace regard::REGARD_ISA {

// Tiles of A: the next one of the same columns is row_step elements further, of the same rows depth_step elements.
struct PackedTiles {
  const uint16_t* data;
  ptrdiff_t row_step, depth_step;
};

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

struct TileSession {};

template <int vectors>
REGARD_INLINE void multiply_rows(const uint16_t* a, ptrdiff_t depth_step, ptrdiff_t depth_tiles, const uint32_t* b,
                                 float* c, bool accumulate) {
  constexpr int rows = 4;
  __m512 sums[rows][vectors];
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n)
      sums[i][n] = accumulate ? _mm512_loadu_ps(c + i * BLOCK_QUERIES + n * 16) : _mm512_setzero_ps();
  for (ptrdiff_t t = 0; t < depth_tiles; ++t, a += depth_step)
    for (ptrdiff_t p = 0; p < TILE_DEPTH / 2; ++p, b += BLOCK_QUERIES)
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) {
        int32_t pair;
        __builtin_memcpy(&pair, a + i * TILE_DEPTH + 2 * p, sizeof pair);
#pragma GCC unroll 4
        for (int n = 0; n < vectors; ++n)
          sums[i][n] =
              _mm512_dpbf16_ps(sums[i][n], __m512bh(_mm512_loadu_si512(b + n * 16)), __m512bh(_mm512_set1_epi32(pair)));
      }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) _mm512_storeu_ps(c + i * BLOCK_QUERIES + n * 16, sums[i][n]);
}

// `lanes` columns of C, a multiple of TILE_ROWS.
inline void multiply(const PackedTiles& a, ptrdiff_t row_tiles, ptrdiff_t depth_tiles, const uint32_t* b,
                     ptrdiff_t lanes, float* c, bool accumulate) {
  for (ptrdiff_t i = 0; i < row_tiles * TILE_ROWS; i += 4, c += 4 * BLOCK_QUERIES) {
    const uint16_t* rows = a.data + i / TILE_ROWS * a.row_step + i % TILE_ROWS * TILE_DEPTH;
    switch (lanes / 16) {
      case 4: multiply_rows<4>(rows, a.depth_step, depth_tiles, b, c, accumulate); break;
      case 3: multiply_rows<3>(rows, a.depth_step, depth_tiles, b, c, accumulate); break;
      case 2: multiply_rows<2>(rows, a.depth_step, depth_tiles, b, c, accumulate); break;
      default: multiply_rows<1>(rows, a.depth_step, depth_tiles, b, c, accumulate);
    }
  }
}

#else

// The operand of LDTILECFG: palette 1, and for tiles 0 to 7 their bytes a row and their rows.
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
alignas(64) static const TileConfig TILE_CONFIG{};

#if defined(__AMX_BF16__)

// GCC's intrinsics do not tell the compiler that they read memory: hence the barriers in TileSession and multiply().
#define REGARD_TILE_CONFIGURE(config) _tile_loadconfig(config)
#define REGARD_TILE_RELEASE() _tile_release()
#define REGARD_TILE_ZERO(tile) _tile_zero(tile)
#define REGARD_TILE_LOAD(tile, from, stride) _tile_loadd(tile, from, stride)
#define REGARD_TILE_STORE(tile, to, stride) _tile_stored(tile, to, stride)
#define REGARD_TILE_MULTIPLY(c, a, b) _tile_dpbf16ps(c, a, b)

#else

// The tile registers and instructions of AMX, as Intel's manual defines them.
class TileRegisters {
 public:
  TileRegisters() { release(); }
  void configure(const TileConfig* config) {
    config_ = *config;
    if (config_.palette != 1 || config_.start_row != 0) __builtin_trap();
    for (int n = 0; n < 16; ++n)
      if (config_.row_bytes[n] > 64 || config_.rows[n] > 16 || (n >= 8 && (config_.row_bytes[n] || config_.rows[n])))
        __builtin_trap();
    for (int n = 0; n < 8; ++n) zero(n);
  }
  void release() { config_ = {}, config_.palette = 0; }
  void zero(int tile) { clear(tile, 0); }
  void load(int tile, const void* from, ptrdiff_t stride) {
    clear(tile, 0);
    for (int i = 0; i < config_.rows[tile]; ++i)
      __builtin_memcpy(tiles_[tile][i], static_cast<const char*>(from) + i * stride, config_.row_bytes[tile]);
  }
  void store(int tile, void* to, ptrdiff_t stride) {
    if (config_.palette != 1) __builtin_trap();
    for (int i = 0; i < config_.rows[tile]; ++i)
      __builtin_memcpy(static_cast<char*>(to) + i * stride, tiles_[tile][i], config_.row_bytes[tile]);
  }
  // TDPBF16PS
  void multiply(int c, int a, int b) {
    const int rows = config_.rows[c], columns = config_.row_bytes[c] / 4, pairs = config_.row_bytes[a] / 4;
    if (config_.palette != 1 || config_.rows[a] != rows || config_.row_bytes[b] / 4 != columns ||
        config_.rows[b] != pairs)
      __builtin_trap();
    for (int m = 0; m < rows; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < pairs; ++k)
        for (int n = 0; n < columns; ++n) {
          const uint32_t x = tiles_[a][m][k], y = tiles_[b][k][n];
          even[n] = flushed(even[n] + flushed(float_of(x << 16)) * flushed(float_of(y << 16)));
          odd[n] = flushed(odd[n] + flushed(float_of(x & 0xffff0000)) * flushed(float_of(y & 0xffff0000)));
        }
      for (int n = 0; n < columns; ++n)
        tiles_[c][m][n] = bits_of(flushed(float_of(tiles_[c][m][n]) + flushed(even[n] + odd[n])));
    }
    clear(c, rows);
  }

 private:
  static float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? x * 0 : x; }
  void clear(int tile, int from_row) {
    if (config_.palette != 1) __builtin_trap();
    for (int i = from_row; i < 16; ++i)
      for (uint32_t& x : tiles_[tile][i]) x = 0;
  }

  TileConfig config_ = {};
  uint32_t tiles_[8][16][16];
};
static thread_local TileRegisters tile_registers;

#define REGARD_TILE_CONFIGURE(config) tile_registers.configure(config)
#define REGARD_TILE_RELEASE() tile_registers.release()
#define REGARD_TILE_ZERO(tile) tile_registers.zero(tile)
#define REGARD_TILE_LOAD(tile, from, stride) tile_registers.load(tile, from, stride)
#define REGARD_TILE_STORE(tile, to, stride) tile_registers.store(tile, to, stride)
#define REGARD_TILE_MULTIPLY(c, a, b) tile_registers.multiply(c, a, b)

#endif

REGARD_INLINE void memory_barrier() { __asm__ volatile("" ::: "memory"); }

// Configures the tiles of this thread; releasing them keeps context switches cheap.
class TileSession {
 public:
  TileSession() {
    memory_barrier();
    REGARD_TILE_CONFIGURE(&TILE_CONFIG);
  }
  TileSession(const TileSession&) = delete;
  ~TileSession() { REGARD_TILE_RELEASE(); }
};

// `lanes` columns of C, a multiple of TILE_ROWS. Tiles 0 to 3 are two by two of C, 4 and 5 of A, 6 and 7 of B.
inline void multiply(const PackedTiles& a, ptrdiff_t row_tiles, ptrdiff_t depth_tiles, const uint32_t* b,
                     ptrdiff_t lanes, float* c, bool accumulate) {
  constexpr ptrdiff_t A_STRIDE = 2 * TILE_DEPTH, C_STRIDE = 4 * BLOCK_QUERIES, B_STRIDE = C_STRIDE;  // bytes
  constexpr ptrdiff_t B_STEP = TILE_DEPTH / 2 * BLOCK_QUERIES;
  memory_barrier();
  for (ptrdiff_t i = 0; i < row_tiles; i += 2)
    for (ptrdiff_t n = 0; n < lanes; n += 2 * TILE_ROWS) {
      const bool two_rows = i + 1 < row_tiles, two_columns = n + TILE_ROWS < lanes;
      float* const upper = c + i * TILE_ROWS * BLOCK_QUERIES + n;
      float* const lower = upper + TILE_ROWS * BLOCK_QUERIES;
      if (accumulate) {
        REGARD_TILE_LOAD(0, upper, C_STRIDE);
        if (two_columns) REGARD_TILE_LOAD(1, upper + TILE_ROWS, C_STRIDE);
        if (two_rows) REGARD_TILE_LOAD(2, lower, C_STRIDE);
        if (two_rows && two_columns) REGARD_TILE_LOAD(3, lower + TILE_ROWS, C_STRIDE);
      } else {
        REGARD_TILE_ZERO(0);
        REGARD_TILE_ZERO(1);
        REGARD_TILE_ZERO(2);
        REGARD_TILE_ZERO(3);
      }
      const uint16_t* a_tile = a.data + i * a.row_step;
      const uint32_t* b_tile = b + n;
      for (ptrdiff_t t = 0; t < depth_tiles; ++t, a_tile += a.depth_step, b_tile += B_STEP) {
        REGARD_TILE_LOAD(4, a_tile, A_STRIDE);
        REGARD_TILE_LOAD(6, b_tile, B_STRIDE);
        REGARD_TILE_MULTIPLY(0, 4, 6);
        if (two_columns) {
          REGARD_TILE_LOAD(7, b_tile + TILE_ROWS, B_STRIDE);
          REGARD_TILE_MULTIPLY(1, 4, 7);
        }
        if (two_rows) {
          REGARD_TILE_LOAD(5, a_tile + a.row_step, A_STRIDE);
          REGARD_TILE_MULTIPLY(2, 5, 6);
          if (two_columns) REGARD_TILE_MULTIPLY(3, 5, 7);
        }
      }
      REGARD_TILE_STORE(0, upper, C_STRIDE);
      if (two_columns) REGARD_TILE_STORE(1, upper + TILE_ROWS, C_STRIDE);
      if (two_rows) REGARD_TILE_STORE(2, lower, C_STRIDE);
      if (two_rows && two_columns) REGARD_TILE_STORE(3, lower + TILE_ROWS, C_STRIDE);
    }
  memory_barrier();
}

#endif

}  // namespace regard::REGARD_ISA
