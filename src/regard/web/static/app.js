// The page: one state, the parts that show it, and the questions that follow from a change. Knows its source by its
// interface alone.

import { Aids, Legend } from "./aids.js";
import { Asking } from "./asking.js";
import { CellSteps } from "./cell.js";
import { Edits, Sides } from "./compare.js";
import { chooseWord, keepHead, nextFound, pickCell, pinTokens, turnTheme } from "./doings.js";
import { chooser, el, iconButton, piece, segmented, setAttribute, setText } from "./dom.js";
import { differenceOf, fieldOf, isWhole } from "./field.js";
import { HeadGrid } from "./grid.js";
import { bindingOf, helpDialog } from "./keys.js";
import { bindingsOf, VIEWS } from "./commands.js";
import { MapView } from "./map.js";
import { largest, minus } from "./matrix.js";
import { MovementView } from "./movement.js";
import { sharesOf } from "./numbers.js";
import { numberAt } from "./paint.js";
import { Reading } from "./reading.js";
import { saveView } from "./saving.js";
import { decimalsAfter, digits, significant } from "./scale.js";
import { decode, encode, FIRST, fitted, sidesOf, Store, whyNoDifference } from "./state.js";
import { axisOf, label, placesOf, search, visible } from "./text.js";

/**
 * @typedef {import("./state.js").State} State
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").Manifest} Manifest
 * @typedef {import("./field.js").Field} Field
 * @typedef {import("./text.js").Group} Group
 */

export class App {
  /** @param {HTMLElement} root @param {Source} source @param {{ address: boolean }} options  `address`: keep the state in the page's */
  constructor(root, source, { address }) {
    this.root = root;
    this.source = source;
    this.address = address;
    this.end = new AbortController();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.asking = new Asking((busy) => (busy ? setAttribute(root, "aria-busy", "true") : root.removeAttribute("aria-busy")), (error) => this.fail(error));
    /** @type {import("./source.js").Cell | null} */
    this.cell = null;
    /** @type {{ key: string, number: number | null }} */
    this.alone = { key: "", number: null };
    /** @type {Field[]} */
    this.fields = [];
    /** @type {Field | null} */
    this.field = null;
    this.written = -Infinity; // when the address was
    this.max = 1;
    this.shown = ""; // which map the fields are
    this.wanted = "";
    /** @type {{ key: string, shares: Float32Array | null }} */
    this.shares = { key: "", shares: null };
    /** @type {import("./compare.js").Edited | null} */
    this.editedAs = null;
    /** @type {{ key: string, rows: Set<number>, cols: Set<number> } | null} */
    this.onAxes = null;
    /** @type {Map<number, { heads: import("./source.js").Heads | null, bytes: Uint8Array | null }>} */
    this.headsOf = new Map();
    /** @type {Map<number, import("./source.js").Movement>} */
    this.movements = new Map();
  }

  async start() {
    this.manifest = await this.source.manifest(this.end.signal);
    this.manifest.given = this.manifest.runs.length;
    const { opening } = this.manifest.runs[0];
    const first = { ...FIRST, ...opening, ...(this.address ? decode(location.hash) : {}) };
    this.store = new Store(fitted(first, this.manifest));
    this.build();
    this.store.subscribe((state) => this.refresh(state));
    this.dark.addEventListener("change", () => this.refresh(this.state), { signal: this.end.signal });
    if (this.address) window.addEventListener("hashchange", () => this.store?.set(fitted({ ...FIRST, ...opening, edited: this.state.edited, ...decode(location.hash) }, this.its)), { signal: this.end.signal });
    this.refresh(this.state);
  }

  close() {
    this.end.abort();
    clearTimeout(this.writing);
    this.asking.close();
    this.movement?.stop();
  }

  get state() {
    return /** @type {Store} */ (this.store).state;
  }

  get its() {
    return /** @type {Manifest} */ (this.manifest);
  }

  /** @returns {import("./colour.js").Theme} */
  get theme() {
    return this.state.theme === "auto" ? (this.dark.matches ? "dark" : "light") : this.state.theme;
  }

  sides() {
    return sidesOf(this.state, this.its);
  }

  /** The run, layer and head that is seen; of a difference, A. */
  here() {
    const sides = this.sides();
    return sides[this.state.side === "B" ? sides.length - 1 : 0];
  }

  run() {
    return this.its.runs[this.here().run];
  }

  // Building

  build() {
    const set = (/** @type {Partial<State>} */ change) => this.set(change);
    this.grid = new HeadGrid(this.its, { set, choose: ({ layer, head }, open) => set({ layer, head, ...(open ? { view: "head" } : {}) }) });
    const liveId = this.address ? "rg-live" : `rg-live-${Math.random().toString(36).slice(2)}`;
    this.map = new MapView({
      pick: (row, col) => pickCell(this, row, col),
      open: () => set({ view: "cell" }),
      look: (zoom) => set({ zoom }),
      tell: (row, col, value) => this.sentence(row, col, value),
    }, liveId);
    this.reading = new Reading({ set, choose: (group, add) => chooseWord(this, group, add), pin: (group) => pinTokens(this, group.members) });
    this.steps = new CellSteps();
    this.movement = new MovementView({ stage: (stage) => set({ stage }), choose: (token) => set({ row: token }) });
    this.aids = new Aids(set);
    this.legend = new Legend();
    this.compare = new Sides((side) => set({ side }));
    this.edits = new Edits({
      edit: (ablate) => this.source.edit(ablate, this.end.signal),
      shown: (edited) => this.edited(edited),
      failed: (error) => this.fail(error),
    });
    this.tabs = segmented("View", VIEWS, (view) => set({ view: /** @type {any} */ (view) }));
    this.tabs.node.classList.add("rg-tabs");
    this.ways = segmented("What the map shows", this.its.ways, (way) => set({ way }));
    this.waySays = el("p", { class: "rg-says rg-way" });
    this.keep = el("button", { type: "button", class: "rg-quiet", on: { click: () => keepHead(this) } }, "Compare with another head");
    this.title = el("h2", {});
    this.layer = chooser("Layer", [], (layer) => set({ layer: Number(layer) }));
    this.head = chooser("Head", [], (head) => set({ head: head === "mean" ? "mean" : Number(head) }));
    this.text = el("p", { class: "rg-title" });
    this.readout = el("p", { class: "rg-readout" });
    this.live = el("p", { id: liveId, class: "rg-unseen", "aria-live": "polite" });
    this.proof = el("p", { class: "rg-proof" });
    this.problem = el("p", { class: "rg-error", role: "alert", hidden: true });
    this.query = el("input", { type: "search", placeholder: "Find a word", "aria-label": "Find a word in the text", class: "rg-search", on: { input: () => set({ query: this.query?.value ?? "" }), keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && nextFound(this, event.shiftKey ? -1 : 1) } });
    this.found = el("span", { class: "rg-muted rg-found-count", role: "status" });
    this.help = helpDialog(bindingsOf(this));
    const save = (/** @type {string} */ title, /** @type {() => void} */ act) => el("button", { type: "button", class: "rg-item", on: { click: () => { act(); saving.open = false; } } }, title);
    const saving = el("details", { class: "rg-menu" }, el("summary", {}, "Save"), el("div", { class: "rg-panel rg-panel-narrow" }, save("As SVG", () => saveView(this, "svg")), save("As PNG", () => saveView(this, "png")), save("As CSV", () => saveView(this, "csv"))));
    const menus = [this.aids.node, saving];
    for (const menu of menus) menu.addEventListener("toggle", () => menu.open && menus.forEach((other) => other !== menu && (other.open = false)));
    document.addEventListener("pointerdown", (event) => menus.forEach((menu) => menu.contains(/** @type {Node} */ (event.target)) || (menu.open = false)), { signal: this.end.signal });
    const header = el(
      "header",
      { class: "rg-header" },
      el("h1", { class: "rg-mark" }, "regard"),
      this.text,
      this.tabs.node,
      el("div", { class: "rg-tools" }, this.query, this.found, this.aids.node, saving, iconButton("Light or dark (D)", "◐", () => turnTheme(this)), iconButton("Keys (?)", "?", () => this.help?.showModal())),
    );
    const headPanel = el(
      "section",
      { class: "rg-one", "aria-label": "One head" },
      el("div", { class: "rg-one-head" }, this.title, el("label", { class: "rg-field" }, el("span", {}, "Layer"), this.layer), el("label", { class: "rg-field" }, el("span", {}, "Head"), this.head), this.ways.node),
      el("div", { class: "rg-bar rg-compare" }, this.compare.node, this.keep, ...(this.its.can.edit ? [this.edits.turn, this.edits.reset, this.edits.busy] : [])),
      this.map.node,
      el("div", { class: "rg-under" }, this.readout, this.legend.node),
      this.waySays,
    );
    this.side = el("div", { class: "rg-side" }, this.reading.node, this.edits.panel);
    this.main = el("main", { class: "rg-main" }, this.grid.node, headPanel, this.side, this.steps.node, this.movement.node);
    this.root.replaceChildren(header, this.problem, this.main, el("footer", { class: "rg-footer" }, this.proof), this.live, this.help);
    const press = (/** @type {KeyboardEvent} */ event) => {
      const binding = bindingOf(bindingsOf(this), event);
      if (!binding || this.help?.open) return;
      binding.act(event.key);
      event.preventDefault();
      event.stopPropagation();
    };
    this.root.addEventListener("keydown", press);
    if (this.address) document.addEventListener("keydown", (event) => event.target === document.body && press(event), { signal: this.end.signal });
  }

  // Doings

  /** @param {Partial<State>} change */
  set(change) {
    const before = this.state;
    const moves = ["layer", "head", "run", "kept", "side", "from", "to", "edited"].some((name) => name in change);
    this.store?.set(moves ? fitted({ ...before, ...change }, this.its) : change);
  }

  /** Where the cell stands in the field. */
  cursor() {
    const { row, col } = this.state;
    const at = (/** @type {number | null} */ token, /** @type {Group[]} */ axis) => {
      const place = token === null ? -1 : axis.findIndex(({ members }) => members.includes(token));
      return place < 0 ? null : place;
    };
    return this.field ? { row: at(row, this.field.rows), col: at(col, this.field.cols) } : { row: null, col: null };
  }

  /** @param {import("./source.js").Edited | null} edited */
  edited(edited) {
    this.editedAs = edited;
    if (edited) this.its.runs[edited.run] = edited.entry;
    this.set({ edited: edited?.run ?? null, kept: null, side: edited ? "diff" : "A" });
    this.refresh(this.state);
  }

  // Showing

  /** @param {State} state */
  refresh(state) {
    const { theme } = this;
    if (this.root.dataset.theme !== theme) this.root.dataset.theme = theme;
    if (this.address) {
      document.documentElement.dataset.theme = theme;
      this.writeAddress();
      document.title = `${this.its.title} · regard`;
    }
    if (this.main && this.main.dataset.view !== state.view) {
      this.main.dataset.view = state.view;
      this.fail(null);
      if (state.view !== "movement") this.movement?.stop();
    }
    this.tabs?.show(state.view);
    const whole = isWhole(state, this.run().layers[this.here().layer]);
    this.ways?.show(state.way, (key) => key === "raw" || whole || this.its.can.tiles);
    this.aids?.update(state, this.run().tokens.length, whole);
    this.compare?.update(state, this.its, this.sides(), whyNoDifference(state, this.its));
    this.edits?.update(state);
    this.learnHeads(this.here().run);
    this.grid?.update(state, theme);
    this.showHeadings(state);
    this.loadField(state);
    this.showField();
    this.loadShares(state);
    this.loadCell(state);
    this.loadMovement(state);
    if (this.editedAs) this.edits?.tell(this.editedAs, this.its.runs[0], theme);
  }

  /** Put the state into the address, ten times a second at most: browsers refuse more. */
  writeAddress() {
    clearTimeout(this.writing);
    const write = () => {
      this.written = performance.now();
      const hash = `#${encode(this.state)}`;
      if (location.hash !== hash) history.replaceState(null, "", hash);
    };
    if (performance.now() - this.written > 100) write();
    else this.writing = setTimeout(write, 100);
  }

  /** @param {State} state */
  showHeadings(state) {
    const here = this.here();
    const run = this.run();
    const way = this.its.ways.find(({ key }) => key === state.way);
    if (!this.title || !this.layer || !this.head || !this.text || !this.query) return;
    setText(this.title, `Layer ${here.layer} · ${here.head === "mean" ? "mean of heads" : `Head ${here.head}`}`);
    options(this.layer, run.layers.map((_, n) => String(n)), String(state.layer));
    const { heads } = this.its.runs[state.run].layers[state.layer];
    options(this.head, [...Array.from({ length: heads }, (_, n) => String(n)), "mean"], String(state.head));
    this.text.replaceChildren(el("span", { class: "rg-model" }, run.model), " ", piece(label(run.text.replace(/\s+/g, " "), 90), { title: visible(run.text.slice(0, 600)) }));
    if (this.waySays && way) {
      setText(this.waySays, `${way.says} ${way.not}`);
      this.waySays.title = way.source;
    }
    if (this.keep) {
      setText(this.keep, state.kept ? "Stop comparing" : "Compare with another head");
      this.keep.hidden = !state.kept && this.sides().length > 1;
    }
    if (document.activeElement !== this.query) this.query.value = state.query;
    const found = search(run.tokens, state.query);
    if (this.found) setText(this.found, state.query ? `${found.length} found` : "");
    const { row_sum_error } = run.layers[here.layer];
    const parts = [
      this.its.computed,
      row_sum_error === null || row_sum_error === undefined ? null : `rows sum to 1 within ${significant(row_sum_error)}`,
      this.its.digits === null ? "weights as computed, in float32" : `weights exact to ${this.its.digits} decimals`,
      run.sampled ? `measures and thumbnails from ${run.sampled} rows` : null,
    ];
    if (this.proof) setText(this.proof, parts.filter(Boolean).join("  ·  "));
  }

  /** @param {Error | null} error */
  fail(error) {
    if (!this.problem || this.end.signal.aborted) return;
    this.problem.hidden = error === null;
    setText(this.problem, error?.message ?? "");
  }

  /** @param {State} state */
  loadField(state) {
    const sides = this.sides();
    const { way, words, special, byRow, pool, from, to } = state;
    const key = JSON.stringify([sides, way, words, special, byRow, pool, from, to]);
    this.wanted = key;
    this.asking.ask("field", key, async (signal) => {
      const around = { signal, arrived: () => this.map?.draw(), failed: (/** @type {Error} */ error) => this.fail(error) };
      return Promise.all(sides.map((side) => fieldOf(this.source, this.its, state, side, around)));
    }, (fields) => {
      this.shown = key;
      for (const { pyramid } of this.fields) pyramid.forget(new Set());
      this.fields = fields;
      this.max = Math.max(...fields.map(({ pyramid }) => pyramid.max)) || 1;
      this.difference = fields.length > 1 && whyNoDifference(this.state, this.its) === null && fields[0].rows.length === fields[1].rows.length && fields[0].cols.length === fields[1].cols.length ? differenceOf(fields[0], fields[1], pool) : null;
      this.showField();
      this.loadShares(this.state);
    });
  }

  /** @returns {import("./scale.js").Scale} */
  scale() {
    return { kind: this.state.log ? "log" : "linear", max: this.max, signed: this.state.side === "diff" };
  }

  /** How many decimals are known of what is shown. @param {number} [terms] numbers that were summed */
  decimals(terms = 1) {
    const { words, side, way, byRow } = this.state;
    if (this.its.digits === null) return 6;
    const pieces = words && this.field ? this.field.cols.reduce((most, { members }) => Math.max(most, members.length), 1) : 1;
    const known = decimalsAfter(this.its.digits, terms * pieces * (side === "diff" ? 2 : 1) * (way === "norms" ? Math.max(10, 2 * this.max) : 1));
    return byRow ? Math.min(2, known) : known;
  }

  showField() {
    const { state } = this;
    const isDifference = state.side === "diff" && this.difference;
    const field = isDifference ? this.difference : this.fields[state.side === "B" ? this.fields.length - 1 : 0];
    if (!field || !this.map) return;
    if (this.field !== field) this.onAxes = null;
    this.field = field;
    const cursor = this.cursor();
    const found = search(this.run().tokens, state.query);
    const key = JSON.stringify([state.query, state.side]);
    if (this.onAxes?.key !== key) {
      const on = (/** @type {Group[]} */ axis) => {
        const places = placesOf(axis, this.run().tokens.length);
        return new Set(found.map((i) => places[i]).filter((place) => place >= 0));
      };
      this.onAxes = { key, rows: on(field.rows), cols: on(field.cols) };
    }
    const scale = { ...this.scale(), signed: Boolean(isDifference) };
    const layer = this.run().layers[this.here().layer];
    this.map.show({
      field, scale, theme: this.theme, decimals: this.decimals(), ...cursor,
      rowsFound: this.onAxes.rows, colsFound: this.onAxes.cols,
      causal: layer.causal && !state.words && state.way === "raw" && field.rows.length === field.cols.length,
      view: state.zoom,
    });
    setAttribute(this.map.stage, "aria-label", `Map of attention, ${field.rows.length} rows that look, ${field.cols.length} columns that are looked at. Arrow keys move the cell.`);
    this.legend?.update(scale, this.theme, this.legendSays(Boolean(isDifference)));
    this.tellCell(cursor);
  }

  /** @param {boolean} isDifference */
  legendSays(isDifference) {
    const { state } = this;
    const what = state.byRow ? "share of the row's largest" : state.way === "norms" ? "length of what is handed over" : state.way === "rollout" ? "share of the vector" : "weight";
    const parts = [isDifference ? `${what} in A minus ${what} in B: blue where A looks more, brown where B does` : what];
    if (state.log) parts.push("in powers of ten");
    return parts.join(", ");
  }

  /** @param {{ row: number | null, col: number | null }} cursor */
  tellCell({ row, col }) {
    if (!this.readout || !this.live || !this.field) return;
    if (row === null || col === null) {
      setText(this.readout, "Rows look, columns are looked at. Choose a cell.");
      return;
    }
    if (this.shown !== this.wanted) return setText(this.readout, this.sentence(row, col, null)); // the numbers are still those of before
    const say = (/** @type {number | null} */ value) => {
      const sentence = this.sentence(row, col, value);
      if (this.readout) setText(this.readout, sentence);
      if (this.live && value !== null) setText(this.live, `${sentence}. ${this.title?.textContent ?? ""}`);
    };
    const value = numberAt(this.field.pyramid, row, col);
    const key = JSON.stringify([this.here(), this.state.way, this.state.row, this.state.col, this.state.side]);
    say(value ?? (this.alone.key === key ? this.alone.number : null));
    if (value !== null) return;
    this.asking.ask("number", key, (signal) => this.oneNumber(signal), (number) => {
      this.alone = { key, number };
      say(number);
    });
  }

  /** A number where only an overview is there. @param {AbortSignal} signal */
  async oneNumber(signal) {
    const { row, col, way } = this.state;
    if (row === null || col === null) return null;
    const part = { way, row0: row, row1: row + 1, col0: col, col1: col + 1, rows: 1, cols: 1, pool: /** @type {"max"} */ ("max") };
    const sides = this.state.side === "diff" ? this.sides() : [this.here()];
    const numbers = await Promise.all(sides.map(({ run, layer, head }) => this.source.tile(run, layer, head, part, signal)));
    return numbers.length > 1 ? numbers[0][0] - numbers[1][0] : numbers[0][0];
  }

  /** @param {number} row @param {number} col @param {number | null} value */
  sentence(row, col, value) {
    const [one, other] = [this.field?.rows[row], this.field?.cols[col]];
    if (!one || !other) return "";
    const number = value === null ? "…" : digits(value, this.decimals());
    const hidden = this.field?.hidden ? `; ${digits(this.field.hidden[row], 3)} of this row is hidden` : "";
    const verb = this.state.way === "rollout" ? "holds of" : this.state.way === "norms" ? "takes from" : "looks at";
    return `\u2068${one.label}\u2069 ${verb} \u2068${other.label}\u2069${this.state.side === "diff" ? ", A − B" : ""}: ${number}${hidden}`;
  }

  /** @param {State} state */
  loadShares(state) {
    if (!this.reading || !this.field) return;
    const out = state.direction === "out";
    const [own, axis] = out ? [this.field.rows, this.field.cols] : [this.field.cols, this.field.rows];
    const here = out ? state.row : state.col;
    const tokens = state.pins.length ? state.pins : here === null ? [] : [here];
    const isDifference = state.side === "diff" && Boolean(this.difference);
    const sides = isDifference ? this.sides() : [this.here()];
    const places = new Set(tokens.map((i) => own.findIndex(({ members }) => members.includes(i))).filter((place) => place >= 0));
    const groups = [...places].map((place) => own[place]);
    const key = JSON.stringify([sides, state.way, state.words, state.special, state.from, state.to, out, [...places], axis.length]);
    const show = () => this.showReading(axis);
    if (groups.length === 0) {
      this.shares = { key, shares: null };
      this.asking.forget("shares");
      return show();
    }
    if (this.shares.key === key) return show();
    this.asking.ask("shares", key, async (signal) => {
      const all = await Promise.all(sides.map((side) => sharesOf(this.source, side, groups, axis, state.direction, state.way, signal)));
      return all.length > 1 ? minus(all[0], all[1]) : all[0];
    }, (shares) => {
      this.shares = { key, shares };
      show();
    });
    if (this.shares.shares?.length !== axis.length) this.shares = { key: "", shares: null };
    show();
  }

  /** @param {Group[]} axis words that are shaded */
  showReading(axis) {
    const { state } = this;
    const out = state.direction === "out";
    const here = out ? state.row : state.col;
    const length = this.run().tokens.length;
    const places = placesOf(axis, length);
    const on = (/** @type {number[]} */ tokens) => new Set(tokens.map((i) => places[i]).filter((place) => place >= 0));
    const { shares } = this.shares;
    this.reading?.show({
      groups: axis, shares, chosen: on(state.pins.length ? state.pins : here === null ? [] : [here]), pinned: on(state.pins),
      found: on(search(this.run().tokens, state.query)),
      scale: { kind: state.log ? "log" : "linear", max: shares ? largest(shares) || 1 : 1, signed: state.side === "diff" },
      theme: this.theme, decimals: this.decimals(Math.max(1, state.pins.length)), state,
    });
  }

  /** @param {State} state */
  loadCell(state) {
    if (state.view !== "cell" || !this.steps) return;
    const { run, layer, head } = this.here();
    if (state.row === null || state.col === null) return this.steps.say("Choose a cell of the map: its weight is computed here step by step.");
    if (head === "mean") return this.steps.say("The mean of heads has no steps of its own: choose one head.");
    const { row, col } = state;
    const its = this.its.runs[run];
    const { heads, kv_heads, rows, cols } = its.layers[layer];
    if (row >= rows || col >= cols) return this.steps.say("This text is shorter: it has no such cell.");
    this.asking.ask("cell", JSON.stringify([run, layer, head, row, col]), (signal) => this.source.cell(run, layer, head, row, col, signal), (cell) => {
      this.cell = cell;
      this.steps?.show(cell, { from: its.tokens[row].text, to: its.tokens[col].text, layer, head, heads, kvHeads: kv_heads, decimals: this.decimals() });
    }, (error) => this.steps?.say(error.message));
  }

  /** @param {State} state */
  loadMovement(state) {
    if (state.view !== "movement" || !this.movement) return;
    const runs = this.sides().map(({ run }) => run).filter((run, n, all) => all.indexOf(run) === n && this.its.runs[run].movement);
    if (runs.length === 0) return this.fail(new Error("This trace did not record what tokens become: their movement is not known."));
    this.asking.ask("movement", JSON.stringify(runs), (signal) => Promise.all(runs.map((run) => this.source.movement(run, signal))), (answers) => {
      this.movements.clear();
      answers.forEach((answer, n) => this.movements.set(runs[n], answer));
      this.showMovement();
    });
    this.showMovement();
  }

  showMovement() {
    const { state } = this;
    if (state.view !== "movement" || this.movements.size === 0) return;
    const wanted = { words: state.words, special: state.special, from: state.from ?? 0, to: state.to ?? Infinity };
    const paths = [...this.movements].map(([run, points]) => ({ points, name: this.its.runs[run].name, axis: axisOf(this.its.runs[run].tokens, this.its.runs[run].text, wanted) }));
    this.movement?.show(paths, state.stage, new Set([...state.pins, ...(state.row === null ? [] : [state.row])]));
  }

  /** Show the heads of a run, as soon as they are known. @param {number} run */
  learnHeads(run) {
    if (!this.grid || this.grid.known.run === run) return;
    const known = this.headsOf.get(run) ?? { heads: null, bytes: null };
    this.grid.learn(run, known.heads, known.bytes);
    if (this.headsOf.has(run)) return;
    this.headsOf.set(run, known);
    const learnt = () => {
      if (this.grid?.known.run !== run) return;
      this.grid.learn(run, known.heads, known.bytes);
      this.grid.update(this.state, this.theme);
    };
    const { signal } = this.end;
    const failed = (/** @type {Error} */ error) => this.fail(error);
    this.source.thumbnails(run, signal).then(({ bytes }) => {
      known.bytes = bytes;
      learnt();
    }, failed);
    this.source.heads(run, signal).then((heads) => {
      known.heads = heads;
      learnt();
    }, failed);
  }
}

/** A list of choices, made anew only where they differ. @param {HTMLSelectElement} list @param {string[]} values @param {string} chosen */
function options(list, values, chosen) {
  const same = list.options.length === values.length && values.every((value, n) => list.options[n].value === value);
  if (!same) list.replaceChildren(...values.map((value) => el("option", { value }, value)));
  list.value = chosen;
}
