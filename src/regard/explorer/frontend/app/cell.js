// The calculation of the chosen cell, of A and of B.

import { sentence } from "../data/attribution.js";
import { NOTHING } from "../data/query.js";
import { tokenName } from "../data/tokens.js";

/** @param {App} app @returns {View} */
export const showCell = (app) => (ask) => {
  const { state, queries, parts } = app;
  if (state.view !== "cell") return null;
  const { row, col } = state;
  const cell = app.shownCell();
  const answer = cell ? queries.cell(ask, cell) : NOTHING;
  const cellB = state.side === "diff" ? app.cellOfB() : null;
  const answerB = cellB ? queries.cell(ask, cellB, "cellB") : NOTHING;
  return {
    nodes: [parts.cellView.node],
    answers: [answer, answerB],
    draw: () => {
      if (!cell || !answer.data)
        return parts.cellView.showMessage(
          answer.error?.message ??
            (row === null || col === null
              ? "Choose a cell of the map to see its weight step by step."
              : "This text is shorter: it has no such cell."),
        );
      const why = answerB.error ? sentence(answerB.error.message) : "B has no such words.";
      const b = cellB && answerB.data ? { cell: answerB.data, names: namesOf(app, cellB) } : { message: why };
      const isOfTwo = state.side === "diff" && app.sides().length > 1;
      parts.cellView.show(answer.data, { ...namesOf(app, cell), side: sideMessage(app) }, isOfTwo ? b : null);
    },
  };
};

/** @param {App} app @param {HeadRef & { i: number, j: number }} cell @returns {CellNames} */
function namesOf({ manifest, state }, { run, layer, head, i, j }) {
  const { tokens, layers } = manifest.runs[run];
  const { number, heads, kv_heads: kvHeads } = layers[layer];
  const labels = tokens.map((_, n) => tokenName(tokens, n));
  const names = { from: labels[i], to: labels[j], layer: number, head, heads, kvHeads, labels };
  return { side: "", mode: state.mode, ...names };
}

/** Of which side the steps are, of two. @param {App} app */
function sideMessage(app) {
  const { side, words } = app.state;
  if (words) return "The map shows whole words; these are the steps of their first tokens.";
  if (app.sides().length < 2) return "";
  return side === "diff" ? "Why and What if are of A; choose B for its own." : `These are the steps of ${side}.`;
}
