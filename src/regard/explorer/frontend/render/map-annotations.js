// What surrounds the cells of a map: the cursor, the labels of tokens, and the hidden mass of each row.

import { formatCompact } from "./format.js";
import { FONT, MIN_CELL_GAP_PX, MIN_VALUE_PX, visibleCells } from "./scene.js";

/** @param {Context2D} ctx @param {Scene} scene */
export function drawCursor(ctx, { plotArea, viewport, row, col, colors, mapData, chosen }) {
  ctx.save();
  ctx.beginPath();
  const width = Math.min(plotArea.width, mapData.cols.length * viewport.k);
  const height = Math.min(plotArea.height, mapData.rows.length * viewport.k);
  ctx.rect(plotArea.left - 2, plotArea.top - 2, width + 4, height + 4);
  ctx.clip();
  ctx.strokeStyle = colors.mark;
  const place = (/** @type {number} */ at, /** @type {"left" | "top"} */ side, /** @type {"x" | "y"} */ axis) =>
    plotArea[side] + (at - viewport[axis]) * viewport.k;
  ctx.lineWidth = 1.5;
  for (const { row: i, col: j } of chosen)
    if (i !== null && j !== null)
      ctx.strokeRect(place(j, "left", "x") + 1, place(i, "top", "y") + 1, viewport.k - 2, viewport.k - 2);
  if (row === null || col === null) return ctx.restore();
  const [x, y, side] = [place(col, "left", "x"), place(row, "top", "y"), Math.max(viewport.k, 5)];
  if (viewport.k < MIN_VALUE_PX) {
    ctx.globalAlpha = 0.28;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(plotArea.left, y + viewport.k / 2);
    ctx.lineTo(x, y + viewport.k / 2);
    ctx.moveTo(x + viewport.k / 2, plotArea.top);
    ctx.lineTo(x + viewport.k / 2, y);
    ctx.stroke();
    ctx.globalAlpha = 1;
  }
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.roundRect(x + viewport.k / 2 - side / 2, y + viewport.k / 2 - side / 2, side, side, viewport.k >= 22 ? 4 : 1);
  ctx.stroke();
  ctx.restore();
}

/** @param {Context2D} ctx @param {Scene} scene */
export function drawLabels(ctx, scene) {
  const { plotArea, viewport, mapData } = scene;
  const { row0, row1, col0, col1 } = visibleCells(scene);
  const step = Math.max(1, Math.ceil((scene.labelSize + 1) / viewport.k));
  ctx.textBaseline = "middle";
  for (const row of labelPositions(row0, row1, step, scene.row, scene.rowsFound)) {
    const y = plotArea.top + (row + 0.5 - viewport.y) * viewport.k;
    if (y < plotArea.top - 1 || y > plotArea.top + plotArea.height + 1) continue;
    ctx.textAlign = "right";
    drawLabel(ctx, scene, mapData.rows[row], plotArea.left - 9, y, row === scene.row, scene.rowsFound.has(row));
  }
  for (const col of labelPositions(col0, col1, step, scene.col, scene.colsFound)) {
    const x = plotArea.left + (col + 0.5 - viewport.x) * viewport.k;
    if (x < plotArea.left - 1 || x > plotArea.left + plotArea.width + 1) continue;
    ctx.save();
    ctx.translate(x + 2, plotArea.top - 9);
    ctx.rotate(-Math.PI / 3);
    ctx.textAlign = "left";
    drawLabel(ctx, scene, mapData.cols[col], 0, 0, col === scene.col, scene.colsFound.has(col));
    ctx.restore();
  }
}

/**
 * Which rows or columns have a label: the selected one, matches, and others at a distance.
 * @param {number} from @param {number} to @param {number} step @param {number | null} selected @param {Set<number>} found
 */
export function labelPositions(from, to, step, selected, found) {
  const shown = [];
  const near = (/** @type {number} */ n) => selected !== null && n !== selected && Math.abs(n - selected) < step;
  let last = -Infinity;
  for (let n = from; n < to; n++) {
    if (n === selected || (!near(n) && (n % step === 0 || (found.has(n) && n - last >= step)))) {
      shown.push(n);
      last = n;
    }
  }
  return shown;
}

/**
 * @param {Context2D} ctx @param {Scene} scene @param {Group} group
 * @param {number} x @param {number} y @param {boolean} selected @param {boolean} found
 */
function drawLabel(ctx, { colors, labelSize }, group, x, y, selected, found) {
  ctx.font = `${selected ? "600 " : ""}${group.special ? "italic " : ""}${labelSize}px ${FONT}`;
  ctx.direction = "ltr"; // keeps the anchor; characters within keep their own direction
  if (found) {
    const { width } = ctx.measureText(group.name);
    ctx.fillStyle = colors.found;
    ctx.fillRect(ctx.textAlign === "right" ? x - width - 3 : x - 3, y - labelSize / 2 - 2, width + 6, labelSize + 4);
  }
  ctx.fillStyle = selected ? colors.mark : group.special ? colors.muted : colors.text;
  ctx.fillText(group.name, x, y);
}

/** The width of the longest label, of a sample. @param {Context2D} ctx @param {Group[]} axis @param {number} labelSize */
export function widestLabel(ctx, axis, labelSize) {
  ctx.font = `600 ${labelSize}px ${FONT}`;
  const stride = Math.max(1, Math.floor(axis.length / 300));
  return axis.reduce(
    (widest, group, n) => (n % stride ? widest : Math.max(widest, ctx.measureText(group.name).width)),
    20,
  );
}

/** A bar for the hidden mass of each row. @param {Context2D} ctx @param {Scene} scene @param {number} right */
export function drawHidden(ctx, scene, right) {
  const { plotArea, viewport, mapData, colors } = scene;
  const { row0, row1 } = visibleCells(scene);
  const x = plotArea.left + right + 12;
  ctx.textAlign = "left";
  ctx.save();
  ctx.translate(x + 2, plotArea.top - 9);
  ctx.rotate(-Math.PI / 3);
  ctx.fillStyle = colors.muted;
  ctx.font = `italic ${scene.labelSize}px ${FONT}`;
  ctx.fillText("hidden", 0, 0);
  ctx.restore();
  ctx.textBaseline = "middle";
  for (let row = row0; row < row1; row++) {
    const mass = Math.min(1, Math.max(0, mapData.hiddenMass?.[row] ?? 0));
    const y = plotArea.top + (row - viewport.y) * viewport.k;
    if (y < plotArea.top - viewport.k / 2 || y + viewport.k / 2 > plotArea.top + plotArea.height) continue;
    const gap = viewport.k >= MIN_CELL_GAP_PX ? Math.max(2, viewport.k / 2 - 6) : 0;
    ctx.fillStyle = colors.bar;
    ctx.fillRect(x, y + gap, mass * 36, Math.max(0.5, viewport.k - 2 * gap));
    if (viewport.k > scene.labelSize) {
      ctx.fillStyle = colors.muted;
      ctx.font = `${scene.labelSize - 1}px ${FONT}`;
      ctx.fillText(formatCompact(mass, 2), x + mass * 36 + 5, y + viewport.k / 2 + 0.5);
    }
  }
}
