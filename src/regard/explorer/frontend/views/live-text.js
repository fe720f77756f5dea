// The text box: another text, or another model, runs with Enter; the last runs stay a press away.

import { label } from "../data/tokens.js";
import { activeElementOf, bidi, button, consume, setOptions, setText } from "../platform/dom.js";

const MAX_RECENT = 6;

/** A text that can be run: A, or B. */
export class LiveText {
  /** @param {LiveRefs} refs @param {string[]} models @param {(run: LiveRun) => void} run */
  constructor(refs, models, run) {
    this.refs = refs;
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

/** The last runs, each a press away. */
export class RecentRuns {
  /** @param {Refs} refs @param {(run: LiveRun) => void} run */
  constructor(refs, run) {
    this.refs = refs;
    this.run = run;
    this.all = /** @type {LiveRun[]} */ ([]);
  }

  /** @param {LiveRun} shown */
  add(shown) {
    this.all = [shown, ...this.all.filter((each) => !isSameRun(each, shown))].slice(0, MAX_RECENT);
    const others = this.all.slice(1).map((each) => {
      const props = { class: "rg-button rg-item", title: each.model };
      return button([bidi(label(each.text, 48))], () => this.run(each), props);
    });
    const { liveMenu, liveRecent } = this.refs;
    liveMenu.open = false;
    liveMenu.hidden = others.length === 0;
    liveRecent.replaceChildren(...others);
  }
}

/** @param {LiveRun} one @param {LiveRun} other */
function isSameRun(one, other) {
  return one.text === other.text && one.model === other.model;
}
