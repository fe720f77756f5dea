// What becomes of each token: its vector at every stage, on one plane for all of them.

import { el, focusedBeside, piece, setText, svg } from "../platform/dom.js";
import { percent } from "../render/format.js";
import { FONT } from "../render/map-renderer.js";

/**
 * @typedef {import("../data/source.js").Movement} Points
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {{ points: Points, axis: Group[], side: number, title: string }} Path   of one run, which is A (0) or B (1)
 */

const RUNS = ["rg-run-a", "rg-run-b"];
const MOST_NAMES = 120;
const EDGE = 44;

/** @typedef {{ width: number, height: number }} Size  in pixels */

/**
 * Where the tokens stand between two stages.
 * @param {number[][][]} points stages T 2 @param {number} stage may be between two
 */
export function placesAt(points, stage) {
  const at = Math.max(0, Math.min(points.length - 1, stage));
  const [low, high] = [Math.floor(at), Math.ceil(at)];
  return points[low].map(([x, y], t) => [
    x + (points[high][t][0] - x) * (at - low),
    y + (points[high][t][1] - y) * (at - low),
  ]);
}

/** What fits all points into a picture, the same on both axes. @param {number[][]} flat x and y of each @param {Size} size */
export function fitOf(flat, { width, height }) {
  const [xs, ys] = [0, 1].map((c) => flat.map((point) => point[c]));
  const span = (/** @type {number[]} */ v) => [
    v.reduce((a, b) => Math.min(a, b), Infinity),
    v.reduce((a, b) => Math.max(a, b), -Infinity),
  ];
  const [[x0, x1], [y0, y1]] = [span(xs), span(ys)];
  const k = Math.min((width - 2 * EDGE) / (x1 - x0 || 1), (height - 2 * EDGE) / (y1 - y0 || 1));
  return (/** @type {number[]} */ [x, y]) => [
    width / 2 + (x - (x0 + x1) / 2) * k,
    height / 2 - (y - (y0 + y1) / 2) * k,
  ];
}

/**
 * Where names stand so that none covers another; those that find no room are left out.
 * @param {{ x: number, y: number, width: number }[]} wanted the first ones first @param {Size} size
 */
export function placedNames(wanted, size) {
  /** @type {{ left: number, right: number, top: number, bottom: number }[]} */
  const taken = wanted.map(({ x, y }) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  return wanted.map(({ x, y, width }, n) => {
    for (const [dx, dy] of [
      [8, 4],
      [-8 - width, 4],
      [-width / 2, -9],
      [-width / 2, 17],
    ]) {
      const box = { left: x + dx, right: x + dx + width, top: y + dy - 11, bottom: y + dy + 3 };
      const free = taken.every(
        (other, m) =>
          m === n ||
          other.right < box.left ||
          other.left > box.right ||
          other.bottom < box.top ||
          other.top > box.bottom,
      );
      if (!free || box.left < 0 || box.right > size.width || box.top < 0 || box.bottom > size.height) continue;
      taken.push(box);
      return { x: x + dx, y: y + dy };
    }
    return null;
  });
}

/** "blocks.3.output" as a person says it. @param {string} name */
export function stageName(name) {
  const block = /blocks\.(\d+)\.output$/.exec(name);
  return block ? `after layer ${block[1]}` : name.replace(/_/g, " ");
}

export class MovementView {
  /** @param {{ stage: (stage: number) => void, choose: (token: number) => void }} doings */
  constructor(doings) {
    this.doings = doings;
    this.slider = el("input", {
      type: "range",
      min: "0",
      step: "0.01",
      class: "rg-slider",
      "aria-label": "Stage",
      on: {
        input: () => doings.stage(Number(this.slider.value)),
        change: () => doings.stage(Math.round(Number(this.slider.value))),
      },
    });
    this.play = el("button", { type: "button", class: "rg-primary", on: { click: () => this.run() } }, "Play");
    this.stageText = el("output", { class: "rg-stage-name" });
    this.explained = el("p", { class: "rg-says" });
    this.picture = svg("svg", { class: "rg-plane", role: "group" });
    this.size = { width: 900, height: 560 };
    this.ruler = el("canvas").getContext("2d");
    this.node = el(
      "section",
      { class: "rg-movement", "aria-label": "Movement" },
      (this.bar = el("div", { class: "rg-bar" }, this.play, this.slider, this.stageText)),
      (this.runs = el("ul", { class: "rg-bar rg-runs", "aria-label": "What the colours say" })),
      (this.room = el("div", { class: "rg-plane-room" }, this.picture)),
      this.explained,
    );
    this.picture.addEventListener("click", (event) => {
      const dot = /** @type {Element} */ (event.target).closest("[data-token]");
      if (dot) doings.choose(Number(dot.getAttribute("data-token")));
    });
    this.picture.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = this.room;
      if (width === 0 || height === 0) return;
      this.size = { width, height };
      if (this.shown) this.show(...this.shown);
    }).observe(this.room);
  }

  /** Why there is nothing to be seen. @param {string} sentence */
  say(sentence) {
    this.bar.hidden = this.runs.hidden = this.room.hidden = true;
    setText(this.explained, sentence);
  }

  /** @param {Path[]} paths @param {number} stage @param {Set<number>} chosen tokens @param {boolean} elsewhere whether what is compared stands on another plane */
  show(paths, stage, chosen, elsewhere) {
    this.bar.hidden = this.room.hidden = false;
    this.runs.hidden = paths.length < 2;
    this.runs.replaceChildren(
      ...paths.map(({ side, title }) =>
        el("li", { class: RUNS[side] }, el("span", { class: "rg-dot" }), `${"AB"[side]} · `, piece(title)),
      ),
    );
    /** @type {Parameters<MovementView["show"]>} */
    this.shown = [paths, stage, chosen, elsewhere];
    const focused = this.dots().indexOf(/** @type {any} */ (focusedBeside(this.picture)));
    const [{ points }] = paths;
    this.last = points.stages.length - 1;
    const at = stage < 0 ? this.last : Math.min(stage, this.last);
    this.slider.max = String(this.last);
    if (Number(this.slider.value) !== at) this.slider.value = String(at);
    const name = stageName(points.stages[Math.round(at)]);
    this.stageText.textContent = name;
    this.slider.setAttribute("aria-valuetext", name);
    const fit = fitOf(
      paths.flatMap(({ points: { points: all }, axis }) =>
        all.flatMap((places) => axis.flatMap(({ members }) => members.map((t) => places[t]))),
      ),
      this.size,
    );
    const drawn = paths.map((path) => this.drawPath(path, at, fit, chosen));
    this.writeNames(drawn);
    this.picture.replaceChildren(
      ...drawn.map(({ trails }) => trails),
      ...drawn.map(({ dots }) => dots),
      ...drawn.map(({ names }) => names),
    );
    const dots = this.dots();
    const here =
      focused >= 0
        ? focused
        : Math.max(
            0,
            dots.findIndex((dot) => dot.classList.contains("rg-strong")),
          );
    dots[here]?.setAttribute("tabindex", "0");
    if (focused >= 0) dots[focused]?.focus();
    const [first, second] = points.explained;
    this.picture.setAttribute("viewBox", `0 0 ${this.size.width} ${this.size.height}`);
    this.picture.setAttribute("aria-label", `Tokens on a plane, ${name}`);
    this.explained.replaceChildren(
      `The two axes show ${percent(first + second)} of what sets the vectors apart (${percent(first)} across, ${percent(second)} up); ${percent(Math.max(0, 1 - first - second))} is not seen. `,
      "All stages share one plane; each is centred on its own mean, for vectors also move together and grow. Near on the plane need not be near in space.",
      elsewhere
        ? " What it is compared with is another model, or has other stages: its vectors stand on a plane of their own. Choose A or B."
        : "",
    );
  }

  /** @param {Path} path @param {number} stage @param {ReturnType<typeof fitOf>} fit @param {Set<number>} chosen */
  drawPath({ points, axis, side }, stage, fit, chosen) {
    const kind = RUNS[side];
    const tokens = axis.map((group) => group.members[0]);
    const mean = (/** @type {number[][]} */ places, /** @type {Group} */ { members }) =>
      fit([0, 1].map((c) => members.reduce((sum, t) => sum + places[t][c], 0) / members.length));
    const now = placesAt(points.points, stage);
    const dots = svg("g", { class: `rg-dots ${kind}` });
    const trails = svg("g", { class: `rg-trails ${kind}` });
    const faint = chosen.size > 0;
    axis.forEach((group, n) => {
      const line = points.points.slice(0, Math.floor(stage) + 1).map((places) => mean(places, group));
      const [x, y] = mean(now, group);
      const strong = group.members.some((t) => chosen.has(t));
      const line2 = [...line, [x, y]].map((point) => point.map((c) => c.toFixed(1)).join(" ")).join("L");
      trails.append(svg("path", { d: `M${line2}`, class: strong ? "rg-strong" : faint ? "rg-faint" : "" }));
      const [x0, y0] = line[0];
      dots.append(svg("circle", { cx: x0.toFixed(1), cy: y0.toFixed(1), r: 2, class: "rg-origin" }));
      dots.append(
        svg(
          "circle",
          {
            cx: x.toFixed(1),
            cy: y.toFixed(1),
            r: strong ? 6 : 4,
            "data-token": tokens[n],
            class: strong ? "rg-strong" : "",
            role: "button",
            tabindex: -1,
            "aria-label": `${"AB"[side]} ${group.label}`,
            "aria-pressed": String(strong),
          },
          svg("title", {}, `${"AB"[side]} ${group.label}`),
        ),
      );
    });
    const names = svg("g", { class: `rg-names ${kind}`, "aria-hidden": "true" });
    if (this.ruler) this.ruler.font = `600 13px ${FONT}`;
    const widthOf = (/** @type {string} */ text) => this.ruler?.measureText(text).width ?? 7 * text.length;
    const wanted = axis.map((group, n) => {
      const [x, y] = mean(now, group);
      return {
        x,
        y,
        width: widthOf(group.label),
        token: tokens[n],
        text: group.label,
        strong: chosen.has(tokens[n]),
        into: names,
      };
    });
    return { trails, dots, names, wanted };
  }

  /** @param {{ wanted: { x: number, y: number, width: number, token: number, text: string, strong: boolean, into: SVGElement }[] }[]} drawn */
  writeNames(drawn) {
    const all = drawn
      .flatMap(({ wanted }) => wanted)
      .sort((a, b) => Number(b.strong) - Number(a.strong))
      .slice(0, MOST_NAMES);
    placedNames(all, this.size).forEach((at, n) => {
      const { token, text, strong, into } = all[n];
      if (at)
        into.append(
          svg(
            "text",
            { x: at.x.toFixed(1), y: at.y.toFixed(1), class: strong ? "rg-strong" : "", "data-token": token },
            text,
          ),
        );
    });
  }

  /** @returns {SVGElement[]} those that can be chosen */
  dots() {
    return /** @type {SVGElement[]} */ ([...this.picture.querySelectorAll("circle[data-token]")]);
  }

  /** From token to token. @param {KeyboardEvent} event */
  walk(event) {
    const dots = this.dots();
    const here = dots.indexOf(/** @type {any} */ (event.target));
    if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1 }[event.key];
    if (next !== undefined) {
      const to = dots[(next + dots.length) % dots.length];
      dots[here].setAttribute("tabindex", "-1");
      to.setAttribute("tabindex", "0");
      to.focus();
    } else if (event.key === "Enter" || event.key === " ")
      this.doings.choose(Number(dots[here].getAttribute("data-token")));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  run() {
    if (this.timer) return this.stop();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const last = this.last ?? 0;
    let at = Number(this.slider.value) >= last ? 0 : Number(this.slider.value);
    let before = performance.now();
    this.play.textContent = "Pause";
    this.doings.stage(at);
    const tick = (/** @type {number} */ now) => {
      at = still ? at + 1 : at + (now - before) / 900;
      before = now;
      this.doings.stage(Math.min(last, at));
      if (at >= last) return this.stop();
      later();
    };
    const later = () =>
      (this.timer = still ? setTimeout(() => tick(performance.now()), 900) : requestAnimationFrame(tick));
    later();
  }

  stop() {
    if (this.timer) {
      cancelAnimationFrame(this.timer);
      clearTimeout(this.timer);
    }
    this.timer = undefined;
    this.play.textContent = "Play";
  }
}
