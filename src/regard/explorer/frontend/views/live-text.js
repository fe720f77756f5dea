// The text box: another text, or another model, runs with Enter; the last runs stay a press away.

import { label } from "../data/tokens.js";
import { activeElementOf, bidi, button, consume, setOptions, setText } from "../platform/dom.js";

const MAX_RECENT = 6;

export class LiveText {
  /** @param {Refs} refs @param {string[]} models @param {(run: LiveRun) => void} run */
  constructor(refs, models, run) {
    this.refs = refs;
    this.run = run;
    this.recent = /** @type {LiveRun[]} */ ([]);
    const { liveInput, liveModel, liveRun } = refs;
    const choices = models.map((key) => ({ key, title: key.split(/[\\/]/).pop() || key }));
    setOptions(liveModel, choices);
    liveInput.addEventListener("keydown", (event) => this.onKeydown(event));
    liveModel.addEventListener("change", () => this.submit());
    liveRun.addEventListener("click", () => this.submit());
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    if (event.key === "Escape") {
      this.refs.liveInput.value = this.shown?.text ?? "";
      this.refs.liveInput.blur();
    } else if (event.key !== "Enter" || event.shiftKey || event.isComposing) return event.stopPropagation();
    else this.submit();
    consume(event);
  }

  submit() {
    const text = this.refs.liveInput.value.trim();
    if (text) this.run({ text, model: this.refs.liveModel.value });
    else setText(this.refs.liveStatus, "Write a text first.");
  }

  /** @param {LiveRun} shown @param {boolean} isRunning @param {string} error */
  show(shown, isRunning, error) {
    this.refs.liveRun.disabled = isRunning;
    setText(this.refs.liveStatus, error || (isRunning ? "Running the model …" : ""));
    this.refs.liveStatus.classList.toggle("rg-refused", error !== "");
    const isShown = (/** @type {LiveRun} */ { text, model }) => text === shown.text && model === shown.model;
    if (isRunning || error || (this.shown && isShown(this.shown))) return;
    this.shown = shown;
    if (activeElementOf(this.refs.liveInput) !== this.refs.liveInput || this.refs.liveInput.value.trim() !== shown.text)
      this.refs.liveInput.value = shown.text;
    this.refs.liveModel.value = shown.model;
    this.recent = [shown, ...this.recent.filter((each) => !isShown(each))].slice(0, MAX_RECENT);
    const others = this.recent.slice(1).map((each) => {
      const node = button("", () => this.run(each), { class: "rg-button rg-item", title: each.model });
      node.append(bidi(label(each.text, 48)));
      return node;
    });
    this.refs.liveMenu.open = false;
    this.refs.liveMenu.hidden = others.length === 0;
    this.refs.liveRecent.replaceChildren(...others);
  }
}
