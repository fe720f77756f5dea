// The lines between words: of which layers and heads, and their weights.

import { axesOf, loadMap } from "../data/map-data.js";
import { maxAbs } from "../data/matrix.js";
import { groupIndices } from "../data/tokens.js";
import { present } from "../platform/dom.js";
import { toggled } from "../state/state.js";
import { formatWeight } from "../render/format.js";
import { layerName } from "../views/messages.js";
import { togglePin } from "./actions.js";

const MAX_WORDS = 128;

/** The layers that are drawn. @param {App} app */
function layersOf(app) {
  return app.state.chain ? [...app.shownRun().layers.keys()] : [app.shownHead().layer];
}

/** The heads whose lines are drawn: the chosen ones; without a choice the shown one, and of other layers the mean. @param {App} app @param {number} layer @returns {Head[]} */
function headsOf(app, layer) {
  const { lines, chain } = app.state;
  const shown = app.shownHead();
  const chosen = (lines ?? []).filter((at) => at.layer === layer).map(({ head }) => head);
  if (chosen.length > 0 || (lines && chain)) return chosen;
  return [layer === shown.layer ? shown.head : "mean"];
}

/** Draw the lines of a head, or no longer. @param {App} app @param {number} layer @param {Head} head */
export function toggleLines(app, layer, head) {
  const shown = layersOf(app);
  const drawn = shown.flatMap((n) => headsOf(app, n).map((one) => ({ layer: n, head: one })));
  const others = (app.state.lines ?? []).filter((at) => !shown.includes(at.layer));
  app.set({ lines: [...others, ...toggled(drawn, { layer, head })] });
}

/** Keep the lines of a word, as a query or as a key, or no longer. @param {App} app @param {Group} word @param {boolean} isKey */
export function pinLines(app, { members }, isKey) {
  const direction = isKey ? "in" : "out";
  const pins = app.state.direction === direction ? app.state.pins : [];
  app.set({ direction, [isKey ? "col" : "row"]: members[0], pins });
  togglePin(app, members);
}

/** @param {App} app */
export function showLines(app) {
  const { state, queries, manifest, parts, source, refs } = app;
  if (state.view !== "lines") return;
  const [{ run }, { layers, tokens }] = [app.shownHead(), app.shownRun()];
  const numbers = layersOf(app);
  const axes = numbers.map((layer) => axesOf(state, app.shownRun(), layer));
  const columns = [axes[0].cols, ...axes.map(({ rows }) => rows)];
  const most = Math.max(...columns.map(({ length }) => length));
  if (state.chain && layers.some(({ block }) => block))
    return parts.lines.showMessage("Layers of an encoder–decoder have other words each: choose one layer.");
  if (most > MAX_WORDS)
    return parts.lines.showMessage(
      `Lines are drawn between ${MAX_WORDS} words at most, and here are ${most}: show fewer tokens, or whole words (Display).`,
    );
  const { words, special, from, to } = state;
  const drawn = numbers.map((layer) => headsOf(app, layer));
  const answer = queries.lines.fetch([run, numbers, drawn, words, special, from, to], () => {
    const { fetchMap } = queries;
    const options = { signal: app.controller.signal, onTile: () => {}, onError: () => {}, fetchMap };
    const load = (/** @type {number} */ layer, /** @type {Head} */ head) =>
      queries.cached(`lines ${[run, layer, head, words, special, from, to]}`, async () => {
        const map = await loadMap(source, manifest, { ...state, mode: "raw" }, { run, layer, head }, options);
        return { head, map: /** @type {Matrix} */ (map.pyramid.tile(0, 0, 0)) };
      });
    return Promise.all(numbers.map((layer, n) => Promise.all(drawn[n].map((head) => load(layer, head)))));
  });
  const nodes = [parts.lines.node, refs.linesNote, refs.linesReadout, parts.sideSwitches.lines.names];
  present(nodes, [answer], () => {
    const drawnMaps = answer.data;
    if (!drawnMaps) return parts.lines.showMessage("");
    const all = drawnMaps.flat().map(({ map }) => maxAbs(map.values));
    const max = Math.max(...all) || 1;
    const names = numbers.map((layer) => layerName(layers[layer].number));
    const pinned = columns.map((axis) => {
      const indices = groupIndices(axis, tokens.length);
      return new Set(state.pins.map((i) => indices[i]).filter((index) => index >= 0));
    });
    parts.sideSwitches.lines.name(state, manifest, app.sides());
    parts.lines.show({
      columns,
      titles: state.chain ? ["input", ...names.map((name) => `after ${name.toLowerCase()}`)] : ["keys", "queries"],
      layers: numbers.map((layer, n) => ({
        layer,
        name: names[n],
        heads: [...Array(layers[layer].heads).keys(), /** @type {const} */ ("mean")],
        drawn: drawnMaps[n],
      })),
      pinned,
      isKey: state.direction === "in",
      scale: { kind: state.log ? "log" : "linear", max, signed: false },
      note: `In full colour: a weight of ${formatWeight(max)}.`,
    });
  });
}
