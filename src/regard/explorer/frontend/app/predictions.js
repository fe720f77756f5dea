// Texts that the page runs itself, A and B, and the tokens that continue them.

import { lastWord, sameToken } from "../data/tokens.js";
import { differenceBlockedBy, isRunOf } from "../state/sides.js";

/**
 * Run a text, which becomes A; or return to the given one. The head and the cell stay, as far as the text has its words.
 * @param {App} app @param {LiveRun} run @param {(run: Run) => Partial<State>} [opening]  what is shown of it instead
 */
export function runText(app, { text, model }, opening) {
  const { state, manifest } = app;
  const given = manifest.runs[0];
  const isGiven = text === given.text && model === given.model;
  const isShown = isRunOf(manifest, state.liveRun, { text, model });
  const before = app.shownRun();
  const open = opening ?? ((/** @type {Run} */ run) => keptCell(state, before, run));
  app.opening = isGiven || isShown ? null : open;
  const at = isGiven ? open(given) : isShown ? opening?.(before) : {};
  const reset = {
    liveRun: isGiven ? null : state.liveRun, // until the new one is there
    ablated: [],
    selectionB: null,
    side: state.side === "diff" ? state.side : /** @type {const} */ ("A"),
    zoom: null,
    pins: [],
    edits: { ...state.edits, past: [], future: [], error: "" }, // of another text
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
      patchSender: null,
      patchReceiver: null,
    };
  return { row: sameToken(before.tokens, run.tokens, row), col: sameToken(before.tokens, run.tokens, col) };
}

/** Open the text of B, which is that of A until it is changed. @param {App} app */
export function compareText(app) {
  const { liveInput, liveInputB, liveModel, liveModelB } = app.refs;
  [liveInputB.value, liveModelB.value] = [liveInput.value, liveModel.value];
  app.set({ comparing: true });
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
  const edits = { ...state.edits, past: [], future: [], error: "" };
  const comparing = text !== "" && state.comparing;
  const liveRunB = isGiven ? null : state.liveRunB; // until the new one is there
  const ofA = state.model || manifest.runs[0].model;
  const b = isGiven ? { textB: "", modelB: "" } : { textB: text, modelB: model === ofA ? "" : model };
  app.set({ ...b, liveRunB, ablated: [], selectionB: null, zoom: null, edits, comparing });
  if (app.state === state) app.retry(); // once more
}

/** Show a text that was run beside A. @param {App} app @param {LiveAnswer} answer */
export function showRunTextB(app, { run, metadata }) {
  app.manifest.runs[run] = metadata;
  const isNew = app.state.liveRunB === null && app.state.side === "A";
  app.set({ liveRunB: run });
  if (isNew && differenceBlockedBy(app.state, app.manifest) === null) app.set({ side: "diff" });
}

/** Show a text that was run. @param {App} app @param {LiveAnswer} answer */
export function showRunText(app, { run, metadata }) {
  const { text, model } = app.state;
  app.manifest.runs[run] = metadata;
  const opening = app.opening?.(metadata) ?? app.wanted();
  app.opening = null;
  app.set({ ...opening, text, model, liveRun: run });
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

/** Draw the next token, and append it to the text that it was drawn for, if that is still shown. @param {App} app */
export async function sampleToken(app) {
  const placeOf = () => ({ run: app.shownHead().run, position: positionOf(app) });
  const place = placeOf();
  const query = { ...place, temperature: app.state.temperature, seed: Math.floor(Math.random() * 2 ** 31) };
  try {
    const { drawn } = await app.queries.client.track(app.source.next_tokens(query, app.controller.signal));
    if (drawn && JSON.stringify(placeOf()) === JSON.stringify(place)) appendToken(app, drawn.text);
  } catch (error) {
    app.showErrors([/** @type {Error} */ (error)]);
  }
}
