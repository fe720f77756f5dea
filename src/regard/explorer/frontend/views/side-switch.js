// The switch between A, B and A − B.

import { apart } from "../data/tokens.js";
import { el, segmented, setText } from "../platform/dom.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/source.js").Manifest} Manifest
 */

/**
 * What A and B are, in words.
 * @param {State} state @param {Manifest} manifest @param {{ run: number, layer: number, head: import("../state/state.js").Head }[]} sides two
 */
export function sideNames(state, manifest, sides) {
  if (sides[0].run === sides[1].run)
    return sides.map(
      ({ run, layer, head }) =>
        `layer ${manifest.runs[run].layers[layer].number} ${head === "mean" ? "mean" : `head ${head}`}`,
    );
  const [a, b] = sides.map(({ run }) => manifest.runs[run]);
  if (state.edited !== null) return ["as it was", b.title || "edited"];
  return a.text === b.text ? [a.model, b.model] : apart(a.text, b.text);
}

/** The choice of what is seen: A, B and, where it can be, A − B. */
export class Sides {
  /** @param {(side: import("../state/state.js").Side) => void} choose @param {{ difference?: boolean }} [options]  whether A − B is one of them */
  constructor(choose, { difference = true } = {}) {
    this.difference = difference;
    const both = [
      { key: "A", title: "A" },
      { key: "B", title: "B" },
    ];
    this.choice = segmented("Compare", difference ? [...both, { key: "diff", title: "A − B" }] : both, (key) =>
      choose(/** @type {any} */ (key)),
    );
    this.text = el("span", { class: "rg-muted rg-side-name" });
    this.why = el("span", { class: "rg-says" });
    this.node = el("div", { class: "rg-sides" }, this.choice.node, this.text, this.why);
  }

  /** @param {State} state @param {Manifest} manifest @param {ReturnType<typeof import("../state/sides.js").sidesOf>} sides @param {string | null} whyNot */
  update(state, manifest, sides, whyNot) {
    this.node.hidden = sides.length < 2;
    if (sides.length < 2) return;
    const side = state.side === "diff" && !this.difference ? "A" : state.side;
    this.choice.show(side, (key) => key !== "diff" || whyNot === null);
    const names = sideNames(state, manifest, sides);
    setText(this.why, whyNot === null || !this.difference ? "" : `No A − B: ${whyNot}.`);
    setText(this.text, side === "diff" ? `${names[0]} − ${names[1]}` : names[side === "A" ? 0 : 1]);
  }
}
