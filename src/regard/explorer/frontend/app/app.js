// The page: one state, the parts that show it, and what follows from a change. Knows its source by its interface alone.

import { isWhole } from "../data/map-data.js";
import { largest } from "../data/matrix.js";
import { axisOf, label, placesOf, search, visible } from "../data/tokens.js";
import { el, focusedBeside, piece, setAttribute, setText } from "../platform/dom.js";
import { numberAt } from "../render/map-renderer.js";
import { movedRuns, placeOf, sidesOf, whyNoDifference } from "../state/sides.js";
import { FIRST, fitted } from "../state/state.js";
import { Store } from "../state/store.js";
import { decode, encode } from "../state/url.js";
import { changedMost } from "../views/ablation-panel.js";
import { cellOf, decimalsOf, headingOf, legendOf, mostOf, proofOf } from "../views/messages.js";
import { sideNames } from "../views/side-switch.js";
import { standBy } from "./actions.js";
import { bindingOf, bindingsOf } from "./keybindings.js";
import { laidOut } from "./layout.js";
import { Loading } from "./queries.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/source.js").Source} Source
 * @typedef {import("../data/source.js").Manifest} Manifest
 * @typedef {import("../data/tile-source.js").Field} Field
 * @typedef {import("../data/tokens.js").Group} Group
 */

export class App {
  /**
   * @param {HTMLElement} root @param {Source} source @param {Manifest} manifest
   * @param {{ address: boolean, dark?: import("../platform/color-scheme.js").Dark }} options
   *   `address`: keep the state in the page's; `dark`: whether what is around is
   */
  constructor(root, source, manifest, { address, dark = matchMedia("(prefers-color-scheme: dark)") }) {
    this.root = root;
    this.source = source;
    this.manifest = { ...manifest, given: manifest.runs.length };
    this.address = address;
    this.end = new AbortController();
    this.dark = dark;
    this.paper = matchMedia("print");
    this.first = { ...FIRST, ...manifest.runs[0].opening };
    this.store = new Store(fitted({ ...this.first, ...(address ? decode(location.hash) : {}) }, this.manifest));
    this.loading = new Loading(this);
    /** @type {Field | null} */
    this.field = null; // what the map shows
    /** @type {{ key: string, rows: Set<number>, cols: Set<number> } | null} */
    this.onAxes = null; // where what is searched for stands on it
    this.follows = false; // whether the view goes to what an edit changes
    this.written = -Infinity; // when the address was
    this.viewWritten = this.state.view; // which view it had
    this.parts = laidOut(this);
    this.listen();
    this.refresh(this.state);
  }

  listen() {
    const { signal } = this.end;
    this.store.subscribe((state) => this.refresh(state));
    this.dark.addEventListener("change", () => this.refresh(this.state), { signal });
    this.paper.addEventListener(
      "change",
      () => {
        this.refresh(this.state);
        this.parts.map.drawNow(); // paper waits for no frame
      },
      { signal },
    );
    this.root.addEventListener("keydown", (event) => this.press(event));
    if (!this.address) return;
    document.addEventListener("keydown", (event) => event.target === document.body && this.press(event), { signal });
    window.addEventListener(
      "hashchange",
      () => {
        const state = fitted({ ...this.first, edited: this.state.edited, ...decode(location.hash) }, this.manifest);
        this.viewWritten = state.view;
        this.store.set(state);
      },
      { signal },
    );
  }

  close() {
    this.end.abort();
    clearTimeout(this.writing);
    this.loading.close();
    this.parts.movement.stop();
  }

  get state() {
    return this.store.state;
  }

  /** @returns {import("../render/colormap.js").Theme} */
  get theme() {
    if (this.paper.matches) return "light";
    return this.state.theme === "auto" ? (this.dark.matches ? "dark" : "light") : this.state.theme;
  }

  sides() {
    return sidesOf(this.state, this.manifest);
  }

  /** The run, layer and head that is seen; of a difference, A. */
  here() {
    const sides = this.sides();
    return sides[this.state.side === "B" ? sides.length - 1 : 0];
  }

  run() {
    return this.manifest.runs[this.here().run];
  }

  /** The run of which a choice changes the layer and head. */
  chosenRun() {
    const sides = this.sides();
    return this.manifest.runs[sides[this.state.side === "A" ? 0 : sides.length - 1].run];
  }

  /** What numbers are asked of: A and B of a difference, else the side that is seen. */
  asked() {
    return this.isDifference ? this.sides() : [this.here()];
  }

  /** The maps of what numbers are asked of. */
  fieldsAsked() {
    const { fields } = /** @type {import("./queries.js").Maps} */ (this.loading.maps.answer);
    return this.isDifference ? fields : [fields[this.state.side === "B" ? fields.length - 1 : 0]];
  }

  get isDifference() {
    return this.state.side === "diff" && Boolean(this.loading.maps.answer?.difference);
  }

  // Doings

  /** @param {KeyboardEvent} event */
  press(event) {
    const binding = bindingOf(bindingsOf(this), event);
    if (!binding || this.parts.help.open) return;
    binding.act(event.key);
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {Partial<State>} change */
  set(change) {
    this.store.set(fitted({ ...this.state, ...change }, this.manifest));
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

  // Showing

  /** @param {State} state */
  refresh(state) {
    const { theme, parts, loading } = this;
    if (this.root.dataset.theme !== theme) this.root.dataset.theme = theme;
    if (this.address) {
      document.documentElement.dataset.theme = theme;
      this.writeAddress();
      document.title = `${visible(this.manifest.title)} · regard`;
    }
    const here = this.here();
    const whole = isWhole(state, this.run().layers[here.layer]);
    parts.tabs.show(state.view);
    if (parts.main.dataset.view !== state.view) this.turnTo(state.view);
    parts.ways.show(state.way, (key) => key === "raw" || whole || this.manifest.can.tiles);
    parts.aids.update(state, this.run().tokens.length, whole);
    const whyNot = whyNoDifference(state, this.manifest);
    for (const compare of parts.compare) compare.update(state, this.manifest, this.sides(), whyNot);
    loading.wantEdit(state);
    parts.edits.update(state, here, state.off.length > 0 && !loading.edit.isCurrent);
    parts.edits.tell(loading.edit.current, this.manifest, theme);
    this.showHeads();
    this.showHeadings(state);
    loading.wantMaps(state, this.sides());
    this.showMap();
    this.showSteps();
    this.showMovement();
  }

  /** @param {import("../state/state.js").ViewName} view */
  turnTo(view) {
    const { main, movement } = this.parts;
    main.dataset.view = view;
    if (view !== "movement") movement.stop();
    const focused = focusedBeside(this.root);
    if (focused && main.contains(focused) && focused.getClientRects().length === 0) standBy(this); // it went with the view before
  }

  /** Put the state into the address, ten times a second at most: browsers refuse more. Back goes to the view before. */
  writeAddress() {
    clearTimeout(this.writing);
    const write = () => {
      this.written = performance.now();
      const hash = `#${encode(this.state)}`;
      if (location.hash === hash) return;
      if (this.viewWritten === this.state.view) history.replaceState(null, "", hash);
      else history.pushState(null, "", hash);
      this.viewWritten = this.state.view;
    };
    if (this.viewWritten !== this.state.view || performance.now() - this.written > 100) write();
    else this.writing = setTimeout(write, 100);
  }

  /** @param {boolean} busy */
  waits(busy) {
    if (busy) setAttribute(this.root, "aria-busy", "true");
    else this.root.removeAttribute("aria-busy");
  }

  /** @param {Error[]} errors all that is wrong now */
  fail(errors) {
    if (this.end.signal.aborted) return;
    this.parts.problem.hidden = errors.length === 0;
    setText(this.parts.problemSays, [...new Set(errors.map(({ message }) => message))].join(" "));
  }

  /** @param {State} state */
  showHeadings(state) {
    const { parts, manifest } = this;
    const here = this.here();
    const run = this.run();
    const sides = this.sides();
    const own = sides.length > 1 && sides[0].run === sides[1].run; // two heads of one run
    const { layers } = this.chosenRun();
    const { layer, head } = placeOf(state);
    const named = (/** @type {import("../data/tile-source.js").Which} */ at) => ({
      layer: manifest.runs[at.run].layers[at.layer].number,
      head: at.head,
    });
    setText(parts.title, headingOf(named(here), named((state.side === "diff" && sides[1]) || here)));
    options(
      parts.layer,
      layers.map(({ number }) => String(number)),
      layer,
    );
    options(
      parts.head,
      [...Array.from({ length: layers[layer].heads }, (_, n) => String(n)), "mean"],
      head === "mean" ? layers[layer].heads : head,
    );
    parts.text.replaceChildren(
      el("span", { class: "rg-model" }, run.model),
      " ",
      piece(label(run.text.replace(/\s+/g, " "), 90), { title: visible(run.text.slice(0, 600)) }),
    );
    const way = manifest.ways.find(({ key }) => key === state.way);
    if (way) {
      setText(parts.waySays, `${way.says} ${way.not}`);
      parts.waySays.title = way.source;
    }
    setText(parts.keep, own ? "Stop comparing" : "Compare with another head");
    parts.keep.hidden = !own && sides.length > 1;
    if (focusedBeside(this.root) !== parts.query) parts.query.value = state.query;
    setText(parts.found, state.query ? `${search(run.tokens, run.text, state.query).length} found` : "");
    setText(parts.proof, proofOf(manifest, here.run, here.layer));
  }

  showHeads() {
    const {
      loading,
      parts: { grid },
    } = this;
    const { run } = this.here();
    if (this.state.view === "heads" || loading.maps.answer || loading.maps.error) loading.wantHeads(run); // else the map comes first
    grid.learn(run, loading.heads.current, loading.thumbnails.current);
    grid.update(this.state, this.theme, this.sides());
  }

  /** How many decimals are known of what is shown. @param {number} [terms] numbers that were summed */
  decimals(terms = 1) {
    return decimalsOf(this.manifest.digits, this.state, this.fieldsAsked(), this.loading.maps.answer?.max ?? 1, terms);
  }

  /** The map, its legend and its cell; faint while they are not what is wanted. */
  showMap() {
    const { state, parts, isDifference } = this;
    const { maps } = this.loading;
    for (const node of [parts.map.stage, parts.legend.node]) node.classList.toggle("rg-stale", !maps.isCurrent);
    if (!maps.answer) return;
    const { difference, max, most } = maps.answer;
    const field = (isDifference && difference) || this.fieldsAsked()[0];
    if (this.field !== field) this.onAxes = null;
    this.field = field;
    const found = this.foundOn(field);
    const scale = /** @type {import("../render/scale.js").Scale} */ ({
      kind: state.log ? "log" : "linear",
      max: (isDifference || state.byRow ? field.colours.max : max) || 1,
      signed: isDifference,
    });
    const layer = this.run().layers[this.here().layer];
    parts.map.show({
      field,
      scale,
      most: isDifference || state.byRow ? field.colours.most : most,
      theme: this.theme,
      decimals: this.decimals(),
      ...this.cursor(),
      rowsFound: found.rows,
      colsFound: found.cols,
      causal:
        layer.causal && !(state.words && field.whole) && state.way === "raw" && field.rows.length === field.cols.length,
      view: state.zoom,
    });
    setAttribute(
      parts.map.stage,
      "aria-label",
      `Map of attention, ${field.rows.length} rows that look, ${field.cols.length} columns that are looked at. Arrow keys move the cell.`,
    );
    parts.legend.update(
      parts.map.scale(),
      this.theme,
      legendOf(state, isDifference, field.pyramid.max, parts.map.pooled()),
    );
    this.showCell();
    this.showReading();
  }

  /** Where what is searched for stands on the axes. @param {Field} field */
  foundOn(field) {
    const { query, side } = this.state;
    const key = JSON.stringify([query, side]);
    if (this.onAxes?.key === key) return this.onAxes;
    const { tokens, text } = this.run();
    const found = search(tokens, text, query).flat();
    const on = (/** @type {Group[]} */ axis) => {
      const places = placesOf(axis, tokens.length);
      return new Set(found.map((i) => places[i]).filter((place) => place >= 0));
    };
    return (this.onAxes = { key, rows: on(field.rows), cols: on(field.cols) });
  }

  /** The number of the cell, in the line below the map and for who cannot see it. */
  showCell() {
    const { readout, live, title } = this.parts;
    const { row, col } = this.cursor();
    if (!this.field || row === null || col === null)
      return setText(readout, "Rows look, columns are looked at. Choose a cell.");
    const there = this.loading.maps.isCurrent ? numberAt(this.field.pyramid, row, col) : null;
    if (this.loading.maps.isCurrent && there === null) this.loading.wantNumber(this.state, this.asked());
    else this.loading.number.forget();
    const value = there ?? this.loading.number.current;
    const sentence = this.sentence(row, col, value);
    setText(readout, sentence);
    if (value !== null) setText(live, `${sentence}. ${title.textContent}`);
  }

  /** @param {number} row @param {number} col of the field @param {number | null} value */
  sentence(row, col, value) {
    return this.field ? cellOf(this.state, this.field, this.isDifference, row, col, value, this.decimals()) : "";
  }

  /** The words, shaded by their shares. */
  showReading() {
    const { state, loading } = this;
    if (!this.field) return;
    const out = state.direction === "out";
    const axesOf = (/** @type {Field} */ { rows, cols }) =>
      out ? { own: rows, axis: cols } : { own: cols, axis: rows };
    const { own, axis } = axesOf(this.field);
    const here = out ? state.row : state.col;
    const chosen = state.pins.length ? state.pins : here === null ? [] : [here];
    const found = this.foundOn(this.field);
    const { length } = this.run().tokens;
    const [placesOfOwn, places] = [placesOf(own, length), placesOf(axis, length)];
    const on = (/** @type {Int32Array} */ all, /** @type {number[]} */ of) =>
      new Set(of.map((i) => all[i]).filter((place) => place >= 0));
    loading.wantShares(state, this.asked(), this.fieldsAsked().map(axesOf), [...on(placesOfOwn, chosen)]);
    const {
      shares: { answer, error, isCurrent },
    } = loading;
    const shares = error || answer?.length !== axis.length ? null : answer;
    this.parts.reading.top.classList.toggle("rg-stale", shares !== null && !isCurrent);
    this.parts.reading.show({
      groups: axis,
      text: this.run().text,
      shares,
      chosen: on(places, chosen),
      pinned: on(places, state.pins),
      found: out ? found.cols : found.rows,
      scale: { kind: state.log ? "log" : "linear", max: shares ? largest(shares) || 1 : 1, signed: this.isDifference },
      heading: mostOf(state, this.isDifference, on(places, chosen).size),
      theme: this.theme,
      decimals: this.decimals(Math.max(1, state.pins.length)),
      state,
    });
  }

  /** The steps of the cell. */
  showSteps() {
    const {
      state,
      loading,
      parts: { steps },
    } = this;
    if (state.view !== "cell") return;
    const which = this.here();
    const { layer, head } = which;
    const { tokens, layers } = this.run();
    const { number, heads, kv_heads, rows, cols } = layers[layer];
    const { row, col } = state;
    const none = (/** @type {string} */ why) => {
      loading.cell.forget();
      steps.say(why);
    };
    if (row === null || col === null)
      return none("Choose a cell of the map: its weight is computed here step by step.");
    if (head === "mean") return none("The mean of heads has no steps of its own: choose one head.");
    if (row >= rows || col >= cols) return none("This text is shorter: it has no such cell.");
    loading.wantCell(which, head, row, col);
    if (loading.cell.error) return steps.say(loading.cell.error.message);
    if (!loading.cell.current) return steps.fade(true);
    steps.show(loading.cell.current, {
      side: this.sideOfSteps(),
      from: tokens[row].text,
      to: tokens[col].text,
      layer: number,
      head,
      heads,
      kvHeads: kv_heads,
    });
  }

  /** The run of an edit as B; when a head was switched just now, where most has changed. */
  showEdit() {
    const { edit } = this.loading;
    const { answer, error } = edit;
    if (error) {
      this.set({ off: answer?.off ?? [], offRun: answer?.offRun ?? 0 }); // as it was before
      return setText(this.parts.edits.says, error.message);
    }
    if (!edit.current) return;
    const { run, entry, changes, offRun } = edit.current;
    this.manifest.runs[run] = { ...entry, of: offRun };
    const [most] = changedMost(changes.heads, 1);
    this.set({
      edited: run,
      ...(this.follows ? { side: "diff", ...(most && { layer: most.layer, head: most.head }) } : {}),
    });
    this.follows = false;
  }

  /** Of which side the steps are, where there are two. */
  sideOfSteps() {
    if (this.sides().length < 2) return "";
    return this.state.side === "diff"
      ? "These are the steps of A: what is taken from it has steps of its own, under B."
      : `These are the steps of ${this.state.side}.`;
  }

  showMovement() {
    const {
      state,
      manifest: { runs },
      loading,
      parts,
    } = this;
    if (state.view !== "movement") return;
    const sides = this.sides();
    const known = movedRuns(sides, this.here(), this.manifest);
    if (known.length === 0)
      return parts.movement.say("This trace did not record what tokens become: their movement is not known.");
    loading.wantMovement(known);
    if (!loading.movement.current) return;
    const names = sides.length > 1 ? sideNames(state, this.manifest, sides) : [""];
    const wanted = { words: state.words, special: state.special, from: state.from ?? 0, to: state.to ?? Infinity };
    const paths = [...loading.movement.current].map(([run, points]) => {
      const side = sides.findIndex((at) => at.run === run);
      return { points, side, title: names[side], axis: axisOf(runs[run].tokens, runs[run].text, wanted) };
    });
    const elsewhere = sides.some(({ run }) => runs[run].plane && !known.includes(run));
    parts.compare[2].node.hidden = !elsewhere;
    parts.movement.show(
      paths,
      state.stage,
      new Set([...state.pins, ...(state.row === null ? [] : [state.row])]),
      elsewhere,
    );
  }
}

/** A list of choices, made anew only where they differ. @param {HTMLSelectElement} list @param {string[]} values @param {number} chosen the place of one */
function options(list, values, chosen) {
  const same = list.options.length === values.length && values.every((value, n) => list.options[n].value === value);
  if (!same) list.replaceChildren(...values.map((value) => el("option", { value }, value)));
  list.selectedIndex = chosen;
}
