// A row of weights with other scores: the softmax again, and the weighted sum of values. Pure functions.

import { ROW_SHOWN } from "./cell.js";

/**
 * The weights of the listed columns with other scores, and the factor of all others.
 * @param {Cell} cell @param {ChangedScore[]} changes  null masks a key
 */
export function changedRow({ row, sink }, changes) {
  const { columns = [], scores = [], max = 0, sum = 0 } = row ?? {};
  const changed = new Map(changes);
  const old = scores.map((score) => score ?? -Infinity);
  const now = columns.map((column, n) => {
    const score = changed.get(column);
    return score === undefined ? old[n] : (score ?? -Infinity);
  });
  const total = (/** @type {number[]} */ all, /** @type {number} */ shift) =>
    all.reduce((found, score) => found + Math.exp(score - shift), 0);
  const hidden =
    columns.length < ROW_SHOWN ? 0 : Math.max(0, sum - total(old, max) - (sink === null ? 0 : Math.exp(sink - max)));
  const largest = Math.max(sink ?? -Infinity, hidden > 0 ? max : -Infinity, ...now);
  if (largest === -Infinity) return { scores: now, weights: now.map(() => 0), factor: 0 };
  const ofSink = sink === null ? 0 : Math.exp(sink - largest);
  const z = total(now, largest) + ofSink + hidden * Math.exp(max - largest);
  return {
    scores: now,
    weights: now.map((score) => Math.exp(score - largest) / z),
    factor: (sum / z) * Math.exp(max - largest),
  };
}

/**
 * The score with which a key gets a weight, as long as the other scores stay; null for 0.
 * @param {Cell} cell @param {ChangedScore[]} changes  of the row @param {number} key @param {number} weight
 */
export function scoreFor(cell, changes, key, weight) {
  if (weight <= 0) return null;
  const row = changedRow(cell, changes);
  const n = cell.row?.columns.indexOf(key) ?? -1;
  const without = changedRow(cell, [...changes.filter(([column]) => column !== key), [key, null]]);
  const share = Math.min(weight, 0.999);
  // Relative to another key that has weight with and without this one
  const other = without.weights.findIndex((one, m) => m !== n && one > 0);
  if (other < 0) return row.scores[n] > -Infinity ? row.scores[n] : 0; // it is alone, and has all the weight
  return row.scores[other] - Math.log(without.weights[other]) + Math.log(share / (1 - share));
}

/**
 * The weighted sum of values with the changed weights: that of the run, scaled, and what each changed key adds or takes.
 * @param {Cell} cell @param {ChangedScore[]} changes @param {Map<number, Numbers>} values  of the changed keys
 */
export function changedOutput(cell, changes, values) {
  const { weights, factor } = changedRow(cell, changes);
  const { columns = [], weights: before = [] } = cell.row ?? {};
  const output = (cell.output ?? []).map((x) => factor * (x ?? NaN));
  for (const [key, vector] of values) {
    const n = columns.indexOf(key);
    vector.forEach((x, d) => (output[d] += (weights[n] - factor * (before[n] ?? 0)) * (x ?? NaN)));
  }
  return output;
}

/** The cosine of the angle between two vectors. @param {Numbers} a @param {Numbers} b */
export function cosine(a, b) {
  const dot = (/** @type {Numbers} */ x, /** @type {Numbers} */ y) =>
    x.reduce((/** @type {number} */ sum, value, n) => sum + (value ?? NaN) * (y[n] ?? NaN), 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
