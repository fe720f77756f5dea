// One weight, step by step: each formula of the lesson with the numbers of this cell.

import { label } from "../data/tokens.js";
import { bidi, el, iconButton, svg } from "../platform/dom.js";
import { formatFixed, formatSignificant, formatWeight } from "../render/format.js";

/** @import { Cell, CellNames, Numbers } from "../types.js" */

const BARS_HEIGHT = 64;

/** A formula, with subscripts between underscores. @param {string} text */
function formula(text) {
  const node = el("span", { class: "rg-formula" });
  text.split("_").forEach((part, n) => node.append(n % 2 ? el("sub", {}, part) : part));
  return node;
}

/**
 * Bars up and down from a line in the middle, the longest to the edge; none for NaN and infinity.
 * @param {Numbers} values @param {number} height
 */
export function barLayout(values, height) {
  const finite = values.map((value) => (value !== null && Number.isFinite(value) ? value : 0));
  const max = Math.max(1e-12, ...finite.map(Math.abs));
  return finite.map((value) => {
    const length = (Math.abs(value) / max) * (height / 2 - 2);
    return { y: value >= 0 ? height / 2 - length : height / 2, height: Math.max(0.4, length), isUp: value >= 0 };
  });
}

/** @param {Numbers} values @param {string} name @param {"plain" | "signed"} kind of color */
export function bars(values, name, kind = "plain") {
  const width = Math.max(1, values.length) * 10;
  const drawing = svg("svg", {
    class: `rg-bars rg-bars-${kind}`,
    viewBox: `0 0 ${width} ${BARS_HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": name,
  });
  barLayout(values, BARS_HEIGHT).forEach(({ y, height, isUp }, n) => {
    const bar = svg("rect", { x: n * 10 + 1.5, width: 7, y, height, class: isUp ? "rg-up" : "rg-down" });
    bar.append(svg("title", {}, `${n}: ${formatSignificant(values[n] ?? NaN)}`));
    drawing.append(bar);
  });
  const middle = BARS_HEIGHT / 2;
  drawing.append(svg("line", { x1: 0, x2: width, y1: middle, y2: middle, "vector-effect": "non-scaling-stroke" }));
  return drawing;
}

/**
 * @param {string} key @param {string} title @param {string} equation @param {string} value
 * @param {(Node | string | null)[]} more
 */
function step(key, title, equation, value, ...more) {
  const output = el("output", { class: "rg-value", data: { value: key } }, value);
  const head = el("div", { class: "rg-step-head" }, el("h4", {}, title), formula(equation), output);
  return el("li", { class: "rg-step", data: { step: key } }, head, ...more);
}

/** @param {...(Node | string)} children */
function paragraph(...children) {
  return el("p", {}, ...children);
}

/** @param {SVGElement} drawing @param {...(Node | string)} caption */
function figure(drawing, ...caption) {
  return el("figure", {}, drawing, el("figcaption", {}, ...caption));
}

/** @param {string} text of a token */
function name(text) {
  return bidi(label(text));
}

/** @param {number | null} x */
function format(x) {
  return x === null ? "–" : formatSignificant(x);
}

/** The steps of a cell as elements. @param {Cell} cell @param {CellNames} names */
export function cellSteps(cell, names) {
  return [rolloutStep, ...inputSteps, ...scoreSteps, weightStep, ...outputSteps]
    .map((stepOf) => stepOf(cell, names))
    .filter((node) => node !== null);
}

/** What the map shows of all layers and heads, above the steps of the weight of one head. @param {Cell} _ @param {CellNames} names */
function rolloutStep(_, { mode, shown }) {
  if (mode !== "rollout") return null;
  const note =
    "The steps below are those of the weight of this head in this layer, one of those that rollout averages.";
  return step(
    "rollout",
    "Rollout, on the map",
    "R_l_ = ½ (mean of heads + I) R_l−1_",
    shown === null ? "–" : formatWeight(shown),
    paragraph(note),
  );
}

/** Embedding, query, key and their product. @type {((cell: Cell, names: CellNames) => HTMLElement | null)[]} */
const inputSteps = [
  ({ embedding }) => {
    if (!embedding) return null;
    const drawing = bars(embedding, "First numbers of the embedding of the query token");
    const note = "The input of the model. Each layer changes it; q and k below are computed from its current vector x";
    const value = `first ${embedding.length} numbers`;
    return step("embedding", "Embedding", "e_i_", value, drawing, paragraph(note, el("sub", {}, "i"), "."));
  },
  (cell, { from, to, head, heads, kvHeads }) => {
    const { q, k, rotated, kv_head: kvHead } = cell;
    if (!q || !k) return null;
    const group = heads / (kvHeads ?? heads); // query heads that share keys and values
    const rotation = rotated
      ? "Both are shown after the rotary embedding. "
      : rotated === null
        ? "Both are shown as compared: after the rotary embedding, if the model has one. "
        : "";
    const sharing =
      group > 1 && kvHead !== null
        ? `Key/value head ${kvHead} serves query heads ${kvHead * group} to ${(kvHead + 1) * group - 1}.`
        : `Head ${head} has its own keys and values.`;
    const query = figure(bars(q, "Query by dimension"), "q of ", name(from));
    const key = figure(bars(k, "Key by dimension"), "k of ", name(to));
    return step(
      "qk",
      "Query and key",
      "q_i_ = x_i_ W_Q_,  k_j_ = x_j_ W_K_",
      `${q.length} numbers each`,
      el("div", { class: "rg-pair" }, query, key),
      paragraph(`Biases are included, if the model has them. ${rotation}${sharing}`),
    );
  },
  ({ products, score_raw: score }) => {
    if (!products) return null;
    const [above, below] = [1, -1].map((sign) => formatSignificant(sumOf(products, sign)));
    const drawing = bars(products, "Products of query and key by dimension, which sum to the score", "signed");
    const note = `The bars are q·k in each of the ${products.length} dimensions: those above the line sum to ${above}, those below to ${below}.`;
    return step("score", "Score", "q_i_ · k_j_ = Σ_d_ q_d_ k_d_", format(score), drawing, paragraph(note));
  },
];

/** From the score to the mask. @type {((cell: Cell, names: CellNames) => HTMLElement | null)[]} */
const scoreSteps = [
  ({ scale, scaled, q }) => {
    const d = q?.length ?? 0;
    const isUsual = scale !== null && Math.abs(scale - 1 / Math.sqrt(d || 1)) < 1e-6;
    return scaled === null
      ? null
      : step("scaled", "Scaled", isUsual ? `÷ √${d}` : `× ${format(scale)}`, format(scaled));
  },
  ({ softcap, capped }) =>
    softcap === null
      ? null
      : step("capped", "Softcap", `${format(softcap)} · tanh(s / ${format(softcap)})`, format(capped)),
  ({ bias, biased }) => (bias === null ? null : step("bias", "Bias", `+ ${format(bias)}`, format(biased))),
  ({ masked }) => {
    const allowed = masked === null ? "not recorded" : masked ? "no: −∞" : "yes";
    const note = masked ? paragraph("The masked score is −∞, so the weight is 0.") : null;
    return step("mask", "Mask", "is j visible to i?", allowed, note);
  },
  ({ sink, lse }) => {
    if (sink === null) return null;
    const weight = lse === null ? "–" : formatSignificant(Math.exp(sink - lse));
    const note = `The head has a learned score, ${formatSignificant(sink)}, beside those of the tokens. It takes a weight of the row, and has no value.`;
    return step("sink", "Sink", "exp(sink − lse_i_)", weight, paragraph(note));
  },
];

/** @param {Cell} cell */
function weightStep({ lse, sink, row_sum: rowSum, weight }) {
  const isOne = sink === null && rowSum !== null && Math.abs(rowSum - 1) < 1e-3;
  const terms = sink === null ? "the row" : "the row and the sink";
  const normalizer = lse === null ? "" : `lse = ln Σ exp(s) over ${terms} = ${formatSignificant(lse)}. `;
  const sum = isOne ? "1" : formatSignificant(rowSum ?? NaN);
  const fill = el("span", { style: { width: `${Math.max(0, Math.min(1, weight ?? 0)) * 100}%` } });
  const text = formatWeight(weight ?? NaN);
  const inFull = weight === null ? "" : `In full ${formatFixed(weight, 9)}. `;
  return step(
    "weight",
    "Softmax",
    "w_ij_ = exp(s_ij_ − lse_i_)",
    text,
    el("div", { class: "rg-meter", role: "img", "aria-label": `Weight ${text} of 1` }, fill),
    paragraph(
      `${inFull}${normalizer}The row sums to ${sum}${sink === null ? "" : ", with the weight of the sink to 1"}.`,
    ),
  );
}

/** What the weight does to the value. @type {((cell: Cell, names: CellNames) => HTMLElement | null)[]} */
const outputSteps = [
  ({ ablated }) =>
    ablated
      ? step("ablated", "Ablated", "0 · Σ_j_ w_ij_ v_j_", "0", paragraph("The output of this head is set to 0."))
      : null,
  ({ v, weighted_value: weighted, weight, ablated }, { to }) => {
    if (!v || !weighted || ablated) return null;
    const value = figure(bars(v, "Value by dimension"), "v of ", name(to));
    const drawing = bars(weighted, "Weighted value by dimension", "signed");
    const product = figure(drawing, `× ${formatWeight(weight ?? NaN)}, on its own scale`);
    const pair = el("div", { class: "rg-pair" }, value, product);
    return step("weighted_value", "Weighted value", "w_ij_ v_j_", `${v.length} numbers`, pair);
  },
  ({ weight }, { mode, shown, to }) => {
    if (mode !== "norms" || shown === null || !weight) return null;
    const factors = `${formatWeight(weight)} × ${formatWeight(shown / weight)}`;
    const note = `The map shows this length: ${factors}, the length that the value of `;
    const equation = "‖w_ij_ v_j_ W_O_‖ = w_ij_ ‖v_j_ W_O_‖";
    const more = paragraph(note, name(to), " has after the output projection.");
    return step("norm", "Weight × value", equation, formatWeight(shown), more);
  },
  ({ output, ablated }, { from }) => {
    if (!output || ablated) return null;
    const drawing = bars(output, "Output of the head for the query token");
    const rest = [
      " attends to. Attention adds the outputs of all heads, through W",
      el("sub", {}, "O"),
      ", to its vector.",
    ];
    const note = paragraph("The sum over every token that ", name(from), ...rest);
    return step("output", "Output of the head", "Σ_j_ w_ij_ v_j_", `${output.length} numbers`, drawing, note);
  },
];

/** The sum of the values of one sign. @param {(number | null)[]} values @param {number} sign */
function sumOf(values, sign) {
  return values.reduce(
    (/** @type {number} */ sum, value) => sum + (Math.sign(value ?? 0) === sign ? (value ?? 0) : 0),
    0,
  );
}

const SWIPE_PX = 40;

export class CellView {
  /** @param {{ close: () => void, onShow: () => void }} actions  `onShow`: steps are shown after none */
  constructor({ close, onShow }) {
    this.onShow = onShow;
    this.title = el("h3", {});
    this.side = el("p", { class: "rg-muted" });
    this.list = el("ol", { class: "rg-steps" });
    this.source = el("p", { class: "rg-muted" });
    this.shownKey = "";
    const head = el("div", { class: "rg-cell-head" }, this.title, iconButton("Close (Esc)", "×", close));
    const props = { class: "rg-cell", tabIndex: 0, "aria-label": "Calculation of one weight, step by step" };
    this.node = el("section", props, head, this.side, this.list, this.source);
    let start = 0;
    head.addEventListener("pointerdown", (event) => (start = event.clientY));
    head.addEventListener("pointerup", (event) => event.clientY - start > SWIPE_PX && close());
  }

  /** Whether it is a sheet over the lower part of a narrow window. */
  get isSheet() {
    return getComputedStyle(this.node).getPropertyValue("--rg-sheet") === "1";
  }

  /** @param {Cell} cell @param {CellNames} names */
  show(cell, names) {
    this.setStale(false);
    const key = JSON.stringify([cell, names]);
    if (this.shownKey === key) return;
    const isFirst = this.shownKey === "";
    this.shownKey = key;
    this.title.replaceChildren(
      bidi(label(names.from), { class: "rg-name" }),
      " attends to ",
      bidi(label(names.to), { class: "rg-name" }),
      el("span", { class: "rg-muted" }, ` layer ${names.layer} · head ${names.head}`),
    );
    this.side.textContent = names.side;
    this.list.replaceChildren(...cellSteps(cell, names));
    this.source.textContent = cell.source ? `From ${cell.source}.` : "";
    if (isFirst) this.onShow();
  }

  /** @param {boolean} isStale  another cell is being fetched */
  setStale(isStale) {
    this.node.classList.toggle("rg-stale", isStale);
  }

  /** @param {string} message  instead of steps */
  showMessage(message) {
    this.setStale(false);
    this.shownKey = "";
    this.title.textContent = "Calculation";
    this.side.textContent = "";
    this.list.replaceChildren();
    this.source.textContent = message;
  }
}
