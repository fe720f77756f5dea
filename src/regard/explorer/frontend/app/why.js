// Why the query attends to the key: the pairs of writers that add most to the score, as sentences.

import { sentence } from "../data/attribution.js";
import { tokenName } from "../data/tokens.js";
import { bidi, button, el, setText } from "../platform/dom.js";
import { formatSigned, formatWeight } from "../render/format.js";
import { openRow } from "./actions.js";

const TERMS = { softcap: "The soft cap", bias: "The position bias" };

/** @param {App} app @returns {View} */
export const showWhy = (app) => (ask) => {
  const { state, refs, manifest } = app;
  const cell = app.shownCell();
  const frame = {
    draw: () => {
      refs.why.hidden = !cell;
      refs.contrast.hidden = Boolean(manifest.blobs); // a file holds none
    },
  };
  if (state.view !== "cell" || !state.why || !cell) return frame;
  const answer = ask("why", { ...cell, contrast: state.contrast && !manifest.blobs });
  const { data, error } = answer;
  const draw = () => {
    refs.whyPairs.replaceChildren(...(data ? data.pairs.map((pair) => pairInWords(app, cell, data, pair)) : []));
    if (data) refs.whySum.replaceChildren(...sumOf(app, cell, data));
    else setText(refs.whySum, error ? sentence(error.message) : "");
  };
  return [frame, { nodes: [refs.whySum, refs.whyPairs], answers: [answer], of: [answer, app.shownRun()], draw }];
};

/** What the pairs sum to. @param {App} app @param {{ j: number }} cell @param {Why} why @returns {(string | Node)[]} */
function sumOf(app, { j }, { score, versus, others, num_others: count, terms }) {
  const less = versus === null ? [] : [" of ", word(app, j), " less that of ", word(app, versus)];
  const rest = count ? ` and of ${count.toLocaleString("en")} others, which add ${formatSigned(others)} together` : "";
  const after = Object.entries(terms).map(
    ([name, value]) => ` ${TERMS[/** @type {"bias"} */ (name)]} then adds ${formatSigned(value)}.`,
  );
  return ["The score", ...less, `, ${formatWeight(score)}, is the sum of these pairs${rest}.`, ...after];
}

/** What a pair adds, in words. @param {App} app @param {{ i: number, j: number }} cell @param {Why} why @param {ScorePair} pair */
function pairInWords(app, { i, j }, { score, versus }, { query, key, value }) {
  const amount = el("b", {}, formatSigned(value));
  const of = ` of ${formatWeight(score)}`;
  return el(
    "li",
    {},
    ...written(app, query, i),
    " (query) meets ",
    ...written(app, key, j, versus),
    " (key): ",
    amount,
    of,
  );
}

/** What wrote into the residual stream of a token, less what it wrote at another; a head leads to its row there. @param {App} app @param {ScoreWriter} writer @param {number} token @param {number | null} [versus] @returns {(string | Node)[]} */
function written(app, { label, kind, layer, head }, token, versus = null) {
  if (kind === "bias") return [`the ${label}`]; // of no token
  const isEmbedding = /embeddings?$/.test(kind);
  const where = [isEmbedding ? " of " : " at ", word(app, token)];
  if (versus !== null) where.push(isEmbedding ? " less that of " : " less that at ", word(app, versus));
  if (isEmbedding || kind === "edit") return [`the ${label}`, ...where];
  const open = () => openRow(app, { layer: layer ?? 0, head: head ?? 0 }, token);
  return [layer === null ? label : button(label, open, { class: "rg-token" }), "’s output", ...where];
}

/** @param {App} app @param {number} token */
function word(app, token) {
  return bidi(tokenName(app.shownRun().tokens, token), { class: "rg-name" });
}
