// A training run: its loss and two measures of every head over the steps, and the checkpoint that is shown.

import { activeElementOf, el, setAttribute, setText, svg } from "../platform/dom.js";
import { lastUpTo, linearScale, nearestIndex, pathThrough, spreadLabels, ticksUpTo } from "../render/curves.js";
import { formatFixed, formatSignificant } from "../render/format.js";
import { selectionOf } from "../state/sides.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../state/state.js").Selection} Selection
 * @typedef {import("../data/source.js").Training} Training
 * @typedef {import("../data/source.js").Measure} Measure
 * @typedef {import("../render/curves.js").Frame} Frame
 * @typedef {{ training: Training, index: number, selection: Selection }} Shown
 * @typedef {{ node: HTMLElement, caption: HTMLElement, picture: SVGElement, size: { width: number, height: number } }} Chart
 */

const PLAY_MS = 9000; // of a whole run
const [MIN_STEP_MS, MAX_STEP_MS, REDUCED_STEP_MS] = [120, 600, 1000]; // of a checkpoint
const MARGIN = { left: 30, right: 12, labels: 44, top: 7, bottom: 20 };
const LABEL_GAP = 13;
const CLASSES = ["rg-run-a", "rg-run-b"]; // the heads that stand out in each measure

/** The class of each head that stands out: of the first measure in which it does. @param {Measure[]} measures */
export function prominentHeads(measures) {
  /** @type {Map<string, string>} */
  const found = new Map();
  measures.forEach(({ strongest }, n) =>
    strongest.forEach((at) => found.has(at.join(".")) || found.set(at.join("."), CLASSES[n])),
  );
  return found;
}

/** What is said of a checkpoint. @param {Training} training @param {number} index */
export function checkpointMessage({ checkpoints, loss, held_out, end }, index) {
  const { step } = checkpoints[index];
  const now = loss.values[lastUpTo(loss.steps, step)];
  const evaluated = held_out.values[held_out.steps.indexOf(step)];
  return [
    `step ${step.toLocaleString("en")} of ${end.toLocaleString("en")}`,
    now === undefined ? "" : `loss ${formatSignificant(now)}`,
    evaluated === undefined ? "" : `held out ${formatSignificant(evaluated)}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

export class TrainingPanel {
  /**
   * @param {Measure[]} measures
   * @param {{ showCheckpoint: (index: number) => void, selectHead: (selection: Selection) => void, isSettled: () => boolean }} actions
   */
  constructor(measures, actions) {
    this.actions = actions;
    /** @type {Shown | null} */
    this.shown = null;
    this.isReachable = true;
    this.charts = [this.chart("rg-loss"), ...measures.map(() => this.chart("rg-measure"))];
    this.slider = el("input", {
      type: "range",
      min: "0",
      step: "1",
      class: "rg-slider",
      "aria-label": "Checkpoint",
      on: { input: () => this.choose(Number(this.slider.value)) },
    });
    this.playButton = el(
      "button",
      { type: "button", class: "rg-primary", on: { click: () => this.togglePlay() } },
      "Play",
    );
    this.message = el("output", { class: "rg-checkpoint" });
    this.status = el("span", { class: "rg-muted", role: "status" });
    this.newest = el(
      "button",
      { type: "button", class: "rg-button", hidden: true, on: { click: () => this.choose(Infinity) } },
      "Follow the newest",
    );
    this.node = el(
      "section",
      { class: "rg-training", "aria-label": "Training" },
      el("div", { class: "rg-curves" }, ...this.charts.map(({ node }) => node)),
      el("div", { class: "rg-bar" }, this.playButton, this.slider, this.message, this.newest, this.status),
    );
  }

  /** @param {string} className @returns {Chart} */
  chart(className) {
    const caption = el("figcaption", {});
    const picture = svg("svg", { class: "rg-curve", role: "group" });
    const container = el("div", { class: "rg-curve-container" });
    container.append(picture);
    const chart = {
      node: el("figure", { class: className }, caption, container),
      caption,
      picture,
      size: { width: 400, height: 110 },
    };
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = container;
      if (width === 0 || height === 0) return;
      chart.size = { width, height };
      this.draw();
    }).observe(container);
    picture.addEventListener("pointerdown", (event) => this.onPointer(chart, event));
    picture.addEventListener("pointermove", (event) => event.buttons === 1 && this.onPointer(chart, event));
    picture.addEventListener("keydown", (event) => this.onKeydown(event));
    return chart;
  }

  /** @param {Training} training @param {number} index of the checkpoint @param {State} state */
  show(training, index, state) {
    const { checkpoints, is_live, num_left_out } = training;
    this.shown = { training, index, selection: selectionOf(state) };
    this.slider.max = String(checkpoints.length - 1);
    if (Number(this.slider.value) !== index) this.slider.value = String(index);
    const message = checkpointMessage(training, index);
    this.slider.setAttribute("aria-valuetext", message);
    setText(this.message, message);
    this.newest.hidden = !is_live || state.checkpoint === null;
    const leftOut = num_left_out ? `${checkpoints.length} of ${checkpoints.length + num_left_out} checkpoints` : "";
    const live = this.isReachable ? "training goes on" : "no answer: has the command ended?";
    setText(this.status, [is_live ? live : "", leftOut].filter(Boolean).join(" · "));
    this.draw();
  }

  /** @param {boolean} isReachable whether the last question for new checkpoints was answered */
  setReachable(isReachable) {
    if (this.isReachable === isReachable) return;
    this.isReachable = isReachable;
    if (!isReachable) setText(this.status, "no answer: has the command ended?");
  }

  draw() {
    if (!this.shown) return;
    const { training } = this.shown;
    const [lossChart, ...measureCharts] = this.charts;
    const focused = activeElementOf(this.node)?.closest?.("[data-head]")?.getAttribute("data-key");
    this.drawLoss(lossChart, this.shown);
    measureCharts.forEach((chart, n) => this.drawMeasure(chart, this.shown, training.measures[n]));
    if (focused)
      /** @type {SVGElement | null} */ (this.node.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
  }

  /** @param {Chart} chart @param {Shown} shown */
  drawLoss(chart, { training, index }) {
    const { loss, held_out, end, checkpoints } = training;
    const frame = frameOf(chart, MARGIN.right);
    const max = Math.max(...loss.values, ...held_out.values, 1e-9);
    const x = linearScale([0, end], [frame.left, frame.right]);
    const y = linearScale([0, 1.06 * max], [frame.bottom, frame.top]);
    const size = loss.steps_per_point ?? 1;
    chart.caption.replaceChildren(
      el("strong", {}, "Loss"),
      el("span", {}, size > 1 ? `nats, mean of ${size} steps` : "nats"),
      held_out.values.length ? el("span", { class: "rg-held-out" }, el("span", { class: "rg-dot" }), "held out") : "",
    );
    const line = pathThrough(loss.steps.map((step, n) => ({ x: x(step), y: y(loss.values[n]) })));
    const dots = held_out.steps.map((step, n) =>
      svg("circle", { cx: x(step).toFixed(1), cy: y(held_out.values[n]).toFixed(1), r: 2.6 }),
    );
    const name = loss.values.length
      ? `Loss, from ${formatSignificant(loss.values[0])} to ${formatSignificant(loss.values[loss.values.length - 1])} nats`
      : "The folder of this run has no losses";
    setAttribute(chart.picture, "aria-label", name);
    fill(chart, [
      ...axes(frame, x, y, ticksUpTo(end, Math.max(2, Math.floor((frame.right - frame.left) / 70))), ticksUpTo(max, 3)),
      svg("path", { class: "rg-line", d: line }),
      svg("g", { class: "rg-held-out" }, ...dots),
      ...marker(frame, x(checkpoints[index].step)),
    ]);
  }

  /** @param {Chart} chart @param {Shown | null} shown @param {Measure} measure */
  drawMeasure(chart, shown, { key, title, description, values, strongest }) {
    if (!shown) return;
    const { training, index, selection } = shown;
    const { checkpoints, end, measures } = training;
    const frame = frameOf(chart, MARGIN.labels);
    const x = linearScale([0, end], [frame.left, frame.right]);
    const y = linearScale([0, 1], [frame.bottom, frame.top]);
    const isKnown = values.some((ofLayers) => ofLayers.flat().some((value) => value !== null));
    chart.caption.replaceChildren(
      el("strong", {}, title),
      isKnown
        ? el("span", { class: "rg-of-heads" }, "of every head")
        : el("span", {}, "has no value: no token of the text repeats"),
    );
    chart.node.title = description;
    setAttribute(chart.picture, "aria-label", `${title} of every head, ${checkpointMessage(training, index)}`);
    const prominent = prominentHeads(measures);
    const selectedKey = `${selection.layer}.${selection.head}`;
    const heads = values[0].flatMap((ofLayer, layer) => ofLayer.map((_, head) => ({ layer, head })));
    const lines = heads
      .map(({ layer, head }) => {
        const at = `${layer}.${head}`;
        const path = pathThrough(
          checkpoints.map(({ step }, n) => {
            const value = values[n][layer][head];
            return { x: x(step), y: value === null ? null : y(value) };
          }),
        );
        const value = values[index][layer][head];
        const name = `layer ${layer}, head ${head}: ${title.toLowerCase()} ${value === null ? "none" : formatFixed(value, 2)}`;
        const isSelected = at === selectedKey;
        const className = `${prominent.get(at) ?? "rg-other"}${isSelected ? " rg-strong" : ""}`;
        return { at, path, name, className, isSelected, rank: 2 * Number(isSelected) + Number(prominent.has(at)) };
      })
      .sort((a, b) => a.rank - b.rank);
    const tabStop = lines.find(({ isSelected }) => isSelected) ?? lines[lines.length - 1];
    const last = values[values.length - 1];
    const named = strongest.filter(([layer, head]) => last[layer][head] !== null);
    if (!named.some((at) => at.join(".") === selectedKey) && selection.head !== "mean") {
      if (last[selection.layer]?.[selection.head] != null) named.push([selection.layer, selection.head]);
    }
    const ends = named.map(([layer, head]) => y(/** @type {number} */ (last[layer][head])));
    const heights = spreadLabels(ends, LABEL_GAP, { ...frame, top: frame.top + 2 });
    const labels = named.map(([layer, head], n) =>
      svg(
        "text",
        {
          x: Math.min(frame.right, x(checkpoints[checkpoints.length - 1].step)) + 6,
          y: heights[n].toFixed(1),
          class: `rg-line-name ${prominent.get(`${layer}.${head}`) ?? ""}${`${layer}.${head}` === selectedKey ? " rg-strong" : ""}`,
        },
        `L${layer}H${head}`,
      ),
    );
    const values_at = lines.flatMap(({ at, className }) => {
      const [layer, head] = at.split(".").map(Number);
      const value = values[index][layer][head];
      if (value === null || className === "rg-other") return [];
      const cx = x(checkpoints[index].step).toFixed(1);
      return [svg("circle", { cx, cy: y(value).toFixed(1), r: 2.8, class: className })];
    });
    fill(chart, [
      ...axes(frame, x, y, ticksUpTo(end, Math.max(2, Math.floor((frame.right - frame.left) / 60))), [0, 0.5, 1]),
      ...lines.map(({ at, path, name, className, isSelected }) =>
        svg(
          "g",
          {
            role: "button",
            tabindex: at === tabStop.at ? 0 : -1,
            "aria-label": name,
            "aria-pressed": String(isSelected),
            "data-head": at,
            "data-key": `${key} ${at}`,
            class: className,
          },
          svg("title", {}, name),
          svg("path", { d: path, class: "rg-line" }),
          svg("path", { d: path, class: "rg-target" }),
        ),
      ),
      ...marker(frame, x(checkpoints[index].step)),
      svg("g", { class: "rg-values" }, ...values_at),
      svg("g", { "aria-hidden": "true" }, ...labels),
    ]);
  }

  /** Choose a head by its line, or the checkpoint nearest to the pointer. @param {Chart} chart @param {PointerEvent} event */
  onPointer(chart, event) {
    if (!this.shown) return;
    const line = /** @type {Element} */ (event.target).closest("[data-head]");
    if (line) {
      if (event.type === "pointerdown") this.actions.selectHead(headOf(line));
      return;
    }
    const { checkpoints, end } = this.shown.training;
    const frame = frameOf(chart, chart === this.charts[0] ? MARGIN.right : MARGIN.labels);
    const toStep = linearScale([frame.left, frame.right], [0, end]);
    const step = toStep(event.clientX - chart.picture.getBoundingClientRect().left);
    const steps = checkpoints.map((checkpoint) => checkpoint.step);
    this.choose(nearestIndex(steps, step));
  }

  /** Arrow keys move between heads. @param {KeyboardEvent} event */
  onKeydown(event) {
    const line = /** @type {Element} */ (event.target).closest("[data-head]");
    if (!line || event.ctrlKey || event.metaKey || event.altKey) return;
    const lines = /** @type {SVGElement[]} */ ([
      .../** @type {Element} */ (line.parentNode).querySelectorAll("[data-head]"),
    ]).sort((a, b) => compareHeads(headOf(a), headOf(b)));
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      const next = lines[(lines.indexOf(/** @type {SVGElement} */ (line)) + by + lines.length) % lines.length];
      line.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") this.actions.selectHead(headOf(line));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} index */
  choose(index) {
    this.stop();
    this.actions.showCheckpoint(index);
  }

  togglePlay() {
    if (this.timer) return this.stop();
    if (!this.shown) return;
    const isReduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const last = () => (this.shown?.training.checkpoints.length ?? 1) - 1;
    const pause = isReduced
      ? REDUCED_STEP_MS
      : Math.max(MIN_STEP_MS, Math.min(MAX_STEP_MS, PLAY_MS / Math.max(1, last())));
    const tick = () => {
      if (!this.shown || this.shown.index >= last()) return this.stop();
      if (this.actions.isSettled()) this.actions.showCheckpoint(this.shown.index + 1);
      this.timer = setTimeout(tick, pause);
    };
    this.playButton.textContent = "Pause";
    if (this.shown.index >= last()) this.actions.showCheckpoint(0);
    this.timer = setTimeout(tick, pause);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.playButton.textContent = "Play";
  }
}

/** @param {Chart} chart @param {number} right @returns {Frame} */
function frameOf({ size }, right) {
  return { left: MARGIN.left, right: size.width - right, top: MARGIN.top, bottom: size.height - MARGIN.bottom };
}

/** @param {Chart} chart @param {SVGElement[]} parts */
function fill({ picture, size }, parts) {
  picture.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  picture.replaceChildren(...parts);
}

/**
 * @param {Frame} frame @param {(step: number) => number} x @param {(value: number) => number} y
 * @param {number[]} steps @param {number[]} values
 */
function axes(frame, x, y, steps, values) {
  const lines = values.map((value) =>
    svg("path", { d: `M${frame.left} ${y(value).toFixed(1)}H${frame.right}`, class: value === 0 ? "rg-zero" : "" }),
  );
  const texts = [
    ...values.map((value) => svg("text", { x: frame.left - 6, y: y(value).toFixed(1), class: "rg-y" }, String(value))),
    ...steps.map((step) =>
      svg("text", { x: x(step).toFixed(1), y: frame.bottom + 14, class: "rg-x" }, step.toLocaleString("en")),
    ),
  ];
  return [svg("g", { class: "rg-axes", "aria-hidden": "true" }, ...lines, ...texts)];
}

/** The line at a checkpoint, and a veil on what comes after it. @param {Frame} frame @param {number} x */
function marker({ top, bottom, right }, x) {
  const veil = { x: x.toFixed(1), y: top - 4, width: Math.max(0, right + 4 - x).toFixed(1), height: bottom - top + 3 };
  return [
    svg("rect", { ...veil, class: "rg-veil" }),
    svg("path", { d: `M${x.toFixed(1)} ${top - 4}V${bottom}`, class: "rg-marker" }),
  ];
}

/** @param {Element} line @returns {{ layer: number, head: number }} */
function headOf(line) {
  const [layer, head] = (line.getAttribute("data-head") ?? "0.0").split(".").map(Number);
  return { layer, head };
}

/** @param {{ layer: number, head: number }} a @param {{ layer: number, head: number }} b */
function compareHeads(a, b) {
  return a.layer - b.layer || a.head - b.head;
}
