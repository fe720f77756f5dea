// Colormaps, one for each sign. Both start at the background, for 0, and change lightness in equal steps, so that they
// are readable in greyscale and with any colour vision. Pure functions.

const POSITIVE = {
  light: ["#ffffff", "#d3e6ed", "#a8ccdf", "#7eb1d3", "#5a95c7", "#3c78b8", "#2a5aa4", "#213d8a", "#1c2468"],
  dark: ["#15171d", "#1f2d46", "#26466f", "#2c6293", "#3580b4", "#43a1cc", "#63c1de", "#95deec", "#ccf8fa"],
};
const NEGATIVE = {
  light: ["#ffffff", "#fbe3d0", "#f6c59f", "#eda56e", "#de8544", "#c66a27", "#a55219", "#813d12", "#5e2b0d"],
  dark: ["#15171d", "#33251c", "#573723", "#7d4a27", "#a4602a", "#c87a35", "#e39a54", "#f4be86", "#fde4c6"],
};
const STEPS = 256;

/** @param {string} hex @returns {Rgb} */
export function parseHex(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

/** The color at a position from -1 to 1. @param {Theme} theme @param {number} position @returns {Rgb} */
export function colorAt(theme, position) {
  const stops = (position < 0 ? NEGATIVE : POSITIVE)[theme];
  const x = Math.min(1, Math.abs(position)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(x));
  const [a, b] = [parseHex(stops[i]), parseHex(stops[i + 1])];
  return /** @type {Rgb} */ (a.map((low, c) => Math.round(low + (b[c] - low) * (x - i))));
}

/** @param {Rgb} rgb */
export function toCss([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/**
 * All colors from -1 to 1 in equal steps, as RGBA; 0 is in the middle.
 * @param {Theme} theme
 * @returns {Uint32Array} 2·STEPS + 1 colors, in the byte order of ImageData
 */
export function colorTable(theme) {
  const bytes = new Uint8Array(4 * (2 * STEPS + 1));
  for (let n = -STEPS; n <= STEPS; n++) bytes.set([...colorAt(theme, n / STEPS), 255], 4 * (n + STEPS));
  return new Uint32Array(bytes.buffer);
}

/** @param {number} position from -1 to 1 @returns {number} its index in the table */
export function tableIndex(position) {
  return Math.round(position * STEPS) + STEPS;
}

/** Relative luminance, as the Web Content Accessibility Guidelines 2 define it. @param {Rgb} rgb */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever has more contrast with a color: as much as the other at 1.05 / (y + 0.05) = (y + 0.05) / 0.05. @param {Rgb} rgb */
export function textColorOn(rgb) {
  return luminance(rgb) + 0.05 < Math.sqrt(1.05 * 0.05) ? "#ffffff" : "#000000";
}
