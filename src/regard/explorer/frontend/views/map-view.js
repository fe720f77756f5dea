// The map of one head: a canvas that is zoomed, moved and walked through cell by cell.

import { el, iconButton, nextFrame } from "../platform/dom.js";
import { tableOf } from "../render/colormap.js";
import { drawMap, inkOf, levelOf, numberAt, widestLabel } from "../render/map-renderer.js";
import { SvgPen } from "../render/svg-context.js";
import { between, kept, leastCell, showing, whole, zoomed } from "../render/viewport.js";

/**
 * @typedef {import("../render/map-renderer.js").Scene} Scene
 * @typedef {import("../render/viewport.js").View} View
 * @typedef {Omit<Scene, "view" | "table" | "ink" | "room"> & { view: View | null, most: number }} Shown  `most` ends the scale of single cells
 * @typedef {{ pick: (row: number, col: number) => void, open: () => void, look: (view: View | null) => void,
 *   tell: (row: number, col: number, value: number | null) => string, wheels: () => boolean }} Doings
 *   `wheels`: whether the wheel is for the map, and not for what the map is a part of
 */

const GLIDE = 180; // milliseconds
const ANGLE = Math.sin(Math.PI / 3);

export class MapView {
  /** @param {Doings} doings @param {string} described  the id of what says where the cell is */
  constructor(doings, described) {
    this.doings = doings;
    this.canvas = el("canvas", { class: "rg-canvas", "aria-hidden": "true" });
    this.tip = el("div", { class: "rg-tip", hidden: true, "aria-hidden": "true" });
    this.stage = el(
      "div",
      {
        class: "rg-stage",
        tabIndex: 0,
        role: "application",
        "aria-roledescription": "attention map",
        "aria-label": "Map of attention",
        "aria-describedby": described,
      },
      this.canvas,
      this.tip,
    );
    const step = (/** @type {number} */ factor) => () => this.zoomBy(factor);
    this.node = el(
      "div",
      { class: "rg-map" },
      this.stage,
      el(
        "div",
        { class: "rg-zoom", role: "group", "aria-label": "Zoom" },
        iconButton("Zoom in (+)", "+", step(1.6)),
        iconButton("Zoom out (−)", "−", step(1 / 1.6)),
        iconButton("Show the whole map (0)", "⤢", () => this.fit()),
      ),
    );
    /** @type {Shown | null} */
    this.shown = null;
    /** @type {View} */
    this.view = { x: 0, y: 0, k: 1 };
    /** @type {View | null} */
    this.goal = null; // where it glides to
    this.size = { width: 0, height: 0 }; // of the canvas, which on paper is that of the window
    this.room = { left: 80, top: 60, width: 100, height: 100, strip: 0 };
    this.table = tableOf("light");
    this.ink = inkOf(this.node);
    this.asked = ""; // which view the state has
    this.draw = nextFrame(() => this.drawNow());
    this.listen();
    new ResizeObserver(() => this.resized()).observe(this.stage);
  }

  /** @param {Shown} shown */
  show(shown) {
    const before = this.shown;
    const same =
      before &&
      before.field.rows.length === shown.field.rows.length &&
      before.field.cols.length === shown.field.cols.length;
    this.shown = shown;
    if (before?.theme !== shown.theme) {
      this.table = tableOf(shown.theme);
      this.ink = inkOf(this.node);
    }
    this.measure();
    const extent = this.extent();
    const asked = JSON.stringify(shown.view);
    if (!same || asked !== this.asked) {
      this.goal = null;
      this.view = shown.view ? kept(shown.view, extent, this.room) : whole(extent, this.room);
    } else if (!this.goal) this.view = this.isWhole ? whole(extent, this.room) : kept(this.view, extent, this.room);
    this.asked = asked;
    this.isWhole = this.view.k <= leastCell(extent, this.room) * 1.001;
    this.draw();
  }

  extent() {
    const field = this.shown?.field;
    return { rows: field?.rows.length ?? 1, cols: field?.cols.length ?? 1 };
  }

  measure() {
    const context = this.canvas.getContext("2d");
    if (!context || !this.shown) return;
    const { field } = this.shown;
    const { width, height } = this.size;
    const most = Math.max(48, width * 0.28);
    const left = Math.min(most, widestLabel(context, field.rows) + 16);
    const top = Math.min(120, widestLabel(context, field.cols) * ANGLE + 18);
    const strip = field.hidden ? 74 : 34;
    this.room = {
      left,
      top,
      strip: field.hidden ? 74 : 0,
      width: Math.max(40, width - left - strip),
      height: Math.max(40, height - top - 8),
    };
  }

  resized() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.stage.clientWidth, this.stage.clientHeight];
    if (width === 0 || height === 0) return;
    this.size = { width, height };
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.measure();
    this.view = this.isWhole ? whole(this.extent(), this.room) : kept(this.view, this.extent(), this.room);
    this.drawNow();
  }

  drawNow() {
    const context = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    if (!context || !this.shown || this.canvas.width === 0) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.ink.ground;
    context.fillRect(0, 0, this.size.width, this.size.height);
    this.shown.field.pyramid.forget(drawMap(context, this.scene()));
    this.node.dataset.waiting = String(this.shown.field.pyramid.waiting);
    this.node.dataset.drawn = String(Number(this.node.dataset.drawn ?? 0) + 1);
  }

  /** @returns {Scene} */
  scene() {
    return {
      .../** @type {Shown} */ (this.shown),
      view: this.view,
      table: this.table,
      ink: this.ink,
      room: this.room,
      scale: this.scale(),
    };
  }

  /** The colours of what is drawn: single cells may have larger numbers than the means of many. */
  scale() {
    const { scale, most } = /** @type {Shown} */ (this.shown);
    return this.pooled().by === 1 ? { ...scale, max: Math.max(scale.max, most) } : scale;
  }

  /** How many tokens a cell stands for on each side, whether one may be beyond the scale, and whether all are held. */
  pooled() {
    const { field, scale, most } = /** @type {Shown} */ (this.shown);
    const level = levelOf({ view: this.view, field });
    return {
      by: 2 ** level,
      clipped: level > 0 && level < field.pyramid.levels - 1 && most > scale.max,
      whole: field.whole,
    };
  }

  /** What is drawn, as SVG. */
  drawing() {
    const pen = new SvgPen(
      this.size.width,
      this.size.height,
      /** @type {CanvasRenderingContext2D} */ (el("canvas").getContext("2d")),
    );
    drawMap(pen, this.scene());
    return pen.root;
  }

  // Zoom

  fit() {
    this.glide(whole(this.extent(), this.room));
  }

  /** Zoom about the chosen cell where it is seen, else about the middle. @param {number} factor */
  zoomBy(factor) {
    const from = this.goal ?? this.view;
    const { row, col } = this.shown ?? { row: null, col: null };
    const { rows, cols } = this.extent();
    const middle = {
      x: Math.min(this.room.width, cols * from.k) / 2,
      y: Math.min(this.room.height, rows * from.k) / 2,
    };
    const at =
      row !== null && col !== null ? { x: (col + 0.5 - from.x) * from.k, y: (row + 0.5 - from.y) * from.k } : middle;
    const about = at.x >= 0 && at.y >= 0 && at.x <= this.room.width && at.y <= this.room.height ? at : middle;
    this.glide(zoomed(from, factor, about.x, about.y, { rows, cols }, this.room));
  }

  /** Move so that a cell is seen. @param {number} row @param {number} col */
  reveal(row, col) {
    const next = showing(this.view, row, col, this.extent(), this.room);
    if (next.x !== this.view.x || next.y !== this.view.y) this.look(next);
  }

  /** Zoom to where a cell shows its number. @param {number} row @param {number} col */
  goTo(row, col) {
    const k = Math.max(this.view.k, 34);
    this.glide(
      kept(
        { k, x: col + 0.5 - this.room.width / k / 2, y: row + 0.5 - this.room.height / k / 2 },
        this.extent(),
        this.room,
      ),
    );
  }

  /** Go to a view at once. @param {View} view */
  look(view) {
    this.goal = null;
    this.stand(view);
  }

  /** Go to a view so that the eye can follow. @param {View} goal */
  glide(goal) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.look(goal);
    const [from, start] = [this.view, performance.now()];
    this.goal = goal;
    const step = (/** @type {number} */ now) => {
      if (this.goal !== goal) return;
      const time = Math.max(0, Math.min(1, (now - start) / GLIDE));
      if (time === 1) return this.look(goal);
      this.stand(between(from, goal, 1 - (1 - time) ** 3));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** @param {View} view */
  stand(view) {
    this.view = view;
    this.isWhole = view.k <= leastCell(this.extent(), this.room) * 1.001;
    this.stage.style.touchAction = this.isWhole ? "pan-y" : "none"; // a finger moves the page, or what is seen of the map
    this.draw();
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const view = this.isWhole ? null : { ...this.view };
      this.asked = JSON.stringify(view);
      this.doings.look(view);
    }, 200);
  }

  // Hands

  /** @param {{ clientX: number, clientY: number }} event */
  place(event) {
    const box = this.stage.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left - this.room.left, event.clientY - box.top - this.room.top];
    const [col, row] = [Math.floor(this.view.x + px / this.view.k), Math.floor(this.view.y + py / this.view.k)];
    const { rows, cols } = this.extent();
    const inside = px >= 0 && py >= 0 && row < rows && col < cols && px <= this.room.width && py <= this.room.height;
    return { px, py, row, col, inside };
  }

  listen() {
    /** @type {Map<number, { x: number, y: number }>} */
    const down = new Map();
    let moved = 0;
    this.stage.addEventListener(
      "wheel",
      (event) => {
        const { px, py } = this.place(event);
        const next = event.shiftKey
          ? kept(
              { ...this.view, x: this.view.x + (event.deltaX + event.deltaY) / this.view.k },
              this.extent(),
              this.room,
            )
          : zoomed(
              this.view,
              Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0022)),
              px,
              py,
              this.extent(),
              this.room,
            );
        const stays = next.k === this.view.k && next.x === this.view.x;
        if ((stays || !this.doings.wheels()) && !event.ctrlKey) return; // then what is around scrolls
        event.preventDefault();
        this.look(next);
      },
      { passive: false },
    );
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      moved = 0;
    });
    this.stage.addEventListener("pointermove", (event) => {
      const last = down.get(event.pointerId);
      if (!last) return this.hover(event);
      const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
      moved += Math.abs(dx) + Math.abs(dy);
      if (down.size === 2) this.pinch(down, event);
      else if (moved > 5 && !this.isWhole) {
        this.stage.setPointerCapture(event.pointerId);
        this.look(
          kept(
            { ...this.view, x: this.view.x - dx / this.view.k, y: this.view.y - dy / this.view.k },
            this.extent(),
            this.room,
          ),
        );
      } else return;
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    const up = (/** @type {PointerEvent} */ event) => {
      const { row, col, inside } = this.place(event);
      if (down.delete(event.pointerId) && moved <= 5 && inside && event.type === "pointerup")
        this.doings.pick(row, col);
    };
    this.stage.addEventListener("pointerup", up);
    this.stage.addEventListener("pointercancel", up);
    this.stage.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.stage.addEventListener("dblclick", (event) => {
      const { px, py, inside } = this.place(event);
      if (inside && this.view.k < 34) this.glide(zoomed(this.view, 2.5, px, py, this.extent(), this.room));
      else if (inside) this.doings.open();
    });
  }

  /** @param {Map<number, { x: number, y: number }>} down @param {PointerEvent} event */
  pinch(down, event) {
    const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const last = /** @type {{x: number, y: number}} */ (down.get(event.pointerId));
    const before = Math.hypot(last.x - other.x, last.y - other.y);
    const now = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const { px, py } = this.place({ clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2 });
    this.look(zoomed(this.view, now / Math.max(1, before), px, py, this.extent(), this.room));
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const { row, col, inside } = this.place(event);
    this.tip.hidden = !inside || !this.shown;
    if (this.tip.hidden || !this.shown) return;
    this.tip.textContent = this.doings.tell(row, col, numberAt(this.shown.field.pyramid, row, col));
    const box = this.stage.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const wide = this.tip.offsetWidth;
    this.tip.style.transform = `translate(${Math.max(4, Math.min(box.width - wide - 4, x + 14))}px, ${y > 70 ? y - 44 : y + 18}px)`;
  }
}
