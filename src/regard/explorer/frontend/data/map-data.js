// The map of one head as the page shows it: groups for rows and columns, tiles of numbers, and the difference of two maps.

import { byRow, gathered, minus } from "./matrix.js";
import { Difference, FetchedMap, MOST_WHOLE, WholeMap } from "./tile-source.js";
import { axisOf, membersOf } from "./tokens.js";

/**
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./tokens.js").Group} Group
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./tile-source.js").Which} Which
 * @typedef {import("./tile-source.js").Part} Part
 * @typedef {import("./tile-source.js").Field} Field
 */

/**
 * The stretch of tokens that a map shows: all of them where a text is so short that it has none of the stretch.
 * @param {{ from: number | null, to: number | null }} state @param {number} length
 */
export function stretchOf({ from, to }, length) {
  return from !== null && from >= length
    ? { from: 0, to: length }
    : { from: from ?? 0, to: Math.min(to ?? length, length) };
}

/** Whether a map is held whole. @param {import("../state/state.js").State} state @param {{ rows: number, cols: number }} layer */
export function isWhole(state, { rows, cols }) {
  const [r, c] = [stretchOf(state, rows), stretchOf(state, cols)];
  return Math.max(r.to - r.from, c.to - c.from) <= MOST_WHOLE;
}

/**
 * What of a text's tokens a map shows: those of a long text as they are.
 * @param {import("../state/state.js").State} state @param {{ rows: number, cols: number }} layer
 */
function shownOf(state, layer) {
  const whole = isWhole(state, layer);
  return { words: whole && state.words, special: !whole || state.special, ...stretchOf(state, layer.rows) };
}

/** How many rows a map shows. @param {import("../state/state.js").State} state @param {import("./source.js").Run} run @param {number} layer */
export function rowsShown(state, { tokens, layers }, layer) {
  return membersOf(tokens, shownOf(state, layers[layer])).length;
}

/**
 * The map of one head as a person wants to read it.
 * @param {Source} source @param {import("./source.js").Manifest} manifest @param {import("../state/state.js").State} state
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
      source.tile(
        run,
        layer,
        head,
        part({
          ...at,
          pool,
          row0: at.row0 + r.from,
          row1: at.row1 + r.from,
          col0: at.col0 + c.from,
          col1: at.col1 + c.from,
        }),
        stop,
      );
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
