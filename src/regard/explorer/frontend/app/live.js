// The text boxes of A and B: what is shown, and what runs.

import { NOTHING } from "../data/query.js";
import { runsOf } from "../state/sides.js";
import { showRunText, showRunTextB } from "./predictions.js";

/** @param {App} app @returns {View} */
export const showLive = (app) => (ask) => {
  const { state, manifest, parts, refs, source } = app;
  const { text, textB, comparing } = state;
  if (!manifest.live_models?.length) return null;
  const [a, b = null] = runsOf({ ...state, editedRun: null }, manifest).map((number) => manifest.runs[number]);
  const modelB = state.modelB || state.model || manifest.runs[0].model;
  /** @param {string} name @param {LiveRun} run @param {(app: App, answer: LiveAnswer) => void} onRun @returns {Answer<LiveAnswer>} */
  const runOf = (name, run, onRun) =>
    run.text === ""
      ? NOTHING
      : ask(name, run, (signal) => source.run_text(run, signal), {
          forgets: true,
          onData: (/** @type {LiveAnswer} */ answer) => onRun(app, answer),
        });
  const answer = runOf("live", { text, model: state.model || manifest.live_models[0] }, showRunText);
  const answerB = runOf("liveB", { text: textB, model: modelB }, showRunTextB);
  const draw = () => {
    const shown = { text: a.text, model: a.model };
    if (parts.live.show(shown, answer)) parts.recentRuns.add(shown);
    const isShown = comparing || textB !== "" || b !== null;
    refs.compareText.hidden = isShown || Boolean(manifest.training);
    refs.liveB.hidden = !isShown;
    refs.closeB.hidden = b !== null && textB === "";
    const wanted = textB ? { text: textB, model: modelB } : null;
    parts.liveB.show(b ? { text: b.text, model: b.model } : wanted, answerB);
  };
  return { draw };
};
