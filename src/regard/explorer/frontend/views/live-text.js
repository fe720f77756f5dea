// The text box: another text, or another model, runs with Enter; the last runs stay a press away.

import { label } from "../data/tokens.js";
import { activeElementOf, bidi, button, consume, el, select, setText } from "../platform/dom.js";

/** @import { LiveRun } from "../types.js" */

const MAX_RECENT = 6;

export class LiveText {
  /** @param {string[]} models @param {(run: LiveRun) => void} run */
  constructor(models, run) {
    this.run = run;
    /** @type {LiveRun[]} */
    this.recent = [];
    this.input = el("textarea", {
      rows: 1,
      class: "rg-search rg-live-input",
      "aria-label": "Text",
      spellcheck: "false",
      autocomplete: "off",
      on: { keydown: (/** @type {KeyboardEvent} */ event) => this.onKeydown(event) },
    });
    const choices = models.map((key) => ({ key, title: key.split(/[\\/]/).pop() || key }));
    this.model = select("Model", choices, () => this.submit());
    this.button = button("Run", () => this.submit(), { title: "Run this text (Enter)" });
    this.status = el("span", { class: "rg-muted", role: "status" });
    this.list = el("div", { class: "rg-panel" });
    this.menu = el("details", { class: "rg-menu", hidden: true }, el("summary", {}, "Last runs"), this.list);
    this.node = el(
      "section",
      { class: "rg-live", "aria-label": "Text and model" },
      this.model,
      this.input,
      this.button,
      this.menu,
      this.status,
    );
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    if (event.key === "Escape") this.input.value = this.shown?.text ?? "";
    else if (event.key !== "Enter" || event.shiftKey || event.isComposing) return event.stopPropagation();
    else this.submit();
    consume(event);
  }

  submit() {
    const text = this.input.value.trim();
    if (text) this.run({ text, model: this.model.value });
    else setText(this.status, "Write a text first.");
  }

  /** @param {LiveRun} shown @param {boolean} isRunning @param {string} error */
  show(shown, isRunning, error) {
    this.button.disabled = isRunning;
    setText(this.status, error || (isRunning ? "Running the model …" : ""));
    this.status.classList.toggle("rg-refused", error !== "");
    const isShown = (/** @type {LiveRun} */ { text, model }) => text === shown.text && model === shown.model;
    if (isRunning || error || (this.shown && isShown(this.shown))) return;
    this.shown = shown;
    if (activeElementOf(this.input) !== this.input || this.input.value.trim() !== shown.text)
      this.input.value = shown.text;
    this.model.value = shown.model;
    this.recent = [shown, ...this.recent.filter((each) => !isShown(each))].slice(0, MAX_RECENT);
    const others = this.recent.slice(1).map((each) => {
      const node = button("", () => this.run(each), { class: "rg-button rg-item", title: each.model });
      node.append(bidi(label(each.text, 48)));
      return node;
    });
    this.menu.open = false;
    this.menu.hidden = others.length === 0;
    this.list.replaceChildren(...others);
  }
}
