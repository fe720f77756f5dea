// What mattered beside what was attended to: two copies of the text, and the choice of method and target.

import { completenessMessage, formatContribution, strongestMessage, wordMessage } from "../data/attribution.js";
import { maxAbs } from "../data/matrix.js";
import { escapeInvisible, label, truncate } from "../data/tokens.js";
import { activeElementOf, bidi, button, el, field, select, setAttribute, setText, toggle } from "../platform/dom.js";
import { formatPercent, formatSignificant, formatWeight } from "../render/format.js";
import { Legend } from "./legend.js";
import { visibleRange, WordStrip } from "./word-strip.js";

/** @import { Attended, Attribution, AttributionMethod, AttributionProps, Group } from "../types.js" */
/** @import { LikelyToken, State, StripProps } from "../types.js" */

const MAX_TARGET = 2000; // characters

export class AttributionPanel {
  /** @param {AttributionMethod[]} methods @param {{ set: (change: Partial<State>) => void, select: (group: Group) => void }} actions */
  constructor(methods, actions) {
    this.actions = actions;
    this.toggle = button("What mattered", () => actions.set({ attribution: this.body.hidden }), {
      class: "rg-disclosure",
      title: "What mattered, beside what was attended to (G)",
    });
    this.method = select("Method", methods, (attributionMethod) => actions.set({ attributionMethod }));
    /** @type {HTMLInputElement} */
    this.target = el("input", {
      type: "text",
      class: "rg-search rg-target",
      maxlength: MAX_TARGET,
      autocomplete: "off",
      spellcheck: "false",
      on: { change: () => actions.set({ target: this.target.value, targetToken: null }) },
    });
    this.targetName = el("span", {});
    this.likely = el("div", { class: "rg-likely", role: "group", "aria-label": "Most likely next tokens" });
    const hint = "The next token after the word that is chosen, in place of that after the whole text";
    this.afterRow = toggle("After the chosen word", hint, (afterRow) => actions.set({ afterRow }));
    this.status = el("p", { class: "rg-description", role: "status" });
    const point = (/** @type {number | null} */ index) => this.point(index);
    const part = (/** @type {string} */ name) => ({
      heading: el("h4", {}),
      strip: new WordStrip(`${name}, word by word`, { select: (group) => actions.select(group), point }),
      legend: new Legend(`Legend: ${name.toLowerCase()}`),
    });
    this.mattered = part("What mattered");
    this.attended = part("What was attended to");
    const strips = [this.mattered, this.attended].map((one) => one.strip.node);
    for (const node of strips) {
      node.classList.add("rg-strip");
      node.addEventListener("scroll", () => strips.forEach((other) => (other.scrollTop = node.scrollTop)));
    }
    this.readout = el("p", { class: "rg-attribution-readout" });
    this.description = el("p", { class: "rg-description" });
    this.controls = el(
      "div",
      { class: "rg-attribution-controls" },
      field("Method", this.method),
      field(this.targetName, this.target),
      this.likely,
      this.afterRow.node,
    );
    const parts = [this.mattered, this.attended].map(({ heading, strip, legend }) =>
      el("div", { class: "rg-strip-part" }, heading, strip.node, legend.node),
    );
    this.result = el("div", { class: "rg-attribution-result" }, this.readout, ...parts, this.description);
    this.body = el("div", { class: "rg-attribution-body" }, this.controls, this.status, this.result);
    this.node = el("section", { class: "rg-attribution", "aria-label": "What mattered" }, this.toggle, this.body);
    /** @type {AttributionProps | null} */
    this.props = null;
    this.likelyKey = "";
  }

  /** @param {boolean} isOpen  or only the button that opens it */
  setOpen(isOpen) {
    setAttribute(this.toggle, "aria-expanded", String(isOpen));
    this.body.hidden = !isOpen;
  }

  /** Why there is nothing to show. @param {string} message */
  showMessage(message) {
    this.setOpen(true);
    this.controls.hidden = this.result.hidden = true;
    setText(this.status, message);
    this.status.hidden = false;
  }

  /** @param {AttributionProps} props */
  show(props) {
    this.setOpen(true);
    this.props = props;
    const { answer, scores, error, isCurrent } = props;
    this.controls.hidden = false;
    this.showControls(props);
    setText(this.status, error || (isCurrent ? "" : "Running the model …"));
    this.status.hidden = !this.status.textContent;
    this.status.classList.toggle("rg-refused", error !== "");
    this.result.hidden = error !== "" || !answer || !scores;
    this.result.classList.toggle("rg-stale", !isCurrent);
    if (!this.result.hidden && answer && scores) this.showResult(props, answer, scores);
  }

  /** @param {AttributionProps} props */
  showControls({ state, run, method, answer, isCurrent }) {
    const { attribution } = run;
    const isToken = attribution.target === "token";
    this.method.value = method.key;
    this.method.title = method.description;
    setText(this.targetName, isToken ? "Next token" : "Similar to");
    this.target.placeholder = isToken ? "another one, with its space" : "another text";
    if (activeElementOf(this.target) !== this.target) this.target.value = state.target;
    this.afterRow.node.hidden = !attribution.has_positions;
    this.afterRow.box.checked = state.afterRow;
    this.likely.hidden = !answer?.likely;
    if (!answer?.likely) return;
    const tokens = isCurrent ? answer.token : null;
    const key = JSON.stringify([answer.likely, tokens]);
    if (this.likelyKey === key) return;
    this.likelyKey = key;
    const focused = [...this.likely.children].indexOf(/** @type {Element} */ (activeElementOf(this.likely)));
    this.likely.replaceChildren(...answer.likely.map((each) => this.likelyButton(each, each.token === tokens)));
    /** @type {HTMLElement | undefined} */ (this.likely.children[focused])?.focus();
  }

  /** @param {LikelyToken} each @param {boolean} isTarget */
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
    this.mattered.strip.show({
      ...common,
      values: scores,
      scale,
      format: (score) => formatContribution(score, max, method.is_signed),
    });
    const against = method.is_signed ? "blue for it; brown and underlined against it" : "how relevant";
    this.mattered.legend.update(scale, theme, against);
    this.showAttended(attended, { ...common, kind });
    const completeness = completenessMessage(answer);
    setText(this.description, [completeness, method.description, method.caveat].filter(Boolean).join(" "));
    this.description.title = method.source;
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
      const labels = groups.map((group) => group.label);
      return setText(this.readout, strongestMessage(labels, scores, attended?.weights ?? null));
    }
    const score = formatContribution(scores[index], maxAbs(scores), method.is_signed);
    setText(this.readout, wordMessage(groups[index].label, score, attended?.weights[index] ?? null));
  }
}
