// Numbers as text: fixed decimals, significant digits, percent. Pure functions.

const MAX_DECIMALS = 6;

/** Fixed decimals, never "-0". @param {number} value @param {number} [decimals] */
export function formatFixed(value, decimals = 3) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "–";
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** The exact decimals of a sum of rounded numbers. @param {number} decimals of each @param {number} terms */
export function decimalsOfSum(decimals, terms) {
  return Math.max(0, decimals - Math.ceil(Math.log10(Math.max(1, terms)) - 1e-9));
}

/** Without the leading zero: ".31" for 0.31. @param {number} value @param {number} decimals */
export function formatCompact(value, decimals) {
  return formatFixed(value, decimals).replace(/^(−?)0\./, "$1.");
}

/** Significant digits, at most as many decimals as are exact. @param {number} value @param {number} [digits] @param {number} [maxDecimals] */
export function formatSignificant(value, digits = 4, maxDecimals = MAX_DECIMALS) {
  if (!Number.isFinite(value)) return formatFixed(value);
  const magnitude = Math.abs(value);
  if (magnitude === 0) return "0";
  if (magnitude >= 1e5 || (magnitude < 1e-4 && maxDecimals >= MAX_DECIMALS)) {
    const [mantissa, exponent] = magnitude.toExponential(2).split("e");
    const raised = String(Number(exponent)).replace(/[-0-9]/g, (x) => (x === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(x)]));
    return `${value < 0 ? "−" : ""}${mantissa}·10${raised}`;
  }
  return formatFixed(value, Math.max(0, Math.min(maxDecimals, digits - 1 - Math.floor(Math.log10(magnitude)))));
}

/** A weight as it reads everywhere but within the small cells of a map. @param {number} value @param {number} [decimals] that are exact */
export function formatWeight(value, decimals) {
  return formatSignificant(value, 3, decimals);
}

/** A number with its sign. @param {number} value */
export function formatSigned(value) {
  return `${value < 0 ? "" : "+"}${formatWeight(value)}`;
}

/** The label of a tick: two significant digits, no trailing zeros. @param {number} value */
export function formatTick(value) {
  return formatSignificant(value).includes("·")
    ? formatSignificant(value)
    : String(Number(value.toPrecision(2))).replace("-", "−");
}

/** A share; one that is not 0 does not read as if it were. @param {number} share */
export function formatPercent(share) {
  if (share > 0 && share < 0.0005) return "under 0.1 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}
