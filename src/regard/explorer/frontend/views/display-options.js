// Display options: what a map shows, and how its numbers become colours.

import { el, segmented, toggle } from "../platform/dom.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../render/scale.js").Scale} Scale
 */

export class Aids {
  /** @param {(change: Partial<State>) => void} set */
  constructor(set) {
    this.special = toggle("Special tokens", "Show tokens such as [CLS] that are no part of the text (S)", (special) =>
      set({ special, zoom: null }),
    );
    this.words = toggle(
      "Whole words",
      "Join the pieces of a word: it is looked at as much as its pieces together (W)",
      (words) => set({ words, zoom: null }),
    );
    this.log = toggle("Log scale", "Colours for powers of ten, so that small weights are seen (L)", (log) =>
      set({ log }),
    );
    this.byRow = toggle("Each row by itself", "Colours from 0 to the largest of each row (N)", (byRow) =>
      set({ byRow }),
    );
    this.pool = segmented(
      "Pooling",
      [
        { key: "max", title: "Largest", says: "A pixel of many cells shows the largest" },
        { key: "mean", title: "Mean", says: "A pixel of many cells shows their mean" },
      ],
      (pool) => set({ pool: /** @type {any} */ (pool) }),
    );
    const number = (/** @type {string} */ name) =>
      el("input", { type: "number", min: "0", "aria-label": name, class: "rg-count" });
    this.from = number("First token");
    this.to = number("Last token");
    this.window = ["", ""]; // first and last token, as they stand in the fields
    const go = () => {
      const [first, last] = [this.from, this.to].map(({ value }) => (value === "" ? null : Number(value)));
      set({ from: first, to: last === null ? null : last + 1, zoom: null });
      [this.from.value, this.to.value] = this.window; // what was not taken
    };
    this.from.addEventListener("change", go);
    this.to.addEventListener("change", go);
    this.note = el("p", { class: "rg-says", hidden: true });
    this.panel = el(
      "div",
      { class: "rg-panel" },
      this.special.node,
      this.words.node,
      this.log.node,
      this.byRow.node,
      el("div", { class: "rg-field" }, el("span", {}, "Zoomed out"), this.pool.node),
      el(
        "div",
        { class: "rg-field" },
        el("span", {}, "Tokens"),
        this.from,
        el("span", {}, "to"),
        this.to,
        el(
          "button",
          { type: "button", class: "rg-quiet", on: { click: () => set({ from: null, to: null, zoom: null }) } },
          "All",
        ),
      ),
      this.note,
    );
    this.node = el("details", { class: "rg-menu" }, el("summary", {}, "Reading"), this.panel);
  }

  /** @param {State} state @param {number} length @param {boolean} whole */
  update(state, length, whole) {
    this.special.box.checked = state.special || !whole;
    this.words.box.checked = state.words && whole;
    this.log.box.checked = state.log;
    this.byRow.box.checked = state.byRow && whole;
    for (const { box } of [this.special, this.words, this.byRow]) box.disabled = !whole;
    this.pool.show(state.pool);
    this.window = [String(state.from ?? 0), String((state.to ?? length) - 1)];
    [this.from.value, this.to.value] = this.window;
    this.from.max = this.to.max = String(length - 1);
    this.note.hidden = whole;
    this.note.textContent = "Words, special tokens and rows by themselves: choose at most 1,024 tokens.";
  }
}
