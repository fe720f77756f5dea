// The page: one state, its URL, and what it selects. The presenter shows it; the source is known by its interface alone.

import { activeElementOf, setAttribute, setText } from "../platform/dom.js";
import { axesOf, pairAxes } from "../data/map-data.js";
import { MAX_IN_MEMORY_SIDE } from "../data/tile-source.js";
import { sameToken, search } from "../data/tokens.js";
import { comparedTexts, differenceBlockedBy, isRunOf, liveTexts, sidesOf } from "../state/sides.js";
import { INITIAL_STATE, normalize } from "../state/state.js";
import { decode, encode, unread } from "../state/url.js";
import { knownDecimals, unreadMessage } from "../views/messages.js";
import { choiceOf, closeMenu, focusMainView } from "./actions.js";
import { followTeacher, publish } from "./classroom.js";
import { findBinding, keybindingsOf } from "./keybindings.js";
import { createLayout, fillMarkup } from "./layout.js";
import { showProgress } from "./page.js";
import { placeOf } from "./places.js";
import { Presenter } from "./presenter.js";
import { Queries } from "./queries.js";
import { storyView } from "../views/story-panel.js";

const PROGRESS_MS = 700; // between questions how far a long computation is
const FOLLOW_MS = 1000; // between questions for new checkpoints
const URL_INTERVAL_MS = 100; // browsers refuse more frequent changes

/** What a change of a field sets too. @type {Record<string, Partial<State>>} */
const RESETS = {
  special: { zoom: null },
  words: { zoom: null },
  from: { zoom: null },
  to: { zoom: null },
  target: { targetToken: null },
  order: { collapsedLayers: [], collapsedHeads: [] },
  view: { cancelledPatching: "" },
  row: { chosenHere: true },
  col: { chosenHere: true },
  text: { chosenHere: false },
  part: { chosenHere: false },
};

export class App {
  /**
   * @param {HTMLElement} root @param {Source} source @param {Manifest} manifest
   * @param {{ markup: DocumentFragment, syncUrl: boolean, colorScheme?: ColorScheme }} options
   *   `markup`: of the page, without data; `colorScheme`: of the page or notebook around
   */
  constructor(root, source, manifest, { markup, syncUrl, colorScheme = matchMedia("(prefers-color-scheme: dark)") }) {
    this.root = root;
    this.source = source;
    this.manifest = { ...manifest, numGivenRuns: manifest.training ? 1 : manifest.runs.length };
    this.syncUrl = syncUrl;
    this.controller = new AbortController(); // aborted when the page closes
    this.colorScheme = colorScheme;
    this.printMedia = matchMedia("print");
    const { initial, tokens } = manifest.runs[0];
    const { layer, head, row = null, col = null } = initial;
    /** @type {State} */
    this.initialState = { ...INITIAL_STATE, layer, head, log: tokens.length > MAX_IN_MEMORY_SIDE };
    const told = manifest.stories.find(({ key }) => key === manifest.story);
    const fromUrl = this.wanted(told && !(syncUrl && location.hash) ? storyView(told, 0) : undefined);
    const opening = "layer" in fromUrl || "head" in fromUrl ? {} : { row, col };
    this.state = normalize({ ...this.initialState, ...opening, ...fromUrl }, this.manifest);
    this.queries = new Queries(this);
    this.told = /** @type {Map<string, StoryChoice | null>} */ (new Map()); // the steps whose answer is shown, each with the one chosen
    this.unread = syncUrl ? unread(location.hash) : []; // of the address, until something is chosen
    this.opening = /** @type {((run: Run) => Partial<State>) | null} */ (null); // of the next text that has run; null: the address
    this.lastViews = /** @type {Record<string, ViewName>} */ ({ [placeOf(this.state.view)]: this.state.view });
    this.urlWrittenAt = -Infinity;
    this.writeNow = /** @type {(() => void) | undefined} */ (undefined); // what waits to be written
    this.classTimer = this.publishTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
    this.entry = entryOf(this.state); // of the history
    this.lastAct = ""; // the kind of event
    this.isFresh = false; // nothing has been chosen by what a person did last
    this.refs = fillMarkup(root, markup);
    this.parts = createLayout(this);
    this.presenter = new Presenter(this);
    this.listen();
    if (syncUrl) this.writeUrl();
    this.refresh();
    if (syncUrl) this.followTraining();
    followTeacher(this);
    publish(this);
  }

  listen() {
    const { signal } = this.controller;
    const refresh = () => this.refresh();
    this.colorScheme.addEventListener("change", refresh, { signal });
    const onPrint = () => {
      refresh();
      for (const view of [this.parts.map, this.parts.movement.plane]) view.drawNow(); // printing waits for no frame
    };
    this.printMedia.addEventListener("change", onPrint, { signal });
    this.root.addEventListener("keydown", (event) => this.onKeydown(event));
    if (!this.syncUrl) return;
    document.addEventListener("keydown", (event) => event.target === document.body && this.onKeydown(event), {
      signal,
    });
    const onHash = () => {
      const parts = unread(location.hash); // of what is written later nothing is
      this.open(decode(location.hash), true);
      this.unread = parts;
      this.refresh();
    };
    window.addEventListener("hashchange", onHash, { signal });
    const onAct = (/** @type {Event} */ { type }) => {
      this.isFresh = type !== "keydown" || this.lastAct !== "keydown"; // keys that follow each other are one act
      this.lastAct = type;
    };
    for (const type of ["pointerdown", "click", "keydown"])
      document.addEventListener(type, onAct, { signal, capture: true });
  }

  close() {
    this.controller.abort();
    clearTimeout(this.urlTimer);
    clearTimeout(this.progressTimer);
    this.queries.close();
    this.parts.movement.player.stop();
    this.parts.training?.player.stop();
    clearTimeout(this.followTimer);
    clearTimeout(this.classTimer);
    clearTimeout(this.publishTimer);
  }

  /** Ask for new checkpoints of a training run as long as some may come; a server that is gone may come back. */
  followTraining() {
    if (!this.manifest.training?.is_live || this.controller.signal.aborted) return;
    this.followTimer = setTimeout(async () => {
      const known = this.manifest.training?.checkpoints.length ?? 0;
      const news = await this.source.training({ known }, this.controller.signal).catch(() => undefined);
      if (news) this.addCheckpoints(news);
      this.parts.training?.setReachable(news !== undefined);
      if (news !== null) this.followTraining();
    }, FOLLOW_MS);
  }

  /** @param {TrainingNews} news */
  addCheckpoints({ training, runs }) {
    for (const { number, metadata } of runs) this.manifest.runs[number] = metadata;
    this.manifest.training = training;
    const { state } = this;
    this.set({});
    if (this.state === state) this.refresh();
  }

  /** @param {Partial<State>} change */
  set(change) {
    if (change.view && change.view !== "movement") this.parts.movement.player.stop(); // the state has where it is
    this.unread = [];
    const resets = Object.keys(change).map((name) => RESETS[name]);
    this.show(normalize(Object.assign({}, this.state, ...resets, change), this.manifest));
  }

  /** @param {State} next */
  show(next) {
    if (this.presenter.isDrawing) throw new Error("the state is set while it is drawn");
    if (JSON.stringify(next) === JSON.stringify(this.state)) return;
    this.state = next;
    this.closeSaveMenu(); // what it offers is of the state before
    this.lastViews[placeOf(next.view)] = next.view;
    if (this.syncUrl) this.writeUrl();
    publish(this);
    this.retry();
  }

  closeSaveMenu() {
    const { saveMenu } = this.refs;
    if (saveMenu.contains(activeElementOf(saveMenu))) closeMenu(saveMenu);
    else saveMenu.open = false;
  }

  /** Show the state, and ask again for what failed. */
  retry() {
    this.queries.client.retry();
    this.refresh();
  }

  refresh() {
    if (!this.controller.signal.aborted) this.presenter.refresh();
  }

  /** @param {KeyboardEvent} event */
  onKeydown(event) {
    const binding = findBinding(keybindingsOf(this), event);
    if (!binding || this.refs.help.open) return;
    binding.action(event.key);
    event.preventDefault();
    event.stopPropagation();
  }

  /** What an address says, by default that of the page; a text that is the given one is no other. @param {Partial<State>} [found] @returns {Partial<State>} */
  wanted(found = this.syncUrl ? decode(location.hash) : {}) {
    const { runs, numGivenRuns, live_models: models } = this.manifest;
    const isOf = (/** @type {Run} */ { text, model }) => found.text === text && (found.model ?? model) === model;
    const place = runs.slice(0, numGivenRuns).findIndex(isOf);
    if (found.modelB && !found.textB) found = { ...found, textB: found.text || runs[0].text };
    const b = numGivenRuns === 2 ? runs[1] : null;
    if (!models?.length || (b && found.textB === b.text && (found.modelB || found.model || runs[0].model) === b.model))
      found = { ...found, textB: "", modelB: "" };
    if (place === 1 && !models?.length) return { side: "B", ...found, text: "", model: "" };
    return place === 0 || !models?.length ? { ...found, text: "", model: "" } : found;
  }

  /** Show what an address says; one that the browser has gone to has its entry of the history. @param {Partial<State>} found @param {boolean} [isThere] */
  open(found, isThere = false) {
    const { editedRun, liveRun, text, model, textB, modelB, liveRunB, comparing, edits } = this.state;
    const wanted = { ...this.initialState, editedRun, comparing, edits, ...this.wanted(found) };
    const isSame = wanted.text === text && wanted.model === model;
    const isSameB = wanted.textB === textB && wanted.modelB === modelB;
    const [isShown, isShownB] = liveTexts(wanted, this.manifest).map((run, n) =>
      isRunOf(this.manifest, [liveRun, liveRunB][n], run),
    ); // while another one runs
    const live = { liveRun: isSame || isShown ? liveRun : null, liveRunB: isSameB || isShownB ? liveRunB : null };
    const state = normalize({ ...wanted, ...live }, this.manifest);
    if (!isSame || String(state.ablated) !== String(this.state.ablated))
      state.edits = { ...edits, past: isSame ? [...edits.past, choiceOf(this.state)] : [], future: [], error: "" }; // Back is undone too
    this.opening = isSame || isShown || !wanted.text ? null : () => this.wanted(found); // the run may have more heads and words
    if (isThere) {
      this.entry = entryOf(state);
      this.lastAct = "keydown"; // a key that follows leaves the way forward
    }
    this.show(state);
  }

  /** The state and the texts and models that it is of: `regard explore --open` shows the same on another machine. */
  address() {
    const { state, manifest, initialState } = this;
    if (!manifest.live_models?.includes(manifest.runs[0].model)) return encode(state, initialState);
    const [a, other] = comparedTexts(state, manifest);
    const side = [state.liveRun, state.liveRunB].indexOf(state.ablatedRun); // A or B, whichever number it has
    const ablatedRun = side < 0 ? state.ablatedRun : side;
    const textB = other && other.text !== a.text ? other.text : "";
    const modelB = other && other.model !== a.model ? other.model : "";
    return encode({ ...state, text: a.text, model: a.model, textB, modelB, ablatedRun }, initialState);
  }

  /** Write the state into the URL, with a history entry for each view and ablation, and for each head and word that an act chooses. */
  writeUrl() {
    const hash = `#${this.address()}`;
    const entry = entryOf(this.state);
    const isEntry = entry.view !== this.entry.view || (this.isFresh && entry.choice !== this.entry.choice);
    if (isEntry) this.writeNow?.(); // the entry of before
    clearTimeout(this.urlTimer);
    this.entry = entry;
    this.writeNow = () => {
      this.urlWrittenAt = performance.now();
      this.writeNow = undefined;
      if (location.hash === hash) return;
      if (isEntry) history.pushState(null, "", hash);
      else history.replaceState(null, "", hash);
    };
    if (isEntry) this.isFresh = false;
    if (isEntry || performance.now() - this.urlWrittenAt > URL_INTERVAL_MS) this.writeNow();
    else this.urlTimer = setTimeout(() => this.writeNow?.(), URL_INTERVAL_MS);
  }

  /** @param {ViewName} view */
  switchView(view) {
    const { movement, cellView } = this.parts;
    const { main } = this.refs;
    const isFirst = main.dataset.view === undefined;
    main.dataset.view = view;
    if (view !== "movement") movement.player.stop(false);
    if (view === "cell") this.showAboveSheet();
    const isOpened = view === "cell" && !isFirst && cellView.isSheet && !this.state.story;
    queueMicrotask(() => this.moveFocus(isOpened)); // a field that it leaves may have a change, which is none of the drawing
  }

  /** To the calculation that has opened, or from what is hidden now to the view. @param {boolean} isOpened */
  moveFocus(isOpened) {
    const { main } = this.refs;
    if (isOpened) this.parts.cellView.node.focus({ preventScroll: true });
    const focused = activeElementOf(this.root);
    if (focused && main.contains(focused) && focused.getClientRects().length === 0) focusMainView(this);
  }

  /** Scroll the map into what a sheet leaves of a narrow window. */
  showAboveSheet() {
    const { map, cellView } = this.parts;
    if (cellView.isSheet && !this.state.story) map.node.scrollIntoView({ block: "start" });
  }

  /** @param {boolean} busy */
  setBusy(busy) {
    if (busy) setAttribute(this.root, "aria-busy", "true");
    else this.root.removeAttribute("aria-busy");
    clearTimeout(this.progressTimer);
    showProgress(this, {});
    if (busy) this.followProgress();
  }

  /** Show how far long computations are, as long as some run. */
  followProgress() {
    this.progressTimer = setTimeout(async () => {
      const progress = await this.source.progress({}, this.controller.signal).catch(() => ({}));
      if (!this.root.hasAttribute("aria-busy") || this.controller.signal.aborted) return;
      showProgress(this, progress);
      this.followProgress();
    }, PROGRESS_MS);
  }

  /** @param {Error[]} errors all current ones */
  showErrors(errors) {
    if (this.controller.signal.aborted) return;
    const messages = [...new Set(errors.map(({ message }) => message))];
    if (this.unread.length) messages.push(unreadMessage(this.unread));
    this.refs.errorBar.hidden = messages.length === 0;
    this.refs.retry.hidden = errors.length === 0;
    setText(this.refs.errorText, messages.join(" "));
  }

  // Selectors

  /** @returns {Theme} */
  get theme() {
    if (this.printMedia.matches) return "light";
    return this.state.theme === "auto" ? (this.colorScheme.matches ? "dark" : "light") : this.state.theme;
  }

  sides() {
    return sidesOf(this.state, this.manifest);
  }

  /** The run, layer and head that is shown; of a difference, A. */
  shownHead() {
    const sides = this.sides();
    return sides[this.state.side === "B" ? sides.length - 1 : 0];
  }

  /** Whether two heads of one run are compared. */
  get comparesHeads() {
    const [a, b] = this.sides();
    return b !== undefined && a.run === b.run;
  }

  /** The heads without output in what is shown: until an ablation has run, those of before. */
  ablatedHeads() {
    return this.state.editedRun === null ? [] : this.state.edits.applied.ablated;
  }

  /** The chosen cell of that head; null if none is, or if the text has no such cell. */
  shownCell() {
    const { row, col } = this.state;
    const { rows, cols } = this.shownRun().layers[this.shownHead().layer];
    return row === null || col === null || row >= rows || col >= cols ? null : { ...this.shownHead(), i: row, j: col };
  }

  /** The cell of B, of a difference: that of the same words, or of those in their place. */
  cellOfB() {
    const cell = this.shownCell();
    const b = this.sides()[1];
    if (!cell || !b) return null;
    const [before, after] = [cell.run, b.run].map((run) => this.manifest.runs[run].tokens);
    const [i, j] = [cell.i, cell.j].map((token) => sameToken(before, after, token));
    return i === null || j === null ? null : { ...b, i, j };
  }

  shownRun() {
    return this.manifest.runs[this.shownHead().run];
  }

  /** The run of the layer and head that a choice changes. */
  selectedRun() {
    const sides = this.sides();
    return this.manifest.runs[sides[this.state.side === "A" ? 0 : sides.length - 1].run];
  }

  /** The tokens that are searched for. */
  matches() {
    const { tokens, text } = this.shownRun();
    return search(tokens, text, this.state.query).flat();
  }

  get showsDifference() {
    return this.state.side === "diff" && differenceBlockedBy(this.state, this.manifest) === null;
  }

  /** The heads whose values are shown: A and B of a difference, else one. */
  queriedHeads() {
    return this.showsDifference ? this.sides() : [this.shownHead()];
  }

  /** The decimals of the shown maps that are exact. @param {Axes[]} maps @param {number} max @param {number} [terms] of a sum */
  decimals(maps, max, terms = 1) {
    return knownDecimals(this.manifest.decimals, this.state, maps, max, terms);
  }

  /** The maps of these heads. @param {Maps} maps */
  sidesOf({ sides }) {
    return this.showsDifference ? sides : [sides[this.state.side === "B" ? sides.length - 1 : 0]];
  }

  /** The map that is shown. @param {Maps} maps */
  mapOf(maps) {
    return (this.showsDifference && maps.difference) || this.sidesOf(maps)[0];
  }

  /** The rows and columns of each of these maps. */
  queriedAxes() {
    return this.queriedHeads().map(({ run, layer }) => axesOf(this.state, this.manifest.runs[run], layer));
  }

  /** The rows and columns of the map. */
  axes() {
    const [a, b] = this.queriedAxes();
    return b ? pairAxes(a, b) : a;
  }

  /** A cell of tokens, by default the chosen one, as indices into the rows and columns of the map. @param {Pick<State, "row" | "col">} cell */
  cursor({ row, col } = this.state) {
    const [{ rows, cols }] = this.queriedAxes();
    const indexOf = (/** @type {number | null} */ token, /** @type {Group[]} */ axis) => {
      const index = token === null ? -1 : axis.findIndex(({ members }) => members.includes(token));
      return index < 0 ? null : index;
    };
    return { row: indexOf(row, rows), col: indexOf(col, cols) };
  }
}

/** What has an entry of the history: each view, ablation and text, and each head and word where one chooses it. @param {State} state */
function entryOf({ view, ablated, ablatedRun, text, model, textB, modelB, story, part, ...chosen }) {
  const { layer, head, selectionB, row, col } = chosen;
  return {
    view: JSON.stringify([view, ablated, ablatedRun, text, model, textB, modelB, story, part]),
    choice: JSON.stringify([layer, head, selectionB, row, col]),
  };
}
