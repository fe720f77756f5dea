// Figures for print, which Python draws, and the Python that draws them again.

import { tokenSelection } from "../data/map-data.js";
import { downloadFile, setText } from "../platform/dom.js";
import { patchingQuestion } from "../views/patching-view.js";
import { savedName } from "./export-view.js";

const MAX_TOKENS = 2048; // of a figure

/** What is shown, as a figure: one map, A and B, or all heads. @param {App} app @returns {FigureQuery} */
function figureQuery(app) {
  const { view, side, mode } = app.state;
  const shown = side === "diff" ? app.sides() : [app.shownHead()];
  const sideOf = (/** @type {typeof shown[0]} */ { run, layer, head }) =>
    /** @type {[number, number, Head | "all"]} */ (view === "heads" ? [run, 0, "all"] : [run, layer, head]);
  const { from, to, ...tokens } = tokenSelection(app.state, app.shownRun().layers[app.shownHead().layer]);
  return { sides: shown.map(sideOf), mode, ...tokens, first: from, end: to };
}

/** @param {App} app @param {Refs} refs */
export function listenToFigures(app, refs) {
  const { saveMenu, saveStatus, figure, figureNote, figureFormat, figureSave, figureCode } = refs;
  const use = (/** @type {string} */ format, /** @type {(bytes: Uint8Array<ArrayBuffer>) => void} */ take) => {
    setText(saveStatus, "");
    const look = { format, width: refs.figureWidth.value, caption: refs.figureCaption.checked };
    const patching = app.state.view === "patching" ? patchingQuestion(app) : "";
    const drawn =
      typeof patching === "string"
        ? app.source.figure({ ...figureQuery(app), ...look }, app.controller.signal)
        : app.source.patching_figure({ ...patching, ...look }, app.controller.signal);
    app.queries.client.track(drawn).then(take, ({ message }) => setText(saveStatus, message));
  };
  const showCode = () => {
    const { view, mode } = app.state;
    const isDrawn = view === "head" || view === "heads"; // else it would be the map of the head, whatever is shown
    const { rows, cols } = app.axes();
    const fits = Math.max(rows.length, cols.length) <= MAX_TOKENS;
    const patched = /** @type {Patching | null} */ (app.queries.data("patching"));
    const isPatched = view === "patching" && app.manifest.can.figures && patched !== null && !patched.sender;
    figureNote.hidden = isPatched || (app.manifest.can.figures && mode === "raw" && isDrawn && fits);
    figure.hidden = !figureNote.hidden;
    if (saveMenu.open && !figure.hidden) use("py", (text) => (figureCode.value = new TextDecoder().decode(text)));
  };
  saveMenu.addEventListener("toggle", showCode);
  figure.addEventListener("change", showCode);
  figureCode.addEventListener("focus", () => figureCode.select());
  figureSave.addEventListener("click", () => {
    const name = `${savedName(app)}-figure.${figureFormat.value}`;
    use(figureFormat.value, (bytes) => downloadFile(name, new Blob([bytes])));
  });
}
