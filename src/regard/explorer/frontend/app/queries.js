// What several parts of the page ask for: the maps, the steps of a cell, and what is kept of each run.

import { withProducts } from "../data/cell.js";
import { differenceOf, fitsInMemory, loadMap } from "../data/map-data.js";
import { QueryClient } from "../data/query.js";
import { recentMaps } from "../data/recent-maps.js";
import { differenceBlockedBy, sidesOf, withSelection } from "../state/sides.js";
import { normalize } from "../state/state.js";
import { headBeside } from "./actions.js";

export class Queries {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.client = new QueryClient(
      app.source,
      (busy) => app.setBusy(busy),
      () => app.refresh(),
    );
    this.fetchMap = recentMaps(app.source, app.controller.signal);
    this.progress = /** @type {LiveMetric | null} */ (null); // of a search that continues
    /** @type {Map<string, Promise<any>>} */
    this.cache = new Map(); // of each run, since the page switches between runs
  }

  close() {
    this.cancelTiles();
    this.client.close();
  }

  /** What has come for what is asked. @param {string} name @returns {any} */
  data(name) {
    const { isAsked, answer } = this.client.named(name);
    return isAsked ? answer.data : null;
  }

  cancelTiles() {
    for (const pyramid of this.pyramids()) pyramid.cancelExcept(new Set());
  }

  /** Of A, B and A − B. */
  pyramids() {
    const { sides, difference } = /** @type {Maps} */ (
      this.client.named("maps").last.data ?? { sides: [], difference: null }
    );
    return (difference ? [...sides, difference] : sides).map(({ pyramid }) => pyramid);
  }

  /** Bytes of the maps that are shown, and their limit. */
  memory() {
    const all = this.pyramids().map(({ memory }) => memory);
    const sumOf = (/** @type {"bytes" | "limit"} */ key) => all.reduce((sum, memory) => sum + memory[key], 0);
    return { bytes: sumOf("bytes"), limit: sumOf("limit") };
  }

  /** The maps of A and B. @param {Ask} ask @returns {Answer<Maps>} */
  maps(ask) {
    const { source, manifest, parts, state } = this.app;
    const { mode, words, special, byRow, pool, from, to } = state;
    const headRefs = this.app.sides();
    const query = this.client.named("maps");
    const load = async (/** @type {AbortSignal} */ signal) => {
      const onTile = () => {
        query.report(null);
        parts.map.draw();
      };
      const onError = (/** @type {Error} */ error) => query.report(error);
      const options = { signal, onTile, onError, fetchMap: this.fetchMap };
      const sides = await Promise.all(headRefs.map((ref) => loadMap(source, manifest, state, ref, options)));
      signal.throwIfAborted();
      this.cancelTiles();
      const [a, b] = sides;
      const hasDifference = b && differenceBlockedBy(state, manifest) === null;
      return {
        sides,
        difference: hasDifference ? differenceOf(a, b, state) : null,
        pooledMax: Math.max(...sides.map(({ pyramid }) => pyramid.pooledMax)) || 1,
        cellMax: Math.max(...sides.map(({ pyramid }) => pyramid.cellMax)) || 1,
      };
    };
    const question = [headRefs, mode, words, special, byRow, pool, from, to];
    return ask("maps", question, load, { inBar: true, onData: () => this.prefetchMaps() });
  }

  /** Fetch the maps of a short text that are one key away: those of the heads and layers beside. */
  prefetchMaps() {
    const { app, fetchMap } = this;
    const { state, manifest, source, controller } = app;
    const ignore = () => {};
    const options = { signal: controller.signal, onTile: ignore, onError: ignore, fetchMap };
    for (const key of "[]{}") {
      const next = normalize({ ...state, ...withSelection(state, headBeside(app, key)) }, manifest);
      for (const ref of sidesOf(next, manifest))
        if (fitsInMemory(next, manifest.runs[ref.run].layers[ref.layer]))
          loadMap(source, manifest, next, ref, options).catch(ignore);
    }
  }

  /** The steps of a cell. @param {Ask} ask @param {Omit<Parameters<Source["cell"]>[0], "mode">} at @param {"cell" | "cellB"} [name] */
  cell(ask, at, name = "cell") {
    const question = { ...at, mode: this.app.state.mode };
    return ask(name, question, async (signal) => withProducts(await this.app.source.cell(question, signal)));
  }

  /** What is kept of a run; a failed fetch is repeated. @template T @param {string} key @param {() => Promise<T>} queryFn @returns {Promise<T>} */
  cached(key, queryFn) {
    const promise =
      this.cache.get(key) ??
      queryFn().catch((error) => {
        this.cache.delete(key);
        throw error;
      });
    this.cache.set(key, promise);
    return promise;
  }
}
