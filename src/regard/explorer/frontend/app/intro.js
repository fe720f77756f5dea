// The first minute: what the page shows, why it opens with this head, and what to try.

import { label, tokenName } from "../data/tokens.js";
import { bidi, button, el, muted } from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { layerName } from "../views/messages.js";

const MAX_TOKENS = 512; // a longer text needs the room

/** @param {App} app @returns {View} */
export const showIntro = (app) => () => {
  const { refs, manifest, state } = app;
  const run = manifest.runs[app.sides()[0].run];
  const hasRoom = app.syncUrl && state.view === "head" && !state.story && run.tokens.length <= MAX_TOKENS;
  const isShown = hasRoom && refs.showIntro.checked;
  const frame = { draw: () => void (refs.intro.hidden = !isShown) };
  return isShown ? [frame, { nodes: [refs.introText], of: [run], draw: () => draw(app, run) }] : frame;
};

/** @param {App} app @param {Run} run */
function draw(app, run) {
  const { refs, manifest } = app;
  const count = run.layers.reduce((sum, { heads }) => sum + heads, 0);
  const [first, other] = run.distinctive;
  const unit = run.picture ? "patch" : "word";
  const last = run.predicts_tokens && first?.row === run.tokens.length - 1 ? "the last word of " : "";
  const why = first
    ? [
        `; of ${count} heads, ${headOf(run, first)} is the most distinctive for ${last}this text: `,
        cellButton(app, run, first),
      ]
    : ["."];
  const shown = `These maps show how much every ${unit} (row) attends to every other (column)`;
  refs.introText.replaceChildren(shown, ...why);
  refs.introTerms.replaceChildren(...terms(run));
  const rests = manifest.metrics.some(({ key }) => key === "sink");
  refs.introExamples.replaceChildren(
    muted("Try"),
    other ? cellButton(app, run, other) : "",
    rests ? button("Where attention rests", () => app.set({ view: "heads", order: "metric", metric: "sink" })) : "",
    first ? button("How a weight is computed", () => app.set({ ...placeOf(first), view: "cell" })) : "",
  );
}

/** What the words mean that the page uses, and the marks of the text. @param {Run} run */
function terms({ tokens, picture }) {
  const term = (/** @type {string} */ name) => el("em", {}, name);
  const marks = [...new Set(tokens.flatMap(({ text, special }) => (special ? [text] : [])))];
  const are = marks.length > 1 ? "are marks" : "is a mark";
  const unit = picture ? "patches" : "words";
  return [
    ...["A ", term("layer"), " is a step of the model; in each step several ", term("heads"), " weigh the ", unit],
    ", each in its own way. ",
    ...marks.flatMap((mark, n) => [n ? " and " : "", bidi(label(mark))]),
    marks.length ? ` ${are} that the model adds. ` : "",
    ...["A token on which much attention rests, whatever it stands for, is a ", term("sink"), "."],
  ];
}

/** @param {Run} run @param {DistinctiveCell} cell */
const headOf = ({ layers }, { layer, head }) => `${layerName(layers[layer].number)}, head ${head}`.replace(/^L/, "l");

/** @param {DistinctiveCell} cell @returns {Partial<State>} */
const placeOf = ({ layer, head, row, col }) => ({ layer, head, row, col, side: "A", mode: "raw" });

/** A cell by its words and its weight; it opens the cell. @param {App} app @param {Run} run @param {DistinctiveCell} cell */
function cellButton(app, run, cell) {
  const [from, to] = [cell.row, cell.col].map((token) => bidi(tokenName(run.tokens, token)));
  const content = [from, " → ", to, ` ${formatWeight(cell.weight, app.manifest.decimals ?? 6)}`];
  return button(content, () => app.set({ ...placeOf(cell), view: "head" }), { title: headOf(run, cell) });
}
