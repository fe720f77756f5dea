// Where a page begins: with the data that it holds, or with the server that it came from.

import { App } from "./app.js";
import { el } from "./dom.js";
import { EmbeddedSource } from "./embedded.js";
import { Answers, overHttp } from "./source.js";

const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
const manifest = document.getElementById("regard-manifest");
const source = manifest
  ? new EmbeddedSource(JSON.parse(manifest.textContent ?? ""), document.getElementById("regard-data")?.textContent ?? "")
  : new Answers(overHttp(new URL("./", location.href).href));
source.manifest().then((its) => new App(root, source, its, { address: true })).catch((error) => {
  root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This page could not begin: ${error.message}`));
});
