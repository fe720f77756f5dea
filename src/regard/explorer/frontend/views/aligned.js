// Two texts below each other, word under word.

import { alignTokens, label } from "../data/tokens.js";
import { bidi, el } from "../platform/dom.js";

const CONTEXT = 6; // words around a changed one, of texts with more than
const MAX_WHOLE = 40; // words

/** Two texts below each other, their changed words marked. @param {App} app @returns {View} */
export const showAligned = (app) => () => {
  const { state, manifest, refs } = app;
  const [a, b] = app.sides().map(({ run }) => manifest.runs[run]);
  const isOfTexts =
    b !== undefined && state.editedRun === null && a.text !== b.text && !a.picture && !a.layers[0].block;
  const draw = () => {
    refs.aligned.hidden = !isOfTexts;
    refs.aligned.replaceChildren(...(isOfTexts ? columnsOf(a.tokens, b.tokens) : []));
  };
  return { nodes: [refs.aligned], of: isOfTexts ? [a, b] : [], draw };
};

/** @param {Token[]} a @param {Token[]} b */
function columnsOf(a, b) {
  const pairs = alignTokens(a, b).filter((pair) => !(a[pair.a ?? -1] ?? b[pair.b ?? -1]).special);
  const changes = pairs.flatMap(({ isChanged }, n) => (isChanged ? [n] : []));
  const isNear = (/** @type {number} */ n) => changes.some((at) => Math.abs(at - n) <= CONTEXT);
  const isWhole = pairs.length <= MAX_WHOLE;
  const nodes = pairs.flatMap((pair, n) => {
    if (!isWhole && !isNear(n)) return n === 0 || isNear(n - 1) ? [column("…", "…", false)] : [];
    const [ofA, ofB] = [a[pair.a ?? -1], b[pair.b ?? -1]].map((token) => (token ? label(token.text) : "–"));
    return [column(ofA, ofB, pair.isChanged)];
  });
  return [column("A", "B", false, "rg-aligned-names"), ...nodes];
}

/** @param {string} a @param {string} b @param {boolean} isChanged @param {string} [name] */
function column(a, b, isChanged, name = "") {
  const tag = isChanged ? "mark" : "span";
  return el("span", { class: `rg-aligned-pair ${name}` }, el(tag, {}, bidi(a)), el(tag, {}, bidi(b)));
}
