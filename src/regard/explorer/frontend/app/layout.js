// The parts of the page: what fills its markup, and what its buttons do.

import { exportView, isDrawn, NOTHING_DRAWN } from "../export/export-view.js";
import { listenToFigures } from "../export/print-figure.js";
import { onSegment, refsOf, setOptions, setText } from "../platform/dom.js";
import { MAX_TEXT } from "../state/fields.js";
import { CellView } from "../views/cell-view.js";
import { HeadGrid } from "../views/head-grid.js";
import { Legend } from "../views/legend.js";
import { MapView } from "../views/map-view.js";
import { listenToMemory } from "../views/memory-panel.js";
import { MovementView } from "../views/movement-view.js";
import { SideSwitch } from "../views/side-switch.js";
import { TrainingPanel } from "../views/training-panel.js";
import { WHEEL_KEY } from "../views/zoom-view.js";
import * as actions from "./actions.js";
import { createClassroom } from "./classroom.js";
import { bindControls } from "./controls.js";
import { findHeads, toggleChosenCell, writeCells } from "./head-search.js";
import { openPlace } from "./places.js";
import { closeTextB, compareText, sampleToken } from "./predictions.js";

/**
 * @typedef {ReturnType<typeof createParts>} Parts
 */

/** Put the markup of the page into the root, the box of a text for A and for B; its named elements. @param {HTMLElement} root @param {DocumentFragment} markup */
export function fillMarkup(root, markup) {
  root.replaceChildren(markup.cloneNode(true));
  const { live, liveB, liveBox } = refsOf(root);
  live.prepend(liveBox.content.cloneNode(true));
  const ofB = /** @type {DocumentFragment} */ (liveBox.content.cloneNode(true));
  for (const node of /** @type {HTMLCollectionOf<HTMLElement>} */ (ofB.children)) {
    node.dataset.ref += "B";
    if (node.ariaLabel) node.ariaLabel += " of B";
    else node.append(" B");
  }
  liveB.prepend(ofB);
  return refsOf(root);
}

/** Create what fills the markup, and listen to its controls. @param {App} app */
export function createLayout(app) {
  const { manifest, refs } = app;
  for (const node of manifest.live_models.length ? [refs.text] : [refs.live, refs.liveB]) node.remove();
  if (!manifest.can.ablate) refs.ablation.remove();
  refs.corpus.hidden = !manifest.pairs?.length;
  if (!manifest.training) for (const node of app.root.querySelectorAll("[data-training]")) node.remove();
  const { threshold, collapsedLayers, collapsedHeads } = app.state;
  refs.more.open = threshold > 0 || collapsedLayers.length + collapsedHeads.length > 0;
  refs.liveRegion.id = app.syncUrl ? "rg-live" : `rg-live-${Math.random().toString(36).slice(2)}`;
  setOptions(refs.modes, manifest.modes);
  setOptions(refs.metric, manifest.metrics);
  setOptions(refs.pair, manifest.pairs ?? []);
  setOptions(refs.method, manifest.attribution_methods);
  refs.wheelKey.textContent = `${WHEEL_KEY} + wheel`;
  createClassroom(app);
  const parts = createParts(app, refs);
  bindControls(app.root, (change) => app.set(change));
  listenToButtons(app, refs);
  listenToMenus(app, refs);
  listenToFigures(app, refs);
  listenToMemory(app);
  return parts;
}

/** @param {App} app @param {Refs} refs */
function createParts(app, refs) {
  const { manifest } = app;
  const sideSwitch = (/** @type {HTMLElement} */ node, hasDifference = false) =>
    new SideSwitch(node, hasDifference, (side) => app.set({ side }));
  return {
    grid: new HeadGrid(app),
    map: new MapView(app),
    cellView: new CellView(app),
    movement: new MovementView(app),
    legend: new Legend(refs.legend),
    sideSwitches: {
      heads: sideSwitch(refs.headsSides, true),
      head: sideSwitch(refs.headSides, true),
      movement: sideSwitch(refs.movementSides),
      model: sideSwitch(refs.modelSides),
      lines: sideSwitch(refs.linesSides),
      paths: sideSwitch(refs.pathsSides),
    },
    training: manifest.training ? new TrainingPanel(app, manifest.training.measures) : null,
  };
}

/** @param {App} app @param {Refs} refs */
function listenToButtons(app, refs) {
  const clicks = /** @type {[HTMLElement, () => void][]} */ ([
    [refs.allTokens, () => app.set({ from: null, to: null })],
    [refs.findHeads, () => findHeads(app)],
    [refs.addCell, () => toggleChosenCell(app)],
    [refs.cancelRows, () => app.set({ corpus: false })],
    [refs.compareText, () => compareText(app)],
    [refs.closeB, () => closeTextB(app)],
    [refs.undoButton, () => actions.undoAblation(app)],
    [refs.redoButton, () => actions.redoAblation(app)],
    [refs.clearLines, () => app.set({ lines: [] })],
    [refs.unpin, () => app.set({ pins: [] })],
    [refs.restoreScores, () => app.set({ changedScores: null })],
    [refs.presentButton, () => actions.togglePresenter(app)],
    [refs.themeButton, () => actions.toggleTheme(app)],
    [refs.helpButton, () => refs.help.showModal()],
    [refs.closeHelp, () => refs.help.close()],
    [refs.retry, () => app.retry()],
    [refs.compareButton, () => actions.toggleHeadComparison(app)],
    [refs.calculateButton, () => app.set({ view: "cell" })],
    [refs.sample, () => sampleToken(app)],
  ]);
  for (const [node, action] of clicks) node.addEventListener("click", action);
  onSegment(refs.places, (place) => openPlace(app, place));
  for (const node of [refs.views, refs.drawings]) onSegment(node, (view) => app.set({ view }));
  refs.writtenCells.addEventListener("change", () => writeCells(app, refs.writtenCells.value));
  const { layer, head, searchInput, firstToken, lastToken, help } = refs;
  layer.addEventListener("change", () => actions.selectHead(app, { layer: layer.selectedIndex }));
  head.addEventListener("change", () =>
    actions.selectHead(app, { head: head.value === "mean" ? "mean" : Number(head.value) }),
  );
  searchInput.addEventListener(
    "keydown",
    ({ key, shiftKey }) => key === "Enter" && actions.goToMatch(app, shiftKey ? -1 : 1),
  );
  for (const node of [firstToken, lastToken]) node.addEventListener("change", () => actions.setRange(app));
  help.addEventListener("click", ({ target }) => target === help && help.close());
  keepChoice(refs.characterKeys, "regard-character-keys");
  keepChoice(refs.showIntro, "regard-intro");
  refs.showIntro.addEventListener("change", () => app.refresh());
  refs.closeIntro.addEventListener("click", () => {
    refs.showIntro.click();
    actions.focusMainView(app);
  });
}

/** Keep in the browser whether a box is checked, where it keeps anything. @param {HTMLInputElement} box @param {string} key */
function keepChoice(box, key) {
  try {
    box.checked = localStorage.getItem(key) !== "off";
    box.addEventListener("change", () => localStorage.setItem(key, box.checked ? "on" : "off"));
  } catch {
    // a page in a file or a frame may have no storage: the choice lasts as long as the page
  }
}

/** A menu closes when one presses beside it. @param {App} app @param {Refs} refs */
function listenToMenus(app, { saveMenu, saveStatus, openCommand }) {
  const menus = /** @type {NodeListOf<HTMLDetailsElement>} */ (app.root.querySelectorAll(".rg-menu"));
  document.addEventListener(
    "pointerdown",
    (event) => menus.forEach((menu) => event.composedPath().includes(menu) || (menu.open = false)),
    { signal: app.controller.signal },
  );
  openCommand.addEventListener("focus", () => openCommand.select());
  saveMenu.addEventListener("toggle", () => {
    const isLong = (app.state.text || app.manifest.runs[0].text).length > MAX_TEXT; // the address has no text
    const isEmpty = app.queries.client.fetching.size === 0 && !isDrawn(app); // else it may come
    for (const node of /** @type {NodeListOf<HTMLButtonElement>} */ (saveMenu.querySelectorAll("[data-save]")))
      node.disabled = isEmpty;
    setText(saveStatus, isEmpty ? NOTHING_DRAWN : "");
    openCommand.value = `regard explore ${isLong ? "--file FILE " : ""}--open '#${app.address()}'`;
  });
  saveMenu.addEventListener("click", ({ target }) => {
    const { save } = /** @type {HTMLElement} */ (target).dataset;
    if (!save) return;
    setText(saveStatus, "");
    exportView(app, /** @type {"svg" | "png" | "csv"} */ (save)).then(
      () => saveMenu.open && actions.closeMenu(saveMenu),
      ({ message }) => setText(saveStatus, message),
    );
  });
}
