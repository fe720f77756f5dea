// The parts of the page and where they stand.

import { saveView } from "../export/export-view.js";
import { chooser, el, focusedBeside, iconButton, segmented, setText } from "../platform/dom.js";
import { placed } from "../state/sides.js";
import { Edits } from "../views/ablation-panel.js";
import { CellSteps } from "../views/cell-view.js";
import { Aids } from "../views/display-options.js";
import { HeadGrid } from "../views/head-grid.js";
import { Legend } from "../views/legend.js";
import { MapView } from "../views/map-view.js";
import { MemoryTold } from "../views/memory-panel.js";
import { MovementView } from "../views/movement-view.js";
import { Sides } from "../views/side-switch.js";
import { Reading } from "../views/text-panel.js";
import {
  chooseWord,
  closeMenu,
  goTo,
  keepHead,
  nextFound,
  pickCell,
  pinTokens,
  switchOff,
  turnTheme,
} from "./actions.js";
import { bindingsOf, helpDialog, VIEWS } from "./keybindings.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("../state/state.js").State} State
 * @typedef {ReturnType<typeof segmented>} Segmented
 * @typedef {object} Parts
 * @property {HeadGrid} grid
 * @property {MapView} map
 * @property {Reading} reading
 * @property {CellSteps} steps
 * @property {MovementView} movement
 * @property {Aids} aids
 * @property {Legend} legend
 * @property {Sides[]} compare  over all heads, over one, over movement
 * @property {Edits} edits
 * @property {Segmented} tabs
 * @property {Segmented} ways
 * @property {HTMLElement} waySays
 * @property {HTMLElement} keep
 * @property {HTMLElement} title
 * @property {HTMLSelectElement} layer
 * @property {HTMLSelectElement} head
 * @property {HTMLElement} text
 * @property {HTMLElement} readout
 * @property {HTMLElement} live
 * @property {HTMLElement} proof
 * @property {MemoryTold} memory
 * @property {HTMLElement} problem
 * @property {HTMLElement} problemSays
 * @property {HTMLInputElement} query
 * @property {HTMLElement} found
 * @property {HTMLDialogElement} help
 * @property {HTMLElement} main
 */

/** Make the parts and put them into the root. @param {App} app @returns {Parts} */
export function laidOut(app) {
  const { root, manifest } = app;
  const set = (/** @type {Partial<State>} */ change) => app.set(change);
  const liveId = app.address ? "rg-live" : `rg-live-${Math.random().toString(36).slice(2)}`;
  const problemSays = el("span", {});
  const problem = el(
    "p",
    { class: "rg-error rg-problem", role: "alert", hidden: true },
    problemSays,
    " ",
    el("button", { type: "button", class: "rg-quiet", on: { click: () => app.refresh(app.state) } }, "Try again"),
  );
  /** @type {HTMLInputElement} */
  const query = el("input", {
    type: "search",
    placeholder: "Find a word",
    "aria-label": "Find a word in the text",
    class: "rg-search",
    on: {
      input: () => set({ query: query.value }),
      keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && nextFound(app, event.shiftKey ? -1 : 1),
    },
  });
  /** @type {Parts} */
  const parts = {
    grid: new HeadGrid(manifest, {
      set,
      choose: (at, open) => set({ ...placed(app.state, at), ...(open ? { view: "head" } : {}) }),
    }),
    map: new MapView(
      {
        pick: (row, col) => pickCell(app, row, col),
        open: () => set({ view: "cell" }),
        look: (zoom) => set({ zoom }),
        tell: (row, col, value) => app.sentence(row, col, value),
        wheels: () => app.address || focusedBeside(root) === app.parts.map.stage, // a notebook is scrolled, until the map is chosen
      },
      liveId,
    ),
    reading: new Reading({
      set,
      choose: (group, add) => chooseWord(app, group, add),
      pin: (group) => pinTokens(app, group.members),
    }),
    steps: new CellSteps(),
    movement: new MovementView({ stage: (stage) => set({ stage }), choose: (token) => set({ row: token }) }),
    aids: new Aids(set),
    legend: new Legend(),
    compare: [false, true, false].map((difference) => new Sides((side) => set({ side }), { difference })),
    edits: new Edits({ turn: (off) => switchOff(app, off), choose: (at) => goTo(app, at) }),
    tabs: segmented("View", VIEWS, (view) => set({ view: /** @type {any} */ (view) })),
    ways: segmented("What the map shows", manifest.ways, (way) => set({ way })),
    waySays: el("p", { class: "rg-says rg-way" }),
    keep: el("button", { type: "button", class: "rg-quiet", on: { click: () => keepHead(app) } }),
    title: el("h2", {}),
    layer: chooser("Layer", [], () => goTo(app, { layer: parts.layer.selectedIndex })),
    head: chooser("Head", [], (head) => goTo(app, { head: head === "mean" ? "mean" : Number(head) })),
    text: el("p", { class: "rg-title" }),
    readout: el("p", { class: "rg-readout" }),
    live: el("p", { id: liveId, class: "rg-unseen", "aria-live": "polite" }),
    proof: el("p", { class: "rg-proof" }),
    memory: new MemoryTold({ ask: () => app.source.memory(app.end.signal), held: () => app.loading.held() }),
    problem,
    problemSays,
    query,
    found: el("span", { class: "rg-muted rg-found-count", role: "status" }),
    help: helpDialog(bindingsOf(app)),
    main: el("main", { class: "rg-main" }),
  };
  parts.tabs.node.classList.add("rg-tabs");
  parts.grid.node.prepend(parts.compare[0].node);
  parts.movement.node.prepend(parts.compare[2].node);
  parts.main.append(
    parts.grid.node,
    headPanel(parts, manifest.can.edit),
    el("div", { class: "rg-side" }, parts.reading.node, parts.edits.panel),
    parts.steps.node,
    parts.movement.node,
  );
  root.replaceChildren(
    header(app, parts),
    parts.main,
    el("footer", { class: "rg-footer" }, parts.proof, parts.memory.node),
    problem,
    parts.live,
    parts.help,
  );
  return parts;
}

/** @param {Parts} parts @param {boolean} canEdit */
function headPanel({ title, layer, head, ways, compare, keep, edits, map, readout, legend, waySays }, canEdit) {
  const field = (/** @type {string} */ name, /** @type {HTMLElement} */ list) =>
    el("label", { class: "rg-field" }, el("span", {}, name), list);
  return el(
    "section",
    { class: "rg-one", "aria-label": "One head" },
    el("div", { class: "rg-one-head" }, title, field("Layer", layer), field("Head", head), ways.node),
    el(
      "div",
      { class: "rg-bar rg-compare" },
      compare[1].node,
      keep,
      ...(canEdit ? [edits.turn, edits.reset, edits.says] : []),
    ),
    map.node,
    el("div", { class: "rg-under" }, readout, legend.node),
    waySays,
  );
}

/** @param {App} app @param {Parts} parts */
function header(app, { text, tabs, query, found, aids, help }) {
  const save = (/** @type {string} */ title, /** @type {"svg" | "png" | "csv"} */ kind) =>
    el(
      "button",
      {
        type: "button",
        class: "rg-item",
        on: {
          click: () => {
            setText(saveSays, "");
            saveView(app, kind).then(
              () => saving.open && closeMenu(saving),
              ({ message }) => setText(saveSays, message),
            );
          },
        },
      },
      title,
    );
  const saveSays = el("p", { class: "rg-says", role: "status" });
  const saving = el(
    "details",
    { class: "rg-menu" },
    el("summary", {}, "Save"),
    el(
      "div",
      { class: "rg-panel rg-panel-narrow" },
      save("As SVG", "svg"),
      save("As PNG", "png"),
      save("As CSV", "csv"),
      saveSays,
    ),
  );
  const menus = [aids.node, saving];
  for (const menu of menus)
    menu.addEventListener(
      "toggle",
      () => menu.open && menus.forEach((other) => other !== menu && (other.open = false)),
    );
  document.addEventListener(
    "pointerdown",
    (event) => menus.forEach((menu) => event.composedPath().includes(menu) || (menu.open = false)),
    { signal: app.end.signal },
  );
  return el(
    "header",
    { class: "rg-header" },
    el("h1", { class: "rg-mark" }, "regard"),
    text,
    tabs.node,
    el(
      "div",
      { class: "rg-tools" },
      query,
      found,
      aids.node,
      saving,
      iconButton("Light or dark (D)", "◐", () => turnTheme(app)),
      iconButton("Keys (?)", "?", () => help.showModal()),
    ),
  );
}
