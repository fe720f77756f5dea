// What a view is: every choice that a person made, as one value that fits into the address of the page.

import { rowsShown } from "./field.js";

/**
 * @typedef {import("./source.js").Run} Run
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
 * @property {import("./view.js").View | null} zoom   the whole map where null
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

const SHORT = /** @type {const} */ ({
  view: "v", layer: "l", head: "h", other: "b", row: "i", col: "j", side: "s", way: "w", measure: "m",
  order: "o", least: "n", shutLayers: "sl", shutHeads: "sh", words: "words", special: "special", log: "log",
  byRow: "byrow", pool: "pool", from: "from", to: "to", pins: "pins", direction: "d", arcs: "arcs", query: "q",
  stage: "t", theme: "theme", zoom: "z", off: "x", offRun: "xr",
});
const CHOICES = /** @type {Record<string, string[]>} */ ({
  view: ["heads", "head", "cell", "movement"],
  side: ["A", "B", "diff"],
  order: ["place", "measure"],
  pool: ["max", "mean"],
  direction: ["out", "in"],
  theme: ["auto", "light", "dark"],
});

/** @param {State} state @returns {string} what differs from a first view, as the part of an address behind "#" */
export function encode(state) {
  const parameters = new URLSearchParams();
  for (const [name, short] of Object.entries(SHORT)) {
    const [value, first] = [/** @type {any} */ (state)[name], /** @type {any} */ (FIRST)[name]];
    const needed = ["layer", "head", "view"].includes(name);
    if (JSON.stringify(value) !== JSON.stringify(first) || needed) parameters.set(short, written(name, value));
  }
  return parameters.toString();
}

/** @param {string} name @param {any} value */
function written(name, value) {
  if (name === "other") return value ? `${value.layer}.${value.head}` : "";
  if (name === "zoom") return value ? [value.x.toFixed(3), value.y.toFixed(3), value.k.toPrecision(6)].map(Number).join("_") : "";
  if (name === "off") return value.map((/** @type {number[]} */ at) => at.join(".")).join("_");
  if (Array.isArray(value)) return value.join(".");
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "number") return String(Number(value.toFixed(3)));
  return value === null ? "" : String(value);
}

/**
 * A state from an address. What an address says wrongly is as if it were not said.
 * @param {string} hash @returns {Partial<State>}
 */
export function decode(hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Record<string, any>} */
  const found = {};
  for (const [name, short] of Object.entries(SHORT)) {
    const text = parameters.get(short);
    if (text === null) continue;
    const value = read(name, text);
    if (value !== undefined) found[name] = value;
  }
  return found;
}

/** @param {string} name @param {string} text @returns {any} */
function read(name, text) {
  const first = /** @type {any} */ (FIRST)[name];
  if (name in CHOICES) return CHOICES[name].includes(text) ? text : undefined;
  if (name === "head") return text === "mean" ? "mean" : count(text);
  if (name === "other") {
    const [layer, head] = text.split(".");
    const numbers = [count(layer), head === "mean" ? "mean" : count(head ?? "")];
    return numbers.includes(undefined) ? undefined : { layer: numbers[0], head: numbers[1] };
  }
  if (name === "zoom") {
    const [x, y, k] = text.split("_").map(Number);
    return [x, y, k].every(Number.isFinite) && k > 0 ? { x, y, k } : undefined;
  }
  if (name === "off") return text.split("_").flatMap((at) => (/^\d{1,6}\.\d{1,6}$/.test(at) ? [at.split(".").map(Number)] : []));
  if (name === "least") return Number(text) >= 0 && Number(text) <= 1 ? Number(text) : undefined;
  if (name === "stage") return Number(text) >= 0 ? Number(text) : undefined;
  if (Array.isArray(first)) return text.split(".").flatMap((part) => count(part) ?? []);
  if (typeof first === "boolean") return text === "1";
  return typeof first === "number" || first === null ? count(text) : text.slice(0, 200);
}

/** @param {string} text @returns {number | undefined} */
function count(text) {
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

/**
 * A state that fits what there is: no layer or head, chosen or folded, that its side does not have, no token beyond the
 * longest text.
 * @param {State} wanted @param {import("./source.js").Manifest} manifest @returns {State}
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
  const longest = (/** @type {"rows" | "cols"} */ side) => Math.max(a.layers[place.layer][side], b.layers[(other ?? place).layer][side]);
  const length = Math.max(a.tokens.length, b.tokens.length);
  const token = (/** @type {number | null} */ i, /** @type {number} */ end) => (i === null || i >= end ? null : i);
  const seen = (state.side === "B" ? b : a).layers;
  const folded = (/** @type {number[]} */ list, /** @type {number} */ end) => [...new Set(list)].filter((n) => n < end);
  const known = (/** @type {{key: string}[]} */ list, /** @type {string} */ key) => (list.some((x) => x.key === key) ? key : (list[0]?.key ?? key));
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

/** The runs that are A and B: what was there before an edit and the edited one, else those given. @param {State} state @param {import("./source.js").Manifest} manifest */
function runsOf({ edited }, { given, runs }) {
  if (edited !== null) return [runs[edited].of ?? 0, edited];
  return (given ?? runs.length) > 1 ? [0, 1] : [0];
}

/**
 * What is compared: A and B, or A alone.
 * @param {State} state @param {import("./source.js").Manifest} manifest
 * @returns {{ run: number, layer: number, head: Head }[]}
 */
export function sidesOf(state, manifest) {
  const { layer, head, other } = state;
  const [a, b] = runsOf(state, manifest);
  const one = { run: a, layer, head };
  return b === undefined && !other ? [one] : [one, { run: b ?? a, ...(other ?? { layer, head }) }];
}

/** The layer and head that a choice changes: those of B where it is seen and has its own. @param {State} state @returns {Place} */
export function placeOf({ side, layer, head, other }) {
  return other && side !== "A" ? other : { layer, head };
}

/** What changes with a choice of layer or head. @param {State} state @param {Partial<Place>} choice @returns {Partial<State>} */
export function placed(state, choice) {
  const place = { ...placeOf(state), ...choice };
  return state.other && state.side !== "A" ? { other: place } : place;
}

/**
 * The runs whose movement is seen together: those that are compared, as far as they are of the model that is looked at and
 * share its plane. Vectors of another model live in a space of its own.
 * @param {{ run: number }[]} sides @param {{ run: number }} here @param {import("./source.js").Manifest} manifest
 */
export function movedRuns(sides, here, { runs }) {
  const moved = [...new Set([here, ...sides].map(({ run }) => run))].filter((run) => runs[run].plane);
  const [first] = moved.map((run) => runs[run]);
  return moved.filter((run) => runs[run].plane === first.plane && runs[run].model === first.model).sort((a, b) => a - b);
}

/**
 * Why A − B cannot be shown, cell by cell; null where it can.
 * @param {State} state @param {import("./source.js").Manifest} manifest @returns {string | null}
 */
export function whyNoDifference(state, manifest) {
  const sides = sidesOf(state, manifest);
  if (sides.length < 2) return "there is nothing to compare with";
  const [a, b] = sides.map(({ run, layer }) => manifest.runs[run].layers[layer]);
  if (a.rows !== b.rows || a.cols !== b.cols) return manifest.why_not ?? `A has ${a.rows} tokens and B ${b.rows}: cells of one have no partner in the other`;
  if (sides[0].run === sides[1].run || state.edited !== null) return null; // of one text
  if (manifest.comparable === false) return manifest.why_not ?? "A and B do not match";
  const [one, other] = sides.map(({ run, layer }) => rowsShown(state, manifest.runs[run], layer));
  return one === other ? null : `${state.words ? "joined to words" : "as they are shown"}, A has ${one} rows and B ${other}: cells of one have no partner in the other`;
}

/** Holds the state and tells who wants to know that it changed. */
export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {((state: State, before: State) => void)[]} */
    this.listeners = [];
  }

  /** @param {Partial<State>} change */
  set(change) {
    const before = this.state;
    const next = { ...before, ...change };
    if (JSON.stringify(next) === JSON.stringify(before)) return;
    this.state = next;
    for (const listener of this.listeners) listener(next, before);
  }

  /** @param {(state: State, before: State) => void} listener */
  subscribe(listener) {
    this.listeners.push(listener);
  }
}
