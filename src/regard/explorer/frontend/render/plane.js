// The plane of the movement: positions between stages, the fit into a picture, and labels that do not overlap. Pure functions.

/** @typedef {{ width: number, height: number }} Size  in pixels */

const MARGIN = 44;

/**
 * The positions of the tokens at a stage, or between two.
 * @param {number[][][]} points L T 2 @param {number} stage
 */
export function interpolateStage(points, stage) {
  const position = Math.max(0, Math.min(points.length - 1, stage));
  const [low, high] = [Math.floor(position), Math.ceil(position)];
  const part = position - low;
  return points[low].map(([x, y], t) => [x + (points[high][t][0] - x) * part, y + (points[high][t][1] - y) * part]);
}

/** The transform that fits points into a picture, with one scale for both axes. @param {number[][]} points N 2 @param {Size} size */
export function fitTransform(points, { width, height }) {
  const rangeOf = (/** @type {number} */ axis) => {
    const values = points.map((point) => point[axis]);
    return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  };
  const [[x0, x1], [y0, y1]] = [rangeOf(0), rangeOf(1)];
  const scale = Math.min((width - 2 * MARGIN) / (x1 - x0 || 1), (height - 2 * MARGIN) / (y1 - y0 || 1));
  return (/** @type {number[]} */ [x, y]) => [
    width / 2 + (x - (x0 + x1) / 2) * scale,
    height / 2 - (y - (y0 + y1) / 2) * scale,
  ];
}

/**
 * Positions of labels beside their points, the first labels first; null where every position overlaps another.
 * @param {{ x: number, y: number, width: number }[]} labels @param {Size} size
 */
export function placeLabels(labels, size) {
  /** @type {{ left: number, right: number, top: number, bottom: number }[]} */
  const occupied = labels.map(({ x, y }) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  return labels.map(({ x, y, width }, own) => {
    for (const [dx, dy] of [
      [8, 4],
      [-8 - width, 4],
      [-width / 2, -9],
      [-width / 2, 17],
    ]) {
      const box = { left: x + dx, right: x + dx + width, top: y + dy - 11, bottom: y + dy + 3 };
      const overlaps = occupied.some(
        ({ left, right, top, bottom }, n) =>
          n !== own && right >= box.left && left <= box.right && bottom >= box.top && top <= box.bottom,
      );
      if (overlaps || box.left < 0 || box.right > size.width || box.top < 0 || box.bottom > size.height) continue;
      occupied.push(box);
      return { x: x + dx, y: y + dy };
    }
    return null;
  });
}
