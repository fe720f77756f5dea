// What comes next: the distribution of the next token, with temperature, and how it forms layer by layer.

import { escapeInvisible, label } from "../data/tokens.js";
import { bidi, button, el, field, setAttribute, setText, slider } from "../platform/dom.js";
import { formatFixed, formatPercent } from "../render/format.js";

/** @import { Lens, NextTokens, NextTokensProps, PredictedToken } from "../types.js" */

const SHOWN = 8;

export class NextTokensPanel {
  /** @param {{ toggle: (isOpen: boolean) => void, setTemperature: (temperature: number) => void, append: (text: string) => void, sample: () => void }} actions */
  constructor(actions) {
    this.actions = actions;
    this.toggle = button("What comes next", () => actions.toggle(this.body.hidden), {
      class: "rg-disclosure",
      title: "The distribution of the next token (N)",
    });
    this.heading = el("p", { class: "rg-description" });
    this.temperature = slider("Temperature", actions.setTemperature, { min: "0.1", max: "2", step: "0.1" });
    this.temperatureText = el("span", { class: "rg-number" });
    this.sample = button("Sample one and go on", actions.sample);
    const temperature = field("Temperature", this.temperature);
    temperature.append(this.temperatureText);
    this.controls = el("div", { class: "rg-bar" }, temperature, this.sample);
    this.list = el("div", { class: "rg-next", role: "group", "aria-label": "Next tokens" });
    this.lens = el("div", { class: "rg-lens-body" });
    this.body = el("div", { class: "rg-attribution-body" }, this.heading, this.controls, this.list, this.lens);
    this.node = el("section", { class: "rg-attribution", "aria-label": "What comes next" }, this.toggle, this.body);
    this.key = "";
  }

  /** @param {boolean} isOpen */
  setOpen(isOpen) {
    setAttribute(this.toggle, "aria-expanded", String(isOpen));
    this.body.hidden = !isOpen;
  }

  /** @param {NextTokensProps} props */
  show({ after, now, before, lens, temperature, canContinue, error }) {
    this.setOpen(true);
    this.temperature.value = String(temperature);
    setText(this.temperatureText, temperature.toFixed(1));
    this.sample.hidden = !canContinue;
    for (const node of [this.controls, this.list, this.lens]) node.hidden = error !== "" || !now;
    if (error || !now) return setText(this.heading, error || "…");
    const changed = before ? ", and before the ablation" : "";
    this.heading.replaceChildren("After ", bidi(after), `${changed}: entropy ${formatFixed(now.entropy, 2)} nats`);
    const key = JSON.stringify([now, before, lens, canContinue]);
    if (key === this.key) return;
    this.key = key;
    this.list.replaceChildren(...now.tokens.slice(0, SHOWN).map((each) => this.row(each, before, canContinue)));
    this.lens.replaceChildren(...(lens ? lensTable(lens) : []));
  }

  /** @param {PredictedToken} each @param {NextTokens | null} before @param {boolean} canContinue */
  row({ token, text, probability }, before, canContinue) {
    const was = before?.tokens.find((other) => other.token === token)?.probability;
    const change = before
      ? ` (${was === undefined ? "< " + formatPercent(before.tokens.at(-1)?.probability ?? 0) : formatPercent(was)})`
      : "";
    const isWhole = !text.includes("\ufffd");
    const title = canContinue && isWhole ? "Take this one and go on" : "";
    const node = button("", () => this.actions.append(text), {
      class: "rg-next-token",
      disabled: !canContinue || !isWhole,
      title: `“${escapeInvisible(text.slice(0, 60))}” ${title}`.trim(),
    });
    const bar = el("span", { class: "rg-share", style: { "--rg-share": String(probability) } });
    node.append(bidi(label(text, 18)), bar, el("span", { class: "rg-number" }, formatPercent(probability) + change));
    return node;
  }
}

/** The likeliest token after each layer. @param {Lens} lens @returns {Node[]} */
function lensTable({ text, layers }) {
  const headings = ["after", "likeliest", `“${label(text, 14)}”`, "rank"].map((name) =>
    el("th", { scope: "col" }, name),
  );
  const rows = layers.map(({ step, tokens: [first], probability, rank }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, step.replace(/^blocks\.(\d+)\.output$/, "layer $1")),
      el("td", {}, bidi(label(first.text, 14)), ` ${formatPercent(first.probability)}`),
      el("td", {}, formatPercent(probability)),
      el("td", {}, String(rank + 1)),
    ),
  );
  const table = el(
    "table",
    { class: "rg-next-tokens" },
    el("caption", {}, "Logit lens: the prediction if the model ended here"),
    el("thead", {}, el("tr", {}, ...headings)),
    el("tbody", {}, ...rows),
  );
  return [el("details", {}, el("summary", {}, "Layer by layer"), table)];
}
