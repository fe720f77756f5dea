// The sentences of a corpus in which the shown head attends most strongly.

import { bidi, button, el, setText } from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { runText } from "./predictions.js";

/** @param {App} app */
export function showStrongRows(app) {
  const { state, queries, refs, source } = app;
  const query = queries.strongRows;
  if (!state.corpus) return query.reset();
  const { run, layer, head } = app.shownHead();
  const wanted = { run, layer, head, pair: state.pair };
  const { data, error, isPending } = query.fetch(wanted, (signal) => source.strongest_rows(wanted, signal));
  refs.cancelRows.hidden = !isPending;
  const texts = data?.texts.toLocaleString("en");
  setText(refs.rowsStatus, error?.message ?? (data ? `Of ${texts} sentences:` : "Reading the sentences …"));
  const of = data ? query.key : "";
  if (refs.strongRows.dataset.of === of) return; // they keep the focus
  refs.strongRows.dataset.of = of;
  refs.strongRows.replaceChildren(...(data?.rows ?? []).map((row) => el("li", {}, rowButton(app, row))));
}

/** A row of a text, which opens it with that cell. @param {App} app @param {StrongRow} strong */
function rowButton(app, { text, row, col, query, key, weight, parts }) {
  const { layer, head } = app.shownHead();
  const open = () => runText(app, { text, model: app.shownRun().model }, () => ({ layer, head, row, col }));
  const node = button("", open, { class: "rg-strong-row", title: `\u2068${query}\u2069 → \u2068${key}\u2069` });
  const sentence = bidi("", { class: "rg-sentence" });
  sentence.append(...parts.map(([part, kind]) => (kind ? el("b", { class: `rg-${kind}` }, part) : part)));
  node.append(el("span", { class: "rg-number" }, formatWeight(weight)), sentence);
  return node;
}
