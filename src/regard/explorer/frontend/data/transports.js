// How the page reaches Python: HTTP requests to the local server, or messages to the kernel of a notebook.

/** @typedef {import("./source.js").Ask} Ask */

/** Ask the local server. @param {string} base address of the page, which ends with "/" @returns {Ask} */
export function overHttp(base) {
  return async (name, parameters, signal) => {
    const isEdit = name === "edit";
    const query = isEdit
      ? ""
      : `?${new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]))}`;
    const posted = isEdit
      ? { method: "POST", body: JSON.stringify(parameters), headers: { "content-type": "application/json" } }
      : {};
    const answer = await fetch(`${base}api/${name}${query}`, { ...posted, signal, credentials: "omit" }).catch(
      (error) => {
        throw error.name === "AbortError"
          ? error
          : new Error("The server does not answer: is regard explore still running?");
      },
    );
    if (!answer.ok) throw new Error(refusal(answer.status, await answer.text()));
    const isJson = answer.headers.get("content-type")?.startsWith("application/json");
    return isJson ? answer.json() : new Uint8Array(await answer.arrayBuffer());
  };
}

/** Why a server did not answer, in its words. @param {number} status @param {string} text */
function refusal(status, text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text || `the server answered ${status}`;
  }
}

const SILENT = 5_000; // milliseconds without an answer after which a kernel may be gone

/** Asks the kernel of a notebook, by messages. */
export class Kernel {
  /** @param {any} model of anywidget @param {(is: boolean) => void} silent told when the kernel does not answer, and when it does again */
  constructor(model, silent) {
    this.model = model;
    this.silent = silent;
    this.view = Math.random().toString(36).slice(2); // every view of a widget hears the answers to all of them
    this.last = 0;
    /** @type {Map<string, { resolve: (answer: any) => void, reject: (reason: any) => void }>} */
    this.waiting = new Map();
    this.hear = (/** @type {any} */ message, /** @type {(DataView | ArrayBuffer)[]} */ buffers) =>
      this.answered(message, buffers);
    model.on("msg:custom", this.hear);
  }

  close() {
    this.model.off("msg:custom", this.hear);
    clearTimeout(this.patience);
  }

  /** Wait anew for an answer, if there is one to come. */
  wait() {
    clearTimeout(this.patience);
    if (this.waiting.size) this.patience = setTimeout(() => this.waiting.size && this.silent(true), SILENT);
  }

  /** @param {any} message @param {(DataView | ArrayBuffer)[]} [buffers] */
  answered(message, buffers = []) {
    this.silent(false);
    const asked = this.waiting.get(message?.id);
    this.waiting.delete(message?.id);
    this.wait();
    if (!asked) return;
    if (message.error) asked.reject(new Error(message.error));
    else asked.resolve(buffers.length ? bytesOf(buffers[0]) : message.result);
  }

  /** @type {Ask} */
  ask(method, params, signal) {
    const id = `${this.view}.${++this.last}`;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", () => {
        this.waiting.delete(id);
        reject(signal.reason);
      });
      try {
        this.model.send({ id, method, params });
      } catch {
        return reject(new Error("The kernel that showed this is gone: run the cell again."));
      }
      this.waiting.set(id, { resolve, reject });
      if (this.waiting.size === 1) this.wait();
    });
  }
}

/** Bytes of their own, so that they begin where numbers may. @param {DataView | ArrayBuffer} buffer */
function bytesOf(buffer) {
  return buffer instanceof ArrayBuffer
    ? new Uint8Array(buffer.slice(0))
    : new Uint8Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
}
