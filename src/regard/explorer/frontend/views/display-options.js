// Display options: what a map shows, and how its numbers become colours.

import { button, el, segmented, toggle } from "../platform/dom.js";

/** @import { State } from "../types.js" */

export class DisplayOptions {
  /** @param {(change: Partial<State>) => void} set */
  constructor(set) {
    this.special = toggle("Special tokens", "Show tokens such as [CLS] that are not part of the text (S)", (special) =>
      set({ special, zoom: null }),
    );
    this.words = toggle(
      "Whole words",
      "Merge the tokens of a word: it is attended to as much as its tokens together (W)",
      (words) => set({ words, zoom: null }),
    );
    this.log = toggle("Log scale", "Colours for powers of ten, which show small weights (L)", (log) => set({ log }));
    this.byRow = toggle("Normalise each row", "Colours from 0 to the largest value of each row (N)", (byRow) =>
      set({ byRow }),
    );
    this.pool = segmented(
      "Pooling",
      [
        { key: "max", title: "maximum", description: "A pixel of many cells shows the largest" },
        { key: "mean", title: "mean", description: "A pixel of many cells shows their mean" },
      ],
      (pool) => set({ pool }),
    );
    const number = (/** @type {string} */ name) =>
      el("input", {
        type: "number",
        min: "0",
        "aria-label": name,
        class: "rg-count",
        on: { change: () => applyRange() },
      });
    this.from = number("First token");
    this.to = number("Last token");
    this.range = ["", ""]; // of the two inputs, as shown
    const applyRange = () => {
      const [first, last] = [this.from, this.to].map(({ value }) => (value === "" ? null : Number(value)));
      set({ from: first, to: last === null ? null : last + 1, zoom: null });
      [this.from.value, this.to.value] = this.range; // undo what was rejected
    };
    const all = button("All", () => set({ from: null, to: null, zoom: null }));
    this.note = el("p", { class: "rg-description", hidden: true });
    const panel = el(
      "div",
      { class: "rg-panel" },
      ...[this.special, this.words, this.log, this.byRow].map(({ node }) => node),
      el("div", { class: "rg-field" }, el("span", {}, "When zoomed out"), this.pool.node),
      el("div", { class: "rg-field" }, el("span", {}, "Tokens"), this.from, el("span", {}, "to"), this.to, all),
      this.note,
    );
    this.node = el("details", { class: "rg-menu" }, el("summary", {}, "Display"), panel);
  }

  /** @param {State} state @param {number} length @param {boolean} inMemory */
  update(state, length, inMemory) {
    this.special.box.checked = state.special || !inMemory;
    this.words.box.checked = state.words && inMemory;
    this.log.box.checked = state.log;
    this.byRow.box.checked = state.byRow && inMemory;
    for (const { box } of [this.special, this.words, this.byRow]) box.disabled = !inMemory;
    this.pool.show(state.pool);
    this.range = [String(state.from ?? 0), String((state.to ?? length) - 1)];
    [this.from.value, this.to.value] = this.range;
    this.from.max = this.to.max = String(length - 1);
    this.note.hidden = inMemory;
    this.note.textContent = "Whole words, special tokens and normalised rows need at most 1,024 tokens.";
  }
}
