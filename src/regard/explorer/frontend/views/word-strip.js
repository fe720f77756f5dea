// A text, its words shaded by a number each. The arrow keys move between words.

import { escapeInvisible, textDirection } from "../data/tokens.js";
import {
  activeElementOf,
  bidi,
  closest,
  consume,
  el,
  nextOf,
  onArrows,
  onPoint,
  setAttribute,
  setTabStop,
} from "../platform/dom.js";
import { colorAt, textColorOn, toCss } from "../render/colormap.js";
import { scalePosition } from "../render/scale.js";

const MAX_WORDS = 600; // on the page at a time
const MIN_UNDERLINED = 0.02; // of the largest value

/**
 * Which words are on the page: all, or as many as fit around the selected one.
 * @param {number} length @param {number} center @param {number} [max]
 */
export function visibleRange(length, center, max = MAX_WORDS) {
  if (length <= max) return { start: 0, end: length };
  const start = Math.max(0, Math.min(length - max, Math.floor((center - max / 3) / 50) * 50));
  return { start, end: start + max };
}

/** Shade a word, or leave it plain. @param {HTMLElement} node @param {Theme} theme @param {number} position on the colormap */
export function shade(node, theme, position) {
  const color = colorAt(theme, position);
  node.style.setProperty("background-color", position === 0 ? "" : toCss(color));
  node.style.setProperty("color", position === 0 ? "" : textColorOn(color));
}

export class WordStrip {
  /**
   * @param {string} name for screen readers
   * @param {{ select: (group: Group, event: MouseEvent | KeyboardEvent) => void, point?: (index: number | null) => void }} actions
   */
  constructor(name, { select, point = () => {} }) {
    this.node = el("div", { class: "rg-words", role: "group", "aria-label": name });
    this.wordNodes = /** @type {Map<number, HTMLElement>} */ (new Map());
    this.groups = /** @type {Group[]} */ ([]);
    this.layoutKey = "";
    onPoint(this.node, (target) => point(indexAt(target)));
    const on = (/** @type {string} */ type, /** @type {(index: number | null, event: any) => void} */ listener) =>
      this.node.addEventListener(type, (event) => listener(indexAt(event.target), event));
    on("click", (index, event) => index !== null && select(this.groups[index], event));
    on("keydown", (index, event) => {
      if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key !== "Enter" && event.key !== " ") return;
      select(this.groups[index], event);
      consume(event);
    });
    onArrows(this.node, "[data-index]", (all, from, key) => (/Up|Down/.test(key) ? undefined : nextOf(all, from, key)));
  }

  /** @param {number} index */
  focus(index) {
    const wordNode = this.wordNodes.get(index);
    if (!wordNode) return;
    setTabStop(this.wordNodes.values(), wordNode);
    wordNode.focus();
  }

  /** @param {StripProps} props */
  show(props) {
    const { groups, values, scale, theme, selected, format } = props;
    this.layout(props);
    for (const [index, wordNode] of this.wordNodes) {
      const value = values?.[index] ?? 0;
      const { name, full } = groups[index];
      shade(wordNode, theme, scalePosition(scale, value));
      wordNode.classList.toggle("rg-against", scale.signed && value < -MIN_UNDERLINED * scale.max);
      wordNode.classList.toggle("rg-selected", selected.has(index));
      setAttribute(wordNode, "aria-pressed", String(selected.has(index)));
      setAttribute(wordNode, "aria-label", values ? `${name} ${format(value)}` : name);
      const title = escapeInvisible(full.slice(0, 300));
      setAttribute(wordNode, "title", values ? `${title}: ${format(value)}` : title);
    }
    const [first] = selected;
    if (this.wordNodes.has(first)) setTabStop(this.wordNodes.values(), this.wordNodes.get(first));
  }

  /** @param {StripProps} props */
  layout({ groups, start, end, text, picture = null }) {
    const words = groups.slice(start, end);
    const key = JSON.stringify([start, end, picture?.pixels, words.map(({ full, special }) => [full, special])]);
    this.groups = groups;
    if (key === this.layoutKey) return;
    this.layoutKey = key;
    const focused = activeElementOf(this.node);
    const hadFocus = this.node.contains(focused);
    const focusedIndex = indexAt(focused) ?? start;
    this.wordNodes = new Map(words.map((group, n) => [start + n, wordNodeOf(group, start + n)]));
    const shown = [...this.wordNodes.values()];
    setTabStop(shown, shown[0]);
    this.node.dir = textDirection(text);
    this.node.replaceChildren(...(picture ? overPicture(picture, shown) : shown.flatMap((node) => [node, " "])));
    if (hadFocus) this.focus(this.wordNodes.has(focusedIndex) ? focusedIndex : start);
  }

  /** Mark some words with a class. @param {string} className @param {(index: number) => boolean} isMarked */
  mark(className, isMarked) {
    for (const [index, wordNode] of this.wordNodes) wordNode.classList.toggle(className, isMarked(index));
  }
}

/** @param {Group} group @param {number} index */
function wordNodeOf({ label, special }, index) {
  const className = special ? "rg-word rg-special" : "rg-word";
  return bidi(label, { class: className, role: "button", tabIndex: -1, data: { index: String(index) } });
}

/** Words that are patches in their places over the picture, after those that are not. @param {Picture} picture @param {HTMLElement[]} words */
function overPicture({ rows, cols, height, width, pixels }, words) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height);
  const rgb = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
  for (let n = 0; n < width * height; n++) image.data.set([rgb[3 * n], rgb[3 * n + 1], rgb[3 * n + 2], 255], 4 * n);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  const style = { "--rg-rows": String(rows), "--rg-cols": String(cols), "aspect-ratio": `${width} / ${height}` };
  const grid = el("div", { class: "rg-patches", style }, canvas);
  const others = words.filter((word) => {
    const place = /^r(\d+)c(\d+)$/.exec(word.textContent ?? "");
    if (!place) return true;
    word.classList.add("rg-patch");
    word.style.gridArea = `${Number(place[1]) + 1} / ${Number(place[2]) + 1}`;
    word.replaceChildren();
    grid.append(word);
    return false;
  });
  return [...others.flatMap((word) => [word, " "]), grid];
}

/** The index of the word that an event is on. @param {EventTarget | null} target @returns {number | null} */
function indexAt(target) {
  const wordNode = closest(target, "[data-index]");
  return wordNode && Number(wordNode.dataset.index);
}
