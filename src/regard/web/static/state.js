// What a view is: every choice that a person made, as one value that fits into the address of the page.

/**
 * @typedef {"heads" | "head" | "cell" | "movement"} ViewName
 * @typedef {"A" | "B" | "diff"} Side
 * @typedef {number | "mean"} Head
 * @typedef {object} State
 * @property {ViewName} view
 * @property {number} run      the text or model that is looked at where nothing is compared
 * @property {number} layer
 * @property {Head} head
 * @property {number | null} row    the token that looks
 * @property {number | null} col    the token that is looked at
 * @property {Side} side            of what is compared
 * @property {{ layer: number, head: Head } | null} kept  a head of the same run to compare with, which is then A
 * @property {string} way
 * @property {string} measure
 * @property {"place" | "measure"} order
 * @property {number} least         heads whose measure is below this share of the largest step back
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
 * @property {number | null} edited  the run of an edit, which is then B; lives as long as the server
 */

/** @type {Readonly<State>} */
export const FIRST = Object.freeze({
  view: "head",
  run: 0,
  layer: 0,
  head: 0,
  row: null,
  col: null,
  side: "A",
  kept: null,
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
  edited: null,
});

const SHORT = /** @type {const} */ ({
  view: "v", run: "r", layer: "l", head: "h", row: "i", col: "j", side: "s", kept: "k", way: "w", measure: "m",
  order: "o", least: "n", shutLayers: "sl", shutHeads: "sh", words: "words", special: "special", log: "log",
  byRow: "byrow", pool: "pool", from: "from", to: "to", pins: "pins", direction: "d", arcs: "arcs", query: "q",
  stage: "t", theme: "theme", zoom: "z",
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
  if (name === "kept") return value ? `${value.layer}.${value.head}` : "";
  if (name === "zoom") return value ? [value.x, value.y, value.k].map((n) => Number(n.toFixed(3))).join("_") : "";
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
  if (name === "kept") {
    const [layer, head] = text.split(".");
    const numbers = [count(layer), head === "mean" ? "mean" : count(head ?? "")];
    return numbers.includes(undefined) ? undefined : { layer: numbers[0], head: numbers[1] };
  }
  if (name === "zoom") {
    const [x, y, k] = text.split("_").map(Number);
    return [x, y, k].every(Number.isFinite) && k > 0 ? { x, y, k } : undefined;
  }
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
 * A state that fits what there is: no layer, head or token beyond the last.
 * @param {State} state @param {import("./source.js").Manifest} manifest @returns {State}
 */
export function fitted(state, manifest) {
  const within = (/** @type {number} */ n, /** @type {number} */ length) => Math.max(0, Math.min(n, length - 1));
  const run = manifest.runs[state.run] ? state.run : 0;
  const { layers, tokens } = manifest.runs[run];
  const layer = within(state.layer, layers.length);
  const headOf = (/** @type {number} */ l, /** @type {Head} */ h) => (h === "mean" ? h : within(h, layers[l].heads));
  const token = (/** @type {number | null} */ i, /** @type {number} */ length) => (i === null || i >= length ? null : i);
  const to = state.to === null ? null : Math.min(state.to, tokens.length);
  const known = (/** @type {{key: string}[]} */ list, /** @type {string} */ key) => (list.some((x) => x.key === key) ? key : (list[0]?.key ?? key));
  return {
    ...state,
    run,
    layer,
    head: headOf(layer, state.head),
    kept: state.kept && { layer: within(state.kept.layer, layers.length), head: headOf(within(state.kept.layer, layers.length), state.kept.head) },
    row: token(state.row, layers[layer].rows),
    col: token(state.col, layers[layer].cols),
    side: state.kept || state.edited !== null || givenRuns(manifest) > 1 ? state.side : "A",
    way: known(manifest.ways, state.way),
    measure: known(manifest.measures, state.measure),
    from: state.from !== null && state.from < (to ?? tokens.length) ? state.from : null,
    to: to !== null && to > (state.from ?? 0) ? to : null,
    pins: state.pins.filter((i) => i < tokens.length),
  };
}

/** How many runs were there before any edit. @param {import("./source.js").Manifest} manifest */
function givenRuns({ given, runs }) {
  return given ?? runs.length;
}

/**
 * What is compared: A and B, or A alone. A head kept aside is A; else what was there before an edit, or the first text.
 * @param {State} state @param {import("./source.js").Manifest} manifest
 * @returns {{ run: number, layer: number, head: Head }[]}
 */
export function sidesOf({ run, layer, head, kept, edited }, manifest) {
  if (kept) return [{ run, ...kept }, { run, layer, head }];
  const other = edited ?? (givenRuns(manifest) > 1 ? 1 : null);
  if (other === null) return [{ run, layer, head }];
  const itsLayer = Math.min(layer, manifest.runs[other].layers.length - 1);
  const itsHead = head === "mean" ? head : Math.min(head, manifest.runs[other].layers[itsLayer].heads - 1);
  return [{ run: 0, layer, head }, { run: other, layer: itsLayer, head: itsHead }];
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
  return !state.kept && state.edited === null && manifest.comparable === false ? (manifest.why_not ?? "A and B do not match") : null;
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
