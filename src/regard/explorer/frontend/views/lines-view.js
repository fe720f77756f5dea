// Lines from the words that attend to those that they attend to: a colour for each head, layer after layer.

import { togglePin } from "../app/actions.js";
import { axesOf, loadMap } from "../data/map-data.js";
import { maxAbs, topK } from "../data/matrix.js";
import { groupIndices, indicesOf, isolate } from "../data/tokens.js";
import {
  activeElementOf,
  bidi,
  button,
  closest,
  el,
  muted,
  onArrows,
  onPoint,
  setTabStop,
  setText,
  svg,
} from "../platform/dom.js";
import { formatWeight } from "../render/format.js";
import { LINES_WIDTH, linePaths } from "../render/lines.js";
import { toggled } from "../state/state.js";
import { layerName } from "./messages.js";

const MAX_WORDS = 128;
const MAX_HEADS = 8; // of a layer: each has a colour
const NUM_TOLD = 3;
const SPREAD = 0.08; // of a word, between the lines of two heads

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
function toggleLines(app, layer, head) {
  const shown = layersOf(app);
  const drawn = shown.flatMap((n) => headsOf(app, n).map((one) => ({ layer: n, head: one })));
  const others = (app.state.lines ?? []).filter((at) => !shown.includes(at.layer));
  app.set({ lines: [...others, ...toggled(drawn, { layer, head })] });
}

/** Keep the lines of a word, as a query or as a key, or no longer. @param {App} app @param {Group} word @param {boolean} isKey */
function pinLines(app, { members }, isKey) {
  const direction = isKey ? "in" : "out";
  const pins = app.state.direction === direction ? app.state.pins : [];
  app.set({ direction, [isKey ? "col" : "row"]: members[0], pins });
  togglePin(app, members);
}

/** The words of each column and the layers between them; null as long as their maps are not there. @param {App} app @returns {LinesProps | null} */
export function linesOf(app) {
  const maps = /** @type {LineMaps | null} */ (app.queries.data("lines"));
  if (!maps) return null;
  const { layers } = app.shownRun();
  const numbers = layersOf(app);
  const axes = numbers.map((layer) => axesOf(app.state, app.shownRun(), layer));
  const shown = numbers.map((layer, n) => ({ layer, name: layerName(layers[layer].number), drawn: maps[n] }));
  return { columns: [axes[0].cols, ...axes.map(({ rows }) => rows)], layers: shown };
}

/** @param {App} app @returns {View} */
export function showLines(app) {
  const { refs, queries, manifest, source } = app;
  const { lines: node, linesNote, linesReadout } = refs;
  let drawLines = (/** @type {LineWord | null} */ _) => {}; // of a word that is pointed at, else of the pinned ones, else all
  let before = "";
  const point = (/** @type {LineWord | null} */ word) => {
    if (before !== (before = JSON.stringify(word))) drawLines(word);
  };
  onPoint(node, (target) => point(wordAt(target)));
  onArrows(node, ".rg-line-word", nextWord);

  const nodes = [node, linesNote, linesReadout];
  const showMessage = (/** @type {string} */ message) => ({
    nodes,
    draw: () => {
      drawLines = () => {};
      node.replaceChildren();
      setText(linesNote, message);
      setText(linesReadout, "");
    },
  });

  return (ask) => {
    const { state } = app;
    if (state.view !== "lines") return null;
    const [{ run }, { layers, tokens }] = [app.shownHead(), app.shownRun()];
    const numbers = layersOf(app);
    const axes = numbers.map((layer) => axesOf(state, app.shownRun(), layer));
    const most = Math.max(axes[0].cols.length, ...axes.map(({ rows }) => rows.length));
    if (state.chain && layers.some(({ block }) => block))
      return showMessage("Layers of an encoder–decoder have other words each: choose one layer.");
    if (most > MAX_WORDS)
      return showMessage(
        `Lines are drawn between ${MAX_WORDS} words at most, and here are ${most}: show fewer tokens, or whole words (Display).`,
      );
    const { words, special, from, to } = state;
    const drawn = numbers.map((layer) => headsOf(app, layer));
    const { fetchMap } = queries;
    const options = { signal: app.controller.signal, onTile: () => {}, onError: () => {}, fetchMap };
    const load = (/** @type {number} */ layer, /** @type {Head} */ head) =>
      queries.cached(`lines ${[run, layer, head, words, special, from, to]}`, async () => {
        const map = await loadMap(source, manifest, { ...state, mode: "raw" }, { run, layer, head }, options);
        return { head, map: /** @type {Matrix} */ (map.pyramid.tile(0, 0, 0)) };
      });
    const loadAll = () =>
      Promise.all(numbers.map((layer, n) => Promise.all(drawn[n].map((head) => load(layer, head)))));
    const answer = ask("lines", [run, numbers, drawn, words, special, from, to], loadAll, { inBar: true });
    const draw = () => {
      const props = linesOf(app);
      if (!props) return showMessage("").draw();
      const { columns } = props;
      const names = props.layers.map(({ name }) => `after ${name.toLowerCase()}`);
      const titles = state.chain ? ["input", ...names] : ["keys", "queries"];
      const max =
        Math.max(...props.layers.flatMap(({ drawn: some }) => some.map(({ map }) => maxAbs(map.values)))) || 1;
      const scale = { kind: /** @type {ScaleKind} */ (state.log ? "log" : "linear"), max, signed: false };
      const pinned = columns.map((axis) => indicesOf(groupIndices(axis, tokens.length), state.pins));
      const isKey = state.direction === "in";
      const hasPins = pinned.some(({ size }) => size > 0);
      const focused = activeElementOf(node)?.getAttribute("data-place");
      const viewBox = `0 0 ${LINES_WIDTH} ${most}`;
      const drawings = numbers.map(() => svg("svg", { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" }));
      const wordsOf = (/** @type {Group[]} */ axis, /** @type {number} */ n) =>
        axis.map((word, index) => wordButton(app, word, n, index, pinned[n].has(index) && isKey === (n === 0)));
      const children = columns.flatMap((axis, n) => [
        ...(n > 0 ? [toggles(app, props.layers[n - 1], layers[numbers[n - 1]].heads), drawings[n - 1]] : []),
        el("span", { class: "rg-line-title", "aria-hidden": "true" }, titles[n]),
        el("div", { class: "rg-line-words", role: "group", "aria-label": titles[n] }, ...wordsOf(axis, n)),
      ]);
      node.replaceChildren(...children);
      for (const [name, count] of Object.entries({ layers: numbers.length, most }))
        node.style.setProperty(`--rg-${name}`, String(count));
      const all = /** @type {NodeListOf<HTMLElement>} */ (node.querySelectorAll(".rg-line-word"));
      setTabStop(all, node.querySelector(".rg-line-word[aria-pressed=true]") ?? all[0]);
      if (focused) /** @type {HTMLElement | null} */ (node.querySelector(`[data-place="${focused}"]`))?.focus();
      setText(linesNote, `In full colour: a weight of ${formatWeight(max)}.`);
      drawLines = (pointed) => {
        props.layers.forEach(({ drawn: heads }, n) => {
          const isShown = (/** @type {number} */ row, /** @type {number} */ col) =>
            pointed
              ? (pointed.column === n + 1 && pointed.index === row) || (pointed.column === n && pointed.index === col)
              : !hasPins || (isKey ? pinned[n].has(col) : pinned[n + 1].has(row));
          const paths = heads.flatMap(({ map }, place) =>
            linePaths(map, scale, SPREAD * (place - (heads.length - 1) / 2), isShown).map((line) =>
              svg("path", { ...line, class: `rg-line-${place}` }),
            ),
          );
          drawings[n].replaceChildren(...paths);
        });
        setText(linesReadout, pointed ? told(props, pointed) : "");
      };
      drawLines(wordAt(activeElementOf(node)));
    };
    return { nodes, answers: [answer], draw };
  };
}

/** The buttons of the heads of a layer. @param {App} app @param {LineLayer} layer @param {number} numHeads */
function toggles(app, { layer, name, drawn }, numHeads) {
  const buttons = [...Array(numHeads).keys(), /** @type {const} */ ("mean")].map((head) => {
    const place = drawn.findIndex((one) => one.head === head);
    const says = `${name}, ${head === "mean" ? "mean of heads" : `head ${head}`}`;
    return button(String(head), () => toggleLines(app, layer, head), {
      class: `rg-line-toggle rg-line-${place}`,
      "aria-label": `${head}, ${says}`,
      "aria-pressed": place >= 0,
      disabled: place < 0 && drawn.length >= MAX_HEADS,
      title: says,
      data: { place: `${layer} ${head}` },
    });
  });
  const group = { class: "rg-line-toggles", role: "group", "aria-label": `Heads of ${name}` };
  return el("div", group, muted(name), ...buttons);
}

/** @param {App} app @param {Group} word @param {number} column @param {number} index @param {boolean} isPinned */
function wordButton(app, word, column, index, isPinned) {
  return button([bidi(word.name)], () => pinLines(app, word, column === 0), {
    class: word.special ? "rg-line-word rg-special" : "rg-line-word",
    "aria-pressed": isPinned,
    tabIndex: -1,
    data: { place: `${column}.${index}` },
    "aria-label": word.name,
  });
}

/** What a word attends to; of a word on the left, what attends to it. @param {LinesProps} props @param {LineWord} word */
function told({ columns, layers }, { column, index }) {
  const isKey = column === 0;
  const { name, drawn } = layers[Math.max(0, column - 1)];
  const others = columns[isKey ? 1 : column - 1];
  const ofHeads = drawn.map(({ head, map: { values, rows, cols } }) => {
    const weights = isKey
      ? Float32Array.from({ length: rows }, (_, row) => values[row * cols + index])
      : values.subarray(index * cols, (index + 1) * cols);
    const told = topK(weights, NUM_TOLD).map((n) => `${isolate(others[n].name)} ${formatWeight(weights[n])}`);
    return `${head === "mean" ? "mean" : `head ${head}`}: ${told.join(", ")}`;
  });
  const verb = isKey ? "is attended to by" : "attends to";
  return `${isolate(columns[column][index].name)} ${verb}, ${name.toLowerCase()}, ${ofHeads.join(" · ")}`;
}

/** @param {EventTarget | null} target @returns {LineWord | null} */
function wordAt(target) {
  const [column, index] = closest(target, ".rg-line-word")?.dataset.place?.split(".").map(Number) ?? [];
  return index === undefined ? null : { column, index };
}

/** The word below or above, or beside in another column. @param {HTMLElement[]} words @param {HTMLElement} from @param {string} key */
function nextWord(words, from, key) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
  const { column, index } = /** @type {LineWord} */ (wordAt(from));
  return words.find((word) => step && word.dataset.place === `${column + step[1]}.${index + step[0]}`);
}
