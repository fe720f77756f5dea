// Where a page gets its numbers: from the server that showed it, from itself, or from a notebook. One interface.

/**
 * @typedef {import("./tokens.js").Token} Token
 * @typedef {import("../state/state.js").Head} Head
 * @typedef {{ name: string, number: number, heads: number, kv_heads: number | null, rows: number, cols: number, causal: boolean, row_sum_error: number | null, not_numbers: number }} Layer
 * @typedef {{ model: string, text: string, tokens: Token[], layers: Layer[], plane: string | null, opening: { layer: number, head: number }, title?: string, of?: number, thumbnail: number, sampled?: number | null }} Run
 * @typedef {{ key: string, title: string, unit?: string, says: string, not: string, source: string }} Sentence
 * @typedef {object} Manifest
 * @property {string} format
 * @property {string} title
 * @property {string} computed
 * @property {{ edit: boolean, tiles: boolean }} can
 * @property {number | null} digits
 * @property {Run[]} runs
 * @property {Sentence[]} measures
 * @property {Sentence[]} ways
 * @property {number} [given]    how many of the runs were there before any edit
 * @property {boolean} [comparable]
 * @property {string | null} [why_not]
 * @property {Record<string, [number, number, number]>} [data]  of a page that holds its data, where each blob is
 * @property {Record<string, { sizes: [number, number], scale: number, softcap: number | null, sink: number | null, kv_head: number, rotated: boolean | null }>} [steps]
 * @typedef {{ way: string, row0: number, row1: number, col0: number, col1: number, by: number, pool: "max" | "mean" }} Part
 * @typedef {(number | null)[] | null} Vector   null within for what is no finite number
 * @typedef {{ q: Vector, k: Vector, products: Vector, kv_head: number | null, score_raw: number | null, scale: number | null, scaled: number | null, softcap: number | null, capped: number | null, bias: number | null, masked: boolean | null, biased: number | null, sink: number | null, lse: number | null, row_sum: number | null, weight: number | null, v: Vector, share: Vector, output: Vector, off: boolean, rotated: boolean | null, embedding: Vector, source: string }} Cell
 * @typedef {{ explained: number[], points: number[][][], stages: string[] }} Movement   of one run
 * @typedef {{ explained: number[], points: number[][][][], stages: string[] }} Movements   of some runs on one plane
 * @typedef {{ measures: Record<string, (number | null)[][]> }} Heads
 * @typedef {{ token: string, before: number, after: number }} NextChange
 * @typedef {{ runs: number, overviews: number, overviews_at_most: number, process_at_most: number | null }} Memory  bytes
 * @typedef {{ run: number, entry: Run, changes: { cosines: number[], next: NextChange[] | null, heads: number[][] } }} Edited
 *   `heads` has for each layer and head by how much a weight changed, at most.
 *
 * @typedef {object} Source
 * @property {(signal?: AbortSignal) => Promise<Manifest>} manifest
 * @property {(run: number, signal?: AbortSignal) => Promise<Heads>} heads
 * @property {(run: number, signal?: AbortSignal) => Promise<Uint8Array>} thumbnails  of each layer and head, t t numbers from 0 to 255; t stands in the manifest
 * @property {(run: number, layer: number, head: Head, part: Part, signal?: AbortSignal) => Promise<Float32Array>} tile
 * @property {(run: number, layer: number, head: Head, i: number, way: string, signal?: AbortSignal) => Promise<Float32Array>} row
 * @property {(run: number, layer: number, head: Head, j: number, way: string, signal?: AbortSignal) => Promise<Float32Array>} column
 * @property {(run: number, layer: number, head: Head, i: number, j: number, signal?: AbortSignal) => Promise<Cell>} cell
 * @property {(runs: number[], signal?: AbortSignal) => Promise<Movements>} movement
 * @property {(signal?: AbortSignal) => Promise<Memory | null>} memory  that Python holds; null where there is none
 * @property {(ablate: [number, number][], run: number, signal?: AbortSignal) => Promise<Edited>} edit
 *
 * @typedef {(name: string, parameters: Record<string, any>, signal?: AbortSignal) => Promise<any>} Ask
 *   The answer to a question by its name: bytes as a Uint8Array, everything else as it is.
 */

/** The questions of the page, whichever way they are asked. @implements {Source} */
export class Answers {
  /** @param {Ask} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** @param {string} name @param {Record<string, any>} parameters @param {AbortSignal} [signal] */
  async floats(name, parameters, signal) {
    return new Float32Array((await this.ask(name, parameters, signal)).buffer);
  }

  /** @param {AbortSignal} [signal] */
  manifest(signal) {
    return this.ask("manifest", {}, signal);
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  heads(run, signal) {
    return this.ask("heads", { run }, signal);
  }

  /** @param {number} run @param {AbortSignal} [signal] */
  thumbnails(run, signal) {
    return this.ask("thumbnails", { run }, signal);
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
  cell(run, layer, head, i, j, signal) {
    return this.ask("cell", { run, layer, head, i, j }, signal);
  }

  /** @param {number[]} runs @param {AbortSignal} [signal] */
  movement(runs, signal) {
    return this.ask("movement", { runs }, signal);
  }

  /** @param {AbortSignal} [signal] */
  memory(signal) {
    return this.ask("memory", {}, signal);
  }

  /** @param {[number, number][]} ablate @param {number} run @param {AbortSignal} [signal] */
  edit(ablate, run, signal) {
    return this.ask("edit", { ablate, run }, signal);
  }
}
