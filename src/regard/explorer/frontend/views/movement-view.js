// Movement: the vector of each token at every stage, projected onto one plane.

import { NOTHING } from "../data/query.js";
import { groupTokens } from "../data/tokens.js";
import { bidi, el, setAttribute, setText } from "../platform/dom.js";
import { MANY_DOTS } from "../render/plane.js";
import { runsOnPlane } from "../state/sides.js";
import { PlaneView } from "./plane-view.js";
import { Player, prefersReducedMotion } from "./player.js";
import { sideNames } from "./side-switch.js";

const RUN_CLASSES = ["rg-run-a", "rg-run-b"];
const STAGE_MS = 900; // of the animation

/** "blocks.3.output" in words. @param {string} name */
export function stageName(name) {
  const block = /blocks\.(\d+)\.output$/.exec(name);
  return block ? `after layer ${block[1]}` : name.replace(/_/g, " ");
}

/** The tokens or words of a run as dots, at the mean of their tokens. @param {Path} path @param {Set<number>} selected tokens */
export function dotsOf({ movement: { points, left_out: leftOut }, axis, side }, selected) {
  const outside = new Set(leftOut);
  return axis.map(({ members, name }) => ({
    token: members[0],
    side: /** @type {0 | 1} */ (side),
    label: name,
    isSelected: members.some((t) => selected.has(t)),
    isFitted: !members.every((t) => outside.has(t)),
    track: points.map((ofStage) => {
      const mean = (/** @type {0 | 1} */ c) => members.reduce((sum, t) => sum + ofStage[t][c], 0) / members.length;
      return { x: mean(0), y: -mean(1) };
    }),
  }));
}

export class MovementView {
  /** @param {App} app */
  constructor(app) {
    const { stage: slider } = (this.refs = app.refs);
    this.setStage = (/** @type {number} */ stage) => app.set({ stage });
    this.slider = slider;
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider.value)));
    this.slider.addEventListener("change", () => this.setStage(Math.round(Number(this.slider.value))));
    this.slider.addEventListener("keydown", (event) => this.onSliderKey(event));
    this.player = new Player({
      rewind: () => this.position >= this.lastStage && this.moveTo(0),
      advance: (ms) => {
        const step = prefersReducedMotion() ? 1 : ms / STAGE_MS; // then stage by stage
        this.moveTo(Math.min(this.lastStage, this.position + step));
        return this.position < this.lastStage;
      },
      interval: () => (prefersReducedMotion() ? STAGE_MS : 0),
      onStop: () => this.setStage(Math.round(100 * this.position) / 100), // as the slider has it
    });
    this.plane = new PlaneView(app);
    this.refs.movementBar.prepend(this.player.button);
    this.stages = /** @type {string[]} */ ([]);
    this.position = 0; // a stage, or between two
    this.showMessage("");
  }

  get lastStage() {
    return this.stages.length - 1;
  }

  /** @param {string} message  instead of the plane */
  showMessage(message) {
    this.player.stop(false);
    this.refs.movementBar.hidden = this.refs.movementLegend.hidden = this.plane.node.hidden = true;
    setText(this.refs.movementText, message);
  }

  /** The data is being computed: what is shown, if anything, is of before. @param {boolean} isPending */
  setPending(isPending) {
    this.player.button.disabled = this.slider.disabled = isPending;
    if (isPending && this.plane.node.hidden) this.refs.movementText.textContent = "Computing the plane of all stages …";
    if (isPending) this.player.stop(false);
  }

  /** @param {Path[]} paths @param {number} stage @param {Set<number>} selected tokens @param {boolean} hasOtherPlane  of a run that is compared */
  show(paths, stage, selected, hasOtherPlane) {
    this.refs.movementBar.hidden = this.plane.node.hidden = false;
    this.refs.movementLegend.hidden = paths.length < 2;
    const entry = (/** @type {Path} */ { side, title }) =>
      el("li", { class: RUN_CLASSES[side] }, el("span", { class: "rg-dot" }), `${"AB"[side]} · `, bidi(title));
    this.refs.movementLegend.replaceChildren(...paths.map(entry));
    const [{ movement }] = paths;
    this.stages = movement.stages;
    this.slider.max = String(this.lastStage);
    const dots = paths.flatMap((path) => dotsOf(path, selected));
    this.plane.show(dots, this.position);
    if (!this.player.isPlaying) this.moveTo(stage < 0 ? this.lastStage : Math.min(stage, this.lastStage));
    else this.moveTo(this.position);
    const message = [
      movement.note,
      dots.length > MANY_DOTS ? " Of so many tokens, only those that are chosen leave a trail." : "",
      this.plane.hasOutside ? " What is far from all others at some stage lies outside until one zooms out." : "",
      hasOtherPlane
        ? " The other run is of another model, or has other stages, and has its own plane: choose A or B."
        : "",
    ];
    setText(this.refs.movementText, message.join(""));
  }

  /** Show a stage, or a position between two, without a change of the state. @param {number} position */
  moveTo(position) {
    this.position = position;
    const name = stageName(this.stages[Math.round(position)]);
    if (Number(this.slider.value) !== position) this.slider.value = String(position);
    setAttribute(this.slider, "aria-valuetext", name);
    setAttribute(this.plane.list, "aria-label", `Tokens on a plane, ${name}`);
    setText(this.refs.stageText, name);
    this.plane.setStage(position);
  }

  /** Arrow keys go from stage to stage. @param {KeyboardEvent} event */
  onSliderKey(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    this.setStage(Math.max(0, Math.min(this.lastStage, Math.round(this.position) + step)));
    event.preventDefault();
  }
}

/** @param {App} app @returns {View} */
export const showMovement = (app) => (ask) => {
  const { state, parts, refs, source } = app;
  const { runs } = app.manifest;
  if (state.view !== "movement") return null;
  const sides = app.sides();
  const together = runsOnPlane(sides, app.shownHead(), app.manifest);
  const load = async (/** @type {AbortSignal} */ signal) => {
    const { points, left_out, ...plane } = await source.movement({ runs: together }, signal);
    return new Map(together.map((run, n) => [run, { ...plane, points: points[n], left_out: left_out[n] }]));
  };
  const answer = together.length ? ask("movement", together, load, { inBar: true }) : NOTHING;
  const draw = () => {
    if (!answer.data)
      return parts.movement.showMessage(
        answer.error ? "The plane could not be computed." : "This trace has no token vectors: record them too.",
      );
    const names = sides.length > 1 ? sideNames(state, app.manifest, sides) : [""];
    const selection = { words: state.words, special: state.special, from: state.from ?? 0, to: state.to ?? Infinity };
    const paths = [...answer.data].map(([run, movement]) => {
      const side = sides.findIndex((ref) => ref.run === run);
      const { tokens, text } = runs[run];
      return { movement, side, title: names[side], axis: groupTokens(tokens, text, selection) };
    });
    const hasOtherPlane = sides.some(({ run }) => runs[run].projection_key && !together.includes(run));
    parts.sideSwitches.movement.node.hidden = !hasOtherPlane;
    const selected = new Set([...state.pins, ...(state.row === null ? [] : [state.row])]);
    parts.movement.show(paths, state.stage, selected, hasOtherPlane);
  };
  return [
    { draw: () => parts.movement.setPending(answer.isPending) },
    { nodes: [parts.movement.plane.node, refs.movementLegend, refs.movementText], answers: [answer], draw },
  ];
};
