// The map with its heading, its legend and its cell.

import { NOTHING } from "../data/query.js";
import { groupIndices, indicesOf } from "../data/tokens.js";
import { setAttribute, setText } from "../platform/dom.js";
import { LABEL_PX, LARGE_LABEL_PX, valueAt } from "../render/scene.js";
import * as messages from "../views/messages.js";
import { isPresenting } from "./actions.js";

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
        if (maps.data) drawMap(app, maps.data);
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
function drawMap(app, maps) {
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
