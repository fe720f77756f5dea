// The text box: another text, or another model, runs with Enter; the last runs stay a press away.

import { runText, runTextB, showRunText, showRunTextB } from "../app/predictions.js";
import { NOTHING } from "../data/query.js";
import { label } from "../data/tokens.js";
import { activeElementOf, bidi, button, consume, setOptions, setText } from "../platform/dom.js";
import { isRunOf, liveTexts, runsOf } from "../state/sides.js";

const MAX_RECENT = 6;

/** A text that can be run: A, or B. */
class LiveText {
  /** @param {Refs} all @param {"" | "B"} side @param {string[]} models @param {(run: LiveRun) => void} run */
  constructor(all, side, models, run) {
    const [input, model] = [all[`liveInput${side}`], all[`liveModel${side}`]];
    const refs = (this.refs = { input, model, run: all[`liveRun${side}`], status: all[`liveStatus${side}`] });
    this.run = run;
    this.shown = /** @type {LiveRun | null} */ (null);
    this.isOfOther = false; // the text in the box runs, or was refused
    const choices = models.map((key) => ({ key, title: key.split(/[\\/]/).pop() || key }));
    setOptions(refs.model, choices);
    refs.input.addEventListener("keydown", (event) => this.onKeydown(event));
    refs.model.addEventListener("change", () => this.submit());
    refs.run.addEventListener("click", () => this.submit());
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    if (event.key === "Escape") {
      this.refs.input.value = this.shown?.text ?? "";
      this.refs.input.blur();
    } else if (event.key !== "Enter" || event.shiftKey || event.isComposing) return event.stopPropagation();
    else this.submit();
    consume(event);
  }

  submit() {
    const text = this.refs.input.value.trim();
    if (text) this.run({ text, model: this.refs.model.value });
    else setText(this.refs.status, "Write a text first.");
  }

  /** Whether it is another run than the last; null: none. @param {LiveRun | null} shown @param {Answer<LiveAnswer>} answer */
  show(shown, { isPending, error }) {
    const { input, model, run, status } = this.refs;
    run.disabled = isPending;
    setText(status, error?.message ?? (isPending ? "Running the model …" : ""));
    status.classList.toggle("rg-refused", error !== null);
    const wasOfOther = this.isOfOther;
    this.isOfOther = isPending || error !== null;
    const isOther = !(shown && this.shown && isSameRun(this.shown, shown));
    if (this.isOfOther || !(isOther || wasOfOther)) return false; // what one writes stays
    this.shown = shown;
    if (!shown) return false;
    if (activeElementOf(input) !== input || input.value.trim() !== shown.text) input.value = shown.text;
    model.value = shown.model;
    return isOther;
  }
}

/** @param {LiveRun} one @param {LiveRun} other */
function isSameRun(one, other) {
  return one.text === other.text && one.model === other.model;
}

/** The boxes of A and B, and the last runs of A. @param {App} app @returns {View} */
export function showLive(app) {
  const { manifest, refs, source } = app;
  if (!manifest.live_models.length) return () => null;
  const boxA = new LiveText(refs, "", manifest.live_models, (run) => runText(app, run));
  const boxB = new LiveText(refs, "B", manifest.live_models, (run) => runTextB(app, run));
  let recent = /** @type {LiveRun[]} */ ([]);
  const addRecent = (/** @type {LiveRun} */ shown) => {
    recent = [shown, ...recent.filter((each) => !isSameRun(each, shown))].slice(0, MAX_RECENT);
    const others = recent.slice(1).map((each) => {
      const props = { class: "rg-button rg-item", title: each.model };
      return button([bidi(label(each.text, 48))], () => runText(app, each), props);
    });
    refs.liveMenu.open = false;
    refs.liveMenu.hidden = others.length === 0;
    refs.liveRecent.replaceChildren(...others);
  };
  return (ask) => {
    const { state } = app;
    const { textB, comparing } = state;
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
      if (boxA.show(shown, answer)) addRecent(shown);
      const isShown = comparing || textB !== "" || b !== null;
      refs.compareText.hidden = isShown || Boolean(manifest.training);
      refs.liveB.hidden = !isShown;
      refs.closeB.hidden = b !== null && textB === "";
      boxB.show(b ? { text: b.text, model: b.model } : textB ? ofB : null, answerB);
    };
    return { draw };
  };
}
