// What mattered, compared with what was attended to: two copies of the text, and the choice of method and target.

import { mergeByGroup, wordWeightsOf } from "../data/aggregate.js";
import { attributionQuery, formatContribution, sentence, strongestMessage, wordMessage } from "../data/attribution.js";
import { maxAbs } from "../data/matrix.js";
import { NOTHING } from "../data/query.js";
import { escapeInvisible, groupTokens, label, tokenName, truncate } from "../data/tokens.js";
import { activeElementOf, bidi, button, el, muted, setText } from "../platform/dom.js";
import { formatPercent, formatSignificant, formatWeight } from "../render/format.js";
import { Legend } from "./legend.js";
import { attendedMessage, headingMessage, wordsFor } from "./messages.js";
import { visibleRange, WordStrip } from "./word-strip.js";

/** @param {App} app @returns {View} */
export function showAttribution(app) {
  const { refs, manifest, source, queries } = app;
  const { attributionControls: controls, attributionStatus: status, attributionResult: result } = refs;
  let point = (/** @type {number | null} */ _) => {}; // at a word, or at none
  const stripOf = (/** @type {HTMLElement} */ node, /** @type {HTMLElement} */ legend, /** @type {string} */ name) => {
    const strip = new WordStrip(`${name}, word by word`, {
      select: ({ members }) => app.set({ row: members[0], pins: [] }),
      point: (index) => point(index),
    });
    strip.node.classList.add("rg-strip");
    legend.before(strip.node);
    return { heading: /** @type {HTMLElement} */ (node.firstElementChild), strip, legend: new Legend(legend) };
  };
  const mattered = stripOf(refs.mattered, refs.matteredLegend, "What mattered");
  const attendedTo = stripOf(refs.attended, refs.attendedLegend, "What was attended to");
  const strips = [mattered.strip, attendedTo.strip];
  for (const { node } of strips)
    node.addEventListener("scroll", () => strips.forEach((other) => (other.node.scrollTop = node.scrollTop)));
  let likelyAt = ""; // the next token that the likely ones are of

  const showMessage = (/** @type {string} */ message) => ({
    draw: () => {
      controls.hidden = result.hidden = true;
      setText(status, message);
      status.hidden = false;
    },
  });

  return (ask) => {
    const { state, theme } = app;
    if (!state.attribution) return null;
    const { run: number } = app.shownHead();
    const run = app.shownRun();
    if (run.attribution.blocked_by) return showMessage(run.attribution.blocked_by);
    const { words, special, from, to, mode } = state;
    const groups = groupTokens(run.tokens, run.text, { words, special, from: from ?? 0, to: to ?? Infinity });
    const tokens = state.direction === "out" && state.pins.length ? state.pins : state.row === null ? [] : [state.row];
    const chosen = groups.flatMap((group, index) => (group.members.some((i) => tokens.includes(i)) ? [index] : []));
    const query = attributionQuery(state, run);
    const attribution = ask("attribution", [number, query], (signal) =>
      // some take seconds
      queries.cached(JSON.stringify(["attribution", number, query]), () =>
        source.attribution({ run: number, ...query }, signal),
      ),
    );
    const selected = chosen.map((index) => groups[index]);
    const members = [selected, groups].map((some) => some.map((group) => group.members));
    const attended = chosen.length
      ? ask(
          "attended",
          [app.shownHead(), mode, members],
          (signal) => wordWeightsOf(source, app.shownHead(), selected, groups, "out", mode, signal),
          { inBar: true },
        )
      : NOTHING;
    const answer = attribution.data;
    const methodOf = answer?.method ?? (state.attributionMethod || run.attribution.method);
    const method = manifest.attribution_methods.find(({ key }) => key === methodOf);
    if (!method) return showMessage(`There is no method ${methodOf}.`);
    const error = attribution.error ? sentence(attribution.error.message) : "";
    const place = `${number} ${query.position}`;

    const drawChoice = () => {
      const { isPending } = attribution;
      controls.hidden = false;
      setText(status, isPending ? "Running the model …" : error);
      status.hidden = !isPending && !error;
      status.classList.toggle("rg-refused", error !== "");
      const isToken = run.attribution.target === "token";
      refs.method.value = method.key;
      refs.method.title = method.description;
      setText(refs.targetName, isToken ? "Next token" : "Similar to");
      refs.target.placeholder = isToken ? "another one, with its space" : "another text";
      refs.afterRow.hidden = !run.attribution.has_positions;
      if (isPending) return;
      if (answer) likelyAt = place;
      refs.likely.hidden = likelyAt !== place || (answer !== null && !answer.likely); // another target may be refused
    };
    const drawLikely = () => {
      if (!answer?.likely) return;
      const focused = [...refs.likely.children].indexOf(/** @type {Element} */ (activeElementOf(refs.likely)));
      refs.likely.replaceChildren(...answer.likely.map((each) => likelyButton(app, each, each.token === answer.token)));
      /** @type {HTMLElement | undefined} */ (refs.likely.children[focused])?.focus();
    };
    const drawResult = () => {
      result.hidden = !answer;
      if (!answer) return;
      const scores = mergeByGroup(answer.scores, groups, "out");
      const weights = attendedOf(app, groups, chosen, answer.attended, attended.data);
      const [first = 0] = chosen;
      const common = {
        groups,
        ...visibleRange(groups.length, first),
        text: run.text,
        theme,
        selected: new Set(chosen),
      };
      const kind = /** @type {"log" | "linear"} */ (state.log ? "log" : "linear");
      const max = maxAbs(scores) || 1;
      const scale = { kind, max, signed: method.is_signed };
      const isSelf = answer.to !== null && answer.to === run.text;
      const metric = isSelf ? "similarity to the text itself" : escapeInvisible(truncate(answer.metric, 90));
      const after = query.position === undefined ? [] : [" after ", bidi(tokenName(run.tokens, query.position))];
      const value = el("span", { class: "rg-number" }, formatSignificant(answer.value));
      const side = app.sides().length > 1 && state.side === "diff" ? " (A)" : "";
      mattered.heading.replaceChildren("For the ", bidi(metric), ...after, ": ", value, side);
      const format = (/** @type {number} */ score) => formatContribution(score, max, method.is_signed);
      mattered.strip.show({ ...common, values: scores, scale, format });
      const against = method.is_signed ? "blue for it; brown and underlined against it" : "how relevant";
      mattered.legend.update(scale, theme, against);
      const { strip, legend, heading } = attendedTo;
      for (const node of [strip.node, legend.node]) node.hidden = weights === null;
      setText(heading, weights?.name ?? "");
      if (weights) {
        const ofWeights = { kind, max: maxAbs(weights.weights) || 1, signed: false };
        strip.show({ ...common, values: weights.weights, scale: ofWeights, format: formatWeight });
        legend.update(ofWeights, theme, weights.quantity);
      }
      setText(refs.attributionDescription, [answer.note, method.description, method.caveat].filter(Boolean).join(" "));
      refs.attributionDescription.title = method.source;
      // Say both numbers of a word, or which words have the largest
      point = (index) => {
        for (const each of strips) each.mark("rg-pointed", (n) => n === index);
        const names = groups.map((group) => group.name);
        const says =
          index === null || !groups[index]
            ? strongestMessage(names, scores, weights?.weights ?? null)
            : wordMessage(names[index], format(scores[index]), weights?.weights[index] ?? null);
        setText(refs.attributionReadout, says);
      };
      point(null);
    };
    return [
      { draw: drawChoice },
      {
        nodes: [refs.likely],
        answers: [attribution],
        of: [JSON.stringify([answer?.likely, answer?.token])],
        draw: drawLikely,
      },
      { nodes: [result], answers: [attribution, attended], draw: drawResult },
    ];
  };
}

/** @param {App} app @param {PredictedToken} each @param {boolean} isTarget */
function likelyButton(app, { token, text, probability }, isTarget) {
  const content = [bidi(label(text, 14)), " ", muted(formatPercent(probability))];
  return button(content, () => app.set({ target: "", targetToken: token }), {
    class: "rg-button rg-likely-token",
    title: `“${escapeInvisible(truncate(text, 60))}”`,
    "aria-pressed": isTarget,
  });
}

/**
 * What the chosen words attend to in the shown head; without a chosen word, the mean over all layers and heads.
 * @param {App} app @param {Group[]} groups @param {number[]} chosen indices @param {number[]} mean of each token
 * @param {Float32Array | null} weights of the chosen words
 * @returns {Attended | null}
 */
function attendedOf(app, groups, chosen, mean, weights) {
  const name = "Attended to, mean of all layers and heads";
  if (chosen.length === 0) return { name, quantity: "weight", weights: mergeByGroup(mean, groups, "out") };
  if (!weights) return null;
  const { mode } = app.state;
  const { layer, head } = app.shownHead();
  const heading = headingMessage({ layer: app.shownRun().layers[layer].number, head });
  const labels = chosen.map((index) => groups[index].name);
  return { name: attendedMessage(mode, labels, heading), quantity: wordsFor(mode).quantity, weights };
}
