// Messages of the page about its values. Pure functions.

import { escapeInvisible, isolate, truncate } from "../data/tokens.js";
import { decimalsOfSum, formatFixed, formatSignificant, formatWeight } from "../render/format.js";

/** A layer by its number, or by its name. @param {number | string} layer */
export const layerName = (layer) => (typeof layer === "string" ? layer : `Layer ${layer}`);

/** @param {HeadName} a @param {HeadName} [b]  of a difference */
export function headingMessage(a, b = a) {
  const nameOf = (/** @type {HeadName} */ { head }) => (head === "mean" ? "mean of heads" : `Head ${head}`);
  const inFull = (/** @type {HeadName} */ at) => `${layerName(at.layer)} · ${nameOf(at)}`;
  if (b.layer === a.layer) return b.head === a.head ? inFull(a) : `${inFull(a)} − ${nameOf(b)}`;
  return `${inFull(a)} − ${inFull(b)}`;
}

/** What of an address is left out. @param {string[]} parts */
export function unreadMessage(parts) {
  const named = parts.slice(0, 4).map((part) => isolate(escapeInvisible(truncate(part, 40))));
  return `Left out, since it means nothing in an address: ${named.join(", ")}${parts.length > 4 ? " …" : ""}.`;
}

/** How much is done, and how long the rest takes. @param {Share} progress */
export function progressMessage({ share, seconds_left: seconds }) {
  const left =
    seconds === null ? "" : seconds < 90 ? `, ${Math.ceil(seconds)} s left` : `, ${Math.ceil(seconds / 60)} min left`;
  return `${Math.round(100 * share)} %${left}`;
}

/** What computed the weights, and how exact they are. @param {Manifest} manifest @param {number} run @param {number} layer */
export function provenanceMessage({ provenance, decimals, runs }, run, layer) {
  const { layers, num_sampled_rows: numSampled } = runs[run];
  const { row_sum_error: error, num_nonfinite_rows: numNonfinite } = layers[layer];
  const parts = [
    provenance,
    error === null ? null : `rows sum to 1 within ${formatSignificant(error)}`,
    numNonfinite ? `${numNonfinite} ${numNonfinite > 1 ? "rows contain" : "row contains"} NaN or infinity` : null,
    decimals === null ? "weights as computed, sent as float32" : `weights exact to ${decimals} decimals`,
    numSampled ? `metrics and thumbnails from ${numSampled} rows` : null,
  ];
  return parts.filter(Boolean).join("  ·  ");
}

/**
 * The decimals of a shown value that are exact.
 * @param {number | null} decimals of a weight @param {State} state @param {Axes[]} maps @param {number} max
 * @param {number} [terms] of a sum
 */
export function knownDecimals(decimals, { words, side, mode }, maps, max, terms = 1) {
  if (decimals === null) return 6;
  const columns = words ? maps.flatMap(({ cols }) => cols) : [];
  const tokensInWord = columns.reduce((most, { members }) => Math.max(most, members.length), 1);
  const factor = mode === "norms" ? Math.max(10, 2 * max) : 1;
  return decimalsOfSum(decimals, terms * tokensInWord * (side === "diff" ? 2 : 1) * factor);
}

// By display mode: the quantity, and by direction the verb of one word, of several, and its preposition.
const raw = { quantity: "weight", out: ["attends", "attend", "to"], in: ["is attended to", "are attended to", "by"] };
const MODES = /** @type {Record<string, typeof raw>} */ ({
  raw,
  rollout: {
    quantity: "share of the vector",
    out: ["consists", "consist", "of"],
    in: ["contributes", "contribute", "to"],
  },
  norms: { quantity: "length of weight · value", out: ["receives", "receive", "from"], in: ["gives", "give", "to"] },
});

/** The words for a display mode. @param {string} mode */
export const wordsFor = (mode) => MODES[mode] ?? raw;

/**
 * What the colours mean.
 * @param {State} state @param {boolean} isDifference @param {number} max the largest absolute value
 * @param {{ binSize: number, clipped: boolean, inMemory: boolean }} pooling  tokens along a side of a cell; whether a value
 *   may exceed the scale; whether the difference is taken before pooling
 */
export function legendMessage({ byRow, mode, log, pool }, isDifference, max, { binSize, clipped, inMemory }) {
  const { quantity } = wordsFor(mode);
  if (isDifference && max === 0) return `${quantity} in A minus ${quantity} in B: they are equal`;
  const pooled = binSize > 1 ? `${pool === "max" ? "the largest" : "the mean"} of ${binSize} × ${binSize}` : "";
  const isOfLargest = isDifference && pooled !== "" && pool === "max" && !inMemory;
  const difference = isOfLargest
    ? `${quantity}, ${pooled}, in A minus the largest in B`
    : `${quantity} in A minus ${quantity} in B`;
  const parts = [isDifference ? `${difference}: blue where A is larger, brown where B is` : quantity];
  if (byRow) parts.push("divided by the largest of its row");
  if (pooled && !isOfLargest) parts.push(pooled);
  if (log) parts.push("in powers of ten");
  if (clipped) parts.push("the end of the scale includes larger values");
  return parts.join(", ");
}

/** What some words attend to, and in which head. @param {string} mode @param {string[]} labels @param {string} heading */
export function attendedMessage(mode, labels, heading) {
  const [one, several, preposition] = wordsFor(mode).out;
  const names = labels.slice(0, 3).map((label) => isolate(label));
  const all = [...names, ...(labels.length > 3 ? ["…"] : [])].join(" + ");
  return `${all} ${labels.length > 1 ? several : one} ${preposition}, ${heading}`;
}

/** The heading of the list of words. @param {State} state @param {boolean} isDifference @param {number} numSelected */
export function topWordsMessage({ mode, direction }, isDifference, numSelected) {
  const [one, several, preposition] = wordsFor(mode)[direction];
  const verb = numSelected > 1 ? several : one;
  return isDifference ? `${verb} ${preposition}, A − B` : `${verb} most ${preposition}`;
}

/**
 * The value of a cell, in words.
 * @param {State} state @param {Axes & Pick<MapData, "hiddenMass">} map @param {boolean} isDifference @param {number} row @param {number} col
 * @param {number | null} value @param {number} decimals that are exact @param {boolean} [inFull]  with all of these
 */
export function cellMessage({ mode }, { rows, cols, hiddenMass }, isDifference, row, col, value, decimals, inFull) {
  const isOfKey = mode === "rollout"; // which contributes to the query
  const [from, to] = isOfKey ? [cols[col], rows[row]] : [rows[row], cols[col]];
  if (!from || !to) return "";
  const [verb, , preposition] = wordsFor(mode)[isOfKey ? "in" : "out"];
  const whole = mode === "norms" ? "the lengths in this row" : "this row";
  const hidden = hiddenMass ? `; ${formatWeight(hiddenMass[row], 3)} of ${whole} is hidden` : "";
  const number = inFull ? formatFixed : formatWeight;
  const difference = isDifference ? ", A − B" : "";
  return `${isolate(from.name)} ${verb} ${preposition} ${isolate(to.name)}${difference}: ${value === null ? "…" : number(value, decimals)}${hidden}`;
}
