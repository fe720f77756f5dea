// What a view is: every choice that a person made, as one value that fits into the address of the page.

import { runsOf, whyNoDifference } from "./sides.js";

/**
 * @typedef {import("../data/source.js").Run} Run
 * @typedef {"heads" | "head" | "cell" | "movement"} ViewName
 * @typedef {"A" | "B" | "diff"} Side
 * @typedef {number | "mean"} Head
 * @typedef {{ layer: number, head: Head }} Place
 * @typedef {object} State
 * @property {ViewName} view
 * @property {number} layer         of A, and of B where that has no place of its own
 * @property {Head} head
 * @property {Place | null} other   where B is, if it is another head, or that of a model of other layers
 * @property {number | null} row    the token that looks
 * @property {number | null} col    the token that is looked at
 * @property {Side} side            of what is compared
 * @property {string} way
 * @property {string} measure
 * @property {"place" | "measure"} order
 * @property {number} least         heads whose measure is in the lowest part of its range step back, this share of it
 * @property {number[]} shutLayers  rows of the grid shown as their mean
 * @property {number[]} shutHeads   columns of the grid shown as their mean
 * @property {boolean} words
 * @property {boolean} special      show special tokens
 * @property {boolean} log
 * @property {boolean} byRow        each row on a scale of its own
 * @property {"max" | "mean"} pool
 * @property {number | null} from   first token of the stretch that is shown
 * @property {number | null} to     first token behind it
 * @property {number[]} pins
 * @property {"out" | "in"} direction  of the text view: whom a word looks at, or who looks at it
 * @property {boolean} arcs
 * @property {string} query
 * @property {number} stage         of the movement
 * @property {"auto" | "light" | "dark"} theme
 * @property {import("../render/viewport.js").View | null} zoom   the whole map where null
 * @property {[number, number][]} off  heads that are switched off, (layer, head)
 * @property {number} offRun        the text that they are switched off in: 0 or 1
 * @property {number | null} edited  the run of that edit, which is then B; lives as long as the server
 */

/** @type {Readonly<State>} */
export const FIRST = Object.freeze({
  view: "head",
  layer: 0,
  head: 0,
  row: null,
  col: null,
  side: "A",
  other: null,
  way: "raw",
  measure: "entropy",
  order: "place",
  least: 0,
  shutLayers: [],
  shutHeads: [],
  words: false,
  special: true,
  log: false,
  byRow: false,
  pool: "max",
  from: null,
  to: null,
  pins: [],
  direction: "out",
  arcs: false,
  query: "",
  stage: -1,
  theme: "auto",
  zoom: null,
  off: [],
  offRun: 0,
  edited: null,
});

/**
 * A state that fits what there is: no layer or head, chosen or folded, that its side does not have, no token beyond the
 * longest text.
 * @param {State} wanted @param {import("../data/source.js").Manifest} manifest @returns {State}
 */
export function fitted(wanted, manifest) {
  const offRun = Math.min(wanted.offRun, (manifest.given ?? manifest.runs.length) - 1);
  const { layers } = manifest.runs[offRun];
  const off = wanted.off.filter(([layer, head]) => manifest.can.edit && head < (layers[layer]?.heads ?? 0));
  const state = { ...wanted, off, offRun, edited: off.length ? wanted.edited : null };
  const numbers = runsOf(state, manifest);
  const [a, b = a] = numbers.map((run) => manifest.runs[run]);
  const place = placeIn(a, state);
  const another = !alike(a, b) ? (state.other ?? state) : numbers.length > 1 ? null : state.other;
  const other = another && placeIn(b, another);
  const longest = (/** @type {"rows" | "cols"} */ side) =>
    Math.max(a.layers[place.layer][side], b.layers[(other ?? place).layer][side]);
  const length = Math.max(a.tokens.length, b.tokens.length);
  const token = (/** @type {number | null} */ i, /** @type {number} */ end) => (i === null || i >= end ? null : i);
  const seen = (state.side === "B" ? b : a).layers;
  const folded = (/** @type {number[]} */ list, /** @type {number} */ end) => [...new Set(list)].filter((n) => n < end);
  const known = (/** @type {{key: string}[]} */ list, /** @type {string} */ key) =>
    list.some((x) => x.key === key) ? key : (list[0]?.key ?? key);
  const next = {
    ...state,
    ...place,
    other,
    row: token(state.row, longest("rows")),
    col: token(state.col, longest("cols")),
    side: numbers.length > 1 || other || off.length ? state.side : "A",
    shutLayers: folded(state.shutLayers, seen.length),
    shutHeads: folded(state.shutHeads, Math.max(...seen.map(({ heads }) => heads))),
    way: known(manifest.ways, state.way),
    measure: known(manifest.measures, state.measure),
    ...stretchIn(state, length),
    pins: state.pins.filter((i) => i < length),
  };
  const waits = off.length > 0 && next.edited === null; // for what it is to be compared with
  return next.side === "diff" && !waits && whyNoDifference(next, manifest) !== null ? { ...next, side: "A" } : next;
}

/** The layer and head of a run that are nearest to those wanted. @param {Run} run @param {Place} wanted @returns {Place} */
function placeIn({ layers }, { layer, head }) {
  const its = within(layer, layers.length);
  return { layer: its, head: head === "mean" ? head : within(head, layers[its].heads) };
}

/**
 * A stretch of tokens that there are, the first of them and the one behind the last; null is the end of the text.
 * @param {{ from: number | null, to: number | null }} wanted @param {number} length
 */
export function stretchIn({ from, to }, length) {
  const token = (/** @type {number | null} */ i) => (i === null ? null : within(Math.trunc(i), length));
  const [first, last] = [token(from), token(to === null ? null : to - 1)];
  const [least, most] = first !== null && last !== null && last < first ? [last, first] : [first, last];
  return { from: least === 0 ? null : least, to: most === null || most === length - 1 ? null : most + 1 };
}

/** @param {number} n @param {number} length */
function within(n, length) {
  return Math.max(0, Math.min(n, length - 1));
}

/** Whether two runs have the same layers and heads. @param {Run} a @param {Run} b */
function alike(a, b) {
  return a.layers.length === b.layers.length && a.layers.every(({ heads }, n) => heads === b.layers[n].heads);
}
