// What the text box and the panel of what comes next show of the state and of the answers that have arrived.

import { lastWord, sameToken, tokenName } from "../data/tokens.js";
import { present, setText } from "../platform/dom.js";
import { differenceBlockedBy, runsOf } from "../state/sides.js";
import { drawAligned } from "../views/aligned.js";

/**
 * Run a text, which becomes A; or return to the given one. The head and the cell stay, as far as the text has its words.
 * @param {App} app @param {LiveRun} run @param {(run: Run) => Partial<State>} [opening]  what is shown of it instead
 */
export function runText(app, { text, model }, opening) {
  const { state, manifest } = app;
  const given = manifest.runs[0];
  const isGiven = text === given.text && model === given.model;
  const isShown = text === state.text && model === state.model && state.liveRun !== null;
  const before = app.shownRun();
  const open = opening ?? ((/** @type {Run} */ run) => keptCell(state, before, run));
  app.opening = isGiven || isShown ? null : open;
  app.edits = { past: [], future: [], error: "" }; // of another text
  const at = isGiven ? open(given) : isShown ? opening?.(before) : {};
  const reset = {
    liveRun: isGiven ? null : state.liveRun, // until the new one is there
    ablated: [],
    selectionB: null,
    side: state.side === "diff" ? state.side : /** @type {const} */ ("A"),
    zoom: null,
    pins: [],
  };
  app.set({ ...reset, from: null, to: null, ...at, text: isGiven ? "" : text, model: isGiven ? "" : model });
  if (app.state === state) app.retry(); // once more
}

/** The cell of the same words in another run of the model; in another model what a run opens with. @param {State} state @param {Run} before @param {Run} run @returns {Partial<State>} */
function keptCell({ row, col }, before, run) {
  const { initial } = run;
  if (run.model !== before.model)
    return {
      layer: initial.layer,
      head: initial.head,
      row: initial.row ?? null,
      col: initial.col ?? null,
      patchToken: null, // an id of the other vocabulary
      patchVersus: null,
    };
  return { row: sameToken(before.tokens, run.tokens, row), col: sameToken(before.tokens, run.tokens, col) };
}

/** @param {App} app */
export function showLive(app) {
  const { state, queries, manifest, parts } = app;
  if (!manifest.live_models?.length) return;
  const { text } = state;
  const run = { text, model: state.model || manifest.live_models[0] };
  const answer = text ? queries.live.fetch(run, (signal) => app.source.run_text(run, signal)) : queries.live.reset();
  const [a, b = null] = runsOf({ ...state, editedRun: null }, manifest).map((number) => manifest.runs[number]);
  const shown = { text: a.text, model: a.model };
  if (parts.live.show(shown, answer)) parts.recentRuns.add(shown);
  showLiveB(app, b);
}

/** The text that A is compared with. @param {App} app @param {Run | null} b */
function showLiveB(app, b) {
  const { state, queries, manifest, parts, refs, source } = app;
  const { textB: text } = state;
  const run = { text, model: state.modelB || state.model || manifest.runs[0].model };
  const answer = text ? queries.liveB.fetch(run, (signal) => source.run_text(run, signal)) : queries.liveB.reset();
  const isShown = app.isComparing || text !== "" || b !== null;
  const { training } = manifest;
  refs.compareText.hidden = isShown || Boolean(training);
  refs.liveB.hidden = !isShown;
  refs.closeB.hidden = b !== null && text === "";
  const shown = b ? { text: b.text, model: b.model } : text ? run : null;
  parts.liveB.show(shown, answer);
}

/** Open the text of B, which is that of A until it is changed. @param {App} app */
export function compareText(app) {
  const { liveInput, liveInputB, liveModel, liveModelB } = app.refs;
  app.isComparing = true;
  [liveInputB.value, liveModelB.value] = [liveInput.value, liveModel.value];
  app.refresh();
  liveInputB.focus();
}

/** Compare with the given text, or with none. @param {App} app */
export function closeTextB(app) {
  runTextB(app, { text: "", model: "" });
  app.refs.compareText.focus(); // the button that was pressed is hidden
}

/** Compare with a text that the page runs; the head and the cell stay. An empty one is the given B, or none. @param {App} app @param {LiveRun} run */
export function runTextB(app, { text, model }) {
  const { state, manifest } = app;
  const given = manifest.runs.slice(0, manifest.numGivenRuns)[1];
  const isGiven = text === "" || (given && text === given.text && model === given.model);
  app.edits = { past: [], future: [], error: "" };
  if (text === "") app.isComparing = false;
  const liveRunB = isGiven ? null : state.liveRunB; // until the new one is there
  const ofA = state.model || manifest.runs[0].model;
  const b = isGiven ? { textB: "", modelB: "" } : { textB: text, modelB: model === ofA ? "" : model };
  app.set({ ...b, liveRunB, ablated: [], selectionB: null, zoom: null });
  if (app.state === state) app.retry(); // once more
}

/** Show a text that was run beside A. @param {App} app @param {LiveAnswer} answer */
export function showRunTextB(app, { run, metadata }) {
  app.manifest.runs[run] = metadata;
  const isNew = app.state.liveRunB === null && app.state.side === "A";
  app.set({ liveRunB: run });
  if (isNew && differenceBlockedBy(app.state, app.manifest) === null) app.set({ side: "diff" });
}

/** Two texts below each other, their changed words marked. @param {App} app */
export function showAligned(app) {
  const { state, manifest, refs } = app;
  const [a, b] = app.sides().map(({ run }) => manifest.runs[run]);
  const isOfTexts =
    b !== undefined && state.editedRun === null && a.text !== b.text && !a.picture && !a.layers[0].block;
  refs.aligned.hidden = !isOfTexts;
  if (isOfTexts) drawAligned(refs.aligned, a.tokens, b.tokens);
  else refs.aligned.replaceChildren();
}

/** Show a text that was run. @param {App} app @param {LiveAnswer} answer */
export function showRunText(app, { run, metadata }) {
  const { text, model } = app.state;
  app.manifest.runs[run] = metadata;
  const opening = app.opening?.(metadata) ?? app.wanted();
  app.opening = null;
  app.set({ ...opening, text, model, liveRun: run });
}

/** @param {App} app */
export function showNextTokens(app) {
  const { state, manifest, queries, parts, refs } = app;
  const run = app.shownRun();
  refs.nextTokens.hidden = !run.predicts_tokens;
  setText(refs.temperatureText, state.temperature.toFixed(1));
  if (!run.predicts_tokens) refs.nextLine.hidden = true;
  if (!run.predicts_tokens) return;
  const number = state.editedRun ?? app.shownHead().run;
  const position = positionOf(app);
  const base = manifest.runs[number].base_run ?? null;
  const answer = queries.fetchNextTokens(number, base, position, state.temperature, state.nextTokens);
  present([refs.nextLine, refs.nextHeading, refs.nextList, refs.lensTable], [answer], () =>
    parts.nextTokens.show({
      after: tokenName(run.tokens, position),
      predictions: answer.data,
      canContinue: manifest.live_models.includes(run.model),
      error: answer.error?.message ?? "",
    }),
  );
}

/** @param {App} app */
export function showModel(app) {
  const { state, queries, parts, source, refs, manifest } = app;
  if (state.view !== "model") return;
  const at = { run: app.shownHead().run, position: positionOf(app) };
  const answer = queries.stream.fetch(at, (signal) => source.residual_stream(at, signal));
  const side = parts.sideSwitches.model;
  present([side.names, refs.modelHeading, refs.stream], [answer], () => {
    side.name(state, manifest, app.sides());
    if (answer.data) parts.model.show(answer.data, app.shownRun(), app.theme);
    else parts.model.showMessage(answer.error?.message ?? "");
  });
}

/** The token that the next one follows: that of the row, else the last. @param {App} app */
export function positionOf(app) {
  return Math.min(app.state.row ?? Infinity, app.shownRun().tokens.length - 1);
}

/** Go on with another token after the chosen one, and run that text; the new token is chosen next. @param {App} app @param {string} token */
export function appendToken(app, token) {
  const before = app.shownRun();
  const { text, model, tokens } = before;
  const { state } = app;
  const opening = (/** @type {Run} */ run) => ({ ...keptCell(state, before, run), row: lastWord(run.tokens) });
  runText(app, { text: text.slice(0, tokens[positionOf(app)].end) + token, model }, opening);
}

/** Draw the next token, and append it. @param {App} app */
export async function sampleToken(app) {
  const { run } = app.shownHead();
  const { temperature } = app.state;
  const query = { run, position: positionOf(app), temperature, seed: Math.floor(Math.random() * 2 ** 31) };
  const { drawn } = await app.queries.client.track(app.source.next_tokens(query, app.controller.signal));
  if (drawn) appendToken(app, drawn.text);
}
