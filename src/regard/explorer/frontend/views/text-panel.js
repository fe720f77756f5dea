// The text beside the map: choose words, and every other is shaded by how much they look at it, or it looks at them.

import { topOf } from "../data/matrix.js";
import { directionOf, visible } from "../data/tokens.js";
import { el, focusedBeside, piece, segmented, setAttribute, setText, svg, toggle } from "../platform/dom.js";
import { colourAt, css, inkOn } from "../render/colormap.js";
import { digits } from "../render/format.js";
import { placeOn } from "../render/scale.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {{ groups: Group[], text: string, shares: Float32Array | null, chosen: Set<number>, pinned: Set<number>, found: Set<number>,
 *   scale: import("../render/scale.js").Scale, heading: string, theme: import("../render/colormap.js").Theme, decimals: number, state: State }} Read
 *   `shares` has a number for each group, `chosen` are the groups whose numbers these are.
 */

const MOST = 600; // words that stand on the page at a time
const ARCS = 12;
const TOP = 6;

/**
 * Which words stand on the page: all, or as many as may around the chosen one.
 * @param {number} length @param {number} around @param {number} [most]
 */
export function pageOf(length, around, most = MOST) {
  if (length <= most) return { from: 0, to: length };
  const from = Math.max(0, Math.min(length - most, Math.floor((around - most / 3) / 50) * 50));
  return { from, to: from + most };
}

export class Reading {
  /** @param {{ set: (change: Partial<State>) => void, choose: (group: Group, add: boolean) => void, pin: (group: Group) => void }} doings */
  constructor(doings) {
    this.doings = doings;
    this.direction = segmented(
      "Direction",
      [
        { key: "out", title: "Looks at", says: "Where the chosen word looks" },
        { key: "in", title: "Is looked at by", says: "Who looks at the chosen word" },
      ],
      (direction) => doings.set({ direction: /** @type {any} */ (direction) }),
    );
    this.arcs = toggle("Arcs", "Draw lines to the words that get most (A)", (arcs) => doings.set({ arcs }));
    this.clear = el(
      "button",
      { type: "button", class: "rg-quiet", on: { click: () => doings.set({ pins: [] }) } },
      "Unpin all",
    );
    this.note = el("p", { class: "rg-says" });
    this.words = el("div", { class: "rg-words", role: "group", "aria-label": "The text, word by word" });
    this.lines = svg("svg", { class: "rg-arcs", "aria-hidden": "true" });
    this.room = el("div", { class: "rg-text" }, this.lines, this.words);
    this.top = el("ol", { class: "rg-top" });
    this.heading = el("h3", {}, "Most");
    this.node = el(
      "section",
      { class: "rg-reading", "aria-label": "Text" },
      el("div", { class: "rg-bar" }, this.direction.node, this.arcs.node, this.clear),
      this.room,
      this.note,
      this.heading,
      this.top,
    );
    /** @type {Map<number, HTMLElement>} */
    this.chips = new Map();
    /** @type {Group[] | null} */
    this.groups = null;
    this.from = -1;
    /** @type {number | null} */
    this.near = null;
    this.words.addEventListener("click", (event) => {
      const at = placeAt(event);
      if (at === null || !this.groups) return;
      if (event.altKey) doings.pin(this.groups[at]);
      else doings.choose(this.groups[at], event.shiftKey || event.ctrlKey || event.metaKey);
    });
    this.words.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => this.drawArcs()).observe(this.words);
  }

  /** @param {Read} read */
  show(read) {
    const { state, groups, text, chosen } = read;
    this.read = read;
    const [first = 0] = chosen;
    const { from, to } = pageOf(groups.length, first);
    if (this.groups !== groups || this.from !== from) this.lay(groups, from, to, directionOf(text));
    this.direction.show(state.direction);
    this.arcs.box.checked = state.arcs;
    this.clear.hidden = state.pins.length === 0;
    for (const [place, chip] of this.chips) this.paint(chip, place, read);
    const sum = chosen.size > 1 ? `sum over ${chosen.size} words` : "";
    const names = [...chosen]
      .slice(0, 4)
      .map((place) => groups[place]?.label ?? "")
      .join(" + ");
    setText(this.note, this.noteOf(read, from, to, sum));
    this.heading.replaceChildren(...(chosen.size ? [piece(names), ` ${read.heading}`] : ["Choose a word"]));
    this.showTop(read);
    this.drawArcs();
    if (this.near !== first && chosen.size) this.reveal(first);
    this.near = first;
  }

  /** Scroll the text, where it scrolls by itself, to a word. @param {number} place */
  reveal(place) {
    const { room } = this;
    const chip = this.chips.get(place);
    if (!chip || room.scrollHeight <= room.clientHeight) return;
    const [at, box] = [chip.getBoundingClientRect(), room.getBoundingClientRect()];
    if (at.top < box.top || at.bottom > box.bottom) room.scrollTop += at.top - box.top - box.height / 3;
  }

  /** @param {Read} read @param {number} from @param {number} to @param {string} sum */
  noteOf({ groups, chosen, state }, from, to, sum) {
    const parts = /** @type {string[]} */ ([]);
    if (groups.length > to - from) parts.push(`Words ${from + 1} to ${to} of ${groups.length.toLocaleString("en")}.`);
    if (sum) parts.push(`Shaded by the ${sum}.`);
    if (!chosen.size)
      parts.push("Click a word to see where it looks; Shift-click pins several, and their shares are summed.");
    else if (!sum && state.pins.length === 0) parts.push("Shift-click another word to add it.");
    return parts.join(" ");
  }

  /** @param {Group[]} groups @param {number} from @param {number} to @param {"ltr" | "rtl"} direction */
  lay(groups, from, to, direction) {
    const focused = this.words.contains(focusedBeside(this.words))
      ? placeAt({ target: focusedBeside(this.words) })
      : null;
    this.groups = groups;
    this.from = from;
    this.chips.clear();
    const nodes = [];
    for (let place = from; place < to; place++) {
      const group = groups[place];
      const chip = piece(group.label, {
        class: group.special ? "rg-word rg-special" : "rg-word",
        role: "button",
        tabIndex: place === from ? 0 : -1,
        title: visible(group.full.slice(0, 300)),
        data: { place: String(place) },
      });
      this.chips.set(place, chip);
      nodes.push(chip, " ");
    }
    this.words.dir = direction;
    this.words.replaceChildren(...nodes);
    if (focused !== null) (this.chips.get(focused) ?? this.chips.get(from))?.focus({ preventScroll: true });
  }

  /** @param {HTMLElement} chip @param {number} place @param {Read} read */
  paint(chip, place, { shares, scale, theme, chosen, pinned, found, groups, decimals }) {
    const share = shares?.[place] ?? 0;
    const at = placeOn(scale, share);
    if (at === 0) {
      chip.style.removeProperty("background-color");
      chip.style.removeProperty("color");
    } else {
      const colour = colourAt(theme, at);
      chip.style.setProperty("background-color", css(colour));
      chip.style.setProperty("color", inkOn(colour));
    }
    chip.classList.toggle("rg-chosen", chosen.has(place));
    chip.classList.toggle("rg-pinned", pinned.has(place));
    chip.classList.toggle("rg-found", found.has(place));
    setAttribute(chip, "aria-pressed", String(chosen.has(place)));
    setAttribute(
      chip,
      "aria-label",
      `${groups[place].label}${shares ? ` ${digits(share, Math.min(3, decimals))}` : ""}`,
    );
    if (chosen.size && chosen.values().next().value === place) {
      for (const other of this.chips.values()) if (other !== chip && other.tabIndex === 0) other.tabIndex = -1;
      chip.tabIndex = 0;
    }
  }

  /** @param {Read} read */
  showTop({ shares, groups, scale, theme, decimals }) {
    if (!shares) return this.top.replaceChildren();
    const most = Math.max(1e-9, ...topOf(shares, 1).map((n) => Math.abs(shares[n])));
    this.top.replaceChildren(
      ...topOf(shares, TOP)
        .filter((place) => shares[place] !== 0)
        .map((place) =>
          el(
            "li",
            {},
            piece(groups[place].label, { class: "rg-top-word" }),
            el(
              "span",
              { class: "rg-top-bar" },
              el("span", {
                style: {
                  width: `${(100 * Math.abs(shares[place])) / most}%`,
                  "background-color": css(
                    colourAt(
                      theme,
                      Math.max(0.35, Math.abs(placeOn(scale, shares[place]))) * Math.sign(shares[place] || 1),
                    ),
                  ),
                },
              }),
            ),
            el("span", { class: "rg-number" }, digits(shares[place], Math.min(4, decimals))),
          ),
        ),
    );
  }

  drawArcs() {
    this.lines.replaceChildren();
    const read = this.read;
    const wanted = Boolean(read?.state.arcs && read.shares);
    this.room.classList.toggle("rg-under-arcs", wanted);
    if (!read?.shares || !wanted) return;
    const box = this.words.getBoundingClientRect();
    this.lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const middle = (/** @type {HTMLElement} */ chip) => {
      const at = chip.getBoundingClientRect();
      return { x: at.left + at.width / 2 - box.left, y: at.top - box.top + 1 };
    };
    const { shares, state } = read;
    const most = Math.max(1e-9, ...topOf(shares, 1).map((n) => Math.abs(shares[n])));
    for (const from of read.chosen)
      for (const to of topOf(shares, ARCS)) {
        const [a, b] = [this.chips.get(from), this.chips.get(to)];
        const part = Math.abs(shares[to]) / most;
        if (!a || !b || a === b || part < 0.02) continue;
        const [p, q] = [middle(a), middle(b)];
        const lift = Math.min(46, 12 + Math.abs(p.x - q.x) / 6);
        const sign = state.side !== "diff" ? "" : shares[to] < 0 ? "rg-down" : "rg-up";
        this.lines.append(
          svg("path", {
            d: `M${p.x} ${p.y}C${p.x} ${p.y - lift} ${q.x} ${q.y - lift} ${q.x} ${q.y}`,
            class: sign,
            "stroke-width": 0.6 + 3.4 * part,
            opacity: 0.35 + 0.6 * part,
          }),
        );
      }
  }

  /** @param {KeyboardEvent} event */
  walk(event) {
    const at = placeAt(event);
    if (at === null || !this.groups || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.doings.choose(this.groups[at], event.shiftKey);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const next = this.chips.get(at + (event.key === "ArrowRight" ? 1 : -1));
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

/** @param {{ target: EventTarget | null }} event @returns {number | null} */
function placeAt({ target }) {
  const chip = /** @type {HTMLElement} */ (target).closest?.("[data-place]");
  return chip instanceof HTMLElement ? Number(chip.dataset.place) : null;
}
