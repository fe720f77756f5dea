// The paths behind the next token: which token, against which other, and the graph.

import { sentence } from "../data/attribution.js";
import { NOTHING } from "../data/query.js";
import { present, setText } from "../platform/dom.js";
import { positionOf } from "./predictions.js";

/** @param {App} app */
export function showPaths(app) {
  const { state, queries, parts, refs, source, manifest } = app;
  const run = app.shownRun();
  if (state.view !== "paths") {
    if (queries.paths.answer.isPending) queries.paths.reset(); // nobody waits for it
    return;
  }
  const at = { run: app.shownHead().run, position: positionOf(app) };
  const next = queries.pathTokens.fetch(at, (signal) => source.next_tokens(at, signal));
  const tokens = next.data?.tokens ?? [];
  const chosen = tokens.find(({ token }) => token === state.pathsToken) ?? tokens[0];
  const versus = tokens.find((one) => one.token === state.pathsVersus && one !== chosen);
  const question = {
    ...at,
    token: chosen?.token,
    ...(versus && { versus: versus.token }),
    ...(state.corrupted && { corrupted: state.corrupted }),
  };
  const answer = chosen ? queries.paths.fetch(question, (signal) => source.paths(question, signal)) : NOTHING;
  present([refs.pathsToken, refs.pathsVersus], [next], () => parts.paths.showChoice(tokens, chosen, versus));
  const isPending = next.isPending || answer.isPending;
  setText(refs.pathsStatus, isPending ? "Following the paths back to the words: some seconds …" : "");
  const { names } = parts.sideSwitches.paths;
  present([names, refs.pathsSummary, refs.pathsGraph, refs.pathsTree], [next, answer], () => {
    const error = next.error ?? answer.error;
    parts.sideSwitches.paths.name(state, manifest, app.sides());
    if (answer.data) parts.paths.show(answer.data, run);
    else parts.paths.showMessage(error ? sentence(error.message) : "");
  });
}
