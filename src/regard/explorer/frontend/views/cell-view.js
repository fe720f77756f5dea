// One weight, step by step: the lesson's formula beside this cell's numbers.

import { label } from "../data/tokens.js";
import { el, piece, svg } from "../platform/dom.js";
import { significant } from "../render/format.js";

/**
 * @typedef {import("../data/source.js").Cell} Cell
 * @typedef {{ side: string, from: string, to: string, layer: number, head: number, heads: number, kvHeads: number | null }} Names
 */

/** A formula: what is between underscores stands lower. @param {string} text */
function formula(text) {
  const node = el("span", { class: "rg-formula" });
  text.split("_").forEach((part, n) => node.append(n % 2 ? el("sub", {}, part) : part));
  return node;
}

/**
 * Where bars stand that go up and down from a line in the middle, the longest to the edge; what is no number has none.
 * @param {(number | null)[]} values @param {number} high
 */
export function placesOfBars(values, high) {
  const known = values.map((value) => (value !== null && Number.isFinite(value) ? value : 0));
  const most = Math.max(1e-12, ...known.map(Math.abs));
  return known.map((value) => {
    const size = (Math.abs(value) / most) * (high / 2 - 2);
    return { y: value >= 0 ? high / 2 - size : high / 2, height: Math.max(0.4, size), isUp: value >= 0 };
  });
}

/**
 * Numbers as bars up and down from a line.
 * @param {(number | null)[]} values @param {string} name @param {string} kind of colour
 */
export function bars(values, name, kind = "plain") {
  const [wide, high] = [Math.max(1, values.length) * 10, 64];
  const drawing = svg("svg", {
    class: `rg-bars rg-bars-${kind}`,
    viewBox: `0 0 ${wide} ${high}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": name,
  });
  placesOfBars(values, high).forEach(({ y, height, isUp }, n) => {
    const bar = svg("rect", { x: n * 10 + 1.5, width: 7, y, height, class: isUp ? "rg-up" : "rg-down" });
    bar.append(svg("title", {}, `${n}: ${significant(values[n] ?? NaN)}`));
    drawing.append(bar);
  });
  drawing.append(svg("line", { x1: 0, x2: wide, y1: high / 2, y2: high / 2, "vector-effect": "non-scaling-stroke" }));
  return drawing;
}

/**
 * @param {string} title @param {string} equation @param {string} value @param {(Node | string | null)[]} more
 * @param {string} key
 */
function step(key, title, equation, value, ...more) {
  return el(
    "li",
    { class: "rg-step", data: { step: key } },
    el(
      "div",
      { class: "rg-step-head" },
      el("h4", {}, title),
      formula(equation),
      el("output", { class: "rg-value", data: { value: key } }, value),
    ),
    ...more,
  );
}

/**
 * The steps of a cell as elements.
 * @param {Cell} cell @param {Names} names
 */
export function stepsOf(cell, names) {
  const d = cell.q?.length ?? 0;
  const group = names.heads / (names.kvHeads ?? names.heads);
  const weight = cell.weight ?? NaN;
  const number = (/** @type {number | null} */ x) => (x === null ? "–" : significant(x));
  const steps = [];
  if (cell.embedding)
    steps.push(
      step(
        "embedding",
        "Embedding",
        "e_i_",
        `first ${cell.embedding.length} numbers`,
        bars(cell.embedding, "First numbers of the embedding of the token that looks"),
        el(
          "p",
          {},
          "What the model starts from. Layer by layer it changes; q and k below are made from what it has become here, x",
          el("sub", {}, "i"),
          ".",
        ),
      ),
    );
  if (cell.q && cell.k && cell.products) {
    const how = cell.rotated
      ? "after rotation by position, "
      : cell.rotated === null
        ? "as they are compared, after rotation by position if the model rotates, "
        : "";
    steps.push(
      step(
        "qk",
        "Query and key",
        "q_i_ = x_i_ W_Q_,  k_j_ = x_j_ W_K_",
        `${d} numbers each`,
        el(
          "div",
          { class: "rg-pair" },
          el("figure", {}, bars(cell.q, "Query by dimension"), el("figcaption", {}, "q of ", piece(label(names.from)))),
          el("figure", {}, bars(cell.k, "Key by dimension"), el("figcaption", {}, "k of ", piece(label(names.to)))),
        ),
        el(
          "p",
          {},
          `Where the model has a bias for them, it is added too. ${how ? `Both are shown ${how}dimension by dimension. ` : ""}${group > 1 && cell.kv_head !== null ? `Key and value head ${cell.kv_head} serves query heads ${cell.kv_head * group} to ${(cell.kv_head + 1) * group - 1}.` : `Head ${names.head} has keys and values of its own.`}`,
        ),
      ),
      step(
        "score",
        "Score",
        "q_i_ · k_j_ = Σ_d_ q_d_ k_d_",
        number(cell.score_raw),
        bars(cell.products, "Products of query and key by dimension, which sum to the score", "signed"),
        el(
          "p",
          {},
          `The bars are q·k in each of the ${d} dimensions: those above the line add up to ${significant(sumOf(cell.products, 1))}, those below to ${significant(sumOf(cell.products, -1))}.`,
        ),
      ),
    );
  }
  if (cell.scaled !== null)
    steps.push(
      step(
        "scaled",
        "Scaled",
        cell.scale !== null && Math.abs(cell.scale - 1 / Math.sqrt(d || 1)) < 1e-6
          ? `÷ √${d}`
          : `× ${number(cell.scale)}`,
        number(cell.scaled),
      ),
    );
  if (cell.softcap !== null)
    steps.push(
      step("capped", "Capped", `${number(cell.softcap)} · tanh(s / ${number(cell.softcap)})`, number(cell.capped)),
    );
  if (cell.bias !== null) steps.push(step("bias", "With its bias", `+ ${number(cell.bias)}`, number(cell.biased)));
  steps.push(
    step(
      "mask",
      "Mask",
      "may i look at j?",
      cell.masked === null ? "not recorded" : cell.masked ? "no: −∞" : "yes",
      cell.masked ? el("p", {}, "The score counts as −∞, so the weight is 0.") : null,
    ),
  );
  if (cell.sink !== null)
    steps.push(
      step(
        "sink",
        "Sink",
        "exp(sink − lse_i_)",
        cell.lse === null ? "–" : significant(Math.exp(cell.sink - cell.lse)),
        el(
          "p",
          {},
          `The head has a score of its own, ${significant(cell.sink)}, beside those of the tokens: it takes a share of the row and hands nothing on.`,
        ),
      ),
    );
  steps.push(
    step(
      "weight",
      "Softmax",
      "w_ij_ = exp(s_ij_ − lse_i_)",
      significant(weight),
      el(
        "div",
        { class: "rg-meter", role: "img", "aria-label": `Weight ${significant(weight)} of 1` },
        el("span", { style: { width: `${Math.max(0, Math.min(1, weight || 0)) * 100}%` } }),
      ),
      el(
        "p",
        {},
        `${cell.lse === null ? "" : `lse = ln Σ exp(s) over the row${cell.sink === null ? "" : " and the sink"} = ${significant(cell.lse)}. `}${rowSays(cell)}`,
      ),
    ),
  );
  if (cell.off)
    steps.push(
      step(
        "off",
        "Switched off",
        "0 · Σ_j_ w_ij_ v_j_",
        "0",
        el("p", {}, "This head is switched off: it looks, and hands nothing on."),
      ),
    );
  if (cell.v && cell.share && !cell.off)
    steps.push(
      step(
        "share",
        "Share of the value",
        "w_ij_ v_j_",
        `${cell.v.length} numbers`,
        el(
          "div",
          { class: "rg-pair" },
          el("figure", {}, bars(cell.v, "Value by dimension"), el("figcaption", {}, "v of ", piece(label(names.to)))),
          el(
            "figure",
            {},
            bars(cell.share, "Share of the value by dimension", "signed"),
            el("figcaption", {}, `× ${significant(weight)}, on a scale of its own`),
          ),
        ),
      ),
    );
  if (cell.output && !cell.off)
    steps.push(
      step(
        "output",
        "Output of the head",
        "Σ_j_ w_ij_ v_j_",
        `${cell.output.length} numbers`,
        bars(cell.output, "Output of the head for the token that looks"),
        el(
          "p",
          {},
          "The sum over every token that ",
          piece(label(names.from)),
          " looks at. All heads together, through W",
          el("sub", {}, "O"),
          ", are what attention adds to it.",
        ),
      ),
    );
  return steps;
}

/** What the weights of the row sum to. @param {Cell} cell */
function rowSays({ row_sum: sum, sink }) {
  const whole = sink === null && sum !== null && Math.abs(sum - 1) < 1e-3;
  return `The row sums to ${whole ? "1" : significant(sum ?? NaN)}${sink === null ? "" : ", with the sink's share to 1"}, and this is the share of this token.`;
}

/** @param {(number | null)[]} values @param {1 | -1} sign */
function sumOf(values, sign) {
  return values.reduce(
    (/** @type {number} */ sum, value) => (value !== null && Math.sign(value) === sign ? sum + value : sum),
    0,
  );
}

export class CellSteps {
  constructor() {
    this.title = el("h3", {});
    this.side = el("p", { class: "rg-muted" });
    this.list = el("ol", { class: "rg-steps" });
    this.source = el("p", { class: "rg-muted" });
    this.shown = "";
    this.node = el(
      "section",
      { class: "rg-cell", tabIndex: 0, "aria-label": "One cell, step by step" },
      this.title,
      this.side,
      this.list,
      this.source,
    );
  }

  /** @param {Cell} cell @param {Names} names */
  show(cell, names) {
    this.fade(false);
    const shown = JSON.stringify([cell, names]);
    if (this.shown === shown) return;
    this.shown = shown;
    this.title.replaceChildren(
      piece(label(names.from), { class: "rg-name" }),
      " looks at ",
      piece(label(names.to), { class: "rg-name" }),
      el("span", { class: "rg-muted" }, ` layer ${names.layer} · head ${names.head}`),
    );
    this.side.textContent = names.side;
    this.list.replaceChildren(...stepsOf(cell, names));
    this.source.textContent = cell.source ? `From ${cell.source}.` : "";
  }

  /** @param {boolean} faint for another cell is wanted, and on its way */
  fade(faint) {
    this.node.classList.toggle("rg-stale", faint);
  }

  /** @param {string} sentence */
  say(sentence) {
    this.fade(false);
    this.shown = "";
    this.title.textContent = "One cell";
    this.side.textContent = "";
    this.list.replaceChildren();
    this.source.textContent = sentence;
  }
}
