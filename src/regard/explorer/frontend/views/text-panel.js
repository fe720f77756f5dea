// The text beside the map: select words, and the others are shaded by the attention to or from these.

import { topK } from "../data/matrix.js";
import { bidi, el, setText, svg } from "../platform/dom.js";
import { arcPath } from "../render/arcs.js";
import { colorAt, toCss } from "../render/colormap.js";
import { formatFixed, formatWeight } from "../render/format.js";
import { scalePosition } from "../render/scale.js";
import { visibleRange, WordStrip } from "./word-strip.js";

const MAX_ARCS = 12;
const MARGIN_PX = 5; // of the line that arcs take along the text
const NUM_TOP = 6;

export class TextPanel {
  /** @param {Refs} refs @param {{ select: (group: Group, add: boolean) => void, pin: (group: Group) => void }} actions */
  constructor(refs, actions) {
    this.clear = refs.unpin;
    this.note = refs.textNote;
    this.container = refs.textContainer;
    this.heading = refs.topHeading;
    this.top = refs.top;
    this.strip = new WordStrip("The text, word by word", {
      select: (group, event) =>
        event.altKey ? actions.pin(group) : actions.select(group, event.shiftKey || event.ctrlKey || event.metaKey),
    });
    this.lines = svg("svg", { class: "rg-arcs", "aria-hidden": "true" });
    this.container.append(el("div", { class: "rg-over-arcs" }, this.lines, this.strip.node));
    this.lastSelected = /** @type {number | null} */ (null);
    new ResizeObserver(() => this.drawArcs()).observe(this.strip.node);
  }

  /** @param {TextProps} props */
  show(props) {
    const { state, groups, selected, pinned, found, picture, weights, decimals } = props;
    this.props = props;
    const [first = 0] = selected;
    const range = picture ? { start: 0, end: groups.length } : visibleRange(groups.length, first);
    this.clear.hidden = state.pins.length === 0;
    const format = (/** @type {number} */ weight) => formatWeight(weight, decimals);
    this.strip.show({ ...props, ...range, values: weights, format });
    this.strip.mark("rg-pinned", (index) => pinned.has(index));
    this.strip.mark("rg-match", (index) => found.has(index));
    const names = [...selected].slice(0, 4).map((index) => groups[index]?.name ?? "");
    setText(this.note, noteMessage(props, range));
    const heading = selected.size ? [bidi(names.join(" + ")), ` ${props.heading}`] : ["Choose a word"];
    this.heading.replaceChildren(...heading);
    this.showTop(props);
    this.drawArcs();
    if (this.lastSelected !== first && selected.size) this.reveal(first);
    this.lastSelected = first;
  }

  /** Scroll the panel to a word, if it scrolls. @param {number} index */
  reveal(index) {
    const { container } = this;
    const wordNode = this.strip.wordNodes.get(index);
    if (!wordNode || container.scrollHeight <= container.clientHeight) return;
    const [position, box] = [wordNode.getBoundingClientRect(), container.getBoundingClientRect()];
    if (position.top < box.top || position.bottom > box.bottom)
      container.scrollTop += position.top - box.top - box.height / 3;
  }

  /** @param {TextProps} props */
  showTop({ weights, groups, scale, theme, decimals }) {
    const indices = weights ? topK(weights, NUM_TOP).filter((index) => weights[index] !== 0) : [];
    const entries = indices.map((index) => {
      const weight = weights?.[index] ?? 0;
      const width = `${100 * Math.abs(weight / (weights?.[indices[0]] ?? 1))}%`;
      const position = Math.max(0.35, Math.abs(scalePosition(scale, weight))) * Math.sign(weight);
      const bar = el("span", { style: { width, "background-color": toCss(colorAt(theme, position)) } });
      return el(
        "li",
        {},
        bidi(groups[index].name, { class: "rg-top-word" }),
        el("span", { class: "rg-top-bar" }, bar),
        el("span", { class: "rg-number", title: formatFixed(weight, decimals) }, formatWeight(weight, decimals)),
      );
    });
    this.top.replaceChildren(...entries);
  }

  drawArcs() {
    this.lines.replaceChildren();
    const { weights = null, state, selected = new Set() } = this.props ?? {};
    const isShown = Boolean(state?.arcs && weights);
    this.container.classList.toggle("rg-with-arcs", isShown);
    if (!weights || !isShown) return;
    const { wordNodes, node } = this.strip;
    const box = node.getBoundingClientRect();
    const anchor = (/** @type {HTMLElement} */ wordNode) => {
      const position = wordNode.getBoundingClientRect();
      return { x: position.left + position.width / 2 - box.left, y: position.top - box.top + 1 };
    };
    const margin = node.dir === "rtl" ? box.width - MARGIN_PX : MARGIN_PX;
    const strongest = topK(weights, MAX_ARCS);
    for (const start of selected)
      for (const end of strongest) {
        const [a, b] = [wordNodes.get(start), wordNodes.get(end)];
        const part = Math.abs(weights[end] / (weights[strongest[0]] || 1));
        if (!a || !b || a === b || part < 0.02) continue;
        const sign = state?.side !== "diff" ? "" : weights[end] < 0 ? "rg-down" : "rg-up";
        const d = arcPath(anchor(a), anchor(b), margin);
        const style = { "stroke-width": 0.6 + 3.4 * part, opacity: 0.35 + 0.6 * part };
        this.lines.append(svg("path", { d, class: sign, ...style }));
      }
  }
}

/** @param {TextProps} props @param {{ start: number, end: number }} range of words on the page */
function noteMessage({ groups, selected, state }, { start, end }) {
  const isPart = groups.length > end - start;
  return [
    isPart && `Words ${start + 1} to ${end} of ${groups.length.toLocaleString("en")}.`,
    selected.size > 1 && `Shaded by the sum over ${selected.size} words.`,
    selected.size === 0 &&
      "Click a word to see what it attends to; Shift-click pins several, and their weights are summed.",
    selected.size === 1 && state.pins.length === 0 && "Shift-click another word to add it.",
  ]
    .filter(Boolean)
    .join(" ");
}
