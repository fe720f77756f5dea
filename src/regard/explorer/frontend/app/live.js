// The text boxes of A and B: what is shown, and what runs.

import { NOTHING } from "../data/query.js";
import { isRunOf, liveTexts, runsOf } from "../state/sides.js";
import { showRunText, showRunTextB } from "./predictions.js";

/** @param {App} app @returns {View} */
export const showLive = (app) => (ask) => {
  const { state, manifest, parts, refs, source } = app;
  const { textB, comparing } = state;
  if (!manifest.live_models?.length) return null;
  const [a, b = null] = runsOf({ ...state, editedRun: null }, manifest).map((number) => manifest.runs[number]);
  const [ofA, ofB] = liveTexts(state, manifest);
  /** @param {string} name @param {LiveRun} run @param {number | null} shown @param {(app: App, answer: LiveAnswer) => void} onRun @returns {Answer<LiveAnswer>} */
  const runOf = (name, run, shown, onRun) =>
    run.text === "" || isRunOf(manifest, shown, run)
      ? NOTHING
      : ask(name, run, (signal) => source.run_text(run, signal), {
          forgets: true,
          onData: (/** @type {LiveAnswer} */ answer) => onRun(app, answer),
        });
  const answer = runOf("live", ofA, state.liveRun, showRunText);
  const answerB = runOf("liveB", ofB, state.liveRunB, showRunTextB);
  const draw = () => {
    const shown = { text: a.text, model: a.model };
    if (parts.live.show(shown, answer)) parts.recentRuns.add(shown);
    const isShown = comparing || textB !== "" || b !== null;
    refs.compareText.hidden = isShown || Boolean(manifest.training);
    refs.liveB.hidden = !isShown;
    refs.closeB.hidden = b !== null && textB === "";
    parts.liveB.show(b ? { text: b.text, model: b.model } : textB ? ofB : null, answerB);
  };
  return { draw };
};
