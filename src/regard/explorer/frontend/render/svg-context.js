// A canvas context that records SVG, after canvas2svg: the methods that the map renderer uses.

import { svg } from "../platform/dom.js";

const TEXT_ANCHORS = /** @type {Record<string, string>} */ ({ right: "end", center: "middle" });

/** @implements {Context2D} */
export class SvgContext {
  /** @param {number} width @param {number} height @param {CanvasRenderingContext2D} measuring  for the width of text */
  constructor(width, height, measuring) {
    this.root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    this.measuring = measuring;
    this.parent = this.root;
    this.stack = /** @type {any[]} */ ([]);
    this.shape = "path"; // that is begun, an element
    this.attributes = /** @type {Record<string, string | number>} */ ({ d: "" });
    this.fillStyle = this.strokeStyle = "#000000";
    this.lineWidth = this.globalAlpha = 1;
    this.font = "12px sans-serif";
    this.textAlign = /** @type {CanvasTextAlign} */ ("left");
    this.textBaseline = /** @type {CanvasTextBaseline} */ ("alphabetic");
    this.direction = /** @type {CanvasDirection} */ ("ltr");
    this.imageSmoothingEnabled = true;
  }

  save() {
    this.stack.push({ ...this });
  }

  restore() {
    Object.assign(this, this.stack.pop());
  }

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {...string} text */
  append(tag, attributes, ...text) {
    const node = svg(tag, {}, ...text);
    const opacity = this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {};
    for (const [name, value] of Object.entries({ ...attributes, ...opacity }))
      node.setAttribute(name, typeof value === "number" ? String(Number(value.toFixed(2))) : value);
    this.parent.append(node);
    return node;
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.parent = this.append("g", { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})` });
  }

  /** @param {number} angle */
  rotate(angle) {
    this.parent = this.append("g", { transform: `rotate(${((180 * angle) / Math.PI).toFixed(2)})` });
  }

  beginPath() {
    [this.shape, this.attributes] = ["path", { d: "" }];
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.attributes.d += `M${x.toFixed(2)} ${y.toFixed(2)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.attributes.d += `L${x.toFixed(2)} ${y.toFixed(2)}`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.roundRect(x, y, width, height, 0);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} rx */
  roundRect(x, y, width, height, rx) {
    [this.shape, this.attributes] = ["rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), rx }];
  }

  /** A whole circle. @param {number} cx @param {number} cy @param {number} r */
  arc(cx, cy, r) {
    [this.shape, this.attributes] = ["circle", { cx, cy, r }];
  }

  fill() {
    this.append(this.shape, { ...this.attributes, fill: this.fillStyle });
  }

  stroke() {
    const style = { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth };
    this.append(this.shape, { ...this.attributes, ...style });
  }

  /** Clip what follows to the rectangle of the path. */
  clip() {
    const { x, y, width, height } = this.attributes;
    const viewBox = [x, y, width, height].map((n) => Number(n).toFixed(2)).join(" ");
    this.parent = this.append("svg", { x, y, width, height, viewBox });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.append("rect", { x, y, width, height, fill: this.fillStyle });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.beginPath();
    this.rect(x, y, width, height);
    this.stroke();
  }

  /** @param {HTMLCanvasElement} canvas @param {number} x @param {number} y @param {number} width @param {number} height */
  drawImage(canvas, x, y, width, height) {
    const style = { preserveAspectRatio: "none", "image-rendering": this.imageSmoothingEnabled ? "auto" : "pixelated" };
    this.append("image", { href: canvas.toDataURL("image/png"), x, y, width, height, ...style });
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const [, weight, style, size] = /^(\d+ )?(italic )?([\d.]+)px/.exec(this.font) ?? [];
    const font = {
      "font-size": Number(size),
      ...(weight && { "font-weight": weight.trim() }),
      ...(style && { "font-style": "italic" }),
      ...(this.textAlign in TEXT_ANCHORS && { "text-anchor": TEXT_ANCHORS[this.textAlign] }),
      ...(this.textBaseline === "middle" && { dy: "0.35em" }),
    };
    this.append("text", { x, y, fill: this.fillStyle, ...font }, text);
  }

  /** @param {string} text */
  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }
}
