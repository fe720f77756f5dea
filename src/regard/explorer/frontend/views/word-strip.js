// A text, its words shaded by a number each. The arrow keys move between words.

import { escapeInvisible, textDirection } from "../data/tokens.js";
import { activeElementOf, bidi, el, setAttribute } from "../platform/dom.js";
import { colorAt, textColorOn, toCss } from "../render/colormap.js";
import { scalePosition } from "../render/scale.js";

/**
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {{ groups: Group[], start: number, end: number, text: string, values: ArrayLike<number>, scale: import("../render/scale.js").Scale,
 *   theme: import("../render/colormap.js").Theme, selected: Set<number>, format: (value: number) => string }} StripProps
 *   The words from `start` to `end` are on the page.
 */

const MIN_UNDERLINED = 0.02; // of the largest value

export class WordStrip {
  /** @param {string} name for screen readers @param {{ select: (group: Group) => void, point: (index: number | null) => void }} actions */
  constructor(name, actions) {
    this.actions = actions;
    this.node = el("div", { class: "rg-words rg-strip", role: "group", "aria-label": name });
    /** @type {Map<number, HTMLElement>} */
    this.wordNodes = new Map();
    /** @type {Group[]} */
    this.groups = [];
    this.layoutKey = "";
    const indexOf = (/** @type {Event} */ { target }) => {
      const wordNode = /** @type {HTMLElement} */ (target).closest?.("[data-index]");
      return wordNode instanceof HTMLElement ? Number(wordNode.dataset.index) : null;
    };
    const point = (/** @type {Event} */ event) => actions.point(indexOf(event));
    this.node.addEventListener("pointerover", point);
    this.node.addEventListener("pointerleave", () => actions.point(null));
    this.node.addEventListener("focusin", point);
    this.node.addEventListener("focusout", () => actions.point(null));
    this.node.addEventListener("click", (event) => this.select(indexOf(event)));
    this.node.addEventListener("keydown", (event) => {
      const index = indexOf(event);
      if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") this.select(index);
      else if (event.key === "ArrowRight" || event.key === "ArrowLeft")
        this.focus(index + (event.key === "ArrowRight" ? 1 : -1));
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {number | null} index */
  select(index) {
    if (index !== null) this.actions.select(this.groups[index]);
  }

  /** @param {number} index */
  focus(index) {
    const wordNode = this.wordNodes.get(index);
    if (!wordNode) return;
    for (const other of this.wordNodes.values()) other.tabIndex = other === wordNode ? 0 : -1;
    wordNode.focus();
  }

  /** @param {StripProps} props */
  show({ groups, start, end, text, values, scale, theme, selected, format }) {
    this.layout(groups, start, end, text);
    for (const [index, wordNode] of this.wordNodes) {
      const value = values[index] ?? 0;
      const position = scalePosition(scale, value);
      const color = colorAt(theme, position);
      if (position === 0) for (const name of ["background-color", "color"]) wordNode.style.removeProperty(name);
      else {
        wordNode.style.setProperty("background-color", toCss(color));
        wordNode.style.setProperty("color", textColorOn(color));
      }
      wordNode.classList.toggle("rg-against", scale.signed && value < -MIN_UNDERLINED * scale.max);
      wordNode.classList.toggle("rg-selected", selected.has(index));
      setAttribute(wordNode, "aria-pressed", String(selected.has(index)));
      const { label, full } = groups[index];
      setAttribute(wordNode, "aria-label", `${label} ${format(value)}`);
      setAttribute(wordNode, "title", `${escapeInvisible(full.slice(0, 300))}: ${format(value)}`);
    }
  }

  /** @param {Group[]} groups @param {number} start @param {number} end @param {string} text */
  layout(groups, start, end, text) {
    const key = JSON.stringify([start, end, groups.slice(start, end).map(({ full, special }) => [full, special])]);
    this.groups = groups;
    if (key === this.layoutKey) return;
    this.layoutKey = key;
    const hadFocus = this.node.contains(activeElementOf(this.node));
    const shown = groups.slice(start, end).map(({ label, special }, n) => {
      const wordNode = bidi(label, {
        class: special ? "rg-word rg-special" : "rg-word",
        role: "button",
        tabIndex: n === 0 ? 0 : -1,
        data: { index: String(start + n) },
      });
      return /** @type {const} */ ([start + n, wordNode]);
    });
    this.wordNodes = new Map(shown);
    this.node.dir = textDirection(text);
    this.node.replaceChildren(...shown.flatMap(([, wordNode]) => [wordNode, " "]));
    if (hadFocus) this.focus(start);
  }

  /** Mark the word that is pointed at, here or in another strip. @param {number | null} pointed */
  mark(pointed) {
    for (const [index, wordNode] of this.wordNodes) wordNode.classList.toggle("rg-pointed", index === pointed);
  }
}
