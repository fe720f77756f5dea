// A scene: what a map shows, where on the canvas, and in which colors.

import { tileKey } from "../data/tile-source.js";
import { levelFor, TILE } from "./viewport.js";

export const COLOR_NAMES = /** @type {const} */ ([
  "text",
  "muted",
  "line",
  "wash",
  "ground",
  "mark",
  "found",
  "bar",
  "a",
  "b",
]);

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
export const MIN_CELL_GAP_PX = 13; // from here on cells are drawn one by one, with a gap
export const MIN_VALUE_PX = 30; // from here on cells show their values
export const LABEL_PX = 12; // the size of words beside a map
export const LARGE_LABEL_PX = 22; // for a projector

/** The colors of the theme at a node. @param {Element} node */
export function themeColors(node) {
  const style = getComputedStyle(node);
  return /** @type {ThemeColors} */ (
    Object.fromEntries(COLOR_NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]))
  );
}

/** @param {TileSource} pyramid @param {number} level @param {number} i @param {number} j */
export function isLoaded(pyramid, level, i, j) {
  const tiles = /** @type {any} */ (pyramid).tiles;
  return tiles instanceof Map && tiles.has(tileKey(level, i, j));
}

/**
 * The value of a cell of a level; null until its tile is fetched.
 * @param {TileSource} pyramid @param {number} row @param {number} col @param {number} [level]
 */
export function valueAt(pyramid, row, col, level = 0) {
  const [i, j] = [Math.floor(row / TILE), Math.floor(col / TILE)];
  const tile = isLoaded(pyramid, level, i, j) || "matrices" in pyramid ? pyramid.tile(level, i, j) : null;
  return tile ? tile.values[(row - i * TILE) * tile.cols + (col - j * TILE)] : null;
}

/** The cells that are visible, whole or in part. @param {Scene} scene */
export function visibleCells({ viewport, plotArea, mapData }) {
  return {
    row0: Math.floor(viewport.y),
    row1: Math.min(mapData.rows.length, Math.ceil(viewport.y + plotArea.height / viewport.k)),
    col0: Math.floor(viewport.x),
    col1: Math.min(mapData.cols.length, Math.ceil(viewport.x + plotArea.width / viewport.k)),
  };
}

/** The level whose cells are drawn. @param {Pick<Scene, "viewport" | "mapData">} scene */
export function levelOf({ viewport, mapData }) {
  return levelFor(viewport.k * devicePixelRatio, mapData.pyramid.levels);
}
