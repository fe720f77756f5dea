// Where a page begins: with the data that it holds, or with the server that it came from.

import { EmbeddedSource } from "../data/embedded-source.js";
import { Answers } from "../data/source.js";
import { overHttp } from "../data/transports.js";
import { el } from "../platform/dom.js";
import { App } from "./app.js";

const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
const manifest = document.getElementById("regard-manifest");
const source = manifest
  ? new EmbeddedSource(
      JSON.parse(manifest.textContent ?? ""),
      document.getElementById("regard-data")?.textContent ?? "",
    )
  : new Answers(overHttp(new URL("./", location.href).href));
source
  .manifest()
  .then((its) => new App(root, source, its, { address: true }))
  .catch((error) => {
    root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This page could not begin: ${error.message}`));
  });
