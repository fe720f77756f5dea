// The map of one head as the page shows it: tokens or words as rows and columns, tiles of values, and A − B of two maps.

import { mergeTokens, normalizeRows, subtract } from "./matrix.js";
import { DifferenceTiles, InMemoryTiles, MAX_IN_MEMORY_SIDE, RemoteTiles } from "./tile-source.js";
import { groupMembers, groupTokens } from "./tokens.js";

/** @import { recentMaps } from "./recent-maps.js" */

/**
 * The range of tokens that a map shows: all of them if the text ends before it.
 * @param {{ from: number | null, to: number | null }} state @param {number} length
 */
export function tokenRange({ from, to }, length) {
  return from !== null && from >= length
    ? { from: 0, to: length }
    : { from: from ?? 0, to: Math.min(to ?? length, length) };
}

/** @param {State} state @param {Extent} layer */
export function fitsInMemory(state, { rows, cols }) {
  const [r, c] = [tokenRange(state, rows), tokenRange(state, cols)];
  return Math.max(r.to - r.from, c.to - c.from) <= MAX_IN_MEMORY_SIDE;
}

/** The tokens of rows and columns: those of the layer's block, else those chosen. @param {State} state @param {Layer} layer */
const rangesOf = (state, { rows, cols, block }) => block ?? [tokenRange(state, rows), tokenRange(state, cols)];

/** Which tokens a map shows; those of a long text are neither merged nor left out. @param {State} state @param {Layer} layer */
export function tokenSelection(state, layer) {
  const inMemory = fitsInMemory(state, layer);
  return { words: inMemory && state.words, special: !inMemory || state.special, ...rangesOf(state, layer)[0] };
}

/** @param {State} state @param {Run} run @param {number} layer */
export function numRowsShown(state, { tokens, layers }, layer) {
  return groupMembers(tokens, tokenSelection(state, layers[layer])).length;
}

const lastAxes = /** @type {WeakMap<Run, { key: string, axes: Axes }>} */ (new WeakMap()); // of a long text

/** The rows and columns of a map. @param {State} state @param {Run} run @param {number} layer @returns {Axes} */
export function axesOf(state, run, layer) {
  const { tokens, text, layers } = run;
  const rows = tokenSelection(state, layers[layer]);
  const cols = { ...rows, ...rangesOf(state, layers[layer])[1] };
  const key = JSON.stringify([rows, cols]);
  const last = lastAxes.get(run);
  if (last?.key === key) return last.axes;
  const axes = { rows: groupTokens(tokens, text, rows), cols: groupTokens(tokens, text, cols) };
  lastAxes.set(run, { key, axes });
  return axes;
}

/** The rows and columns of A − B, with the labels of both where they differ. @param {Axes} a @param {Axes} b @returns {Axes} */
export function pairAxes(a, b) {
  return { rows: pairLabels(a.rows, b.rows), cols: pairLabels(a.cols, b.cols) };
}

/**
 * @param {Source} source @param {Manifest} manifest @param {State} state @param {HeadRef} headRef
 * @param {{ signal: AbortSignal, onTile: () => void, onError: (error: Error) => void, fetchMap: ReturnType<typeof recentMaps> }} options
 * @returns {Promise<MapData>}
 */
export async function loadMap(source, manifest, state, { run, layer, head }, { signal, onTile, onError, fetchMap }) {
  const { layers } = manifest.runs[run];
  const { cols: numCols, block } = layers[layer];
  const [rowRange, colRange] = rangesOf(state, layers[layer]);
  const { rows, cols } = axesOf(state, manifest.runs[run], layer);
  const { mode } = state;
  if (!fitsInMemory(state, layers[layer])) {
    const [dy, dx] = [rowRange.from, colRange.from];
    const fetchTile = (/** @type {TileRegion} */ at, /** @type {AbortSignal} */ tileSignal, pool = state.pool) => {
      const { row0, row1, col0, col1, bin_size } = at;
      const region = { mode, row0: row0 + dy, row1: row1 + dy, col0: col0 + dx, col1: col1 + dx, bin_size, pool };
      return source.tile({ run, layer, head, ...region }, tileSignal);
    };
    const pyramid = new RemoteTiles(fetchTile, { rows: rows.length, cols: cols.length }, onTile, onError);
    await pyramid.overview(signal, state.pool);
    return { rows, cols, pyramid, colorPyramid: pyramid, hiddenMass: null, inMemory: false };
  }
  // With all columns, hidden ones are summed; otherwise they are what a row lacks to 1, which norms do not sum to.
  const hasAllColumns = numCols <= MAX_IN_MEMORY_SIDE;
  const [col0, col1] = hasAllColumns ? [0, numCols] : [colRange.from, colRange.to];
  const region = { mode, row0: rowRange.from, row1: rowRange.to, col0, col1, bin_size: 1, pool: state.pool };
  const values = await fetchMap({ run, layer, head, ...region });
  const { matrix, hidden } = mergeTokens(values, col1 - col0, rows, cols, rowRange.from, col0);
  const hidesColumns = cols.flatMap(({ members }) => members).length < (block ? colRange.to - colRange.from : numCols);
  const isKnown = hidesColumns && (hasAllColumns || mode !== "norms");
  const hiddenMass = isKnown ? hiddenMassOf(matrix, hasAllColumns ? hidden : null) : null;
  return { rows, cols, ...pyramidsOf(matrix, state), hiddenMass, inMemory: true };
}

/**
 * The share of each row that the map does not show.
 * @param {Matrix} matrix @param {Float32Array | null} hidden  the sum of the hidden columns; null: what a row lacks to 1
 */
export function hiddenMassOf({ values, rows, cols }, hidden) {
  return Float32Array.from({ length: rows }, (_, r) => {
    const shown = values.subarray(r * cols, (r + 1) * cols).reduce((a, b) => a + b, 0);
    return hidden ? hidden[r] / (shown + hidden[r] || 1) : Math.max(0, 1 - shown);
  });
}

/** @param {Matrix} matrix @param {{ byRow: boolean, pool: "max" | "mean" }} state */
function pyramidsOf(matrix, state) {
  const pyramid = new InMemoryTiles(matrix, state.pool);
  return { pyramid, colorPyramid: state.byRow ? new InMemoryTiles(normalizeRows(matrix), state.pool) : pyramid };
}

/** A − B of two maps of the same rows and columns. @param {MapData} a @param {MapData} b @param {{ byRow: boolean, pool: "max" | "mean" }} state @returns {MapData} */
export function differenceOf(a, b, state) {
  const [one, other] = [a.pyramid, b.pyramid];
  const axes = { ...pairAxes(a, b), hiddenMass: null };
  if (!(one instanceof InMemoryTiles && other instanceof InMemoryTiles)) {
    const pyramid = new DifferenceTiles(/** @type {RemoteTiles} */ (one), /** @type {RemoteTiles} */ (other));
    return { ...axes, pyramid, colorPyramid: pyramid, inMemory: false };
  }
  const matrix = { ...one.matrices[0], values: subtract(one.matrices[0].values, other.matrices[0].values) };
  return { ...axes, ...pyramidsOf(matrix, state), inMemory: true };
}

/** Groups with the labels of A and B where they differ. @param {Group[]} a @param {Group[]} b @returns {Group[]} */
function pairLabels(a, b) {
  return a.map((group, n) => {
    const other = b[n];
    if (group.full === other.full) return group;
    const both = (/** @type {"label" | "name" | "full"} */ kind) => `${group[kind]} | ${other[kind]}`;
    return { ...group, label: both("label"), name: both("name"), full: both("full") };
  });
}
