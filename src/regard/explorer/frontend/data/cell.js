// The arithmetic of one weight. The server sends its recorded numbers; a file holds the arrays of a head, from which
// `cellFrom` computes them. `withProducts` derives the rest.

export const ROW_SHOWN = 48; // columns of a row, as `regard.explorer.queries.cell`
const TERMS_SHOWN = 3; // as there

/** Add the products of query and key, their sum q · k, and weight · v. @param {RecordedCell} cell @returns {Cell} */
export function withProducts(cell) {
  const { q, k, v, ablated } = cell;
  const weight = ablated ? 0 : cell.weight;
  const times = (/** @type {number | null} */ a, /** @type {number | null} */ b) =>
    a === null || b === null ? null : a * b;
  const products = q && k && q.map((x, d) => times(x, k[d]));
  const isFinite = products?.every((x) => x !== null);
  const score_raw = products && isFinite ? products.reduce((/** @type {number} */ sum, x) => sum + (x ?? 0), 0) : null;
  return { ...cell, products, score_raw, weighted_value: v && v.map((x) => (weight === 0 ? 0 : times(weight, x))) };
}

/**
 * The cell of row i and column j, from the arrays of its head: q, k, v, lse, and the first and the end of the columns that
 * each row attends to.
 * @param {Float32Array} arrays @param {HeadFields} fields @param {{ rows: number, cols: number }} extent
 * @param {number} i @param {number} j @returns {RecordedCell}
 */
export function cellFrom(arrays, fields, { rows, cols }, i, j) {
  const { head_dim: d, value_dim: dv, scale, softcap, sink, kv_head, rotated } = fields;
  const ends = [rows * d, (rows + cols) * d, (rows + cols) * d + cols * dv];
  const q = Array.from(arrays.subarray(i * d, (i + 1) * d));
  const keys = arrays.subarray(ends[0], ends[1]);
  const values = arrays.subarray(ends[1], ends[2]);
  const [lse, begin, end] = [0, 1, 2].map((n) => arrays[ends[2] + n * rows + i]);
  const isAllowed = (/** @type {number} */ col) => begin <= col && col < end;
  const scaledScore = (/** @type {number} */ col) => scale * q.reduce((sum, x, n) => sum + x * keys[col * d + n], 0);
  const cap = (/** @type {number} */ score) => (softcap ? softcap * Math.tanh(score / softcap) : score);
  const weightOf = (/** @type {number} */ col) =>
    isAllowed(col) && Number.isFinite(lse) ? Math.exp(cap(scaledScore(col)) - lse) : 0;
  const output = new Array(dv).fill(0);
  const weights = Array.from({ length: cols }, (_, col) => weightOf(col));
  const valueOf = (/** @type {number} */ col) => Array.from(values.subarray(col * dv, (col + 1) * dv));
  weights.forEach((weight, col) => {
    if (weight > 0) valueOf(col).forEach((x, n) => (output[n] += weight * x));
  });
  const rowSum = weights.reduce((sum, weight) => sum + weight, 0);
  const heaviest = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  const visible = heaviest.slice(0, ROW_SHOWN).filter(isAllowed);
  const columns = visible.sort((a, b) => a - b);
  const scores = columns.map((col) => cap(scaledScore(col)));
  const max = Math.max(sink ?? -Infinity, ...scores);
  const shifted = scores.map((score) => score - max);
  const largest = heaviest.slice(0, TERMS_SHOWN).filter((col) => weights[col] > 0);
  const vectors = largest.map((col) => valueOf(col).map((x) => weights[col] * x));
  const capped = cap(scaledScore(j));
  return {
    q,
    k: Array.from(keys.subarray(j * d, (j + 1) * d)),
    kv_head,
    scale,
    scaled: scaledScore(j),
    softcap,
    capped,
    bias: null,
    masked: !isAllowed(j),
    biased: isAllowed(j) ? capped : null,
    sink,
    sink_weight: sink === null ? null : Math.exp(sink - lse),
    lse: Number.isFinite(lse) ? lse : null,
    row_sum: rowSum,
    weight: weightOf(j),
    v: Array.from(values.subarray(j * dv, (j + 1) * dv)),
    output,
    output_length: Math.hypot(...output),
    ablated: false,
    rotated,
    rotation: null,
    embedding: null,
    row: Number.isFinite(max)
      ? { columns, scores, shifted, weights: columns.map((col) => weights[col]), max, sum: Math.exp(lse - max) }
      : null,
    terms: {
      columns: largest,
      weights: largest.map((col) => weights[col]),
      vectors,
      rest: output.map((x, n) => x - vectors.reduce((sum, vector) => sum + vector[n], 0)),
    },
    projected: null,
    value_length: null,
    mean: null,
    rollout: null,
    bias_note: null,
    source: "q, k, v and the log-sum-exp of this file, which holds no embeddings",
  };
}
