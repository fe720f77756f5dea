// How the page reaches Python: HTTP requests to the local server, or messages to the kernel of a notebook.

/** Send requests to the local server. @param {string} base URL of the page, which ends with "/" @returns {Transport} */
export function httpTransport(base) {
  return async (method, params, signal) => {
    const isPost = ["ablate", "run_text"].includes(method);
    const query = isPost
      ? ""
      : `?${new URLSearchParams(Object.entries(params).map(([name, value]) => [name, String(value)]))}`;
    const post = { method: "POST", body: JSON.stringify(params), headers: { "content-type": "application/json" } };
    const options = { ...(isPost ? post : {}), signal, credentials: /** @type {const} */ ("omit") };
    const response = await fetch(`${base}api/${method}${query}`, options).catch((error) => {
      throw error.name === "AbortError"
        ? error
        : new Error("The server does not respond: is regard explore still running?");
    });
    if (!response.ok) throw new Error(errorMessage(response.status, await response.text()));
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return isJson ? response.json() : new Uint8Array(await response.arrayBuffer());
  };
}

/** @param {number} status @param {string} text */
function errorMessage(status, text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text || `HTTP status ${status}`;
  }
}

const UNRESPONSIVE_MS = 5_000; // without a response for so long, a kernel may be gone

/** Sends requests to the kernel of a notebook. */
export class KernelTransport {
  /** @param {any} model of anywidget @param {(unresponsive: boolean) => void} onUnresponsive  called at each change */
  constructor(model, onUnresponsive) {
    this.model = model;
    this.onUnresponsive = onUnresponsive;
    this.viewId = Math.random().toString(36).slice(2); // all views of a widget receive the responses to each
    this.lastId = 0;
    /** @type {Map<string, { resolve: (result: any) => void, reject: (reason: any) => void }>} */
    this.pending = new Map();
    this.onMessage = (/** @type {any} */ message, /** @type {(DataView | ArrayBuffer)[]} */ buffers) =>
      this.receive(message, buffers);
    model.on("msg:custom", this.onMessage);
  }

  close() {
    this.model.off("msg:custom", this.onMessage);
    clearTimeout(this.timer);
  }

  restartTimer() {
    clearTimeout(this.timer);
    if (this.pending.size)
      this.timer = setTimeout(() => this.pending.size && this.onUnresponsive(true), UNRESPONSIVE_MS);
  }

  /** @param {any} message @param {(DataView | ArrayBuffer)[]} [buffers] */
  receive(message, buffers = []) {
    this.onUnresponsive(false);
    const request = this.pending.get(message?.id);
    this.pending.delete(message?.id);
    this.restartTimer();
    if (!request) return;
    if (message.error) request.reject(new Error(message.error));
    else request.resolve(buffers.length ? copyBytes(buffers[0]) : message.result);
  }

  /** @type {Transport} */
  request(method, params, signal) {
    const id = `${this.viewId}.${++this.lastId}`;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", () => {
        this.pending.delete(id);
        reject(signal.reason);
      });
      try {
        this.model.send({ id, method, params });
      } catch {
        return reject(new Error("The kernel of this view is gone: run the cell again."));
      }
      this.pending.set(id, { resolve, reject });
      if (this.pending.size === 1) this.restartTimer();
    });
  }
}

/** A copy, aligned for a Float32Array. @param {DataView | ArrayBuffer} buffer */
function copyBytes(buffer) {
  return buffer instanceof ArrayBuffer
    ? new Uint8Array(buffer.slice(0))
    : new Uint8Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
}
