// What is beside what: the choice of A, B and A − B, heads that are switched off, and what that changed.

import { colourAt, css, inkOn } from "./colour.js";
import { el, piece, segmented, setText } from "./dom.js";
import { digits, percent } from "./scale.js";
import { apart, label, visible } from "./text.js";

/**
 * @typedef {import("./state.js").State} State
 * @typedef {import("./source.js").Manifest} Manifest
 * @typedef {import("./source.js").Edited} Edited
 */

/**
 * What A and B are, in words.
 * @param {State} state @param {Manifest} manifest @param {{ run: number, layer: number, head: import("./state.js").Head }[]} sides two
 */
export function sideNames(state, manifest, sides) {
  if (sides[0].run === sides[1].run) return sides.map(({ layer, head }) => `layer ${layer} ${head === "mean" ? "mean" : `head ${head}`}`);
  const [a, b] = sides.map(({ run }) => manifest.runs[run]);
  if (state.edited !== null) return ["as it was", b.title || "edited"];
  return a.text === b.text ? [a.model, b.model] : apart(a.text, b.text);
}

export class Sides {
  /** @param {(side: import("./state.js").Side) => void} choose */
  constructor(choose) {
    this.choice = segmented("Compare", [{ key: "A", title: "A" }, { key: "B", title: "B" }, { key: "diff", title: "A − B" }], (key) => choose(/** @type {any} */ (key)));
    this.text = el("span", { class: "rg-muted rg-side-name" });
    this.why = el("span", { class: "rg-says" });
    this.node = el("div", { class: "rg-sides" }, this.choice.node, this.text, this.why);
  }

  /** @param {State} state @param {Manifest} manifest @param {ReturnType<typeof import("./state.js").sidesOf>} sides @param {string | null} whyNot */
  update(state, manifest, sides, whyNot) {
    this.node.hidden = sides.length < 2;
    if (sides.length < 2) return;
    this.choice.show(state.side, (key) => key !== "diff" || whyNot === null);
    const names = sideNames(state, manifest, sides);
    setText(this.why, whyNot === null ? "" : `No A − B: ${whyNot}.`);
    setText(this.text, state.side === "diff" ? `${names[0]} − ${names[1]}` : names[state.side === "A" ? 0 : 1]);
  }
}

export class Edits {
  /** @param {{ edit: (ablate: [number, number][]) => Promise<Edited>, shown: (edited: Edited | null) => void }} doings */
  constructor(doings) {
    this.doings = doings;
    /** @type {[number, number][]} */
    this.off = [];
    this.told = "";
    this.turn = el("button", { type: "button", class: "rg-quiet", on: { click: () => this.toggle() } }, "Switch this head off");
    this.reset = el("button", { type: "button", class: "rg-quiet", on: { click: () => this.run([]) } }, "All heads on");
    this.says = el("span", { class: "rg-muted", role: "status" });
    this.body = el("div", { class: "rg-changes" });
    this.panel = el("section", { class: "rg-edits", "aria-label": "What the edit changes", hidden: true }, this.body);
  }

  /** @param {import("./state.js").Place} place that is seen */
  update({ layer, head }) {
    this.at = head === "mean" ? null : /** @type {[number, number]} */ ([layer, head]);
    const isOff = this.at !== null && this.off.some(([l, h]) => l === this.at?.[0] && h === this.at?.[1]);
    setText(this.turn, isOff ? "Switch this head on" : "Switch this head off");
    this.turn.disabled = this.at === null;
    this.reset.hidden = this.off.length === 0;
  }

  toggle() {
    if (!this.at) return;
    const [layer, head] = this.at;
    const rest = this.off.filter(([l, h]) => l !== layer || h !== head);
    this.run(rest.length < this.off.length ? rest : [...this.off, [layer, head]]);
  }

  /** @param {[number, number][]} off */
  async run(off) {
    this.turn.disabled = true;
    setText(this.says, "");
    const late = setTimeout(() => setText(this.says, "Running the model again …"), 100);
    try {
      const edited = off.length ? await this.doings.edit(off) : null;
      this.off = off;
      this.panel.hidden = edited === null;
      setText(this.says, "");
      this.doings.shown(edited);
    } catch (error) {
      setText(this.says, /** @type {Error} */ (error).message);
    } finally {
      clearTimeout(late);
      this.turn.disabled = false;
    }
  }

  /** @param {Edited} edited @param {import("./source.js").Run} run @param {import("./colour.js").Theme} theme */
  tell({ run: number, changes }, run, theme) {
    const told = `${number} ${theme}`;
    if (told === this.told) return;
    this.told = told;
    const least = changes.cosines.reduce((a, b) => Math.min(a, b), 1);
    const most = Math.max(1e-6, 1 - least);
    const off = this.off.map(([layer, head]) => `${layer}.${head}`).join(", ");
    const words = run.tokens.slice(0, 400).map((token, t) => {
      const lost = Math.max(0, 1 - changes.cosines[t]);
      const colour = colourAt(theme, -lost / most);
      return piece(label(token.text), { class: "rg-word", title: `${visible(token.text.slice(0, 200))}: cosine ${digits(changes.cosines[t], 4)}`, style: { "background-color": css(colour), color: inkOn(colour) } });
    });
    const next = changes.next && el(
      "table",
      { class: "rg-next" },
      el("caption", {}, "What comes next"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "token"), el("th", { scope: "col" }, "before"), el("th", { scope: "col" }, "after"))),
      el("tbody", {}, ...changes.next.map(({ token, before, after }) => el("tr", {}, el("th", { scope: "row" }, piece(label(token))), el("td", {}, percent(before)), el("td", {}, percent(after))))),
    );
    this.body.replaceChildren(
      el("h3", {}, `Without ${this.off.length > 1 ? "heads" : "head"} ${off}`),
      el("p", { class: "rg-says" }, `How far each token's contextual vector turned: the deeper, the farther. The farthest has a cosine of ${digits(least, 4)} with what it was.`),
      el("div", { class: "rg-words" }, ...words.flatMap((word) => [word, " "])),
      next ?? "",
    );
  }
}
