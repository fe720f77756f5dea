// Entry point of the widget of a notebook: the same page, with requests as messages to the kernel.

import { remoteSource } from "../data/source.js";
import { KernelTransport } from "../data/transports.js";
import { NotebookColorScheme } from "../platform/color-scheme.js";
import { el, parseMarkup } from "../platform/dom.js";
import { App } from "./app.js";

const UNRESPONSIVE =
  "The kernel does not respond. If it is busy, this view continues when it is done; if it was stopped, or the notebook was reopened, run the cell again.";

/** @param {{ model: any, el: HTMLElement }} context of anywidget */
export function render({ model, el: container }) {
  const root = el("div", { class: "regard rg-widget" });
  const notice = el("p", { class: "rg-unresponsive", role: "status", hidden: true }, UNRESPONSIVE);
  // Of JupyterLab, the attribute suppresses its shortcuts; elsewhere, keys without a modifier do not leave the widget.
  const frame = el("div", { class: "rg-frame", "data-lm-suppress-shortcuts": "true" }, notice, root);
  frame.addEventListener(
    "keydown",
    (event) => event.ctrlKey || event.metaKey || event.altKey || event.stopPropagation(),
  );
  container.append(frame);
  const transport = new KernelTransport(model, (isUnresponsive) => {
    notice.hidden = !isUnresponsive;
    root.hidden = isUnresponsive && !root.hasChildNodes();
  });
  const source = remoteSource(transport.request.bind(transport));
  const colorScheme = new NotebookColorScheme(container);
  const options = { markup: parseMarkup(model.get("markup")), syncUrl: false, colorScheme };
  const app = source.manifest().then((manifest) => new App(root, source, manifest, options));
  app.catch(({ message }) =>
    root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This view could not start: ${message}`)),
  );
  return () => {
    app.then((started) => started.close()).catch(() => {}); // it may not have started
    transport.close();
    frame.remove();
  };
}
