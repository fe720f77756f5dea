// The whole model at one position: what each part writes into the residual stream, and adds to the prediction.

import { positionOf } from "../app/predictions.js";
import { sentence } from "../data/attribution.js";
import { label, tokenName } from "../data/tokens.js";
import {
  activeElementOf,
  bidi,
  button,
  el,
  muted,
  onArrows,
  setAttribute,
  setTabStop,
  setText,
} from "../platform/dom.js";
import { formatSignificant } from "../render/format.js";
import { scalePosition } from "../render/scale.js";
import { withSelection } from "../state/sides.js";
import { nextInRows } from "./head-grid.js";
import { shade } from "./word-strip.js";

const BROAD = 20; // a bar so many times as long as the median turns the others to slivers

/** @param {App} app @returns {View} */
export function showModel(app) {
  const { refs } = app;
  onArrows(refs.stream, "button", nextInRows);
  return (ask) => {
    const { theme } = app;
    if (app.state.view !== "model") return null;
    const at = { run: app.shownHead().run, position: positionOf(app) };
    const answer = ask("residual_stream", at);
    const run = app.shownRun();
    const drawStream = () => {
      if (answer.data) return draw(app, answer.data, run, theme);
      setText(refs.modelHeading, answer.error ? sentence(answer.error.message) : "");
      refs.stream.replaceChildren();
    };
    const nodes = [refs.stream, refs.modelHeading];
    return { nodes, answers: [answer], of: [answer, run, theme], draw: drawStream };
  };
}

/** @param {App} app @param {ResidualStream} stream @param {Run} run @param {Theme} theme */
function draw(app, stream, run, theme) {
  const { modelHeading: heading, stream: body, headsName, streamNames } = app.refs;
  const { position, text, layers } = stream;
  const at = bidi(tokenName(run.tokens, position));
  if (text === null) heading.replaceChildren("At ", at, ", the length of what each part writes.");
  else {
    const adds = ["At ", at, ", what each part adds to the logit of ", bidi(label(text))];
    heading.replaceChildren(...adds, ". Blue adds, brown subtracts.");
  }
  const parts = layers.flatMap(({ attn, mlp, adds }) => (adds ? [adds.attn, adds.mlp] : [attn, mlp]));
  const all = [...parts, stream.embeddings, stream.bias].map((x) => Math.abs(x ?? 0)).filter((x) => x > 0);
  const largest = (/** @type {(number | null)[]} */ values) => Math.max(...values.map((x) => Math.abs(x ?? 0))) || 1;
  const max = largest(all);
  const [median = max] = all.sort((x, y) => x - y).slice(all.length >> 1);
  const kind = max > BROAD * median ? "log" : "linear";
  if (kind === "log")
    heading.append(" Bars are on a log scale: for a tenth of a number, the bar is a quarter of the width shorter.");
  const scale = {
    part: /** @type {Scale} */ ({ kind, max, signed: true }),
    head: largest(layers.flatMap(({ adds }) => adds?.heads ?? [])),
    length: largest(layers.map(({ output }) => output)),
    theme,
  };
  const isLengths = text === null;
  body.classList.toggle("rg-lengths", isLengths);
  headsName.hidden = isLengths;
  const hadFocus = body.contains(activeElementOf(body));
  body.replaceChildren(
    streamNames,
    ...(stream.embeddings === undefined ? [] : [total("Embedding", stream.embeddings, scale.part)]),
    ...layers.map((layer, n) => rowOf(app, layer, n, run, scale)),
    ...(stream.bias ? [total("Bias", stream.bias, scale.part)] : []),
    ...(isLengths ? [] : [outputOf(app, text, stream.logit)]),
  );
  const buttons = [...body.querySelectorAll("button")];
  setTabStop(buttons, buttons[0]);
  if (hadFocus) buttons[0]?.focus();
}

/** @param {App} app @param {StreamLayer} layer @param {number} n @param {Run} run @param {{ part: Scale, head: number, length: number, theme: Theme }} scale */
function rowOf(app, { attn, mlp, output, adds }, n, run, scale) {
  const open = (/** @type {Partial<HeadChoice>} */ choice) =>
    app.set({ ...withSelection(app.state, choice), view: "head" });
  const row = /** @type {HTMLElement} */ (app.refs.streamRow.content.firstElementChild?.cloneNode(true));
  const [name, attention, ofHeads, ofMlp, after] = /** @type {HTMLElement[]} */ ([...row.children]);
  const { number } = run.layers[n];
  const of = (/** @type {number | null} */ length) => `, length ${formatSignificant(length ?? NaN)}`;
  const heads = adds?.heads ?? [];
  const lengths = heads.map((x) => Math.abs(x ?? 0));
  const strongest = lengths.indexOf(Math.max(...lengths));
  const buttons = heads.map((value, head) => {
    const says = `Layer ${number}, head ${head}: ${formatSignificant(value ?? NaN)}`;
    const props = { class: "rg-stream-head", title: says, "aria-label": `${head}, ${says}` };
    const node = button(String(head), () => open({ layer: n, head }), props);
    shade(node, scale.theme, (value ?? 0) / scale.head);
    return node;
  });
  setAttribute(row, "aria-label", `Layer ${number}`);
  name.textContent = String(number);
  attention.title = `Attention of layer ${number}${of(attn)}: open ${adds ? "its strongest head" : "the layer"}`;
  attention.addEventListener("click", () => open(adds ? { layer: n, head: strongest } : { layer: n }));
  attention.append(signedBar(adds ? adds.attn : attn, scale.part));
  if (adds) ofHeads.append(...buttons);
  else ofHeads.remove();
  ofMlp.title = `MLP of layer ${number}${of(mlp)}`;
  ofMlp.append(signedBar(adds ? adds.mlp : mlp, scale.part));
  after.title = `After layer ${number}${of(output)}`;
  const width = `${(100 * (output ?? 0)) / scale.length}%`;
  after.append(el("span", { class: "rg-bar-fill", style: { width } }), formatSignificant(output ?? NaN));
  return row;
}

/** @param {App} app @param {string} text @param {number | null} [logit] */
function outputOf(app, text, logit) {
  const content = ["Logit of ", bidi(label(text)), ` ${formatSignificant(logit ?? NaN)}`];
  const open = () => app.set({ nextTokens: true, view: "head" });
  const node = button(content, open, { title: "What comes next" });
  return el("div", { class: "rg-stream-row rg-stream-output" }, muted("="), node);
}

/** A bar from the middle, to the right for what adds, and its number. @param {number | null | undefined} value @param {Scale} scale */
function signedBar(value, scale) {
  const share = scalePosition(scale, value ?? 0) / 2;
  const style = { left: `${100 * Math.min(0.5, 0.5 + share)}%`, width: `${100 * Math.abs(share)}%` };
  const bar = el("span", { class: "rg-signed" }, el("span", { class: "rg-middle" }));
  bar.append(el("span", { class: `rg-bar-fill ${share < 0 ? "rg-down" : "rg-up"}`, style }));
  const number = el("span", { class: "rg-number" }, formatSignificant(value ?? NaN));
  return el("span", { class: "rg-signed-number" }, bar, number);
}

/** @param {string} name @param {number | null | undefined} value @param {Scale} scale */
function total(name, value, scale) {
  const part = el("div", { class: "rg-stream-part" }, signedBar(value, scale));
  return el("div", { class: "rg-stream-row" }, muted(name), part);
}
