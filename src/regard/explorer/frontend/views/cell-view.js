// One weight, step by step: each formula of the lesson with the numbers of this cell.

import { label } from "../data/tokens.js";
import { bidi, el, svg } from "../platform/dom.js";
import { formatSignificant } from "../render/format.js";

/**
 * @typedef {import("../data/cell.js").Cell} Cell
 * @typedef {(number | null)[]} Values
 * @typedef {{ side: string, from: string, to: string, layer: number, head: number, heads: number, kvHeads: number | null, mode: string, shown: number | null }} CellNames
 *   `shown` is the value of the cell on the map in that display mode, if it is known
 */

const BARS_HEIGHT = 64;

/** A formula, with subscripts between underscores. @param {string} text */
function formula(text) {
  const node = el("span", { class: "rg-formula" });
  text.split("_").forEach((part, n) => node.append(n % 2 ? el("sub", {}, part) : part));
  return node;
}

/**
 * Bars up and down from a line in the middle, the longest to the edge; none for NaN and infinity.
 * @param {Values} values @param {number} height
 */
export function barLayout(values, height) {
  const finite = values.map((value) => (value !== null && Number.isFinite(value) ? value : 0));
  const max = Math.max(1e-12, ...finite.map(Math.abs));
  return finite.map((value) => {
    const length = (Math.abs(value) / max) * (height / 2 - 2);
    return { y: value >= 0 ? height / 2 - length : height / 2, height: Math.max(0.4, length), isUp: value >= 0 };
  });
}

/** @param {Values} values @param {string} name @param {"plain" | "signed"} kind of color */
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

/** @param {number | null} x */
function format(x) {
  return x === null ? "–" : formatSignificant(x);
}

/** The steps of a cell as elements. @param {Cell} cell @param {CellNames} names */
export function cellSteps(cell, names) {
  const d = cell.q?.length ?? 0;
  const weight = cell.weight ?? NaN;
  const from = bidi(label(names.from));
  const steps = [...inputSteps(cell, names), ...scoreSteps(cell, d), weightStep(cell, weight)];
  if (names.mode === "rollout") steps.unshift(rolloutStep(names.shown));
  if (cell.ablated)
    steps.push(
      step("ablated", "Ablated", "0 · Σ_j_ w_ij_ v_j_", "0", paragraph("The output of this head is set to 0.")),
    );
  if (cell.v && cell.weighted_value && !cell.ablated)
    steps.push(
      step(
        "weighted_value",
        "Weighted value",
        "w_ij_ v_j_",
        `${cell.v.length} numbers`,
        el(
          "div",
          { class: "rg-pair" },
          figure(bars(cell.v, "Value by dimension"), "v of ", bidi(label(names.to))),
          figure(
            bars(cell.weighted_value, "Weighted value by dimension", "signed"),
            `× ${formatSignificant(weight)}, on its own scale`,
          ),
        ),
      ),
    );
  if (names.mode === "norms" && names.shown !== null && weight > 0)
    steps.push(
      step(
        "norm",
        "Weight × value",
        "‖w_ij_ v_j_ W_O_‖ = w_ij_ ‖v_j_ W_O_‖",
        formatSignificant(names.shown),
        paragraph(
          `The map shows this length: ${formatSignificant(weight)} × ${formatSignificant(names.shown / weight)}, the length that the value of `,
          bidi(label(names.to)),
          " has after the output projection.",
        ),
      ),
    );
  if (cell.output && !cell.ablated)
    steps.push(
      step(
        "output",
        "Output of the head",
        "Σ_j_ w_ij_ v_j_",
        `${cell.output.length} numbers`,
        bars(cell.output, "Output of the head for the query token"),
        paragraph(
          "The sum over every token that ",
          from,
          " attends to. Attention adds the outputs of all heads, through W",
          el("sub", {}, "O"),
          ", to its vector.",
        ),
      ),
    );
  return steps;
}

/** What the map shows of all layers and heads, above the steps of the weight of one head. @param {number | null} shown */
function rolloutStep(shown) {
  return step(
    "rollout",
    "Rollout, on the map",
    "R_l_ = ½ (mean of heads + I) R_l−1_",
    format(shown),
    paragraph(
      "The steps below are those of the weight of this head in this layer, one of those that rollout averages.",
    ),
  );
}

/** Embedding, query, key and their product. @param {Cell} cell @param {CellNames} names */
function inputSteps(cell, names) {
  const steps = [];
  if (cell.embedding)
    steps.push(
      step(
        "embedding",
        "Embedding",
        "e_i_",
        `first ${cell.embedding.length} numbers`,
        bars(cell.embedding, "First numbers of the embedding of the query token"),
        paragraph(
          "The input of the model. Each layer changes it; q and k below are computed from its current vector x",
          el("sub", {}, "i"),
          ".",
        ),
      ),
    );
  if (!cell.q || !cell.k || !cell.products) return steps;
  const d = cell.q.length;
  const group = names.heads / (names.kvHeads ?? names.heads); // query heads that share keys and values
  const rotation = cell.rotated
    ? "Both are shown after the rotary embedding. "
    : cell.rotated === null
      ? "Both are shown as compared: after the rotary embedding, if the model has one. "
      : "";
  const sharing =
    group > 1 && cell.kv_head !== null
      ? `Key/value head ${cell.kv_head} serves query heads ${cell.kv_head * group} to ${(cell.kv_head + 1) * group - 1}.`
      : `Head ${names.head} has its own keys and values.`;
  const [above, below] = [1, -1].map((sign) => formatSignificant(sumOf(cell.products ?? [], sign)));
  steps.push(
    step(
      "qk",
      "Query and key",
      "q_i_ = x_i_ W_Q_,  k_j_ = x_j_ W_K_",
      `${d} numbers each`,
      el(
        "div",
        { class: "rg-pair" },
        figure(bars(cell.q, "Query by dimension"), "q of ", bidi(label(names.from))),
        figure(bars(cell.k, "Key by dimension"), "k of ", bidi(label(names.to))),
      ),
      paragraph(`Biases are included, if the model has them. ${rotation}${sharing}`),
    ),
    step(
      "score",
      "Score",
      "q_i_ · k_j_ = Σ_d_ q_d_ k_d_",
      format(cell.score_raw),
      bars(cell.products, "Products of query and key by dimension, which sum to the score", "signed"),
      paragraph(
        `The bars are q·k in each of the ${d} dimensions: those above the line sum to ${above}, those below to ${below}.`,
      ),
    ),
  );
  return steps;
}

/** From the score to the mask. @param {Cell} cell @param {number} d */
function scoreSteps(cell, d) {
  const steps = [];
  const isUsualScale = cell.scale !== null && Math.abs(cell.scale - 1 / Math.sqrt(d || 1)) < 1e-6;
  const cap = format(cell.softcap);
  if (cell.scaled !== null)
    steps.push(step("scaled", "Scaled", isUsualScale ? `÷ √${d}` : `× ${format(cell.scale)}`, format(cell.scaled)));
  if (cell.softcap !== null) steps.push(step("capped", "Softcap", `${cap} · tanh(s / ${cap})`, format(cell.capped)));
  if (cell.bias !== null) steps.push(step("bias", "Bias", `+ ${format(cell.bias)}`, format(cell.biased)));
  const allowed = cell.masked === null ? "not recorded" : cell.masked ? "no: −∞" : "yes";
  const masked = cell.masked ? paragraph("The masked score is −∞, so the weight is 0.") : null;
  steps.push(step("mask", "Mask", "is j visible to i?", allowed, masked));
  if (cell.sink !== null) {
    const weight = cell.lse === null ? "–" : formatSignificant(Math.exp(cell.sink - cell.lse));
    const note = `The head has a learned score, ${formatSignificant(cell.sink)}, beside those of the tokens. It takes a weight of the row, and has no value.`;
    steps.push(step("sink", "Sink", "exp(sink − lse_i_)", weight, paragraph(note)));
  }
  return steps;
}

/** @param {Cell} cell @param {number} weight */
function weightStep({ lse, sink, row_sum: rowSum }, weight) {
  const isOne = sink === null && rowSum !== null && Math.abs(rowSum - 1) < 1e-3;
  const terms = sink === null ? "the row" : "the row and the sink";
  const normalizer = lse === null ? "" : `lse = ln Σ exp(s) over ${terms} = ${formatSignificant(lse)}. `;
  const sum = isOne ? "1" : formatSignificant(rowSum ?? NaN);
  const fill = el("span", { style: { width: `${Math.max(0, Math.min(1, weight || 0)) * 100}%` } });
  return step(
    "weight",
    "Softmax",
    "w_ij_ = exp(s_ij_ − lse_i_)",
    formatSignificant(weight),
    el("div", { class: "rg-meter", role: "img", "aria-label": `Weight ${formatSignificant(weight)} of 1` }, fill),
    paragraph(`${normalizer}The row sums to ${sum}${sink === null ? "" : ", with the weight of the sink to 1"}.`),
  );
}

/** @param {Values} values @param {number} sign */
function sumOf(values, sign) {
  return values.reduce(
    (/** @type {number} */ sum, value) => (value !== null && Math.sign(value) === sign ? sum + value : sum),
    0,
  );
}

export class CellView {
  constructor() {
    this.title = el("h3", {});
    this.side = el("p", { class: "rg-muted" });
    this.list = el("ol", { class: "rg-steps" });
    this.source = el("p", { class: "rg-muted" });
    this.shownKey = "";
    const props = { class: "rg-cell", tabIndex: 0, "aria-label": "Calculation of one weight, step by step" };
    this.node = el("section", props, this.title, this.side, this.list, this.source);
  }

  /** @param {Cell} cell @param {CellNames} names */
  show(cell, names) {
    this.setStale(false);
    const key = JSON.stringify([cell, names]);
    if (this.shownKey === key) return;
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
