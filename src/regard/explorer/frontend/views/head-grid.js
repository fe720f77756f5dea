// All heads: a grid of thumbnails, by layer or by a metric; rows and columns collapse to their means.

import { liveMetric } from "../app/head-search.js";
import { NOTHING } from "../data/query.js";
import {
  activeElementOf,
  button,
  el,
  onArrows,
  onSegment,
  setAttribute,
  setTabStop,
  setText,
  showSegment,
} from "../platform/dom.js";
import { colorTable, tableIndex } from "../render/colormap.js";
import { formatFixed } from "../render/format.js";
import { selectionOf, withSelection } from "../state/sides.js";
import { toggled } from "../state/state.js";
import { layerName } from "./messages.js";

/**
 * Heads in descending order of a metric, those without a value last.
 * @param {(number | null)[][]} values L H
 * @returns {{ layer: number, head: number, value: number | null }[]}
 */
export function rankHeads(values) {
  const all = values.flatMap((row, layer) => row.map((value, head) => ({ layer, head, value })));
  return all.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
}

/** The mean of thumbnails, whose bytes are square roots, with a sign. @param {(Uint8Array | Int8Array)[]} thumbnails */
export function meanThumbnail(thumbnails) {
  if (thumbnails.length === 1) return thumbnails[0];
  return thumbnails[0].map((_, n) => {
    const mean = thumbnails.reduce((sum, bytes) => sum + bytes[n] * Math.abs(bytes[n]), 0) / thumbnails.length;
    return Math.round(Math.sign(mean) * Math.sqrt(Math.abs(mean)));
  });
}

export class HeadGrid {
  /** @param {App} app */
  constructor(app) {
    const { refs } = app;
    this.app = app;
    this.refs = refs;
    /** @type {{ run: number, metrics: HeadMetrics["metrics"] | null, thumbnails: Uint8Array | null, difference: HeadDifferences | null }} */
    this.data = { run: -1, metrics: null, thumbnails: null, difference: null };
    this.body = refs.grid;
    onSegment(refs.collapse, (key) =>
      app.set({
        order: "layer",
        collapsedLayers: key === "layers" ? [...this.layers().keys()] : [],
        collapsedHeads: key === "heads" ? this.columns() : [],
      }),
    );
    this.values = /** @type {HeadValues | null} */ (null); // that the grid shows
    this.cells = /** @type {GridCell[]} */ ([]);
    this.layoutKey = ""; // of what the cells show
    onArrows(this.body, "button:not(:disabled)", nextHead);
  }

  layers() {
    return this.app.manifest.runs[Math.max(0, this.data.run)].layers;
  }

  /** The numbers of the heads of the widest layer. */
  columns() {
    return [...Array(Math.max(...this.layers().map((layer) => layer.heads))).keys()];
  }

  /** @param {HeadGrid["data"]} data of a run; A − B of every head, if there is one, is shown in place of its heads @param {LiveMetric | null} live */
  show(data, live) {
    const { state, theme } = this.app;
    const before = Object.values(this.data);
    const isOther = Object.values(data).some((part, n) => part !== before[n]);
    this.data = data;
    const held = this.data.difference?.largest ?? this.data.metrics?.[state.metric];
    const values = (this.values = held ?? live?.values ?? null);
    setText(this.refs.liveMessage, live?.message ?? "");
    const known = (values ?? []).flat().filter((x) => x !== null);
    const [min, max] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 0];
    const least = min + state.threshold * (max - min);
    const { order, collapsedLayers, collapsedHeads, metric } = state;
    this.updateControls(state, values, least);
    const ranked = order === "metric" && (live ? live.values : metric);
    const layoutKey = JSON.stringify([order, collapsedLayers, collapsedHeads, ranked, theme]);
    if (isOther || layoutKey !== this.layoutKey) {
      this.layoutKey = layoutKey;
      this.layout(state, theme, values);
    }
    const selected = selectionOf(state);
    const compared = this.app.comparesHeads ? this.app.sides() : [];
    const ablated = new Set(this.app.ablatedHeads().map((at) => at.join(".")));
    for (const cell of this.cells) {
      const { layer, head, node } = cell;
      const isMean = layer === "mean" || head === "mean";
      const value = isMean ? null : (values?.[layer]?.[head] ?? null);
      const is = (/** @type {HeadChoice} */ at) => layer === at.layer && head === at.head;
      node.classList.toggle("rg-dimmed", state.threshold > 0 && !isMean && (value === null || value < least));
      node.dataset.side = compared.map((at, n) => (is(at) ? "AB"[n] : "")).join("");
      node.dataset.ablated = String(ablated.has(`${layer}.${head}`));
      setAttribute(node, "aria-selected", String(is(selected)));
      const share = value === null || max === min ? 0 : (value - min) / (max - min);
      node.style.setProperty("--rg-metric-share", String(share));
      this.labelCell(cell, value);
    }
    const stop = this.cells.find(({ node }) => node.getAttribute("aria-selected") === "true") ?? this.cells[0];
    setTabStop(
      this.cells.map(({ node }) => node),
      stop?.node,
    );
  }

  /** @param {State} state @param {HeadValues | null} values @param {number} least value of the threshold */
  updateControls({ threshold, collapsedLayers, collapsedHeads }, values, least) {
    const explanation = this.explanation();
    const isAllLayers = collapsedLayers.length >= this.layers().length;
    const isAllHeads = collapsedHeads.length >= this.columns().length;
    const { collapse, metricField, thresholdText, metricDescription, headCount } = this.refs;
    showSegment(collapse, isAllLayers ? "layers" : isAllHeads ? "heads" : "none");
    metricField.hidden = this.data.difference !== null;
    setText(thresholdText, threshold > 0 ? `${formatFixed(least, 2)} ${unitOf(explanation)}` : "off");
    setText(metricDescription, explanation ? `${explanation.description} ${explanation.caveat}` : "");
    metricDescription.title = explanation?.source ?? "";
    const numHeads = this.layers().reduce((sum, layer) => sum + layer.heads, 0); // collapsed ones too
    const numAbove = (values ?? []).flat().filter((value) => value !== null && value >= least).length;
    setText(headCount, threshold > 0 ? `${numAbove} of ${numHeads} heads` : "");
  }

  /** @param {GridCell} cell @param {number | null} value */
  labelCell({ layer, head, node, caption }, value) {
    const number = layer === "mean" ? layer : this.layers()[layer].number; // of the model
    const named = layerName(number).toLowerCase();
    const ofLayer = head === "mean" ? `${named}, mean of heads` : `${named}, head ${head}`;
    const name = layer === "mean" ? `head ${head}, mean over layers` : ofLayer;
    const explanation = this.explanation();
    const text = value === null ? "" : formatFixed(value, explanation && "live" in explanation ? 3 : 2);
    const measured = value === null ? name : `${name}, ${explanation?.title ?? ""} ${text} ${unitOf(explanation)}`;
    const title = node.dataset.ablated === "true" ? `${measured}, ablated` : measured;
    const shown = this.body.classList.contains("rg-sorted") ? `L${number} H${head} · ${text || "–"}` : text;
    setAttribute(node, "aria-label", title.includes(shown) ? title : `${shown}, ${title}`);
    node.title = title;
    setText(caption, shown);
  }

  /** What the values of the heads are. */
  explanation() {
    return (
      this.data.difference?.explanation ?? this.app.manifest.metrics.find(({ key }) => key === this.refs.metric.value)
    );
  }

  /** @param {State} state @param {Theme} theme @param {HeadValues | null} values */
  layout({ order, collapsedLayers, collapsedHeads }, theme, values) {
    const active = activeElementOf(this.body);
    const focusedName = this.body.contains(active) ? active?.getAttribute("aria-label") : null;
    this.cells = [];
    this.table = colorTable(theme);
    const { difference } = this.data;
    this.signedThumbnails = difference && Int8Array.from(atob(difference.thumbnails), (byte) => byte.charCodeAt(0));
    const layers = this.layers();
    const columns = this.columns();
    const isWrapped = layers.length === 1 && columns.length > 16 && !collapsedLayers.length; // one long row
    const inOrder = isWrapped ? columns.map((head) => ({ layer: 0, head })) : null;
    const sorted = order === "metric" && values ? rankHeads(values) : inOrder;
    const hasColumns = collapsedLayers.length < layers.length;
    const rowOf = (/** @type {number} */ layer) => this.row(layer, collapsedLayers);
    this.body.classList.toggle("rg-sorted", Boolean(sorted));
    this.body.classList.toggle("rg-with-means", collapsedHeads.length > 0);
    this.body.classList.toggle(
      "rg-with-names",
      this.layers().some(({ block }) => block),
    );
    this.body.style.setProperty("--rg-columns", String(hasColumns ? columns.length : 1));
    const rows = sorted
      ? [gridRow(...sorted.map(({ layer, head }) => this.cell(layer, head)))]
      : [
          ...(hasColumns ? [this.headerRow(collapsedHeads)] : []),
          ...(collapsedHeads.length > 0 ? [this.meanRow(collapsedHeads)] : []),
          ...(collapsedHeads.length < columns.length ? [...layers.keys()].map(rowOf) : []),
        ];
    this.body.style.setProperty("--rg-rows", String(rows.length));
    this.body.replaceChildren(...rows);
    if (!focusedName) return;
    const all = [...this.body.querySelectorAll("button")];
    const same = all.find((node) => node.getAttribute("aria-label") === focusedName);
    (same ?? all.find(({ tabIndex }) => tabIndex === 0))?.focus();
  }

  /** @param {number[]} collapsed columns */
  headerRow(collapsed) {
    const columns = this.columns();
    const labelStep = columns.length <= 16 ? 1 : Math.ceil(columns.length / 12);
    const headers = columns.map((head) => {
      const title = `Head ${head}: show its mean over layers, or each layer`;
      const text = head % labelStep === 0 ? String(head) : "";
      const collapse = () => this.app.set({ collapsedHeads: toggled(collapsed, head) });
      return heading("columnheader", text, title, `Collapse column ${head}`, collapsed.includes(head), collapse);
    });
    const corner = el("span", { class: "rg-corner", role: "columnheader" }, "layer \\ head");
    const row = gridRow(corner, ...headers);
    row.classList.add("rg-grid-heads");
    return row;
  }

  /** @param {number} layer @param {number[]} collapsed layers */
  row(layer, collapsed) {
    const { heads, number } = this.layers()[layer];
    const isCollapsed = collapsed.includes(layer);
    const shown = isCollapsed ? [/** @type {const} */ ("mean")] : [...Array(heads).keys()];
    const named = layerName(number);
    const title = `${named}: show the mean of its heads, or each head`;
    const collapse = () => this.app.set({ collapsedLayers: toggled(collapsed, layer) });
    const name = `Collapse ${named.toLowerCase()}`;
    const header = heading("rowheader", String(number), title, name, isCollapsed, collapse);
    return gridRow(header, ...shown.map((head) => this.cell(layer, head)));
  }

  /** @param {number[]} collapsed columns */
  meanRow(collapsed) {
    const header = el("span", { role: "rowheader", class: "rg-heading" }, "mean");
    const empty = () => el("span", { role: "gridcell" });
    return gridRow(
      header,
      ...this.columns().map((head) => (collapsed.includes(head) ? this.cell("mean", head) : empty())),
    );
  }

  /** @param {number | "mean"} layer @param {Head} head */
  cell(layer, head) {
    const canvas = el("canvas", { class: "rg-thumb", "aria-hidden": "true" });
    const size = this.thumbnailSize();
    [canvas.width, canvas.height] = [size, size];
    const bytes = this.thumbnail(layer, head);
    if (bytes && this.table) {
      const { table } = this;
      const image = new ImageData(size, size);
      const pixels = new Uint32Array(image.data.buffer);
      const scale = this.data.difference ? 127 : 255;
      bytes.forEach((byte, n) => (pixels[n] = table[tableIndex(byte / scale)]));
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    }
    const selection = { layer: layer === "mean" ? 0 : layer, head };
    const choose = () => {
      const opens = node.getAttribute("aria-selected") === "true" && { view: /** @type {const} */ ("head") };
      this.app.set({ ...withSelection(this.app.state, selection), ...opens });
    };
    const props = { class: "rg-head", role: "gridcell", tabIndex: -1, disabled: layer === "mean" };
    const node = button("", choose, props);
    const caption = el("span", { class: "rg-caption" });
    node.append(canvas, caption, el("span", { class: "rg-metric-bar" }, el("span")));
    this.cells.push({ layer, head, node, caption });
    return node;
  }

  thumbnailSize() {
    return this.app.manifest.runs[this.data.run].thumbnail_size;
  }

  /** @param {number | "mean"} layer @param {Head} head */
  thumbnail(layer, head) {
    const thumbnails = this.signedThumbnails ?? this.data.thumbnails;
    if (!thumbnails) return null;
    const [numCells, width] = [this.thumbnailSize() ** 2, this.columns().length];
    const isOf = (/** @type {number | "mean"} */ at, /** @type {number} */ n) => at === "mean" || at === n;
    const places = this.layers().flatMap(({ heads }, l) =>
      isOf(layer, l) ? [...Array(heads).keys()].filter((h) => isOf(head, h)).map((h) => l * width + h) : [],
    );
    return meanThumbnail(places.map((place) => thumbnails.subarray(place * numCells, (place + 1) * numCells)));
  }
}

/** The next button of several rows. @param {HTMLButtonElement[]} all @param {HTMLButtonElement} from @param {string} key */
export function nextInRows(all, from, key) {
  const index = all.indexOf(from);
  return (
    {
      ArrowRight: all[index + 1],
      ArrowLeft: all[index - 1],
      ArrowDown: nearestInRow(from, all, 1),
      ArrowUp: nearestInRow(from, all, -1),
      Home: all[0],
      End: all[all.length - 1],
    }[key] ?? (key.startsWith("Arrow") ? from : undefined)
  ); // no cell of the map moves at an end
}

/** The next head or heading, which is chosen if it is a head. @param {HTMLButtonElement[]} all @param {HTMLButtonElement} from @param {string} key */
function nextHead(all, from, key) {
  const next = nextInRows(all, from, key);
  if (next?.getAttribute("aria-selected") === "false") next.click();
  return next;
}

/** @param {...HTMLElement} cells */
function gridRow(...cells) {
  return el("div", { class: "rg-grid-row", role: "row" }, ...cells);
}

/**
 * A heading of a row or column that collapses it.
 * @param {string} role @param {string} text @param {string} title @param {string} name @param {boolean} pressed
 * @param {() => void} collapse
 */
function heading(role, text, title, name, pressed, collapse) {
  const props = { class: null, tabIndex: -1, title, "aria-label": name, "aria-pressed": pressed };
  return el("span", { role, class: "rg-heading" }, button(text, collapse, props));
}

/** The nearest button in the next row, or with -1 in the previous. @param {HTMLElement} from @param {HTMLButtonElement[]} all @param {1 | -1} direction */
function nearestInRow(from, all, direction) {
  const [start, ...boxes] = [from, ...all].map((node) => node.getBoundingClientRect());
  const distances = boxes.map(({ left, top, height }, n) => {
    const rows = (top + height / 2 - start.top - start.height / 2) * direction;
    return { node: all[n], distance: rows > 4 ? rows * 1e4 + Math.abs(left - start.left) : Infinity };
  });
  const nearest = distances.reduce((best, each) => (each.distance < best.distance ? each : best));
  return nearest.distance < Infinity ? nearest.node : undefined;
}

/** @param {{ unit?: string } | undefined} explanation */
function unitOf(explanation) {
  return explanation?.unit && explanation.unit !== "share" ? explanation.unit : "";
}

/** The heads, after the map, which a reader waits for. @param {App} app @returns {View} */
export const showHeads = (app) => (ask) => {
  const { state, queries, parts, refs, manifest, source } = app;
  const { signal } = app.controller;
  const { run } = app.shownHead();
  const sides = app.sides();
  const isDifference = state.side === "diff" && sides.length > 1 && !app.comparesHeads;
  const mayStart = state.view === "heads" || !queries.maps(ask).isPending;
  /** @template T @param {string} name @param {unknown} of @param {() => Promise<T>} queryFn @returns {Answer<T>} */
  const held = (name, of, queryFn) =>
    ask(name, of, () => queries.cached(`${name} ${of}`, queryFn), { mayStart, inBar: true });
  // Pictures first, for the metrics of a long text take ten times as long
  const thumbnails = held("thumbnails", run, () => source.thumbnails({ run }, signal));
  const heads = held("heads", run, () => source.heads({ run }, signal));
  const runs = sides.map((side) => side.run);
  const differences = isDifference
    ? held("differences", runs, () => source.differences({ runs }, signal))
    : /** @type {Answer<HeadDifferences>} */ (NOTHING);
  const live = liveMetric(app, ask, mayStart);
  const isOther = parts.grid.data.run >= 0 && parts.grid.data.run !== run; // else pictures are shown before metrics
  const shown = isDifference ? [differences] : isOther || manifest.training ? [thumbnails, heads] : [thumbnails];
  return {
    nodes: [refs.grid, refs.metricDescription, refs.headCount],
    answers: [...shown, live?.answer ?? NOTHING],
    draw: () => {
      const metrics = heads.data?.metrics ?? null;
      const data = { run, metrics, thumbnails: thumbnails.data, difference: differences.data };
      parts.grid.show(data, live?.metric ?? null);
    },
  };
};
