// The legend: what the colours mean.

import { el } from "../platform/dom.js";
import { colorAt, toCss } from "../render/colormap.js";
import { formatTick } from "../render/format.js";
import { scalePosition, ticks } from "../render/scale.js";

export class Legend {
  /** @param {HTMLElement} node */
  constructor(node) {
    this.node = node;
    this.canvas = /** @type {HTMLCanvasElement} */ (node.querySelector("canvas"));
    this.tickLabels = /** @type {Element} */ (node.querySelector(".rg-legend-ticks"));
    this.description = /** @type {Element} */ (node.lastElementChild);
  }

  /** @param {Scale} scale @param {Theme} theme @param {string} description */
  update(scale, theme, description) {
    const context = this.canvas.getContext("2d");
    for (let x = 0; context && x < 256; x++) {
      context.fillStyle = toCss(colorAt(theme, scale.signed ? (x - 127.5) / 127.5 : x / 255));
      context.fillRect(x, 0, 1, 1);
    }
    const where = (/** @type {number} */ value) =>
      scale.signed ? (scalePosition(scale, value) + 1) / 2 : scalePosition(scale, value);
    this.tickLabels.replaceChildren(
      ...ticks(scale).map((value) => el("span", { style: { left: `${100 * where(value)}%` } }, formatTick(value))),
    );
    this.description.textContent = description;
  }
}
