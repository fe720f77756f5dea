// The color scheme of a notebook: dark if its text is light. Its background may be transparent or an image.

/** @implements {ColorScheme} */
export class NotebookColorScheme {
  /** @param {Element} element in the notebook, with its text color */
  constructor(element) {
    this.element = element;
  }

  get matches() {
    const context = new OffscreenCanvas(1, 1).getContext("2d");
    if (!context) return false;
    context.fillStyle = getComputedStyle(this.element).color; // the canvas parses any notation
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
    return 0.299 * red + 0.587 * green + 0.114 * blue > 128;
  }

  /** @param {"change"} _ @param {() => void} onChange @param {{ signal: AbortSignal }} options */
  addEventListener(_, onChange, { signal }) {
    const observer = new MutationObserver(onChange); // notebooks set their theme on one of these
    for (const node of [document.documentElement, document.body]) observer.observe(node, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange, { signal });
    signal.addEventListener("abort", () => observer.disconnect());
  }
}
