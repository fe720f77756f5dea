// The data of an exported page, which holds it in blobs: `regard.explorer.export_html` lists them.

import { heldAttribution } from "./attribution.js";
import { cellFrom } from "./cell.js";
import { decodeBlob, unpackWeights } from "./codec.js";
import { poolRegion } from "./matrix.js";

/**
 * @typedef {import("./source.js").Manifest} Manifest
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("../state/state.js").Head} Head
 */

const MAX_CACHED_WEIGHTS = 1 << 24;

/** @implements {Source} */
export class EmbeddedSource {
  /** @param {Manifest} manifest @param {string} text of all blobs */
  constructor(manifest, text) {
    this.contents = manifest;
    this.text = text;
    /** @type {Map<string, Promise<Float32Array>>} */
    this.maps = new Map();
  }

  async manifest() {
    return this.contents;
  }

  /** @param {string} name */
  async blob(name) {
    const entry = this.contents.blobs?.[name];
    if (!entry) throw new Error(`this page has no ${name}`);
    const [start, length] = entry;
    return decodeBlob(this.text.slice(start, start + length));
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
    return { ...all[0], points: all.map(({ points }) => points[0]), left_out: all.map((one) => one.left_out[0]) };
  }

  /** @param {number} run @param {import("./source.js").AttributionQuery} query */
  async attribution(run, query) {
    const name = `attributions/${run}`;
    const held = this.contents.blobs?.[name] ? await this.json(name) : {};
    const titles = Object.fromEntries(this.contents.attribution_methods.map(({ key, title }) => [key, title]));
    return heldAttribution(held, query, this.contents.runs[run].attribution.method, titles);
  }

  async memory() {
    return null;
  }

  async training() {
    return null;
  }

  /** @returns {Promise<never>} */
  ablate() {
    return Promise.reject(new Error("A page in a file has no model to run again: use regard explore without -o."));
  }

  /** The whole map of a head, T S. @param {number} run @param {number} layer @param {Head} head @param {string} mode */
  map(run, layer, head, mode) {
    const key = [run, layer, head, mode].join("/");
    let found = this.maps.get(key);
    if (!found) {
      found = this.unpackMap(run, layer, head, mode);
      this.maps.set(key, found);
      const { rows, cols } = this.contents.runs[run].layers[layer];
      const maxMaps = Math.max(1, Math.floor(MAX_CACHED_WEIGHTS / (rows * cols)));
      for (const old of [...this.maps.keys()].slice(0, -maxMaps)) this.maps.delete(old);
    }
    return found;
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {string} mode @returns {Promise<Float32Array>} */
  async unpackMap(run, layer, head, mode) {
    const { rows, cols, heads } = this.contents.runs[run].layers[layer];
    const decimals = this.contents.decimals ?? 4;
    if (mode === "rollout") return unpackWeights(await this.blob(`rollout/${run}/${layer}`), rows, cols, decimals);
    if (head === "mean") {
      const all = await Promise.all(Array.from({ length: heads }, (_, h) => this.unpackMap(run, layer, h, mode)));
      return all[0].map((_, n) => all.reduce((sum, map) => sum + map[n], 0) / heads);
    }
    const weights = unpackWeights(await this.blob(`weights/${run}/${layer}/${head}`), rows, cols, decimals);
    if (mode !== "norms") return weights;
    const norms = new Float32Array((await this.blob(`norms/${run}/${layer}`)).buffer);
    return weights.map((weight, n) => weight * norms[head * cols + (n % cols)]);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {import("./source.js").Region} region */
  async tile(run, layer, head, region) {
    const { rows, cols } = this.contents.runs[run].layers[layer];
    return poolRegion({ values: await this.map(run, layer, head, region.mode), rows, cols }, region);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {string} mode */
  async row(run, layer, head, i, mode) {
    const { cols } = this.contents.runs[run].layers[layer];
    return (await this.map(run, layer, head, mode)).slice(i * cols, (i + 1) * cols);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} j @param {string} mode */
  async column(run, layer, head, j, mode) {
    const { rows, cols } = this.contents.runs[run].layers[layer];
    const map = await this.map(run, layer, head, mode);
    return Float32Array.from({ length: rows }, (_, i) => map[i * cols + j]);
  }

  /** @param {number} run @param {number} layer @param {Head} head @param {number} i @param {number} j */
  async cell(run, layer, head, i, j) {
    const name = `cell_inputs/${run}/${layer}/${head}`;
    const fields = this.contents.cell_inputs?.[name];
    if (head === "mean") throw new Error("The mean of heads has no steps of its own: choose one head.");
    if (!fields) {
      const held = this.headsWithSteps(run);
      throw new Error(`This file holds the steps of ${held}; regard explore without -o has all.`);
    }
    return cellFrom(
      new Float32Array((await this.blob(name)).buffer),
      fields,
      this.contents.runs[run].layers[layer],
      i,
      j,
    );
  }

  /** @param {number} run */
  headsWithSteps(run) {
    const held = Object.keys(this.contents.cell_inputs ?? {})
      .map((name) => name.split("/").slice(1).map(Number))
      .filter(([heldRun]) => heldRun === run);
    if (held.length === 0) return "no head";
    const layers = [...new Set(held.map(([, layer]) => this.contents.runs[run].layers[layer].number))];
    if (layers.length > 1) return "other heads";
    return held.length > 1 ? `layer ${layers} alone` : `layer ${layers}, head ${held[0][2]} alone`;
  }
}
