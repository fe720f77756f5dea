// The switch between A, B and A − B.

import { distinctTexts } from "../data/tokens.js";
import { el, onSegment, setText, showSegment } from "../platform/dom.js";
import { layerName } from "./messages.js";

/** The names of A and B: what tells them apart. @param {State} state @param {Manifest} manifest @param {HeadRef[]} sides two */
export function sideNames(state, manifest, sides) {
  const nameOf = (/** @type {HeadRef} */ { run, layer, head }) =>
    `${layerName(manifest.runs[run].layers[layer].number).toLowerCase()} ${head === "mean" ? "mean" : `head ${head}`}`;
  if (sides[0].run === sides[1].run) return sides.map(nameOf);
  const [a, b] = sides.map(({ run }) => manifest.runs[run]);
  if (state.editedRun !== null) return ["original", b.title || "ablated"];
  return a.text === b.text ? [a.model, b.model] : distinctTexts(a.text, b.text);
}

export class SideSwitch {
  /** @param {HTMLElement} node  empty @param {boolean} hasDifference @param {(side: Side) => void} select */
  constructor(node, hasDifference, select) {
    this.node = node;
    this.hasDifference = hasDifference;
    const sides = { A: "A", B: "B", ...(hasDifference && { diff: "A − B" }) };
    const segments = Object.entries(sides).map(([key, name]) =>
      el("button", { type: "button", class: "rg-segment", data: { key } }, name),
    );
    this.buttons = el("div", { class: "rg-segmented", role: "group", "aria-label": "Compare" }, ...segments);
    this.names = el("span", { class: "rg-muted rg-side-name" });
    this.reason = el("span", { class: "rg-description" });
    node.replaceChildren(this.buttons, this.names, this.reason);
    onSegment(this.buttons, select);
  }

  /** What is chosen. @param {State} state @param {Manifest} manifest @param {HeadRef[]} sides @param {string | null} blockedBy  why there is no A − B */
  update(state, manifest, sides, blockedBy) {
    this.node.hidden = sides.length < 2;
    if (sides.length < 2) return;
    const side = state.side === "diff" && !this.hasDifference ? "A" : state.side;
    const [a, b] = sideNames(state, manifest, sides);
    showSegment(this.buttons, side, (key) => key !== "diff" || blockedBy === null);
    setText(this.names, { A: a, B: b, diff: `${a} − ${b}` }[side]);
    setText(this.reason, blockedBy === null || !this.hasDifference ? "" : `No A − B: ${blockedBy}.`);
  }
}
