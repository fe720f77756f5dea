// Ablated heads: the buttons, and what the ablation changes.

import { escapeInvisible, label, textDirection } from "../data/tokens.js";
import { bidi, button, el, setText } from "../platform/dom.js";
import { formatFixed, formatPercent, formatWeight } from "../render/format.js";
import { shade } from "./word-strip.js";

/** @import { AblationResult, Manifest, NextToken, Selection, State, Theme } from "../types.js" */

const MAX_WORDS = 400;

/**
 * The heads whose weights change most, in descending order; none without a change.
 * @param {number[][]} changes the largest of each head, L H @param {number} [count]
 */
export function mostChangedHeads(changes, count = 3) {
  const all = changes.flatMap((row, layer) => row.map((change, head) => ({ layer, head, change })));
  return all
    .filter(({ change }) => change > 0)
    .sort((a, b) => b.change - a.change)
    .slice(0, count);
}

export class AblationPanel {
  /** @param {{ ablate: (heads: [number, number][]) => void, select: (selection: Selection) => void }} actions */
  constructor(actions) {
    this.actions = actions;
    /** @type {[number, number][]} */
    this.ablated = [];
    this.shownKey = "";
    this.toggleButton = button("Ablate this head", () => this.toggle());
    this.resetButton = button("Restore all heads", () => actions.ablate([]));
    this.status = el("span", { class: "rg-muted", role: "status" });
    this.progress = el("span", { class: "rg-muted rg-progress" });
    this.body = el("div", { class: "rg-changes" });
    this.panel = el(
      "section",
      { class: "rg-ablation", "aria-label": "Effect of the ablation", hidden: true },
      this.body,
    );
  }

  /** @param {State} state @param {Selection} shown @param {boolean} isRunning */
  update({ ablated }, { layer, head }, isRunning) {
    this.ablated = ablated;
    this.head = head === "mean" ? null : /** @type {[number, number]} */ ([layer, head]);
    const isAblated = this.head !== null && ablated.some(([l, h]) => l === this.head?.[0] && h === this.head?.[1]);
    setText(this.toggleButton, isAblated ? "Restore this head" : "Ablate this head");
    this.toggleButton.disabled = this.head === null || isRunning;
    this.resetButton.hidden = ablated.length === 0;
    setText(this.status, isRunning ? "Running the model again …" : "");
  }

  toggle() {
    if (!this.head) return;
    const [layer, head] = this.head;
    const others = this.ablated.filter(([l, h]) => l !== layer || h !== head);
    this.actions.ablate(others.length < this.ablated.length ? others : [...this.ablated, [layer, head]]);
  }

  /** @param {AblationResult | null} result @param {Manifest} manifest @param {Theme} theme */
  showResult(result, { runs, numGivenRuns }, theme) {
    this.panel.hidden = result === null;
    const key = result ? `${result.run} ${theme}` : "";
    if (key === this.shownKey || !result) return;
    this.shownKey = key;
    const { changes, ablated, ablatedRun } = result;
    const { layers, tokens, text } = runs[ablatedRun];
    const nameOf = (/** @type {number} */ layer, /** @type {number} */ head) =>
      `layer ${layers[layer].number} head ${head}`;
    const sides = `A is text ${"AB"[ablatedRun]} and B is its ablation; restore all heads to compare with the other text.`;
    const heads = mostChangedHeads(changes.heads).map(({ layer, head, change }) =>
      button(`L${nameOf(layer, head).slice(1)}, by ${formatWeight(change)}`, () =>
        this.actions.select({ layer, head }),
      ),
    );
    const minCosine = changes.cosines.reduce((a, b) => Math.min(a, b), 1);
    const words = tokens
      .slice(0, MAX_WORDS)
      .flatMap((token, t) => [turnedWord(token.text, changes.cosines[t], minCosine, theme), " "]);
    this.body.replaceChildren(
      el("h3", {}, `Without ${ablated.map(([layer, head]) => nameOf(layer, head)).join(", ")}`),
      (numGivenRuns ?? 1) > 1 ? paragraph(sides) : "",
      paragraph(
        "An ablated head still attends, but its output is 0: so are its weights × values, and rollout skips it.",
      ),
      paragraph(
        heads.length
          ? "Only weights in later layers change. The largest changes are in:"
          : "No shown weight changes: no later layer is shown.",
      ),
      el("div", { class: "rg-bar" }, ...heads),
      paragraph(
        `The colour shows how far each token's contextual vector turned. The smallest cosine with the original is ${formatFixed(minCosine, 4)}.`,
      ),
      el("div", { class: "rg-words", dir: textDirection(text) }, ...words),
      changes.next_tokens ? nextTokenTable(changes.next_tokens) : "",
    );
  }
}

/** A word, shaded by how far its vector turned. @param {string} text @param {number} cosine @param {number} minCosine @param {Theme} theme */
function turnedWord(text, cosine, minCosine, theme) {
  const title = `${escapeInvisible(text.slice(0, 200))}: cosine ${formatFixed(cosine, 4)}`;
  const node = bidi(label(text), { class: "rg-word", title });
  shade(node, theme, -Math.max(0, 1 - cosine) / Math.max(1e-6, 1 - minCosine));
  return node;
}

/** @param {NextToken[]} tokens */
function nextTokenTable(tokens) {
  const headings = ["token", "before", "after"].map((text) => el("th", { scope: "col" }, text));
  const rows = tokens.map(({ token, before, after }) => {
    const shares = [before, after].map((share) => el("td", {}, formatPercent(share)));
    return el("tr", {}, el("th", { scope: "row" }, bidi(label(token))), ...shares);
  });
  return el(
    "table",
    { class: "rg-next-tokens" },
    el("caption", {}, "Next token"),
    el("thead", {}, el("tr", {}, ...headings)),
    el("tbody", {}, ...rows),
  );
}

/** @param {string} text */
function paragraph(text) {
  return el("p", { class: "rg-description" }, text);
}
