// The state of the page: every choice of a person, as one value that fits into the URL.

import { FIELDS } from "./fields.js";
import { checkpointIndex, differenceBlockedBy, runsOf } from "./sides.js";

/**
 * @typedef {import("../data/source.js").Run} Run
 * @typedef {import("../data/source.js").Manifest} Manifest
 * @typedef {(typeof import("./fields.js").VIEW_NAMES)[number]} ViewName
 * @typedef {"A" | "B" | "diff"} Side
 * @typedef {number | "mean"} Head
 * @typedef {{ layer: number, head: Head }} Selection
 * @typedef {object} State
 * @property {ViewName} view
 * @property {number} layer         of A, and of B without a selection of its own
 * @property {Head} head
 * @property {Selection | null} selectionB  if B is another head, or of a model with other layers
 * @property {number | null} row    the query token of the cell
 * @property {number | null} col    its key token
 * @property {Side} side
 * @property {string} mode
 * @property {string} metric
 * @property {"layer" | "metric"} order
 * @property {number} threshold     heads below it are dimmed: a share of the range of the metric
 * @property {number[]} collapsedLayers  rows of the grid shown as their mean
 * @property {number[]} collapsedHeads   columns of the grid shown as their mean
 * @property {boolean} words        merge the tokens of a word
 * @property {boolean} special      show special tokens
 * @property {boolean} log
 * @property {boolean} byRow        normalize the colours of each row
 * @property {"max" | "mean"} pool
 * @property {number | null} from   the first token shown
 * @property {number | null} to     the token after the last
 * @property {number[]} pins
 * @property {"out" | "in"} direction  of the text panel: what a word attends to, or what attends to it
 * @property {boolean} arcs
 * @property {boolean} attribution  whether the panel of what mattered is open
 * @property {string} attributionMethod  empty: that of the model
 * @property {string} target        of the attribution, as text; empty: the default or the token
 * @property {number | null} targetToken  as the id of a next token
 * @property {boolean} afterRow     the next token is that after the row
 * @property {string} query
 * @property {number} stage         of the movement
 * @property {"auto" | "light" | "dark"} theme
 * @property {import("../render/viewport.js").Viewport | null} zoom   null: the whole map
 * @property {[number, number][]} ablated  (layer, head)
 * @property {number} ablatedRun    the run that they are ablated in: 0 or 1
 * @property {number | null} checkpoint  the step of the one that is shown, of a training run; null: the newest
 * @property {number | null} editedRun  the run of that ablation, which is then B; valid until the server ends
 * @property {string} text          a text that the page runs itself; empty: that of the given runs
 * @property {string} model         the name of what runs it
 * @property {number | null} liveRun  its run, which is then A; null until it has run
 * @property {boolean} nextTokens   whether the panel of what comes next is open
 * @property {number} temperature   of the next token
 */

/** @type {Readonly<State>} */
export const INITIAL_STATE = Object.freeze(
  /** @type {any} */ (Object.fromEntries(Object.entries(FIELDS).map(([name, [, initial]]) => [name, initial]))),
);

/**
 * The nearest valid state: no layer or head that its side does not have, no token beyond the longest text.
 * @param {State} wanted @param {Manifest} manifest @returns {State}
 */
export function normalize(wanted, manifest) {
  const { training } = manifest;
  const shown = training?.checkpoints[checkpointIndex(wanted, training)];
  const checkpoint = shown && wanted.checkpoint !== null ? shown.step : null;
  const lastRun = (manifest.numGivenRuns ?? manifest.runs.length) - 1;
  const liveRun = wanted.text ? wanted.liveRun : null;
  const base = shown?.run ?? liveRun ?? Math.min(wanted.ablatedRun, lastRun); // heads are ablated in the run that is shown
  const { layers } = manifest.runs[base];
  const ablated = wanted.ablated.filter(([layer, head]) => manifest.can.ablate && head < (layers[layer]?.heads ?? 0));
  const ablatedRun = ablated.length ? base : 0;
  const { editedRun: edited } = wanted;
  const isOfOther = edited !== null && manifest.runs[edited].base_run !== ablatedRun; // an earlier checkpoint, or text
  const editedRun = ablated.length && !isOfOther ? edited : null;
  const state = { ...wanted, checkpoint, ablated, ablatedRun, editedRun, liveRun };
  const numbers = runsOf(state, manifest);
  const [a, b = a] = numbers.map((run) => manifest.runs[run]);
  const selection = clampSelection(a, state);
  const another = !sameHeads(a, b) ? (state.selectionB ?? state) : numbers.length > 1 ? null : state.selectionB;
  const selectionB = another && clampSelection(b, another);
  const maxOf = (/** @type {"rows" | "cols"} */ axis) =>
    Math.max(a.layers[selection.layer][axis], b.layers[(selectionB ?? selection).layer][axis]);
  const length = Math.max(a.tokens.length, b.tokens.length);
  const token = (/** @type {number | null} */ i, /** @type {number} */ end) => (i === null || i >= end ? null : i);
  const shownLayers = (state.side === "B" ? b : a).layers;
  const collapsed = (/** @type {number[]} */ list, /** @type {number} */ end) =>
    [...new Set(list)].filter((n) => n < end);
  const validKey = (/** @type {{key: string}[]} */ list, /** @type {string} */ key) =>
    list.some((x) => x.key === key) ? key : (list[0]?.key ?? key);
  const next = {
    ...state,
    ...selection,
    selectionB,
    row: token(state.row, maxOf("rows")),
    col: token(state.col, maxOf("cols")),
    side: numbers.length > 1 || selectionB || ablated.length ? state.side : "A",
    collapsedLayers: collapsed(state.collapsedLayers, shownLayers.length),
    collapsedHeads: collapsed(state.collapsedHeads, Math.max(...shownLayers.map(({ heads }) => heads))),
    mode: validKey(manifest.modes, state.mode),
    metric: validKey(manifest.metrics, state.metric),
    attributionMethod: manifest.attribution_methods.some(({ key }) => key === state.attributionMethod)
      ? state.attributionMethod
      : "",
    ...clampRange(state, length),
    temperature: Math.max(0.1, state.temperature),
    pins: state.pins.filter((i) => i < length),
  };
  const awaitsAblation = ablated.length > 0 && next.editedRun === null;
  return next.side === "diff" && !awaitsAblation && differenceBlockedBy(next, manifest) !== null
    ? { ...next, side: "A" }
    : next;
}

/** The nearest layer and head of a run. @param {Run} run @param {Selection} wanted @returns {Selection} */
function clampSelection({ layers }, { layer, head }) {
  const index = clampIndex(layer, layers.length);
  return { layer: index, head: head === "mean" ? head : clampIndex(head, layers[index].heads) };
}

/**
 * The nearest range of tokens; null stands for an end of the text.
 * @param {{ from: number | null, to: number | null }} wanted @param {number} length
 */
export function clampRange({ from, to }, length) {
  const token = (/** @type {number | null} */ i) => (i === null ? null : clampIndex(Math.trunc(i), length));
  const [first, last] = [token(from), token(to === null ? null : to - 1)];
  const [low, high] = first !== null && last !== null && last < first ? [last, first] : [first, last];
  return { from: low === 0 ? null : low, to: high === null || high === length - 1 ? null : high + 1 };
}

/** @param {number} n @param {number} length */
function clampIndex(n, length) {
  return Math.max(0, Math.min(n, length - 1));
}

/** Whether two runs have the same layers and heads. @param {Run} a @param {Run} b */
function sameHeads(a, b) {
  return a.layers.length === b.layers.length && a.layers.every(({ heads }, n) => heads === b.layers[n].heads);
}
