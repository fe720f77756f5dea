// All heads: a thumbnail for each, in the order of the model or of what they do; rows and columns fold to their mean.

import { chooser, el, focusedBeside, segmented, setAttribute, setText } from "../platform/dom.js";
import { stepOf, tableOf } from "../render/colormap.js";
import { digits } from "../render/format.js";
import { placeOf } from "../state/sides.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/source.js").Manifest} Manifest
 * @typedef {{ layer: number, head: import("../state/state.js").Head }} At
 */

/**
 * The heads in the order of a measure, the largest first; those without a number come last.
 * @param {(number | null)[][]} values L H
 * @returns {{ layer: number, head: number, value: number | null }[]}
 */
export function ranked(values) {
  const all = values.flatMap((row, layer) => row.map((value, head) => ({ layer, head, value })));
  return all.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
}

/** The least and the most of a measure. @param {(number | null)[][]} values */
export function rangeOf(values) {
  const known = values.flat().filter((x) => x !== null);
  return known.length ? { least: Math.min(...known), most: Math.max(...known) } : { least: 0, most: 0 };
}

/**
 * A picture that is the mean of several, each of √ shares as bytes.
 * @param {Uint8Array[]} pictures
 */
export function meanPicture(pictures) {
  const out = new Uint8Array(pictures[0].length);
  for (let n = 0; n < out.length; n++) {
    const mean = pictures.reduce((sum, bytes) => sum + (bytes[n] / 255) ** 2, 0) / pictures.length;
    out[n] = Math.round(255 * Math.sqrt(mean));
  }
  return out;
}

export class HeadGrid {
  /**
   * @param {Manifest} manifest
   * @param {{ choose: (at: At, open: boolean) => void, set: (change: Partial<State>) => void }} doings
   */
  constructor(manifest, doings) {
    this.manifest = manifest;
    this.doings = doings;
    /** @type {{ heads: import("../data/source.js").Heads | null, bytes: Uint8Array | null, run: number }} */
    this.known = { heads: null, bytes: null, run: -1 };
    this.body = el("div", { class: "rg-grid", role: "grid", "aria-label": "All heads" });
    this.measure = chooser("Measure of heads", manifest.measures, (measure) => doings.set({ measure }));
    this.order = segmented(
      "Order of heads",
      [
        { key: "place", title: "By layer" },
        { key: "measure", title: "By measure" },
      ],
      (order) =>
        doings.set({
          order: /** @type {any} */ (order),
          ...(order === "measure" ? { shutLayers: [], shutHeads: [] } : {}),
        }),
    );
    this.least = el("input", {
      type: "range",
      min: "0",
      max: "1",
      step: "0.01",
      "aria-label": "Least of the measure",
      on: { input: () => doings.set({ least: Number(this.least.value) }) },
    });
    this.leastText = el("span", { class: "rg-number" });
    this.fold = segmented(
      "Fold",
      [
        { key: "none", title: "Each head" },
        { key: "layers", title: "Mean of layers", says: "Each layer as the mean of its heads" },
        { key: "heads", title: "Mean of columns", says: "Each column as the mean over layers" },
      ],
      (key) =>
        doings.set({
          shutLayers: key === "layers" ? this.layers().map((_, l) => l) : [],
          shutHeads: key === "heads" ? Array.from({ length: this.width() }, (_, h) => h) : [],
          order: "place",
        }),
    );
    this.says = el("p", { class: "rg-says" });
    this.count = el("span", { class: "rg-muted" });
    this.controls = el(
      "div",
      { class: "rg-bar rg-grid-controls" },
      this.order.node,
      this.fold.node,
      el("label", { class: "rg-field" }, el("span", {}, "Measure"), this.measure),
      el("label", { class: "rg-field" }, el("span", {}, "At least"), this.least, this.leastText),
      this.count,
    );
    this.node = el(
      "section",
      { class: "rg-heads", "aria-label": "All heads" },
      this.controls,
      this.says,
      el("p", { class: "rg-says rg-hint" }, "Click a head to choose it, and again to open it."),
      el("div", { class: "rg-grid-room" }, this.body),
    );
    /** @type {Map<string, HTMLButtonElement>} */
    this.buttons = new Map();
    this.drawn = "";
    this.body.addEventListener("keydown", (event) => this.walk(event));
  }

  layers() {
    return this.manifest.runs[Math.max(0, this.known.run)].layers;
  }

  width() {
    return Math.max(...this.layers().map((layer) => layer.heads));
  }

  /** @param {number} run @param {import("../data/source.js").Heads | null} heads @param {Uint8Array | null} bytes */
  learn(run, heads, bytes) {
    if (this.known.run === run && this.known.heads === heads && this.known.bytes === bytes) return;
    this.known = { run, heads, bytes };
    this.drawn = "";
  }

  /** @param {State} state @param {import("../render/colormap.js").Theme} theme @param {import("../data/tile-source.js").Which[]} sides what is compared, or one */
  update(state, theme, sides) {
    if (this.known.run < 0) return;
    const place = placeOf(state);
    const marks = sides.length > 1 && sides[0].run === sides[1].run ? sides : []; // two heads of one run
    const values = this.known.heads?.measures[state.measure] ?? null;
    const sentence = this.manifest.measures.find(({ key }) => key === state.measure);
    this.order.show(state.order);
    this.fold.show(
      state.shutLayers.length >= this.layers().length
        ? "layers"
        : state.shutHeads.length >= this.width()
          ? "heads"
          : "none",
    );
    this.measure.value = state.measure;
    this.least.value = String(state.least);
    const range = values ? rangeOf(values) : { least: 0, most: 0 };
    const least = range.least + state.least * (range.most - range.least);
    setText(this.leastText, state.least > 0 ? `${digits(least, 2)} ${unitOf(sentence)}` : "any");
    setText(this.says, sentence ? `${sentence.says} ${sentence.not}` : "");
    this.says.title = sentence?.source ?? "";
    const made = JSON.stringify([
      state.order,
      state.shutLayers,
      state.shutHeads,
      state.order === "measure" ? state.measure : "",
      theme,
    ]);
    if (made !== this.drawn) {
      this.drawn = made;
      this.lay(state, theme, values);
    }
    for (const [key, button] of this.buttons) {
      const [layer, head] = key.split(".");
      const value = head === "mean" || layer === "mean" ? null : (values?.[Number(layer)]?.[Number(head)] ?? null);
      const back = state.least > 0 && head !== "mean" && layer !== "mean" && (value === null || value < least);
      button.classList.toggle("rg-back", back);
      const is = (/** @type {At} */ at) => layer === String(at.layer) && head === String(at.head);
      const chosen = is(place);
      button.dataset.side = marks.map((at, n) => (is(at) ? "AB"[n] : "")).join("");
      setAttribute(button, "aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
      const share =
        value === null || range.most === range.least ? 0 : (value - range.least) / (range.most - range.least);
      button.style.setProperty("--rg-share", String(share));
      const block = this.layers()[Number(layer)]?.number;
      const name =
        layer === "mean"
          ? `head ${head}, mean over layers`
          : head === "mean"
            ? `layer ${block}, mean of heads`
            : `layer ${block}, head ${head}`;
      const said = value === null ? name : `${name}, ${sentence?.title ?? ""} ${digits(value, 2)} ${unitOf(sentence)}`;
      const number = value === null ? "" : digits(value, 2);
      const caption = this.body.classList.contains("rg-sorted") ? `L${block} H${head} · ${number || "–"}` : number;
      setAttribute(button, "aria-label", said.includes(caption) ? said : `${caption}, ${said}`);
      button.title = said;
      const written = button.querySelector(".rg-caption");
      if (written) setText(written, caption);
    }
    if (![...this.buttons.values()].some((button) => button.tabIndex === 0)) {
      const [first] = this.buttons.values();
      if (first) first.tabIndex = 0;
    }
    const heads = this.layers().reduce((sum, layer) => sum + layer.heads, 0); // folded ones too
    const reach = (values ?? []).flat().filter((value) => value !== null && value >= least).length;
    setText(this.count, state.least > 0 ? `${reach} of ${heads} heads` : "");
  }

  /** @param {State} state @param {import("../render/colormap.js").Theme} theme @param {(number | null)[][] | null} values */
  lay(state, theme, values) {
    const focused = this.body.contains(focusedBeside(this.body))
      ? focusedBeside(this.body)?.getAttribute("aria-label")
      : null;
    this.buttons.clear();
    const table = tableOf(theme);
    const flat = this.layers().length === 1 && this.width() > 16 ? this.layers()[0] : null; // one long row is read in lines
    const places =
      flat && !state.shutLayers.length ? Array.from({ length: flat.heads }, (_, head) => ({ layer: 0, head })) : null;
    const sorted = state.order === "measure" && values ? ranked(values) : places;
    this.body.classList.toggle("rg-sorted", Boolean(sorted));
    this.body.style.setProperty(
      "--rg-columns",
      String(state.shutLayers.length >= this.layers().length ? 1 : this.width()),
    );
    if (sorted) {
      this.body.replaceChildren(
        el("div", { class: "rg-grid-row", role: "row" }, ...sorted.map((at) => this.cell(at.layer, at.head, table))),
      );
    } else {
      const shut = new Set(state.shutHeads);
      const rows = shut.size >= this.width() ? [] : this.layers().map((_, layer) => this.rowOf(layer, state, table));
      if (shut.size > 0) rows.push(this.meansOfColumns(shut, table));
      this.body.replaceChildren(this.headings(state), ...rows);
    }
    const all = /** @type {NodeListOf<HTMLElement>} */ (this.body.querySelectorAll("button"));
    if (focused)
      (
        [...all].find((button) => button.getAttribute("aria-label") === focused) ??
        [...all].find(({ tabIndex }) => tabIndex === 0)
      )?.focus();
  }

  /** @param {State} state */
  headings(state) {
    const step = this.width() <= 16 ? 1 : Math.ceil(this.width() / 12);
    const turn = (/** @type {number} */ head) => () => this.doings.set({ shutHeads: turned(state.shutHeads, head) });
    return el(
      "div",
      { class: "rg-grid-row rg-grid-heads", role: "row" },
      el("span", { class: "rg-corner", role: "columnheader" }, "layer \\ head"),
      ...Array.from({ length: this.width() }, (_, head) =>
        el(
          "span",
          { role: "columnheader", class: "rg-heading" },
          el(
            "button",
            {
              type: "button",
              tabIndex: -1,
              title: `Head ${head}: show its mean over layers, or each layer`,
              "aria-label": `Fold column ${head}`,
              "aria-pressed": state.shutHeads.includes(head),
              on: { click: turn(head) },
            },
            head % step === 0 ? String(head) : "",
          ),
        ),
      ),
    );
  }

  /** @param {number} layer @param {State} state @param {Uint32Array} table */
  rowOf(layer, state, table) {
    const { heads, number } = this.layers()[layer];
    const shut = state.shutLayers.includes(layer);
    const cells = shut
      ? [this.cell(layer, "mean", table)]
      : Array.from({ length: heads }, (_, head) =>
          state.shutHeads.includes(head) ? el("span", { role: "gridcell" }) : this.cell(layer, head, table),
        );
    return el(
      "div",
      { class: "rg-grid-row", role: "row" },
      el(
        "span",
        { role: "rowheader", class: "rg-heading" },
        el(
          "button",
          {
            type: "button",
            tabIndex: -1,
            title: `Layer ${number}: show the mean of its heads, or each head`,
            "aria-label": `Fold layer ${number}`,
            "aria-pressed": shut,
            on: { click: () => this.doings.set({ shutLayers: turned(state.shutLayers, layer) }) },
          },
          String(number),
        ),
      ),
      ...cells,
    );
  }

  /** @param {Set<number>} shut @param {Uint32Array} table */
  meansOfColumns(shut, table) {
    return el(
      "div",
      { class: "rg-grid-row", role: "row" },
      el("span", { role: "rowheader", class: "rg-heading" }, "mean"),
      ...Array.from({ length: this.width() }, (_, head) =>
        shut.has(head) ? this.cell("mean", head, table) : el("span", { role: "gridcell" }),
      ),
    );
  }

  /** @param {number | "mean"} layer @param {import("../state/state.js").Head} head @param {Uint32Array} table */
  cell(layer, head, table) {
    const canvas = el("canvas", { class: "rg-thumb", "aria-hidden": "true" });
    const side = this.side();
    [canvas.width, canvas.height] = [side, side];
    const bytes = this.bytesOf(layer, head);
    if (bytes) {
      const image = new ImageData(side, side);
      const pixels = new Uint32Array(image.data.buffer);
      bytes.forEach((byte, n) => (pixels[n] = table[stepOf(byte / 255)]));
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    }
    const at = { layer: layer === "mean" ? 0 : layer, head };
    const button = el(
      "button",
      {
        type: "button",
        class: "rg-head",
        role: "gridcell",
        tabIndex: -1,
        disabled: layer === "mean",
        on: { click: () => this.doings.choose(at, button.getAttribute("aria-selected") === "true") },
      },
      canvas,
      el("span", { class: "rg-caption" }),
      el("span", { class: "rg-share" }, el("span")),
    );
    this.buttons.set(`${layer}.${head}`, button);
    return button;
  }

  side() {
    return this.manifest.runs[this.known.run].thumbnail;
  }

  /** @param {number | "mean"} layer @param {import("../state/state.js").Head} head @returns {Uint8Array | null} */
  bytesOf(layer, head) {
    if (!this.known.bytes) return null;
    const [cells, width] = [this.side() ** 2, this.width()];
    const one = (/** @type {number} */ l, /** @type {number} */ h) =>
      /** @type {Uint8Array} */ (this.known.bytes).subarray((l * width + h) * cells, (l * width + h + 1) * cells);
    if (head === "mean")
      return meanPicture(Array.from({ length: this.layers()[Number(layer)].heads }, (_, h) => one(Number(layer), h)));
    if (layer === "mean")
      return meanPicture(this.layers().flatMap(({ heads }, l) => (head < heads ? [one(l, head)] : [])));
    return one(layer, head);
  }

  /** Arrows go from head to head, and to what folds rows and columns. @param {KeyboardEvent} event */
  walk(event) {
    const all = /** @type {HTMLButtonElement[]} */ ([...this.body.querySelectorAll("button:not(:disabled)")]);
    const here = all.indexOf(/** @type {any} */ (focusedBeside(this.body)));
    if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = (/** @type {HTMLElement} */ button) => {
      const { left, right, top, bottom } = button.getBoundingClientRect();
      return { x: (left + right) / 2, y: (top + bottom) / 2 };
    };
    const from = middle(all[here]);
    const below = (/** @type {number} */ way) => {
      const others = all.map((button) => ({ button, ...middle(button) })).filter(({ y }) => (y - from.y) * way > 4);
      const far = (/** @type {{ x: number, y: number }} */ { x, y }) =>
        Math.abs(y - from.y) * 1e4 + Math.abs(x - from.x);
      return others.sort((a, b) => far(a) - far(b))[0]?.button;
    };
    const next = {
      ArrowRight: all[here + 1],
      ArrowLeft: all[here - 1],
      ArrowDown: below(1),
      ArrowUp: below(-1),
      Home: all[0],
      End: all[all.length - 1],
    }[event.key];
    if (next) {
      next.focus();
      if (next.getAttribute("aria-selected") === "false") next.click();
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** @param {import("../data/source.js").Sentence | undefined} sentence */
function unitOf(sentence) {
  return sentence?.unit && sentence.unit !== "share" ? sentence.unit : "";
}

/** A list with a number, or without it where it was there. @param {number[]} list @param {number} n */
export function turned(list, n) {
  return list.includes(n) ? list.filter((x) => x !== n) : [...list, n].sort((a, b) => a - b);
}
