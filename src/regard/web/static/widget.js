// Where a notebook begins: the same page in an output, with its questions as messages.

import { App } from "./app.js";
import { el } from "./dom.js";
import { Answers, Kernel } from "./source.js";

/** @param {{ model: any, el: HTMLElement }} given by anywidget */
export function render({ model, el: place }) {
  const root = el("div", { class: "regard rg-widget", "data-lm-suppress-shortcuts": "true" }); // JupyterLab leaves its keys alone
  place.append(el("div", { class: "rg-frame" }, root));
  const kernel = new Kernel(model);
  const source = new Answers(kernel.ask.bind(kernel));
  const app = source.manifest().then((manifest) => new App(root, source, manifest, { address: false }));
  app.catch((error) => root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This view could not begin: ${error.message}`)));
  return () => {
    app.then((begun) => begun.close(), () => {});
    kernel.close();
  };
}
