// The memory of Python and of the page, fetched when the panel opens.

import { el, setText } from "../platform/dom.js";

/** @import { Memory, PageMemory } from "../types.js" */

export class MemoryPanel {
  /** @param {{ fetchMemory: () => Promise<Memory | null>, pageMemory: () => PageMemory }} actions */
  constructor({ fetchMemory, pageMemory }) {
    this.text = el("p", { class: "rg-muted", role: "status" });
    this.node = el("details", { class: "rg-memory" }, el("summary", {}, "Memory"), this.text);
    this.node.addEventListener("toggle", () => {
      if (!this.node.open) return;
      fetchMemory()
        .then(
          (memory) => describeMemory(memory, pageMemory(), jsHeap()),
          (error) => error.message,
        )
        .then((words) => setText(this.text, words));
    });
  }
}

/** The bytes of the JavaScript heap, where the browser reports it. @returns {number | null} */
function jsHeap() {
  return /** @type {any} */ (performance).memory?.usedJSHeapSize ?? null;
}

/** @param {Memory | null} memory of Python; null without it @param {PageMemory} pageMemory @param {number | null} jsHeap */
export function describeMemory(memory, pageMemory, jsHeap) {
  const mb = (/** @type {number} */ bytes) =>
    `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 })} MB`;
  const parts = memory && [
    `Python holds ${mb(memory.runs)} of runs and ${mb(memory.overviews)} of overviews, at most ${mb(memory.overviews_limit)}`,
    memory.process_peak === null ? "" : `; the peak of its process is ${mb(memory.process_peak)}`,
    ". ",
  ];
  const page = `The maps on the page hold ${mb(pageMemory.bytes)} of weights and pixels, at most ${mb(pageMemory.limit)}`;
  return `${parts ? parts.join("") : ""}${page}${jsHeap === null ? "" : `; the JavaScript heap ${mb(jsHeap)}`}.`;
}
