// The queries of the page: maps, weights of words, the steps of a cell, movement, heads, ablations.

import { wordWeightsOf } from "../data/aggregate.js";
import { withProducts } from "../data/cell.js";
import { differenceOf, fitsInMemory, loadMap } from "../data/map-data.js";
import { subtract } from "../data/matrix.js";
import { NOTHING, Query, QueryClient } from "../data/query.js";
import { recentMaps } from "../data/recent-maps.js";
import { label, tokenName } from "../data/tokens.js";
import { formatPercent } from "../render/format.js";
import { differenceBlockedBy, sidesOf, withSelection } from "../state/sides.js";
import { normalize } from "../state/state.js";
import { headBeside, showAblatedRun, undoFailedAblation } from "./actions.js";
import { showRunText, showRunTextB } from "./predictions.js";

export class Queries {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.client = new QueryClient(
      (busy) => app.setBusy(busy),
      (errors) => app.showErrors(errors),
      () => app.refresh(),
    );
    const query = (
      /** @type {{ handlesError?: boolean, onData?: (data: any) => void, onError?: (error: Error) => void }} */ options = {},
    ) => new Query(this.client, options);
    const handlesError = true;
    this.maps = /** @type {Query<Maps>} */ (query({ onData: () => this.prefetchMaps() }));
    this.fetchMap = recentMaps(app.source, app.controller.signal);
    this.cellValue = /** @type {Query<number>} */ (query());
    this.wordWeights = /** @type {Query<Float32Array>} */ (query());
    this.cell = /** @type {Query<Cell>} */ (query({ handlesError }));
    this.cellB = /** @type {Query<Cell>} */ (query({ handlesError }));
    this.why = /** @type {Query<Why>} */ (query({ handlesError }));
    this.changedValues = /** @type {Query<Map<number, Numbers>>} */ (query());
    this.whatIf = /** @type {Query<WhatIf>} */ (query({ handlesError }));
    this.movement = /** @type {Query<Map<number, Movement>>} */ (query());
    this.heads = /** @type {Query<HeadMetrics>} */ (query());
    this.thumbnails = /** @type {Query<Uint8Array>} */ (query());
    this.differences = /** @type {Query<HeadDifferences>} */ (query());
    this.ablation = /** @type {Query<AblationResult>} */ (
      query({
        handlesError,
        onData: (result) => showAblatedRun(app, result),
        onError: (error) => undoFailedAblation(app, error),
      })
    );
    this.attribution = /** @type {Query<Attribution>} */ (query({ handlesError }));
    this.attended = /** @type {Query<Float32Array>} */ (query());
    this.live = /** @type {Query<LiveAnswer>} */ (
      query({ handlesError, onData: (answer) => showRunText(app, answer) })
    );
    this.liveB = /** @type {Query<LiveAnswer>} */ (
      query({ handlesError, onData: (answer) => showRunTextB(app, answer) })
    );
    this.nextTokens = /** @type {Query<Predictions>} */ (query({ handlesError }));
    this.paths = /** @type {Query<Paths>} */ (query({ handlesError }));
    this.pathTokens = /** @type {Query<NextTokens>} */ (query({ handlesError }));
    this.patching = /** @type {Query<Patching>} */ (query({ handlesError }));
    this.headSearch = /** @type {Query<LiveMetric>} */ (query({ handlesError }));
    this.strongRows = /** @type {Query<StrongRows>} */ (query({ handlesError }));
    this.lines = /** @type {Query<LineMaps>} */ (query());
    this.progress = /** @type {LiveMetric | null} */ (null); // of a search that continues
    this.stream = /** @type {Query<ResidualStream>} */ (query({ handlesError }));
    /** @type {Map<string, Promise<any>>} */
    this.cache = new Map(); // of each run, since the page switches between runs
  }

  close() {
    this.cancelTiles();
    this.client.close();
  }

  cancelTiles() {
    for (const pyramid of this.pyramids()) pyramid.cancelExcept(new Set());
  }

  /** Of A, B and A − B. */
  pyramids() {
    const { sides, difference } = this.maps.last.data ?? { sides: [], difference: null };
    return (difference ? [...sides, difference] : sides).map(({ pyramid }) => pyramid);
  }

  /** Bytes of the maps that are shown, and their limit. */
  memory() {
    const all = this.pyramids().map(({ memory }) => memory);
    const sumOf = (/** @type {"bytes" | "limit"} */ key) => all.reduce((sum, memory) => sum + memory[key], 0);
    return { bytes: sumOf("bytes"), limit: sumOf("limit") };
  }

  /** @param {State} state @param {HeadRef[]} headRefs of A and B */
  fetchMaps(state, headRefs) {
    const { source, manifest, parts } = this.app;
    const { mode, words, special, byRow, pool, from, to } = state;
    return this.maps.fetch([headRefs, mode, words, special, byRow, pool, from, to], async (signal) => {
      const onTile = () => {
        this.maps.report(null);
        parts.map.draw();
      };
      const onError = (/** @type {Error} */ error) => this.maps.report(error);
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
    });
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

  /** The value of the cell, while only an overview is loaded. @param {State} state @param {HeadRef[]} headRefs one, or A and B of a difference */
  fetchCellValue({ mode, row, col }, headRefs) {
    if (row === null || col === null) return NOTHING;
    const pool = /** @type {const} */ ("max");
    const region = { mode, row0: row, row1: row + 1, col0: col, col1: col + 1, bin_size: 1, pool };
    return this.cellValue.fetch([headRefs, region], async (signal) => {
      const [[a], [b] = [0]] = await Promise.all(
        headRefs.map(({ run, layer, head }) => this.app.source.tile({ run, layer, head, ...region }, signal)),
      );
      return a - b;
    });
  }

  /**
   * The weights between selected words and all words.
   * @param {State} state @param {HeadRef[]} headRefs one, or A and B of a difference
   * @param {{ own: Group[], axis: Group[] }[]} axes of each: that of the selected words, and the other
   * @param {number[]} selected  indices on the first
   */
  fetchWordWeights({ direction, mode, words, special, from, to }, headRefs, axes, selected) {
    if (selected.length === 0) return this.wordWeights.reset();
    const groups = axes.map(({ own }) => selected.map((index) => own[index]));
    const members = groups.map((all) => all.map((group) => group.members));
    const lengths = axes.map(({ axis }) => axis.length);
    const key = JSON.stringify([headRefs, mode, words, special, from, to, direction, members, lengths]);
    return this.wordWeights.fetch(key, async (signal) => {
      const [a, b] = await Promise.all(
        headRefs.map((ref, n) => wordWeightsOf(this.app.source, ref, groups[n], axes[n].axis, direction, mode, signal)),
      );
      return b ? subtract(a, b) : a;
    });
  }

  /** @param {number[]} runs */
  fetchMovement(runs) {
    return this.movement.fetch(JSON.stringify(runs), async (signal) => {
      const { points, left_out, ...plane } = await this.app.source.movement({ runs }, signal);
      return new Map(runs.map((run, n) => [run, { ...plane, points: points[n], left_out: left_out[n] }]));
    });
  }

  /** @param {Parameters<Source["cell"]>[0]} at @param {"cell" | "cellB"} [name] */
  fetchCell(at, name = "cell") {
    return this[name].fetch(at, async (signal) => withProducts(await this.app.source.cell(at, signal)));
  }

  /** Pictures first, for the metrics of a long text take ten times as long. @param {number} run @param {boolean} mayStart */
  fetchHeads(run, mayStart) {
    const { source, controller } = this.app;
    const fetch = (/** @type {"thumbnails" | "heads"} */ name) => {
      const key = `${name} ${run}`;
      const queryFn = () =>
        this.cached(key, () => /** @type {Promise<any>} */ (source[name]({ run }, controller.signal)));
      return this[name].fetch(key, queryFn, mayStart);
    };
    return {
      thumbnails: /** @type {Answer<Uint8Array>} */ (fetch("thumbnails")),
      heads: /** @type {Answer<HeadMetrics>} */ (fetch("heads")),
    };
  }

  /** How every head differs between two runs. @param {number[]} runs @param {boolean} mayStart */
  fetchDifferences(runs, mayStart) {
    const { source, controller } = this.app;
    const key = `differences ${runs}`;
    const queryFn = () => this.cached(key, () => source.differences({ runs }, controller.signal));
    return this.differences.fetch(key, queryFn, mayStart);
  }

  /** Run the model again without the ablated heads. @param {State} state */
  fetchAblation({ ablated, ablatedRun }) {
    if (ablated.length === 0) return this.ablation.reset();
    return this.ablation.fetch([ablated, ablatedRun], async (signal) => ({
      ...(await this.app.source.ablate({ heads: ablated, run: ablatedRun }, signal)),
      ablated,
      ablatedRun,
    }));
  }

  /** The next token after a position, and before an ablation. @param {number} run @param {number | null} base @param {number} position @param {number} temperature @param {boolean} isOpen  with the layers */
  fetchNextTokens(run, base, position, temperature, isOpen) {
    const { source } = this.app;
    return this.nextTokens.fetch([run, position, temperature, isOpen], async (signal) => {
      const [now, before, lens] = await Promise.all([
        source.next_tokens({ run, position, temperature }, signal),
        base === null ? null : source.next_tokens({ run: base, position, temperature }, signal),
        isOpen ? source.lens({ run, position }, signal).catch(() => null) : null, // an encoder-decoder has none
      ]);
      return { now, before, lens };
    });
  }

  /** The mean weight of some cells in each head. @param {number} run @param {[number, number][]} cells @param {boolean} mayStart */
  fetchCellWeights(run, cells, mayStart) {
    const queryFn = async (/** @type {AbortSignal} */ signal) => {
      this.progress = null;
      return { ...(await this.app.source.find_heads({ run, cells }, signal)), message: "" };
    };
    return this.headSearch.fetch(["cells", run, cells], queryFn, mayStart);
  }

  /** What the ablation of each head changes, layer after layer. @param {number} run @param {Layer[]} layers @param {number} position @param {boolean} mayStart */
  fetchSweep(run, layers, position, mayStart) {
    const { source } = this.app;
    const queryFn = async (/** @type {AbortSignal} */ signal) => {
      const values = /** @type {HeadValues} */ ([]);
      const start = performance.now();
      const word = `\u2068${tokenName(this.app.manifest.runs[run].tokens, position)}\u2069`;
      let [message, left] = ["", ""];
      for (const [n, { number }] of layers.entries()) {
        this.progress = {
          values: [...values],
          message: `Ablating each head: layer ${number} of ${layers.length}${left}`,
        };
        if (n > 0) this.app.refresh();
        const { before, after, text } = await source.sweep({ run, layer: n, position }, signal);
        values.push(after.map((share) => before - share));
        const seconds = (((performance.now() - start) / (n + 1)) * (layers.length - n - 1)) / 1000;
        left = `, about ${Math.ceil(seconds)} s left`;
        const next = text === null ? "" : `\u2068${label(text)}\u2069 after ${word}: ${formatPercent(before)}`;
        message = next ? `${next} with all heads.` : `The vector of ${word}.`;
      }
      return { values, message };
    };
    return this.headSearch.fetch(["sweep", run, position], queryFn, mayStart);
  }

  /** @param {number} run @param {AttributionQuery} query */
  fetchAttribution(run, query) {
    const key = JSON.stringify(["attribution", run, query]); // some take seconds
    return this.attribution.fetch(key, (signal) =>
      this.cached(key, () => this.app.source.attribution({ run, ...query }, signal)),
    );
  }

  /**
   * What some words attend to.
   * @param {State} state @param {HeadRef} headRef @param {Group[]} selected @param {Group[]} axis
   */
  fetchAttended({ mode }, headRef, selected, axis) {
    if (selected.length === 0) return this.attended.reset();
    const members = [selected, axis].map((groups) => groups.map((group) => group.members));
    return this.attended.fetch([headRef, mode, members], (signal) =>
      wordWeightsOf(this.app.source, headRef, selected, axis, "out", mode, signal),
    );
  }

  /** The result of one fetch; a failed one is repeated. @template T @param {string} key @param {() => Promise<T>} queryFn @returns {Promise<T>} */
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
