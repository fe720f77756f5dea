// Linear, logarithmic and signed scales: from a number to its place on a colormap. Pure functions.

export const LOG_DECADES = 4; // below the maximum

/** Values to label, in ascending order. @param {Scale} scale */
export function ticks({ kind, max, signed }) {
  const shares = kind === "linear" ? [0.5, 1] : signed ? [0.01, 1] : [0.001, 0.01, 0.1, 1];
  const positive = [kind === "linear" || signed ? 0 : 1e-4, ...shares].map((share) => share * max);
  const [, ...others] = positive;
  const negative = others.map((x) => -x).reverse();
  return signed ? [...negative, ...positive] : positive;
}

/** The position of a value: 0 to 1, or -1 to 1 on a signed scale. @param {Scale} scale @param {number} value */
export function scalePosition({ kind, max, signed }, value) {
  if (!(max > 0) || Number.isNaN(value)) return 0;
  const magnitude = Math.min(1, Math.abs(value) / max);
  const position =
    kind === "log" ? (magnitude > 0 ? Math.max(0, 1 + Math.log10(magnitude) / LOG_DECADES) : 0) : magnitude;
  return value < 0 ? (signed ? -position : 0) : position;
}
