// Matrix arithmetic of maps: merging, normalizing, subtracting and pooling. Pure functions.

/**
 * A map with groups of tokens as rows and columns: a word is attended to as much as its tokens together, and attends as
 * their mean.
 * @param {Float32Array} values of all tokens, row by row @param {number} width columns of `values`
 * @param {Group[]} rows @param {Group[]} cols @param {number} [row0] @param {number} [col0] first token in `values`
 * @returns {{ matrix: Matrix, hidden: Float32Array }} `hidden`: the sum of each row over tokens without a column
 */
export function mergeTokens(values, width, rows, cols, row0 = 0, col0 = 0) {
  const out = new Float32Array(rows.length * cols.length);
  const hidden = new Float32Array(rows.length);
  const column = new Int32Array(width).fill(-1);
  cols.forEach((group, c) => group.members.forEach((j) => (column[j - col0] = c)));
  rows.forEach((group, r) => {
    const factor = 1 / group.members.length;
    for (const i of group.members) {
      const start = (i - row0) * width;
      for (let j = 0; j < width; j++) {
        const weight = values[start + j] * factor;
        if (column[j] < 0) hidden[r] += weight;
        else out[r * cols.length + column[j]] += weight;
      }
    }
  });
  return { matrix: { values: out, rows: rows.length, cols: cols.length }, hidden };
}

/** Each row divided by its largest absolute value. @param {Matrix} matrix @returns {Matrix} */
export function normalizeRows({ values, rows, cols }) {
  const out = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) {
    const row = values.subarray(r * cols, (r + 1) * cols);
    const max = row.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    if (max > 0) row.forEach((value, c) => (out[r * cols + c] = value / max));
  }
  return { values: out, rows, cols };
}

/** @param {Float32Array} a @param {Float32Array} b */
export function subtract(a, b) {
  return a.map((value, i) => value - b[i]);
}

/** The largest absolute value. @param {Float32Array} values */
export function maxAbs(values) {
  let max = 0;
  for (const value of values) if (Math.abs(value) > max) max = Math.abs(value);
  return max;
}

/** Half as many rows and columns. @param {Matrix} matrix @param {"max" | "mean"} pool @returns {Matrix} */
export function downsample(matrix, pool) {
  const { rows, cols } = matrix;
  const values = poolRegion(matrix, { row0: 0, row1: rows, col0: 0, col1: cols, bin_size: 2, pool });
  return { values, rows: Math.ceil(rows / 2), cols: Math.ceil(cols / 2) };
}

/**
 * A region of a map, pooled in bins of `bin_size` × `bin_size`, the last of what is left: of each the value of largest
 * absolute value, or the mean.
 * @param {Matrix} matrix @param {{ row0: number, row1: number, col0: number, col1: number, bin_size: number, pool: "max" | "mean" }} region
 */
export function poolRegion({ values, cols: width }, { row0, row1, col0, col1, bin_size, pool }) {
  const [rows, cols] = [Math.ceil((row1 - row0) / bin_size), Math.ceil((col1 - col0) / bin_size)];
  const out = new Float32Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    const [i0, i1] = [row0 + r * bin_size, Math.min(row1, row0 + (r + 1) * bin_size)];
    for (let c = 0; c < cols; c++) {
      const [j0, j1] = [col0 + c * bin_size, Math.min(col1, col0 + (c + 1) * bin_size)];
      let [largest, sum] = [0, 0];
      for (let i = i0; i < i1; i++)
        for (let j = j0; j < j1; j++) {
          const value = values[i * width + j];
          if (Math.abs(value) > Math.abs(largest)) largest = value;
          sum += value;
        }
      out[r * cols + c] = pool === "max" ? largest : sum / ((i1 - i0) * (j1 - j0));
    }
  }
  return out;
}

/** Indices of the largest absolute values, the largest first. @param {Float32Array} values @param {number} count */
export function topK(values, count) {
  const top = /** @type {number[]} */ ([]);
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
