// The numbers of a cell as text, by the names that the markup of its steps has for them. Pure functions.

import { formatFixed, formatPercent, formatSignificant, formatWeight } from "../render/format.js";
import { label } from "./tokens.js";

/** @import { Cell, CellNames, Vector } from "../types.js" */

const MAX_ROWS = 8; // of a table

/** @param {number | null | undefined} x */
function number(x) {
  return x === null || x === undefined ? "" : formatSignificant(x);
}

/** The sum of the values of one sign. @param {(number | null)[]} values @param {number} sign */
function sumOf(values, sign) {
  return values.reduce((/** @type {number} */ sum, x) => sum + (Math.sign(x ?? 0) === sign ? (x ?? 0) : 0), 0);
}

/**
 * Facts by name, empty where there is none; vectors to draw as bars; and tables, each with the tokens of its rows.
 * @param {Cell} cell @param {CellNames} names
 */
export function cellFacts(cell, names) {
  const { q, k, v, products, row, rollout, projected, sink, lse, weight, ablated } = cell;
  const { mode, shown } = names;
  /** @type {Record<string, string>} */
  const facts = {
    from: label(names.from),
    to: label(names.to),
    rollout: mode === "rollout" ? (shown === null ? "–" : formatWeight(shown)) : "",
    embedding: cell.embedding ? `first ${cell.embedding.length} numbers` : "",
    qk: q && k ? `${q.length} numbers each` : "",
    rotation: rotationMessage(cell.rotated),
    sharing: sharingMessage(cell, names),
    dimensions: String(products?.length ?? ""),
    above: number(products && sumOf(products, 1)),
    below: number(products && sumOf(products, -1)),
    score: products ? (cell.score_raw === null ? "–" : number(cell.score_raw)) : "",
    ...scoreFacts(cell),
    mask: cell.masked === null ? "not recorded" : cell.masked ? "no: −∞" : "yes",
    masked: cell.masked ? "masked" : "",
    sinkScore: number(sink),
    sink: sink === null ? "" : lse === null ? "–" : number(Math.exp(sink - lse)),
    lse: number(lse),
    row: row ? `${row.columns.length} tokens` : "",
    max: number(row?.max),
    sumOfExponentials: number(row?.sum),
    ...weightFacts(cell),
    ablated: ablated ? "0" : "",
    weighted_value: v && cell.weighted_value && !ablated ? `${v.length} numbers` : "",
    norm: mode === "norms" && shown !== null && weight ? formatWeight(shown) : "",
    valueLength: weight && shown !== null ? formatWeight(shown / weight) : "",
    output: cell.output && !ablated ? `${cell.output.length} numbers` : "",
    projected: projected && !ablated ? `length ${number(projected.length)}` : "",
    width: String(projected?.width ?? ""),
    residual: projected && projected.attention_length !== null ? `+ length ${number(projected.attention_length)}` : "",
    attentionLength: number(projected?.attention_length),
    share: projected && projected.share !== null ? formatPercent(projected.share) : "–",
    rolloutMixed: number(rollout?.mixed),
    rolloutBefore: number(rollout?.before),
    rolloutTotal: number(rollout?.total),
    rolloutSum: number(rollout && (rollout.mixed + rollout.before) / rollout.total),
  };
  /** @type {Record<string, Vector>} */
  const vectors = {
    ...{ q, k, v, products, output: cell.output, embeddingBars: cell.embedding, weightedValue: cell.weighted_value },
    rowScores: row && row.scores.map((score) => (score === null ? null : score - row.max)),
    rowWeights: row && row.weights,
  };
  return { facts, vectors, tables: { rowTerms: rowTable(cell), rolloutTerms: rolloutTable(cell) } };
}

/** @param {Cell} cell */
function scoreFacts({ q, scale, scaled, softcap, capped, bias, bias_note: biasNote, biased }) {
  const d = q?.length ?? 0;
  const isUsual = scale !== null && Math.abs(scale - 1 / Math.sqrt(d || 1)) < 1e-6;
  return {
    scale: number(scale) || "–",
    scaling: isUsual ? `÷ √${d}` : `× ${number(scale) || "–"}`,
    scaled: number(scaled),
    softcap: number(softcap),
    capped: softcap === null ? "" : number(capped),
    capped_: number(capped),
    biasTerm: number(bias),
    bias: bias === null ? "" : number(biased) || "–",
    biasNote: biasNote ?? "",
    biased: number(biased),
  };
}

/** @param {Cell} cell */
function weightFacts({ lse, sink, row_sum: rowSum, weight }) {
  const isOne = sink === null && rowSum !== null && Math.abs(rowSum - 1) < 1e-3;
  const terms = sink === null ? "the row" : "the row and the sink";
  return {
    weight: formatWeight(weight ?? NaN),
    inFull: weight === null ? "" : `In full ${formatFixed(weight, 9)}.`,
    normalizer: lse === null ? "" : `lse = ln Σ exp(s) over ${terms} = ${formatSignificant(lse)}.`,
    rowSum: `${isOne ? "1" : formatSignificant(rowSum ?? NaN)}${sink === null ? "" : ", with the weight of the sink to 1"}`,
  };
}

/** @param {boolean | null} rotated */
function rotationMessage(rotated) {
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

/** The heaviest tokens of the row, each with its score, shift, exponential and weight. @param {Cell} cell */
function rowTable({ row }) {
  const { columns = [], scores = [], weights = [], max = 0 } = row ?? {};
  const order = [...columns.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, MAX_ROWS);
  const rows = order.map((n) => {
    const score = scores[n];
    const shifted = score === null ? -Infinity : score - max;
    return [score ?? -Infinity, shifted, Math.exp(shifted)]
      .map((x) => formatWeight(x))
      .concat(formatWeight(weights[n]));
  });
  return { columns: order.map((n) => columns[n]), rows };
}

/** @param {Cell} cell */
function rolloutTable({ rollout }) {
  const { columns = [], means = [], previous = [] } = rollout ?? {};
  const rows = columns.map((_, n) => [means[n], previous[n], means[n] * previous[n]].map((x) => formatWeight(x)));
  return { columns, rows };
}
