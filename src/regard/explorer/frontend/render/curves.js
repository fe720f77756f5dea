// Curves over the steps of a training run: scales, ticks, paths, and labels that do not overlap. Pure functions.

/** The function from a value to a pixel. @param {[number, number]} domain @param {[number, number]} range */
export function linearScale([low, high], [start, end]) {
  const size = high - low || 1;
  return (/** @type {number} */ value) => start + ((value - low) / size) * (end - start);
}

/** Round numbers from 0 up to the largest value, at most `count` and 0. @param {number} max @param {number} count */
export function ticksUpTo(max, count) {
  if (!(max > 0)) return [0];
  const raw = max / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw * (1 - 1e-9)) ?? 10 * power;
  return Array.from({ length: Math.floor(max / step + 1e-9) + 1 }, (_, n) => Number((n * step).toPrecision(12)));
}

/** The path through some points; one without a value interrupts it. @param {{ x: number, y: number | null }[]} points */
export function pathThrough(points) {
  let path = "";
  let draws = false;
  for (const { x, y } of points) {
    if (y !== null) path += `${draws ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    draws = y !== null;
  }
  return path;
}

/** The index of the value nearest to another, of ascending ones. @param {number[]} values @param {number} wanted */
export function nearestIndex(values, wanted) {
  let best = 0;
  values.forEach((value, n) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = n;
  });
  return best;
}

/**
 * Heights of labels at least `gap` apart and within a frame, as near to their own heights as their order allows.
 * @param {number[]} heights @param {number} gap @param {Frame} frame
 */
export function spreadLabels(heights, gap, { top, bottom }) {
  const order = heights.map((_, n) => n).sort((a, b) => heights[a] - heights[b]);
  const placed = /** @type {number[]} */ ([]);
  let least = top;
  for (const n of order) {
    placed[n] = Math.max(heights[n], least);
    least = placed[n] + gap;
  }
  let most = bottom;
  for (const n of order.reverse()) {
    placed[n] = Math.min(placed[n], most);
    most = placed[n] - gap;
  }
  return placed;
}
