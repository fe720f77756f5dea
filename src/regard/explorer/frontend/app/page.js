// What the page shows of the state alone: its frame, what is chosen, the words above a view, the steps of a training run.

import { fitsInMemory } from "../data/map-data.js";
import { escapeInvisible, groupIndices, indicesOf, label, search, truncate } from "../data/tokens.js";
import { bidi, el, setOptions, setText } from "../platform/dom.js";
import { checkpointIndex, differenceBlockedBy, selectionOf } from "../state/sides.js";
import { progressMessage } from "../views/messages.js";
import { visibleRange, WordStrip } from "../views/word-strip.js";
import { isPresenting, togglePin } from "./actions.js";
import { showControls } from "./controls.js";
import { showPlaces } from "./places.js";

/** @param {App} app @returns {View} */
export const showPage = (app) => () => ({
  draw: () => {
    const { state, theme, parts, refs, manifest, root } = app;
    if (root.dataset.theme !== theme) root.dataset.theme = theme;
    if (app.syncUrl) {
      document.documentElement.dataset.theme = theme;
      const { text } = app.shownRun();
      document.title = `${escapeInvisible(truncate(text.trim().replace(/\s+/g, " "), 60) || manifest.title)} · regard`;
    }
    root.toggleAttribute("data-presenting", isPresenting(state));
    showControls(root, state);
    showDisplayOptions(app);
    showPlaces(app);
    if (refs.main.dataset.view !== state.view) app.switchView(state.view);
    const sides = app.sides();
    const blockedBy = differenceBlockedBy(state, manifest);
    const { heads, head, ...others } = parts.sideSwitches;
    heads.update(state, manifest, sides, app.comparesHeads ? "A and B are heads of one run" : blockedBy);
    head.update(state, manifest, sides, blockedBy);
    for (const one of Object.values(others)) one.update(state, manifest, sides, null);
    showChoice(app);
  },
});

/** Tokens and words of a long text are neither merged nor left out. @param {App} app */
export function showDisplayOptions(app) {
  const { state, refs, manifest } = app;
  const { tokens, layers } = app.shownRun();
  const inMemory = fitsInMemory(state, layers[app.shownHead().layer]);
  for (const option of refs.modes.options)
    option.disabled = !(option.value === "raw" || inMemory || manifest.can.tiles);
  const { special, words, byRow, firstToken, lastToken, displayNote } = refs;
  [special.checked, words.checked, byRow.checked] = inMemory
    ? [state.special, state.words, state.byRow]
    : [true, false, false];
  for (const box of [special, words, byRow]) box.disabled = !inMemory;
  [firstToken.value, lastToken.value] = [state.from ?? 0, (state.to ?? tokens.length) - 1].map(String);
  firstToken.max = lastToken.max = String(tokens.length - 1);
  displayNote.hidden = inMemory;
}

/** How far long computations are, each where it is shown. @param {App} app @param {Record<string, Share>} progress by query */
export function showProgress({ root }, progress) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-progress]"))) {
    const share = progress[node.dataset.progress ?? ""];
    setText(node, share ? `${node.dataset.does ?? ""}${progressMessage(share)}` : "");
  }
}

/** What is chosen by lists and fields. @param {App} app */
function showChoice(app) {
  const { refs, state } = app;
  const run = app.shownRun();
  const { layers } = app.selectedRun();
  const { layer, head } = selectionOf(state);
  const named = (/** @type {number | string} */ name) => ({ key: String(name), title: String(name) });
  const numbers = layers.map(({ number }) => number);
  setOptions(refs.layer, numbers.map(named));
  refs.layer.selectedIndex = layer;
  setOptions(refs.head, [...Array(layers[layer].heads).keys(), "mean"].map(named));
  refs.head.value = String(head);
  const text = label(run.text.replace(/\s+/g, " "), 90);
  const title = escapeInvisible(run.text.slice(0, 600));
  refs.text.replaceChildren(el("span", { class: "rg-model" }, run.model), " ", bidi(text, { title }));
  setText(refs.compareButton, app.comparesHeads ? "Stop comparing" : "Compare with another head");
  refs.compareButton.hidden = !app.comparesHeads && app.sides().length > 1;
  setText(refs.matchCount, state.query ? `${search(run.tokens, run.text, state.query).length} found` : "");
}

/** @param {App} app @returns {View} */
export const showTraining = (app) => () => ({
  draw: () => {
    const { state, manifest, parts } = app;
    if (manifest.training) parts.training?.show(manifest.training, checkpointIndex(state, manifest.training), state);
  },
});

/** The words above the view, to choose and pin. @param {App} app @returns {View} */
export function showWordBar(app) {
  const strip = new WordStrip("The words", {
    select: ({ members }, event) =>
      event.shiftKey || event.altKey ? togglePin(app, members) : app.set({ row: members[0], pins: [] }),
  });
  app.refs.wordBar.append(strip.node);
  return () => {
    const { state, theme } = app;
    if (state.view === "head" || state.view === "text") return null; // they have the text itself
    const { text, tokens } = app.shownRun();
    const { rows: groups } = app.axes();
    const indices = groupIndices(groups, tokens.length);
    const row = state.row ?? (state.view === "model" ? tokens.length - 1 : null); // as the view has it
    const selected = indicesOf(indices, [...(row === null ? [] : [row]), ...state.pins]);
    const [first = 0] = selected;
    const scale = /** @type {Scale} */ ({ kind: "linear", max: 1, signed: false });
    const range = visibleRange(groups.length, first);
    const pinned = indicesOf(indices, state.pins);
    return {
      draw: () => {
        strip.show({ groups, ...range, text, values: null, scale, theme, selected, format: String });
        strip.mark("rg-pinned", (index) => pinned.has(index));
      },
    };
  };
}
