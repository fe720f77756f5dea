// What a notebook looks like: dark, where its text is light. Its ground may be transparent or an image; its text is neither.

/** @typedef {{ readonly matches: boolean, addEventListener: (type: "change", changed: () => void, options: { signal: AbortSignal }) => void }} Dark */

/** @implements {Dark} */
export class NotebookDark {
  /** @param {Element} place an element of the notebook, whose text has the notebook's colour */
  constructor(place) {
    this.place = place;
  }

  get matches() {
    const context = new OffscreenCanvas(1, 1).getContext("2d");
    if (!context) return false;
    context.fillStyle = getComputedStyle(this.place).color; // in whichever notation
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
    return 0.299 * red + 0.587 * green + 0.114 * blue > 128;
  }

  /** @param {"change"} _ @param {() => void} changed @param {{ signal: AbortSignal }} options */
  addEventListener(_, changed, { signal }) {
    const observer = new MutationObserver(changed); // a notebook says its theme on one of these
    for (const node of [document.documentElement, document.body]) observer.observe(node, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
    signal.addEventListener("abort", () => observer.disconnect());
  }
}
