// One weight, step by step: each formula of the lesson, as the markup has it, with the numbers of this cell.

import { closeCalculation } from "../app/actions.js";
import { sentence } from "../data/attribution.js";
import { cellFacts, rolloutTable, rowTable } from "../data/cell-facts.js";
import { NOTHING } from "../data/query.js";
import { label, tokenName } from "../data/tokens.js";
import { bidi, button, el, muted, setText, svg, tableRow } from "../platform/dom.js";
import { formatSignificant, formatWeight } from "../render/format.js";
import { layerName } from "./messages.js";

const BARS_HEIGHT = 64;
const SWIPE_PX = 40;

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

/** @param {Numbers} values @param {string} name @param {string} [kind] of color: plain or signed @param {string[]} [labels] of the bars */
export function bars(values, name, kind = "plain", labels = []) {
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
    bar.append(svg("title", {}, `${labels[n] ?? n}: ${formatSignificant(values[n] ?? NaN)}`));
    drawing.append(bar);
  });
  const middle = BARS_HEIGHT / 2;
  drawing.append(svg("line", { x1: 0, x2: width, y1: middle, y2: middle, "vector-effect": "non-scaling-stroke" }));
  return drawing;
}

/** @param {Node} drawing @param {string} caption */
export function figure(drawing, caption) {
  return el("figure", {}, drawing, el("figcaption", {}, caption));
}

/** The largest weights times values, and the sum of all others. @param {Cell} cell @param {CellNames} names */
function termFigures({ terms }, { labels }) {
  const { columns = [], weights = [], vectors = [], rest = null } = terms ?? {};
  const titles = columns.map((column, n) => `${formatWeight(weights[n] ?? NaN)} × v of ${labels[column]}`);
  return [...vectors, ...(rest ? [rest] : [])].map((vector, n) => {
    const title = titles[n] ?? "all other tokens";
    return figure(bars(vector, title, "signed"), title);
  });
}

/** Pairs of dimensions as vectors to the rim of a circle, before and after the rotation. @param {Cell} cell */
function dials({ rotation }) {
  return (rotation?.pairs ?? []).map(({ dims, angle, product, ...vectors }) => {
    const name = `dimensions ${dims.join(", ")}: θ = ${formatSignificant(angle, 3)}, product ${formatSignificant(product)}`;
    const drawing = svg("svg", { class: "rg-dial", viewBox: "-34 -34 68 68", role: "img", "aria-label": name });
    drawing.append(svg("circle", { r: 32 }));
    for (const [of, radius] of Object.entries({ q: 31, k: 21 }))
      vectors[/** @type {"q" | "k"} */ (of)].forEach(([x, y], isAfter) => {
        const scale = radius / (Math.hypot(x, y) || 1);
        drawing.append(svg("line", { x2: scale * x, y2: -scale * y, class: `rg-dial-${of} rg-turn-${isAfter}` }));
      });
    return figure(drawing, name);
  });
}

/** @typedef {{ cell: Cell, names: CellNames, message?: undefined } | { cell?: undefined, message: string }} CellBeside */

export class CellView {
  /** @param {App} app */
  constructor(app) {
    const { cell, cellHead, closeCell } = (this.refs = app.refs);
    this.app = app;
    this.node = cell;
    this.isShown = false; // steps are
    let start = 0;
    cellHead.addEventListener("pointerdown", (event) => (start = event.clientY));
    cellHead.addEventListener("pointerup", (event) => event.clientY - start > SWIPE_PX && closeCalculation(app));
    closeCell.addEventListener("click", () => closeCalculation(app));
    cell.addEventListener("click", ({ target }) => {
      const value = /** @type {Element} */ (target).closest("button.rg-value");
      const derivation = /** @type {HTMLElement | null | undefined} */ (value?.closest("li")?.children[1]);
      if (!value || !derivation) return;
      derivation.hidden = !derivation.hidden;
      value.setAttribute("aria-expanded", String(!derivation.hidden));
    });
  }

  /** Whether it is a sheet over the lower part of a narrow window. */
  get isSheet() {
    return getComputedStyle(this.node).getPropertyValue("--rg-sheet") === "1";
  }

  /** @param {Cell} cell @param {CellNames} names @param {CellBeside | null} [b] */
  show(cell, names, b = null) {
    const { cellTitle, titleA, cellSide, steps, cellSource } = this.refs;
    cellTitle.replaceChildren(...(b ? ["A and B"] : titleOf(names)));
    titleA.replaceChildren(...(b ? ["A: ", ...titleOf(names)] : []));
    cellSide.textContent = names.side;
    steps.replaceChildren(this.steps(cell, names));
    cellSource.textContent = cell.source ? `From ${cell.source}.` : "";
    this.showColumnB(b);
    if (!this.isShown) this.app.showAboveSheet();
    this.isShown = true;
  }

  /** @param {CellBeside | null} b  its steps, or why there are none */
  showColumnB(b) {
    const { titleA, columnB, titleB, stepsB } = this.refs;
    columnB.hidden = titleA.hidden = b === null;
    this.node.classList.toggle("rg-of-two", b !== null);
    titleB.replaceChildren(...(b?.cell ? ["B: ", ...titleOf(b.names)] : ["B"]));
    const content = b && (b.cell ? this.steps(b.cell, b.names) : el("li", { class: "rg-description" }, b.message));
    stepsB.replaceChildren(...(content ? [content] : []));
  }

  /** The markup of the steps that this cell has, with its numbers. @param {Cell} cell @param {CellNames} names */
  steps(cell, names) {
    const facts = cellFacts(cell, names);
    const tables = { rowTerms: rowTable(cell), rolloutTerms: rolloutTable(cell) };
    const rowLabels = (cell.row?.columns ?? []).map((column) => names.labels[column]);
    const content = /** @type {DocumentFragment} */ (this.refs.stepTemplate.content.cloneNode(true));
    const all = (/** @type {string} */ selector) =>
      /** @type {NodeListOf<HTMLElement>} */ (content.querySelectorAll(selector));
    for (const node of all("[data-if]")) if (!node.dataset.if?.split(" ").every((name) => facts[name])) node.remove();
    for (const node of all("[data-fact]")) setText(node, facts[node.dataset.fact ?? ""] ?? "");
    for (const node of all("button.rg-value")) {
      node.setAttribute("aria-expanded", "false");
      node.title = "Where it comes from";
    }
    for (const node of all("[data-bars]")) {
      const { bars: path = "", name = "", kind } = node.dataset;
      const vector = path.split(".").reduce((part, key) => part?.[key], /** @type {any} */ (cell));
      node.replaceWith(bars(vector ?? [], name, kind, path.startsWith("row.") ? rowLabels : []));
    }
    for (const node of all("[data-rows]")) {
      const { columns, rows } = tables[/** @type {"rowTerms"} */ (node.dataset.rows)];
      const choose = (/** @type {number} */ n) =>
        button(label(names.labels[columns[n]], 14), () => this.app.set({ col: columns[n] }), { class: "rg-token" });
      node.append(...rows.map((row, n) => tableRow(choose(n), ...row)));
    }
    for (const node of all("[data-figures]"))
      node.append(...(node.dataset.figures === "terms" ? termFigures(cell, names) : dials(cell)));
    const meter = content.querySelector(".rg-meter");
    meter?.setAttribute("aria-label", `Weight ${facts.weight} of 1`);
    const share = Math.max(0, Math.min(1, cell.weight ?? 0));
    /** @type {HTMLElement | null} */ (meter?.firstElementChild)?.style.setProperty("width", `${share * 100}%`);
    return content;
  }

  /** @param {string} message  instead of steps */
  showMessage(message) {
    const { cellTitle, cellSide, steps, cellSource } = this.refs;
    this.isShown = false;
    cellTitle.textContent = "Calculation";
    cellSide.textContent = "";
    steps.replaceChildren();
    this.showColumnB(null);
    cellSource.textContent = message;
  }
}

/** Which weight it is. @param {CellNames} names */
function titleOf({ from, to, layer, head }) {
  const of = `${layerName(layer).toLowerCase()} · ${head === "mean" ? "mean of heads" : `head ${head}`}`;
  const name = { class: "rg-name" };
  return [bidi(from, name), " attends to ", bidi(to, name), muted(` ${of}`)];
}

/** @param {App} app @returns {View} */
export const showCell = (app) => (ask) => {
  const { state, queries, parts } = app;
  if (state.view !== "cell") return null;
  const { row, col } = state;
  const cell = app.shownCell();
  const answer = cell ? queries.cell(ask, cell) : NOTHING;
  const cellB = state.side === "diff" ? app.cellOfB() : null;
  const answerB = cellB ? queries.cell(ask, cellB, "cellB") : NOTHING;
  const isOfTwo = state.side === "diff" && app.sides().length > 1;
  const side = sideMessage(app);
  const none =
    row === null || col === null
      ? "Choose a cell of the map to see its weight step by step."
      : "This text is shorter: it has no such cell.";
  const message = answer.error?.message ?? none;
  const why = answerB.error ? sentence(answerB.error.message) : "B has no such words.";
  return {
    nodes: [parts.cellView.node],
    answers: [answer, answerB],
    of: [answer.data, answerB.data, message, why, isOfTwo, side, app.shownRun()],
    draw: () => {
      if (!cell || !answer.data) return parts.cellView.showMessage(message);
      const b = cellB && answerB.data ? { cell: answerB.data, names: namesOf(app, cellB) } : { message: why };
      parts.cellView.show(answer.data, { ...namesOf(app, cell), side }, isOfTwo ? b : null);
    },
  };
};

/** @param {App} app @param {HeadRef & { i: number, j: number }} cell @returns {CellNames} */
function namesOf({ manifest, state }, { run, layer, head, i, j }) {
  const { tokens, layers } = manifest.runs[run];
  const { number, heads, kv_heads: kvHeads } = layers[layer];
  const labels = tokens.map((_, n) => tokenName(tokens, n));
  const names = { from: labels[i], to: labels[j], layer: number, head, heads, kvHeads, labels };
  return { side: "", mode: state.mode, ...names };
}

/** Of which side the steps are, of two. @param {App} app */
function sideMessage(app) {
  const { side, words } = app.state;
  if (words) return "The map shows whole words; these are the steps of their first tokens.";
  if (app.sides().length < 2) return "";
  return side === "diff" ? "Why and What if are of A; choose B for its own." : `These are the steps of ${side}.`;
}
