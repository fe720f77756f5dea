// What a view needs to know, asked for as the state changes: maps, shares of words, a cell's steps, movement, heads.

import { sharesOf } from "../data/aggregate.js";
import { differenceOf, fieldOf } from "../data/map-data.js";
import { minus } from "../data/matrix.js";
import { Asking, Wanted } from "../data/query.js";
import { whyNoDifference } from "../state/sides.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("../data/tile-source.js").Field} Field
 * @typedef {import("../data/tile-source.js").Which} Which
 * @typedef {import("../data/source.js").Source} Source
 * @typedef {import("../data/source.js").Movement} Movement
 * @typedef {import("../data/tokens.js").Group} Group
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../data/source.js").Edited & Pick<State, "off" | "offRun">} Edit
 * @typedef {{ fields: Field[], difference: Field | null, max: number, most: number }} Maps
 *   of all sides, and the largest number in them, from afar and of single cells
 */

export class Loading {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.asking = new Asking(
      (busy) => app.waits(busy),
      (errors) => app.fail(errors),
    );
    /** @type {Wanted<Maps>} */
    this.maps = new Wanted(this.asking, () => {
      app.showMap();
      app.showHeads();
    });
    /** @type {Wanted<number>} */
    this.number = new Wanted(this.asking, () => app.showCell());
    /** @type {Wanted<Float32Array>} */
    this.shares = new Wanted(this.asking, () => app.showReading());
    /** @type {Wanted<import("../data/source.js").Cell>} */
    this.cell = new Wanted(this.asking, () => app.showSteps(), { inPlace: true });
    /** @type {Wanted<Map<number, Movement>>} */
    this.movement = new Wanted(this.asking, () => app.showMovement());
    /** @type {Wanted<import("../data/source.js").Heads>} */
    this.heads = new Wanted(this.asking, () => app.showHeads());
    /** @type {Wanted<Uint8Array>} */
    this.thumbnails = new Wanted(this.asking, () => app.showHeads());
    /** @type {Wanted<Edit>} */
    this.edit = new Wanted(this.asking, () => app.showEdit(), { inPlace: true });
    /** @type {Map<string, Promise<any>>} */
    this.kept = new Map(); // of each run, for a page goes from one to the other
  }

  close() {
    this.leaveTiles();
    this.asking.close();
  }

  /** Give up the tiles that are on their way. */
  leaveTiles() {
    for (const { pyramid } of this.maps.answer?.fields ?? []) pyramid.forget(new Set());
  }

  /** What the maps that are shown hold: bytes, and how many they may become. */
  held() {
    const { fields, difference } = this.maps.answer ?? { fields: [], difference: null };
    const all = (difference ? [...fields, difference] : fields).map(({ pyramid }) => pyramid.memory);
    return all.reduce((sum, { bytes, most }) => ({ bytes: sum.bytes + bytes, most: sum.most + most }), {
      bytes: 0,
      most: 0,
    });
  }

  /** @param {State} state @param {Which[]} sides */
  wantMaps(state, sides) {
    const { source, manifest } = this.app;
    const { way, words, special, byRow, pool, from, to } = state;
    this.maps.want(JSON.stringify([sides, way, words, special, byRow, pool, from, to]), async (signal) => {
      const arrived = () => {
        this.maps.wrong(null);
        this.app.parts.map.draw();
      };
      const around = { signal, arrived, failed: (/** @type {Error} */ error) => this.maps.wrong(error) };
      const fields = await Promise.all(sides.map((side) => fieldOf(source, manifest, state, side, around)));
      signal.throwIfAborted();
      this.leaveTiles();
      const [a, b] = fields;
      const matches = b && whyNoDifference(state, manifest) === null;
      return {
        fields,
        difference: matches ? differenceOf(a, b, state) : null,
        max: Math.max(...fields.map(({ pyramid }) => pyramid.max)) || 1,
        most: Math.max(...fields.map(({ pyramid }) => pyramid.most)) || 1,
      };
    });
  }

  /** A number where only an overview is there. @param {State} state @param {Which[]} sides one, or those of a difference */
  wantNumber({ way, row, col }, sides) {
    if (row === null || col === null) return;
    const part = { way, row0: row, row1: row + 1, col0: col, col1: col + 1, by: 1, pool: /** @type {"max"} */ ("max") };
    this.number.want(JSON.stringify([sides, part]), async (signal) => {
      const [[a], [b] = [0]] = await Promise.all(
        sides.map(({ run, layer, head }) => this.app.source.tile(run, layer, head, part, signal)),
      );
      return a - b;
    });
  }

  /**
   * How much chosen words look at the others, or are looked at by them.
   * @param {State} state @param {Which[]} sides one, or those of a difference @param {{ own: Group[], axis: Group[] }[]} axes
   *   of each side, that of the chosen words and that of the others @param {number[]} chosen  their places
   */
  wantShares({ direction, way, words, special, from, to }, sides, axes, chosen) {
    if (chosen.length === 0) return this.shares.forget();
    const groups = axes.map(({ own }) => chosen.map((place) => own[place]));
    const key = JSON.stringify([
      sides,
      way,
      words,
      special,
      from,
      to,
      direction,
      groups.map((all) => all.map(({ members }) => members)),
      axes.map(({ axis }) => axis.length),
    ]);
    this.shares.want(key, async (signal) => {
      const [a, b] = await Promise.all(
        sides.map((side, n) => sharesOf(this.app.source, side, groups[n], axes[n].axis, direction, way, signal)),
      );
      return b ? minus(a, b) : a;
    });
  }

  /** @param {Which} which @param {number} head @param {number} row @param {number} col */
  wantCell({ run, layer }, head, row, col) {
    this.cell.want(JSON.stringify([run, layer, head, row, col]), (signal) =>
      this.app.source.cell(run, layer, head, row, col, signal),
    );
  }

  /** @param {number[]} runs */
  wantMovement(runs) {
    this.movement.want(JSON.stringify(runs), async (signal) => {
      const { points, ...plane } = await this.app.source.movement(runs, signal);
      return new Map(runs.map((run, n) => [run, { ...plane, points: points[n] }]));
    });
  }

  /** @param {number} run */
  wantHeads(run) {
    const {
      source,
      end: { signal },
    } = this.app;
    this.heads.want(`heads ${run}`, () => this.once(`heads ${run}`, () => source.heads(run, signal)));
    this.thumbnails.want(`thumbnails ${run}`, () =>
      this.once(`thumbnails ${run}`, () => source.thumbnails(run, signal)),
    );
  }

  /** Run the model again, without some heads. @param {State} state */
  wantEdit({ off, offRun }) {
    if (off.length === 0) return this.edit.forget();
    this.edit.want(JSON.stringify([off, offRun]), async (signal) => ({
      ...(await this.app.source.edit(off, offRun, signal)),
      off,
      offRun,
    }));
  }

  /** Ask once, and again where it failed. @template T @param {string} key @param {() => Promise<T>} ask @returns {Promise<T>} */
  once(key, ask) {
    const asked =
      this.kept.get(key) ??
      ask().catch((error) => {
        this.kept.delete(key);
        throw error;
      });
    this.kept.set(key, asked);
    return asked;
  }
}
