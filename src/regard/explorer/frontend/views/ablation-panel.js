// Ablated heads: the buttons, and what the ablation changes.

import { escapeInvisible, label, textDirection } from "../data/tokens.js";
import { bidi, button, el, setText, tableRow } from "../platform/dom.js";
import { formatFixed, formatPercent, formatWeight } from "../render/format.js";
import { toggled } from "../state/state.js";
import { rankHeads } from "./head-grid.js";
import { shade } from "./word-strip.js";

const MAX_WORDS = 400;

/** The three heads whose weights change most, in descending order; none without a change. @param {number[][]} changes the largest of each head, L H */
export function mostChangedHeads(changes) {
  const first = rankHeads(changes).slice(0, 3);
  return first.filter(({ value }) => Number(value) > 0);
}

export class AblationPanel {
  /**
   * @param {Refs} refs
   * @param {{ ablate: (heads: [number, number][]) => void, select: (selection: HeadChoice) => void }} actions
   */
  constructor(refs, actions) {
    this.refs = refs;
    this.actions = actions;
    this.ablated = /** @type {[number, number][]} */ ([]);
    this.shownKey = "";
    refs.ablateButton.addEventListener("click", () => this.head && actions.ablate(toggled(this.ablated, this.head)));
    refs.restoreButton.addEventListener("click", () => actions.ablate([]));
  }

  /** @param {State} state @param {HeadChoice} shown @param {boolean} isRunning @param {App["edits"]} edits */
  update({ ablated }, { layer, head }, isRunning, { past, future, error }) {
    const { ablateButton, restoreButton, undoButton, redoButton, ablationStatus } = this.refs;
    undoButton.hidden = past.length === 0;
    redoButton.hidden = future.length === 0;
    for (const each of [undoButton, redoButton]) each.disabled = isRunning;
    this.ablated = ablated;
    this.head = head === "mean" ? null : /** @type {[number, number]} */ ([layer, head]);
    const isAblated = this.head !== null && ablated.some(([l, h]) => l === this.head?.[0] && h === this.head?.[1]);
    setText(ablateButton, isAblated ? "Restore this head" : "Ablate this head");
    ablateButton.disabled = this.head === null || isRunning;
    restoreButton.hidden = ablated.length === 0;
    setText(ablationStatus, isRunning ? "Running the model again …" : error);
  }

  /** @param {AblationResult | null} result @param {Manifest} manifest @param {Theme} theme */
  showResult(result, { runs, numGivenRuns }, theme) {
    const { refs } = this;
    refs.changes.hidden = result === null;
    const key = result ? `${result.run} ${theme}` : "";
    if (key === this.shownKey || !result) return;
    this.shownKey = key;
    const { changes, ablated, ablatedRun } = result;
    const { layers, tokens, text } = runs[ablatedRun];
    const nameOf = (/** @type {number} */ layer, /** @type {number} */ head) =>
      `layer ${layers[layer].number} head ${head}`;
    setText(refs.changesTitle, `Without ${ablated.map(([layer, head]) => nameOf(layer, head)).join(", ")}`);
    const sides = `A is text ${"AB"[ablatedRun]} and B is its ablation; restore all heads to compare with the other text.`;
    setText(refs.changesSides, (numGivenRuns ?? 1) > 1 ? sides : "");
    const heads = mostChangedHeads(changes.heads);
    const note = heads.length
      ? "Only weights in later layers change. The largest changes are in:"
      : "No shown weight changes: no later layer is shown.";
    setText(refs.changesNote, note);
    const buttons = heads.map(({ layer, head, value }) =>
      button(`L${nameOf(layer, head).slice(1)}, by ${formatWeight(Number(value))}`, () =>
        this.actions.select({ layer, head }),
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
  const names = ["token", "before", "after"].map((name) => el("th", { scope: "col" }, name));
  table.replaceChildren(
    el("caption", {}, "Next token"),
    el("thead", {}, el("tr", {}, ...names)),
    el("tbody", {}, ...(tokens ?? []).map(nextTokenRow)),
  );
}

/** @param {ChangedToken} token */
function nextTokenRow({ token, before, after }) {
  return tableRow(bidi(label(token)), formatPercent(before), formatPercent(after));
}
