// Patching: steps of A put into the run of B, one after the other.

import { sentence } from "../data/attribution.js";
import { NOTHING } from "../data/query.js";
import { tokenName } from "../data/tokens.js";
import { present, setText } from "../platform/dom.js";
import { runsOf } from "../state/sides.js";
import { openRow } from "./actions.js";

/** What is asked for; a text where nothing can be. @param {App} app */
export function patchingQuestion({ state, manifest }) {
  const [a, b] = sidesOfTexts(state, manifest);
  if (b === undefined)
    return "Patching needs a text B with the same number of tokens as A: it puts steps of A into the run of B.";
  const { patchOver: over, patchToken: token, patchVersus: versus } = state;
  return { run: a, other: b, over, ...(token !== null && { token }), ...(versus !== null && { versus }) };
}

/** The runs of A and B, without ablations. @param {State} state @param {Manifest} manifest */
function sidesOfTexts(state, manifest) {
  return runsOf({ ...state, editedRun: null }, manifest);
}

/** @param {App} app */
export function showPatching(app) {
  const { state, queries, parts, refs, source, manifest, theme } = app;
  const [a, b] = sidesOfTexts(state, manifest);
  const run = manifest.runs[a];
  if (state.view !== "patching") {
    if (queries.patching.answer.isPending) queries.patching.reset(); // nobody waits for it
    app.cancelledPatching = "";
    return;
  }
  const question = patchingQuestion(app);
  const isCancelled = app.cancelledPatching !== "" && app.cancelledPatching === JSON.stringify(question);
  const answer =
    typeof question === "string" || isCancelled
      ? NOTHING
      : queries.patching.fetch(question, (signal) => source.patching(question, signal));
  refs.cancelPatching.hidden = !answer.isPending;
  refs.startPatching.hidden = !isCancelled;
  const waits = answer.isPending ? "Running B again with each step of A …" : "";
  const says = typeof question === "string" ? question : isCancelled ? "Cancelled." : answer.error?.message;
  setText(refs.patchingStatus, waits || (says ? sentence(says) : ""));
  if (!answer.isPending) setText(refs.patchingProgress, "");
  const { patchingSummary, patchingGrid, patchingReadout, patchingLegend } = refs;
  present([patchingSummary, patchingGrid, patchingReadout, patchingLegend], [answer], () => {
    const other = b === undefined ? [] : manifest.runs[b].tokens;
    const names = run.tokens.map(({ text }, n) => {
      const name = tokenName(run.tokens, n);
      return other[n] && other[n].text !== text ? `${name} | ${tokenName(other, n)}` : name;
    });
    const changed = new Set(names.flatMap((_, n) => (other[n]?.text === run.tokens[n].text ? [] : [n])));
    const layers = run.layers.map(({ number }) => number);
    parts.patching.show(answer.data, names, changed, layers, theme);
    const isOfTokens = answer.error ? refs.patchToken.options.length > 0 : typeof answer.data?.token === "number";
    refs.patchTokens.hidden = !isOfTokens; // after an error, another can be chosen
  });
}

/** @param {App} app */
export function cancelPatching(app) {
  app.cancelledPatching = JSON.stringify(patchingQuestion(app));
  app.queries.patching.reset();
  app.refresh();
  app.refs.startPatching.focus();
}

/** @param {App} app */
export function startPatching(app) {
  app.cancelledPatching = "";
  app.refresh();
}

/** Show the head, or what the position attends to in its layer. @param {App} app @param {number} layer @param {number} site */
export function openSite(app, layer, site) {
  const isOfHeads = app.state.patchOver === "head";
  const last = app.shownRun().tokens.length - 1;
  app.set({ side: "A" });
  openRow(app, { layer, head: isOfHeads ? site : "mean" }, isOfHeads ? (app.state.row ?? last) : site);
}
