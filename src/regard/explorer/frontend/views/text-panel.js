// The text beside the map: select words, and the others are shaded by the attention to or from these.

import { selectWord, togglePin } from "../app/actions.js";
import { wordWeightsOf } from "../data/aggregate.js";
import { maxAbs, subtract, topK } from "../data/matrix.js";
import { NOTHING } from "../data/query.js";
import { groupIndices, indicesOf } from "../data/tokens.js";
import { bidi, el, setText, svg } from "../platform/dom.js";
import { arcPath } from "../render/arcs.js";
import { colorAt, toCss } from "../render/colormap.js";
import { formatFixed, formatWeight } from "../render/format.js";
import { scalePosition } from "../render/scale.js";
import { topWordsMessage } from "./messages.js";
import { visibleRange, WordStrip } from "./word-strip.js";

const MAX_ARCS = 12;
const MARGIN_PX = 5; // of the line that arcs take along the text
const NUM_TOP = 6;

/** @param {App} app @returns {View} */
export function showText(app) {
  const { refs, queries, source } = app;
  const { textContainer: container } = refs;
  const strip = new WordStrip("The text, word by word", {
    select: (group, event) =>
      event.altKey
        ? togglePin(app, group.members)
        : selectWord(app, group, event.shiftKey || event.ctrlKey || event.metaKey),
  });
  const lines = svg("svg", { class: "rg-arcs", "aria-hidden": "true" });
  container.append(el("div", { class: "rg-over-arcs" }, lines, strip.node));
  let arcs = () => /** @type {SVGElement[]} */ ([]); // as they are where the words stand
  const drawArcs = () => lines.replaceChildren(...arcs());
  new ResizeObserver(drawArcs).observe(strip.node);
  let lastSelected = /** @type {number | undefined} */ (undefined);

  return (ask) => {
    const { state, theme, showsDifference } = app;
    const { direction, mode, words, special, from, to, pins, log } = state;
    const isOut = direction === "out";
    const axesOf = (/** @type {Axes} */ { rows, cols }) =>
      isOut ? { own: rows, axis: cols } : { own: cols, axis: rows };
    const axes = app.axes();
    const { own, axis } = axesOf(axes);
    const token = isOut ? state.row : state.col;
    const tokens = pins.length ? pins : token === null ? [] : [token];
    const { tokens: all, text, picture, layers } = app.shownRun();
    const { block } = layers[app.shownHead().layer];
    const crosses = block && block[0].from !== block[1].from; // the words of both are shown, the text's before the target's
    const [groups, start] = crosses ? [[...axes.cols, ...axes.rows], isOut ? 0 : axes.cols.length] : [axis, 0];
    const indices = groupIndices(groups, all.length);
    const selected = indicesOf(indices, tokens);
    const chosen = [...indicesOf(groupIndices(own, all.length), tokens)];
    const heads = app.queriedHeads();
    const sides = app.queriedAxes().map(axesOf);
    const groupsOf = sides.map((side) => chosen.map((index) => side.own[index]));
    const load = async (/** @type {AbortSignal} */ signal) => {
      const [a, b] = await Promise.all(
        heads.map((ref, n) => wordWeightsOf(source, ref, groupsOf[n], sides[n].axis, direction, mode, signal)),
      );
      return b ? subtract(a, b) : a;
    };
    const members = groupsOf.map((some) => some.map((group) => group.members));
    const lengths = sides.map((side) => side.axis.length);
    const question = [heads, mode, words, special, from, to, direction, members, lengths];
    const maps = queries.maps(ask);
    const answer = chosen.length ? ask("wordWeights", question, load, { inBar: true }) : NOTHING;

    const draw = () => {
      const weights = answer.data && new Float32Array(groups.length);
      weights?.set(/** @type {Float32Array} */ (answer.data), start);
      const scale = {
        kind: /** @type {ScaleKind} */ (log ? "log" : "linear"),
        max: (weights && maxAbs(weights)) || 1,
        signed: showsDifference,
      };
      const decimals = app.decimals(app.queriedAxes(), maps.data?.pooledMax ?? 1, Math.max(1, pins.length));
      const format = (/** @type {number} */ weight) => formatWeight(weight, decimals);
      const [first] = selected;
      const range = picture ? { start: 0, end: groups.length } : visibleRange(groups.length, first ?? 0);
      refs.unpin.hidden = pins.length === 0;
      strip.show({ groups, ...range, text, picture, values: weights, scale, theme, selected, format });
      const [pinned, found] = [pins, app.matches()].map((some) => indicesOf(indices, some));
      strip.mark("rg-pinned", (index) => pinned.has(index));
      strip.mark("rg-match", (index) => found.has(index));
      setText(refs.textNote, noteMessage(groups.length, selected.size, pins.length, range));
      const names = [...selected].slice(0, 4).map((index) => groups[index]?.name ?? "");
      const heading = [bidi(names.join(" + ")), ` ${topWordsMessage(state, showsDifference, selected.size)}`];
      refs.topHeading.replaceChildren(...(selected.size ? heading : ["Choose a word"]));

      const heaviest = weights ? topK(weights, NUM_TOP).filter((index) => weights[index] !== 0) : [];
      const entries = heaviest.map((index) => {
        const weight = weights?.[index] ?? 0;
        const width = `${100 * Math.abs(weight / (weights?.[heaviest[0]] ?? 1))}%`;
        const position = Math.max(0.35, Math.abs(scalePosition(scale, weight))) * Math.sign(weight);
        const bar = el("span", { style: { width, "background-color": toCss(colorAt(theme, position)) } });
        return el(
          "li",
          {},
          bidi(groups[index].name, { class: "rg-top-word" }),
          el("span", { class: "rg-top-bar" }, bar),
          el("span", { class: "rg-number", title: formatFixed(weight, decimals) }, format(weight)),
        );
      });
      refs.top.replaceChildren(...entries);
      container.classList.toggle("rg-with-arcs", Boolean(state.arcs && weights));
      arcs = () => (state.arcs && weights ? arcsOf(strip, selected, weights, state.side === "diff") : []);
      drawArcs();
      if (lastSelected !== first && first !== undefined) reveal(container, strip.wordNodes.get(first));
      lastSelected = first;
    };
    return { nodes: [refs.top, refs.topHeading, refs.textNote, strip.node], answers: [maps, answer], draw };
  };
}

/** Scroll the panel to a word, if it scrolls. @param {HTMLElement} container @param {HTMLElement | undefined} wordNode */
function reveal(container, wordNode) {
  if (!wordNode || container.scrollHeight <= container.clientHeight) return;
  const [position, box] = [wordNode.getBoundingClientRect(), container.getBoundingClientRect()];
  if (position.top < box.top || position.bottom > box.bottom)
    container.scrollTop += position.top - box.top - box.height / 3;
}

/** Arcs from the selected words to the heaviest. @param {WordStrip} strip @param {Set<number>} selected @param {Float32Array} weights @param {boolean} isSigned */
function arcsOf({ wordNodes, node }, selected, weights, isSigned) {
  const box = node.getBoundingClientRect();
  const anchor = (/** @type {HTMLElement} */ wordNode) => {
    const position = wordNode.getBoundingClientRect();
    return { x: position.left + position.width / 2 - box.left, y: position.top - box.top + 1 };
  };
  const margin = node.dir === "rtl" ? box.width - MARGIN_PX : MARGIN_PX;
  const strongest = topK(weights, MAX_ARCS);
  return [...selected].flatMap((start) =>
    strongest.flatMap((end) => {
      const [a, b] = [wordNodes.get(start), wordNodes.get(end)];
      const part = Math.abs(weights[end] / (weights[strongest[0]] || 1));
      if (!a || !b || a === b || part < 0.02) return [];
      const sign = !isSigned ? "" : weights[end] < 0 ? "rg-down" : "rg-up";
      const style = { "stroke-width": 0.6 + 3.4 * part, opacity: 0.35 + 0.6 * part };
      return svg("path", { d: arcPath(anchor(a), anchor(b), margin), class: sign, ...style });
    }),
  );
}

/** @param {number} length @param {number} numSelected @param {number} numPinned @param {{ start: number, end: number }} range of words on the page */
function noteMessage(length, numSelected, numPinned, { start, end }) {
  const hasShift = !matchMedia("(pointer: coarse)").matches;
  return [
    length > end - start && `Words ${start + 1} to ${end} of ${length.toLocaleString("en")}.`,
    numSelected > 1 && `Shaded by the sum over ${numSelected} words.`,
    numSelected === 0 && "Press a word to see what it attends to.",
    hasShift && numSelected === 1 && numPinned === 0 && "Shift-click another word to add it.",
  ]
    .filter(Boolean)
    .join(" ");
}
