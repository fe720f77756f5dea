// The memory of Python and of the page, fetched when the panel opens.

import { setText } from "../platform/dom.js";

/** @param {App} app */
export function listenToMemory({ refs, source, queries, controller }) {
  refs.memory.addEventListener("toggle", async () => {
    if (!refs.memory.open) return;
    const { memory: heap } = /** @type {any} */ (performance); // where the browser reports it
    const message = source
      .memory({}, controller.signal)
      .then((memory) => describeMemory(memory, queries.memory(), heap?.usedJSHeapSize ?? null));
    setText(refs.memoryText, await message.catch((error) => error.message));
  });
}

/** @param {Memory | null} memory of Python; null without it @param {PageMemory} pageMemory @param {number | null} jsHeap */
export function describeMemory(memory, pageMemory, jsHeap) {
  const mb = (/** @type {number} */ bytes) =>
    `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 })} MB`;
  const peak = memory?.process_peak ? `; the peak of its process is ${mb(memory.process_peak)}` : "";
  const python = memory
    ? `Python holds ${mb(memory.runs)} of runs and ${mb(memory.overviews)} of overviews, at most ${mb(memory.overviews_limit)}${peak}. `
    : "";
  const page = `The maps on the page hold ${mb(pageMemory.bytes)} of weights and pixels, at most ${mb(pageMemory.limit)}`;
  const heap = jsHeap === null ? "" : `; the JavaScript heap ${mb(jsHeap)}`;
  return `${python}${page}${heap}.`;
}
