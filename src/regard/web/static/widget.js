// Where a notebook begins: the same page in an output, with its questions as messages.

import { App } from "./app.js";
import { el } from "./dom.js";
import { WidgetSource } from "./source.js";

/** @param {{ model: any, el: HTMLElement }} given by anywidget */
export function render({ model, el: place }) {
  const root = el("div", { class: "regard rg-widget", "data-lm-suppress-shortcuts": "true" }); // JupyterLab leaves its keys alone
  place.append(root);
  const source = new WidgetSource(model);
  const app = new App(root, source, { address: false });
  app.start().catch((error) => root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This view could not begin: ${error.message}`)));
  return () => {
    app.close();
    source.close();
  };
}
