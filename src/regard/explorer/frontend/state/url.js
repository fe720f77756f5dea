// The state as the fragment of a URL, and back.

import { FIRST } from "./state.js";

/** @typedef {import("./state.js").State} State */

const SHORT = /** @type {const} */ ({
  view: "v",
  layer: "l",
  head: "h",
  other: "b",
  row: "i",
  col: "j",
  side: "s",
  way: "w",
  measure: "m",
  order: "o",
  least: "n",
  shutLayers: "sl",
  shutHeads: "sh",
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
  query: "q",
  stage: "t",
  theme: "theme",
  zoom: "z",
  off: "x",
  offRun: "xr",
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
  if (name === "zoom")
    return value ? [value.x.toFixed(3), value.y.toFixed(3), value.k.toPrecision(6)].map(Number).join("_") : "";
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
  if (name === "off")
    return text.split("_").flatMap((at) => (/^\d{1,6}\.\d{1,6}$/.test(at) ? [at.split(".").map(Number)] : []));
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
