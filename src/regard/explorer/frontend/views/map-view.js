// The map of one head: a canvas with zoom, pan and a cell cursor.

import { el, iconButton, oncePerFrame } from "../platform/dom.js";
import { colorTable } from "../render/colormap.js";
import { widestLabel } from "../render/map-annotations.js";
import { drawMap } from "../render/map-renderer.js";
import { levelOf, themeColors, valueAt } from "../render/scene.js";
import { SvgContext } from "../render/svg-context.js";
import { clampViewport, fitWhole, interpolate, minCellSize, panTo, zoomAt } from "../render/viewport.js";

/**
 * @typedef {import("../render/scene.js").Scene} Scene
 * @typedef {import("../render/viewport.js").Viewport} Viewport
 * @typedef {Omit<Scene, "viewport" | "table" | "colors" | "plotArea"> & { viewport: Viewport | null, cellMax: number }} MapProps
 *   `cellMax` ends the scale of single cells; the viewport is null for the whole map.
 * @typedef {{ selectCell: (row: number, col: number) => void, openCell: () => void, saveViewport: (viewport: Viewport | null) => void,
 *   message: (row: number, col: number, value: number | null) => string, usesWheel: () => boolean }} Actions
 */

const ANIMATION_MS = 180;
const SAVE_DELAY_MS = 200;
const ZOOM_STEP = 1.6;
const CLICK_TOLERANCE_PX = 5;
const READABLE_CELL_PX = 34; // a cell shows its value
const LABEL_ANGLE = Math.PI / 3;

export class MapView {
  /** @param {Actions} actions @param {string} describedBy  the id of the message about the cell */
  constructor(actions, describedBy) {
    this.actions = actions;
    this.canvas = el("canvas", { class: "rg-canvas", "aria-hidden": "true" });
    this.tip = el("div", { class: "rg-tip", hidden: true, "aria-hidden": "true" });
    this.stage = el(
      "div",
      {
        class: "rg-stage",
        tabIndex: 0,
        role: "application",
        "aria-roledescription": "attention map",
        "aria-label": "Attention map",
        "aria-describedby": describedBy,
      },
      this.canvas,
      this.tip,
    );
    const zoom = (/** @type {number} */ factor) => () => this.zoomBy(factor);
    this.node = el(
      "div",
      { class: "rg-map" },
      this.stage,
      el(
        "div",
        { class: "rg-zoom", role: "group", "aria-label": "Zoom" },
        iconButton("Zoom in (+)", "+", zoom(ZOOM_STEP)),
        iconButton("Zoom out (−)", "−", zoom(1 / ZOOM_STEP)),
        iconButton("Show the whole map (0)", "⤢", () => this.fit()),
      ),
    );
    /** @type {MapProps | null} */
    this.props = null;
    /** @type {Viewport} */
    this.viewport = { x: 0, y: 0, k: 1 };
    /** @type {Viewport | null} */
    this.target = null; // of an animation
    this.size = { width: 0, height: 0 }; // of the canvas; in print, of the window
    this.plotArea = { left: 80, top: 60, width: 100, height: 100, strip: 0 };
    this.table = colorTable("light");
    this.colors = themeColors(this.node);
    this.savedViewport = ""; // as JSON
    this.isWhole = true;
    this.draw = oncePerFrame(() => this.drawNow());
    this.listenToWheel();
    this.listenToPointers();
    new ResizeObserver(() => this.onResize()).observe(this.stage);
  }

  /** @param {MapProps} props */
  show(props) {
    const before = this.props;
    const { rows, cols } = props.mapData;
    const isSameSize =
      before && before.mapData.rows.length === rows.length && before.mapData.cols.length === cols.length;
    this.props = props;
    if (before?.theme !== props.theme) {
      this.table = colorTable(props.theme);
      this.colors = themeColors(this.node);
    }
    this.measure();
    const saved = JSON.stringify(props.viewport);
    if (!isSameSize || saved !== this.savedViewport) {
      this.target = null;
      this.viewport = props.viewport ? this.clamp(props.viewport) : this.whole();
    } else if (!this.target) this.viewport = this.isWhole ? this.whole() : this.clamp(this.viewport);
    this.savedViewport = saved;
    this.isWhole = this.showsWhole(this.viewport);
    this.draw();
  }

  extent() {
    const mapData = this.props?.mapData;
    return { rows: mapData?.rows.length ?? 1, cols: mapData?.cols.length ?? 1 };
  }

  whole() {
    return fitWhole(this.extent(), this.plotArea);
  }

  /** @param {Viewport} viewport */
  clamp(viewport) {
    return clampViewport(viewport, this.extent(), this.plotArea);
  }

  /** @param {Viewport} viewport */
  showsWhole(viewport) {
    return viewport.k <= minCellSize(this.extent(), this.plotArea) * 1.001;
  }

  measure() {
    const context = this.canvas.getContext("2d");
    if (!context || !this.props) return;
    const { rows, cols, hiddenMass } = this.props.mapData;
    const { width, height } = this.size;
    const left = Math.min(Math.max(48, width * 0.28), widestLabel(context, rows) + 16);
    const top = Math.min(120, widestLabel(context, cols) * Math.sin(LABEL_ANGLE) + 18);
    const right = hiddenMass ? 74 : 34;
    this.plotArea = {
      left,
      top,
      strip: hiddenMass ? right : 0,
      width: Math.max(40, width - left - right),
      height: Math.max(40, height - top - 8),
    };
  }

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

  drawNow() {
    const context = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    if (!context || !this.props || this.canvas.width === 0) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.colors.ground;
    context.fillRect(0, 0, this.size.width, this.size.height);
    const { pyramid } = this.props.mapData;
    pyramid.cancelExcept(drawMap(context, this.scene()));
    this.node.dataset.waiting = String(pyramid.numPending);
    this.node.dataset.drawn = String(Number(this.node.dataset.drawn ?? 0) + 1);
  }

  /** @returns {Scene} */
  scene() {
    const { viewport, table, colors, plotArea } = this;
    return { .../** @type {MapProps} */ (this.props), viewport, table, colors, plotArea, scale: this.scale() };
  }

  /** The scale of what is drawn: single cells may exceed the means of many. */
  scale() {
    const { scale, cellMax } = /** @type {MapProps} */ (this.props);
    return this.pooling().binSize === 1 ? { ...scale, max: Math.max(scale.max, cellMax) } : scale;
  }

  /** Tokens along a side of a drawn cell, whether a value may exceed the scale, and whether the map is in memory. */
  pooling() {
    const { mapData, scale, cellMax } = /** @type {MapProps} */ (this.props);
    const level = levelOf({ viewport: this.viewport, mapData });
    const clipped = level > 0 && level < mapData.pyramid.levels - 1 && cellMax > scale.max;
    return { binSize: 2 ** level, clipped, inMemory: mapData.inMemory };
  }

  /** The drawing as SVG. */
  toSvg() {
    const measuring = /** @type {CanvasRenderingContext2D} */ (el("canvas").getContext("2d"));
    const context = new SvgContext(this.size.width, this.size.height, measuring);
    drawMap(context, this.scene());
    return context.root;
  }

  // Zoom and pan

  fit() {
    this.animateTo(this.whole());
  }

  /** Zoom about the cell if it is visible, else about the middle. @param {number} factor */
  zoomBy(factor) {
    const from = this.target ?? this.viewport;
    const { row, col } = this.props ?? { row: null, col: null };
    const { rows, cols } = this.extent();
    const { width, height } = this.plotArea;
    const middle = { x: Math.min(width, cols * from.k) / 2, y: Math.min(height, rows * from.k) / 2 };
    const cell =
      row !== null && col !== null ? { x: (col + 0.5 - from.x) * from.k, y: (row + 0.5 - from.y) * from.k } : middle;
    const isVisible = cell.x >= 0 && cell.y >= 0 && cell.x <= width && cell.y <= height;
    const { x, y } = isVisible ? cell : middle;
    this.animateTo(zoomAt(from, factor, x, y, { rows, cols }, this.plotArea));
  }

  /** Pan as little as shows a cell. @param {number} row @param {number} col */
  reveal(row, col) {
    const next = panTo(this.viewport, row, col, this.extent(), this.plotArea);
    if (next.x !== this.viewport.x || next.y !== this.viewport.y) this.jumpTo(next);
  }

  /** Zoom until a cell shows its value. @param {number} row @param {number} col */
  zoomToCell(row, col) {
    const k = Math.max(this.viewport.k, READABLE_CELL_PX);
    const { width, height } = this.plotArea;
    this.animateTo(this.clamp({ k, x: col + 0.5 - width / k / 2, y: row + 0.5 - height / k / 2 }));
  }

  /** @param {Viewport} viewport */
  jumpTo(viewport) {
    this.target = null;
    this.setViewport(viewport);
  }

  /** @param {Viewport} target */
  animateTo(target) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.jumpTo(target);
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
    this.stage.style.touchAction = this.isWhole ? "pan-y" : "none"; // a finger scrolls the page, or pans the map
    this.draw();
    clearTimeout(this.saveTimer);
    this.saveTimer = setTimeout(() => {
      const saved = this.isWhole ? null : { ...this.viewport };
      this.savedViewport = JSON.stringify(saved);
      this.actions.saveViewport(saved);
    }, SAVE_DELAY_MS);
  }

  // Input

  /** The position of an event in the plot area, and its cell. @param {{ clientX: number, clientY: number }} event */
  locate(event) {
    const box = this.stage.getBoundingClientRect();
    const { left, top, width, height } = this.plotArea;
    const [px, py] = [event.clientX - box.left - left, event.clientY - box.top - top];
    const { x, y, k } = this.viewport;
    const [col, row] = [Math.floor(x + px / k), Math.floor(y + py / k)];
    const { rows, cols } = this.extent();
    const isInside = px >= 0 && py >= 0 && row < rows && col < cols && px <= width && py <= height;
    return { px, py, row, col, isInside };
  }

  /** @param {number} dx @param {number} dy in pixels */
  panBy(dx, dy) {
    const { x, y, k } = this.viewport;
    return this.clamp({ k, x: x - dx / k, y: y - dy / k });
  }

  listenToWheel() {
    const onWheel = (/** @type {WheelEvent} */ event) => {
      const { px, py } = this.locate(event);
      const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0022));
      const next = event.shiftKey
        ? this.panBy(-event.deltaX - event.deltaY, 0)
        : zoomAt(this.viewport, factor, px, py, this.extent(), this.plotArea);
      const isSame = next.k === this.viewport.k && next.x === this.viewport.x;
      if ((isSame || !this.actions.usesWheel()) && !event.ctrlKey) return; // the page scrolls
      event.preventDefault();
      this.jumpTo(next);
    };
    this.stage.addEventListener("wheel", onWheel, { passive: false });
  }

  listenToPointers() {
    /** @type {Map<number, { x: number, y: number }>} */
    const down = new Map();
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
      const { row, col, isInside } = this.locate(event);
      const isClick = down.delete(event.pointerId) && moved <= CLICK_TOLERANCE_PX && event.type === "pointerup";
      if (isClick && isInside) this.actions.selectCell(row, col);
    };
    this.stage.addEventListener("pointerup", onUp);
    this.stage.addEventListener("pointercancel", onUp);
    this.stage.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.stage.addEventListener("dblclick", (event) => {
      const { px, py, isInside } = this.locate(event);
      if (!isInside) return;
      if (this.viewport.k >= READABLE_CELL_PX) return this.actions.openCell();
      this.animateTo(zoomAt(this.viewport, 2.5, px, py, this.extent(), this.plotArea));
    });
  }

  /** @param {Map<number, { x: number, y: number }>} down @param {PointerEvent} event */
  onPinch(down, event) {
    const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const last = /** @type {{x: number, y: number}} */ (down.get(event.pointerId));
    const before = Math.hypot(last.x - other.x, last.y - other.y);
    const now = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const center = { clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2 };
    const { px, py } = this.locate(center);
    this.jumpTo(zoomAt(this.viewport, now / Math.max(1, before), px, py, this.extent(), this.plotArea));
  }

  /** @param {PointerEvent} event */
  onHover(event) {
    const { row, col, isInside } = this.locate(event);
    this.tip.hidden = !isInside || !this.props;
    if (this.tip.hidden || !this.props) return;
    this.tip.textContent = this.actions.message(row, col, valueAt(this.props.mapData.pyramid, row, col));
    const box = this.stage.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const left = Math.max(4, Math.min(box.width - this.tip.offsetWidth - 4, x + 14));
    this.tip.style.transform = `translate(${left}px, ${y > 70 ? y - 44 : y + 18}px)`;
  }
}
