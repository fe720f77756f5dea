// The plane of the token vectors: a canvas with zoom and pan, and a list of the tokens for keys and screen readers.

import { el, onArrows, setAttribute, setTabStop } from "../platform/dom.js";
import { boundsOf, drawPlane, fitViewport } from "../render/plane.js";
import { themeColors } from "../render/scene.js";
import { ZoomView } from "./zoom-view.js";

const MAX_ZOOM = 200; // beyond the whole
const HIT_PX = 14;
const REACH = 3; // of what is shown at first, in widths of the middle half of the tokens; one has to zoom out to see the rest
const EMPTY = { left: -1, right: 1, top: -1, bottom: 1 };

export class PlaneView extends ZoomView {
  /** @param {App} app */
  constructor(app) {
    super(app.refs.plane, "Show all tokens");
    this.app = app;
    this.list = app.refs.planeTokens;
    this.buttons = /** @type {HTMLButtonElement[]} */ ([]); // of the list, one for each dot
    this.dots = /** @type {Dot[]} */ ([]);
    this.stagePosition = 0;
    this.focused = -1;
    this.bounds = this.fittedBounds = EMPTY;
    this.hasOutside = false; // at some stage, of what the plane is fitted to
    this.drawn = /** @type {ReturnType<typeof drawPlane>} */ ({ points: [], labels: [] });
    this.list.addEventListener("click", ({ target }) => this.selectDot(this.indexOf(target)));
    this.list.addEventListener("focusin", ({ target }) => this.setFocused(this.indexOf(target)));
    this.list.addEventListener("focusout", () => this.setFocused(-1));
    onArrows(this.list, "button");
  }

  /** @param {Dot[]} dots @param {number} stage */
  show(dots, stage) {
    this.dots = dots;
    this.stagePosition = stage;
    this.colors = themeColors(this.node);
    if (dots.length > 0) {
      const tracksOf = (/** @type {Dot[]} */ some) => some.map(({ track }) => track);
      const fitted = dots.filter(({ isFitted }) => isFitted);
      this.bounds = boundsOf(tracksOf(dots));
      const tracks = tracksOf(fitted.length > 0 ? fitted : dots);
      this.fittedBounds = boundsOf(tracks, REACH);
      this.hasOutside = String(Object.values(this.fittedBounds)) !== String(Object.values(boundsOf(tracks)));
    }
    this.viewport = this.isWhole ? this.whole() : this.clamp(this.viewport);
    this.showList();
    this.draw();
  }

  /** @param {number} stage */
  setStage(stage) {
    this.stagePosition = stage;
    this.draw();
  }

  showList() {
    const names = this.dots.map(({ side, label }) => `${"AB"[side]} ${label}`);
    if (names.length !== this.buttons.length || names.some((name, n) => name !== this.buttons[n].textContent)) {
      this.buttons = names.map((name) => el("button", { type: "button", tabIndex: -1 }, name));
      this.list.replaceChildren(...this.buttons);
      this.focused = -1;
    }
    this.dots.forEach(({ isSelected }, n) => setAttribute(this.buttons[n], "aria-pressed", String(isSelected)));
    const selected = this.dots.findIndex(({ isSelected }) => isSelected);
    setTabStop(this.buttons, this.buttons[this.focused >= 0 ? this.focused : Math.max(0, selected)]);
  }

  // The viewport

  measure() {
    this.plotArea = { left: 0, top: 0, ...this.size, strip: 0 };
  }

  whole() {
    return fitViewport(this.fittedBounds, this.plotArea);
  }

  /** Within what shows all dots. @param {Viewport} viewport */
  clamp({ x, y, k }) {
    const { width, height } = this.plotArea;
    const [whole, all] = [this.whole(), fitViewport(this.bounds, this.plotArea)];
    const rangeOf = (/** @type {"x" | "y"} */ axis, /** @type {number} */ pixels) => [
      Math.min(whole[axis], all[axis]),
      Math.max(whole[axis] + pixels / whole.k, all[axis] + pixels / all.k),
    ];
    const [[left, right], [top, bottom]] = [rangeOf("x", width), rangeOf("y", height)];
    const least = Math.min(width / (right - left), height / (bottom - top));
    const scale = Math.max(least, Math.min(whole.k * MAX_ZOOM, k));
    const within = (/** @type {number} */ at, /** @type {number} */ first, /** @type {number} */ last) =>
      first > last ? (first + last) / 2 : Math.max(first, Math.min(last, at));
    return { k: scale, x: within(x, left, right - width / scale), y: within(y, top, bottom - height / scale) };
  }

  /** @param {Viewport} viewport */
  showsWhole({ x, y, k }) {
    const whole = this.whole();
    const near = (/** @type {number} */ a, /** @type {number} */ b) => Math.abs(a - b) * k < 0.5; // pixels
    return Math.abs(k / whole.k - 1) < 1e-3 && near(x, whole.x) && near(y, whole.y);
  }

  /** @param {Context2D} context */
  paint(context) {
    const { dots, stagePosition: stage, focused, viewport, size, colors } = this;
    this.drawn = drawPlane(context, { dots, stage, focused, viewport, size, colors });
  }

  // Input

  /** The index of the dot whose label or point is at an event, or -1. @param {PointerPosition} event */
  dotAt(event) {
    const { px, py } = this.pointOf(event);
    const { points, labels } = this.drawn;
    const label = labels.find((box) => px >= box.left && px <= box.right && py >= box.top && py <= box.bottom);
    if (label) return label.n;
    const distances = points.map(({ x, y }) => Math.hypot(x - px, y - py));
    const nearest = distances.reduce((best, distance, n) => (distance < (distances[best] ?? HIT_PX) ? n : best), -1);
    return nearest;
  }

  /** @param {PointerPosition} event */
  onClick(event) {
    this.selectDot(this.dotAt(event));
  }

  /** @param {PointerPosition} event */
  tipText(event) {
    const dot = this.dots[this.dotAt(event)];
    this.stage.classList.toggle("rg-pointed", dot !== undefined);
    return dot?.label ?? "";
  }

  /** @param {EventTarget | null} target */
  indexOf(target) {
    return this.buttons.indexOf(/** @type {HTMLButtonElement} */ (target));
  }

  /** @param {number} index */
  selectDot(index) {
    if (index >= 0) this.app.set({ row: this.dots[index].token });
  }

  /** @param {number} index */
  setFocused(index) {
    this.focused = index;
    const point = this.drawn.points[index];
    const { width, height } = this.plotArea;
    if (point && (point.x < 0 || point.y < 0 || point.x > width || point.y > height))
      this.jumpTo(this.panBy(width / 2 - point.x, height / 2 - point.y));
    this.draw();
  }
}
