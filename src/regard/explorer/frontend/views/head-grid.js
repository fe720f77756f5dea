// All heads: a grid of thumbnails, by layer or by a metric; rows and columns collapse to their means.

import { activeElementOf, el, segmented, select, setAttribute, setText } from "../platform/dom.js";
import { colorTable, tableIndex } from "../render/colormap.js";
import { formatFixed } from "../render/format.js";
import { selectionOf } from "../state/sides.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../state/state.js").Selection} Selection
 * @typedef {import("../render/colormap.js").Theme} Theme
 * @typedef {import("../data/source.js").Manifest} Manifest
 * @typedef {import("../data/source.js").HeadMetrics} HeadMetrics
 */

/**
 * Heads in descending order of a metric, those without a value last.
 * @param {(number | null)[][]} values L H
 * @returns {{ layer: number, head: number, value: number | null }[]}
 */
export function rankHeads(values) {
  const all = values.flatMap((row, layer) => row.map((value, head) => ({ layer, head, value })));
  return all.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
}

/** The smallest and the largest value. @param {(number | null)[][]} values */
export function extentOf(values) {
  const known = values.flat().filter((x) => x !== null);
  return known.length ? { min: Math.min(...known), max: Math.max(...known) } : { min: 0, max: 0 };
}

/** The mean of thumbnails, whose bytes are square roots. @param {Uint8Array[]} thumbnails */
export function meanThumbnail(thumbnails) {
  const out = new Uint8Array(thumbnails[0].length);
  for (let n = 0; n < out.length; n++) {
    const mean = thumbnails.reduce((sum, bytes) => sum + (bytes[n] / 255) ** 2, 0) / thumbnails.length;
    out[n] = Math.round(255 * Math.sqrt(mean));
  }
  return out;
}

export class HeadGrid {
  /**
   * @param {Manifest} manifest
   * @param {{ select: (selection: Selection, open: boolean) => void, set: (change: Partial<State>) => void }} actions
   */
  constructor(manifest, actions) {
    this.manifest = manifest;
    this.actions = actions;
    /** @type {{ run: number, metrics: HeadMetrics["metrics"] | null, thumbnails: Uint8Array | null }} */
    this.data = { run: -1, metrics: null, thumbnails: null };
    this.body = el("div", { class: "rg-grid", role: "grid", "aria-label": "All heads" });
    this.metric = select("Metric of heads", manifest.metrics, (metric) => actions.set({ metric }));
    this.order = segmented(
      "Order of heads",
      [
        { key: "layer", title: "By layer" },
        { key: "metric", title: "By metric" },
      ],
      (order) =>
        actions.set({
          order: /** @type {any} */ (order),
          ...(order === "metric" ? { collapsedLayers: [], collapsedHeads: [] } : {}),
        }),
    );
    this.threshold = el("input", {
      type: "range",
      min: "0",
      max: "1",
      step: "0.01",
      "aria-label": "Threshold of the metric",
      on: { input: () => actions.set({ threshold: Number(this.threshold.value) }) },
    });
    this.thresholdText = el("span", { class: "rg-number" });
    this.collapse = segmented(
      "Collapse",
      [
        { key: "none", title: "Each head" },
        { key: "layers", title: "Mean of layers", description: "Each layer as the mean of its heads" },
        { key: "heads", title: "Mean of columns", description: "Each column as the mean over layers" },
      ],
      (key) =>
        actions.set({
          collapsedLayers: key === "layers" ? this.layers().map((_, l) => l) : [],
          collapsedHeads: key === "heads" ? Array.from({ length: this.width() }, (_, h) => h) : [],
          order: "layer",
        }),
    );
    this.description = el("p", { class: "rg-description" });
    this.count = el("span", { class: "rg-muted" });
    this.controls = el(
      "div",
      { class: "rg-bar rg-grid-controls" },
      this.order.node,
      this.collapse.node,
      el("label", { class: "rg-field" }, el("span", {}, "Metric"), this.metric),
      el("label", { class: "rg-field" }, el("span", {}, "Minimum"), this.threshold, this.thresholdText),
      this.count,
    );
    this.node = el(
      "section",
      { class: "rg-heads", "aria-label": "All heads" },
      this.controls,
      this.description,
      el("p", { class: "rg-description rg-hint" }, "Click a head to choose it, and again to open it."),
      el("div", { class: "rg-grid-container" }, this.body),
    );
    /** @type {Map<string, HTMLButtonElement>} */
    this.buttons = new Map();
    this.layoutKey = ""; // of what the buttons show
    this.body.addEventListener("keydown", (event) => this.onKeydown(event));
  }

  layers() {
    return this.manifest.runs[Math.max(0, this.data.run)].layers;
  }

  width() {
    return Math.max(...this.layers().map((layer) => layer.heads));
  }

  /** @param {number} run @param {HeadMetrics | null} heads @param {Uint8Array | null} thumbnails */
  setData(run, heads, thumbnails) {
    const metrics = heads?.metrics ?? null;
    const { data } = this;
    if (data.run === run && data.metrics === metrics && data.thumbnails === thumbnails) return;
    this.data = { run, metrics, thumbnails };
    this.layoutKey = "";
  }

  /** @param {State} state @param {Theme} theme @param {import("../data/tile-source.js").HeadRef[]} sides A and B, or one */
  update(state, theme, sides) {
    if (this.data.run < 0) return;
    const values = this.data.metrics?.[state.metric] ?? null;
    const { min, max } = values ? extentOf(values) : { min: 0, max: 0 };
    const least = min + state.threshold * (max - min);
    this.updateControls(state, values, least);
    const { order, collapsedLayers, collapsedHeads, metric } = state;
    const layoutKey = JSON.stringify([order, collapsedLayers, collapsedHeads, order === "metric" ? metric : "", theme]);
    if (layoutKey !== this.layoutKey) {
      this.layoutKey = layoutKey;
      this.layout(state, theme, values);
    }
    const selected = selectionOf(state);
    const compared = sides.length > 1 && sides[0].run === sides[1].run ? sides : []; // two heads of one run
    for (const [key, button] of this.buttons) {
      const [layer, head] = key.split(".");
      const isMean = head === "mean" || layer === "mean";
      const value = isMean ? null : (values?.[Number(layer)]?.[Number(head)] ?? null);
      button.classList.toggle("rg-dimmed", state.threshold > 0 && !isMean && (value === null || value < least));
      const is = (/** @type {Selection} */ at) => layer === String(at.layer) && head === String(at.head);
      button.dataset.side = compared.map((at, n) => (is(at) ? "AB"[n] : "")).join("");
      setAttribute(button, "aria-selected", String(is(selected)));
      button.tabIndex = is(selected) ? 0 : -1;
      button.style.setProperty(
        "--rg-metric-share",
        String(value === null || max === min ? 0 : (value - min) / (max - min)),
      );
      this.labelButton(button, layer, head, value);
    }
    if (![...this.buttons.values()].some((button) => button.tabIndex === 0)) {
      const [first] = this.buttons.values();
      if (first) first.tabIndex = 0;
    }
  }

  /** @param {State} state @param {(number | null)[][] | null} values @param {number} least value of the threshold */
  updateControls(state, values, least) {
    const explanation = this.explanation(state.metric);
    const isAllLayers = state.collapsedLayers.length >= this.layers().length;
    const isAllHeads = state.collapsedHeads.length >= this.width();
    this.order.show(state.order);
    this.collapse.show(isAllLayers ? "layers" : isAllHeads ? "heads" : "none");
    this.metric.value = state.metric;
    this.threshold.value = String(state.threshold);
    setText(this.thresholdText, state.threshold > 0 ? `${formatFixed(least, 2)} ${unitOf(explanation)}` : "off");
    setText(this.description, explanation ? `${explanation.description} ${explanation.caveat}` : "");
    this.description.title = explanation?.source ?? "";
    const numHeads = this.layers().reduce((sum, layer) => sum + layer.heads, 0); // collapsed ones too
    const numAbove = (values ?? []).flat().filter((value) => value !== null && value >= least).length;
    setText(this.count, state.threshold > 0 ? `${numAbove} of ${numHeads} heads` : "");
  }

  /** @param {HTMLButtonElement} button @param {string} layer @param {string} head @param {number | null} value */
  labelButton(button, layer, head, value) {
    const number = this.layers()[Number(layer)]?.number; // of the model
    const name =
      layer === "mean"
        ? `head ${head}, mean over layers`
        : head === "mean"
          ? `layer ${number}, mean of heads`
          : `layer ${number}, head ${head}`;
    const explanation = this.explanation(this.metric.value);
    const text = value === null ? "" : formatFixed(value, 2);
    const title = value === null ? name : `${name}, ${explanation?.title ?? ""} ${text} ${unitOf(explanation)}`;
    const caption = this.body.classList.contains("rg-sorted") ? `L${number} H${head} · ${text || "–"}` : text;
    setAttribute(button, "aria-label", title.includes(caption) ? title : `${caption}, ${title}`);
    button.title = title;
    const captionNode = button.querySelector(".rg-caption");
    if (captionNode) setText(captionNode, caption);
  }

  /** @param {string} metric */
  explanation(metric) {
    return this.manifest.metrics.find(({ key }) => key === metric);
  }

  /** @param {State} state @param {Theme} theme @param {(number | null)[][] | null} values */
  layout(state, theme, values) {
    const active = activeElementOf(this.body);
    const focusedName = this.body.contains(active) ? active?.getAttribute("aria-label") : null;
    this.buttons.clear();
    const table = colorTable(theme);
    const isWrapped = this.layers().length === 1 && this.width() > 16 && !state.collapsedLayers.length; // one long row
    const inOrder = isWrapped
      ? Array.from({ length: this.layers()[0].heads }, (_, head) => ({ layer: 0, head }))
      : null;
    const sorted = state.order === "metric" && values ? rankHeads(values) : inOrder;
    const numColumns = state.collapsedLayers.length >= this.layers().length ? 1 : this.width();
    this.body.classList.toggle("rg-sorted", Boolean(sorted));
    this.body.classList.toggle("rg-with-means", state.collapsedHeads.length > 0);
    this.body.style.setProperty("--rg-columns", String(numColumns));
    if (sorted) {
      const cells = sorted.map(({ layer, head }) => this.cell(layer, head, table));
      this.body.replaceChildren(el("div", { class: "rg-grid-row", role: "row" }, ...cells));
    } else {
      const collapsed = new Set(state.collapsedHeads);
      const isAll = collapsed.size >= this.width();
      const rows = isAll ? [] : this.layers().map((_, layer) => this.row(layer, state, table));
      if (collapsed.size > 0) rows.unshift(this.meanRow(collapsed, table));
      this.body.replaceChildren(...(numColumns > 1 ? [this.headerRow(state)] : []), ...rows);
    }
    if (!focusedName) return;
    const all = /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll("button")]);
    const same = all.find((button) => button.getAttribute("aria-label") === focusedName);
    (same ?? all.find(({ tabIndex }) => tabIndex === 0))?.focus();
  }

  /** @param {State} state */
  headerRow({ collapsedHeads }) {
    const labelStep = this.width() <= 16 ? 1 : Math.ceil(this.width() / 12);
    const header = (/** @type {number} */ head) =>
      headingButton(
        "columnheader",
        head % labelStep === 0 ? String(head) : "",
        `Head ${head}: show its mean over layers, or each layer`,
        `Collapse column ${head}`,
        collapsedHeads.includes(head),
        () => this.actions.set({ collapsedHeads: toggled(collapsedHeads, head) }),
      );
    return el(
      "div",
      { class: "rg-grid-row rg-grid-heads", role: "row" },
      el("span", { class: "rg-corner", role: "columnheader" }, "layer \\ head"),
      ...Array.from({ length: this.width() }, (_, head) => header(head)),
    );
  }

  /** @param {number} layer @param {State} state @param {Uint32Array} table */
  row(layer, { collapsedLayers }, table) {
    const { heads, number } = this.layers()[layer];
    const isCollapsed = collapsedLayers.includes(layer);
    const cells = isCollapsed
      ? [this.cell(layer, "mean", table)]
      : Array.from({ length: heads }, (_, head) => this.cell(layer, head, table));
    const header = headingButton(
      "rowheader",
      String(number),
      `Layer ${number}: show the mean of its heads, or each head`,
      `Collapse layer ${number}`,
      isCollapsed,
      () => this.actions.set({ collapsedLayers: toggled(collapsedLayers, layer) }),
    );
    return el("div", { class: "rg-grid-row", role: "row" }, header, ...cells);
  }

  /** @param {Set<number>} collapsed columns @param {Uint32Array} table */
  meanRow(collapsed, table) {
    return el(
      "div",
      { class: "rg-grid-row", role: "row" },
      el("span", { role: "rowheader", class: "rg-heading" }, "mean"),
      ...Array.from({ length: this.width() }, (_, head) =>
        collapsed.has(head) ? this.cell("mean", head, table) : el("span", { role: "gridcell" }),
      ),
    );
  }

  /** @param {number | "mean"} layer @param {import("../state/state.js").Head} head @param {Uint32Array} table */
  cell(layer, head, table) {
    const canvas = el("canvas", { class: "rg-thumb", "aria-hidden": "true" });
    const size = this.thumbnailSize();
    [canvas.width, canvas.height] = [size, size];
    const bytes = this.thumbnail(layer, head);
    if (bytes) {
      const image = new ImageData(size, size);
      const pixels = new Uint32Array(image.data.buffer);
      bytes.forEach((byte, n) => (pixels[n] = table[tableIndex(byte / 255)]));
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    }
    const selection = { layer: layer === "mean" ? 0 : layer, head };
    const button = el(
      "button",
      {
        type: "button",
        class: "rg-head",
        role: "gridcell",
        tabIndex: -1,
        disabled: layer === "mean",
        on: { click: () => this.actions.select(selection, button.getAttribute("aria-selected") === "true") },
      },
      canvas,
      el("span", { class: "rg-caption" }),
      el("span", { class: "rg-metric-bar" }, el("span")),
    );
    this.buttons.set(`${layer}.${head}`, button);
    return button;
  }

  thumbnailSize() {
    return this.manifest.runs[this.data.run].thumbnail_size;
  }

  /** @param {number | "mean"} layer @param {import("../state/state.js").Head} head @returns {Uint8Array | null} */
  thumbnail(layer, head) {
    const { thumbnails } = this.data;
    if (!thumbnails) return null;
    const [numCells, width] = [this.thumbnailSize() ** 2, this.width()];
    const at = (/** @type {number} */ l, /** @type {number} */ h) =>
      thumbnails.subarray((l * width + h) * numCells, (l * width + h + 1) * numCells);
    if (layer === "mean") {
      const column = Number(head);
      return meanThumbnail(this.layers().flatMap(({ heads }, l) => (column < heads ? [at(l, column)] : [])));
    }
    if (head !== "mean") return at(layer, head);
    return meanThumbnail(Array.from({ length: this.layers()[layer].heads }, (_, h) => at(layer, h)));
  }

  /** Arrow keys move between heads and headings. @param {KeyboardEvent} event */
  onKeydown(event) {
    const all = /** @type {HTMLButtonElement[]} */ ([...this.body.querySelectorAll("button:not(:disabled)")]);
    const index = all.indexOf(/** @type {any} */ (activeElementOf(this.body)));
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = {
      ArrowRight: all[index + 1],
      ArrowLeft: all[index - 1],
      ArrowDown: nearestInRow(all[index], all, 1),
      ArrowUp: nearestInRow(all[index], all, -1),
      Home: all[0],
      End: all[all.length - 1],
    }[event.key];
    if (next) {
      next.focus();
      if (next.getAttribute("aria-selected") === "false") next.click();
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/**
 * @param {string} role @param {string} text @param {string} title @param {string} name @param {boolean} pressed
 * @param {() => void} toggle
 */
function headingButton(role, text, title, name, pressed, toggle) {
  const props = {
    type: "button",
    tabIndex: -1,
    title,
    "aria-label": name,
    "aria-pressed": pressed,
    on: { click: toggle },
  };
  return el("span", { role, class: "rg-heading" }, el("button", props, text));
}

/** The nearest button in the next row, or with -1 in the previous. @param {HTMLElement} from @param {HTMLButtonElement[]} all @param {1 | -1} direction */
function nearestInRow(from, all, direction) {
  const centerOf = (/** @type {HTMLElement} */ button) => {
    const { left, right, top, bottom } = button.getBoundingClientRect();
    return { x: (left + right) / 2, y: (top + bottom) / 2 };
  };
  const { x, y } = centerOf(from);
  const distances = all
    .map((button) => ({ button, center: centerOf(button) }))
    .filter(({ center }) => (center.y - y) * direction > 4)
    .map(({ button, center }) => ({ button, distance: Math.abs(center.y - y) * 1e4 + Math.abs(center.x - x) }));
  return distances.sort((a, b) => a.distance - b.distance)[0]?.button;
}

/** @param {import("../data/source.js").Explanation | undefined} explanation */
function unitOf(explanation) {
  return explanation?.unit && explanation.unit !== "share" ? explanation.unit : "";
}

/** A list without a number, or with it. @param {number[]} list @param {number} n */
export function toggled(list, n) {
  return list.includes(n) ? list.filter((x) => x !== n) : [...list, n].sort((a, b) => a - b);
}
