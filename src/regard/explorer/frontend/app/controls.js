// The controls of the page that show a field of the state and set it: those with a `data-field`.

import { activeElementOf, onSegment, setAttribute, showSegment } from "../platform/dom.js";

/** @param {ParentNode} root */
function controlsOf(root) {
  const nodes = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-field]"));
  return [...nodes].map((node) => ({ node, field: /** @type {keyof State} */ (node.dataset.field) }));
}

/** @param {ParentNode} root @param {(change: Partial<State>) => void} set */
export function bindControls(root, set) {
  for (const { node, field } of controlsOf(root)) {
    if (node instanceof HTMLButtonElement)
      node.addEventListener("click", () => set({ [field]: node.getAttribute("aria-expanded") !== "true" }));
    else if (node instanceof HTMLInputElement) {
      const isImmediate = node.type === "range" || node.type === "search";
      const valueOf = () => ({ checkbox: node.checked, range: Number(node.value) })[node.type] ?? node.value;
      node.addEventListener(isImmediate ? "input" : "change", () => set({ [field]: valueOf() }));
    } else if (node instanceof HTMLSelectElement) node.addEventListener("change", () => set({ [field]: node.value }));
    else onSegment(node, (key) => set({ [field]: key }));
  }
}

/** A button shows or hides what follows it. @param {ParentNode} root @param {State} state */
export function showControls(root, state) {
  for (const { node, field } of controlsOf(root)) {
    const value = state[field];
    if (node instanceof HTMLButtonElement) {
      setAttribute(node, "aria-expanded", String(value));
      /** @type {HTMLElement} */ (node.nextElementSibling).hidden = !value;
    } else if (node instanceof HTMLInputElement && node.type === "checkbox") node.checked = Boolean(value);
    else if (node instanceof HTMLInputElement && node.type !== "range" && activeElementOf(node) === node) continue;
    else if (node instanceof HTMLInputElement || node instanceof HTMLSelectElement) node.value = String(value);
    else showSegment(node, String(value));
  }
}
