// Heads that are switched off, and what that changes.

import { directionOf, label, visible } from "../data/tokens.js";
import { el, piece, setText } from "../platform/dom.js";
import { colourAt, css, inkOn } from "../render/colormap.js";
import { digits, percent } from "../render/format.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/source.js").Manifest} Manifest
 */

/**
 * The heads of which a weight changed most, the farthest first; none that did not change.
 * @param {number[][]} heads of each layer @param {number} [most]
 */
export function changedMost(heads, most = 3) {
  const all = heads.flatMap((row, layer) => row.map((by, head) => ({ layer, head, by })));
  return all
    .filter(({ by }) => by > 0)
    .sort((a, b) => b.by - a.by)
    .slice(0, most);
}

export class Edits {
  /** @param {{ turn: (off: [number, number][]) => void, choose: (at: import("../state/state.js").Place) => void }} doings */
  constructor(doings) {
    this.doings = doings;
    /** @type {[number, number][]} */
    this.off = [];
    this.told = "";
    this.turn = el(
      "button",
      { type: "button", class: "rg-quiet", on: { click: () => this.toggle() } },
      "Switch this head off",
    );
    this.reset = el(
      "button",
      { type: "button", class: "rg-quiet", on: { click: () => doings.turn([]) } },
      "All heads on",
    );
    this.says = el("span", { class: "rg-muted", role: "status" });
    this.body = el("div", { class: "rg-changes" });
    this.panel = el("section", { class: "rg-edits", "aria-label": "What the edit changes", hidden: true }, this.body);
  }

  /** @param {State} state @param {import("../state/state.js").Place} place that is seen @param {boolean} waits for the model */
  update({ off }, { layer, head }, waits) {
    this.off = off;
    this.at = head === "mean" ? null : /** @type {[number, number]} */ ([layer, head]);
    const isOff = this.at !== null && off.some(([l, h]) => l === this.at?.[0] && h === this.at?.[1]);
    setText(this.turn, isOff ? "Switch this head on" : "Switch this head off");
    this.turn.disabled = this.at === null || waits;
    this.reset.hidden = off.length === 0;
    setText(this.says, waits ? "Running the model again …" : "");
  }

  toggle() {
    if (!this.at) return;
    const [layer, head] = this.at;
    const rest = this.off.filter(([l, h]) => l !== layer || h !== head);
    this.doings.turn(rest.length < this.off.length ? rest : [...this.off, [layer, head]]);
  }

  /**
   * What an edit changed; nothing where there is none.
   * @param {import("../app/queries.js").Edit | null} edit @param {Manifest} manifest @param {import("../render/colormap.js").Theme} theme
   */
  tell(edit, { runs, given }, theme) {
    this.panel.hidden = edit === null;
    const told = edit ? `${edit.run} ${theme}` : "";
    if (told === this.told || !edit) return;
    this.told = told;
    const { changes, off, offRun } = edit;
    const named = (/** @type {number} */ layer, /** @type {number} */ head) =>
      `layer ${runs[offRun].layers[layer].number} head ${head}`;
    const least = changes.cosines.reduce((a, b) => Math.min(a, b), 1);
    const most = Math.max(1e-6, 1 - least);
    const words = runs[offRun].tokens.slice(0, 400).map((token, t) => {
      const lost = Math.max(0, 1 - changes.cosines[t]);
      const colour = colourAt(theme, -lost / most);
      return piece(label(token.text), {
        class: "rg-word",
        title: `${visible(token.text.slice(0, 200))}: cosine ${digits(changes.cosines[t], 4)}`,
        style: { "background-color": css(colour), color: inkOn(colour) },
      });
    });
    const next =
      changes.next &&
      el(
        "table",
        { class: "rg-next" },
        el("caption", {}, "What comes next"),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "token"),
            el("th", { scope: "col" }, "before"),
            el("th", { scope: "col" }, "after"),
          ),
        ),
        el(
          "tbody",
          {},
          ...changes.next.map(({ token, before, after }) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, piece(label(token))),
              el("td", {}, percent(before)),
              el("td", {}, percent(after)),
            ),
          ),
        ),
      );
    const heads = changedMost(changes.heads);
    this.body.replaceChildren(
      el("h3", {}, `Without ${off.map(([layer, head]) => named(layer, head)).join(", ")}`),
      (given ?? 1) > 1
        ? el(
            "p",
            { class: "rg-says" },
            `A is text ${"AB"[offRun]} as it was and B the same text without ${off.length > 1 ? "these heads" : "this head"}; the other text is back when all heads are on.`,
          )
        : "",
      el(
        "p",
        { class: "rg-says" },
        "A head that is off still looks, and hands nothing on: its weights × values are 0, and in rollout it mixes nothing in.",
      ),
      el(
        "p",
        { class: "rg-says" },
        heads.length
          ? "Weights change in the layers above alone. Farthest are those of:"
          : "No weight that is shown changes: no layer is shown above this one.",
      ),
      el(
        "div",
        { class: "rg-bar" },
        ...heads.map(({ layer, head, by }) =>
          el(
            "button",
            { type: "button", class: "rg-quiet", on: { click: () => this.doings.choose({ layer, head }) } },
            `L${named(layer, head).slice(1)}, by ${digits(by, 3)}`,
          ),
        ),
      ),
      el(
        "p",
        { class: "rg-says" },
        `How far each token's contextual vector turned: the deeper, the farther. The farthest has a cosine of ${digits(least, 4)} with what it was.`,
      ),
      el("div", { class: "rg-words", dir: directionOf(runs[offRun].text) }, ...words.flatMap((word) => [word, " "])),
      next ?? "",
    );
  }
}
