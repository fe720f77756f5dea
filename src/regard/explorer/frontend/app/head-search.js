// Which heads matter: the metrics of the grid that are computed when they are chosen, and the cells to search by.

import { NOTHING } from "../data/query.js";
import { groupTokens, isolate, label, tokenName } from "../data/tokens.js";
import { button, setText } from "../platform/dom.js";
import { formatPercent } from "../render/format.js";
import { toggled } from "../state/state.js";

/** The cells to search by: those that were added, else the chosen one. @param {App} app */
function cellsOf({ state }) {
  const { cells, row, col } = state;
  return cells.length || row === null || col === null ? cells : [/** @type {[number, number]} */ ([row, col])];
}

/** @param {App} app @param {number[]} cell */
function nameOf(app, [row, col]) {
  const [from, to] = [row, col].map((i) => isolate(tokenName(app.shownRun().tokens, i)));
  return `${from} → ${to}`;
}

/** Rank the heads by the mean weight of the cells. @param {App} app */
export function findHeads(app) {
  app.set({ cells: cellsOf(app), metric: "cell_weight", order: "metric", view: "heads", side: "A" });
}

/** Add a cell to those to search by, or remove it. @param {App} app @param {number} row @param {number} col */
export function toggleCell(app, row, col) {
  app.set({ row, col, cells: toggled(app.state.cells, [row, col]) });
}

/** Search by cells that are written as words, each by its first place in the text, or as to:2 by its second. @param {App} app @param {string} written "it → animal, cross → street" */
export function writeCells(app, written) {
  const { tokens, text } = app.shownRun();
  const words = groupTokens(tokens, text, { words: true, special: true, from: 0, to: Infinity });
  const isSame = (/** @type {string} */ a, /** @type {string} */ b) =>
    a.trim().toLowerCase() === b.trim().toLowerCase();
  const tokenOf = (/** @type {string} */ word) =>
    words.find(({ full }) => [full, full.replace(/:1$/, "")].some((name) => isSame(name, word)))?.members[0] ?? -1;
  const cells = written.split(",").map((pair) => /** @type {[number, number]} */ (pair.split(/→|->/).map(tokenOf)));
  const isCell = cells.every((cell) => cell.length === 2 && Math.min(...cell) >= 0);
  setText(app.refs.cellsStatus, isCell || !written.trim() ? "" : "Write it → animal, with words of the text.");
  if (isCell) app.set({ cells, row: cells[0][0], col: cells[0][1] });
}

/** @param {App} app */
export function toggleChosenCell(app) {
  const { row, col } = app.state;
  if (row !== null && col !== null) toggleCell(app, row, col);
}

/** @param {App} app @returns {View} */
export const showCellSearch = (app) => () => ({
  draw: () => {
    const { state, manifest, refs } = app;
    const { cells, row, col } = state;
    const canSearch = manifest.metrics.some(({ key }) => key === "cell_weight");
    refs.cellSearch.hidden = !canSearch;
    refs.addCell.disabled = row === null || col === null;
    refs.findHeads.disabled = cellsOf(app).length === 0;
    setText(refs.findHeads, cells.length > 1 ? "Find heads with these weights" : "Find heads with this weight");
    const isAdded = cells.some((cell) => cell[0] === row && cell[1] === col);
    setText(refs.addCell, isAdded ? "Remove this cell" : "Add this cell");
    const chips = cells.map((cell) =>
      button(`${nameOf(app, cell)} ×`, () => toggleCell(app, ...cell), { title: "Remove this cell from the search" }),
    );
    refs.cells.replaceChildren(...chips);
  },
});

/**
 * The values of the chosen metric as far as they are computed, and what is said of them; null of one that is held.
 * @param {App} app @param {Ask} ask @param {boolean} mayStart @returns {{ metric: LiveMetric, answer: Answer<LiveMetric> } | null}
 */
export function liveMetric(app, ask, mayStart) {
  const { state, manifest, source } = app;
  const isLive = manifest.metrics.some(({ key, live }) => live && key === state.metric);
  if (!isLive || state.side === "diff") return null;
  const { run } = app.shownHead();
  const cells = cellsOf(app);
  const isSweep = state.metric === "ablation_effect";
  if (!isSweep && cells.length === 0)
    return { metric: { values: null, message: "Choose a cell of the map first." }, answer: NOTHING };
  const position = Math.min(state.row ?? Infinity, app.shownRun().tokens.length - 1);
  const search = async (/** @type {AbortSignal} */ signal) => {
    app.queries.progress = null;
    return { ...(await source.find_heads({ run, cells }, signal)), message: "" };
  };
  const answer = isSweep
    ? ask("headSearch", ["sweep", run, position], (signal) => sweep(app, run, position, signal), { mayStart })
    : ask("headSearch", ["cells", run, cells], search, { mayStart });
  const { data, error } = answer;
  if (error) return { metric: { values: null, message: error.message }, answer };
  if (!data && mayStart && app.queries.progress) return { metric: app.queries.progress, answer: NOTHING };
  const message = data?.message || cells.map((cell) => nameOf(app, cell)).join(", ");
  return { metric: { values: data?.values ?? null, message }, answer };
}

/** What the ablation of each head changes, layer after layer. @param {App} app @param {number} run @param {number} position @param {AbortSignal} signal */
async function sweep(app, run, position, signal) {
  const { layers, tokens } = app.manifest.runs[run];
  const values = /** @type {HeadValues} */ ([]);
  const start = performance.now();
  const word = isolate(tokenName(tokens, position));
  let [message, left] = ["", ""];
  for (const [n, { number }] of layers.entries()) {
    app.queries.progress = {
      values: [...values],
      message: `Ablating each head: layer ${number} of ${layers.length}${left}`,
    };
    if (n > 0) app.refresh();
    const { before, after, text } = await app.source.sweep({ run, layer: n, position }, signal);
    values.push(after.map((share) => before - share));
    const seconds = (((performance.now() - start) / (n + 1)) * (layers.length - n - 1)) / 1000;
    left = `, about ${Math.ceil(seconds)} s left`;
    const next = text === null ? "" : `${isolate(label(text))} after ${word}: ${formatPercent(before)}`;
    message = next ? `${next} with all heads.` : `The vector of ${word}.`;
  }
  return { values, message };
}
