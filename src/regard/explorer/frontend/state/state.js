// The state of the page: every choice of a person, as one value that fits into the URL.

import { FIELDS } from "./fields.js";
import { checkpointIndex, differenceBlockedBy, runsOf, sameHeads } from "./sides.js";

/** @type {Readonly<State>} */
export const INITIAL_STATE = Object.freeze(
  /** @type {any} */ (Object.fromEntries(Object.entries(FIELDS).map(([name, [, initial]]) => [name, initial]))),
);

/** What a pupil's page cannot ask for. @type {Partial<State>} */
const COMPUTED = { attribution: false, why: false, corpus: false, cells: [] };

/** Whether the page is one of a pupil, to look at. @param {Manifest} manifest */
export function looksOnly({ classroom }) {
  return classroom?.role === "pupil";
}

/**
 * The nearest valid state: no layer or head that its side does not have, no token beyond the longest text.
 * @param {State} wanted @param {Manifest} manifest @returns {State}
 */
export function normalize(wanted, manifest) {
  if (looksOnly(manifest))
    wanted = {
      ...wanted,
      ...COMPUTED,
      view: ["model", "paths", "patching"].includes(wanted.view) ? "head" : wanted.view,
    };
  const { training } = manifest;
  const shown = training?.checkpoints[checkpointIndex(wanted, training)];
  const checkpoint = shown && wanted.checkpoint !== null ? shown.step : null;
  const lastRun = (manifest.numGivenRuns ?? manifest.runs.length) - 1;
  const liveRun = wanted.text ? wanted.liveRun : null;
  const liveRunB = wanted.textB ? wanted.liveRunB : null;
  const [a0, b0] = [liveRun ?? 0, liveRunB ?? (lastRun > 0 ? 1 : null)];
  const isOfB = b0 !== null && wanted.ablatedRun !== a0 && [1, b0].includes(wanted.ablatedRun);
  const base = shown?.run ?? (isOfB ? b0 : a0); // heads are ablated in the run that is shown
  const { layers } = manifest.runs[base];
  const lacksB = wanted.textB && b0 === null && wanted.ablatedRun === 1 && a0 !== 1; // A's heads are not meant
  const ablatable = manifest.can.ablate && !lacksB;
  const ablated = wanted.ablated.filter(([layer, head]) => ablatable && head < (layers[layer]?.heads ?? 0));
  const ablatedRun = ablated.length ? base : 0;
  const { editedRun: edited } = wanted;
  const isOfOther = edited !== null && manifest.runs[edited].base_run !== ablatedRun; // an earlier checkpoint, or text
  const editedRun = ablated.length && !isOfOther ? edited : null;
  const state = { ...wanted, checkpoint, ablated, ablatedRun, editedRun, liveRun, liveRunB };
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
  const awaitsB = state.textB !== "" && liveRunB === null;
  const story = manifest.stories.find(({ key }) => key === state.story);
  const next = {
    ...state,
    ...selection,
    story: story?.key ?? "",
    part: story ? clampIndex(state.part, story.steps.length) : 0,
    selectionB,
    row: token(state.row, maxOf("rows")),
    col: token(state.col, maxOf("cols")),
    side: numbers.length > 1 || selectionB || ablated.length || awaitsB ? state.side : "A",
    collapsedLayers: collapsed(state.collapsedLayers, shownLayers.length),
    collapsedHeads: collapsed(state.collapsedHeads, Math.max(...shownLayers.map(({ heads }) => heads))),
    mode: validKey(manifest.modes, state.mode),
    metric: validKey(manifest.metrics, state.metric),
    attributionMethod: manifest.attribution_methods.find(({ key }) => key === state.attributionMethod)?.key ?? "",
    ...clampRange(state, length),
    temperature: Math.max(0.1, state.temperature),
    pins: state.pins.filter((i) => i < length),
    lines:
      state.lines?.filter(({ layer, head }) => (head === "mean" ? 0 : head) < (shownLayers[layer]?.heads ?? 0)) ?? null,
    cells: state.cells.filter(([row, col]) => Math.max(row, col) < length),
  };
  const awaitsAblation = ablated.length > 0 && next.editedRun === null;
  return next.side === "diff" && !awaitsAblation && !awaitsB && differenceBlockedBy(next, manifest) !== null
    ? { ...next, side: "A" }
    : next;
}

/** A list without an item, or with it. @template T @param {T[]} list @param {T} item */
export function toggled(list, item) {
  const others = list.filter((each) => JSON.stringify(each) !== JSON.stringify(item));
  return others.length < list.length ? others : [...list, item];
}

/** The nearest layer and head of a run. @param {Run} run @param {HeadChoice} wanted @returns {HeadChoice} */
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
