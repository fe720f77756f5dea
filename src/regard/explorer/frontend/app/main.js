// Entry point of the page, served or exported.

import { embeddedSource } from "../data/embedded-source.js";
import { apiSource } from "../data/source.js";
import { httpTransport } from "../data/transports.js";
import { el } from "../platform/dom.js";
import { App } from "./app.js";

const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
const embedded = document.getElementById("regard-manifest");
const textOf = (/** @type {HTMLElement | null} */ node) => node?.textContent ?? "";
const source = embedded
  ? embeddedSource(JSON.parse(textOf(embedded)), textOf(document.getElementById("regard-data")))
  : apiSource(httpTransport(new URL("./", location.href).href));
source
  .manifest()
  .then((manifest) => new App(root, source, manifest, { syncUrl: true }))
  .catch(({ message }) => {
    root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This page could not start: ${message}`));
  });
