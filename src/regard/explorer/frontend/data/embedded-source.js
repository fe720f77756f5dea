// A page that holds its own data: every answer is computed from blobs that are unpacked when they are first asked for.
// `regard.web._page` says which blobs there are.

import { fromBase85, inflated, unpackedWeights } from "./codec.js";
import { pooled } from "./matrix.js";

/**
 * @typedef {import("./source.js").Manifest} Manifest
 * @typedef {import("../state/state.js").Head} Head
 */

const MOST_KEPT = 1 << 24; // weights that are unpacked at a time

/** @typedef {import("./source.js").Source} Source */

/** @implements {Source} */
export class EmbeddedSource {
  /** @param {Manifest} manifest @param {string} text of all blobs */
  constructor(manifest, text) {
    this.its = manifest;
    this.text = text;
    /** @type {Map<string, Promise<Float32Array>>} */
    this.maps = new Map();
  }

  async manifest() {
    return this.its;
  }

  /** @param {string} name */
  async blob(name) {
    const place = this.its.data?.[name];
    if (!place) throw new Error(`this page does not hold ${name}`);
    const [at, length, size] = place;
    return inflated(fromBase85(this.text.slice(at, at + length)), size);
  }

  /** @param {string} name */
  async json(name) {
    return JSON.parse(new TextDecoder().decode(await this.blob(name)));
  }

  /** @param {number} run */
  heads(run) {
    return this.json(`heads/${run}`);
  }

  /** @param {number} run */
  thumbnails(run) {
    return this.blob(`thumbnails/${run}`);
  }

  /** @param {number[]} runs */
  async movement(runs) {
    const all = await Promise.all(runs.map((run) => this.json(`movement/${run}`)));
    return { ...all[0], points: all.map(({ points }) => points[0]) };
  }

  async memory() {
    return null;
  }

  /** @returns {Promise<never>} */
  edit() {
    return Promise.reject(new Error("a page in a file has no model to run again: use regard explore without -o"));
  }

  /** The whole map of a head, T S. @param {number} run @param {number} layer @param {Head} head @param {string} way */
  map(run, layer, head, way) {
    const key = [run, layer, head, way].join("/");
    let found = this.maps.get(key);
    if (!found) {
      found = this.made(run, layer, head, way);
      this.maps.set(key, found);
      const { rows, cols } = this.its.runs[run].layers[layer];
      const most = Math.max(1, Math.floor(MOST_KEPT / (rows * cols)));
      for (const old of [...this.maps.keys()].slice(0, -most)) this.maps.delete(old);
    }
    return found;
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {string} way @returns {Promise<Float32Array>} */
  async made(run, layer, head, way) {
    const { rows, cols, heads } = this.its.runs[run].layers[layer];
    const decimals = this.its.digits ?? 4;
    if (way === "rollout") return unpackedWeights(await this.blob(`rollout/${run}/${layer}`), rows, cols, decimals);
    if (head === "mean") {
      const all = await Promise.all(Array.from({ length: heads }, (_, h) => this.made(run, layer, h, way)));
      return all[0].map((_, n) => all.reduce((sum, map) => sum + map[n], 0) / heads);
    }
    const weights = unpackedWeights(await this.blob(`weights/${run}/${layer}/${head}`), rows, cols, decimals);
    if (way !== "norms") return weights;
    const lengths = new Float32Array((await this.blob(`norms/${run}/${layer}`)).buffer).subarray(
      head * cols,
      (head + 1) * cols,
    );
    return weights.map((weight, n) => weight * lengths[n % cols]);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {import("./source.js").Part} part */
  async tile(run, layer, head, part) {
    const { rows, cols } = this.its.runs[run].layers[layer];
    return pooled({ values: await this.map(run, layer, head, part.way), rows, cols }, part);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {string} way */
  async row(run, layer, head, i, way) {
    const { cols } = this.its.runs[run].layers[layer];
    return (await this.map(run, layer, head, way)).slice(i * cols, (i + 1) * cols);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} j @param {string} way */
  async column(run, layer, head, j, way) {
    const { rows, cols } = this.its.runs[run].layers[layer];
    const map = await this.map(run, layer, head, way);
    return Float32Array.from({ length: rows }, (_, i) => map[i * cols + j]);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {number} j */
  async cell(run, layer, head, i, j) {
    const name = `vectors/${run}/${layer}/${head}`;
    const fields = this.its.steps?.[name];
    if (head === "mean") throw new Error("The mean of heads has no steps of its own: choose one head.");
    if (!fields)
      throw new Error(`This file holds the steps of ${this.stepsOf(run)}; regard explore without -o has all.`);
    const { rows, cols } = this.its.runs[run].layers[layer];
    return stepsFrom(new Float32Array((await this.blob(name)).buffer), fields, { rows, cols }, i, j);
  }

  /** @param {number} run */
  stepsOf(run) {
    const known = Object.keys(this.its.steps ?? {})
      .map((name) => name.split("/").map(Number))
      .filter((at) => at[1] === run);
    if (known.length === 0) return "no head";
    const layers = [...new Set(known.map((at) => at[2]))].map((layer) => this.its.runs[run].layers[layer].number);
    return layers.length > 1
      ? "other heads"
      : known.length > 1
        ? `layer ${layers} alone`
        : `layer ${layers}, head ${known[0][3]} alone`;
  }
}

/**
 * The steps of one weight, from a head's queries, keys, values, log-sum-exp and the stretch of columns that a row sees.
 * @param {Float32Array} numbers @param {{ sizes: [number, number], scale: number, softcap: number | null, sink: number | null,
 * kv_head: number, rotated: boolean | null }} fields
 * @param {{ rows: number, cols: number }} extent @param {number} i @param {number} j
 * @returns {import("./source.js").Cell}
 */
export function stepsFrom(numbers, { sizes: [d, dv], scale, softcap, sink, kv_head, rotated }, { rows, cols }, i, j) {
  const ends = [rows * d, (rows + cols) * d, (rows + cols) * d + cols * dv];
  const q = Array.from(numbers.subarray(i * d, (i + 1) * d));
  const keys = numbers.subarray(ends[0], ends[1]);
  const values = numbers.subarray(ends[1], ends[2]);
  const [lse, first, behind] = [0, 1, 2].map((n) => numbers[ends[2] + n * rows + i]);
  const score = (/** @type {number} */ at) => q.reduce((sum, x, n) => sum + x * keys[at * d + n], 0);
  const capped = (/** @type {number} */ x) => (softcap ? softcap * Math.tanh(x / softcap) : x);
  const seen = (/** @type {number} */ at) => first <= at && at < behind;
  const weightOf = (/** @type {number} */ at) =>
    seen(at) && Number.isFinite(lse) ? Math.exp(capped(score(at) * scale) - lse) : 0;
  const k = Array.from(keys.subarray(j * d, (j + 1) * d));
  const v = Array.from(values.subarray(j * dv, (j + 1) * dv));
  const products = q.map((x, n) => x * k[n]);
  const raw = score(j);
  const weight = weightOf(j);
  const output = new Array(dv).fill(0);
  let rowSum = 0;
  for (let at = 0; at < cols; at++) {
    const share = weightOf(at);
    rowSum += share;
    if (share > 0) for (let n = 0; n < dv; n++) output[n] += share * values[at * dv + n];
  }
  const last = capped(raw * scale);
  return {
    q,
    k,
    products,
    kv_head,
    score_raw: raw,
    scale,
    scaled: raw * scale,
    softcap,
    capped: last,
    bias: null,
    masked: !seen(j),
    biased: seen(j) ? last : null,
    sink,
    lse: Number.isFinite(lse) ? lse : null,
    row_sum: rowSum,
    weight,
    v,
    share: v.map((x) => (weight === 0 ? 0 : weight * x)),
    output,
    off: false,
    rotated,
    embedding: null,
    source: "q, k, v and the log-sum-exp of this file, which holds no embeddings",
  };
}
