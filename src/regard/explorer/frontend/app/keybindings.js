// Keyboard shortcuts: one table that the page acts on and the dialog behind "?" shows.

import { el } from "../platform/dom.js";
import { placeOf, whyNoDifference } from "../state/sides.js";
import { goTo, leave, otherHead, otherWay, pinHere, turnTheme, walkCells, zoomToCell } from "./actions.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {{ keys: string[], shown?: string, says: string, idle?: boolean, act: (key: string) => void }} Binding
 *   An idle one has nothing to act on in the view that is seen.
 */

export const VIEWS = /** @type {{ key: string, title: string }[]} */ ([
  { key: "heads", title: "All heads" },
  { key: "head", title: "One head" },
  { key: "cell", title: "One cell" },
  { key: "movement", title: "Movement" },
]);

/** @param {import("./app.js").App} app @returns {Binding[]} */
export function bindingsOf(app) {
  const set = (/** @type {Partial<State>} */ change) => app.set(change);
  const { state } = app;
  const walk = (/** @type {string} */ key) =>
    walkCells(app, { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key] ?? [0, 0]);
  const sides = app.sides();
  const idle = state.view !== "head" && state.view !== "cell"; // no map is seen
  return [
    {
      keys: ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"],
      shown: "↑ ↓ ← →",
      idle,
      says: "From cell to cell",
      act: walk,
    },
    { keys: ["Enter"], says: "The cell step by step", act: () => set({ view: "cell" }) },
    {
      keys: ["[", "]"],
      shown: "[ ]",
      says: "Head before, next head",
      act: (key) => otherHead(app, key === "]" ? 1 : -1, 0),
    },
    {
      keys: ["{", "}"],
      shown: "{ }",
      says: "Layer before, next layer",
      act: (key) => otherHead(app, 0, key === "}" ? 1 : -1),
    },
    {
      keys: ["m"],
      says: "Mean of the layer's heads, or one head",
      act: () => goTo(app, { head: placeOf(state).head === "mean" ? 0 : "mean" }),
    },
    {
      keys: ["1", "2", "3", "4"],
      shown: "1 2 3 4",
      says: VIEWS.map(({ title }) => title).join(", "),
      act: (key) => set({ view: /** @type {any} */ (VIEWS[Number(key) - 1].key) }),
    },
    {
      keys: ["+", "=", "-", "0"],
      shown: "+ − 0",
      idle,
      says: "Zoom in, out, the whole map",
      act: (key) => (key === "0" ? app.parts.map.fit() : app.parts.map.zoomBy(key === "-" ? 1 / 1.6 : 1.6)),
    },
    { keys: ["z"], idle, says: "Zoom to the cell until numbers are read", act: () => zoomToCell(app) },
    {
      keys: ["t"],
      says: "Where the word looks, or who looks at it",
      act: () => set({ direction: state.direction === "out" ? "in" : "out" }),
    },
    { keys: ["p"], says: "Pin the word, or unpin it; pinned ones are summed", act: () => pinHere(app) },
    { keys: ["a"], says: "Arcs in the text", act: () => set({ arcs: !state.arcs }) },
    {
      keys: ["c"],
      says: "A, B, A − B, where there are two",
      act: () =>
        sides.length > 1 &&
        set({
          side:
            state.side === "A"
              ? "B"
              : state.side === "B" && whyNoDifference(state, app.manifest) === null
                ? "diff"
                : "A",
        }),
    },
    {
      keys: ["v"],
      says: "What the map shows: " + app.manifest.ways.map(({ title }) => title.toLowerCase()).join(", "),
      act: () => otherWay(app),
    },
    { keys: ["s"], says: "Special tokens", act: () => set({ special: !state.special, zoom: null }) },
    { keys: ["w"], says: "Whole words", act: () => set({ words: !state.words, zoom: null }) },
    { keys: ["l"], says: "Log scale", act: () => set({ log: !state.log }) },
    { keys: ["n"], says: "Each row by itself", act: () => set({ byRow: !state.byRow }) },
    { keys: ["/"], says: "Find a word; Enter goes to the next", act: () => app.parts.query.focus() },
    { keys: ["d"], says: "Light or dark", act: () => turnTheme(app) },
    { keys: ["?"], says: "This list", act: () => app.parts.help.showModal() },
    { keys: ["Escape"], shown: "Esc", says: "Close, unpin, leave the field", act: () => leave(app) },
  ];
}

/**
 * The binding of a key press, if it is one; what is typed into a field is left alone, and arrows that move a slider.
 * @param {Binding[]} bindings @param {KeyboardEvent} event
 */
export function bindingOf(bindings, event) {
  const makesSign =
    event.getModifierState?.("AltGraph") || (event.altKey && !event.ctrlKey && "[]{}".includes(event.key)); // where brackets need it
  if (!makesSign && (event.ctrlKey || event.metaKey || event.altKey)) return undefined;
  const target = /** @type {HTMLElement | null} */ (event.target);
  const writes = target?.matches?.("input:not([type=checkbox], [type=range]), select, textarea");
  const slides = target?.matches?.("input[type=range]") && event.key.startsWith("Arrow");
  if (slides || (writes && event.key !== "Escape")) return undefined;
  const onButton = target?.matches?.("button, [role=button], summary, a") && ["Enter", " "].includes(event.key);
  const key = /^[A-Z]$/.test(event.key) ? event.key.toLowerCase() : event.key; // as Caps Lock leaves it
  return onButton ? undefined : bindings.find(({ keys, idle }) => !idle && keys.includes(key));
}

/** The list of keys. @param {Binding[]} bindings */
export function helpDialog(bindings) {
  const dialog = el(
    "dialog",
    { class: "rg-dialog", "aria-label": "Keys" },
    el(
      "div",
      { class: "rg-dialog-head" },
      el("h2", {}, "Keys"),
      el(
        "button",
        { type: "button", class: "rg-icon", "aria-label": "Close", on: { click: () => dialog.close() } },
        "×",
      ),
    ),
    el(
      "dl",
      { class: "rg-keys" },
      ...bindings.flatMap(({ keys, shown, says }) => [
        el("dt", {}, ...(shown ?? keys[0]).split(" ").map((key) => el("kbd", {}, key))),
        el("dd", {}, says),
      ]),
    ),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
