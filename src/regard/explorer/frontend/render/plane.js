// The plane of the token vectors: positions between stages, the viewport that fits, labels that do not overlap, and the drawing.

import { FONT } from "./scene.js";

const MARGIN = 44;
const MAX_LABELS = 120;
export const MANY_DOTS = 500; // of more, only those that are selected leave a trail
const RUN_COLORS = /** @type {const} */ (["a", "b"]);

/** The position at a stage, or between two. @param {Point[]} track @param {number} stage @returns {Point} */
export function positionAt(track, stage) {
  const position = Math.max(0, Math.min(track.length - 1, stage));
  const [low, high] = [track[Math.floor(position)], track[Math.ceil(position)]];
  const part = position % 1;
  return { x: low.x + (high.x - low.x) * part, y: low.y + (high.y - low.y) * part };
}

/**
 * The bounds of all points; without those that are far out: farther from the middle half of their stage than `reach`
 * times the width that the middle half has at the widest stage, since the vectors of many models grow from layer to layer.
 * @param {Point[][]} tracks of the same stages @param {number} [reach] @returns {Box}
 */
export function boundsOf(tracks, reach = Infinity) {
  const rangeOf = (/** @type {"x" | "y"} */ axis) => {
    const stages = tracks[0].map((_, stage) => {
      const values = Float64Array.from(tracks, (track) => track[stage][axis]).sort();
      const [low, high] = [0.25, 0.75].map((share) => values[Math.round(share * (values.length - 1))]);
      return { values, low, high };
    });
    const far = reach * Math.max(...stages.map(({ low, high }) => high - low)) || Infinity;
    const near = stages.map(({ values, low, high }) =>
      values.filter((value) => low - far <= value && value <= high + far),
    );
    return [Math.min(...near.map((values) => values[0])), Math.max(...near.map((values) => values[values.length - 1]))];
  };
  const [[left, right], [top, bottom]] = [rangeOf("x"), rangeOf("y")];
  return { left, right, top, bottom };
}

/** The viewport that shows all within some bounds, with one scale for both axes. @param {Box} bounds @param {Size} size */
export function fitViewport({ left, right, top, bottom }, { width, height }) {
  const k = Math.min((width - 2 * MARGIN) / (right - left || 1), (height - 2 * MARGIN) / (bottom - top || 1));
  return { k, x: (left + right - width / k) / 2, y: (top + bottom - height / k) / 2 };
}

/**
 * Boxes of labels beside their points, the first labels first; null where every position overlaps another, or a point.
 * @param {(Point & { width: number })[]} labels @param {Point[]} points @param {Size} size
 */
export function placeLabels(labels, points, size) {
  /** @type {Box[]} */
  const occupied = points.map(({ x, y }) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  return labels.map(({ x, y, width }) => {
    for (const [dx, dy] of [
      [8, 4],
      [-8 - width, 4],
      [-width / 2, -9],
      [-width / 2, 17],
    ]) {
      const box = { left: x + dx, right: x + dx + width, top: y + dy - 11, bottom: y + dy + 3 };
      if (box.left < 0 || box.right > size.width || box.top < 0 || box.bottom > size.height) continue;
      if (occupied.some((other) => overlaps(box, other))) continue;
      occupied.push(box);
      return box;
    }
    return null;
  });
}

/** @param {Box} one @param {Box} other */
function overlaps(one, other) {
  return other.right >= one.left && other.left <= one.right && other.bottom >= one.top && other.top <= one.bottom;
}

/**
 * Draw the plane; the points of all dots in pixels, and the boxes of their labels by index.
 * @param {Context2D} ctx @param {PlaneScene} scene
 */
export function drawPlane(ctx, { dots, stage, focused, viewport, size, colors }) {
  const toPixels = (/** @type {Point} */ { x, y }) => ({
    x: (x - viewport.x) * viewport.k,
    y: (y - viewport.y) * viewport.k,
  });
  const points = dots.map(({ track }) => toPixels(positionAt(track, stage)));
  const hasSelection = dots.some(({ isSelected }) => isSelected);
  dots.forEach(({ isSelected, side, track }, n) => {
    if (dots.length > MANY_DOTS && !isSelected) return;
    const trail = [...track.slice(0, Math.floor(stage) + 1).map(toPixels), points[n]];
    ctx.strokeStyle = ctx.fillStyle = colors[RUN_COLORS[side]];
    ctx.lineWidth = isSelected ? 2 : 1;
    ctx.globalAlpha = isSelected ? 0.95 : hasSelection ? 0.1 : 0.22;
    ctx.beginPath();
    trail.forEach(({ x, y }, stop) => (stop === 0 ? ctx.moveTo(x, y) : ctx.lineTo(x, y)));
    ctx.stroke();
    ctx.globalAlpha = 0.4;
    fillCircle(ctx, trail[0], 2);
  });
  ctx.globalAlpha = 1;
  const visible = points.flatMap(({ x, y }, n) =>
    x > -9 && y > -9 && x < size.width + 9 && y < size.height + 9 ? n : [],
  );
  const radius = dots.length > MANY_DOTS ? 2.5 : 4;
  for (const n of visible) drawDot(ctx, points[n], dots[n], radius, colors);
  if (focused >= 0) {
    ctx.beginPath();
    ctx.arc(points[focused].x, points[focused].y, 9, 0, 2 * Math.PI);
    [ctx.strokeStyle, ctx.lineWidth] = [colors.text, 2];
    ctx.stroke();
  }
  return { points, labels: drawLabels(ctx, dots, points, visible, size, colors) };
}

/** A disc; a ring for what the plane is not fitted to. @param {Context2D} ctx @param {Point} point
 * @param {Dot} dot @param {number} radius @param {ThemeColors} colors */
function drawDot(ctx, point, { side, isSelected, isFitted }, radius, colors) {
  const color = colors[RUN_COLORS[side]];
  ctx.fillStyle = isFitted ? color : colors.ground;
  fillCircle(ctx, point, isSelected ? 6 : radius);
  if (isFitted && !isSelected) return;
  [ctx.strokeStyle, ctx.lineWidth] = [isFitted ? colors.ground : color, 1.5];
  ctx.stroke();
}

/** @param {Context2D} ctx @param {Point} center @param {number} radius */
function fillCircle(ctx, { x, y }, radius) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}

/**
 * @param {Context2D} ctx @param {Dot[]} dots @param {Point[]} points @param {number[]} visible indices
 * @param {Size} size @param {ThemeColors} colors
 */
function drawLabels(ctx, dots, points, visible, size, colors) {
  const selectedFirst = visible.filter((n) => dots[n].isSelected).concat(visible.filter((n) => !dots[n].isSelected));
  const labelled = selectedFirst.slice(0, MAX_LABELS);
  const fontOf = (/** @type {number} */ n) => `${dots[n].isSelected ? 600 : 400} 13px ${FONT}`;
  const sized = labelled.map((n) => {
    ctx.font = fontOf(n);
    return { ...points[n], width: ctx.measureText(dots[n].label).width };
  });
  const dotsShown = visible.map((n) => points[n]);
  const boxes = placeLabels(sized, dotsShown, size);
  return labelled.flatMap((n, index) => {
    const box = boxes[index];
    if (!box) return [];
    [ctx.font, ctx.fillStyle] = [fontOf(n), dots[n].side === 1 ? colors.b : colors.text];
    ctx.fillText(dots[n].label, box.left, box.bottom - 3);
    return { n, ...box };
  });
}
