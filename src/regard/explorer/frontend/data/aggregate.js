// What the text view shows: how much chosen tokens look at the others, or are looked at, summed and joined to words.

/**
 * @typedef {import("./tokens.js").Group} Group
 * @typedef {import("./source.js").Source} Source
 */

/**
 * Shares of every token joined to groups: a word gets what its tokens get together, and looks as they do on average.
 * @param {Float32Array} values of every token @param {Group[]} groups @param {"out" | "in"} direction
 */
export function joined(values, groups, direction) {
  return Float32Array.from(groups, ({ members }) => {
    const sum = members.reduce((total, i) => total + (values[i] ?? 0), 0);
    return direction === "out" ? sum : sum / members.length;
  });
}

/** @param {Float32Array[]} all */
export function summed(all) {
  const out = new Float32Array(all[0].length);
  for (const values of all) values.forEach((value, n) => (out[n] += value));
  return out;
}

/**
 * @param {Source} source @param {import("./tile-source.js").Which} which @param {Group[]} groups chosen
 * @param {Group[]} axis of the others @param {"out" | "in"} direction @param {string} way @param {AbortSignal} signal
 */
export async function sharesOf(source, { run, layer, head }, groups, axis, direction, way, signal) {
  const of = (/** @type {number} */ i) =>
    direction === "out"
      ? source.row(run, layer, head, i, way, signal)
      : source.column(run, layer, head, i, way, signal);
  const each = groups.map(async ({ members }) => {
    const total = summed(await Promise.all(members.map(of)));
    return direction === "out" ? total.map((x) => x / members.length) : total;
  });
  return joined(summed(await Promise.all(each)), axis, direction);
}
