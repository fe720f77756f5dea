// Arithmetic on the numbers of a map: rows and columns joined, left out, scaled, pooled. Knows no page.

/**
 * @typedef {import("./tokens.js").Group} Group
 * @typedef {{ values: Float32Array, rows: number, cols: number }} Matrix
 */

/**
 * A map with its groups for rows and columns: a word is looked at as much as its tokens together, and looks as they do
 * on average.
 * @param {Float32Array} values of all tokens, row by row @param {number} width columns of `values`
 * @param {Group[]} rows @param {Group[]} cols @param {number} [row0] @param {number} [col0] first token in `values`
 * @returns {{ matrix: Matrix, hidden: Float32Array }} the share of each row that no column shows
 */
export function gathered(values, width, rows, cols, row0 = 0, col0 = 0) {
  const out = new Float32Array(rows.length * cols.length);
  const hidden = new Float32Array(rows.length);
  const place = new Int32Array(width).fill(-1);
  cols.forEach((group, c) => group.members.forEach((j) => (place[j - col0] = c)));
  rows.forEach((group, r) => {
    const share = 1 / group.members.length;
    for (const i of group.members) {
      const start = (i - row0) * width;
      for (let j = 0; j < width; j++) {
        const weight = values[start + j] * share;
        if (place[j] < 0) hidden[r] += weight;
        else out[r * cols.length + place[j]] += weight;
      }
    }
  });
  return { matrix: { values: out, rows: rows.length, cols: cols.length }, hidden };
}

/** Each row divided by its largest number. @param {Matrix} matrix @returns {Matrix} */
export function byRow({ values, rows, cols }) {
  const out = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) {
    const row = values.subarray(r * cols, (r + 1) * cols);
    const most = row.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    if (most > 0) row.forEach((value, c) => (out[r * cols + c] = value / most));
  }
  return { values: out, rows, cols };
}

/** @param {Float32Array} a @param {Float32Array} b */
export function minus(a, b) {
  return a.map((value, i) => value - b[i]);
}

/** The number that is farthest from 0, without its sign. @param {Float32Array} values */
export function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

/**
 * Half as many rows and columns, each of two by two: the one farthest from 0, or their mean.
 * @param {Matrix} matrix @param {"max" | "mean"} pool @returns {Matrix}
 */
export function halved({ values, rows, cols }, pool) {
  const [high, wide] = [Math.ceil(rows / 2), Math.ceil(cols / 2)];
  const out = new Float32Array(high * wide);
  for (let r = 0; r < high; r++)
    for (let c = 0; c < wide; c++) {
      let [most, sum, count] = [0, 0, 0];
      for (let i = 2 * r; i < Math.min(rows, 2 * r + 2); i++)
        for (let j = 2 * c; j < Math.min(cols, 2 * c + 2); j++) {
          const value = values[i * cols + j];
          if (Math.abs(value) > Math.abs(most)) most = value;
          sum += value;
          count += 1;
        }
      out[r * wide + c] = pool === "max" ? most : sum / count;
    }
  return { values: out, rows: high, cols: wide };
}

/**
 * A part of a map, each number of `by` cells by `by`, the last in its row and column of what is left.
 * @param {Matrix} matrix @param {{ row0: number, row1: number, col0: number, col1: number, by: number, pool: "max" | "mean" }} part
 */
export function pooled({ values, cols: width }, { row0, row1, col0, col1, by, pool }) {
  const [rows, cols] = [Math.ceil((row1 - row0) / by), Math.ceil((col1 - col0) / by)];
  const out = new Float32Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    const [i0, i1] = [row0 + r * by, Math.min(row1, row0 + (r + 1) * by)];
    for (let c = 0; c < cols; c++) {
      const [j0, j1] = [col0 + c * by, Math.min(col1, col0 + (c + 1) * by)];
      let [most, sum] = [-Infinity, 0];
      for (let i = i0; i < i1; i++)
        for (let j = j0; j < j1; j++) {
          const value = values[i * width + j];
          if (value > most) most = value;
          sum += value;
        }
      out[r * cols + c] = pool === "max" ? most : sum / ((i1 - i0) * (j1 - j0));
    }
  }
  return out;
}

/** The places of the numbers farthest from 0, the farthest first. @param {Float32Array} values @param {number} count */
export function topOf(values, count) {
  /** @type {number[]} */
  const top = [];
  for (let n = 0; n < values.length; n++) {
    const size = Math.abs(values[n]);
    if (top.length === count && size <= Math.abs(values[top[count - 1]])) continue;
    let at = top.length;
    while (at > 0 && Math.abs(values[top[at - 1]]) < size) at -= 1;
    top.splice(at, 0, n);
    if (top.length > count) top.pop();
  }
  return top;
}
