// The text beside the map: select words, and the others are shaded by the attention to or from these.

import { topK } from "../data/matrix.js";
import { textDirection, escapeInvisible } from "../data/tokens.js";
import { el, activeElementOf, bidi, segmented, setAttribute, setText, svg, toggle } from "../platform/dom.js";
import { colorAt, toCss, textColorOn } from "../render/colormap.js";
import { formatFixed } from "../render/format.js";
import { scalePosition } from "../render/scale.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {{ groups: Group[], text: string, picture: import("../data/source.js").Picture | null, weights: Float32Array | null, selected: Set<number>, pinned: Set<number>, found: Set<number>,
 *   scale: import("../render/scale.js").Scale, heading: string, theme: import("../render/colormap.js").Theme, decimals: number, state: State }} TextProps
 *   `weights` has a value for each group: the attention from or to the `selected` ones.
 */

const MAX_WORDS = 600; // on the page at a time
const MAX_ARCS = 12;
const NUM_TOP = 6;

/**
 * Which words are on the page: all, or as many as fit around the selected one.
 * @param {number} length @param {number} center @param {number} [max]
 */
export function visibleRange(length, center, max = MAX_WORDS) {
  if (length <= max) return { start: 0, end: length };
  const start = Math.max(0, Math.min(length - max, Math.floor((center - max / 3) / 50) * 50));
  return { start, end: start + max };
}

export class TextPanel {
  /** @param {{ set: (change: Partial<State>) => void, select: (group: Group, add: boolean) => void, pin: (group: Group) => void }} actions */
  constructor(actions) {
    this.actions = actions;
    this.direction = segmented(
      "Direction",
      [
        { key: "out", title: "Attends to", description: "The attention of the selected word to others" },
        { key: "in", title: "Attended by", description: "The attention of others to the selected word" },
      ],
      (direction) => actions.set({ direction: /** @type {any} */ (direction) }),
    );
    this.arcs = toggle("Arcs", "Draw arcs to the words with the largest weights (A)", (arcs) => actions.set({ arcs }));
    this.clear = el(
      "button",
      { type: "button", class: "rg-button", on: { click: () => actions.set({ pins: [] }) } },
      "Unpin all",
    );
    this.note = el("p", { class: "rg-description" });
    this.words = el("div", { class: "rg-words", role: "group", "aria-label": "The text, word by word" });
    this.lines = svg("svg", { class: "rg-arcs", "aria-hidden": "true" });
    this.container = el("div", { class: "rg-text" }, this.lines, this.words);
    this.top = el("ol", { class: "rg-top" });
    this.heading = el("h3", {}, "Most");
    this.node = el(
      "section",
      { class: "rg-text-panel", "aria-label": "Text" },
      el("div", { class: "rg-bar" }, this.direction.node, this.arcs.node, this.clear),
      this.container,
      this.note,
      this.heading,
      this.top,
    );
    /** @type {Map<number, HTMLElement>} */
    this.wordNodes = new Map();
    /** @type {Group[] | null} */
    this.groups = null;
    this.start = -1;
    /** @type {number | null} */
    this.lastSelected = null;
    this.words.addEventListener("click", (event) => {
      const index = indexAt(event);
      if (index === null || !this.groups) return;
      if (event.altKey) actions.pin(this.groups[index]);
      else actions.select(this.groups[index], event.shiftKey || event.ctrlKey || event.metaKey);
    });
    this.words.addEventListener("keydown", (event) => this.onKeydown(event));
    new ResizeObserver(() => this.drawArcs()).observe(this.words);
  }

  /** @param {TextProps} props */
  show(props) {
    const { state, groups, text, selected } = props;
    this.props = props;
    const [first = 0] = selected;
    const { start, end } = props.picture ? { start: 0, end: groups.length } : visibleRange(groups.length, first);
    if (this.groups !== groups || this.start !== start)
      this.layout(groups, start, end, textDirection(text), props.picture);
    this.direction.show(state.direction);
    this.arcs.box.checked = state.arcs;
    this.clear.hidden = state.pins.length === 0;
    for (const [index, wordNode] of this.wordNodes) this.paintWord(wordNode, index, props);
    const sum = selected.size > 1 ? `sum over ${selected.size} words` : "";
    const names = [...selected]
      .slice(0, 4)
      .map((index) => groups[index]?.label ?? "")
      .join(" + ");
    setText(this.note, this.noteMessage(props, start, end, sum));
    this.heading.replaceChildren(...(selected.size ? [bidi(names), ` ${props.heading}`] : ["Choose a word"]));
    this.showTop(props);
    this.drawArcs();
    if (this.lastSelected !== first && selected.size) this.reveal(first);
    this.lastSelected = first;
  }

  /** Scroll the panel to a word, if it scrolls. @param {number} index */
  reveal(index) {
    const { container } = this;
    const wordNode = this.wordNodes.get(index);
    if (!wordNode || container.scrollHeight <= container.clientHeight) return;
    const [position, box] = [wordNode.getBoundingClientRect(), container.getBoundingClientRect()];
    if (position.top < box.top || position.bottom > box.bottom)
      container.scrollTop += position.top - box.top - box.height / 3;
  }

  /** @param {TextProps} props @param {number} start @param {number} end @param {string} sum */
  noteMessage({ groups, selected, state }, start, end, sum) {
    const parts = /** @type {string[]} */ ([]);
    if (groups.length > end - start)
      parts.push(`Words ${start + 1} to ${end} of ${groups.length.toLocaleString("en")}.`);
    if (sum) parts.push(`Shaded by the ${sum}.`);
    if (!selected.size)
      parts.push("Click a word to see what it attends to; Shift-click pins several, and their weights are summed.");
    else if (!sum && state.pins.length === 0) parts.push("Shift-click another word to add it.");
    return parts.join(" ");
  }

  /** @param {Group[]} groups @param {number} start @param {number} end @param {"ltr" | "rtl"} direction
   * @param {import("../data/source.js").Picture | null} picture  whose patches the words are */
  layout(groups, start, end, direction, picture) {
    const focused = this.words.contains(activeElementOf(this.words))
      ? indexAt({ target: activeElementOf(this.words) })
      : null;
    this.groups = groups;
    this.start = start;
    this.wordNodes.clear();
    const nodes = [];
    const patches = picture && patchGrid(picture);
    for (let index = start; index < end; index++) {
      const group = groups[index];
      const wordNode = bidi(group.label, {
        class: group.special ? "rg-word rg-special" : "rg-word",
        role: "button",
        tabIndex: index === start ? 0 : -1,
        title: escapeInvisible(group.full.slice(0, 300)),
        data: { index: String(index) },
      });
      this.wordNodes.set(index, wordNode);
      const place = patches && /^r(\d+)c(\d+)$/.exec(group.full);
      if (!place) nodes.push(wordNode, " ");
      else {
        wordNode.classList.add("rg-patch");
        wordNode.style.gridArea = `${Number(place[1]) + 1} / ${Number(place[2]) + 1}`;
        wordNode.replaceChildren();
        patches.append(wordNode);
      }
    }
    if (patches) nodes.push(patches);
    this.words.dir = direction;
    this.words.replaceChildren(...nodes);
    if (focused !== null) (this.wordNodes.get(focused) ?? this.wordNodes.get(start))?.focus({ preventScroll: true });
  }

  /** @param {HTMLElement} wordNode @param {number} index @param {TextProps} props */
  paintWord(wordNode, index, { weights, scale, theme, selected, pinned, found, groups, decimals }) {
    const weight = weights?.[index] ?? 0;
    const position = scalePosition(scale, weight);
    if (position === 0) {
      wordNode.style.removeProperty("background-color");
      wordNode.style.removeProperty("color");
    } else {
      const color = colorAt(theme, position);
      wordNode.style.setProperty("background-color", toCss(color));
      wordNode.style.setProperty("color", textColorOn(color));
    }
    wordNode.classList.toggle("rg-selected", selected.has(index));
    wordNode.classList.toggle("rg-pinned", pinned.has(index));
    wordNode.classList.toggle("rg-match", found.has(index));
    setAttribute(wordNode, "aria-pressed", String(selected.has(index)));
    setAttribute(
      wordNode,
      "aria-label",
      `${groups[index].label}${weights ? ` ${formatFixed(weight, Math.min(3, decimals))}` : ""}`,
    );
    if (selected.size && selected.values().next().value === index) {
      for (const other of this.wordNodes.values()) if (other !== wordNode && other.tabIndex === 0) other.tabIndex = -1;
      wordNode.tabIndex = 0;
    }
  }

  /** @param {TextProps} props */
  showTop({ weights, groups, scale, theme, decimals }) {
    if (!weights) return this.top.replaceChildren();
    const max = Math.max(1e-9, ...topK(weights, 1).map((n) => Math.abs(weights[n])));
    this.top.replaceChildren(
      ...topK(weights, NUM_TOP)
        .filter((index) => weights[index] !== 0)
        .map((index) =>
          el(
            "li",
            {},
            bidi(groups[index].label, { class: "rg-top-word" }),
            el(
              "span",
              { class: "rg-top-bar" },
              el("span", {
                style: {
                  width: `${(100 * Math.abs(weights[index])) / max}%`,
                  "background-color": toCss(
                    colorAt(
                      theme,
                      Math.max(0.35, Math.abs(scalePosition(scale, weights[index]))) * Math.sign(weights[index] || 1),
                    ),
                  ),
                },
              }),
            ),
            el("span", { class: "rg-number" }, formatFixed(weights[index], Math.min(4, decimals))),
          ),
        ),
    );
  }

  drawArcs() {
    this.lines.replaceChildren();
    const props = this.props;
    const wanted = Boolean(props?.state.arcs && props.weights);
    this.container.classList.toggle("rg-with-arcs", wanted);
    if (!props?.weights || !wanted) return;
    const box = this.words.getBoundingClientRect();
    this.lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const anchor = (/** @type {HTMLElement} */ wordNode) => {
      const position = wordNode.getBoundingClientRect();
      return { x: position.left + position.width / 2 - box.left, y: position.top - box.top + 1 };
    };
    const { weights, state } = props;
    const max = Math.max(1e-9, ...topK(weights, 1).map((n) => Math.abs(weights[n])));
    for (const start of props.selected)
      for (const end of topK(weights, MAX_ARCS)) {
        const [a, b] = [this.wordNodes.get(start), this.wordNodes.get(end)];
        const part = Math.abs(weights[end]) / max;
        if (!a || !b || a === b || part < 0.02) continue;
        const [p, q] = [anchor(a), anchor(b)];
        const height = Math.min(46, 12 + Math.abs(p.x - q.x) / 6);
        const sign = state.side !== "diff" ? "" : weights[end] < 0 ? "rg-down" : "rg-up";
        this.lines.append(
          svg("path", {
            d: `M${p.x} ${p.y}C${p.x} ${p.y - height} ${q.x} ${q.y - height} ${q.x} ${q.y}`,
            class: sign,
            "stroke-width": 0.6 + 3.4 * part,
            opacity: 0.35 + 0.6 * part,
          }),
        );
      }
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    const index = indexAt(event);
    if (index === null || !this.groups || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.actions.select(this.groups[index], event.shiftKey);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const next = this.wordNodes.get(index + (event.key === "ArrowRight" ? 1 : -1));
      if (next) {
        /** @type {HTMLElement} */ (event.target).tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** A grid over a picture, for its patches. @param {import("../data/source.js").Picture} picture */
function patchGrid({ rows, cols, height, width, pixels }) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height);
  const rgb = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
  for (let n = 0; n < width * height; n++) image.data.set([rgb[3 * n], rgb[3 * n + 1], rgb[3 * n + 2], 255], 4 * n);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  const style = { "--rg-rows": String(rows), "--rg-cols": String(cols), "aspect-ratio": `${width} / ${height}` };
  return el("div", { class: "rg-patches", style }, canvas);
}

/** @param {{ target: EventTarget | null }} event @returns {number | null} */
function indexAt({ target }) {
  const wordNode = /** @type {HTMLElement} */ (target).closest?.("[data-index]");
  return wordNode instanceof HTMLElement ? Number(wordNode.dataset.index) : null;
}
