// Tile sources: a map as a pyramid of tiles, from exact cells to one tile for all of it. Maps of short texts are in
// memory, so that tokens can be merged and left out; of long texts, tiles are fetched as they become visible.

import { numLevels, TILE } from "../render/viewport.js";
import { downsample, maxAbs, subtract } from "./matrix.js";

export const MAX_IN_MEMORY_SIDE = 1024; // tokens
const MAX_TILES = 160; // of 256 KB each, and as much for its pixels
const MAX_CONCURRENT = 6;
const MAX_BYTES = MAX_TILES * 2 * 4 * TILE ** 2;
const MAX_IN_MEMORY_BYTES = 3 * 4 * MAX_IN_MEMORY_SIDE ** 2 * (4 / 3); // each level is a quarter of the one below

/** Forget all but the last entries. @param {Map<string, any>} entries @param {number} count */
export function keepLast(entries, count) {
  for (const old of [...entries.keys()].slice(0, -count)) entries.delete(old);
}

/** Tiles of a map in memory. @implements {TileSource} */
export class InMemoryTiles {
  /** @param {Matrix} matrix @param {"max" | "mean"} pool */
  constructor(matrix, pool) {
    this.matrices = [matrix];
    this.pool = pool;
    this.rows = matrix.rows;
    this.cols = matrix.cols;
    this.levels = numLevels(matrix);
    this.pooledMax = this.cellMax = maxAbs(matrix.values);
    this.tiles = /** @type {Map<string, Matrix>} */ (new Map());
  }

  /** @param {number} level @param {number} i @param {number} j */
  tile(level, i, j) {
    const key = tileKey(level, i, j);
    let found = this.tiles.get(key);
    if (!found) {
      while (this.matrices.length <= level)
        this.matrices.push(downsample(this.matrices[this.matrices.length - 1], this.pool));
      found = cutTile(this.matrices[level], i * TILE, j * TILE);
      this.tiles.set(key, found);
    }
    return found;
  }

  cancelExcept() {}

  get numPending() {
    return 0;
  }

  get memory() {
    const bytes = this.matrices.reduce((sum, { values }) => sum + 3 * values.byteLength, 0); // whole, in tiles, as pixels
    return { bytes, limit: MAX_IN_MEMORY_BYTES };
  }
}

/** @param {Matrix} matrix @param {number} row @param {number} col @returns {Matrix} */
function cutTile({ values, rows, cols }, row, col) {
  if (row === 0 && col === 0 && rows <= TILE && cols <= TILE) return { values, rows, cols };
  const [high, wide] = [Math.min(TILE, rows - row), Math.min(TILE, cols - col)];
  const out = new Float32Array(high * wide);
  for (let r = 0; r < high; r++)
    out.set(values.subarray((row + r) * cols + col, (row + r) * cols + col + wide), r * wide);
  return { values: out, rows: high, cols: wide };
}

/** @param {number} level @param {number} i @param {number} j */
export function tileKey(level, i, j) {
  return `${level}/${i}/${j}`;
}

/** Tiles that are fetched, a few at a time. @implements {TileSource} */
export class RemoteTiles {
  /**
   * @param {(region: TileRegion, signal: AbortSignal, pool?: "max" | "mean") => Promise<Float32Array>} fetchTile
   * @param {{ rows: number, cols: number }} extent @param {() => void} onTile @param {(error: Error) => void} onError
   */
  constructor(fetchTile, extent, onTile, onError) {
    this.fetchTile = fetchTile;
    this.rows = extent.rows;
    this.cols = extent.cols;
    this.levels = numLevels(extent);
    this.pooledMax = this.cellMax = 0;
    this.onTile = onTile;
    this.onError = onError;
    this.tiles = /** @type {Map<string, Matrix>} */ (new Map());
    /** @type {Map<string, { level: number, i: number, j: number, controller: AbortController | null }>} */
    this.pending = new Map();
  }

  /**
   * Fetch the overview, one tile of all. Its means are smaller than the largest cell.
   * @param {AbortSignal} signal @param {"max" | "mean"} pool
   */
  async overview(signal, pool) {
    const { values } = await this.load(this.levels - 1, 0, 0, signal);
    this.pooledMax = maxAbs(values);
    this.cellMax =
      pool === "max"
        ? this.pooledMax
        : maxAbs(await this.fetchTile(this.regionOf(this.levels - 1, 0, 0), signal, "max"));
  }

  /** @param {number} level @param {number} i @param {number} j */
  tile(level, i, j) {
    const key = tileKey(level, i, j);
    const found = this.tiles.get(key);
    if (found) {
      this.tiles.delete(key); // least recently used first
      this.tiles.set(key, found);
      return found;
    }
    if (!this.pending.has(key)) {
      this.pending.set(key, { level, i, j, controller: null });
      this.startFetches();
    }
    return null;
  }

  /** @param {Set<string>} visible */
  cancelExcept(visible) {
    for (const [key, { controller }] of this.pending) {
      if (visible.has(key)) continue;
      this.pending.delete(key);
      controller?.abort();
    }
  }

  get numPending() {
    return this.pending.size;
  }

  get memory() {
    const bytes = [...this.tiles.values()].reduce((sum, { values }) => sum + 2 * values.byteLength, 0); // and pixels
    return { bytes, limit: MAX_BYTES };
  }

  startFetches() {
    const waiting = [...this.pending].filter(([, tile]) => !tile.controller);
    const numRunning = this.pending.size - waiting.length;
    for (const [key, tile] of waiting.slice(0, MAX_CONCURRENT - numRunning)) {
      tile.controller = new AbortController();
      this.load(tile.level, tile.i, tile.j, tile.controller.signal)
        .then(
          () => this.onTile(),
          (error) => error?.name === "AbortError" || this.onError(error),
        )
        .finally(() => {
          if (this.pending.get(key) === tile) this.pending.delete(key);
          this.startFetches();
        });
    }
  }

  /** @param {number} level @param {number} i @param {number} j @returns {TileRegion} */
  regionOf(level, i, j) {
    const bin_size = 2 ** level;
    const [row0, col0, side] = [i * TILE * bin_size, j * TILE * bin_size, TILE * bin_size];
    return { row0, row1: Math.min(this.rows, row0 + side), col0, col1: Math.min(this.cols, col0 + side), bin_size };
  }

  /** @param {number} level @param {number} i @param {number} j @param {AbortSignal} signal @returns {Promise<Matrix>} */
  async load(level, i, j, signal) {
    const region = this.regionOf(level, i, j);
    const { row0, row1, col0, col1, bin_size } = region;
    const [rows, cols] = [Math.ceil((row1 - row0) / bin_size), Math.ceil((col1 - col0) / bin_size)];
    const values = await this.fetchTile(region, signal);
    if (values.length !== rows * cols) throw new Error(`tile has ${values.length} values, expected ${rows * cols}`);
    const tile = { values, rows, cols };
    this.tiles.set(tileKey(level, i, j), tile);
    keepLast(this.tiles, MAX_TILES);
    return tile;
  }
}

/** A − B of two maps whose tiles are fetched. Its scale ends where that of A or B does: single cells may differ more than tiles. */
export class DifferenceTiles extends RemoteTiles {
  /** @param {RemoteTiles} a @param {RemoteTiles} b */
  constructor(a, b) {
    /** @type {RemoteTiles["fetchTile"]} */
    const fetchBoth = async (...at) => {
      const [one, other] = await Promise.all([a, b].map((side) => side.fetchTile(...at)));
      return subtract(one, other);
    };
    super(fetchBoth, a, a.onTile, a.onError);
    this.pooledMax = Math.max(a.pooledMax, b.pooledMax);
    this.cellMax = Math.max(a.cellMax, b.cellMax);
  }
}
