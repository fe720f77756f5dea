// The viewport of a map, as of OpenSeadragon: the cell at its upper left corner, and the size of a cell. Pure functions.

export const MAX_CELL_SIZE = 96;
export const TILE = 256; // cells of a level on each side of a tile

/** The size of a cell of the whole map. @param {Extent} extent @param {Size} size */
export function minCellSize(extent, size) {
  return Math.min(MAX_CELL_SIZE, size.width / Math.max(1, extent.cols), size.height / Math.max(1, extent.rows));
}

/** The nearest viewport within the map. @param {Viewport} viewport @param {Extent} extent @param {Size} size @returns {Viewport} */
export function clampViewport(viewport, extent, size) {
  const minSize = minCellSize(extent, size);
  const k = Math.min(Math.max(viewport.k, minSize), Math.max(minSize, MAX_CELL_SIZE));
  const max = { x: Math.max(0, extent.cols - size.width / k), y: Math.max(0, extent.rows - size.height / k) };
  return { k, x: Math.min(Math.max(0, viewport.x), max.x), y: Math.min(Math.max(0, viewport.y), max.y) };
}

/**
 * Zoom about a point; what is there stays there.
 * @param {Viewport} viewport @param {number} factor @param {number} px @param {number} py
 * @param {(viewport: Viewport) => Viewport} clamp
 */
export function zoomAt(viewport, factor, px, py, clamp) {
  const { k } = clamp({ ...viewport, k: viewport.k * factor });
  return clamp({ k, x: viewport.x + px / viewport.k - px / k, y: viewport.y + py / viewport.k - py / k });
}

/**
 * A viewport between two; a cell at the same point of both stays there.
 * @param {Viewport} from @param {Viewport} to @param {number} progress of the way, 0 to 1 @returns {Viewport}
 */
export function interpolate(from, to, progress) {
  const k = from.k * (to.k / from.k) ** progress;
  const shift = Math.abs(to.k - from.k) < 1e-9 * from.k ? progress : (1 / k - 1 / from.k) / (1 / to.k - 1 / from.k);
  return { k, x: from.x + (to.x - from.x) * shift, y: from.y + (to.y - from.y) * shift };
}

/** Pan as little as shows a cell. @param {Viewport} viewport @param {number} row @param {number} col
 * @param {Extent} extent @param {Size} size */
export function panTo(viewport, row, col, extent, size) {
  const [numCols, numRows] = [size.width / viewport.k, size.height / viewport.k];
  const x = col < viewport.x ? col : col + 1 > viewport.x + numCols ? col + 1 - numCols : viewport.x;
  const y = row < viewport.y ? row : row + 1 > viewport.y + numRows ? row + 1 - numRows : viewport.y;
  return clampViewport({ x, y, k: viewport.k }, extent, size);
}

/** The level whose cells, of 2**level tokens, are at least a pixel wide. @param {number} k @param {number} levels */
export function levelFor(k, levels) {
  return Math.max(0, Math.min(levels - 1, Math.ceil(Math.log2(1 / Math.max(k, 1e-9)) - 1e-9)));
}

/** The number of levels up to that of one tile. @param {Extent} extent */
export function numLevels(extent) {
  return 1 + Math.max(0, Math.ceil(Math.log2(Math.max(extent.rows, extent.cols, 1) / TILE)));
}

/**
 * The visible tiles of a level, those in the center first.
 * @param {Viewport} viewport @param {Size} size @param {Extent} extent @param {number} level
 * @returns {{ i: number, j: number }[]}
 */
export function visibleTiles(viewport, size, extent, level) {
  const side = TILE * 2 ** level;
  const along = (/** @type {number} */ from, /** @type {number} */ pixels, /** @type {number} */ cells) => {
    const [first, end] = [from / side, (from + pixels / viewport.k) / side];
    const last = Math.min(Math.ceil(cells / side) - 1, Math.floor(end));
    const numbers = Array.from({ length: last + 1 - Math.floor(first) }, (_, n) => Math.floor(first) + n);
    return { numbers, center: (first + end) / 2 - 0.5 };
  };
  const [rows, cols] = [along(viewport.y, size.height, extent.rows), along(viewport.x, size.width, extent.cols)];
  const distance = (/** @type {{i: number, j: number}} */ { i, j }) => Math.hypot(i - rows.center, j - cols.center);
  return rows.numbers.flatMap((i) => cols.numbers.map((j) => ({ i, j }))).sort((a, b) => distance(a) - distance(b));
}
