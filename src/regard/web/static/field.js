// The numbers of a map at every size: exact cells, and levels of half as many until one tile holds the whole. Short
// texts are held whole, so that words can be joined and tokens left out; of long ones tiles are fetched as they are seen.

import { byRow, gathered, halved, largest, minus } from "./matrix.js";
import { axisOf, membersOf } from "./text.js";
import { levelsOf, TILE } from "./view.js";

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./text.js").Group} Group
 * @typedef {import("./source.js").Source} Source
 * @typedef {{ run: number, layer: number, head: import("./state.js").Head }} Which
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
      while (this.matrices.length <= level) this.matrices.push(halved(this.matrices[this.matrices.length - 1], this.pool));
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
  for (let r = 0; r < high; r++) out.set(values.subarray((row + r) * cols + col, (row + r) * cols + col + wide), r * wide);
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
    this.most = pool === "max" ? this.max : largest(await this.fetchTile(this.partOf(this.levels - 1, 0, 0), signal, "max"));
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
      this.load(tile.level, tile.i, tile.j, tile.control.signal).then(
        () => this.arrived(),
        (error) => error?.name === "AbortError" || this.failed(error),
      ).finally(() => {
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
    if (values.length !== rows * cols) throw new Error(`a tile of ${values.length} weights came where ${rows * cols} were asked for`);
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
    return { bytes: 2 * bytesOf([...this.tiles.values()].map(({ tile }) => tile)), most: MOST_TILES * 2 * 4 * TILE ** 2 };
  }
}

/**
 * The stretch of tokens that a map shows: all of them where a text is so short that it has none of the stretch.
 * @param {{ from: number | null, to: number | null }} state @param {number} length
 */
export function stretchOf({ from, to }, length) {
  return from !== null && from >= length ? { from: 0, to: length } : { from: from ?? 0, to: Math.min(to ?? length, length) };
}

/** Whether a map is held whole. @param {import("./state.js").State} state @param {{ rows: number, cols: number }} layer */
export function isWhole(state, { rows, cols }) {
  const [r, c] = [stretchOf(state, rows), stretchOf(state, cols)];
  return Math.max(r.to - r.from, c.to - c.from) <= MOST_WHOLE;
}

/**
 * What of a text's tokens a map shows: those of a long text as they are.
 * @param {import("./state.js").State} state @param {{ rows: number, cols: number }} layer
 */
function shownOf(state, layer) {
  const whole = isWhole(state, layer);
  return { words: whole && state.words, special: !whole || state.special, ...stretchOf(state, layer.rows) };
}

/** How many rows a map shows. @param {import("./state.js").State} state @param {import("./source.js").Run} run @param {number} layer */
export function rowsShown(state, { tokens, layers }, layer) {
  return membersOf(tokens, shownOf(state, layers[layer])).length;
}

/**
 * The map of one head as a person wants to read it.
 * @param {Source} source @param {import("./source.js").Manifest} manifest @param {import("./state.js").State} state
 * @param {Which} which @param {{ signal: AbortSignal, arrived: () => void, failed: (error: Error) => void }} around
 * @returns {Promise<Field>}
 */
export async function fieldOf(source, manifest, state, { run, layer, head }, { signal, arrived, failed }) {
  const its = manifest.runs[run];
  const { rows, cols } = its.layers[layer];
  const [r, c] = [stretchOf(state, rows), stretchOf(state, cols)];
  const whole = isWhole(state, { rows, cols });
  const shown = shownOf(state, { rows, cols });
  const rowAxis = axisOf(its.tokens, its.text, shown);
  const colAxis = axisOf(its.tokens, its.text, { ...shown, ...c });
  const part = (/** @type {any} */ span) => ({ way: state.way, pool: state.pool, ...span });
  if (!whole) {
    const fetchTile = (/** @type {Part} */ at, /** @type {AbortSignal} */ stop, pool = state.pool) =>
      source.tile(run, layer, head, part({ ...at, pool, row0: at.row0 + r.from, row1: at.row1 + r.from, col0: at.col0 + c.from, col1: at.col1 + c.from }), stop);
    const pyramid = new FetchedMap(fetchTile, { rows: rowAxis.length, cols: colAxis.length }, arrived, failed);
    await pyramid.overview(signal, state.pool);
    return { rows: rowAxis, cols: colAxis, pyramid, colours: pyramid, hidden: null, whole };
  }
  const all = cols <= MOST_WHOLE; // then what is hidden can be summed, else it is what is missing to 1
  const [col0, col1] = all ? [0, cols] : [c.from, c.to];
  const span = { row0: r.from, row1: r.to, col0, col1, by: 1 };
  const values = await source.tile(run, layer, head, part(span), signal);
  const { matrix, hidden } = gathered(values, col1 - col0, rowAxis, colAxis, span.row0, span.col0);
  const isHiding = colAxis.reduce((sum, group) => sum + group.members.length, 0) < cols;
  const rest = !isHiding || (!all && state.way === "norms") ? null : hiddenShares(matrix, all ? hidden : null);
  return { rows: rowAxis, cols: colAxis, ...held(matrix, state), hidden: rest, whole };
}

/**
 * The share of each row that is not in a map.
 * @param {Matrix} matrix @param {Float32Array | null} hidden  the sum of what is not; without it, what is missing to 1
 */
export function hiddenShares({ values, rows, cols }, hidden) {
  return Float32Array.from({ length: rows }, (_, r) => {
    const seen = values.subarray(r * cols, (r + 1) * cols).reduce((a, b) => a + b, 0);
    return hidden ? hidden[r] / (seen + hidden[r] || 1) : Math.max(0, 1 - seen);
  });
}

/** The numbers of a map that is held whole, and what their colours are of. @param {Matrix} matrix @param {{ byRow: boolean, pool: "max" | "mean" }} state */
function held(matrix, state) {
  const pyramid = new WholeMap(matrix, state.pool);
  return { pyramid, colours: state.byRow ? new WholeMap(byRow(matrix), state.pool) : pyramid };
}

/** A − B of two maps of the same rows and columns. @param {Field} a @param {Field} b @param {{ byRow: boolean, pool: "max" | "mean" }} state @returns {Field} */
export function differenceOf(a, b, state) {
  const [one, other] = [a.pyramid, b.pyramid];
  const axes = { rows: both(a.rows, b.rows), cols: both(a.cols, b.cols), hidden: null };
  if (!(one instanceof WholeMap && other instanceof WholeMap)) {
    const pyramid = new Difference(one, other);
    return { ...axes, pyramid, colours: pyramid, whole: false };
  }
  const matrix = { ...one.matrices[0], values: minus(one.matrices[0].values, other.matrices[0].values) };
  return { ...axes, ...held(matrix, state), whole: true };
}

/** Groups of A and of B under both their names. @param {Group[]} a @param {Group[]} b @returns {Group[]} */
function both(a, b) {
  return a.map((group, n) => {
    const other = b[n];
    if (group.full === other.full) return group;
    return { ...group, label: `${group.label} | ${other.label}`, full: `${group.full} | ${other.full}` };
  });
}
