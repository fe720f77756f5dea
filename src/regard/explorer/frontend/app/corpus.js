// The sentences of a corpus in which the shown head attends most strongly.

import { isolate } from "../data/tokens.js";
import { bidi, button, el, setText } from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { runText } from "./predictions.js";

/** @param {App} app @returns {View} */
export const showStrongRows = (app) => (ask) => {
  const { state, refs } = app;
  if (!state.corpus) return null;
  const { run, layer, head } = app.shownHead();
  const { data, error, isPending } = ask("strongest_rows", { run, layer, head, pair: state.pair });
  const frame = () => {
    refs.cancelRows.hidden = !isPending;
    const texts = data?.texts.toLocaleString("en");
    setText(refs.rowsStatus, error?.message ?? (data ? `Of ${texts} sentences:` : "Reading the sentences …"));
  };
  const draw = () =>
    refs.strongRows.replaceChildren(...(data?.rows ?? []).map((row) => el("li", {}, rowButton(app, row))));
  return [{ draw: frame }, { nodes: [refs.strongRows], of: [data], draw }];
};

/** A row of a text, which opens it with that cell. @param {App} app @param {StrongRow} strong */
function rowButton(app, { text, row, col, query, key, weight, parts }) {
  const { layer, head } = app.shownHead();
  const open = () => runText(app, { text, model: app.shownRun().model }, () => ({ layer, head, row, col }));
  const sentence = bidi("", { class: "rg-sentence" });
  sentence.append(...parts.map(([part, kind]) => (kind ? el("b", { class: `rg-${kind}` }, part) : part)));
  const content = [el("span", { class: "rg-number" }, formatWeight(weight)), sentence];
  return button(content, open, { class: "rg-strong-row", title: `${isolate(query)} → ${isolate(key)}` });
}
