// The legend: what the colours mean.

import { el } from "../platform/dom.js";
import { colourAt, css } from "../render/colormap.js";
import { mark } from "../render/format.js";
import { placeOn, ticks } from "../render/scale.js";

/** @typedef {import("../render/scale.js").Scale} Scale */

export class Legend {
  constructor() {
    this.canvas = el("canvas", { width: "256", height: "1", class: "rg-legend-bar", "aria-hidden": "true" });
    this.marks = el("div", { class: "rg-legend-marks" });
    this.says = el("span", { class: "rg-muted" });
    this.node = el(
      "div",
      { class: "rg-legend", role: "group", "aria-label": "What the colours say" },
      el("div", { class: "rg-legend-scale" }, this.canvas, this.marks),
      this.says,
    );
  }

  /** @param {Scale} scale @param {import("../render/colormap.js").Theme} theme @param {string} says */
  update(scale, theme, says) {
    const context = this.canvas.getContext("2d");
    for (let x = 0; context && x < 256; x++) {
      context.fillStyle = css(colourAt(theme, scale.signed ? (x - 127.5) / 127.5 : x / 255));
      context.fillRect(x, 0, 1, 1);
    }
    const where = (/** @type {number} */ value) =>
      scale.signed ? (placeOn(scale, value) + 1) / 2 : placeOn(scale, value);
    this.marks.replaceChildren(
      ...ticks(scale).map((value) => el("span", { style: { left: `${100 * where(value)}%` } }, mark(value))),
    );
    this.says.textContent = says;
  }
}
