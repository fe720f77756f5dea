// Keyboard shortcuts: one table, for the page and for the dialog that lists them.

import { el, iconButton } from "../platform/dom.js";
import { selectionOf } from "../state/sides.js";
import { WHEEL_KEY, ZOOM_STEP } from "../views/zoom-view.js";
import { toggleChosenCell } from "./head-search.js";
import {
  dismiss,
  moveCell,
  nextMode,
  nextSide,
  pinSelected,
  selectHead,
  stepCheckpoint,
  stepHead,
  toggleTheme,
  zoomToCell,
} from "./actions.js";

/** @import { Binding, State } from "../types.js" */

export const VIEWS = /** @type {{ key: string, title: string }[]} */ ([
  { key: "heads", title: "All heads" },
  { key: "head", title: "One head" },
  { key: "cell", title: "Calculation" },
  { key: "movement", title: "Representations by layer" },
  { key: "model", title: "Whole model" },
]);

const ARROWS = /** @type {Record<string, number[]>} */ ({
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
});

/** @param {import("./app.js").App} app @returns {Binding[]} */
export function keybindingsOf(app) {
  const { state } = app;
  const { training } = app.manifest;
  const set = (/** @type {Partial<State>} */ change) => () => app.set(change);
  const disabled = state.view !== "head" && state.view !== "cell"; // no map is shown
  const head = selectionOf(state).head === "mean" ? 0 : "mean";
  const zoom = (/** @type {string} */ key) => {
    const shown = state.view === "movement" ? app.parts.movement.plane : app.parts.map;
    return key === "0" ? shown.fit() : shown.zoomBy(key === "-" ? 1 / ZOOM_STEP : ZOOM_STEP);
  };
  const setView = (/** @type {string} */ key) => app.set({ view: /** @type {any} */ (VIEWS[Number(key) - 1].key) });
  /** @type {[string, string, (key: string) => void, { shown?: string, disabled?: boolean }?][]} */
  const table = [
    [
      "ArrowUp ArrowDown ArrowLeft ArrowRight",
      "Move the cell",
      (key) => moveCell(app, ARROWS[key]),
      { shown: "↑ ↓ ← →", disabled },
    ],
    ["Enter", "The calculation of the cell", set({ view: "cell" })],
    ["[ ]", "Previous head, next head", (key) => stepHead(app, key === "]" ? 1 : -1, 0), { shown: "[ ]" }],
    ["{ }", "Previous layer, next layer", (key) => stepHead(app, 0, key === "}" ? 1 : -1), { shown: "{ }" }],
    ...(training
      ? /** @type {typeof table} */ ([
          [", .", "Previous checkpoint, next checkpoint", (key) => stepCheckpoint(app, key === "." ? 1 : -1)],
          ["k", "Play the training, or pause", () => app.parts.training?.player.toggle()],
        ])
      : []),
    ["m", "Mean of the layer's heads, or one head", () => selectHead(app, { head })],
    ["1 2 3 4 5", VIEWS.map(({ title }) => title).join(", "), setView, { shown: "1 2 3 4 5" }],
    ["+ = - 0", "Zoom in, zoom out, everything", zoom, { shown: "+ − 0", disabled: state.view === "heads" }],
    ["x", "Add the cell to those that heads are found by, or remove it", () => toggleChosenCell(app), { disabled }],
    ["z", "Zoom to the cell until its value shows", () => zoomToCell(app), { disabled }],
    [
      "t",
      "What the word attends to, or what attends to it",
      set({ direction: state.direction === "out" ? "in" : "out" }),
    ],
    ["p", "Pin or unpin the word; pinned words are summed", () => pinSelected(app)],
    ["a", "Arcs in the text", set({ arcs: !state.arcs })],
    ["g", "What mattered, beside what was attended to", set({ attribution: !state.attribution })],
    ["c", "A, B, A − B, in a comparison", () => nextSide(app)],
    ["v", `Map mode: ${app.manifest.modes.map(({ title }) => title.toLowerCase()).join(", ")}`, () => nextMode(app)],
    ["s", "Special tokens", set({ special: !state.special, zoom: null })],
    ["w", "Whole words", set({ words: !state.words, zoom: null })],
    ["l", "Log scale", set({ log: !state.log })],
    ["n", "Normalise each row", set({ byRow: !state.byRow })],
    ["/", "Find a word; Enter goes to the next match", () => app.parts.searchInput.focus()],
    ["d", "Light or dark", () => toggleTheme(app)],
    ["?", "Keys and gestures", () => app.parts.help.showModal()],
    ["Escape", "Close, leave the search or the calculation, unpin", () => dismiss(app), { shown: "Esc" }],
  ];
  return table.map(([keys, description, action, options]) => ({
    keys: keys.split(" "),
    description,
    action,
    ...options,
  }));
}

/**
 * The binding of a key press; none while a person types into a field or moves a slider.
 * @param {Binding[]} bindings @param {KeyboardEvent} event
 */
export function findBinding(bindings, event) {
  const { altKey, ctrlKey, metaKey } = event;
  // Some keyboards need AltGr or Option for brackets.
  const typesBracket = event.getModifierState?.("AltGraph") || (altKey && !ctrlKey && "[]{}".includes(event.key));
  if (!typesBracket && (ctrlKey || metaKey || altKey)) return undefined;
  const target = /** @type {HTMLElement | null} */ (event.target);
  const isTyping = target?.matches?.("input:not([type=checkbox], [type=range]), select, textarea");
  const isSliding = target?.matches?.("input[type=range]") && event.key.startsWith("Arrow");
  if (isSliding || (isTyping && event.key !== "Escape")) return undefined;
  const isPressing = target?.matches?.("button, [role=button], summary, a") && ["Enter", " "].includes(event.key);
  const key = /^[A-Z]$/.test(event.key) ? event.key.toLowerCase() : event.key; // Caps Lock
  return isPressing ? undefined : bindings.find(({ keys, disabled }) => !disabled && keys.includes(key));
}

const MAP_CLICKS = "Choose a cell, a head or a word; again, open the head or the calculation";
const GESTURES = /** @type {Record<string, [string, string][]>} */ ({
  Mouse: [
    ["Click", MAP_CLICKS],
    ["Shift + click", "Add a word: pinned words are summed; a cell: heads are found by all"],
    [`${WHEEL_KEY} + wheel`, "Zoom; the wheel alone scrolls the page"],
    ["Drag", "Move the map or the plane, once zoomed in"],
  ],
  Touch: [
    ["Tap", MAP_CLICKS],
    ["Pinch", "Zoom"],
    ["Drag", "Scroll the page; once zoomed in, move the map or the plane"],
    ["Swipe down", "Close the calculation, at its head"],
  ],
});

/** @param {Binding[]} bindings */
export function helpDialog(bindings) {
  /** @param {string} title @param {[string[], string][]} rows */
  const section = (title, rows) =>
    el(
      "section",
      { data: { title } },
      el("h3", {}, title),
      el(
        "dl",
        { class: "rg-keys" },
        ...rows.flatMap(([names, description]) => [
          el("dt", {}, ...names.map((each) => el("kbd", {}, each))),
          el("dd", {}, description),
        ]),
      ),
    );
  const gestures = Object.entries(GESTURES).map(([title, rows]) =>
    section(
      title,
      rows.map(([gesture, description]) => [[gesture], description]),
    ),
  );
  const keys = section(
    "Keys",
    bindings.map(({ keys, shown, description }) => [(shown ?? keys[0]).split(" "), description]),
  );
  const close = iconButton("Close", "×", () => dialog.close());
  const dialog = el(
    "dialog",
    { class: "rg-dialog", "aria-label": "Keys and gestures" },
    el("div", { class: "rg-dialog-head" }, el("h2", {}, "Keys and gestures"), close),
    ...gestures,
    keys,
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
