// Which heads matter: the metrics of the grid that are computed when they are chosen, and the cells to search by.

import { label } from "../data/tokens.js";

/** @import { App } from "./app.js" */
/** @import { LiveMetric } from "../types.js" */

/** The cells to search by: those that were added, else the chosen one. @param {App} app */
function cellsOf({ state }) {
  const { cells, row, col } = state;
  return cells.length || row === null || col === null ? cells : [/** @type {[number, number]} */ ([row, col])];
}

/** @param {App} app @param {number[]} cell */
function nameOf(app, [row, col]) {
  const [from, to] = [row, col].map((i) => `\u2068${label(app.shownRun().tokens[i]?.text ?? "")}\u2069`);
  return `${from} → ${to}`;
}

/** Rank the heads by the mean weight of the cells. @param {App} app */
export function findHeads(app) {
  app.set({ cells: cellsOf(app), metric: "cell_weight", order: "metric", view: "heads", side: "A" });
}

/** Add a cell to those to search by, or remove it. @param {App} app @param {number} row @param {number} col */
export function toggleCell(app, row, col) {
  const others = app.state.cells.filter((cell) => cell[0] !== row || cell[1] !== col);
  app.set({ row, col, cells: others.length < app.state.cells.length ? others : [...others, [row, col]] });
}

/** @param {App} app */
export function toggleChosenCell(app) {
  const { row, col } = app.state;
  if (row !== null && col !== null) toggleCell(app, row, col);
}

/** @param {App} app */
export function showCellSearch(app) {
  const { state, manifest, parts } = app;
  const { cells, row, col } = state;
  const canSearch = manifest.metrics.some(({ key }) => key === "cell_weight");
  const isAdded = cells.some((cell) => cell[0] === row && cell[1] === col);
  const names = cells.map((cell) => ({ cell, name: nameOf(app, cell) }));
  parts.cellSearch.show(names, isAdded, canSearch && row !== null && col !== null);
}

/**
 * The values of the chosen metric as far as they are computed, and what is said of them; null of one that is held.
 * @param {App} app @returns {LiveMetric | null}
 */
export function liveMetric(app) {
  const { state, queries, manifest } = app;
  const query = queries.headSearch;
  const isLive = manifest.metrics.some(({ key, live }) => live && key === state.metric);
  if (!isLive || state.side === "diff") {
    if (!query.isCurrent) query.reset();
    return null;
  }
  const { run } = app.shownHead();
  const { tokens, layers } = app.shownRun();
  const cells = cellsOf(app);
  if (state.metric === "ablation_effect") {
    const position = Math.min(state.row ?? Infinity, tokens.length - 1);
    queries.fetchSweep(run, layers, position);
  } else if (cells.length) {
    queries.progress = null;
    query.fetch(["cells", run, cells], async (signal) => ({
      ...(await app.source.findHeads(run, cells, signal)),
      message: "",
    }));
  } else return { values: null, message: "Choose a cell of the map first." };
  const { current, currentError } = query;
  if (currentError) return { values: null, message: currentError.message };
  if (!current) return queries.progress ?? { values: null, message: "…" };
  return { ...current, message: current.message || cells.map((cell) => nameOf(app, cell)).join(", ") };
}
