// Entry point of the page, served or exported.

import { decodeBlob } from "../data/codec.js";
import { embeddedSource } from "../data/embedded-source.js";
import { remoteSource } from "../data/source.js";
import { httpTransport } from "../data/transports.js";
import { el, parseMarkup } from "../platform/dom.js";
import { App } from "./app.js";

const root = /** @type {HTMLElement} */ (document.getElementById("regard"));
const textOf = (/** @type {string} */ id) => document.getElementById(id)?.textContent ?? "";

/** The page of a file has its data, and its style and markup packed. */
async function start() {
  const [held, served] = [textOf("regard-manifest"), document.getElementById("regard-page")];
  const source = held
    ? embeddedSource(JSON.parse(held), textOf("regard-data"))
    : remoteSource(httpTransport(new URL("./", location.href).href));
  const packed = async () => new TextDecoder().decode(await decodeBlob(textOf("regard-markup")));
  const markup = served instanceof HTMLTemplateElement ? served.content : parseMarkup(await packed());
  document.head.append(...markup.querySelectorAll("style"));
  new App(root, source, await source.manifest(), { markup, syncUrl: true });
}

start().catch(({ message }) => {
  root.replaceChildren(el("p", { class: "rg-error", role: "alert" }, `This page could not start: ${message}`));
});
