// The first minute: what the page shows, why it opens with this head, and what to try.

import { tokenName } from "../data/tokens.js";
import { bidi, button, el } from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { layerName } from "../views/messages.js";

/** @param {App} app */
export function showIntro(app) {
  const { refs, manifest, state } = app;
  refs.intro.hidden = !refs.showIntro.checked || (state.view !== "head" && state.view !== "heads");
  const run = manifest.runs[app.sides()[0].run];
  if (refs.intro.hidden || refs.introText.dataset.run === keyOf(run)) return;
  refs.introText.dataset.run = keyOf(run);
  const count = run.layers.reduce((sum, { heads }) => sum + heads, 0);
  const [first, other] = run.distinctive;
  const unit = run.picture ? "patch" : "word";
  const heads = count === 1 ? "the one head of " : `one of the ${count} heads of `;
  const shown = `Each map shows how much every ${unit} (row) attends to every other (column), in ${heads}`;
  const isLast = run.predicts_tokens && first?.row === run.tokens.length - 1;
  const why = first
    ? [
        `; the most distinctive for ${isLast ? "the last word of " : ""}this text is ${headOf(run, first)}: `,
        cellButton(app, run, first),
        ".",
      ]
    : ["."];
  refs.introText.replaceChildren(shown, bidi(run.model || "a model"), ...why);
  const rests = manifest.metrics.some(({ key }) => key === "sink");
  refs.introExamples.replaceChildren(
    el("span", { class: "rg-muted" }, "Try"),
    other ? cellButton(app, run, other) : "",
    rests ? button("Where attention rests", () => app.set({ view: "heads", order: "metric", metric: "sink" })) : "",
    first ? button("How a weight is computed", () => app.set({ ...placeOf(first), view: "cell" })) : "",
  );
}

/** @param {Run} run */
const keyOf = ({ model, text, distinctive }) => JSON.stringify([model, text, distinctive]);

/** @param {Run} run @param {DistinctiveCell} cell */
const headOf = ({ layers }, { layer, head }) => `${layerName(layers[layer].number)}, head ${head}`.replace(/^L/, "l");

/** @param {DistinctiveCell} cell @returns {Partial<State>} */
const placeOf = ({ layer, head, row, col }) => ({ layer, head, row, col, side: "A", mode: "raw" });

/** A cell by its words and its weight; it opens the cell. @param {App} app @param {Run} run @param {DistinctiveCell} cell */
function cellButton(app, run, cell) {
  const node = button("", () => app.set({ ...placeOf(cell), view: "head" }), { title: headOf(run, cell) });
  const [from, to] = [cell.row, cell.col].map((token) => bidi(tokenName(run.tokens, token)));
  node.append(from, " → ", to, ` ${formatWeight(cell.weight, app.manifest.decimals ?? 6)}`);
  return node;
}
