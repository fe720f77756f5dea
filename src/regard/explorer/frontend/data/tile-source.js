// The numbers of a map at every size: exact cells, and levels of half as many until one tile holds the whole. Short
// texts are held whole, so that words can be joined and tokens left out; of long ones tiles are fetched as they are seen.

import { levelsOf, TILE } from "../render/viewport.js";
import { halved, largest, minus } from "./matrix.js";

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./tokens.js").Group} Group
 * @typedef {import("./source.js").Source} Source
 * @typedef {{ run: number, layer: number, head: import("../state/state.js").Head }} Which
 * @typedef {{ row0: number, row1: number, col0: number, col1: number, by: number }} Part
 * @typedef {object} Pyramid
 * @property {number} rows
 * @property {number} cols
 * @property {number} levels
 * @property {number} max            the number farthest from 0 of those that are seen from afar, without its sign
 * @property {number} most           the same of single cells, where they are on a scale of their own
 * @property {(level: number, i: number, j: number) => Matrix | null} tile   null while it is on its way
 * @property {(seen: Set<string>) => void} forget   what is asked for and no longer seen
 * @property {number} waiting        tiles that are on their way
 * @property {{ bytes: number, most: number }} memory  of numbers, each with its pixel, now and at most
 * @typedef {object} Field
 * @property {Group[]} rows
 * @property {Group[]} cols
 * @property {Pyramid} pyramid
 * @property {Pyramid} colours       the same numbers, or each as a share of the largest in its row: what is coloured
 * @property {Float32Array | null} hidden   of each row, the share that no column shows
 * @property {boolean} whole                held whole: words can be joined, tokens left out
 */

export const MOST_WHOLE = 1024; // tokens on a side of what is held whole
const MOST_TILES = 160; // of 256 KB each, and as much for its picture
const AT_ONCE = 6;
const MOST_IN_ALL = 3 * 4 * MOST_WHOLE ** 2 * (4 / 3); // of a map that is held whole: each level has a quarter of the one below

/** A map that is held whole. @implements {Pyramid} */
export class WholeMap {
  /** @param {Matrix} matrix @param {"max" | "mean"} pool */
  constructor(matrix, pool) {
    this.matrices = [matrix];
    this.pool = pool;
    this.rows = matrix.rows;
    this.cols = matrix.cols;
    this.levels = levelsOf(matrix);
    this.max = this.most = largest(matrix.values);
    /** @type {Map<string, Matrix>} */
    this.tiles = new Map();
  }

  /** @param {number} level @param {number} i @param {number} j */
  tile(level, i, j) {
    const key = tileKey(level, i, j);
    let found = this.tiles.get(key);
    if (!found) {
      while (this.matrices.length <= level)
        this.matrices.push(halved(this.matrices[this.matrices.length - 1], this.pool));
      found = cut(this.matrices[level], i * TILE, j * TILE);
      this.tiles.set(key, found);
    }
    return found;
  }

  forget() {}

  get waiting() {
    return 0;
  }

  get memory() {
    const bytes = this.matrices.reduce((sum, { values }) => sum + 3 * values.byteLength, 0); // whole, in tiles, and their pixels
    return { bytes, most: MOST_IN_ALL };
  }
}

/** @param {Matrix} matrix @param {number} row @param {number} col @returns {Matrix} */
function cut({ values, rows, cols }, row, col) {
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

/** A map of which tiles are fetched. @implements {Pyramid} */
export class FetchedMap {
  /**
   * @param {(part: Part, signal: AbortSignal, pool?: "max" | "mean") => Promise<Float32Array>} fetchTile
   * @param {{ rows: number, cols: number }} extent @param {() => void} arrived @param {(error: Error) => void} failed
   */
  constructor(fetchTile, extent, arrived, failed) {
    this.fetchTile = fetchTile;
    this.rows = extent.rows;
    this.cols = extent.cols;
    this.levels = levelsOf(extent);
    this.max = this.most = 0;
    this.arrived = arrived;
    this.failed = failed;
    /** @type {Map<string, Matrix>} */
    this.tiles = new Map();
    /** @type {Map<string, { level: number, i: number, j: number, control: AbortController | null }>} */
    this.wanted = new Map();
  }

  /**
   * The whole in one tile, which every view begins with. A mean is less than the largest that it is of.
   * @param {AbortSignal} signal @param {"max" | "mean"} pool
   */
  async overview(signal, pool) {
    const { values } = await this.load(this.levels - 1, 0, 0, signal);
    this.max = largest(values);
    this.most =
      pool === "max" ? this.max : largest(await this.fetchTile(this.partOf(this.levels - 1, 0, 0), signal, "max"));
  }

  /** @param {number} level @param {number} i @param {number} j */
  tile(level, i, j) {
    const key = tileKey(level, i, j);
    const found = this.tiles.get(key);
    if (found) {
      this.tiles.delete(key); // the last used stays longest
      this.tiles.set(key, found);
      return found;
    }
    if (!this.wanted.has(key)) {
      this.wanted.set(key, { level, i, j, control: null });
      this.next();
    }
    return null;
  }

  /** @param {Set<string>} seen */
  forget(seen) {
    for (const [key, { control }] of this.wanted) {
      if (seen.has(key)) continue;
      this.wanted.delete(key);
      control?.abort();
    }
  }

  get waiting() {
    return this.wanted.size;
  }

  get memory() {
    return { bytes: 2 * bytesOf(this.tiles.values()), most: MOST_TILES * 2 * 4 * TILE ** 2 };
  }

  next() {
    const running = [...this.wanted.values()].filter((tile) => tile.control).length;
    for (const [key, tile] of [...this.wanted].filter(([, tile]) => !tile.control).slice(0, AT_ONCE - running)) {
      tile.control = new AbortController();
      this.load(tile.level, tile.i, tile.j, tile.control.signal)
        .then(
          () => this.arrived(),
          (error) => error?.name === "AbortError" || this.failed(error),
        )
        .finally(() => {
          if (this.wanted.get(key) === tile) this.wanted.delete(key);
          this.next();
        });
    }
  }

  /** @param {number} level @param {number} i @param {number} j @returns {Part} */
  partOf(level, i, j) {
    const by = 2 ** level;
    const [row0, col0] = [i * TILE * by, j * TILE * by];
    return { row0, row1: Math.min(this.rows, row0 + TILE * by), col0, col1: Math.min(this.cols, col0 + TILE * by), by };
  }

  /** @param {number} level @param {number} i @param {number} j @param {AbortSignal} signal @returns {Promise<Matrix>} */
  async load(level, i, j, signal) {
    const part = this.partOf(level, i, j);
    const [rows, cols] = [Math.ceil((part.row1 - part.row0) / part.by), Math.ceil((part.col1 - part.col0) / part.by)];
    const values = await this.fetchTile(part, signal);
    if (values.length !== rows * cols)
      throw new Error(`a tile of ${values.length} weights came where ${rows * cols} were asked for`);
    const tile = { values, rows, cols };
    this.tiles.set(tileKey(level, i, j), tile);
    for (const old of [...this.tiles.keys()].slice(0, -MOST_TILES)) this.tiles.delete(old);
    return tile;
  }
}

/** @param {Iterable<Matrix>} tiles */
function bytesOf(tiles) {
  return [...tiles].reduce((sum, { values }) => sum + values.byteLength, 0);
}

/** A − B of two maps of which tiles are fetched. @implements {Pyramid} */
export class Difference {
  /** @param {Pyramid} a @param {Pyramid} b */
  constructor(a, b) {
    this.a = a;
    this.b = b;
    this.rows = a.rows;
    this.cols = a.cols;
    this.levels = a.levels;
    /** @type {Map<string, { from: Matrix, tile: Matrix }>} */
    this.tiles = new Map();
  }

  get max() {
    return Math.max(this.a.max, this.b.max);
  }

  get most() {
    return Math.max(this.a.most, this.b.most);
  }

  /** @param {number} level @param {number} i @param {number} j */
  tile(level, i, j) {
    const [a, b] = [this.a.tile(level, i, j), this.b.tile(level, i, j)];
    if (!a || !b) return null;
    const key = tileKey(level, i, j);
    let known = this.tiles.get(key);
    if (!known || known.from !== a) {
      known = { from: a, tile: { values: minus(a.values, b.values), rows: a.rows, cols: a.cols } };
      this.tiles.set(key, known);
      for (const old of [...this.tiles.keys()].slice(0, -MOST_TILES)) this.tiles.delete(old);
    }
    return known.tile;
  }

  /** @param {Set<string>} seen */
  forget(seen) {
    this.a.forget(seen);
    this.b.forget(seen);
  }

  get waiting() {
    return this.a.waiting + this.b.waiting;
  }

  get memory() {
    return {
      bytes: 2 * bytesOf([...this.tiles.values()].map(({ tile }) => tile)),
      most: MOST_TILES * 2 * 4 * TILE ** 2,
    };
  }
}
