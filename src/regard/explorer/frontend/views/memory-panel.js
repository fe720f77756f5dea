// The memory of Python and of the page, fetched when the panel opens.

import { setText } from "../platform/dom.js";

/** @import { Memory, PageMemory, Refs } from "../types.js" */

/** @param {Refs} refs @param {() => Promise<Memory | null>} fetchMemory @param {() => PageMemory} pageMemory */
export function listenToMemory({ memory: panel, memoryText }, fetchMemory, pageMemory) {
  panel.addEventListener("toggle", async () => {
    if (!panel.open) return;
    const { memory: heap } = /** @type {any} */ (performance); // where the browser reports it
    const message = fetchMemory().then((memory) => describeMemory(memory, pageMemory(), heap?.usedJSHeapSize ?? null));
    setText(memoryText, await message.catch((error) => error.message));
  });
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
