// The parts of the page, and their arrangement.

import { exportView } from "../export/export-view.js";
import { activeElementOf, el, iconButton, segmented, select, setText } from "../platform/dom.js";
import { withSelection } from "../state/sides.js";
import { AblationPanel } from "../views/ablation-panel.js";
import { AttributionPanel } from "../views/attribution-panel.js";
import { CellView } from "../views/cell-view.js";
import { DisplayOptions } from "../views/display-options.js";
import { HeadGrid } from "../views/head-grid.js";
import { Legend } from "../views/legend.js";
import { MapView } from "../views/map-view.js";
import { MemoryPanel } from "../views/memory-panel.js";
import { MovementView } from "../views/movement-view.js";
import { SideSwitch } from "../views/side-switch.js";
import { TextPanel } from "../views/text-panel.js";
import { TrainingPanel } from "../views/training-panel.js";
import {
  ablateHeads,
  closeMenu,
  goToMatch,
  selectCell,
  selectHead,
  selectWord,
  showCheckpoint,
  toggleHeadComparison,
  togglePin,
  toggleTheme,
} from "./actions.js";
import { helpDialog, keybindingsOf, VIEWS } from "./keybindings.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("../state/state.js").State} State
 * @typedef {ReturnType<typeof segmented>} Segmented
 * @typedef {object} Parts
 * @property {HeadGrid} grid
 * @property {MapView} map
 * @property {TextPanel} textPanel
 * @property {CellView} cellView
 * @property {MovementView} movement
 * @property {DisplayOptions} displayOptions
 * @property {Legend} legend
 * @property {SideSwitch[]} sideSwitches  of the views heads, head and movement
 * @property {AttributionPanel} attribution
 * @property {AblationPanel} ablation
 * @property {TrainingPanel | null} training  of a training run
 * @property {Segmented} tabs
 * @property {Segmented} modes
 * @property {HTMLElement} modeDescription
 * @property {HTMLElement} compareButton
 * @property {HTMLElement} title
 * @property {HTMLSelectElement} layer
 * @property {HTMLSelectElement} head
 * @property {HTMLElement} text
 * @property {HTMLElement} readout
 * @property {HTMLElement} liveRegion
 * @property {HTMLElement} provenance
 * @property {MemoryPanel} memory
 * @property {HTMLElement} errorBar
 * @property {HTMLElement} errorText
 * @property {HTMLInputElement} searchInput
 * @property {HTMLElement} matchCount
 * @property {HTMLDialogElement} help
 * @property {HTMLElement} main
 */

/** Create the parts and put them into the root. @param {App} app @returns {Parts} */
export function createLayout(app) {
  const { root, manifest } = app;
  const set = (/** @type {Partial<State>} */ change) => app.set(change);
  const liveId = app.syncUrl ? "rg-live" : `rg-live-${Math.random().toString(36).slice(2)}`;
  const errorText = el("span", {});
  const retry = () => app.presenter.refresh(app.state);
  const errorBar = el(
    "p",
    { class: "rg-error rg-error-bar", role: "alert", hidden: true },
    errorText,
    " ",
    el("button", { type: "button", class: "rg-button", on: { click: retry } }, "Try again"),
  );
  /** @type {HTMLInputElement} */
  const searchInput = el("input", {
    type: "search",
    placeholder: "Find a word",
    "aria-label": "Find a word in the text",
    class: "rg-search",
    on: {
      input: () => set({ query: searchInput.value }),
      keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && goToMatch(app, event.shiftKey ? -1 : 1),
    },
  });
  /** @type {Parts} */
  const parts = {
    grid: new HeadGrid(manifest, {
      set,
      select: (selection, open) => set({ ...withSelection(app.state, selection), ...(open ? { view: "head" } : {}) }),
    }),
    map: new MapView(
      {
        selectCell: (row, col) => selectCell(app, row, col),
        openCell: () => set({ view: "cell" }),
        saveViewport: (zoom) => set({ zoom }),
        message: (row, col, value) => app.presenter.cellMessage(row, col, value),
        // The wheel scrolls a notebook, until the map is focused.
        usesWheel: () => app.syncUrl || activeElementOf(root) === app.parts.map.stage,
      },
      liveId,
    ),
    textPanel: new TextPanel({
      set,
      select: (group, add) => selectWord(app, group, add),
      pin: (group) => togglePin(app, group.members),
    }),
    cellView: new CellView(),
    movement: new MovementView({
      setStage: (stage) => set({ stage }),
      select: (token) => set({ row: token }),
      usesWheel: () => app.syncUrl || parts.movement.plane.node.contains(activeElementOf(root)),
    }),
    displayOptions: new DisplayOptions(set),
    legend: new Legend(),
    sideSwitches: [false, true, false].map((hasDifference) => new SideSwitch((side) => set({ side }), hasDifference)),
    attribution: new AttributionPanel(manifest.attribution_methods, {
      set,
      select: ({ members }) => set({ row: members[0], pins: [] }),
    }),
    ablation: new AblationPanel({
      ablate: (heads) => ablateHeads(app, heads),
      select: (selection) => selectHead(app, selection),
    }),
    training: manifest.training
      ? new TrainingPanel(manifest.training.measures, {
          showCheckpoint: (index) => showCheckpoint(app, index),
          selectHead: (selection) => selectHead(app, selection),
          isSettled: () => app.queries.maps.isCurrent,
        })
      : null,
    tabs: segmented("View", VIEWS, (view) => set({ view: /** @type {any} */ (view) })),
    modes: segmented("Map mode", manifest.modes, (mode) => set({ mode })),
    modeDescription: el("p", { class: "rg-description rg-mode-description" }),
    compareButton: el("button", { type: "button", class: "rg-button", on: { click: () => toggleHeadComparison(app) } }),
    title: el("h2", {}),
    layer: select("Layer", [], () => selectHead(app, { layer: parts.layer.selectedIndex })),
    head: select("Head", [], (head) => selectHead(app, { head: head === "mean" ? "mean" : Number(head) })),
    text: el("p", { class: "rg-title" }),
    readout: el("p", { class: "rg-readout" }),
    liveRegion: el("p", { id: liveId, class: "rg-visually-hidden", "aria-live": "polite" }),
    provenance: el("p", { class: "rg-provenance" }),
    memory: new MemoryPanel({
      fetchMemory: () => app.source.memory(app.controller.signal),
      pageMemory: () => app.queries.memory(),
    }),
    errorBar,
    errorText,
    searchInput,
    matchCount: el("span", { class: "rg-muted rg-match-count", role: "status" }),
    help: helpDialog(keybindingsOf(app)),
    main: el("main", { class: "rg-main" }),
  };
  parts.tabs.node.classList.add("rg-tabs");
  parts.grid.node.prepend(parts.sideSwitches[0].node);
  parts.movement.node.prepend(parts.sideSwitches[2].node);
  parts.main.append(
    parts.grid.node,
    headPanel(parts, manifest.can.ablate),
    el("div", { class: "rg-side" }, parts.textPanel.node, parts.attribution.node, parts.ablation.panel),
    parts.cellView.node,
    parts.movement.node,
  );
  const footer = el("footer", { class: "rg-footer" }, parts.provenance, parts.memory.node);
  const training = parts.training ? [parts.training.node] : [];
  root.replaceChildren(header(app, parts), ...training, parts.main, footer, errorBar, parts.liveRegion, parts.help);
  return parts;
}

/** @param {Parts} parts @param {boolean} canAblate */
function headPanel(parts, canAblate) {
  const { title, layer, head, modes, sideSwitches, compareButton, ablation, map, readout, legend } = parts;
  const field = (/** @type {string} */ name, /** @type {HTMLElement} */ list) =>
    el("label", { class: "rg-field" }, el("span", {}, name), list);
  const ablationButtons = canAblate ? [ablation.toggleButton, ablation.resetButton, ablation.status] : [];
  return el(
    "section",
    { class: "rg-head-panel", "aria-label": "One head" },
    el("div", { class: "rg-head-panel-header" }, title, field("Layer", layer), field("Head", head), modes.node),
    el("div", { class: "rg-bar rg-compare" }, sideSwitches[1].node, compareButton, ...ablationButtons),
    map.node,
    el("div", { class: "rg-below-map" }, readout, legend.node),
    parts.modeDescription,
  );
}

/** @param {App} app @param {Parts} parts */
function header(app, { text, tabs, searchInput, matchCount, displayOptions, help }) {
  const saveMenu = createSaveMenu(app);
  const menus = [displayOptions.node, saveMenu];
  const closeOthers = (/** @type {HTMLDetailsElement} */ menu) =>
    menus.forEach((other) => other !== menu && (other.open = false));
  for (const menu of menus) menu.addEventListener("toggle", () => menu.open && closeOthers(menu));
  document.addEventListener(
    "pointerdown",
    (event) => menus.forEach((menu) => event.composedPath().includes(menu) || (menu.open = false)),
    { signal: app.controller.signal },
  );
  return el(
    "header",
    { class: "rg-header" },
    el("h1", { class: "rg-logo" }, "regard"),
    text,
    tabs.node,
    el(
      "div",
      { class: "rg-tools" },
      searchInput,
      matchCount,
      displayOptions.node,
      saveMenu,
      iconButton("Light or dark (D)", "◐", () => toggleTheme(app)),
      iconButton("Keys (?)", "?", () => help.showModal()),
    ),
  );
}

/** @param {App} app */
function createSaveMenu(app) {
  const status = el("p", { class: "rg-description", role: "status" });
  const save = (/** @type {"svg" | "png" | "csv"} */ kind) => {
    setText(status, "");
    exportView(app, kind).then(
      () => menu.open && closeMenu(menu),
      ({ message }) => setText(status, message),
    );
  };
  const items = /** @type {const} */ (["svg", "png", "csv"]).map((kind) =>
    el("button", { type: "button", class: "rg-item", on: { click: () => save(kind) } }, `As ${kind.toUpperCase()}`),
  );
  const menu = el(
    "details",
    { class: "rg-menu" },
    el("summary", {}, "Save"),
    el("div", { class: "rg-panel rg-panel-narrow" }, ...items, status),
  );
  return menu;
}
