// Lines from the words that attend to those that they attend to: a colour for each head, layer after layer.

import { topK } from "../data/matrix.js";
import { activeElementOf, bidi, button, el, onArrows, setTabStop, setText, svg } from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { LINES_WIDTH, linePaths } from "../render/lines.js";

const MAX_HEADS = 8; // of a layer: each has a colour
const NUM_TOLD = 3;
const SPREAD = 0.08; // of a word, between the lines of two heads

export class LinesView {
  /** @param {Refs} refs @param {{ toggleHead: (layer: number, head: Head) => void, pin: (word: Group, isKey: boolean) => void }} actions */
  constructor({ lines, linesReadout, linesNote }, actions) {
    this.node = lines;
    this.readout = linesReadout;
    this.note = linesNote;
    this.actions = actions;
    this.props = /** @type {LinesProps | null} */ (null);
    this.drawings = /** @type {SVGElement[]} */ ([]); // of each layer
    let before = "";
    const point = (/** @type {LineWord | null} */ word) => {
      if (before !== (before = JSON.stringify(word))) this.draw(word);
    };
    for (const type of ["pointerover", "focusin"]) lines.addEventListener(type, ({ target }) => point(wordAt(target)));
    for (const type of ["pointerleave", "focusout"]) lines.addEventListener(type, () => point(null));
    onArrows(lines, ".rg-line-word", nextWord);
  }

  /** @param {string} message  instead of lines */
  showMessage(message) {
    this.props = null;
    this.node.replaceChildren();
    setText(this.note, message);
  }

  /** @param {LinesProps} props */
  show(props) {
    const focused = activeElementOf(this.node)?.getAttribute("data-place");
    this.props = props;
    const { columns, layers, titles, note } = props;
    const most = Math.max(...columns.map(({ length }) => length));
    const viewBox = `0 0 ${LINES_WIDTH} ${most}`;
    this.drawings = layers.map(() => svg("svg", { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" }));
    const parts = columns.flatMap((words, n) => [
      ...(n > 0 ? [this.toggles(layers[n - 1]), this.drawings[n - 1]] : []),
      el("span", { class: "rg-line-title", "aria-hidden": "true" }, titles[n]),
      this.column(words, n, titles[n]),
    ]);
    this.node.replaceChildren(...parts);
    for (const [name, count] of Object.entries({ layers: layers.length, most }))
      this.node.style.setProperty(`--rg-${name}`, String(count));
    const words = /** @type {NodeListOf<HTMLElement>} */ (this.node.querySelectorAll(".rg-line-word"));
    setTabStop(words, this.node.querySelector(".rg-line-word[aria-pressed=true]") ?? words[0]);
    if (focused) /** @type {HTMLElement | null} */ (this.node.querySelector(`[data-place="${focused}"]`))?.focus();
    setText(this.note, note);
    this.draw(wordAt(activeElementOf(this.node)));
  }

  /** The buttons of the heads of a layer. @param {LineLayer} layer */
  toggles({ layer, name, heads, drawn }) {
    const buttons = heads.map((head) => {
      const place = drawn.findIndex((one) => one.head === head);
      const label = head === "mean" ? "mean of heads" : `head ${head}`;
      return button(String(head), () => this.actions.toggleHead(layer, head), {
        class: `rg-line-toggle rg-line-${place}`,
        "aria-label": `${head === "mean" ? "mean" : head}, ${name}, ${label}`,
        "aria-pressed": place >= 0,
        disabled: place < 0 && drawn.length >= MAX_HEADS,
        title: `${name}, ${label}`,
        data: { place: `${layer} ${head}` },
      });
    });
    const group = { class: "rg-line-toggles", role: "group", "aria-label": `Heads of ${name}` };
    return el("div", group, el("span", { class: "rg-muted" }, name), ...buttons);
  }

  /** @param {Group[]} words @param {number} column @param {string} title */
  column(words, column, title) {
    const { pinned, isKey } = /** @type {LinesProps} */ (this.props);
    const buttons = words.map((word, index) => {
      const node = button("", () => this.actions.pin(word, column === 0), {
        class: word.special ? "rg-line-word rg-special" : "rg-line-word",
        "aria-pressed": pinned[column].has(index) && isKey === (column === 0),
        tabIndex: -1,
        data: { place: `${column}.${index}` },
        "aria-label": word.name,
      });
      node.append(bidi(word.label));
      return node;
    });
    return el("div", { class: "rg-line-words", role: "group", "aria-label": title }, ...buttons);
  }

  /** Draw the lines of the word that is pointed at, else of the pinned ones, else all. @param {LineWord | null} pointed */
  draw(pointed) {
    if (!this.props) return;
    const { layers, pinned, isKey, scale } = this.props;
    const hasPins = pinned.some(({ size }) => size > 0);
    layers.forEach(({ drawn }, n) => {
      const isShown = (/** @type {number} */ row, /** @type {number} */ col) =>
        pointed
          ? (pointed.column === n + 1 && pointed.index === row) || (pointed.column === n && pointed.index === col)
          : !hasPins || (isKey ? pinned[n].has(col) : pinned[n + 1].has(row));
      const paths = drawn.flatMap(({ map }, place) =>
        linePaths(map, scale, SPREAD * (place - (drawn.length - 1) / 2), isShown).map((line) =>
          svg("path", { ...line, class: `rg-line-${place}` }),
        ),
      );
      this.drawings[n].replaceChildren(...paths);
    });
    setText(this.readout, pointed ? this.told(pointed) : "");
  }

  /** What a word attends to; of a word on the left, what attends to it. @param {LineWord} word */
  told({ column, index }) {
    const { columns, layers } = /** @type {LinesProps} */ (this.props);
    const isKey = column === 0;
    const { name, drawn } = layers[Math.max(0, column - 1)];
    const others = columns[isKey ? 1 : column - 1];
    const ofHeads = drawn.map(({ head, map: { values, rows, cols } }) => {
      const weights = isKey
        ? Float32Array.from({ length: rows }, (_, row) => values[row * cols + index])
        : values.subarray(index * cols, (index + 1) * cols);
      const told = topK(weights, NUM_TOLD).map((n) => `\u2068${others[n].name}\u2069 ${formatWeight(weights[n])}`);
      return `${head === "mean" ? "mean" : `head ${head}`}: ${told.join(", ")}`;
    });
    const verb = isKey ? "is attended to by" : "attends to";
    return `\u2068${columns[column][index].name}\u2069 ${verb}, ${name.toLowerCase()}, ${ofHeads.join(" · ")}`;
  }
}

/** @param {EventTarget | null} target @returns {LineWord | null} */
function wordAt(target) {
  const node = /** @type {HTMLElement | null} */ (target)?.closest?.(".rg-line-word");
  const [column, index] = node?.getAttribute("data-place")?.split(".").map(Number) ?? [];
  return index === undefined ? null : { column, index };
}

/** The word below or above, or beside in another column. @param {HTMLElement[]} words @param {HTMLElement} from @param {string} key */
function nextWord(words, from, key) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
  const { column, index } = /** @type {LineWord} */ (wordAt(from));
  return words.find((word) => step && word.dataset.place === `${column + step[1]}.${index + step[0]}`);
}
