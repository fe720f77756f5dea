// What each key does, said once: the page acts on it, and the list behind "?" shows it.

import { el } from "./dom.js";

/** @typedef {{ keys: string[], shown?: string, says: string, act: (key: string) => void }} Binding */

/**
 * The binding of a key press, if it is one; what is typed into a field is left alone.
 * @param {Binding[]} bindings @param {KeyboardEvent} event
 */
export function bindingOf(bindings, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const target = /** @type {HTMLElement | null} */ (event.target);
  const writes = target?.matches?.("input:not([type=checkbox]), select, textarea");
  if (writes && event.key !== "Escape") return undefined;
  const onButton = target?.matches?.("button, [role=button], summary, a") && ["Enter", " "].includes(event.key);
  return onButton ? undefined : bindings.find(({ keys }) => keys.includes(event.key));
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
