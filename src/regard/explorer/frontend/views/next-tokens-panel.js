// What comes next: the distribution of the next token, with temperature, and how it forms layer by layer.

import { appendToken, positionOf } from "../app/predictions.js";
import { escapeInvisible, label, tokenName } from "../data/tokens.js";
import { bidi, button, el, muted, setText, tableRow } from "../platform/dom.js";
import { formatFixed, formatPercent } from "../render/format.js";

const SHOWN = 8;
const SHOWN_IN_LINE = 5; // which every view has

/** A token of a list to choose from. @param {PredictedToken} each */
export function tokenChoice({ token, text, probability }) {
  return { key: String(token), title: `${label(text)} · ${formatPercent(probability)}` };
}

/** The next token after the chosen one, and before an ablation; with the layers, if the panel is open. @param {App} app @returns {View} */
export const showNextTokens = (app) => (ask) => {
  const { state, manifest, source, refs } = app;
  const run = app.shownRun();
  const canPredict = run.predicts_tokens;
  const frame = {
    draw: () => {
      refs.nextTokens.hidden = !canPredict;
      setText(refs.temperatureText, state.temperature.toFixed(1));
    },
  };
  if (!canPredict) return [frame, { nodes: [refs.nextLine], of: [], draw: () => void (refs.nextLine.hidden = true) }];
  const number = state.editedRun ?? app.shownHead().run;
  const position = positionOf(app);
  const base = manifest.runs[number].base_run ?? null;
  const { temperature, nextTokens: isOpen } = state;
  const load = async (/** @type {AbortSignal} */ signal) => {
    const [now, before, lens] = await Promise.all([
      source.next_tokens({ run: number, position, temperature }, signal),
      base === null ? null : source.next_tokens({ run: base, position, temperature }, signal),
      isOpen ? source.lens({ run: number, position }, signal).catch(() => null) : null, // an encoder-decoder has none
    ]);
    return { now, before, lens };
  };
  const answer = ask("nextTokens", [number, position, temperature, isOpen], load);
  const nodes = [refs.nextLine, refs.nextHeading, refs.nextList, refs.lensTable];
  return [frame, { nodes, answers: [answer], of: [answer, run], draw: () => draw(app, answer, run, position) }];
};

/** @param {App} app @param {Answer<Predictions>} answer @param {Run} run @param {number} position */
function draw(app, { data, error }, run, position) {
  const { nextLine, nextHeading, nextControls, nextList, lensTable, lensToken, lensRows, sample } = app.refs;
  const canContinue = app.manifest.live_models.includes(run.model);
  const after = tokenName(run.tokens, position);
  for (const node of [nextLine, nextControls, nextList]) node.hidden = !data;
  sample.hidden = !canContinue;
  lensTable.hidden = !data?.lens;
  if (!data) return setText(nextHeading, error?.message ?? "");
  const { now, before, lens } = data;
  const changed = before ? ", and before the ablation" : "";
  nextHeading.replaceChildren("After ", bidi(after), `${changed}: entropy ${formatFixed(now.entropy, 2)} nats`);
  const rows = (/** @type {number} */ most, hasBar = true) =>
    now.tokens.slice(0, most).map((each) => rowOf(app, each, before, canContinue, hasBar));
  nextLine.replaceChildren(muted("Next after ", bidi(after)), ...rows(SHOWN_IN_LINE, false));
  nextList.replaceChildren(...rows(SHOWN));
  setText(lensToken, `“${label(lens?.text ?? "", 14)}”`);
  lensRows.replaceChildren(...(lens?.layers ?? []).map(lensRow));
}

/** @param {App} app @param {PredictedToken} each @param {NextTokens | null} before @param {boolean} canContinue @param {boolean} hasBar */
function rowOf(app, { token, text, probability }, before, canContinue, hasBar) {
  const was = before?.tokens.find((other) => other.token === token)?.probability;
  const known = formatPercent(was ?? before?.tokens.at(-1)?.probability ?? 0); // the least of those that are listed
  const change = before ? ` (${was === undefined ? known.replace(/^(under )?/, "under ") : known})` : "";
  const isWhole = !text.includes("\ufffd");
  const title = canContinue && isWhole ? "Take this one and continue" : "";
  const bar = hasBar ? el("span", { class: "rg-share", style: { "--rg-share": String(probability) } }) : " ";
  const amount = el("span", { class: "rg-number" }, formatPercent(probability) + change);
  return button([bidi(label(text, 18)), bar, amount], () => appendToken(app, text), {
    class: hasBar ? "rg-next-token" : "rg-button",
    disabled: !canContinue || !isWhole,
    title: `“${escapeInvisible(text.slice(0, 60))}” ${title}`.trim(),
  });
}

/** The likeliest token after a layer, and the share and rank of the last prediction. @param {Lens["layers"][0]} layer */
function lensRow({ step, tokens: [first], probability, rank }) {
  const likeliest = el("span", {}, bidi(label(first.text, 14)), ` ${formatPercent(first.probability)}`);
  const name = step.replace(/^blocks\.(\d+)\.output$/, "layer $1");
  return tableRow(name, likeliest, formatPercent(probability), String(rank + 1));
}
