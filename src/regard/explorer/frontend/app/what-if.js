// Other scores in the row of the calculation: the softmax, the context and the prediction follow.

import { sentence } from "../data/attribution.js";
import { heaviest } from "../data/cell-facts.js";
import { NOTHING } from "../data/query.js";
import { label, tokenName } from "../data/tokens.js";
import { changedOutput, changedRow, cosine, scoreFor } from "../data/what-if.js";
import { activeElementOf, bidi, el, setText } from "../platform/dom.js";
import { formatFixed, formatWeight } from "../render/format.js";
import { showChangedTokens } from "../views/ablation-panel.js";
import { bars, figure } from "../views/cell-view.js";

const [BELOW, ABOVE] = [12, 4]; // of the largest score: how far a slider moves at least

/** @typedef {NonNullable<ReturnType<App["shownCell"]>>} Place */

/** The changed scores of a row, none for another. @param {State} state @param {Place} place @returns {ChangedScore[]} */
function changesOf({ changedScores: changed }, { layer, head, i }) {
  const isHere = changed && changed.layer === layer && changed.head === head && changed.row === i;
  return isHere ? changed.scores : [];
}

/** @param {Place} place */
const rowOf = ({ run, layer, head, i }) => [run, layer, head, i];

/** @param {App} app @returns {View} */
export const showWhatIf = (app) => (ask) => {
  const { state, queries, refs, manifest, source } = app;
  const place = app.shownCell();
  if (state.view !== "cell") return null;
  const cell = place && queries.cell(ask, place).data;
  const isOfRow = cell && cell.row && place.head !== "mean" && !cell.ablated;
  const frame = { draw: () => void (refs.whatIf.hidden = !isOfRow) };
  if (!isOfRow || !state.whatIf) return frame;
  const row = new Set(cell.row?.columns);
  const changes = changesOf(state, place).filter(([key]) => row.has(key));
  const controls = {
    draw: () => {
      showKnobs(app, place, cell, changes);
      refs.restoreScores.disabled = changes.length === 0;
      refs.whatFollows.hidden = changes.length === 0;
    },
  };
  if (changes.length === 0) return [frame, controls];
  const { run, layer, i } = place;
  const head = Number(place.head);
  const keys = changes.map(([key]) => key);
  const load = async (/** @type {AbortSignal} */ signal) => {
    const cells = await Promise.all(keys.map((j) => source.cell({ run, layer, head, i, j, mode: "raw" }, signal)));
    return new Map(cells.flatMap(({ v }, n) => (v ? [[keys[n], v]] : [])));
  };
  const values = /** @type {Answer<Map<number, Numbers>>} */ (
    ask("changedValues", [run, layer, head, i, keys], load, { inBar: true })
  );
  const mayRun = manifest.can.ablate && !manifest.blobs;
  const outcome = mayRun ? ask("what_if", { run, layer, head, i, scores: changes }) : NOTHING;
  const { whatIfOutputs, whatIfTokens, changedContext } = refs;
  return [
    frame,
    controls,
    { nodes: [changedContext], answers: [values], draw: () => showContext(app, cell, changes, values.data) },
    { nodes: [whatIfOutputs, whatIfTokens], answers: [outcome], draw: () => showOutcome(app, outcome, mayRun) },
  ];
};

/** A row of controls for each of the heaviest keys, and the chosen one. They stay, and keep the focus, as long as they are of the same keys. @param {App} app @param {Place} place @param {Cell} cell @param {ChangedScore[]} changes */
function showKnobs(app, place, cell, changes) {
  const { columns = [], weights: before = [] } = cell.row ?? {};
  const heavy = heaviest(cell);
  const wanted = new Set([place.j, ...changes.map(([key]) => key)]);
  const shown = [...columns.keys()].filter((n) => heavy.includes(n) || wanted.has(columns[n]));
  const body = app.refs.knobs.tBodies[0];
  const of = JSON.stringify([rowOf(place), shown]);
  if (body.dataset.of !== of) {
    body.dataset.of = of;
    body.replaceChildren(...shown.map((n) => knobsOf(app, cell, place, columns[n])));
  }
  const { scores, weights } = changedRow(cell, changes);
  shown.forEach((n, at) => {
    const node = body.rows[at];
    const [score, weight, mask] = /** @type {NodeListOf<HTMLInputElement>} */ (node.querySelectorAll("input"));
    const isMasked = scores[n] === -Infinity;
    if (!isMasked) score.value = String(scores[n]);
    score.disabled = weight.disabled = isMasked;
    if (activeElementOf(weight) !== weight) weight.value = String(Number(weights[n].toFixed(4)));
    mask.checked = isMasked;
    node.classList.toggle(
      "rg-changed",
      changes.some(([key]) => key === columns[n]),
    );
    const [, , scoreText, was] = node.cells;
    setText(scoreText, isMasked ? "−∞" : formatWeight(scores[n]));
    setText(was, formatWeight(before[n] ?? NaN));
    /** @type {HTMLElement} */ (node.querySelector(".rg-meter span")).style.setProperty(
      "width",
      `${weights[n] * 100}%`,
    );
  });
}

/** @param {App} app @param {Cell} cell @param {Place} at @param {number} key */
function knobsOf(app, cell, at, key) {
  const name = tokenName(app.shownRun().tokens, key);
  const of = String(rowOf(at));
  const set = (/** @type {(changes: ChangedScore[]) => number | null | undefined} */ choose) => {
    const place = app.shownCell();
    if (!place || place.head === "mean" || String(rowOf(place)) !== of) return; // left with what was written for another row
    const all = changesOf(app.state, place);
    const score = choose(all);
    const others = all.filter(([one]) => one !== key);
    const scores = /** @type {ChangedScore[]} */ (score === undefined ? others : [...others, [key, score]]);
    const { layer, head, i: row } = place;
    app.set({ changedScores: scores.length ? { layer, head, row, scores } : null });
  };
  const { max = 0, scores = [] } = cell.row ?? {};
  const min = Math.min(max - BELOW, ...scores.map((score) => score ?? max));
  const node = /** @type {HTMLTableRowElement} */ (app.refs.knobRow.content.firstElementChild?.cloneNode(true));
  node.cells[0].append(bidi(label(name, 14)));
  const [score, weight, mask] = /** @type {NodeListOf<HTMLInputElement>} */ (node.querySelectorAll("input"));
  [score.min, score.max] = [String(min), String(max + ABOVE)];
  const listen = (
    /** @type {HTMLInputElement} */ input,
    /** @type {string} */ type,
    /** @type {string} */ what,
    /** @type {(changes: ChangedScore[]) => number | null | undefined} */ choose,
  ) => {
    input.ariaLabel = `${what} of ${name}`;
    input.addEventListener(type, () => set(choose));
  };
  listen(score, "input", "Score", () => Math.round(Number(score.value) * 1000) / 1000);
  listen(weight, "change", "Weight", (changes) => scoreFor(cell, changes, key, Number(weight.value)));
  listen(mask, "change", "Mask the key", () => (mask.checked ? null : undefined));
  return node;
}

/** @param {App} app @param {Cell} cell @param {ChangedScore[]} changes @param {Map<number, Numbers> | null} values */
function showContext({ refs }, cell, changes, values) {
  const isKnown = values && cell.output && values.size === changes.length;
  refs.changedContext.hidden = !isKnown;
  if (!isKnown) return;
  const output = changedOutput(cell, changes, values);
  const [before, after] = [cell.output ?? [], output].map((vector) => Math.hypot(...vector.map((x) => x ?? NaN)));
  const turned = cosine(cell.output ?? [], output);
  const angle = Number.isFinite(turned)
    ? `turns by ${formatFixed((Math.acos(Math.min(1, turned)) * 180) / Math.PI, 1)}°`
    : "vanishes";
  const text = `The context of this head ${angle}; its length was ${formatWeight(before)} and is ${formatWeight(after)}.`;
  refs.changedContext.replaceChildren(
    el("p", { class: "rg-description" }, text),
    el(
      "div",
      { class: "rg-pair" },
      figure(bars(cell.output ?? [], "Context before", "signed"), "before"),
      figure(bars(output, "Context with the changed weights", "signed"), "after"),
    ),
  );
}

/** @param {App} app @param {Answer<WhatIf>} outcome @param {boolean} mayRun */
function showOutcome(app, { data, error }, mayRun) {
  const { refs } = app;
  showChangedTokens(refs.whatIfTokens, data?.next_tokens ?? null);
  if (error || !data)
    return setText(
      refs.whatIfOutputs,
      error
        ? sentence(error.message)
        : mayRun
          ? ""
          : "This page runs no model: what it makes of it shows where regard explore runs.",
    );
  const least = data.cosines.reduce((best, value, n) => (value < data.cosines[best] ? n : best), 0);
  const name = tokenName(app.shownRun().tokens, least);
  refs.whatIfOutputs.replaceChildren(
    "In the last layer, the vector of ",
    bidi(name, { class: "rg-name" }),
    ` changes most: its cosine with the original is ${formatFixed(data.cosines[least], 4)}.`,
  );
}
