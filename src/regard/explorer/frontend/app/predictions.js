// What the text box and the panel of what comes next show of the state and of the answers that have arrived.

import { label } from "../data/tokens.js";

/** Run a text, which becomes A, and show a cell of it; or return to the given one. @param {App} app @param {LiveRun} run @param {Partial<State>} [cell] */
export function runText(app, { text, model }, cell) {
  const { state, manifest, queries } = app;
  const given = manifest.runs[0];
  const isGiven = text === given.text && model === given.model;
  const isShown = text === state.text && model === state.model && state.liveRun !== null;
  app.opening = isGiven || isShown ? null : (cell ?? "own");
  app.edits = { past: [], future: [] }; // of another text
  const opening = isGiven ? (cell ?? openingOf(given)) : isShown ? cell : {};
  const reset = {
    liveRun: isGiven ? null : state.liveRun, // until the new one is there
    ablated: [],
    selectionB: null,
    side: /** @type {const} */ ("A"),
    zoom: null,
    pins: [],
  };
  app.set({ ...reset, from: null, to: null, ...opening, text: isGiven ? "" : text, model: isGiven ? "" : model });
  if (state.text === text && queries.live.currentError) app.presenter.refresh(app.state); // once more
}

/** What a run opens with. @param {Run} run @returns {Partial<State>} */
function openingOf({ initial: { layer, head, row, col } }) {
  return { layer, head, row: row ?? null, col: col ?? null };
}

/** @param {App} app */
export function showLive(app) {
  const { state, queries, manifest, parts } = app;
  if (!manifest.live_models?.length) return;
  const { text, model } = state;
  if (!text) queries.live.reset();
  else
    queries.live.fetch([text, model], (signal) =>
      app.source.run_text({ text, model: model || manifest.live_models[0] }, signal),
    );
  const { current, currentError: error } = queries.live;
  if (text && current && state.liveRun !== current.run) {
    manifest.runs[current.run] = current.metadata;
    const opening = app.opening === "own" ? openingOf(current.metadata) : (app.opening ?? app.wanted());
    app.opening = null;
    return app.set({ ...opening, text, model, liveRun: current.run });
  }
  const shown = app.shownRun();
  parts.live.show({ text: shown.text, model: shown.model }, Boolean(text && !current && !error), error?.message ?? "");
}

/** @param {App} app */
export function showNextTokens(app) {
  const { state, manifest, queries, parts } = app;
  const panel = parts.nextTokens;
  const run = app.shownRun();
  app.refs.nextTokens.hidden = !run.predicts_tokens;
  if (!state.nextTokens || !run.predicts_tokens) return;
  const number = state.editedRun ?? app.shownHead().run;
  const position = positionOf(app);
  queries.fetchNextTokens(number, manifest.runs[number].base_run ?? null, position, state.temperature);
  const { data, currentError: error } = queries.nextTokens;
  panel.show({
    after: label(run.tokens[position].text),
    now: data?.now ?? null,
    before: data?.before ?? null,
    lens: data?.lens ?? null,
    temperature: state.temperature,
    canContinue: manifest.live_models.includes(run.model),
    error: error?.message ?? "",
  });
}

/** @param {App} app */
export function showModel(app) {
  const { state, queries, parts } = app;
  if (state.view !== "model") return;
  const [{ run }, position] = [app.shownHead(), positionOf(app)];
  queries.stream.fetch([run, position], (signal) => app.source.residual_stream({ run, position }, signal));
  const { current, currentError: error } = queries.stream;
  if (current) parts.model.show(current, app.shownRun(), app.theme);
  else parts.model.showMessage(error?.message ?? "Running the model …");
}

/** The token that the next one follows: that of the row, else the last. @param {App} app */
function positionOf(app) {
  return Math.min(app.state.row ?? Infinity, app.shownRun().tokens.length - 1);
}

/** Go on with another token after the chosen one, and run that text. @param {App} app @param {string} token */
export function appendToken(app, token) {
  const { text, model, tokens } = app.shownRun();
  runText(app, { text: text.slice(0, tokens[positionOf(app)].end) + token, model });
}

/** Draw the next token, and append it. @param {App} app */
export async function sampleToken(app) {
  const { run } = app.shownHead();
  const { temperature } = app.state;
  const query = { run, position: positionOf(app), temperature, seed: Math.floor(Math.random() * 2 ** 31) };
  const { drawn } = await app.queries.client.track(app.source.next_tokens(query, app.controller.signal));
  if (drawn) appendToken(app, drawn.text);
}
