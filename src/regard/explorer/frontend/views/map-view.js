// The map of one head: a canvas with zoom, pan and a cell cursor.

import { isPresenting } from "../app/actions.js";
import { toggleCell } from "../app/head-search.js";
import { NOTHING } from "../data/query.js";
import { groupIndices, indicesOf } from "../data/tokens.js";
import { setAttribute, setText } from "../platform/dom.js";
import { colorTable } from "../render/colormap.js";
import { widestLabel } from "../render/map-annotations.js";
import { drawMap } from "../render/map-renderer.js";
import { LABEL_PX, LARGE_LABEL_PX, levelOf, themeColors, valueAt } from "../render/scene.js";
import { clampViewport, minCellSize, panTo } from "../render/viewport.js";
import * as messages from "./messages.js";
import { ZoomView } from "./zoom-view.js";

const SAVE_DELAY_MS = 200;
const NARROW_PX = 500;
const READABLE_CELL_PX = 34; // a cell shows its value
const LABEL_ANGLE = Math.PI / 3;

export class MapView extends ZoomView {
  /** @param {App} app */
  constructor(app) {
    super(app.refs.map, "Show the whole map");
    this.stage.setAttribute("aria-describedby", app.refs.liveRegion.id);
    this.app = app;
    this.props = /** @type {MapProps | null} */ (null);
    this.table = colorTable("light");
    this.savedViewport = ""; // as JSON
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
    return { x: 0, y: 0, k: minCellSize(this.extent(), this.plotArea) };
  }

  /** @param {Viewport} viewport */
  clamp(viewport) {
    return clampViewport(viewport, this.extent(), this.plotArea);
  }

  /** @param {Viewport} viewport */
  showsWhole(viewport) {
    return viewport.k <= this.whole().k * 1.001;
  }

  measure() {
    const context = this.canvas.getContext("2d");
    if (!context || !this.props) return;
    const { mapData, labelSize } = this.props;
    const { rows, cols, hiddenMass } = mapData;
    const { width, height } = this.size;
    const left = Math.min(Math.max(48, width * 0.28), widestLabel(context, rows, labelSize) + 16);
    const top = Math.min(10 * labelSize, widestLabel(context, cols, labelSize) * Math.sin(LABEL_ANGLE) + 18);
    const buttons = width > NARROW_PX ? 34 : 0; // of the zoom, which are below the map of a phone
    const right = hiddenMass ? 74 + buttons : 34;
    this.plotArea = {
      left,
      top,
      strip: hiddenMass ? right : 0,
      width: Math.max(40, width - left - right),
      height: Math.max(40, height - top - (width > NARROW_PX ? 8 : 44)), // of a phone, above the buttons of the zoom
    };
  }

  drawNow() {
    if (this.props) super.drawNow();
  }

  /** @param {Context2D} context */
  paint(context) {
    const { pyramid } = /** @type {MapProps} */ (this.props).mapData;
    pyramid.cancelExcept(drawMap(context, this.scene()));
    this.node.dataset.waiting = String(pyramid.numPending);
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

  /** The cell if it is visible, else the middle. */
  zoomCenter() {
    const { x, y, k } = this.target ?? this.viewport;
    const { row, col } = this.props ?? { row: null, col: null };
    const { rows, cols } = this.extent();
    const { width, height } = this.plotArea;
    const middle = { x: Math.min(width, cols * k) / 2, y: Math.min(height, rows * k) / 2 };
    const cell = row !== null && col !== null ? { x: (col + 0.5 - x) * k, y: (row + 0.5 - y) * k } : middle;
    return cell.x >= 0 && cell.y >= 0 && cell.x <= width && cell.y <= height ? cell : middle;
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

  onViewport() {
    clearTimeout(this.saveTimer);
    this.saveTimer = setTimeout(() => {
      const saved = this.isWhole ? null : { ...this.viewport };
      this.savedViewport = JSON.stringify(saved);
      this.app.set({ zoom: saved });
    }, SAVE_DELAY_MS);
  }

  /** The cell at an event; null outside of the map. @param {PointerPosition} event */
  cellAt(event) {
    const { px, py } = this.pointOf(event);
    const { width, height } = this.plotArea;
    const { x, y, k } = this.viewport;
    const [col, row] = [Math.floor(x + px / k), Math.floor(y + py / k)];
    const { rows, cols } = this.extent();
    const isInside = px >= 0 && py >= 0 && row < rows && col < cols && px <= width && py <= height;
    return isInside ? { row, col } : null;
  }

  /** A click chooses a cell, another on it opens its calculation. @param {PointerPosition} event */
  onClick(event) {
    const cell = this.cellAt(event);
    if (!cell || !this.props) return;
    const { rows, cols } = this.props.mapData;
    const [row, col] = [rows[cell.row], cols[cell.col]].map(({ members }) => members);
    const { state } = this.app; // where a second click may come before the first is drawn
    if (event.shiftKey) toggleCell(this.app, row[0], col[0]);
    else if (row.includes(state.row ?? -1) && col.includes(state.col ?? -1)) this.app.set({ view: "cell" });
    else this.app.set({ row: row[0], col: col[0] });
  }

  /** @param {PointerPosition} event */
  tipText(event) {
    const cell = this.cellAt(event);
    if (!cell || !this.props) return "";
    return this.props.message(cell.row, cell.col, valueAt(this.props.mapData.pyramid, cell.row, cell.col));
  }
}

/** @param {App} app @returns {View} */
export const showMap = (app) => (ask) => {
  const { parts, refs, queries, state } = app;
  const maps = queries.maps(ask);
  const { row, col } = app.cursor();
  const drawn = maps.data && row !== null && col !== null ? valueAt(app.mapOf(maps.data).pyramid, row, col) : null;
  const isOverview = maps.data !== null && drawn === null && app.shownCell() !== null;
  const value = isOverview ? cellValue(app, ask) : { ...NOTHING, data: drawn };
  return [
    {
      nodes: [refs.title, parts.map.stage, parts.legend.node, refs.modeDescription, refs.provenance],
      answers: [maps],
      draw: () => {
        showHeadings(app);
        if (maps.data) updateMap(app, maps.data);
        else parts.map.stage.classList.add("rg-stale"); // of before, beside the error
      },
    },
    { draw: () => showCell(app, maps, value.data) },
  ];
};

/** The value of the cell, while only an overview is loaded. @param {App} app @param {Ask} ask @returns {Answer<number>} */
function cellValue(app, ask) {
  const { mode, row, col } = app.state;
  if (row === null || col === null) return NOTHING;
  const pool = /** @type {const} */ ("max");
  const region = { mode, row0: row, row1: row + 1, col0: col, col1: col + 1, bin_size: 1, pool };
  const headRefs = app.queriedHeads();
  const load = async (/** @type {AbortSignal} */ signal) => {
    const [[a], [b] = [0]] = await Promise.all(
      headRefs.map(({ run, layer, head }) => app.source.tile({ run, layer, head, ...region }, signal)),
    );
    return a - b;
  };
  return ask("cellValue", [headRefs, region], load, { inBar: true });
}

/** @param {App} app */
function showHeadings(app) {
  const { refs, manifest, state } = app;
  const shown = app.shownHead();
  const sides = app.sides();
  const numbered = (/** @type {HeadRef} */ ref) => ({
    layer: manifest.runs[ref.run].layers[ref.layer].number,
    head: ref.head,
  });
  const other = (state.side === "diff" && sides[1]) || shown;
  setText(refs.title, messages.headingMessage(numbered(shown), numbered(other)));
  const mode = manifest.modes.find(({ key }) => key === state.mode);
  if (mode) {
    setText(refs.modeDescription, `${mode.description} ${mode.caveat}`);
    refs.modeDescription.title = mode.source;
  }
  setText(refs.provenance, messages.provenanceMessage(manifest, shown.run, shown.layer));
}

/** @param {App} app @param {Maps} maps */
function updateMap(app, maps) {
  const { state, parts, showsDifference, theme } = app;
  const mapData = app.mapOf(maps);
  const { rows, cols, pyramid, colorPyramid, inMemory } = mapData;
  const { pooledMax, cellMax } = showsDifference || state.byRow ? colorPyramid : maps;
  const layer = app.shownRun().layers[app.shownHead().layer];
  const { tokens } = app.shownRun();
  const found = app.matches();
  const foundOn = (/** @type {Group[]} */ axis) => indicesOf(groupIndices(axis, tokens.length), found);
  parts.map.show({
    mapData,
    scale: { kind: state.log ? "log" : "linear", max: pooledMax || 1, signed: showsDifference },
    cellMax,
    theme,
    labelSize: isPresenting(state) ? LARGE_LABEL_PX : LABEL_PX,
    decimals: app.decimals(app.sidesOf(maps), maps.pooledMax),
    ...app.cursor(),
    chosen: state.cells.map(([row, col]) => app.cursor({ row, col })),
    rowsFound: foundOn(rows),
    colsFound: foundOn(cols),
    causal: layer.causal && !(state.words && inMemory) && state.mode === "raw" && rows.length === cols.length,
    viewport: state.zoom,
    message: (row, col, value) => cellMessage(app, maps, row, col, value),
  });
  const name = `Attention map, ${rows.length} query rows, ${cols.length} key columns. Arrow keys move the cell.`;
  setAttribute(parts.map.stage, "aria-label", name);
  const legend = messages.legendMessage(state, showsDifference, pyramid.pooledMax, parts.map.pooling());
  parts.legend.update(parts.map.scale(), theme, legend);
}

/** The value of the cell, in the line below the map and for screen readers. @param {App} app @param {Answer<Maps>} maps @param {number | null} value */
function showCell(app, maps, value) {
  const { readout, calculateButton, liveRegion, title } = app.refs;
  const { row, col } = app.cursor();
  calculateButton.hidden = row === null || col === null;
  if (row === null || col === null)
    return setText(readout, "Rows are queries, columns are keys. Click a cell, and again for its calculation.");
  const message = cellMessage(app, maps.data, row, col, value);
  setText(readout, message);
  readout.title = cellMessage(app, maps.data, row, col, value, true);
  if (value !== null && !maps.isPending) setText(liveRegion, `${message}. ${title.textContent}`);
}

/** @param {App} app @param {Maps | null} maps @param {number} row @param {number} col of the map @param {number | null} value @param {boolean} [inFull] */
function cellMessage(app, maps, row, col, value, inFull) {
  const { state, showsDifference } = app;
  const map = maps ? app.mapOf(maps) : { ...app.axes(), hiddenMass: null };
  const decimals = maps ? app.decimals(app.sidesOf(maps), maps.pooledMax) : 0;
  return messages.cellMessage(state, map, showsDifference, row, col, value, decimals, inFull);
}
