// Ablated heads: the buttons, and what the ablation changes.

import { ablateHeads, showAblatedRun, undoFailedAblation } from "../app/actions.js";
import { NOTHING } from "../data/query.js";
import { escapeInvisible, label, textDirection } from "../data/tokens.js";
import { bidi, button, el, setText, tableOf, tableRow } from "../platform/dom.js";
import { formatFixed, formatPercent, formatWeight } from "../render/format.js";
import { withSelection } from "../state/sides.js";
import { toggled } from "../state/state.js";
import { rankHeads } from "./head-grid.js";
import { shade } from "./word-strip.js";

const MAX_WORDS = 400;

/** The three heads whose weights change most, in descending order; none without a change. @param {number[][]} changes the largest of each head, L H */
export function mostChangedHeads(changes) {
  const first = rankHeads(changes).slice(0, 3);
  return first.filter(({ value }) => Number(value) > 0);
}

/** The buttons of an ablation, and what it changes. @param {App} app @returns {View} */
export function showAblation(app) {
  const { refs, source, manifest } = app;
  const headOf = () => {
    const { layer, head } = app.shownHead();
    return head === "mean" ? null : /** @type {[number, number]} */ ([layer, head]);
  };
  refs.ablateButton.addEventListener("click", () => {
    const head = headOf();
    if (head) ablateHeads(app, toggled(app.state.ablated, head));
  });
  refs.restoreButton.addEventListener("click", () => ablateHeads(app, []));
  return (ask) => {
    const { ablated, ablatedRun, edits } = app.state;
    const run = async (/** @type {AbortSignal} */ signal) => ({
      ...(await source.ablate({ heads: ablated, run: ablatedRun }, signal)),
      ablated,
      ablatedRun,
    });
    const options = {
      forgets: true,
      onData: (/** @type {AblationResult} */ result) => showAblatedRun(app, result),
      onError: (/** @type {Error} */ error) => undoFailedAblation(app, error),
    };
    const answer = ablated.length ? ask("ablation", [ablated, ablatedRun], run, options) : NOTHING;
    const draw = () => {
      const { ablateButton, restoreButton, undoButton, redoButton, ablationStatus } = refs;
      const [head, isRunning] = [headOf(), answer.isPending];
      undoButton.hidden = edits.past.length === 0;
      redoButton.hidden = edits.future.length === 0;
      for (const each of [undoButton, redoButton]) each.disabled = isRunning;
      const isAblated = ablated.some((each) => String(each) === String(head));
      setText(ablateButton, isAblated ? "Restore this head" : "Ablate this head");
      ablateButton.disabled = head === null || isRunning;
      restoreButton.hidden = ablated.length === 0;
      setText(ablationStatus, isRunning ? "Running the model again …" : edits.error);
    };
    const drawChanges = () => {
      refs.changes.hidden = answer.data === null;
      if (answer.data) drawResult(app, answer.data);
    };
    const of = [answer.data, manifest.runs[ablatedRun], app.theme];
    return [{ draw }, { nodes: [refs.changes], answers: [answer], of, draw: drawChanges }];
  };
}

/** @param {App} app @param {AblationResult} result */
function drawResult(app, { changes, ablated, ablatedRun }) {
  const { refs, manifest, theme } = app;
  const { layers, tokens, text } = manifest.runs[ablatedRun];
  const nameOf = (/** @type {number} */ layer, /** @type {number} */ head) =>
    `layer ${layers[layer].number} head ${head}`;
  setText(refs.changesTitle, `Without ${ablated.map(([layer, head]) => nameOf(layer, head)).join(", ")}`);
  const sides = `A is text ${"AB"[ablatedRun]} and B is its ablation; restore all heads to compare with the other text.`;
  setText(refs.changesSides, (manifest.numGivenRuns ?? 1) > 1 ? sides : "");
  const heads = mostChangedHeads(changes.heads);
  const note = heads.length
    ? "Only weights in later layers change. The largest changes are in:"
    : "No shown weight changes: no later layer is shown.";
  setText(refs.changesNote, note);
  const buttons = heads.map(({ layer, head, value }) =>
    button(`L${nameOf(layer, head).slice(1)}, by ${formatWeight(Number(value))}`, () =>
      app.set({ ...withSelection(app.state, { layer, head }), side: "diff" }),
    ),
  );
  refs.changedHeads.replaceChildren(...buttons);
  const minCosine = changes.cosines.reduce((a, b) => Math.min(a, b), 1);
  setText(refs.minCosine, formatFixed(minCosine, 4));
  const words = tokens.slice(0, MAX_WORDS);
  refs.turnedWords.replaceChildren(
    ...words.flatMap((token, t) => [turnedWord(token.text, changes.cosines[t], minCosine, theme), " "]),
  );
  refs.turnedWords.dir = textDirection(text);
  showChangedTokens(refs.changedTokens, changes.next_tokens);
}

/** A word, shaded by how far its vector turned. @param {string} text @param {number} cosine @param {number} minCosine @param {Theme} theme */
function turnedWord(text, cosine, minCosine, theme) {
  const title = `${escapeInvisible(text.slice(0, 200))}: cosine ${formatFixed(cosine, 4)}`;
  const node = bidi(label(text), { class: "rg-word", title });
  shade(node, theme, -Math.max(0, 1 - cosine) / Math.max(1e-6, 1 - minCosine));
  return node;
}

/** Fill a table with the next tokens before and after, or hide it. @param {HTMLTableElement} table @param {ChangedToken[] | null} tokens */
export function showChangedTokens(table, tokens) {
  table.hidden = !tokens;
  const rows = (tokens ?? []).map(({ token, before, after }) =>
    tableRow(bidi(label(token)), formatPercent(before), formatPercent(after)),
  );
  table.replaceChildren(el("caption", {}, "Next token"), ...tableOf(["token", "before", "after"], rows));
}
