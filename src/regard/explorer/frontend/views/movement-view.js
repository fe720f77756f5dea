// Movement: the vector of each token at every stage, projected onto one plane.

import { activeElementOf, bidi, el, setText, svg } from "../platform/dom.js";
import { formatPercent } from "../render/format.js";
import { fitTransform, interpolateStage, placeLabels } from "../render/plane.js";
import { FONT } from "../render/scene.js";

/**
 * @typedef {import("../data/source.js").Movement} Movement
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {{ movement: Movement, axis: Group[], side: number, title: string }} Path   of one run, A (0) or B (1)
 * @typedef {{ x: number, y: number, width: number, token: number, text: string, isSelected: boolean, parent: SVGElement }} Label
 */

const RUN_CLASSES = ["rg-run-a", "rg-run-b"];
const MAX_LABELS = 120;
const STAGE_MS = 900; // of the animation

/** "blocks.3.output" in words. @param {string} name */
export function stageName(name) {
  const block = /blocks\.(\d+)\.output$/.exec(name);
  return block ? `after layer ${block[1]}` : name.replace(/_/g, " ");
}

export class MovementView {
  /** @param {{ setStage: (stage: number) => void, select: (token: number) => void }} actions */
  constructor(actions) {
    this.actions = actions;
    this.slider = el("input", {
      type: "range",
      min: "0",
      step: "0.01",
      class: "rg-slider",
      "aria-label": "Stage",
      on: {
        input: () => actions.setStage(Number(this.slider.value)),
        change: () => actions.setStage(Math.round(Number(this.slider.value))),
      },
    });
    this.playButton = el(
      "button",
      { type: "button", class: "rg-primary", on: { click: () => this.togglePlay() } },
      "Play",
    );
    this.stageText = el("output", { class: "rg-stage-name" });
    this.bar = el("div", { class: "rg-bar" }, this.playButton, this.slider, this.stageText);
    this.legend = el("ul", { class: "rg-bar rg-runs", "aria-label": "Legend" });
    this.plane = svg("svg", { class: "rg-plane", role: "group" });
    this.container = el("div", { class: "rg-plane-container" }, this.plane);
    this.explanation = el("p", { class: "rg-description" });
    this.size = { width: 900, height: 560 };
    this.measuring = el("canvas").getContext("2d");
    const props = { class: "rg-movement", "aria-label": "Movement" };
    this.node = el("section", props, this.bar, this.legend, this.container, this.explanation);
    this.plane.addEventListener("click", (event) => {
      const dot = /** @type {Element} */ (event.target).closest("[data-token]");
      if (dot) actions.select(tokenOf(dot));
    });
    this.plane.addEventListener("keydown", (event) => this.onKeydown(event));
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = this.container;
      if (width === 0 || height === 0) return;
      this.size = { width, height };
      if (this.shown) this.show(...this.shown);
    }).observe(this.container);
  }

  /** @param {string} message  instead of the plane */
  showMessage(message) {
    this.bar.hidden = this.legend.hidden = this.container.hidden = true;
    setText(this.explanation, message);
  }

  /** @param {Path[]} paths @param {number} stage @param {Set<number>} selected tokens @param {boolean} hasOtherPlane  of a run that is compared */
  show(paths, stage, selected, hasOtherPlane) {
    /** @type {Parameters<MovementView["show"]>} */
    this.shown = [paths, stage, selected, hasOtherPlane];
    this.bar.hidden = this.container.hidden = false;
    this.legend.hidden = paths.length < 2;
    const entry = (/** @type {Path} */ { side, title }) =>
      el("li", { class: RUN_CLASSES[side] }, el("span", { class: "rg-dot" }), `${"AB"[side]} · `, bidi(title));
    this.legend.replaceChildren(...paths.map(entry));
    const [{ movement }] = paths;
    this.lastStage = movement.stages.length - 1;
    const position = stage < 0 ? this.lastStage : Math.min(stage, this.lastStage);
    const name = stageName(movement.stages[Math.round(position)]);
    this.slider.max = String(this.lastStage);
    if (Number(this.slider.value) !== position) this.slider.value = String(position);
    this.slider.setAttribute("aria-valuetext", name);
    this.stageText.textContent = name;
    this.draw(paths, position, selected);
    this.plane.setAttribute("aria-label", `Tokens on a plane, ${name}`);
    const [first, second] = movement.explained_variance_ratio;
    const rest = Math.max(0, 1 - first - second);
    this.explanation.replaceChildren(
      `The two axes show ${formatPercent(first + second)} of the variance (${formatPercent(first)} across, ${formatPercent(second)} up) and hide ${formatPercent(rest)}. `,
      "All stages share one plane; each is centred on its own mean, since all vectors also shift together and grow. Tokens close on the plane may be far apart in space.",
      hasOtherPlane
        ? " The other run is of another model, or has other stages, and has its own plane: choose A or B."
        : "",
    );
  }

  /** @param {Path[]} paths @param {number} stage @param {Set<number>} selected */
  draw(paths, stage, selected) {
    const focused = this.dots().indexOf(/** @type {any} */ (activeElementOf(this.plane)));
    const points = paths.flatMap(({ movement, axis }) =>
      movement.points.flatMap((ofStage) => axis.flatMap(({ members }) => members.map((t) => ofStage[t]))),
    );
    const toPixels = fitTransform(points, this.size);
    const drawings = paths.map((path) => this.drawPath(path, stage, toPixels, selected));
    drawLabels(
      drawings.flatMap(({ labels }) => labels),
      this.size,
    );
    this.plane.setAttribute("viewBox", `0 0 ${this.size.width} ${this.size.height}`);
    this.plane.replaceChildren(
      ...drawings.map(({ trails }) => trails),
      ...drawings.map(({ dots }) => dots),
      ...drawings.map(({ labelGroup }) => labelGroup),
    );
    const dots = this.dots();
    const selectedDot = dots.findIndex((dot) => dot.classList.contains("rg-strong"));
    dots[focused >= 0 ? focused : Math.max(0, selectedDot)]?.setAttribute("tabindex", "0");
    if (focused >= 0) dots[focused]?.focus();
  }

  /** @param {Path} path @param {number} stage @param {ReturnType<typeof fitTransform>} toPixels @param {Set<number>} selected */
  drawPath({ movement: { points }, axis, side }, stage, toPixels, selected) {
    const className = RUN_CLASSES[side];
    const centerOf = (/** @type {number[][]} */ ofStage, /** @type {Group} */ { members }) =>
      toPixels([0, 1].map((c) => members.reduce((sum, t) => sum + ofStage[t][c], 0) / members.length));
    const current = interpolateStage(points, stage);
    const dots = svg("g", { class: `rg-dots ${className}` });
    const trails = svg("g", { class: `rg-trails ${className}` });
    const labelGroup = svg("g", { class: `rg-names ${className}`, "aria-hidden": "true" });
    if (this.measuring) this.measuring.font = `600 13px ${FONT}`;
    const widthOf = (/** @type {string} */ text) => this.measuring?.measureText(text).width ?? 7 * text.length;
    const labels = axis.map((group) => {
      const trail = points.slice(0, Math.floor(stage) + 1).map((ofStage) => centerOf(ofStage, group));
      const [x, y] = centerOf(current, group);
      const isSelected = group.members.some((t) => selected.has(t));
      const [token] = group.members;
      const line = [...trail, [x, y]].map((point) => point.map((c) => c.toFixed(1)).join(" ")).join("L");
      const trailClass = isSelected ? "rg-strong" : selected.size > 0 ? "rg-faint" : "";
      const [[x0, y0]] = trail;
      trails.append(svg("path", { d: `M${line}`, class: trailClass }));
      dots.append(
        svg("circle", { cx: x0.toFixed(1), cy: y0.toFixed(1), r: 2, class: "rg-origin" }),
        dot(x, y, token, `${"AB"[side]} ${group.label}`, isSelected),
      );
      const width = widthOf(group.label);
      return { x, y, width, token, text: group.label, isSelected: selected.has(token), parent: labelGroup };
    });
    return { trails, dots, labelGroup, labels };
  }

  /** @returns {SVGElement[]} those that can be selected */
  dots() {
    return /** @type {SVGElement[]} */ ([...this.plane.querySelectorAll("circle[data-token]")]);
  }

  /** Arrow keys move between tokens. @param {KeyboardEvent} event */
  onKeydown(event) {
    const dots = this.dots();
    const index = dots.indexOf(/** @type {any} */ (event.target));
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      const next = dots[(index + step + dots.length) % dots.length];
      dots[index].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") this.actions.select(tokenOf(dots[index]));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  togglePlay() {
    if (this.timer) return this.stop();
    const isReduced = matchMedia("(prefers-reduced-motion: reduce)").matches; // then stage by stage
    const last = this.lastStage ?? 0;
    let stage = Number(this.slider.value) >= last ? 0 : Number(this.slider.value);
    let lastTime = performance.now();
    const tick = (/** @type {number} */ now) => {
      stage += isReduced ? 1 : (now - lastTime) / STAGE_MS;
      lastTime = now;
      this.actions.setStage(Math.min(last, stage));
      if (stage >= last) return this.stop();
      schedule();
    };
    const schedule = () =>
      (this.timer = isReduced ? setTimeout(() => tick(performance.now()), STAGE_MS) : requestAnimationFrame(tick));
    this.playButton.textContent = "Pause";
    this.actions.setStage(stage);
    schedule();
  }

  stop() {
    if (this.timer) {
      cancelAnimationFrame(this.timer);
      clearTimeout(this.timer);
    }
    this.timer = undefined;
    this.playButton.textContent = "Play";
  }
}

/** @param {number} x @param {number} y @param {number} token @param {string} name @param {boolean} isSelected */
function dot(x, y, token, name, isSelected) {
  const attributes = {
    cx: x.toFixed(1),
    cy: y.toFixed(1),
    r: isSelected ? 6 : 4,
    "data-token": token,
    class: isSelected ? "rg-strong" : "",
    role: "button",
    tabindex: -1,
    "aria-label": name,
    "aria-pressed": String(isSelected),
  };
  return svg("circle", attributes, svg("title", {}, name));
}

/** @param {Label[]} labels @param {import("../render/plane.js").Size} size */
function drawLabels(labels, size) {
  const bySelection = labels.sort((a, b) => Number(b.isSelected) - Number(a.isSelected)).slice(0, MAX_LABELS);
  placeLabels(bySelection, size).forEach((position, n) => {
    if (!position) return;
    const { token, text, isSelected, parent } = bySelection[n];
    const [x, y] = [position.x.toFixed(1), position.y.toFixed(1)];
    parent.append(svg("text", { x, y, class: isSelected ? "rg-strong" : "", "data-token": token }, text));
  });
}

/** @param {Element} node */
function tokenOf(node) {
  return Number(node.getAttribute("data-token"));
}
