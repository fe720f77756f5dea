// How the page reaches Python: HTTP requests to the local server, or messages to the kernel of a notebook.

/** Send requests to the local server. @param {string} base URL of the page, which ends with "/" @returns {Transport} */
export function httpTransport(base) {
  return async (method, params, signal) => {
    const headers = { "content-type": "application/json" };
    const options = { method: "POST", body: JSON.stringify(params), headers, signal };
    const response = await fetch(`${base}api/${method}`, { ...options, credentials: "omit" }).catch((error) => {
      throw error.name === "AbortError"
        ? error
        : new Error("The server does not respond: is regard explore still running?");
    });
    if (!response.ok) throw new Error(errorMessage(response.status, await response.text()));
    const type = response.headers.get("content-type") ?? "";
    if (type.startsWith("application/json")) return response.json();
    return arrayOf(type, await response.arrayBuffer());
  };
}

/** Of a type that ends with "float32", else of bytes. @param {string} type @param {ArrayBuffer} buffer */
const arrayOf = (type, buffer) => (type.endsWith("float32") ? new Float32Array(buffer) : new Uint8Array(buffer));

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
    else request.resolve(buffers.length ? arrayOf(message.type, copyOf(buffers[0])) : message.result);
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

/** A copy, which begins at a multiple of 4 bytes. @param {DataView | ArrayBuffer} buffer @returns {ArrayBuffer} */
function copyOf(buffer) {
  const view = buffer instanceof ArrayBuffer ? new DataView(buffer) : buffer;
  return /** @type {ArrayBuffer} */ (view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}
