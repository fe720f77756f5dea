// Actions: what a person does to the page, by key or by button.

import { search } from "../data/tokens.js";
import { activeElementOf } from "../platform/dom.js";
import { selectionOf, withSelection } from "../state/sides.js";

/** @param {App} app @param {number[]} step rows, columns */
export function moveCell(app, [down, right]) {
  const { row, col } = app.cursor();
  const { rows, cols } = app.axes();
  const isSelected = row !== null && col !== null; // else the first step selects a cell
  const move = (/** @type {number | null} */ from, /** @type {number} */ by, /** @type {number} */ length) =>
    Math.max(0, Math.min(length - 1, from === null ? 0 : from + (isSelected ? by : 0)));
  const [nextRow, nextCol] = [move(row, down, rows.length), move(col, right, cols.length)];
  app.set({ row: rows[nextRow].members[0], col: cols[nextCol].members[0] });
  app.parts.map.reveal(nextRow, nextCol);
}

/** Choose the word before or after the chosen one. @param {App} app @param {number[]} step */
export function moveWord(app, [down, right]) {
  const { row } = app.cursor();
  const { rows } = app.axes();
  const next = row === null ? 0 : Math.max(0, Math.min(rows.length - 1, row + down + right));
  app.set({ row: rows[next].members[0], pins: [] });
}

/** Open what mattered, and scroll to it; or close it. @param {App} app */
export function toggleAttribution(app) {
  app.set({ attribution: !app.state.attribution });
  const { attributionControls } = app.refs;
  if (app.state.attribution) attributionControls.closest("section")?.scrollIntoView({ block: "nearest" });
}

/** @param {App} app */
export function zoomToCell(app) {
  const { row, col } = app.cursor();
  if (row !== null && col !== null) app.parts.map.zoomToCell(row, col);
}

/** @param {App} app @param {Group} group @param {boolean} add  to the pinned words */
export function selectWord(app, { members }, add) {
  const name = app.state.direction === "out" ? "row" : "col";
  const token = app.state[name];
  if (!add) return app.set({ [name]: members[0], pins: [] });
  if (app.state.pins.length === 0 && token !== null && !members.includes(token)) app.set({ pins: [token] });
  togglePin(app, members);
}

/** Pin a word, or unpin it, whichever of its tokens was pinned. @param {App} app @param {number[]} members */
export function togglePin(app, members) {
  const { pins } = app.state;
  const others = pins.filter((i) => !members.includes(i));
  app.set({ pins: others.length < pins.length ? others : [...pins, members[0]] });
}

/** @param {App} app */
export function pinSelected(app) {
  const { row, col } = app.cursor();
  const group = app.state.direction === "out" ? app.axes().rows[row ?? -1] : app.axes().cols[col ?? -1];
  if (group) togglePin(app, group.members);
}

/** Close an open menu, else leave the search, else the calculation, else unpin all. @param {App} app */
export function dismiss(app) {
  const menu = /** @type {HTMLDetailsElement | null} */ (app.root.querySelector("details[open]"));
  if (menu) closeMenu(menu);
  else if (activeElementOf(app.root) === app.refs.searchInput) focusMainView(app);
  else if (isPresenting(app.state)) togglePresenter(app);
  else if (app.state.view === "cell") closeCalculation(app);
  else app.set({ pins: [] });
}

/** Back from the calculation to the map. @param {App} app */
export function closeCalculation(app) {
  app.set({ view: "head" });
  focusMainView(app);
}

/** Focus the map, or the button of the view or its place if no map is shown. @param {App} app */
export function focusMainView({ parts: { map }, refs: { views, places } }) {
  const pressed = (views.hidden ? places : views).querySelector('[aria-pressed="true"]');
  /** @type {HTMLElement | null} */ (map.stage.offsetParent ? map.stage : pressed)?.focus();
}

/** @param {HTMLDetailsElement} menu */
export function closeMenu(menu) {
  menu.open = false;
  menu.querySelector("summary")?.focus();
}

/** Select a layer or a head on the visible side. @param {App} app @param {Partial<HeadChoice>} choice */
export function selectHead(app, choice) {
  app.set(withSelection(app.state, choice));
}

/** Show a head with what one of its words attends to. @param {App} app @param {Partial<HeadChoice>} choice @param {number} row */
export function openRow(app, choice, row) {
  const view = /** @type {const} */ ({ view: "head", direction: "out" });
  app.set({ ...withSelection(app.state, choice), ...view, row, col: null, pins: [] });
}

/** The head to which a key goes: [ and ] to the one beside, { and } to the layer beside. @param {App} app @param {string} key @returns {HeadChoice} */
export function headBeside(app, key) {
  const { layer, head } = selectionOf(app.state);
  const { layers } = app.selectedRun();
  const step = "]}".includes(key) ? 1 : -1;
  if ("{}".includes(key)) return { layer: (layer + step + layers.length) % layers.length, head };
  const { heads } = layers[layer];
  return { layer, head: head === "mean" ? 0 : (head + step + heads) % heads };
}

/** Show a checkpoint of a training run; after the last one the page follows the newest. @param {App} app @param {number} index */
export function showCheckpoint(app, index) {
  const { training } = app.manifest;
  if (!training) return;
  const last = training.checkpoints.length - 1;
  const { step } = training.checkpoints[Math.max(0, Math.min(last, index))];
  app.set({ checkpoint: index >= last ? null : step, side: app.state.ablated.length ? app.state.side : "A" });
}

/** @param {App} app */
export function nextMode(app) {
  const keys = app.manifest.modes.map(({ key }) => key);
  app.set({ mode: keys[(keys.indexOf(app.state.mode) + 1) % keys.length] });
}

/** @param {App} app */
export function nextSide(app) {
  const { side } = app.state;
  if (app.sides().length > 1) app.set({ side: side === "A" ? "B" : side === "B" ? "diff" : "A" }); // diff may become A
}

/** @param {App} app */
export function toggleHeadComparison(app) {
  const { layer, head, selectionB } = app.state;
  if (selectionB) app.set({ ...selectionOf(app.state), selectionB: null, side: "A" });
  else app.set({ selectionB: { layer, head }, side: "B" });
}

/** Ablate heads of the visible text, or change the heads of an ablation. @param {App} app @param {State["ablated"]} ablated */
export function ablateHeads(app, ablated) {
  const { state } = app;
  const ablatedRun = state.ablated.length ? state.ablatedRun : app.shownHead().run;
  setAblation(app, { ablated, ablatedRun }, { past: [...state.edits.past, choiceOf(state)], future: [] });
}

/** @param {AblationChoice} state @returns {AblationChoice} */
export const choiceOf = ({ ablated, ablatedRun }) => ({ ablated, ablatedRun });

/** @param {App} app @param {AblationChoice} ablation @param {Pick<Edits, "past" | "future">} edits before and after it */
function setAblation(app, { ablated, ablatedRun }, { past, future }) {
  const { state } = app;
  const side = ablated.length ? state.side : state.ablatedRun === 1 ? "B" : "A";
  const edits = { ...state.edits, past, future, error: "" };
  app.set({ ablated, ablatedRun, selectionB: null, ...selectionOf(state), side, edits });
}

/** The run of an ablation becomes B. @param {App} app @param {AblationResult} result */
export function showAblatedRun(app, { run, metadata, ablated, ablatedRun }) {
  app.manifest.runs[run] = metadata;
  app.set({ editedRun: run, edits: { ...app.state.edits, applied: { ablated, ablatedRun } } });
}

/** As before an ablation that failed: the one that is shown, or none. @param {App} app @param {Error} error */
export function undoFailedAblation(app, error) {
  const { edits, editedRun } = app.state;
  const shown = editedRun === null ? { ablated: [], ablatedRun: 0 } : edits.applied;
  app.set({ ...shown, edits: { ...edits, error: error.message } });
}

/** @param {App} app */
export function undoAblation(app) {
  const { past, future } = app.state.edits;
  const now = choiceOf(app.state);
  if (past.length) setAblation(app, past[past.length - 1], { past: past.slice(0, -1), future: [now, ...future] });
}

/** @param {App} app */
export function redoAblation(app) {
  const { past, future } = app.state.edits;
  const [after, ...rest] = future;
  if (after) setAblation(app, after, { past: [...past, choiceOf(app.state)], future: rest });
}

/** Show the tokens between two inputs; an empty one is an end of the text. @param {App} app */
export function setRange(app) {
  const { firstToken, lastToken } = app.refs;
  const [first, last] = [firstToken, lastToken].map(({ value }) => (value === "" ? null : Number(value)));
  app.set({ from: first, to: last === null ? null : last + 1 });
  app.refresh(); // undo what was rejected
}

/** Light or dark; "auto" when that is the theme of the system. @param {App} app */
export function toggleTheme(app) {
  const theme = app.theme === "dark" ? "light" : "dark";
  app.set({ theme: (theme === "dark") === app.colorScheme.matches ? "auto" : theme });
}

/** Large type, words and map only, of one head; or all of the page again. @param {App} app */
export function togglePresenter(app) {
  if (isPresenting(app.state)) app.set({ presenter: false });
  else app.set({ presenter: true, view: "head", story: "" });
}

/** Whether words and map alone are shown. @param {State} state */
export function isPresenting({ presenter, view }) {
  return presenter && view === "head";
}

/** Select the next match of the search, or the previous one. @param {App} app @param {1 | -1} step */
export function goToMatch(app, step) {
  const { tokens, text } = app.shownRun();
  const found = search(tokens, text, app.state.query).map(([first]) => first);
  if (step < 0) found.reverse();
  const token = app.state.row ?? -1;
  const next = found.find((i) => (i - token) * step > 0) ?? found[0];
  if (next === undefined) return;
  app.set({ row: next, col: app.state.col ?? next });
  const { row, col } = app.cursor();
  if (row !== null) app.parts.map.reveal(row, col ?? row);
}
