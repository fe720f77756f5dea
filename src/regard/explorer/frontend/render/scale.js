// Linear, logarithmic and signed scales: from a number to its place on a colormap. Pure functions.

/**
 * @typedef {"linear" | "log"} ScaleKind
 * @typedef {{ kind: ScaleKind, max: number, signed: boolean }} Scale
 *   `max` is the number at the end of the colours; a signed scale goes from -max over 0 to max.
 */

export const LOG_DECADES = 4; // what a logarithmic scale covers below its largest number

/** Numbers to write beside the colours, from the least to the largest. @param {Scale} scale */
export function ticks({ kind, max, signed }) {
  const shares = kind === "linear" ? [0.5, 1] : signed ? [0.01, 1] : [0.001, 0.01, 0.1, 1];
  const above = [kind === "linear" || signed ? 0 : 1e-4, ...shares].map((share) => share * max);
  return signed
    ? [
        ...above
          .slice(1)
          .reverse()
          .map((x) => -x),
        ...above,
      ]
    : above;
}

/**
 * Where a number stands: 0 to 1, or -1 to 1 on a signed scale.
 * @param {Scale} scale @param {number} value
 */
export function placeOn({ kind, max, signed }, value) {
  if (!(max > 0) || Number.isNaN(value)) return 0;
  const size = Math.min(1, Math.abs(value) / max);
  const place = kind === "log" ? (size > 0 ? Math.max(0, 1 + Math.log10(size) / LOG_DECADES) : 0) : size;
  return value < 0 ? (signed ? -place : 0) : place;
}
