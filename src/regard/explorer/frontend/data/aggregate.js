// Attention from or to selected tokens, summed over these and merged into words.

/**
 * Values of tokens merged into groups: a word is attended to as much as its tokens together, and attends as their mean.
 * @param {ArrayLike<number>} values of every token @param {Group[]} groups @param {"out" | "in"} direction
 */
export function mergeByGroup(values, groups, direction) {
  return Float32Array.from(groups, ({ members }) => {
    const sum = members.reduce((total, i) => total + (values[i] ?? 0), 0);
    return direction === "out" ? sum : sum / members.length;
  });
}

/** @param {Float32Array[]} arrays */
export function sumArrays(arrays) {
  const out = new Float32Array(arrays[0].length);
  for (const values of arrays) values.forEach((value, n) => (out[n] += value));
  return out;
}

/**
 * The weights between selected groups and every group of the other axis.
 * @param {Source} source @param {HeadRef} headRef @param {Group[]} selected
 * @param {Group[]} axis @param {"out" | "in"} direction @param {string} mode @param {AbortSignal} signal
 */
export async function wordWeightsOf(source, { run, layer, head }, selected, axis, direction, mode, signal) {
  const weightsOf = (/** @type {number} */ i) =>
    direction === "out"
      ? source.row({ run, layer, head, mode, i }, signal)
      : source.column({ run, layer, head, mode, j: i }, signal);
  const groups = selected.map(async ({ members }) => {
    const total = sumArrays(await Promise.all(members.map(weightsOf)));
    return direction === "out" ? total.map((x) => x / members.length) : total;
  });
  return mergeByGroup(sumArrays(await Promise.all(groups)), axis, direction);
}
