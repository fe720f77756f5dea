// Where a page gets its numbers: from the server that showed it, from itself, or from a notebook. One interface.

/**
 * @typedef {import("./text.js").Token} Token
 * @typedef {import("./state.js").Head} Head
 * @typedef {{ name: string, heads: number, kv_heads: number, rows: number, cols: number, causal: boolean, row_sum_error: number | null }} Layer
 * @typedef {{ name: string, model: string, text: string, tokens: Token[], layers: Layer[], movement: boolean, opening: { layer: number, head: number }, title?: string, thumbnail: number, sampled?: number | null }} Run
 * @typedef {{ key: string, title: string, unit?: string, says: string, not: string, source: string }} Sentence
 * @typedef {object} Manifest
 * @property {string} format
 * @property {string} title
 * @property {string} computed
 * @property {{ edit: boolean, tiles: boolean, exact: boolean }} can
 * @property {number | null} digits
 * @property {Run[]} runs
 * @property {Sentence[]} measures
 * @property {Sentence[]} ways
 * @property {number} [given]    how many of the runs were there before any edit
 * @property {boolean} [comparable]
 * @property {string | null} [why_not]
 * @property {Record<string, [number, number, number]>} [data]  of a page that holds its data, where each blob is
 * @property {Record<string, { sizes: [number, number], scale: number, softcap: number | null, kv_head: number, causal: boolean, rotated: boolean }>} [steps]
 * @typedef {{ way: string, row0: number, row1: number, col0: number, col1: number, rows: number, cols: number, pool: "max" | "mean" }} Part
 * @typedef {number[] | null} Vector
 * @typedef {{ q: Vector, k: Vector, products: Vector, kv_head: number, score_raw: number | null, scale: number | null, scaled: number | null, softcap: number | null, capped: number | null, bias: number | null, masked: boolean, biased: number | null, lse: number | null, weight: number, v: Vector, share: Vector, output: Vector, rotated: boolean, embedding: Vector, source: string }} Cell
 * @typedef {{ explained: number[], points: number[][][], stages: string[] }} Movement
 * @typedef {{ measures: Record<string, (number | null)[][]> }} Heads
 * @typedef {{ bytes: Uint8Array }} Thumbnails   of each layer and head, t t numbers from 0 to 255; t stands in the manifest
 * @typedef {{ token: string, before: number, after: number }} NextChange
 * @typedef {{ run: number, entry: Run, changes: { cosines: number[], next: NextChange[] | null } }} Edited
 *
 * @typedef {object} Source
 * @property {(signal?: AbortSignal) => Promise<Manifest>} manifest
 * @property {(run: number, signal?: AbortSignal) => Promise<Heads>} heads
 * @property {(run: number, signal?: AbortSignal) => Promise<Thumbnails>} thumbnails
 * @property {(run: number, layer: number, head: Head, part: Part, signal?: AbortSignal) => Promise<Float32Array>} tile
 * @property {(run: number, layer: number, head: Head, i: number, way: string, signal?: AbortSignal) => Promise<Float32Array>} row
 * @property {(run: number, layer: number, head: Head, j: number, way: string, signal?: AbortSignal) => Promise<Float32Array>} column
 * @property {(run: number, layer: number, head: Head, i: number, j: number, signal?: AbortSignal) => Promise<Cell>} cell
 * @property {(run: number, signal?: AbortSignal) => Promise<Movement>} movement
 * @property {(ablate: [number, number][], signal?: AbortSignal) => Promise<Edited>} edit
 */

/** The answers of the local server. @implements {Source} */
export class ServerSource {
  /** @param {string} base address of the page, which ends with "/" */
  constructor(base) {
    this.base = base;
  }

  /** @param {string} name @param {Record<string, any>} parameters @param {AbortSignal} [signal] */
  async ask(name, parameters, signal) {
    const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
    const answer = await fetch(`${this.base}api/${name}?${query}`, { signal, credentials: "omit" });
    return checkedAnswer(answer);
  }

  /** @param {string} name @param {Record<string, any>} parameters @param {AbortSignal} [signal] */
  async floats(name, parameters, signal) {
    return new Float32Array(await (await this.ask(name, parameters, signal)).arrayBuffer());
  }

  /** @param {AbortSignal} [signal] */
  async manifest(signal) {
    return (await this.ask("manifest", {}, signal)).json();
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async heads(run, signal) {
    return (await this.ask("heads", { run }, signal)).json();
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async thumbnails(run, signal) {
    const answer = await this.ask("thumbnails", { run }, signal);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    return { bytes };
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {Part} part @param {AbortSignal} [signal] */
  tile(run, layer, head, part, signal) {
    return this.floats("tile", { run, layer, head, ...part }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {string} way @param {AbortSignal} [signal] */
  row(run, layer, head, i, way, signal) {
    return this.floats("row", { run, layer, head, i, way }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} j @param {string} way @param {AbortSignal} [signal] */
  column(run, layer, head, j, way, signal) {
    return this.floats("column", { run, layer, head, j, way }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {number} j @param {AbortSignal} [signal] */
  async cell(run, layer, head, i, j, signal) {
    return (await this.ask("cell", { run, layer, head, i, j }, signal)).json();
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async movement(run, signal) {
    return (await this.ask("movement", { run }, signal)).json();
  }

  /** @param {[number, number][]} ablate @param {AbortSignal} [signal] */
  async edit(ablate, signal) {
    const body = JSON.stringify({ ablate });
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${this.base}api/edit`, { method: "POST", body, headers, signal, credentials: "omit" });
    return (await checkedAnswer(answer)).json();
  }
}

/** @param {Response} answer */
async function checkedAnswer(answer) {
  if (answer.ok) return answer;
  const text = await answer.text();
  let sentence = text || `the server answered ${answer.status}`;
  try {
    sentence = JSON.parse(text).error ?? sentence;
  } catch {
    // The sentence is the text itself.
  }
  throw new Error(sentence);
}

/**
 * The answers of a notebook's kernel, by messages.
 * @implements {Source}
 */
export class WidgetSource {
  /** @param {any} model of anywidget */
  constructor(model) {
    this.model = model;
    this.last = 0;
    /** @type {Map<number, { resolve: (answer: any) => void, reject: (reason: any) => void }>} */
    this.waiting = new Map();
    this.hear = (/** @type {any} */ message, /** @type {(DataView | ArrayBuffer)[]} */ buffers) => this.answered(message, buffers);
    model.on("msg:custom", this.hear);
  }

  close() {
    this.model.off("msg:custom", this.hear);
  }

  /** @param {any} message @param {(DataView | ArrayBuffer)[]} [buffers] */
  answered(message, buffers = []) {
    const asked = this.waiting.get(message?.id);
    if (!asked) return;
    this.waiting.delete(message.id);
    if (message.error) asked.reject(new Error(message.error));
    else asked.resolve({ result: message.result, bytes: buffers.length ? bytesOf(buffers[0]) : null });
  }

  /** @param {string} method @param {Record<string, any>} params @param {AbortSignal} [signal] @returns {Promise<any>} */
  ask(method, params, signal) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", () => {
        if (this.waiting.delete(id)) this.model.send({ id, method: "cancel", params: {} });
        reject(signal.reason);
      });
      this.waiting.set(id, { resolve, reject });
      this.model.send({ id, method, params });
    });
  }

  /** @param {string} method @param {Record<string, any>} params @param {AbortSignal} [signal] @returns {Promise<Float32Array>} */
  async floats(method, params, signal) {
    const { bytes } = await this.ask(method, params, signal);
    return new Float32Array(bytes.buffer);
  }

  /** @param {AbortSignal} [signal] */
  async manifest(signal) {
    return (await this.ask("manifest", {}, signal)).result;
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async heads(run, signal) {
    return (await this.ask("heads", { run }, signal)).result;
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async thumbnails(run, signal) {
    return { bytes: (await this.ask("thumbnails", { run }, signal)).bytes };
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {Part} part @param {AbortSignal} [signal] */
  tile(run, layer, head, part, signal) {
    return this.floats("tile", { run, layer, head, ...part }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {string} way @param {AbortSignal} [signal] */
  row(run, layer, head, i, way, signal) {
    return this.floats("row", { run, layer, head, i, way }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} j @param {string} way @param {AbortSignal} [signal] */
  column(run, layer, head, j, way, signal) {
    return this.floats("column", { run, layer, head, j, way }, signal);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {number} j @param {AbortSignal} [signal] */
  async cell(run, layer, head, i, j, signal) {
    return (await this.ask("cell", { run, layer, head, i, j }, signal)).result;
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  async movement(run, signal) {
    return (await this.ask("movement", { run }, signal)).result;
  }

  /** @param {[number, number][]} ablate @param {AbortSignal} [signal] */
  async edit(ablate, signal) {
    return (await this.ask("edit", { ablate }, signal)).result;
  }
}

/** Bytes of their own, so that they begin where numbers may. @param {DataView | ArrayBuffer} buffer */
function bytesOf(buffer) {
  return buffer instanceof ArrayBuffer ? new Uint8Array(buffer.slice(0)) : new Uint8Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
}
