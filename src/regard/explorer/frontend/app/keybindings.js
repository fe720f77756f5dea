// Keyboard shortcuts: what each key does. The markup of the page lists them for its reader.

import { VIEW_NAMES } from "../state/fields.js";
import { checkpointIndex, selectionOf } from "../state/sides.js";
import { toggleChosenCell } from "./head-search.js";
import * as actions from "./actions.js";
import { isOffered } from "./places.js";

const ARROWS = /** @type {Record<string, number[]>} */ ({
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
});

/** @param {App} app @returns {Binding[]} */
export function keybindingsOf(app) {
  const { state } = app;
  const { training } = app.manifest;
  const set = (/** @type {Partial<State>} */ change) => () => app.set(change);
  const disabled = state.view !== "head" && state.view !== "cell"; // no map is shown
  const head = selectionOf(state).head === "mean" ? 0 : "mean";
  const zoomed = state.view === "movement" ? app.parts.movement.plane : app.parts.map;
  const ofView = (/** @type {ViewName} */ view, /** @type {number} */ n) =>
    /** @type {[string, () => void, boolean]} */ ([String(n + 1), set({ view }), !isOffered(app, view)]);
  const step = (/** @type {number} */ by) =>
    training && actions.showCheckpoint(app, checkpointIndex(state, training) + by);
  /** @type {[string, (key: string) => void, boolean?][]} */
  const table = [
    ["ArrowUp ArrowDown ArrowLeft ArrowRight", (key) => actions.moveCell(app, ARROWS[key]), disabled],
    ["ArrowUp ArrowDown ArrowLeft ArrowRight", (key) => actions.moveWord(app, ARROWS[key]), !disabled],
    ["Enter", set({ view: "cell" })],
    ["[ ] { }", (key) => actions.selectHead(app, actions.headBeside(app, key))],
    [", .", (key) => step(key === "." ? 1 : -1), !training],
    ["k", () => app.parts.training?.player.toggle(), !training],
    ["m", () => actions.selectHead(app, { head })],
    ...VIEW_NAMES.map(ofView), // by their numbers
    ["+ = - 0", (key) => zoomed.zoomByKey(key), state.view === "heads"],
    ["x", () => toggleChosenCell(app), disabled],
    ["u", () => actions.undoAblation(app), state.ablated.length > 0 && state.editedRun === null],
    ["r", () => actions.redoAblation(app), state.ablated.length > 0 && state.editedRun === null],
    ["z", () => actions.zoomToCell(app), disabled],
    ["t", set({ direction: state.direction === "out" ? "in" : "out" })],
    ["p", () => actions.pinSelected(app)],
    ["a", set({ arcs: !state.arcs })],
    ["g", () => actions.toggleAttribution(app)],
    ["c", () => actions.nextSide(app)],
    ["v", () => actions.nextMode(app)],
    ["s", set({ special: !state.special })],
    ["w", set({ words: !state.words })],
    ["l", set({ log: !state.log })],
    ["n", set({ byRow: !state.byRow })],
    ["/", () => app.refs.searchInput.focus()],
    ["b", () => actions.togglePresenter(app)],
    ["d", () => actions.toggleTheme(app)],
    ["?", () => app.refs.help.showModal()],
    ["Escape", () => actions.dismiss(app)],
  ];
  const acts = (/** @type {string} */ key) => key.length > 1 || app.refs.characterKeys.checked;
  return table.map(([keys, action, isDisabled = false]) => ({
    keys: keys.split(" ").filter(acts),
    action,
    disabled: isDisabled,
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
