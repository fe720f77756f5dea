// What the panel of what mattered shows of the state and of the answers that have arrived.

import { mergeByGroup } from "../data/aggregate.js";
import { attributionQuery, sentence } from "../data/attribution.js";
import { groupTokens, label } from "../data/tokens.js";
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
  queries.fetchAttribution(number, query);
  const selected = chosen.map((index) => groups[index]);
  queries.fetchAttended(state, app.shownHead(), selected, groups);
  const { data: answer, currentError: error, isCurrent } = queries.attribution;
  const isOfRun = answer !== null && answer.scores.length === run.tokens.length;
  const methodOf = isOfRun && isCurrent ? answer.method : state.attributionMethod || run.attribution.method;
  const method = manifest.attribution_methods.find(({ key }) => key === methodOf);
  if (!method) return panel.showMessage(`There is no method ${methodOf}.`);
  panel.show({
    state,
    run,
    side: app.sides().length > 1 && state.side === "diff" ? " (A)" : "",
    after: query.position === undefined ? "" : label(run.tokens[query.position].text),
    groups,
    selected: new Set(chosen),
    method,
    answer: isOfRun ? answer : null,
    isCurrent,
    error: error ? sentence(error.message) : "",
    scores: isOfRun ? mergeByGroup(answer.scores, groups, "out") : null,
    attended: isOfRun ? attendedOf(app, groups, chosen, answer.attended) : null,
    theme: app.theme,
  });
}

/**
 * What the chosen words attend to in the shown head; without a chosen word, the mean over all layers and heads.
 * @param {App} app @param {Group[]} groups @param {number[]} chosen indices @param {number[]} mean of each token
 * @returns {Attended | null}
 */
function attendedOf(app, groups, chosen, mean) {
  const weights = mergeByGroup(mean, groups, "out");
  if (chosen.length === 0) return { name: "Attended to, mean of all layers and heads", quantity: "weight", weights };
  const { data, error } = app.queries.attended;
  if (error || data?.length !== groups.length) return null;
  const { mode } = app.state;
  const { layer, head } = app.shownHead();
  const heading = headingMessage({ layer: app.shownRun().layers[layer].number, head });
  const labels = chosen.map((index) => groups[index].label);
  return { name: attendedMessage(mode, labels, heading), quantity: quantityOf(mode), weights: data };
}
