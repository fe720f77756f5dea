// Arcs between words of a text: within a line above it, between lines through the gaps and along the margin. Pure functions.

/** @typedef {{ x: number, y: number }} Anchor  the middle of the upper edge of a word */

const LANE_PX = 7; // above the words of a line
const RADIUS_PX = 6;
const MAX_HEIGHT_PX = 24; // of an arc, whose curve reaches three quarters of it

/**
 * The path from one word to another, which crosses no word.
 * @param {Anchor} from @param {Anchor} to @param {number} margin  the x beside all words
 */
export function arcPath(from, to, margin) {
  if (Math.abs(from.y - to.y) < 2) {
    const top = from.y - Math.min(MAX_HEIGHT_PX, 10 + Math.abs(from.x - to.x) / 8);
    return `M${from.x} ${from.y}C${from.x} ${top} ${to.x} ${top} ${to.x} ${to.y}`;
  }
  const towards = Math.sign(margin - from.x) * RADIUS_PX; // the margin
  const along = Math.sign(to.y - from.y) * RADIUS_PX;
  const [start, end] = [from.y - LANE_PX, to.y - LANE_PX];
  return [
    `M${from.x} ${from.y}V${start + RADIUS_PX}Q${from.x} ${start} ${from.x + towards} ${start}`,
    `H${margin - towards}Q${margin} ${start} ${margin} ${start + along}`,
    `V${end - along}Q${margin} ${end} ${margin - towards} ${end}`,
    `H${to.x + towards}Q${to.x} ${end} ${to.x} ${end + RADIUS_PX}V${to.y}`,
  ].join("");
}
