// Patching: steps of A put into the run of B, one after the other. A square for each site, its colour how much of the
// number of A the run of B recovers with it.

import { openRow } from "../app/actions.js";
import { sentence } from "../data/attribution.js";
import { NOTHING } from "../data/query.js";
import { tokenName } from "../data/tokens.js";
import {
  bidi,
  button,
  closest,
  el,
  muted,
  onArrows,
  onPoint,
  setOptions,
  setTabStop,
  setText,
  tableOf,
  tableRow,
} from "../platform/dom.js";
import { colorAt, textColorOn, toCss } from "../render/colormap.js";
import { formatFixed, formatSigned, formatSignificant } from "../render/format.js";
import { runsOf } from "../state/sides.js";
import { nextInRows } from "./head-grid.js";
import { Legend } from "./legend.js";
import { tokenChoice } from "./next-tokens-panel.js";
import { shade } from "./word-strip.js";

const MAX_WITH_NUMBERS = 16; // layers
const STEPS = /** @type {Record<string, string>} */ ({
  output: "residual stream",
  attn: "attention",
  mlp: "MLP",
  head: "head",
});
const INPUTS = ["query", "key", "value"];

/** What is asked for; a text where nothing can be. @param {App} app */
export function patchingQuestion({ state, manifest }) {
  const [a, b] = sidesOfTexts(state, manifest);
  if (b === undefined)
    return "Patching needs a text B with the same number of tokens as A: it puts steps of A into the run of B.";
  const { patchOver: over, patchToken: token, patchVersus: versus, patchSender, patchReceiver } = state;
  const [sender, receiver] = over === "path" ? [patchSender, patchReceiver] : [null, null];
  const chosen = Object.entries({ token, versus, sender, receiver }).filter(([, choice]) => choice !== null);
  return { run: a, other: b, over, ...Object.fromEntries(chosen) };
}

/** The runs of A and B, without ablations. @param {State} state @param {Manifest} manifest */
export function sidesOfTexts(state, manifest) {
  return runsOf({ ...state, editedRun: null }, manifest);
}

/** @param {App} app @returns {View} */
export function showPatching(app) {
  const { refs, manifest } = app;
  const { patchToken, patchVersus, patchSender, patchReceiver, patchingGrid, patchingCode, patchingReadout } = refs;
  const legend = new Legend(refs.patchingLegend);
  patchToken.addEventListener("change", () => app.set({ patchToken: Number(patchToken.value) }));
  patchVersus.addEventListener("change", () => app.set({ patchVersus: Number(patchVersus.value) }));
  const setPath = (/** @type {HTMLSelectElement} */ changed) => () => {
    const [sender, receiver] = [patchSender, patchReceiver].map(({ value }) =>
      value ? /** @type {[number, number]} */ (value.split(",").map(Number)) : null,
    );
    const isPath = sender && receiver && sender[0] < receiver[0]; // else the other one is that which recovers most
    const isSender = changed === patchSender;
    app.set({ patchSender: isPath || isSender ? sender : null, patchReceiver: isPath || !isSender ? receiver : null });
  };
  for (const list of [patchSender, patchReceiver]) list.addEventListener("change", setPath(list));
  patchingCode.addEventListener("focus", () => patchingCode.select());
  refs.startPatching.addEventListener("click", () => app.set({ cancelledPatching: "" }));
  refs.cancelPatching.addEventListener("click", () => {
    app.set({ cancelledPatching: JSON.stringify(patchingQuestion(app)) });
    refs.startPatching.focus();
  });
  onPoint(patchingGrid, (target) => {
    const site = closest(target, "[data-label]");
    if (site) setText(patchingReadout, site.dataset.label ?? "");
  });
  onArrows(patchingGrid, "button", nextInRows);

  return (ask) => {
    const { state, theme } = app;
    if (state.view !== "patching") return null;
    const [a, b] = sidesOfTexts(state, manifest).map((run) => manifest.runs[run]);
    const question = patchingQuestion(app);
    const isCancelled = state.cancelledPatching === JSON.stringify(question);
    const answer = typeof question === "string" || isCancelled ? NOTHING : ask("patching", question);
    const drawFrame = () => {
      refs.patchPath.hidden = a.layers.length < 2 || !a.predicts_tokens;
      refs.patchHeads.hidden = state.patchOver !== "path";
      showHeads(refs, a, state, answer);
      refs.cancelPatching.hidden = !answer.isPending;
      refs.startPatching.hidden = !isCancelled;
      const waits = answer.isPending ? "Running B again with each step of A …" : "";
      const says = typeof question === "string" ? question : isCancelled ? "Cancelled." : answer.error?.message;
      setText(refs.patchingStatus, waits || (says ? sentence(says) : ""));
    };
    const drawGrid = () => {
      const { data: patching, error } = answer;
      const isOfTokens = error ? patchToken.options.length > 0 : typeof patching?.token === "number";
      refs.patchTokens.hidden = !isOfTokens; // after an error, another can be chosen
      refs.patchingLegend.hidden = !patching;
      /** @type {HTMLElement} */ (patchingCode.parentElement).hidden = !patching;
      setText(patchingReadout, "");
      setText(refs.patchingSummary, patching ? summary(patching) : "");
      if (!patching) return patchingGrid.replaceChildren();
      showTokens(refs, patching);
      patchingCode.value = patching.code;
      const max = scaleEnd(patching.recovered.flat());
      patchingGrid.replaceChildren(
        ...(patching.sender ? [pathTable(app, patching, max)] : rowsOf(app, patching, a, b, max)),
      );
      const cells = patchingGrid.querySelectorAll("button");
      setTabStop(cells, cells[0]);
      const means = "of the way from the number of B, 0, to that of A, 1: blue towards A, brown away from it";
      legend.update({ kind: "linear", max, signed: true }, theme, means);
    };
    const nodes = [refs.patchingSummary, patchingGrid, patchingReadout, refs.patchingLegend, refs.patchHeads];
    return [{ draw: drawFrame }, { nodes, answers: [answer], of: [answer, a, b, theme], draw: drawGrid }];
  };
}

/** The names of the positions, of both texts where they differ. @param {Run} a @param {Run} b */
export function positionNames({ tokens }, b) {
  return tokens.map(({ text }, n) => {
    const [name, other] = [tokenName(tokens, n), b.tokens[n]];
    return other && other.text !== text ? `${name} | ${tokenName(b.tokens, n)}` : name;
  });
}

/** A row for each site, below the names of the layers. @param {App} app @param {Patching} patching @param {Run} a @param {Run} b @param {number} max */
function rowsOf(app, { recovered, values, over, layers }, a, b, max) {
  const names = positionNames(a, b);
  const isOfHeads = over === "head";
  const hasNumbers = layers.length <= MAX_WITH_NUMBERS;
  const cell = (/** @type {number} */ layer, /** @type {number} */ site) => {
    const share = recovered[layer][site] ?? 0;
    const color = colorAt(app.theme, share / max);
    const place = isOfHeads ? String(site) : "at " + names[site];
    const hasMap = a.layers.some(({ number }) => number === layers[layer]);
    const mapless = hasMap ? "" : "; this layer is linear attention, which has no map to open";
    const says = `Layer ${layers[layer]}, ${STEPS[over]} ${place}: ${formatFixed(share, 2)}, the number is ${formatSignificant(values[layer][site] ?? NaN)}${mapless}`;
    const style = { "background-color": toCss(color), color: textColorOn(color) };
    const data = { label: says };
    const disabled = hasMap ? {} : { "aria-disabled": "true" };
    const props = { class: "rg-patching-cell", style, data, title: says, "aria-label": says, ...disabled };
    const open = () =>
      hasMap ? openSite(app, isOfHeads, layers[layer], site) : setText(app.refs.patchingReadout, says);
    return button(hasNumbers ? formatFixed(share, 2) : "", open, props);
  };
  const row = (/** @type {(Node | string)[]} */ cells, kind = "") =>
    el("div", { class: `rg-patching-row ${kind}`, style: { "--rg-cols": layers.length } }, ...cells);
  const heading = ["layer", ...layers].map((name) => muted(String(name)));
  const rows = recovered[0].map((_, site) => {
    const name = isOfHeads ? `head ${site}` : names[site];
    const isChanged = !isOfHeads && b.tokens[site]?.text !== a.tokens[site].text;
    const title = el("span", { class: isChanged ? "rg-changed" : "", title: name }, bidi(name));
    return row([title, ...layers.map((_, layer) => cell(layer, site))]);
  });
  return [row(heading, "rg-patching-names"), ...rows];
}

/** @param {Refs} refs @param {Patching} patching */
function showTokens({ patchToken, patchVersus }, { likely, token, versus }) {
  const choices = likely.map(tokenChoice);
  const but = (/** @type {number | null} */ other) => choices.filter(({ key }) => key !== String(other));
  setOptions(patchToken, but(versus));
  setOptions(patchVersus, but(token));
  [patchToken.value, patchVersus.value] = [String(token), String(versus)];
}

/** Any head may send but those of the last layer, and receive but those of the first; what is chosen is among them, even if it is refused. @param {Refs} refs @param {Run} run @param {State} chosen @param {Answer<Patching>} answer */
function showHeads({ patchSender, patchReceiver }, { layers }, chosen, { data, isPending }) {
  const all = layers.map(({ number, heads }) => Array.from({ length: heads }, (_, head) => `${number},${head}`));
  const show = (
    /** @type {HTMLSelectElement} */ list,
    /** @type {string[]} */ heads,
    /** @type {number[] | null | undefined} */ shown,
  ) => {
    const keys = shown ? [...new Set([...heads, String(shown)])] : heads;
    setOptions(
      list,
      keys.map((key) => ({ key, title: `L${key.replace(",", "H")}` })),
    );
    if (shown || !isPending) list.value = String(shown);
  };
  show(patchSender, all.slice(0, -1).flat(), chosen.patchSender ?? data?.sender);
  show(patchReceiver, all.slice(1).flat(), chosen.patchReceiver ?? data?.receiver);
}

/** What reaches each input of the receiver from the sender. @param {App} app @param {Patching} patching @param {number} max */
function pathTable({ theme }, { recovered: [shares], values: [values], corrupted }, max) {
  const rows = shares.map((share, n) => {
    const value = values[n] ?? NaN;
    const amount = el("span", { class: "rg-patching-cell" }, formatFixed(share ?? NaN, 2));
    shade(amount, theme, (share ?? 0) / max);
    return tableRow(INPUTS[n], formatSignificant(value), formatSigned(value - corrupted), amount);
  });
  const names = ["reaches the", "number", "change", "of the way to A"];
  return el("table", { class: "rg-path-table" }, ...tableOf(names, rows));
}

/** Show the head, or what the position attends to in its layer. @param {App} app @param {boolean} isOfHeads @param {number} number of the layer @param {number} site */
function openSite(app, isOfHeads, number, site) {
  const { tokens, layers } = app.shownRun();
  const layer = layers.findIndex((one) => one.number === number);
  const last = tokens.length - 1;
  app.set({ side: "A" });
  openRow(app, { layer, head: isOfHeads ? site : "mean" }, isOfHeads ? (app.state.row ?? last) : site);
}

/** @param {Patching} patching */
function summary({ metric, clean, corrupted, recovered, sender, receiver }) {
  const named = (/** @type {[number, number]} */ [layer, head]) => `L${layer}H${head}`;
  const runs = `${metric}: ${formatSignificant(clean)} in A, ${formatSignificant(corrupted)} in B`;
  if (recovered.flat().some((value) => value === null)) return `${runs}: nothing is there to recover.`;
  if (sender && receiver)
    return `${runs}. Each row is the run of B in which what ${named(sender)} writes in A reaches one input of ${named(receiver)}, and nothing else.`;
  return `${runs}. Each square is the run of B with this one step of A.`;
}

const NEARLY = 1.05; // what goes a little beyond 1 has its color

/** @param {Numbers} shares */
function scaleEnd(shares) {
  const largest = Math.max(...shares.map((share) => Math.abs(share ?? 0)));
  return largest <= NEARLY ? 1 : largest;
}
