// The state as the fragment of a URL, and back.

import { INITIAL_STATE } from "./state.js";

/** @typedef {import("./state.js").State} State */

const URL_KEYS = /** @type {const} */ ({
  view: "v",
  layer: "l",
  head: "h",
  selectionB: "b",
  row: "i",
  col: "j",
  side: "s",
  mode: "w",
  metric: "m",
  order: "o",
  threshold: "n",
  collapsedLayers: "sl",
  collapsedHeads: "sh",
  words: "words",
  special: "special",
  log: "log",
  byRow: "byrow",
  pool: "pool",
  from: "from",
  to: "to",
  pins: "pins",
  direction: "d",
  arcs: "arcs",
  attribution: "g",
  attributionMethod: "gm",
  target: "gt",
  targetToken: "gi",
  afterRow: "gr",
  query: "q",
  stage: "t",
  theme: "theme",
  zoom: "z",
  ablated: "x",
  ablatedRun: "xr",
  checkpoint: "step",
});
const ENUMS = /** @type {Record<string, string[]>} */ ({
  view: ["heads", "head", "cell", "movement"],
  side: ["A", "B", "diff"],
  order: ["layer", "metric"],
  pool: ["max", "mean"],
  direction: ["out", "in"],
  theme: ["auto", "light", "dark"],
});

const MAX_LENGTHS = /** @type {Record<string, number>} */ ({ target: 2000 }); // characters

/** What differs from the initial state. @param {State} state @returns {string} */
export function encode(state) {
  const params = new URLSearchParams();
  for (const [name, key] of Object.entries(URL_KEYS)) {
    const [value, initial] = [/** @type {any} */ (state)[name], /** @type {any} */ (INITIAL_STATE)[name]];
    const isAlwaysWritten = ["layer", "head", "view"].includes(name);
    if (JSON.stringify(value) !== JSON.stringify(initial) || isAlwaysWritten) params.set(key, serialize(name, value));
  }
  return params.toString();
}

/** @param {string} name @param {any} value */
function serialize(name, value) {
  if (name === "selectionB") return value ? `${value.layer}.${value.head}` : "";
  if (name === "zoom")
    return value ? [value.x.toFixed(3), value.y.toFixed(3), value.k.toPrecision(6)].map(Number).join("_") : "";
  if (name === "ablated") return value.map((/** @type {number[]} */ at) => at.join(".")).join("_");
  if (Array.isArray(value)) return value.join(".");
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value === "number") return String(Number(value.toFixed(3)));
  return value === null ? "" : String(value);
}

/** The valid parts of a fragment. @param {string} hash @returns {Partial<State>} */
export function decode(hash) {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Record<string, any>} */
  const found = {};
  for (const [name, key] of Object.entries(URL_KEYS)) {
    const text = params.get(key);
    if (text === null) continue;
    const value = parse(name, text);
    if (value !== undefined) found[name] = value;
  }
  return found;
}

/** @param {string} name @param {string} text @returns {any} */
function parse(name, text) {
  const initial = /** @type {any} */ (INITIAL_STATE)[name];
  if (name in ENUMS) return ENUMS[name].includes(text) ? text : undefined;
  if (name === "head") return text === "mean" ? "mean" : parseCount(text);
  if (name === "selectionB") {
    const [layer, head] = text.split(".");
    const numbers = [parseCount(layer), head === "mean" ? "mean" : parseCount(head ?? "")];
    return numbers.includes(undefined) ? undefined : { layer: numbers[0], head: numbers[1] };
  }
  if (name === "zoom") {
    const [x, y, k] = text.split("_").map(Number);
    return [x, y, k].every(Number.isFinite) && k > 0 ? { x, y, k } : undefined;
  }
  if (name === "ablated")
    return text.split("_").flatMap((at) => (/^\d{1,6}\.\d{1,6}$/.test(at) ? [at.split(".").map(Number)] : []));
  if (name === "threshold") return Number(text) >= 0 && Number(text) <= 1 ? Number(text) : undefined;
  if (name === "stage") return Number(text) >= 0 ? Number(text) : undefined;
  if (Array.isArray(initial)) return text.split(".").flatMap((part) => parseCount(part) ?? []);
  if (typeof initial === "boolean") return text === "1";
  return typeof initial === "number" || initial === null ? parseCount(text) : text.slice(0, MAX_LENGTHS[name] ?? 200);
}

/** @param {string} text @returns {number | undefined} */
function parseCount(text) {
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}
