// What comes next: the distribution of the next token, with temperature, and how it forms layer by layer.

import { escapeInvisible, label } from "../data/tokens.js";
import { bidi, button, el, setText, tableRow } from "../platform/dom.js";
import { formatFixed, formatPercent } from "../render/format.js";

const SHOWN = 8;
const SHOWN_IN_LINE = 5; // which every view has

export class NextTokensPanel {
  /** @param {Refs} refs @param {(text: string) => void} append */
  constructor(refs, append) {
    this.refs = refs;
    this.append = append;
    this.key = "";
  }

  /** @param {NextTokensProps} props */
  show({ after, predictions, canContinue, error }) {
    const { nextLine, nextHeading, nextControls, nextList, lensTable, lensToken, lensRows, sample } = this.refs;
    nextLine.hidden = !predictions;
    sample.hidden = !canContinue;
    for (const node of [nextControls, nextList]) node.hidden = !predictions;
    lensTable.hidden = !predictions?.lens;
    if (!predictions) return setText(nextHeading, error);
    const { now, before, lens } = predictions;
    const changed = before ? ", and before the ablation" : "";
    nextHeading.replaceChildren("After ", bidi(after), `${changed}: entropy ${formatFixed(now.entropy, 2)} nats`);
    const key = JSON.stringify([after, now, before, lens, canContinue]);
    if (key === this.key) return;
    this.key = key;
    const likeliest = now.tokens.slice(0, SHOWN_IN_LINE).map((each) => this.row(each, before, canContinue, false));
    nextLine.replaceChildren(el("span", { class: "rg-muted" }, "Next after ", bidi(after)), ...likeliest);
    nextList.replaceChildren(...now.tokens.slice(0, SHOWN).map((each) => this.row(each, before, canContinue)));
    setText(lensToken, `“${label(lens?.text ?? "", 14)}”`);
    lensRows.replaceChildren(...(lens?.layers ?? []).map(lensRow));
  }

  /** @param {PredictedToken} each @param {NextTokens | null} before @param {boolean} canContinue @param {boolean} [hasBar] */
  row({ token, text, probability }, before, canContinue, hasBar = true) {
    const was = before?.tokens.find((other) => other.token === token)?.probability;
    const change = before
      ? ` (${was === undefined ? "< " + formatPercent(before.tokens.at(-1)?.probability ?? 0) : formatPercent(was)})`
      : "";
    const isWhole = !text.includes("\ufffd");
    const title = canContinue && isWhole ? "Take this one and continue" : "";
    const node = button("", () => this.append(text), {
      class: hasBar ? "rg-next-token" : "rg-button",
      disabled: !canContinue || !isWhole,
      title: `“${escapeInvisible(text.slice(0, 60))}” ${title}`.trim(),
    });
    const bar = hasBar ? el("span", { class: "rg-share", style: { "--rg-share": String(probability) } }) : " ";
    node.append(bidi(label(text, 18)), bar, el("span", { class: "rg-number" }, formatPercent(probability) + change));
    return node;
  }
}

/** The likeliest token after a layer, and the share and rank of the last prediction. @param {Lens["layers"][0]} layer */
function lensRow({ step, tokens: [first], probability, rank }) {
  const likeliest = el("span", {}, bidi(label(first.text, 14)), ` ${formatPercent(first.probability)}`);
  const name = step.replace(/^blocks\.(\d+)\.output$/, "layer $1");
  return tableRow(name, likeliest, formatPercent(probability), String(rank + 1));
}
