// A training run: its loss and two measures of every head over the steps, and the checkpoint that is shown.

import { selectHead, showCheckpoint } from "../app/actions.js";
import {
  activeElementOf,
  consume,
  el,
  onArrows,
  nextOf,
  setAttribute,
  setTabStop,
  setText,
  svg,
} from "../platform/dom.js";
import { linearScale, nearestIndex, pathThrough, spreadLabels, ticksUpTo } from "../render/curves.js";
import { formatFixed, formatSignificant } from "../render/format.js";
import { selectionOf } from "../state/sides.js";
import { Player, prefersReducedMotion } from "./player.js";

const PLAY_MS = 9000; // of a whole run
const [MIN_STEP_MS, MAX_STEP_MS, REDUCED_STEP_MS] = [120, 600, 1000]; // of a checkpoint
const MARGIN = { left: 30, right: 12, labels: 44, top: 7, bottom: 20 };
const LABEL_GAP = 13;
const UNREACHABLE = "no answer: has the command ended?";
const CLASSES = ["rg-run-a", "rg-run-b"]; // the heads that stand out in each measure

export class TrainingPanel {
  /** @param {App} app @param {Measure[]} measures */
  constructor(app, measures) {
    const { queries } = app;
    const { checkpoint: slider, newest } = (this.refs = app.refs);
    this.app = app;
    this.shown = /** @type {Shown | null} */ (null);
    this.isReachable = true;
    this.charts = [this.chart("rg-loss", MARGIN.right), ...measures.map(() => this.chart("rg-measure", MARGIN.labels))];
    slider.addEventListener("input", () => this.choose(Number(slider.value)));
    newest.addEventListener("click", () => this.choose(Infinity));
    const last = () => (this.shown?.training.checkpoints.length ?? 1) - 1;
    const index = () => this.shown?.index ?? 0;
    this.player = new Player({
      rewind: () => index() >= last() && showCheckpoint(app, 0),
      advance: () => {
        if (!queries.client.named("maps").answer.isPending) showCheckpoint(app, Math.min(last(), index() + 1));
        return index() < last();
      },
      interval: () =>
        prefersReducedMotion()
          ? REDUCED_STEP_MS
          : Math.max(MIN_STEP_MS, Math.min(MAX_STEP_MS, PLAY_MS / Math.max(1, last()))),
    });
    this.refs.trainingBar.prepend(this.player.button);
    this.refs.curves.append(...this.charts.map(({ node }) => node));
  }

  /** @param {string} className @param {number} right @returns {Chart} */
  chart(className, right) {
    const caption = el("figcaption", {});
    const picture = svg("svg", { class: "rg-curve", role: "group" });
    const container = el("div", { class: "rg-curve-container" });
    container.append(picture);
    const node = el("figure", { class: className }, caption, container);
    const chart = { node, caption, picture, size: { width: 400, height: 110 }, right };
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = container;
      if (width === 0 || height === 0) return;
      chart.size = { width, height };
      this.draw();
    }).observe(container);
    picture.addEventListener("pointerdown", (event) => this.onPointer(chart, event));
    picture.addEventListener("pointermove", (event) => event.buttons === 1 && this.onPointer(chart, event));
    picture.addEventListener("keydown", (event) => this.onKeydown(event));
    onArrows(picture, "[data-head]", nextHead);
    return chart;
  }

  /** @param {Training} training @param {number} index of the checkpoint @param {State} state */
  show(training, index, state) {
    const { checkpoints, is_live, num_left_out } = training;
    const { checkpoint: slider, checkpointText, newest, trainingStatus } = this.refs;
    this.shown = { training, index, selection: selectionOf(state) };
    slider.max = String(checkpoints.length - 1);
    if (Number(slider.value) !== index) slider.value = String(index);
    const { message } = checkpoints[index];
    slider.setAttribute("aria-valuetext", message);
    setText(checkpointText, message);
    newest.hidden = !is_live || state.checkpoint === null;
    const leftOut = num_left_out ? `${checkpoints.length} of ${checkpoints.length + num_left_out} checkpoints` : "";
    const live = this.isReachable ? "training continues" : UNREACHABLE;
    setText(trainingStatus, [is_live ? live : "", leftOut].filter(Boolean).join(" · "));
    this.draw();
  }

  /** @param {boolean} isReachable whether the last question for new checkpoints was answered */
  setReachable(isReachable) {
    if (this.isReachable === isReachable) return;
    this.isReachable = isReachable;
    if (!isReachable) setText(this.refs.trainingStatus, UNREACHABLE);
  }

  draw() {
    if (!this.shown) return;
    const { training } = this.shown;
    const [lossChart, ...measureCharts] = this.charts;
    const focused = activeElementOf(this.refs.training)?.closest?.("[data-head]")?.getAttribute("data-key");
    drawLoss(lossChart, this.shown);
    measureCharts.forEach((chart, n) => drawMeasure(chart, /** @type {Shown} */ (this.shown), training.measures[n]));
    const again = focused && this.refs.training.querySelector(`[data-key="${CSS.escape(focused)}"]`);
    if (again) /** @type {SVGElement} */ (again).focus();
  }

  /** Choose a head by its line, or the checkpoint nearest to the pointer. @param {Chart} chart @param {PointerEvent} event */
  onPointer(chart, event) {
    if (!this.shown) return;
    const line = lineAt(event);
    if (line && event.type === "pointerdown") selectHead(this.app, headOf(line));
    if (line) return;
    const { checkpoints, end } = this.shown.training;
    const frame = frameOf(chart);
    const toStep = linearScale([frame.left, frame.right], [0, end]);
    const step = toStep(event.clientX - chart.picture.getBoundingClientRect().left);
    const steps = checkpoints.map((checkpoint) => checkpoint.step);
    this.choose(nearestIndex(steps, step));
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    const line = lineAt(event);
    if (!line || (event.key !== "Enter" && event.key !== " ")) return;
    selectHead(this.app, headOf(line));
    consume(event);
  }

  /** @param {number} index */
  choose(index) {
    this.player.stop();
    showCheckpoint(this.app, index);
  }
}

/** @param {Chart} chart @param {Shown} shown */
function drawLoss(chart, { training, index }) {
  const { loss, held_out } = training;
  const frame = frameOf(chart);
  const max = Math.max(...loss.values, ...held_out.values, 1e-9);
  const x = linearScale([0, training.end], [frame.left, frame.right]);
  const y = linearScale([0, 1.06 * max], [frame.bottom, frame.top]);
  const size = loss.steps_per_point ?? 1;
  const unit = el("span", {}, size > 1 ? `nats, mean of ${size} steps` : "nats");
  const heldOut = el("span", { class: "rg-held-out" }, el("span", { class: "rg-dot" }), "held out");
  chart.caption.replaceChildren(el("strong", {}, "Loss"), unit, held_out.values.length ? heldOut : "");
  const line = pathThrough(loss.steps.map((step, n) => ({ x: x(step), y: y(loss.values[n]) })));
  const dots = held_out.steps.map((step, n) =>
    svg("circle", { cx: x(step).toFixed(1), cy: y(held_out.values[n]).toFixed(1), r: 2.6 }),
  );
  const name = loss.values.length
    ? `Loss, from ${formatSignificant(loss.values[0])} to ${formatSignificant(loss.values[loss.values.length - 1])} nats`
    : "The folder of this run has no losses";
  drawChart(chart, name, training, index, ticksUpTo(max, 3), y, [
    svg("path", { class: "rg-line", d: line }),
    svg("g", { class: "rg-held-out" }, ...dots),
  ]);
}

/** @param {Chart} chart @param {Shown} shown @param {Measure} measure */
function drawMeasure(chart, { training, index, selection }, { key, title, description, values, strongest }) {
  const { checkpoints, prominent, end } = training;
  const frame = frameOf(chart);
  const x = linearScale([0, end], [frame.left, frame.right]);
  const y = linearScale([0, 1], [frame.bottom, frame.top]);
  const isKnown = values.flat(2).some((value) => value !== null);
  const note = isKnown ? "of every head" : "has no value: no token of the text repeats";
  chart.caption.replaceChildren(el("strong", {}, title), el("span", { class: isKnown ? "rg-of-heads" : null }, note));
  chart.node.title = description;
  const lines = values[0].flatMap((ofLayer, layer) =>
    ofLayer.map((_, head) => {
      const at = `${layer}.${head}`;
      const isSelected = selection.layer === layer && selection.head === head;
      const className = `${CLASSES[prominent[at]] ?? "rg-other"}${isSelected ? " rg-strong" : ""}`;
      const rank = 2 * Number(isSelected) + Number(at in prominent);
      return { layer, head, at, isSelected, className, rank, values: values.map((each) => each[layer][head]) };
    }),
  );
  lines.sort((a, b) => a.rank - b.rank); // the last one is drawn above the others
  const isStrongest = (/** @type {string} */ at) => strongest.some((one) => one.join(".") === at);
  const last = checkpoints.length - 1;
  const named = lines.filter((line) => line.values[last] !== null && (line.isSelected || isStrongest(line.at)));
  const ends = named.map((line) => y(/** @type {number} */ (line.values[last])));
  const heights = spreadLabels(ends, LABEL_GAP, { ...frame, top: frame.top + 2 });
  const labels = named.map(({ layer, head, className }, n) => {
    const place = { x: Math.min(frame.right, x(checkpoints[last].step)) + 6, y: heights[n].toFixed(1) };
    return svg("text", { ...place, class: `rg-line-name ${className.replace("rg-other", "")}` }, `L${layer}H${head}`);
  });
  const marked = lines.filter(({ className, values: own }) => own[index] !== null && className !== "rg-other");
  const dots = marked.map(({ values: own, className }) =>
    svg("circle", {
      cx: x(checkpoints[index].step).toFixed(1),
      cy: y(/** @type {number} */ (own[index])).toFixed(1),
      r: 2.8,
      class: className,
    }),
  );
  const groups = lines.map(({ layer, head, at, className, isSelected, values: own }) => {
    const points = own.map((value, n) => ({ x: x(checkpoints[n].step), y: value === null ? null : y(value) }));
    const d = pathThrough(points);
    const value = own[index] === null ? "none" : formatFixed(own[index], 2);
    const name = `layer ${layer}, head ${head}: ${title.toLowerCase()} ${value}`;
    return svg(
      "g",
      {
        role: "button",
        tabindex: -1,
        "aria-label": name,
        "aria-pressed": String(isSelected),
        "data-head": at,
        "data-key": `${key} ${at}`,
        class: className,
      },
      svg("title", {}, name),
      svg("path", { d, class: "rg-line" }),
      svg("path", { d, class: "rg-target" }),
    );
  });
  setTabStop(groups, groups[groups.length - 1]);
  const name = `${title} of every head, ${training.checkpoints[index].message}`;
  drawChart(chart, name, training, index, [0, 0.5, 1], y, groups, [
    svg("g", { class: "rg-values" }, ...dots),
    svg("g", { "aria-hidden": "true" }, ...labels),
  ]);
}

/**
 * Axes, curves, the line at a checkpoint and a veil on what comes after it, and what is above the veil.
 * @param {Chart} chart @param {string} name @param {Training} training @param {number} index of the checkpoint
 * @param {number[]} values at the ticks @param {(value: number) => number} y
 * @param {SVGElement[]} curves @param {SVGElement[]} [above]
 */
function drawChart(chart, name, { checkpoints, end }, index, values, y, curves, above = []) {
  const { left, right, top, bottom } = frameOf(chart);
  const x = linearScale([0, end], [left, right]);
  const lines = values.map((value) =>
    svg("path", { d: `M${left} ${y(value).toFixed(1)}H${right}`, class: value === 0 ? "rg-zero" : "" }),
  );
  const valueLabels = values.map((value) =>
    svg("text", { x: left - 6, y: y(value).toFixed(1), class: "rg-y" }, String(value)),
  );
  const stepLabels = ticksUpTo(end, Math.max(2, Math.floor((right - left) / 65))).map((step) =>
    svg("text", { x: x(step).toFixed(1), y: bottom + 14, class: "rg-x" }, step.toLocaleString("en")),
  );
  const now = x(checkpoints[index].step).toFixed(1);
  const width = Math.max(0, right + 4 - Number(now)).toFixed(1);
  setAttribute(chart.picture, "aria-label", name);
  setAttribute(chart.picture, "viewBox", `0 0 ${chart.size.width} ${chart.size.height}`);
  chart.picture.replaceChildren(
    svg("g", { class: "rg-axes", "aria-hidden": "true" }, ...lines, ...valueLabels, ...stepLabels),
    ...curves,
    svg("rect", { x: now, y: top - 4, width, height: bottom - top + 3, class: "rg-veil" }),
    svg("path", { d: `M${now} ${top - 4}V${bottom}`, class: "rg-marker" }),
    ...above,
  );
}

/** @param {Chart} chart @returns {Frame} */
function frameOf({ size, right }) {
  return { left: MARGIN.left, right: size.width - right, top: MARGIN.top, bottom: size.height - MARGIN.bottom };
}

/** The line of a head that an event is on. @param {Event} event @returns {SVGElement | null} */
function lineAt({ target }) {
  return /** @type {Element} */ (target).closest("[data-head]");
}

/** @param {Element} line @returns {{ layer: number, head: number }} */
function headOf(line) {
  const [layer, head] = (line.getAttribute("data-head") ?? "0.0").split(".").map(Number);
  return { layer, head };
}

/** In the order of heads, not in that of drawing. @param {SVGElement[]} lines @param {SVGElement} from @param {string} key */
function nextHead(lines, from, key) {
  const place = (/** @type {SVGElement} */ line) => 1e4 * headOf(line).layer + headOf(line).head;
  lines.sort((a, b) => place(a) - place(b));
  return nextOf(lines, from, key);
}
