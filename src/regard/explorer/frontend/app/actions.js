// What a person does to the page, by whichever key or button.

import { search } from "../data/tokens.js";
import { focusedBeside } from "../platform/dom.js";
import { placed, placeOf } from "../state/sides.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("../data/tokens.js").Group} Group
 */

/** @param {App} app @param {number} row @param {number} col of the field */
export function pickCell(app, row, col) {
  if (!app.field) return;
  app.set({ row: app.field.rows[row].members[0], col: app.field.cols[col].members[0] });
}

/** @param {App} app @param {number[]} step rows, columns */
export function walkCells(app, [down, right]) {
  if (!app.field) return;
  const { row, col } = app.cursor();
  const to = (/** @type {number | null} */ from, /** @type {number} */ by, /** @type {number} */ length) =>
    Math.max(0, Math.min(length - 1, from === null ? 0 : from + by));
  const next = [
    to(row, row === null || col === null ? 0 : down, app.field.rows.length),
    to(col, row === null || col === null ? 0 : right, app.field.cols.length),
  ];
  pickCell(app, next[0], next[1]);
  app.parts.map.reveal(next[0], next[1]);
}

/** @param {App} app */
export function zoomToCell(app) {
  const { row, col } = app.cursor();
  if (row !== null && col !== null) app.parts.map.goTo(row, col);
}

/** @param {App} app @param {Group} group @param {boolean} add */
export function chooseWord(app, { members }, add) {
  const name = app.state.direction === "out" ? "row" : "col";
  const here = app.state[name];
  if (!add) return app.set({ [name]: members[0], pins: [] });
  if (app.state.pins.length === 0 && here !== null && !members.includes(here)) app.set({ pins: [here] });
  pinTokens(app, members);
}

/** Pin a word, or unpin it by whichever of its pieces was pinned. @param {App} app @param {number[]} members */
export function pinTokens(app, members) {
  const { pins } = app.state;
  const others = pins.filter((i) => !members.includes(i));
  app.set({ pins: others.length < pins.length ? others : [...pins, members[0]] });
}

/** @param {App} app */
export function pinHere(app) {
  const { row, col } = app.cursor();
  const group = app.state.direction === "out" ? app.field?.rows[row ?? -1] : app.field?.cols[col ?? -1];
  if (group) pinTokens(app, group.members);
}

/** Close what is open, leave the field, unpin; who works with keys goes on from what is there. @param {App} app */
export function leave(app) {
  const menu = /** @type {HTMLDetailsElement | null} */ (app.root.querySelector("details[open]"));
  if (menu) closeMenu(menu);
  else if (focusedBeside(app.root) === app.parts.query) standBy(app);
  else app.set({ pins: [] });
}

/** Let keys go on from the map, or from the view's name where none is seen. @param {App} app */
export function standBy({ parts: { map, tabs } }) {
  /** @type {HTMLElement | null} */ (
    map.stage.offsetParent ? map.stage : tabs.node.querySelector('[aria-pressed="true"]')
  )?.focus();
}

/** @param {HTMLDetailsElement} menu */
export function closeMenu(menu) {
  menu.open = false;
  menu.querySelector("summary")?.focus();
}

/** Go to a layer or a head, on the side that is seen. @param {App} app @param {Partial<import("../state/state.js").Place>} choice */
export function goTo(app, choice) {
  app.set(placed(app.state, choice));
}

/** @param {App} app @param {number} heads @param {number} layers */
export function otherHead(app, heads, layers) {
  const { layer, head } = placeOf(app.state);
  const all = app.chosenRun().layers;
  const next = (layer + layers + all.length) % all.length;
  const count = all[next].heads;
  goTo(app, { layer: next, head: heads === 0 ? head : head === "mean" ? 0 : (head + heads + count) % count });
}

/** @param {App} app */
export function otherWay(app) {
  const keys = app.manifest.ways.map(({ key }) => key);
  app.set({ way: keys[(keys.indexOf(app.state.way) + 1) % keys.length] });
}

/** @param {App} app */
export function keepHead(app) {
  const { layer, head, other } = app.state;
  app.set(other ? { ...placeOf(app.state), other: null, side: "A" } : { other: { layer, head }, side: "B" });
}

/** Run without some heads the text that is seen, or on without others that of an edit. @param {App} app @param {[number, number][]} off */
export function switchOff(app, off) {
  const { state } = app;
  const offRun = state.off.length ? state.offRun : app.here().run;
  app.follows = true;
  app.set({ off, offRun, other: null, ...placeOf(state), ...(off.length ? {} : { side: offRun === 1 ? "B" : "A" }) });
}

/** Light where it is dark, or dark; what the system has is its own choice again. @param {App} app */
export function turnTheme(app) {
  const theme = app.theme === "dark" ? "light" : "dark";
  app.set({ theme: (theme === "dark") === app.dark.matches ? "auto" : theme });
}

/** @param {App} app @param {number} step */
export function nextFound(app, step) {
  const found = search(app.run().tokens, app.run().text, app.state.query).map(([first]) => first);
  const here = app.state.row ?? -1;
  const next =
    step > 0
      ? (found.find((i) => i > here) ?? found[0])
      : ([...found].reverse().find((i) => i < here) ?? found[found.length - 1]);
  if (next === undefined) return;
  app.set({ row: next, col: app.state.col ?? next });
  const { row, col } = app.cursor();
  if (row !== null) app.parts.map.reveal(row, col ?? row);
}
