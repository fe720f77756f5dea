// What the panel of what mattered shows of the state and of the answers that have arrived.

import { mergeByGroup } from "../data/aggregate.js";
import { attributionQuery, sentence } from "../data/attribution.js";
import { groupTokens, tokenName } from "../data/tokens.js";
import { present } from "../platform/dom.js";
import { attendedMessage, headingMessage, quantityOf } from "../views/messages.js";

/** @param {App} app */
export function showAttribution(app) {
  const { state, queries, manifest, parts } = app;
  const panel = parts.attribution;
  if (!state.attribution) return;
  const { run: number } = app.shownHead();
  const run = app.shownRun();
  const blockedBy = run.attribution.blocked_by;
  if (blockedBy) return panel.showMessage(blockedBy);
  const { words, special, from, to } = state;
  const groups = groupTokens(run.tokens, run.text, { words, special, from: from ?? 0, to: to ?? Infinity });
  const tokens = state.direction === "out" && state.pins.length ? state.pins : state.row === null ? [] : [state.row];
  const chosen = groups.flatMap((group, index) => (group.members.some((i) => tokens.includes(i)) ? [index] : []));
  const query = attributionQuery(state, run);
  const attribution = queries.fetchAttribution(number, query);
  const selected = chosen.map((index) => groups[index]);
  const attended = queries.fetchAttended(state, app.shownHead(), selected, groups);
  const answer = attribution.data;
  const methodOf = answer?.method ?? (state.attributionMethod || run.attribution.method);
  const method = manifest.attribution_methods.find(({ key }) => key === methodOf);
  if (!method) return panel.showMessage(`There is no method ${methodOf}.`);
  panel.showChoice(run, method, `${number} ${query.position}`, attribution);
  const props = {
    state,
    run,
    side: app.sides().length > 1 && state.side === "diff" ? " (A)" : "",
    after: query.position === undefined ? "" : tokenName(run.tokens, query.position),
    groups,
    selected: new Set(chosen),
    method,
    answer,
    error: attribution.error ? sentence(attribution.error.message) : "",
    scores: answer && mergeByGroup(answer.scores, groups, "out"),
    attended: answer && attendedOf(app, groups, chosen, answer.attended, attended.data),
    theme: app.theme,
  };
  present([app.refs.attributionResult], [attribution, attended], () => panel.show(props));
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
  return { name: attendedMessage(mode, labels, heading), quantity: quantityOf(mode), weights };
}
