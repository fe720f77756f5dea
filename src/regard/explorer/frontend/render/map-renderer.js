// Draw a map on a canvas: tiles as images, or single cells with their values.

import { tileKey } from "../data/tile-source.js";
import { colorAt, tableIndex, textColorOn, toCss } from "./colormap.js";
import { formatCompact } from "./format.js";
import { drawCursor, drawHidden, drawLabels } from "./map-annotations.js";
import { scalePosition } from "./scale.js";
import { FONT, isLoaded, LABEL_PX, levelOf, MIN_CELL_GAP_PX, MIN_VALUE_PX, valueAt, visibleCells } from "./scene.js";
import { TILE, visibleTiles } from "./viewport.js";

/** @type {WeakMap<Float32Array, { imageKey: string, canvas: HTMLCanvasElement }>} */
const tileImages = new WeakMap();

/** @param {Matrix} tile @param {Scene} scene */
function tileImage(tile, { scale, table, theme }) {
  const imageKey = `${theme}/${scale.kind}/${scale.max}/${scale.signed}`;
  const cached = tileImages.get(tile.values);
  if (cached?.imageKey === imageKey) return cached.canvas;
  const canvas = cached?.canvas ?? document.createElement("canvas");
  [canvas.width, canvas.height] = [tile.cols, tile.rows];
  const image = new ImageData(tile.cols, tile.rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < pixels.length; n++) pixels[n] = table[tableIndex(scalePosition(scale, tile.values[n]))];
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  tileImages.set(tile.values, { imageKey, canvas });
  return canvas;
}

/** Draw a scene; returns the keys of the visible tiles. @param {Context2D} ctx @param {Scene} scene */
export function drawMap(ctx, scene) {
  const { plotArea, viewport, mapData, colors } = scene;
  const visible = new Set(/** @type {string[]} */ ([]));
  const right = Math.min(plotArea.width, (mapData.cols.length - viewport.x) * viewport.k);
  const bottom = Math.min(plotArea.height, (mapData.rows.length - viewport.y) * viewport.k);
  ctx.save();
  ctx.translate(plotArea.left, plotArea.top);
  ctx.beginPath();
  ctx.rect(0, 0, right, bottom);
  ctx.clip();
  if (viewport.k >= MIN_CELL_GAP_PX) drawCells(ctx, scene, visible);
  else drawTiles(ctx, scene, visible);
  if (scene.causal) drawMaskedArea(ctx, scene, right, bottom);
  ctx.restore();
  ctx.strokeStyle = colors.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(plotArea.left - 0.5, plotArea.top - 0.5, right + 1, bottom + 1);
  drawCursor(ctx, scene);
  drawLabels(ctx, scene);
  if (plotArea.strip > 0 && mapData.hiddenMass) drawHidden(ctx, scene, right);
  return visible;
}

/** The cells that a causal mask hides. @param {Context2D} ctx @param {Scene} scene @param {number} right @param {number} bottom */
function drawMaskedArea(ctx, { viewport, colors }, right, bottom) {
  const at = (/** @type {number} */ row) => [(row + 1 - viewport.x) * viewport.k, (row - viewport.y) * viewport.k];
  ctx.fillStyle = colors.wash;
  ctx.beginPath();
  ctx.moveTo(.../** @type {[number, number]} */ (at(viewport.y)));
  if (viewport.k >= MIN_CELL_GAP_PX)
    for (let row = Math.floor(viewport.y); (row - viewport.y) * viewport.k < bottom; row++) {
      const [x, y] = at(row);
      ctx.lineTo(x, y);
      ctx.lineTo(x, y + viewport.k);
    }
  else ctx.lineTo(.../** @type {[number, number]} */ (at(viewport.y + bottom / viewport.k)));
  ctx.lineTo(Math.max(right, 0) + 1e5, bottom);
  ctx.lineTo(1e5, 0);
  ctx.fill();
}

/** @param {Context2D} ctx @param {Scene} scene @param {Set<string>} visible */
function drawTiles(ctx, scene, visible) {
  const { mapData, viewport, plotArea } = scene;
  const pyramid = mapData.colorPyramid;
  ctx.imageSmoothingEnabled = false;
  const level = levelOf(scene);
  for (const { i, j } of visibleTiles(viewport, plotArea, pyramid, level)) {
    visible.add(tileKey(level, i, j));
    const found = pyramid.tile(level, i, j);
    if (found) drawTile(ctx, scene, found, level, i, j, null);
    else
      for (let up = level + 1; up < pyramid.levels; up++) {
        const factor = 2 ** (up - level);
        const [a, b] = [Math.floor(i / factor), Math.floor(j / factor)];
        const coarse = up === pyramid.levels - 1 || isLoaded(pyramid, up, a, b) ? pyramid.tile(up, a, b) : null;
        if (!coarse) continue;
        drawTile(ctx, scene, coarse, up, a, b, { level, i, j });
        break;
      }
  }
}

/**
 * @param {Context2D} ctx @param {Scene} scene @param {Matrix} tile
 * @param {number} level @param {number} i @param {number} j
 * @param {{ level: number, i: number, j: number } | null} clipTo  the finer tile that it replaces
 */
function drawTile(ctx, scene, tile, level, i, j, clipTo) {
  const { viewport } = scene;
  const cell = 2 ** level;
  const x = (j * TILE * cell - viewport.x) * viewport.k;
  const y = (i * TILE * cell - viewport.y) * viewport.k;
  ctx.save();
  if (clipTo) {
    const side = TILE * 2 ** clipTo.level * viewport.k;
    ctx.beginPath();
    ctx.rect(clipTo.j * side - viewport.x * viewport.k, clipTo.i * side - viewport.y * viewport.k, side, side);
    ctx.clip();
  }
  ctx.drawImage(tileImage(tile, scene), x, y, tile.cols * cell * viewport.k, tile.rows * cell * viewport.k); // clipped to the map
  ctx.restore();
}

/** @param {Context2D} ctx @param {Scene} scene @param {Set<string>} visible */
function drawCells(ctx, scene, visible) {
  const { viewport, mapData, scale, theme, colors } = scene;
  const { row0, row1, col0, col1 } = visibleCells(scene);
  const tiles = visibleTiles(viewport, scene.plotArea, mapData.pyramid, 0);
  for (const { i, j } of tiles) visible.add(tileKey(0, i, j));
  if (tiles.filter(({ i, j }) => !mapData.pyramid.tile(0, i, j)).length) drawTiles(ctx, scene, visible); // coarser tiles until they arrive
  const gap = viewport.k >= 22 ? 1 : 0.5;
  const decimals = Math.min(scene.decimals, viewport.k >= 46 ? 3 : 2); // that fit into a cell
  const larger = scene.labelSize / LABEL_PX;
  const showsValues = viewport.k >= MIN_VALUE_PX * larger;
  ctx.font = `${Math.min(13 * larger, Math.max(9.5, viewport.k / 3.6))}px ${FONT}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let row = row0; row < row1; row++)
    for (let col = col0; col < col1; col++) {
      const value = valueAt(mapData.pyramid, row, col);
      if (value === null) continue;
      const position = scalePosition(scale, valueAt(mapData.colorPyramid, row, col) ?? 0);
      const [x, y] = [(col - viewport.x) * viewport.k, (row - viewport.y) * viewport.k];
      const color = colorAt(theme, position);
      if (position !== 0) {
        ctx.fillStyle = toCss(color);
        ctx.beginPath();
        ctx.roundRect(x + gap, y + gap, viewport.k - 2 * gap, viewport.k - 2 * gap, viewport.k >= 22 ? 3 : 1);
        ctx.fill();
      }
      if (showsValues && Math.abs(value) >= 0.5 * 10 ** -decimals) {
        ctx.fillStyle = Math.abs(position) < 0.04 ? colors.muted : textColorOn(color);
        ctx.fillText(formatCompact(value, decimals), x + viewport.k / 2, y + viewport.k / 2 + 0.5);
      }
    }
}
