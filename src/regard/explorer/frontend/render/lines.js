// Lines between two columns of words, as paths: one for each tenth of opacity. Pure functions.

import { scalePosition } from "./scale.js";

const LEVELS = 10;
export const LINES_WIDTH = 100; // of a drawing, in which a word is 1 high

/**
 * The lines of a map, from its keys on the left to its queries on the right; of the weakest none.
 * @param {Matrix} map @param {Scale} scale that ends in full colour @param {number} shift downwards, beside those of others
 * @param {(row: number, col: number) => boolean} isShown
 */
export function linePaths({ values, rows, cols }, scale, shift, isShown) {
  const paths = Array(LEVELS + 1).fill("");
  for (let row = 0; row < rows; row++)
    for (let col = 0; col < cols; col++) {
      const level = isShown(row, col) ? Math.round(LEVELS * scalePosition(scale, values[row * cols + col])) : 0;
      if (level === 0) continue;
      const [key, query] = [col, row].map((n) => Number((n + 0.5 + shift).toFixed(2)));
      paths[level] += `M0 ${key}C45 ${key} 55 ${query} ${LINES_WIDTH} ${query}`;
    }
  return paths.flatMap((d, level) => (d ? [{ d, opacity: level / LEVELS, "stroke-width": 1 + level / LEVELS }] : []));
}
