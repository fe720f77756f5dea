// Where a notebook begins: the same page in an output, with its questions as messages.

import { Answers } from "../data/source.js";
import { Kernel } from "../data/transports.js";
import { NotebookDark } from "../platform/color-scheme.js";
import { el } from "../platform/dom.js";
import { App } from "./app.js";

const SILENT =
  "The kernel does not answer. If it is busy, this goes on when it is done; if it was stopped, or the notebook was opened anew, run the cell again.";

/** @param {{ model: any, el: HTMLElement }} given by anywidget */
export function render({ model, el: place }) {
  const root = el("div", { class: "regard rg-widget" });
  const silent = el("p", { class: "rg-silent", role: "status", hidden: true }, SILENT);
  const frame = el("div", { class: "rg-frame", "data-lm-suppress-shortcuts": "true" }, silent, root); // JupyterLab leaves its keys alone
  // So do others, with what is no shortcut of a browser's or of theirs.
  frame.addEventListener(
    "keydown",
    (event) => event.ctrlKey || event.metaKey || event.altKey || event.stopPropagation(),
  );
  place.append(frame);
  const kernel = new Kernel(model, (is) => {
    silent.hidden = !is;
    root.hidden = is && !root.hasChildNodes();
  });
  const source = new Answers(kernel.ask.bind(kernel));
  const app = source
    .manifest()
    .then((manifest) => new App(root, source, manifest, { address: false, dark: new NotebookDark(place) }));
  app.catch((error) =>
    root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This view could not begin: ${error.message}`)),
  );
  return () => {
    app.then(
      (begun) => begun.close(),
      () => {},
    );
    kernel.close();
    frame.remove();
  };
}
