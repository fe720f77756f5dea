// What each key does, said once: the page acts on it, and the list behind "?" shows it.

import { el } from "./dom.js";

/**
 * @typedef {{ keys: string[], shown?: string, says: string, idle?: boolean, act: (key: string) => void }} Binding
 *   An idle one has nothing to act on in the view that is seen.
 */

/**
 * The binding of a key press, if it is one; what is typed into a field is left alone, and arrows that move a slider.
 * @param {Binding[]} bindings @param {KeyboardEvent} event
 */
export function bindingOf(bindings, event) {
  const makesSign = event.getModifierState?.("AltGraph") || (event.altKey && !event.ctrlKey && "[]{}".includes(event.key)); // where brackets need it
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
    el("div", { class: "rg-dialog-head" }, el("h2", {}, "Keys"), el("button", { type: "button", class: "rg-icon", "aria-label": "Close", on: { click: () => dialog.close() } }, "×")),
    el("dl", { class: "rg-keys" }, ...bindings.flatMap(({ keys, shown, says }) => [
      el("dt", {}, ...(shown ?? keys[0]).split(" ").map((key) => el("kbd", {}, key))),
      el("dd", {}, says),
    ])),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
