// A canvas that zooms and pans, by Ctrl and the wheel, drag, pinch, keys and buttons: the base of the map and of the
// plane. The wheel alone scrolls the page.

import { el } from "../platform/dom.js";
import { themeColors } from "../render/scene.js";
import { SvgContext } from "../render/svg-context.js";
import { interpolate, zoomAt } from "../render/viewport.js";
import { prefersReducedMotion } from "./player.js";

const ZOOM_STEP = 1.6;
const ANIMATION_MS = 180;
const CLICK_TOLERANCE_PX = 5;
const WHEEL_SPEED = 0.01; // of a pixel; a pinch on a trackpad is a wheel with Ctrl to the browser, in steps of few pixels
const MAX_WHEEL_PX = 40;
const HINT_MS = 1500;
const ZOOMS = [
  ["+", "+", "Zoom in"],
  ["-", "−", "Zoom out"],
  ["0", "⤢", ""],
];
/** The key that zooms with the wheel. */
export const WHEEL_KEY = /Mac|iPad|iPhone/.test(globalThis.navigator?.platform ?? "") ? "⌘" : "Ctrl";

export class ZoomView {
  /** @param {HTMLElement} node  with its stage @param {string} whole  what is seen when nothing is zoomed */
  constructor(node, whole) {
    this.node = node;
    this.stage = /** @type {HTMLElement} */ (node.children[0]);
    this.canvas = el("canvas", { class: "rg-canvas", "aria-hidden": "true" });
    this.tip = el("div", { class: "rg-tip", "aria-hidden": "true", hidden: true });
    const hint = `${WHEEL_KEY} + wheel zooms`;
    this.hint = el("p", { class: "rg-wheel-hint", "aria-hidden": "true", hidden: true }, hint);
    this.stage.prepend(this.canvas, this.tip, this.hint);
    const buttons = ZOOMS.map(([key, sign, does]) => {
      const title = `${does || whole} (${sign === "⤢" ? key : sign})`;
      return el("button", { type: "button", class: "rg-icon", title, "aria-label": title, data: { zoom: key } }, sign);
    });
    node.append(el("div", { class: "rg-zoom", role: "group", "aria-label": "Zoom" }, ...buttons));
    node.addEventListener("click", ({ target }) => this.zoomByKey(/** @type {HTMLElement} */ (target).dataset.zoom));
    this.viewport = /** @type {Viewport} */ ({ x: 0, y: 0, k: 1 });
    this.target = /** @type {Viewport | null} */ (null); // of an animation
    this.size = { width: 0, height: 0 }; // of the canvas; in print, of the window
    this.plotArea = { left: 0, top: 0, width: 100, height: 100, strip: 0 };
    this.colors = themeColors(this.node);
    this.isWhole = true;
    this.frame = 0; // in which it is drawn next, or 0
    this.listenToWheel();
    this.listenToPointers();
    new ResizeObserver(() => this.onResize()).observe(this.stage);
  }

  // What a view defines

  whole() {
    return this.viewport;
  }
  clamp(/** @type {Viewport} */ viewport) {
    return viewport;
  }
  showsWhole(/** @type {Viewport} */ _) {
    return true;
  }
  measure() {} // the plot area
  paint(/** @type {Context2D} */ _) {} // on the canvas, or as SVG
  onViewport() {} // it has changed
  onClick(/** @type {PointerPosition} */ _) {}
  /** "" for none. @param {PointerPosition} _ */
  tipText(_) {
    return "";
  }
  /** The point about which keys and buttons zoom. */
  zoomCenter() {
    return { x: this.plotArea.width / 2, y: this.plotArea.height / 2 };
  }

  // Drawing

  onResize() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.stage.clientWidth, this.stage.clientHeight];
    if (width === 0 || height === 0) return;
    this.size = { width, height };
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.measure();
    this.viewport = this.isWhole ? this.whole() : this.clamp(this.viewport);
    this.drawNow();
  }

  /** In the next frame. */
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const context = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    if (!context || this.canvas.width === 0) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.colors.ground;
    context.fillRect(0, 0, this.size.width, this.size.height);
    this.paint(context);
    this.node.dataset.drawn = String(Number(this.node.dataset.drawn ?? 0) + 1);
  }

  /** The drawing as SVG. */
  toSvg() {
    const measuring = /** @type {CanvasRenderingContext2D} */ (el("canvas").getContext("2d"));
    const context = new SvgContext(this.size.width, this.size.height, measuring);
    this.paint(context);
    return context.root;
  }

  // Zoom and pan

  fit() {
    this.animateTo(this.whole());
  }

  /** In, out or the whole, by a key or its button. @param {string} [key] + = - or 0 */
  zoomByKey(key) {
    if (key === "0") this.fit();
    else if (key) this.zoomBy(key === "-" ? 1 / ZOOM_STEP : ZOOM_STEP);
  }

  /** @param {number} factor */
  zoomBy(factor) {
    const { x, y } = this.zoomCenter();
    this.animateTo(this.zoomedAt(this.target ?? this.viewport, factor, x, y));
  }

  /** @param {Viewport} from @param {number} factor @param {number} px @param {number} py */
  zoomedAt(from, factor, px, py) {
    return zoomAt(from, factor, px, py, (viewport) => this.clamp(viewport));
  }

  /** @param {Viewport} viewport */
  jumpTo(viewport) {
    this.target = null;
    this.setViewport(viewport);
  }

  /** @param {Viewport} target */
  animateTo(target) {
    if (prefersReducedMotion()) return this.jumpTo(target);
    const [from, start] = [this.viewport, performance.now()];
    this.target = target;
    const step = (/** @type {number} */ now) => {
      if (this.target !== target) return;
      const time = Math.max(0, Math.min(1, (now - start) / ANIMATION_MS));
      if (time === 1) return this.jumpTo(target);
      this.setViewport(interpolate(from, target, 1 - (1 - time) ** 3));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** @param {Viewport} viewport */
  setViewport(viewport) {
    this.viewport = viewport;
    this.isWhole = this.showsWhole(viewport);
    this.stage.style.touchAction = this.isWhole ? "pan-y" : "none"; // a finger scrolls the page, or pans
    this.draw();
    this.onViewport();
  }

  // Input

  /** The position of an event in the plot area. @param {PointerPosition} event */
  pointOf({ clientX, clientY }) {
    const box = this.stage.getBoundingClientRect();
    return { px: clientX - box.left - this.plotArea.left, py: clientY - box.top - this.plotArea.top };
  }

  /** @param {number} dx @param {number} dy in pixels */
  panBy(dx, dy) {
    const { x, y, k } = this.viewport;
    return this.clamp({ k, x: x - dx / k, y: y - dy / k });
  }

  listenToWheel() {
    const onWheel = (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.metaKey) return this.showHint(); // the page scrolls
      const { px, py } = this.pointOf(event);
      event.preventDefault();
      this.hint.remove(); // it is known now
      const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
      const step = Math.max(-MAX_WHEEL_PX, Math.min(MAX_WHEEL_PX, pixels));
      this.jumpTo(this.zoomedAt(this.viewport, Math.exp(-step * WHEEL_SPEED), px, py));
    };
    this.stage.addEventListener("wheel", onWheel, { passive: false });
  }

  /** Say for a moment what zooms. */
  showHint() {
    this.hint.hidden = false;
    clearTimeout(this.hintTimer);
    this.hintTimer = setTimeout(() => (this.hint.hidden = true), HINT_MS);
  }

  listenToPointers() {
    const down = /** @type {Map<number, { x: number, y: number }>} */ (new Map());
    let moved = 0;
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      moved = 0;
    });
    this.stage.addEventListener("pointermove", (event) => {
      const last = down.get(event.pointerId);
      if (!last) return this.onHover(event);
      const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
      moved += Math.abs(dx) + Math.abs(dy);
      if (down.size === 2) this.onPinch(down, event);
      else if (moved > CLICK_TOLERANCE_PX && !this.isWhole) {
        this.stage.setPointerCapture(event.pointerId);
        this.jumpTo(this.panBy(dx, dy));
      } else return;
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    const onUp = (/** @type {PointerEvent} */ event) => {
      const isClick = down.delete(event.pointerId) && moved <= CLICK_TOLERANCE_PX && event.type === "pointerup";
      if (isClick) this.onClick(event);
    };
    this.stage.addEventListener("pointerup", onUp);
    this.stage.addEventListener("pointercancel", onUp);
    this.stage.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  /** @param {Map<number, { x: number, y: number }>} down @param {PointerEvent} event */
  onPinch(down, event) {
    const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const last = /** @type {{x: number, y: number}} */ (down.get(event.pointerId));
    const before = Math.hypot(last.x - other.x, last.y - other.y);
    const now = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const center = { clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2 };
    const { px, py } = this.pointOf(center);
    this.jumpTo(this.zoomedAt(this.viewport, now / Math.max(1, before), px, py));
  }

  /** @param {PointerEvent} event */
  onHover(event) {
    const text = this.tipText(event);
    this.tip.hidden = text === "";
    if (this.tip.hidden) return;
    this.tip.textContent = text;
    const box = this.stage.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const left = Math.max(4, Math.min(box.width - this.tip.offsetWidth - 4, x + 14));
    this.tip.style.transform = `translate(${left}px, ${y > 70 ? y - 44 : y + 18}px)`;
  }
}
