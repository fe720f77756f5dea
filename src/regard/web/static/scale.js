// From a number to its place on a scale of colours, and to the digits a person reads. Knows no page.

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
  return signed ? [...above.slice(1).reverse().map((x) => -x), ...above] : above;
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

/**
 * A number in as many decimals as are known of it, never as "-0".
 * @param {number} value @param {number} [decimals]
 */
export function digits(value, decimals = 3) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "–";
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/**
 * How many decimals are known of a sum of numbers that are rounded each.
 * @param {number} decimals of each @param {number} terms
 */
export function decimalsAfter(decimals, terms) {
  return Math.max(0, decimals - Math.ceil(Math.log10(Math.max(1, terms)) - 1e-9));
}

/** A weight in little room: ".31" for 0.31. @param {number} value @param {number} decimals */
export function brief(value, decimals) {
  return digits(value, decimals).replace(/^(−?)0\./, "$1.");
}

/**
 * A number of any size in four significant digits.
 * @param {number} value
 */
export function significant(value) {
  if (!Number.isFinite(value)) return digits(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-4) {
    const [head, power] = size.toExponential(2).split("e");
    return `${value < 0 ? "−" : ""}${head}·10${raised(Number(power))}`;
  }
  return digits(value, Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(size)))));
}

/** @param {number} power */
function raised(power) {
  return String(power).replace(/[-0-9]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)]));
}

/** A number beside a scale: two significant digits, no more zeros than needed. @param {number} value */
export function mark(value) {
  return significant(value).includes("·") ? significant(value) : String(Number(value.toPrecision(2))).replace("-", "−");
}

/** @param {number} share */
export function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}
