// The legend: what the colours mean.

import { el, muted } from "../platform/dom.js";
import { colorAt, toCss } from "../render/colormap.js";
import { formatTick } from "../render/format.js";
import { scalePosition, ticks } from "../render/scale.js";

export class Legend {
  /** @param {HTMLElement} node  empty */
  constructor(node) {
    this.node = node;
    this.canvas = el("canvas", { class: "rg-legend-bar", "aria-hidden": "true" });
    [this.canvas.width, this.canvas.height] = [256, 1];
    this.tickLabels = el("div", { class: "rg-legend-ticks" });
    this.description = muted();
    node.append(el("div", { class: "rg-legend-scale" }, this.canvas, this.tickLabels), this.description);
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
