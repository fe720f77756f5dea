// A pen that leaves SVG where a canvas' context leaves pixels: as much of a context as the drawings of paint.js use, so
// that what is saved is drawn by the lines that draw the page.

import { svg } from "../platform/dom.js";

/** @typedef {import("./map-renderer.js").Pen} Pen */

const ANCHOR = /** @type {Record<string, string>} */ ({ right: "end", center: "middle" });
const LOOK = [
  "fillStyle",
  "strokeStyle",
  "lineWidth",
  "globalAlpha",
  "font",
  "textAlign",
  "textBaseline",
  "direction",
  "imageSmoothingEnabled",
];

/** @implements {Pen} */
export class SvgPen {
  /** @param {number} width @param {number} height @param {CanvasRenderingContext2D} ruler  measures text */
  constructor(width, height, ruler) {
    this.root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    this.ruler = ruler;
    this.into = this.root;
    /** @type {any[]} */
    this.saved = [];
    this.d = "";
    /** @type {{ x: number, y: number, width: number, height: number, rx: number } | null} */
    this.box = null;
    this.fillStyle = this.strokeStyle = "#000000";
    this.lineWidth = this.globalAlpha = 1;
    this.font = "12px sans-serif";
    /** @type {CanvasTextAlign} */
    this.textAlign = "left";
    /** @type {CanvasTextBaseline} */
    this.textBaseline = "alphabetic";
    /** @type {CanvasDirection} */
    this.direction = "ltr";
    this.imageSmoothingEnabled = true;
  }

  save() {
    const now = /** @type {any} */ (this);
    this.saved.push({ into: this.into, ...Object.fromEntries(LOOK.map((name) => [name, now[name]])) });
  }

  restore() {
    Object.assign(this, this.saved.pop());
  }

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {...string} text */
  put(tag, attributes, ...text) {
    const settled = Object.entries(attributes).map(([name, value]) => [
      name,
      typeof value === "number" ? Number(value.toFixed(2)) : value,
    ]);
    const node = svg(
      tag,
      Object.fromEntries(this.globalAlpha < 1 ? [...settled, ["opacity", this.globalAlpha]] : settled),
      ...text,
    );
    this.into.append(node);
    return node;
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.into = this.put("g", { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})` });
  }

  /** @param {number} angle */
  rotate(angle) {
    this.into = this.put("g", { transform: `rotate(${((180 * angle) / Math.PI).toFixed(2)})` });
  }

  beginPath() {
    this.d = "";
    this.box = null;
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.d += `M${x.toFixed(2)} ${y.toFixed(2)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.d += `L${x.toFixed(2)} ${y.toFixed(2)}`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.roundRect(x, y, width, height, 0);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} rx */
  roundRect(x, y, width, height, rx) {
    this.box = { x, y, width: Math.max(0, width), height: Math.max(0, height), rx };
  }

  fill() {
    this.trace({ fill: this.fillStyle });
  }

  stroke() {
    this.trace({ fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  /** @param {Record<string, string | number>} look */
  trace(look) {
    if (this.box) this.put("rect", { ...this.box, ...look });
    else this.put("path", { d: this.d, ...look });
  }

  /** What follows stays within the rectangle of the path. */
  clip() {
    const { x, y, width, height } = this.box ?? { x: 0, y: 0, width: 0, height: 0 };
    this.into = this.put("svg", {
      x,
      y,
      width,
      height,
      viewBox: [x, y, width, height].map((n) => n.toFixed(2)).join(" "),
    });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.put("rect", { x, y, width, height, fill: this.fillStyle });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.put("rect", { x, y, width, height, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  /** @param {HTMLCanvasElement} picture @param {number} x @param {number} y @param {number} width @param {number} height */
  drawImage(picture, x, y, width, height) {
    const look = { preserveAspectRatio: "none", "image-rendering": this.imageSmoothingEnabled ? "auto" : "pixelated" };
    this.put("image", { href: picture.toDataURL("image/png"), x, y, width, height, ...look });
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const [, weight, style, size] = /^(\d+ )?(italic )?([\d.]+)px/.exec(this.font) ?? [];
    this.put(
      "text",
      {
        x,
        y,
        fill: this.fillStyle,
        "font-size": Number(size),
        ...(weight && { "font-weight": weight.trim() }),
        ...(style && { "font-style": "italic" }),
        ...(this.textAlign in ANCHOR && { "text-anchor": ANCHOR[this.textAlign] }),
        ...(this.textBaseline === "middle" && { dy: "0.35em" }),
      },
      text,
    );
  }

  /** @param {string} text */
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }
}
