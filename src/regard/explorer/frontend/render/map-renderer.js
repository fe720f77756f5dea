// A map on a canvas: tiles as pictures, or single cells with their numbers, with tokens beside them.

import { tileKey } from "../data/tile-source.js";
import { colourAt, css, inkOn, stepOf } from "./colormap.js";
import { brief } from "./format.js";
import { placeOn } from "./scale.js";
import { levelFor, TILE, tilesIn } from "./viewport.js";

/**
 * @typedef {object} Scene   what is drawn
 * @property {import("../data/tile-source.js").Field} field
 * @property {import("./viewport.js").View} view
 * @property {import("./scale.js").Scale} scale
 * @property {import("./colormap.js").Theme} theme
 * @property {Ink} ink
 * @property {Uint32Array} table
 * @property {number} decimals      that are known
 * @property {number | null} row    of the field, where the cell stands
 * @property {number | null} col
 * @property {Set<number>} rowsFound
 * @property {Set<number>} colsFound
 * @property {boolean} causal
 * @property {Room} room
 * @typedef {{ left: number, top: number, width: number, height: number, strip: number }} Room  of cells on the canvas; `strip` is the width for what is hidden
 * @typedef {Record<(typeof INKS)[number], string>} Ink
 * @typedef {Pick<CanvasRenderingContext2D, "save" | "restore" | "translate" | "rotate" | "beginPath" | "moveTo" | "lineTo" | "clip" | "fill" |
 *   "stroke" | "fillRect" | "strokeRect" | "textAlign" | "textBaseline" | "direction" | "font" | "lineWidth" | "globalAlpha" | "imageSmoothingEnabled"> & {
 *   fillStyle: any, strokeStyle: any, rect: (x: number, y: number, width: number, height: number) => void,
 *   roundRect: (x: number, y: number, width: number, height: number, radius: number) => void, fillText: (text: string, x: number, y: number) => void,
 *   measureText: (text: string) => { width: number },
 *   drawImage: (picture: HTMLCanvasElement, x: number, y: number, width: number, height: number) => void }} Pen  a canvas' context, or SVG's
 */

const INKS = /** @type {const} */ (["text", "muted", "line", "wash", "ground", "mark", "found", "bar"]);

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const SINGLE = 13; // pixels from which cells are drawn one by one, with a gap
const NUMBERS = 30;
const PITCH = 13; // the least between two labels

/** The inks of the page around a node. @param {Element} node */
export function inkOf(node) {
  const style = getComputedStyle(node);
  return /** @type {Ink} */ (
    Object.fromEntries(INKS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]))
  );
}

/** @type {WeakMap<Float32Array, { made: string, canvas: HTMLCanvasElement }>} */
const pictures = new WeakMap();

/** @param {import("../data/matrix.js").Matrix} tile @param {Scene} scene */
function pictureOf(tile, { scale, table, theme }) {
  const made = `${theme}/${scale.kind}/${scale.max}/${scale.signed}`;
  const known = pictures.get(tile.values);
  if (known?.made === made) return known.canvas;
  const canvas = known?.canvas ?? document.createElement("canvas");
  [canvas.width, canvas.height] = [tile.cols, tile.rows];
  const image = new ImageData(tile.cols, tile.rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < pixels.length; n++) pixels[n] = table[stepOf(placeOn(scale, tile.values[n]))];
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  pictures.set(tile.values, { made, canvas });
  return canvas;
}

/**
 * Draw everything; returns which tiles were wanted.
 * @param {Pen} ctx @param {Scene} scene
 */
export function drawMap(ctx, scene) {
  const { room, view, field, ink } = scene;
  const seen = new Set(/** @type {string[]} */ ([]));
  const right = Math.min(room.width, (field.cols.length - view.x) * view.k);
  const bottom = Math.min(room.height, (field.rows.length - view.y) * view.k);
  ctx.save();
  ctx.translate(room.left, room.top);
  ctx.beginPath();
  ctx.rect(0, 0, right, bottom);
  ctx.clip();
  if (view.k >= SINGLE) drawCells(ctx, scene, seen);
  else drawTiles(ctx, scene, seen);
  if (scene.causal) drawNever(ctx, scene, right, bottom);
  ctx.restore();
  ctx.strokeStyle = ink.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(room.left - 0.5, room.top - 0.5, right + 1, bottom + 1);
  drawCursor(ctx, scene);
  drawLabels(ctx, scene);
  if (room.strip > 0 && field.hidden) drawHidden(ctx, scene, right);
  return seen;
}

/** What a mask hides. @param {Pen} ctx @param {Scene} scene @param {number} right @param {number} bottom */
function drawNever(ctx, { view, ink }, right, bottom) {
  const at = (/** @type {number} */ row) => [(row + 1 - view.x) * view.k, (row - view.y) * view.k];
  ctx.fillStyle = ink.wash;
  ctx.beginPath();
  ctx.moveTo(.../** @type {[number, number]} */ (at(view.y)));
  if (view.k >= SINGLE)
    for (let row = Math.floor(view.y); (row - view.y) * view.k < bottom; row++) {
      const [x, y] = at(row);
      ctx.lineTo(x, y);
      ctx.lineTo(x, y + view.k);
    }
  else ctx.lineTo(.../** @type {[number, number]} */ (at(view.y + bottom / view.k)));
  ctx.lineTo(Math.max(right, 0) + 1e5, bottom);
  ctx.lineTo(1e5, 0);
  ctx.fill();
}

/** @param {Pen} ctx @param {Scene} scene @param {Set<string>} seen */
function drawTiles(ctx, scene, seen) {
  const { field, view, room } = scene;
  const pyramid = field.colours;
  ctx.imageSmoothingEnabled = false;
  const level = levelOf(scene);
  for (const { i, j } of tilesIn(view, room, pyramid, level)) {
    seen.add(tileKey(level, i, j));
    const found = pyramid.tile(level, i, j);
    if (found) drawPart(ctx, scene, found, level, i, j, null);
    else
      for (let up = level + 1; up < pyramid.levels; up++) {
        const by = 2 ** (up - level);
        const [a, b] = [Math.floor(i / by), Math.floor(j / by)];
        const coarse = up === pyramid.levels - 1 || isThere(pyramid, up, a, b) ? pyramid.tile(up, a, b) : null;
        if (!coarse) continue;
        drawPart(ctx, scene, coarse, up, a, b, { level, i, j });
        break;
      }
  }
}

/** @param {import("../data/tile-source.js").Pyramid} pyramid @param {number} level @param {number} i @param {number} j */
function isThere(pyramid, level, i, j) {
  const tiles = /** @type {any} */ (pyramid).tiles;
  return tiles instanceof Map && tiles.has(tileKey(level, i, j));
}

/**
 * @param {Pen} ctx @param {Scene} scene @param {import("../data/matrix.js").Matrix} tile
 * @param {number} level @param {number} i @param {number} j
 * @param {{ level: number, i: number, j: number } | null} only  the part of it that a finer tile will take
 */
function drawPart(ctx, scene, tile, level, i, j, only) {
  const { view } = scene;
  const cell = 2 ** level;
  const x = (j * TILE * cell - view.x) * view.k;
  const y = (i * TILE * cell - view.y) * view.k;
  ctx.save();
  if (only) {
    const side = TILE * 2 ** only.level * view.k;
    ctx.beginPath();
    ctx.rect(only.j * side - view.x * view.k, only.i * side - view.y * view.k, side, side);
    ctx.clip();
  }
  ctx.drawImage(pictureOf(tile, scene), x, y, tile.cols * cell * view.k, tile.rows * cell * view.k); // beyond the map it is cut off
  ctx.restore();
}

/**
 * The number of a cell, of single ones or of those of a level; null while it is on its way.
 * @param {import("../data/tile-source.js").Pyramid} pyramid @param {number} row @param {number} col @param {number} [level]
 */
export function numberAt(pyramid, row, col, level = 0) {
  const [i, j] = [Math.floor(row / TILE), Math.floor(col / TILE)];
  const tile = isThere(pyramid, level, i, j) || "matrices" in pyramid ? pyramid.tile(level, i, j) : null;
  return tile ? tile.values[(row - i * TILE) * tile.cols + (col - j * TILE)] : null;
}

/** The cells that are seen, whole or in part. @param {Scene} scene */
export function spanOf({ view, room, field }) {
  return {
    row0: Math.floor(view.y),
    row1: Math.min(field.rows.length, Math.ceil(view.y + room.height / view.k)),
    col0: Math.floor(view.x),
    col1: Math.min(field.cols.length, Math.ceil(view.x + room.width / view.k)),
  };
}

/** The level of which cells are drawn. @param {Pick<Scene, "view" | "field">} scene */
export function levelOf({ view, field }) {
  return levelFor(view.k * devicePixelRatio, field.pyramid.levels);
}

/** How many decimals fit into a cell. @param {number} k @param {number} known */
export function decimalsFor(k, known) {
  return Math.min(known, k >= 46 ? 3 : 2);
}

/** @param {Pen} ctx @param {Scene} scene @param {Set<string>} seen */
function drawCells(ctx, scene, seen) {
  const { view, field, scale, theme, ink } = scene;
  const { row0, row1, col0, col1 } = spanOf(scene);
  const tiles = tilesIn(view, scene.room, field.pyramid, 0);
  for (const { i, j } of tiles) seen.add(tileKey(0, i, j));
  if (tiles.filter(({ i, j }) => !field.pyramid.tile(0, i, j)).length) drawTiles(ctx, scene, seen); // coarse until they come
  const gap = view.k >= 22 ? 1 : 0.5;
  const decimals = decimalsFor(view.k, scene.decimals);
  const written = view.k >= NUMBERS;
  ctx.font = `${Math.min(13, Math.max(9.5, view.k / 3.6))}px ${FONT}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let row = row0; row < row1; row++)
    for (let col = col0; col < col1; col++) {
      const value = numberAt(field.pyramid, row, col);
      if (value === null) continue;
      const place = placeOn(scale, numberAt(field.colours, row, col) ?? 0);
      const [x, y] = [(col - view.x) * view.k, (row - view.y) * view.k];
      const colour = colourAt(theme, place);
      if (place !== 0) {
        ctx.fillStyle = css(colour);
        ctx.beginPath();
        ctx.roundRect(x + gap, y + gap, view.k - 2 * gap, view.k - 2 * gap, view.k >= 22 ? 3 : 1);
        ctx.fill();
      }
      if (written && Math.abs(value) >= 0.5 * 10 ** -decimals) {
        ctx.fillStyle = Math.abs(place) < 0.04 ? ink.muted : inkOn(colour);
        ctx.fillText(brief(value, decimals), x + view.k / 2, y + view.k / 2 + 0.5);
      }
    }
}

/** @param {Pen} ctx @param {Scene} scene */
function drawCursor(ctx, { room, view, row, col, ink, field }) {
  if (row === null || col === null) return;
  const [x, y] = [room.left + (col - view.x) * view.k, room.top + (row - view.y) * view.k];
  const side = Math.max(view.k, 5);
  ctx.save();
  ctx.beginPath();
  ctx.rect(
    room.left - 2,
    room.top - 2,
    Math.min(room.width, field.cols.length * view.k) + 4,
    Math.min(room.height, field.rows.length * view.k) + 4,
  );
  ctx.clip();
  ctx.strokeStyle = ink.mark;
  if (view.k < NUMBERS) {
    ctx.globalAlpha = 0.28;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(room.left, y + view.k / 2);
    ctx.lineTo(x, y + view.k / 2);
    ctx.moveTo(x + view.k / 2, room.top);
    ctx.lineTo(x + view.k / 2, y);
    ctx.stroke();
    ctx.globalAlpha = 1;
  }
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.roundRect(x + view.k / 2 - side / 2, y + view.k / 2 - side / 2, side, side, view.k >= 22 ? 4 : 1);
  ctx.stroke();
  ctx.restore();
}

/** @param {Pen} ctx @param {Scene} scene */
function drawLabels(ctx, scene) {
  const { room, view, field } = scene;
  const { row0, row1, col0, col1 } = spanOf(scene);
  const step = Math.max(1, Math.ceil(PITCH / view.k));
  ctx.textBaseline = "middle";
  for (const row of labelled(row0, row1, step, scene.row, scene.rowsFound)) {
    const y = room.top + (row + 0.5 - view.y) * view.k;
    if (y < room.top - 1 || y > room.top + room.height + 1) continue;
    ctx.textAlign = "right";
    drawLabel(ctx, scene, field.rows[row], room.left - 9, y, row === scene.row, scene.rowsFound.has(row));
  }
  for (const col of labelled(col0, col1, step, scene.col, scene.colsFound)) {
    const x = room.left + (col + 0.5 - view.x) * view.k;
    if (x < room.left - 1 || x > room.left + room.width + 1) continue;
    ctx.save();
    ctx.translate(x + 2, room.top - 9);
    ctx.rotate(-Math.PI / 3);
    ctx.textAlign = "left";
    drawLabel(ctx, scene, field.cols[col], 0, 0, col === scene.col, scene.colsFound.has(col));
    ctx.restore();
  }
}

/**
 * Which rows or columns have their token beside them: the chosen one, those found, and of the rest what keeps a distance.
 * @param {number} from @param {number} to @param {number} step @param {number | null} chosen @param {Set<number>} found
 */
export function labelled(from, to, step, chosen, found) {
  const shown = [];
  const near = (/** @type {number} */ n) => chosen !== null && n !== chosen && Math.abs(n - chosen) < step;
  let last = -Infinity;
  for (let n = from; n < to; n++) {
    if (n === chosen || (!near(n) && (n % step === 0 || (found.has(n) && n - last >= step)))) {
      shown.push(n);
      last = n;
    }
  }
  return shown;
}

/**
 * @param {Pen} ctx @param {Scene} scene @param {import("../data/tokens.js").Group} group
 * @param {number} x @param {number} y @param {boolean} chosen @param {boolean} found
 */
function drawLabel(ctx, { ink }, group, x, y, chosen, found) {
  ctx.font = `${chosen ? "600 " : ""}${group.special ? "italic " : ""}12px ${FONT}`;
  ctx.direction = "ltr"; // so that the side it starts from stays; the signs within keep their own direction
  if (found) {
    const { width } = ctx.measureText(group.label);
    ctx.fillStyle = ink.found;
    ctx.fillRect(ctx.textAlign === "right" ? x - width - 3 : x - 3, y - 8, width + 6, 16);
  }
  ctx.fillStyle = chosen ? ink.mark : group.special ? ink.muted : ink.text;
  ctx.fillText(group.label, x, y);
}

/** How wide the longest of some labels is. @param {Pen} ctx @param {import("../data/tokens.js").Group[]} axis */
export function widestLabel(ctx, axis) {
  ctx.font = `600 12px ${FONT}`;
  const every = Math.max(1, Math.floor(axis.length / 300));
  return axis.reduce((most, group, n) => (n % every ? most : Math.max(most, ctx.measureText(group.label).width)), 20);
}

/** A bar for the share of each row that is hidden. @param {Pen} ctx @param {Scene} scene @param {number} right */
function drawHidden(ctx, scene, right) {
  const { room, view, field, ink } = scene;
  const { row0, row1 } = spanOf(scene);
  const x = room.left + right + 12;
  ctx.font = `11px ${FONT}`;
  ctx.textAlign = "left";
  ctx.save();
  ctx.translate(x + 2, room.top - 9);
  ctx.rotate(-Math.PI / 3);
  ctx.fillStyle = ink.muted;
  ctx.font = `italic 12px ${FONT}`;
  ctx.fillText("hidden", 0, 0);
  ctx.restore();
  ctx.textBaseline = "middle";
  for (let row = row0; row < row1; row++) {
    const share = Math.min(1, Math.max(0, field.hidden?.[row] ?? 0));
    const y = room.top + (row - view.y) * view.k;
    if (y < room.top - view.k / 2 || y + view.k / 2 > room.top + room.height) continue;
    const gap = view.k >= SINGLE ? Math.max(2, view.k / 2 - 6) : 0;
    ctx.fillStyle = ink.bar;
    ctx.fillRect(x, y + gap, share * 36, Math.max(0.5, view.k - 2 * gap));
    if (view.k >= PITCH) {
      ctx.fillStyle = ink.muted;
      ctx.font = `11px ${FONT}`;
      ctx.fillText(brief(share, 2), x + share * 36 + 5, y + view.k / 2 + 0.5);
    }
  }
}
