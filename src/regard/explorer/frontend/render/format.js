// Numbers as text: fixed decimals, significant digits, percent. Pure functions.

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
