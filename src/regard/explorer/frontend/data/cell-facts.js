// The numbers of a cell as text, by the names that the markup of its steps has for them. Pure functions.

import { formatFixed, formatPercent, formatSignificant, formatWeight } from "../render/format.js";
import { label } from "./tokens.js";

const MAX_ROWS = 8; // of a table

/** @param {number | null | undefined} x */
function number(x) {
  return x === null || x === undefined ? "" : formatSignificant(x);
}

/** The sum of the values of one sign. @param {(number | null)[]} values @param {number} sign */
function sumOf(values, sign) {
  return values.reduce((/** @type {number} */ sum, x) => sum + (Math.sign(x ?? 0) === sign ? (x ?? 0) : 0), 0);
}

/** What an object holds as text, by its path: numbers, texts, what is true, and the lengths of arrays. @param {object} found @param {string} [path] @returns {[string, string][]} */
function textsOf(found, path = "") {
  return Object.entries(found).flatMap(([name, value]) => {
    const key = path + name;
    if (value === null || value === undefined || value === false) return [];
    if (Array.isArray(value)) return [[`${key}.length`, String(value.length)]];
    if (typeof value === "object") return textsOf(value, `${key}.`);
    return [[key, typeof value !== "number" || Number.isInteger(value) ? String(value) : number(value)]];
  });
}

/**
 * Facts by name, empty where there is none: what the cell holds, and what is said of it. The steps end at what the map
 * shows; those of a weight continue to what its head writes.
 * @param {Cell} cell @param {CellNames} names @returns {Record<string, string>}
 */
export function cellFacts(cell, names) {
  const { products, scale, sink, lse, weight, ablated, mean, rollout, projected, value_length: valueLength } = cell;
  const { mode, head } = names;
  const ofHead = head !== "mean";
  const d = products?.length ?? 1;
  const isOne = sink === null && cell.row_sum !== null && Math.abs(cell.row_sum - 1) < 1e-3;
  return {
    ...Object.fromEntries(textsOf(cell)),
    from: label(names.from),
    to: label(names.to),
    goesOn: mode === "raw" && !ablated ? "yes" : "",
    ofValue: mode !== "rollout" && !ablated ? "yes" : "",
    rotated: rotationMessage(cell.rotated, cell.rotation !== null),
    sharing: sharingMessage(cell, names),
    above: number(products && sumOf(products, 1)),
    below: number(products && sumOf(products, -1)),
    score: products ? number(cell.score_raw) || "–" : "",
    scaling: scale !== null && Math.abs(scale - d ** -0.5) < 1e-6 ? `÷ √${d}` : `× ${number(scale) || "–"}`,
    mask: !ofHead ? "" : cell.masked === null ? "not recorded" : cell.masked ? "no: −∞" : "yes",
    weight: ofHead ? formatWeight(weight ?? NaN) : "",
    inFull: weight === null ? "" : `In full ${formatFixed(weight, 9)}.`,
    normalizer:
      lse === null ? "" : `lse = ln Σ exp(s) over the row${sink === null ? "" : " and the sink"} = ${number(lse)}.`,
    rowSum: `${isOne ? "1" : number(cell.row_sum)}${sink === null ? "" : ", with the weight of the sink to 1"}`,
    norm: valueLength === null ? "" : formatWeight((weight ?? 0) * valueLength),
    share: projected && projected.share !== null ? formatPercent(projected.share) : "–",
    quantity: mode === "norms" ? "‖w v W‖" : "w",
    mean: mean ? formatWeight(mean.value ?? NaN) : "",
    rollout: rollout ? formatWeight(rollout.value) : "",
  };
}

/** @param {boolean | null} rotated @param {boolean} isShown */
function rotationMessage(rotated, isShown) {
  if (isShown) return "Both are shown after the rotation below.";
  if (rotated) return "Both are shown after the rotary embedding.";
  return rotated === null ? "Both are shown as compared: after the rotary embedding, if the model has one." : "";
}

/** @param {Cell} cell @param {CellNames} names */
function sharingMessage({ kv_head: kvHead }, { head, heads, kvHeads }) {
  const group = heads / (kvHeads ?? heads); // query heads that share keys and values
  return group > 1 && kvHead !== null
    ? `Key/value head ${kvHead} serves query heads ${kvHead * group} to ${(kvHead + 1) * group - 1}.`
    : `Head ${head} has its own keys and values.`;
}

/** Where the heaviest tokens of a row are, the heaviest first. @param {Cell} cell */
export function heaviest({ row }) {
  const { columns = [], weights = [] } = row ?? {};
  return [...columns.keys()].sort((a, b) => (weights[b] ?? 0) - (weights[a] ?? 0)).slice(0, MAX_ROWS);
}

/** These tokens, each with its score, shift, exponential and weight. @param {Cell} cell */
export function rowTable(cell) {
  const { columns = [], scores = [], shifted = [], weights = [] } = cell.row ?? {};
  const order = heaviest(cell);
  const rows = order.map((n) => {
    const exponential = Math.exp(shifted[n] ?? NaN);
    return [scores[n], shifted[n], exponential, weights[n]].map((x) => formatWeight(x ?? NaN));
  });
  return { columns: order.map((n) => columns[n]), rows };
}

/** @param {Cell} cell */
export function rolloutTable({ rollout }) {
  const { columns = [], means = [], previous = [] } = rollout ?? {};
  const rows = columns.map((_, n) => {
    const [mean, before] = [means[n] ?? NaN, previous[n] ?? NaN];
    return [mean, before, mean * before].map((x) => formatWeight(x));
  });
  return { columns, rows };
}
