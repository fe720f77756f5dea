// What mattered, compared with what was attended to: two copies of the text, and the choice of method and target.

import { formatContribution, strongestMessage, wordMessage } from "../data/attribution.js";
import { maxAbs } from "../data/matrix.js";
import { escapeInvisible, label, truncate } from "../data/tokens.js";
import { activeElementOf, bidi, button, el, setText } from "../platform/dom.js";
import { formatPercent, formatSignificant, formatWeight } from "../render/format.js";
import { Legend } from "./legend.js";
import { visibleRange, WordStrip } from "./word-strip.js";

export class AttributionPanel {
  /** @param {Refs} refs @param {{ set: (change: Partial<State>) => void, select: (group: Group) => void }} actions */
  constructor(refs, actions) {
    this.refs = refs;
    this.actions = actions;
    const part = (/** @type {HTMLElement} */ node, /** @type {HTMLElement} */ legend, /** @type {string} */ name) => {
      const strip = new WordStrip(`${name}, word by word`, {
        select: (group) => actions.select(group),
        point: (index) => this.point(index),
      });
      strip.node.classList.add("rg-strip");
      legend.before(strip.node);
      return { heading: /** @type {HTMLElement} */ (node.firstElementChild), strip, legend: new Legend(legend) };
    };
    this.mattered = part(refs.mattered, refs.matteredLegend, "What mattered");
    this.attended = part(refs.attended, refs.attendedLegend, "What was attended to");
    const strips = [this.mattered, this.attended].map((one) => one.strip.node);
    for (const node of strips)
      node.addEventListener("scroll", () => strips.forEach((other) => (other.scrollTop = node.scrollTop)));
    this.props = /** @type {AttributionProps | null} */ (null);
    this.likelyKey = this.likelyAt = "";
  }

  /** Why there is nothing to show. @param {string} message */
  showMessage(message) {
    const { attributionControls, attributionResult, attributionStatus } = this.refs;
    attributionControls.hidden = attributionResult.hidden = true;
    setText(attributionStatus, message);
    attributionStatus.hidden = false;
  }

  /** @param {AttributionProps} props */
  show(props) {
    this.props = props;
    const { answer, scores, error } = props;
    const { attributionResult: result, attributionStatus: status } = this.refs;
    setText(status, error);
    status.hidden = !error;
    status.classList.toggle("rg-refused", error !== "");
    result.hidden = !answer;
    if (answer && scores) this.showResult(props, answer, scores);
  }

  /** @param {Run} run @param {AttributionMethod} chosen @param {string} place  of the next token @param {Answer<Attribution>} attribution */
  showChoice(run, chosen, place, { data: answer, isPending }) {
    const { attributionControls, attributionStatus: status, method, target, targetName, afterRow, likely } = this.refs;
    attributionControls.hidden = false;
    if (isPending) setText(status, "Running the model …");
    if (isPending) status.hidden = status.classList.toggle("rg-refused", false);
    const isToken = run.attribution.target === "token";
    method.value = chosen.key;
    method.title = chosen.description;
    setText(targetName, isToken ? "Next token" : "Similar to");
    target.placeholder = isToken ? "another one, with its space" : "another text";
    afterRow.hidden = !run.attribution.has_positions;
    likely.classList.toggle("rg-stale", isPending);
    if (isPending) return;
    if (answer) this.likelyAt = place;
    likely.hidden = this.likelyAt !== place || (answer !== null && !answer.likely); // another target may be refused
    if (!answer?.likely) return;
    const tokens = answer.token;
    const key = JSON.stringify([answer.likely, tokens]);
    if (this.likelyKey === key) return;
    this.likelyKey = key;
    const focused = [...likely.children].indexOf(/** @type {Element} */ (activeElementOf(likely)));
    likely.replaceChildren(...answer.likely.map((each) => this.likelyButton(each, each.token === tokens)));
    /** @type {HTMLElement | undefined} */ (likely.children[focused])?.focus();
  }

  /** @param {PredictedToken} each @param {boolean} isTarget */
  likelyButton({ token, text, probability }, isTarget) {
    const share = probability < 0.0005 ? "< 0.1 %" : formatPercent(probability);
    const node = button("", () => this.actions.set({ target: "", targetToken: token }), {
      class: "rg-button rg-likely-token",
      title: `“${escapeInvisible(truncate(text, 60))}”`,
      "aria-pressed": isTarget,
    });
    node.append(bidi(label(text, 14)), " ", el("span", { class: "rg-muted" }, share));
    return node;
  }

  /** @param {AttributionProps} props @param {Attribution} answer @param {Float32Array} scores */
  showResult({ state, run, side, after, groups, selected, method, attended, theme }, answer, scores) {
    const [first = 0] = selected;
    const common = { groups, ...visibleRange(groups.length, first), text: run.text, theme, selected };
    const kind = /** @type {"log" | "linear"} */ (state.log ? "log" : "linear");
    const max = maxAbs(scores) || 1;
    const scale = { kind, max, signed: method.is_signed };
    const isSelf = answer.to !== null && answer.to === run.text;
    const metric = isSelf ? "similarity to the text itself" : escapeInvisible(truncate(answer.metric, 90));
    const position = after ? [" after ", bidi(after)] : [];
    const value = el("span", { class: "rg-number" }, formatSignificant(answer.value));
    this.mattered.heading.replaceChildren("For the ", bidi(metric), ...position, ": ", value, side);
    const format = (/** @type {number} */ score) => formatContribution(score, max, method.is_signed);
    this.mattered.strip.show({ ...common, values: scores, scale, format });
    const against = method.is_signed ? "blue for it; brown and underlined against it" : "how relevant";
    this.mattered.legend.update(scale, theme, against);
    this.showAttended(attended, { ...common, kind });
    const { attributionDescription: description } = this.refs;
    setText(description, [answer.note, method.description, method.caveat].filter(Boolean).join(" "));
    description.title = method.source;
    this.point(null);
  }

  /** @param {Attended | null} attended @param {Omit<StripProps, "values" | "scale" | "format"> & { kind: "log" | "linear" }} common */
  showAttended(attended, { kind, ...common }) {
    const { heading, strip, legend } = this.attended;
    for (const node of [strip.node, legend.node]) node.hidden = attended === null;
    setText(heading, attended?.name ?? "");
    if (!attended) return;
    const scale = { kind, max: maxAbs(attended.weights) || 1, signed: false };
    strip.show({ ...common, values: attended.weights, scale, format: formatWeight });
    legend.update(scale, common.theme, attended.quantity);
  }

  /** Say both numbers of a word, or which words have the largest. @param {number | null} index */
  point(index) {
    if (!this.props?.scores) return;
    const { groups, scores, attended, method } = this.props;
    for (const { strip } of [this.mattered, this.attended]) strip.mark("rg-pointed", (n) => n === index);
    if (index === null || !groups[index]) {
      const labels = groups.map((group) => group.name);
      return setText(this.refs.attributionReadout, strongestMessage(labels, scores, attended?.weights ?? null));
    }
    const score = formatContribution(scores[index], maxAbs(scores), method.is_signed);
    setText(this.refs.attributionReadout, wordMessage(groups[index].name, score, attended?.weights[index] ?? null));
  }
}
