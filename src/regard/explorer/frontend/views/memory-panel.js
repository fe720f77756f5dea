// What is held, where a person can see it: by Python, which computes, and by the page. Asked when it is looked at.

import { el, setText } from "../platform/dom.js";

/**
 * @typedef {import("../data/source.js").Memory} Memory
 * @typedef {{ bytes: number, most: number }} Held  what the page holds of the maps that are shown
 */

export class MemoryTold {
  /** @param {{ ask: () => Promise<Memory | null>, held: () => Held }} doings */
  constructor({ ask, held }) {
    this.text = el("p", { class: "rg-muted", role: "status" });
    this.node = el("details", { class: "rg-memory" }, el("summary", {}, "Memory"), this.text);
    this.node.addEventListener("toggle", () => {
      if (!this.node.open) return;
      ask()
        .then(
          (memory) => memoryInWords(memory, held(), heap()),
          (error) => error.message,
        )
        .then((words) => setText(this.text, words));
    });
  }
}

/** The bytes that JavaScript holds, where the browser tells. @returns {number | null} */
function heap() {
  return /** @type {any} */ (performance).memory?.usedJSHeapSize ?? null;
}

/** @param {Memory | null} memory of Python; null where there is none @param {Held} held @param {number | null} heap */
export function memoryInWords(memory, held, heap) {
  const mb = (/** @type {number} */ bytes) =>
    `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 })} MB`;
  const parts = memory && [
    `Python holds ${mb(memory.runs)} of runs and ${mb(memory.overviews)} of overviews, never more than ${mb(memory.overviews_at_most)}`,
    memory.process_at_most === null ? "" : `; its process had ${mb(memory.process_at_most)} at its largest`,
    ". ",
  ];
  const page = `What is shown holds ${mb(held.bytes)} of weights and their pictures, never more than ${mb(held.most)}`;
  return `${parts ? parts.join("") : ""}${page}${heap === null ? "" : `; all that this page computes with ${mb(heap)}`}.`;
}
