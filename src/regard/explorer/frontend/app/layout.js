// The parts of the page, and their arrangement.

import { exportView } from "../export/export-view.js";
import { button, el, field, iconButton, segmented, select, setText } from "../platform/dom.js";
import { withSelection } from "../state/sides.js";
import { AblationPanel } from "../views/ablation-panel.js";
import { AttributionPanel } from "../views/attribution-panel.js";
import { CellSearch } from "../views/cell-search.js";
import { CellView } from "../views/cell-view.js";
import { DisplayOptions } from "../views/display-options.js";
import { HeadGrid } from "../views/head-grid.js";
import { LiveText } from "../views/live-text.js";
import { Legend } from "../views/legend.js";
import { MapView } from "../views/map-view.js";
import { MemoryPanel } from "../views/memory-panel.js";
import { ModelView } from "../views/model-view.js";
import { MovementView } from "../views/movement-view.js";
import { NextTokensPanel } from "../views/next-tokens-panel.js";
import { SideSwitch } from "../views/side-switch.js";
import { TextPanel } from "../views/text-panel.js";
import { TrainingPanel } from "../views/training-panel.js";
import {
  ablateHeads,
  closeCalculation,
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
import { findHeads, toggleCell, toggleChosenCell } from "./head-search.js";
import { appendToken, runText, sampleToken } from "./predictions.js";

/**
 * @import { App } from "./app.js"
 * @import { State } from "../types.js"
 * @typedef {ReturnType<typeof createParts>} Parts
 */

/** Create the parts of the page. @param {App} app */
function createParts(app) {
  const { manifest } = app;
  const set = (/** @type {Partial<State>} */ change) => app.set(change);
  const errorText = el("span", {});
  const retry = button("Try again", () => app.presenter.refresh(app.state));
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
  const layer = select("Layer", [], () => selectHead(app, { layer: layer.selectedIndex }));
  const liveId = app.syncUrl ? "rg-live" : `rg-live-${Math.random().toString(36).slice(2)}`;
  return {
    grid: new HeadGrid(manifest, {
      set,
      select: (selection, open) => set({ ...withSelection(app.state, selection), ...(open ? { view: "head" } : {}) }),
    }),
    map: new MapView(
      {
        selectCell: (row, col) => selectCell(app, row, col),
        openCell: () => set({ view: "cell" }),
        addCell: (row, col) => {
          const { rows, cols } = /** @type {import("../types.js").MapData} */ (app.mapData);
          toggleCell(app, rows[row].members[0], cols[col].members[0]);
        },
        saveViewport: (zoom) => set({ zoom }),
        message: (row, col, value) => app.presenter.cellMessage(row, col, value),
      },
      liveId,
    ),
    textPanel: new TextPanel({
      set,
      select: (group, add) => selectWord(app, group, add),
      pin: (group) => togglePin(app, group.members),
    }),
    cellView: new CellView({ close: () => closeCalculation(app), onShow: () => app.showAboveSheet() }),
    movement: new MovementView({
      setStage: (stage) => set({ stage }),
      select: (token) => set({ row: token }),
    }),
    model: new ModelView({
      openHead: (choice) => set({ ...withSelection(app.state, choice), view: "head" }),
      openOutput: () => set({ nextTokens: true, view: "head" }),
    }),
    cellSearch: new CellSearch({
      find: () => findHeads(app),
      toggle: (cell) => (cell ? toggleCell(app, ...cell) : toggleChosenCell(app)),
    }),
    displayOptions: new DisplayOptions(set),
    legend: new Legend(),
    // Of the views heads, head and movement.
    sideSwitches: [true, true, false].map((hasDifference) => new SideSwitch((side) => set({ side }), hasDifference)),
    attribution: new AttributionPanel(manifest.attribution_methods, {
      set,
      select: ({ members }) => set({ row: members[0], pins: [] }),
    }),
    live: manifest.live_models?.length ? new LiveText(manifest.live_models, (run) => runText(app, run)) : null,
    nextTokens: new NextTokensPanel({
      toggle: (nextTokens) => set({ nextTokens }),
      setTemperature: (temperature) => set({ temperature }),
      append: (token) => appendToken(app, token),
      sample: () => sampleToken(app),
    }),
    ablation: new AblationPanel({
      ablate: (heads) => ablateHeads(app, heads),
      select: (selection) => set({ ...withSelection(app.state, selection), side: "diff" }),
    }),
    training: manifest.training
      ? new TrainingPanel(manifest.training.measures, {
          showCheckpoint: (index) => showCheckpoint(app, index),
          selectHead: (selection) => selectHead(app, selection),
          isSettled: () => app.queries.maps.isCurrent,
        })
      : null,
    tabs: segmented("View", VIEWS, (view) => set({ view })),
    modes: segmented("Map mode", manifest.modes, (mode) => set({ mode })),
    modeDescription: el("p", { class: "rg-description rg-mode-description" }),
    compareButton: button("", () => toggleHeadComparison(app)),
    calculateButton: button("Calculation", () => set({ view: "cell" }), { class: "rg-button rg-calculate" }),
    title: el("h2", {}),
    layer,
    head: select("Head", [], (head) => selectHead(app, { head: head === "mean" ? "mean" : Number(head) })),
    text: el("p", { class: "rg-title" }),
    readout: el("p", { class: "rg-readout" }),
    liveRegion: el("p", { id: liveId, class: "rg-visually-hidden", "aria-live": "polite" }),
    provenance: el("p", { class: "rg-provenance" }),
    memory: new MemoryPanel({
      fetchMemory: () => app.source.memory(app.controller.signal),
      pageMemory: () => app.queries.memory(),
    }),
    errorBar: el("p", { class: "rg-error rg-error-bar", role: "alert", hidden: true }, errorText, " ", retry),
    errorText,
    searchInput,
    matchCount: el("span", { class: "rg-muted rg-match-count", role: "status" }),
    help: helpDialog(keybindingsOf(app)),
    main: el("main", { class: "rg-main" }),
  };
}

/** Create the parts and put them into the root. @param {App} app */
export function createLayout(app) {
  const parts = createParts(app);
  parts.tabs.node.classList.add("rg-tabs");
  const modelTab = /** @type {HTMLElement} */ (parts.tabs.node.querySelector('[data-key="model"]'));
  modelTab.hidden = !app.manifest.can.ablate; // the view says why
  parts.grid.node.prepend(parts.sideSwitches[0].node);
  parts.movement.node.prepend(parts.sideSwitches[2].node);
  parts.main.append(
    parts.grid.node,
    headPanel(parts, app.manifest.can.ablate),
    el(
      "div",
      { class: "rg-side" },
      parts.textPanel.node,
      parts.cellSearch.node,
      parts.nextTokens.node,
      parts.attribution.node,
      parts.ablation.panel,
    ),
    parts.cellView.node,
    parts.movement.node,
    parts.model.node,
  );
  const footer = el("footer", { class: "rg-footer" }, parts.provenance, parts.memory.node);
  const training = parts.training ? [parts.training.node] : [];
  app.root.replaceChildren(
    header(app, parts),
    ...training,
    parts.main,
    footer,
    parts.errorBar,
    parts.liveRegion,
    parts.help,
  );
  return parts;
}

/** @param {Parts} parts @param {boolean} canAblate */
function headPanel(parts, canAblate) {
  const { title, layer, head, modes, sideSwitches, compareButton, ablation, map, legend } = parts;
  const readout = el("div", { class: "rg-readout-row" }, parts.readout, parts.calculateButton);
  const ablationButtons = canAblate
    ? [ablation.toggleButton, ablation.resetButton, ablation.status, ablation.progress]
    : [];
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
function header(app, { text, live, tabs, searchInput, matchCount, displayOptions, help }) {
  const saveMenu = createSaveMenu(app);
  const menus = [displayOptions.node, saveMenu, ...(live ? [live.menu] : [])]; // of one name, so that the browser closes one as the other opens
  for (const menu of menus) menu.setAttribute("name", "rg-menu");
  document.addEventListener(
    "pointerdown",
    (event) => menus.forEach((menu) => event.composedPath().includes(menu) || (menu.open = false)),
    { signal: app.controller.signal },
  );
  return el(
    "header",
    { class: "rg-header" },
    el("h1", { class: "rg-logo" }, "regard"),
    live?.node ?? text,
    tabs.node,
    el(
      "div",
      { class: "rg-tools" },
      searchInput,
      matchCount,
      displayOptions.node,
      saveMenu,
      iconButton("Light or dark (D)", "◐", () => toggleTheme(app)),
      iconButton("Keys and gestures (?)", "?", () => help.showModal()),
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
    button(`As ${kind.toUpperCase()}`, () => save(kind), { class: "rg-item" }),
  );
  const command = el("input", {
    type: "text",
    class: "rg-search",
    readonly: "",
    on: { focus: () => command.select() },
  });
  const again = field("The command that opens this view again", command);
  const panel = el("div", { class: "rg-panel rg-panel-narrow" }, ...items, again, status);
  const menu = el("details", { class: "rg-menu" }, el("summary", {}, "Save"), panel);
  menu.addEventListener("toggle", () => (command.value = `regard explore --open '#${app.address()}'`));
  return menu;
}
