// The switch between A, B and A − B.

import { distinguish } from "../data/tokens.js";
import { el, segmented, setText } from "../platform/dom.js";

/** @import { HeadRef, Manifest, Side, State } from "../types.js" */

/** The names of A and B: what tells them apart. @param {State} state @param {Manifest} manifest @param {HeadRef[]} sides two */
export function sideNames(state, manifest, sides) {
  const nameOf = (/** @type {HeadRef} */ { run, layer, head }) =>
    `layer ${manifest.runs[run].layers[layer].number} ${head === "mean" ? "mean" : `head ${head}`}`;
  if (sides[0].run === sides[1].run) return sides.map(nameOf);
  const [a, b] = sides.map(({ run }) => manifest.runs[run]);
  if (state.editedRun !== null) return ["original", b.title || "ablated"];
  return a.text === b.text ? [a.model, b.model] : distinguish(a.text, b.text);
}

export class SideSwitch {
  /** @param {(side: Side) => void} select @param {boolean} hasDifference  whether A − B is a choice */
  constructor(select, hasDifference) {
    this.hasDifference = hasDifference;
    const sides = [
      { key: "A", title: "A" },
      { key: "B", title: "B" },
      ...(hasDifference ? [{ key: "diff", title: "A − B" }] : []),
    ];
    this.buttons = segmented("Compare", sides, select);
    this.names = el("span", { class: "rg-muted rg-side-name" });
    this.reason = el("span", { class: "rg-description" });
    this.node = el("div", { class: "rg-side-switch" }, this.buttons.node, this.names, this.reason);
  }

  /** @param {State} state @param {Manifest} manifest @param {HeadRef[]} sides @param {string | null} blockedBy  why there is no A − B */
  update(state, manifest, sides, blockedBy) {
    this.node.hidden = sides.length < 2;
    if (sides.length < 2) return;
    const side = state.side === "diff" && !this.hasDifference ? "A" : state.side;
    this.buttons.show(side, (key) => key !== "diff" || blockedBy === null);
    const names = sideNames(state, manifest, sides);
    setText(this.reason, blockedBy === null || !this.hasDifference ? "" : `No A − B: ${blockedBy}.`);
    setText(this.names, side === "diff" ? `${names[0]} − ${names[1]}` : names[side === "A" ? 0 : 1]);
  }
}
