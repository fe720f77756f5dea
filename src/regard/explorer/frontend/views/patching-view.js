// Patching: a square for each site, its colour how much of the number of A the run of B recovers with it.

import { formatFixed, formatSignificant, formatPercent } from "../render/format.js";
import { colorAt, textColorOn, toCss } from "../render/colormap.js";
import { label } from "../data/tokens.js";
import { bidi, button, el, onArrows, setTabStop, setText } from "../platform/dom.js";
import { Legend } from "./legend.js";
import { nextInRows } from "./head-grid.js";

const MAX_WITH_NUMBERS = 16; // layers
const STEPS = /** @type {Record<string, string>} */ ({
  output: "residual stream",
  attn: "attention",
  mlp: "MLP",
  head: "head",
});

export class PatchingView {
  /** @param {Refs} refs @param {{ set: (change: Partial<State>) => void, open: (layer: number, site: number) => void }} actions */
  constructor(refs, { set, open }) {
    this.refs = refs;
    this.open = open;
    this.legend = new Legend(refs.patchingLegend);
    this.shown = /** @type {{ patching: Patching, names: string[], layers: (number | string)[] } | null} */ (null);
    this.drawn = "";
    const { patchToken, patchVersus, patchingGrid, patchingCode } = refs;
    patchToken.addEventListener("change", () => set({ patchToken: Number(patchToken.value) }));
    patchVersus.addEventListener("change", () => set({ patchVersus: Number(patchVersus.value) }));
    patchingCode.addEventListener("focus", () => patchingCode.select());
    for (const type of ["pointerover", "focusin"])
      patchingGrid.addEventListener(type, ({ target }) => {
        const { label: says } = /** @type {HTMLElement} */ (target).dataset;
        if (says) setText(refs.patchingReadout, says);
      });
    onArrows(patchingGrid, "button", nextInRows);
  }

  /** @param {Patching | null} patching @param {string[]} names of the positions @param {Set<number>} changed @param {(number | string)[]} layers @param {Theme} theme */
  show(patching, names, changed, layers, theme) {
    const { patchingSummary, patchingGrid, patchingReadout, patchingLegend, patchingCode } = this.refs;
    const key = JSON.stringify([patching, names, theme]);
    if (this.drawn === key) return;
    this.drawn = key;
    this.shown = patching && { patching, names, layers };
    patchingLegend.hidden = !patching;
    /** @type {HTMLElement} */ (patchingCode.parentElement).hidden = !patching;
    setText(patchingReadout, "");
    setText(patchingSummary, patching ? summary(patching) : "");
    if (!patching) return patchingGrid.replaceChildren();
    this.showTokens(patching);
    patchingCode.value = patching.code;
    const { recovered, values, over } = patching;
    const isOfHeads = over === "head";
    const sites = recovered[0].map((_, site) => (isOfHeads ? `head ${site}` : names[site]));
    const max = scaleEnd(recovered.flat());
    const hasNumbers = layers.length <= MAX_WITH_NUMBERS;
    const cell = (/** @type {number} */ layer, /** @type {number} */ site) => {
      const share = recovered[layer][site] ?? 0;
      const color = colorAt(theme, share / max);
      const place = isOfHeads ? String(site) : "at " + names[site];
      const says = `Layer ${layers[layer]}, ${STEPS[over]} ${place}: ${formatFixed(share, 2)}, the number is ${formatSignificant(values[layer][site] ?? NaN)}`;
      const style = { "background-color": toCss(color), color: textColorOn(color) };
      const data = { label: says };
      const props = { class: "rg-patching-cell", style, data, title: says, "aria-label": says };
      return button(hasNumbers ? formatFixed(share, 2) : "", () => this.open(layer, site), props);
    };
    const row = (/** @type {(Node | string)[]} */ cells, kind = "") => {
      const style = { "--rg-cols": layers.length };
      return el("div", { class: `rg-patching-row ${kind}`, style }, ...cells);
    };
    const heading = [
      el("span", { class: "rg-muted" }, "layer"),
      ...layers.map((n) => el("span", { class: "rg-muted" }, String(n))),
    ];
    const rows = sites.map((name, site) => {
      const isChanged = !isOfHeads && changed.has(site);
      const title = el("span", { class: isChanged ? "rg-changed" : "", title: name }, bidi(name));
      return row([title, ...layers.map((_, layer) => cell(layer, site))]);
    });
    patchingGrid.replaceChildren(row(heading, "rg-patching-names"), ...rows);
    const cells = patchingGrid.querySelectorAll("button");
    setTabStop(cells, cells[0]);
    const means = "of the way from the number of B, 0, to that of A, 1: blue towards A, brown away from it";
    this.legend.update({ kind: "linear", max, signed: true }, theme, means);
  }

  /** @param {Patching} patching */
  showTokens({ likely, token, versus }) {
    const { patchToken, patchVersus } = this.refs;
    const options = (/** @type {number | null} */ other) =>
      likely
        .filter((one) => one.token !== other)
        .map((one) =>
          el("option", { value: String(one.token) }, `${label(one.text)} · ${formatPercent(one.probability)}`),
        );
    patchToken.replaceChildren(...options(versus));
    patchVersus.replaceChildren(...options(token));
    [patchToken.value, patchVersus.value] = [String(token), String(versus)];
  }
}

/** @param {Patching} patching */
function summary({ metric, clean, corrupted, recovered }) {
  const runs = `${metric}: ${formatSignificant(clean)} in A, ${formatSignificant(corrupted)} in B`;
  if (recovered.flat().some((value) => value === null)) return `${runs}: nothing is there to recover.`;
  return `${runs}. Each square is the run of B with this one step of A.`;
}

const NEARLY = 1.05; // what goes a little beyond 1 has its color

/** @param {Numbers} shares */
function scaleEnd(shares) {
  const largest = Math.max(...shares.map((share) => Math.abs(share ?? 0)));
  return largest <= NEARLY ? 1 : largest;
}
