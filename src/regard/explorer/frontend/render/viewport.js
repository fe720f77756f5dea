// What part of a map is seen: the cell at the upper left corner and how many pixels a cell takes. Knows no page.

/**
 * @typedef {{ x: number, y: number, k: number }} View   column and row at the corner; pixels a cell
 * @typedef {{ width: number, height: number }} Size     of the room for cells, in pixels
 * @typedef {{ rows: number, cols: number }} Extent      of the map, in cells
 */

export const LARGEST_CELL = 64;
export const TILE = 256; // cells of a level on each side of a tile

/** The whole map. @param {Extent} extent @param {Size} size @returns {View} */
export function whole(extent, size) {
  return { x: 0, y: 0, k: leastCell(extent, size) };
}

/** @param {Extent} extent @param {Size} size */
export function leastCell(extent, size) {
  return Math.min(LARGEST_CELL, size.width / Math.max(1, extent.cols), size.height / Math.max(1, extent.rows));
}

/** Keep a view on its map. @param {View} view @param {Extent} extent @param {Size} size @returns {View} */
export function kept(view, extent, size) {
  const least = leastCell(extent, size);
  const k = Math.min(Math.max(view.k, least), Math.max(least, LARGEST_CELL));
  const most = { x: Math.max(0, extent.cols - size.width / k), y: Math.max(0, extent.rows - size.height / k) };
  return { k, x: Math.min(Math.max(0, view.x), most.x), y: Math.min(Math.max(0, view.y), most.y) };
}

/**
 * Zoom while the cell under a point stays there.
 * @param {View} view @param {number} factor @param {number} px @param {number} py
 * @param {Extent} extent @param {Size} size
 */
export function zoomed(view, factor, px, py, extent, size) {
  const { k } = kept({ ...view, k: view.k * factor }, extent, size);
  return kept({ k, x: view.x + px / view.k - px / k, y: view.y + py / view.k - py / k }, extent, size);
}

/**
 * A view on the way from one to another, so that a cell that stays where it is does so all the way.
 * @param {View} from @param {View} to @param {number} share of the way, 0 to 1 @returns {View}
 */
export function between(from, to, share) {
  const k = from.k * (to.k / from.k) ** share;
  const part = Math.abs(to.k - from.k) < 1e-9 * from.k ? share : (1 / k - 1 / from.k) / (1 / to.k - 1 / from.k);
  return { k, x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part };
}

/** Move as little as shows a cell. @param {View} view @param {number} row @param {number} col
 * @param {Extent} extent @param {Size} size */
export function showing(view, row, col, extent, size) {
  const [wide, high] = [size.width / view.k, size.height / view.k];
  const x = col < view.x ? col : col + 1 > view.x + wide ? col + 1 - wide : view.x;
  const y = row < view.y ? row : row + 1 > view.y + high ? row + 1 - high : view.y;
  return kept({ x, y, k: view.k }, extent, size);
}

/** The level whose cells, 2**level of the map's, take a pixel or more. @param {number} k @param {number} levels */
export function levelFor(k, levels) {
  return Math.max(0, Math.min(levels - 1, Math.ceil(Math.log2(1 / Math.max(k, 1e-9)) - 1e-9)));
}

/** How many levels until one tile holds the whole. @param {Extent} extent */
export function levelsOf(extent) {
  return 1 + Math.max(0, Math.ceil(Math.log2(Math.max(extent.rows, extent.cols, 1) / TILE)));
}

/**
 * The tiles of a level that are seen, those in the middle first.
 * @param {View} view @param {Size} size @param {Extent} extent @param {number} level
 * @returns {{ i: number, j: number }[]}
 */
export function tilesIn(view, size, extent, level) {
  const side = TILE * 2 ** level;
  const last = { i: Math.ceil(extent.rows / side) - 1, j: Math.ceil(extent.cols / side) - 1 };
  const found = [];
  for (
    let i = Math.floor(view.y / side);
    i <= Math.min(last.i, Math.floor((view.y + size.height / view.k) / side));
    i++
  )
    for (
      let j = Math.floor(view.x / side);
      j <= Math.min(last.j, Math.floor((view.x + size.width / view.k) / side));
      j++
    )
      found.push({ i, j });
  const middle = {
    i: (view.y + size.height / view.k / 2) / side - 0.5,
    j: (view.x + size.width / view.k / 2) / side - 0.5,
  };
  const far = (/** @type {{i: number, j: number}} */ t) => Math.hypot(t.i - middle.i, t.j - middle.j);
  return found.sort((a, b) => far(a) - far(b));
}
