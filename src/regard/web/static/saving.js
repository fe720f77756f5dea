// What is seen, whichever view it is, as a file to keep.

import { handOver } from "./dom.js";
import { INK, numberAt } from "./paint.js";
import { cellCsv, csvField, csvOf, fileName, gridSvg, pngOf, settledSvg, svgOf } from "./save.js";

/** @typedef {import("./app.js").App} App */

/** Hand over what is seen as a file. @param {App} app @param {"svg" | "png" | "csv"} kind */
export async function saveView(app, kind) {
  const { field, state, manifest, parts: { map, title } } = app;
  if (!field) return;
  const what = { heads: "all heads", head: title.textContent ?? "", cell: `${title.textContent} cell`, movement: "movement" }[state.view];
  const name = `${fileName(`${manifest.title} ${what}`)}.${kind}`;
  if (kind === "csv") return handOver(name, new Blob([numbersOf(app, field)], { type: "text/csv" }));
  const isMap = state.view === "head" || state.view === "cell";
  if (kind === "png" && isMap) return map.picture(2).toBlob((blob) => blob && handOver(name, blob));
  const drawing = isMap ? svgOf(map.scene(), map.picture(2), what) : drawingOf(app);
  if (kind === "svg") return handOver(name, new Blob([drawing], { type: "image/svg+xml" }));
  const blob = await pngOf(drawing, 2);
  if (blob) handOver(name, blob);
}

/** The grid of heads, or the plane of movement, as SVG. @param {App} app */
function drawingOf({ state, theme, parts: { grid, movement } }) {
  const ink = INK[theme];
  return state.view === "heads" ? gridSvg(grid.body, ink.ground, ink.text) : settledSvg(movement.picture, ink.ground);
}

/** What is seen, as CSV. @param {App} app @param {import("./field.js").Field} field */
function numbersOf(app, field) {
  const { state, manifest, loading, parts: { grid, map } } = app;
  if (state.view === "heads" && grid.known.heads) {
    const values = grid.known.heads.measures[state.measure];
    return csvOf(values.map((_, layer) => `layer ${layer}`), values[0].map((_, head) => `head ${head}`), (layer, head) => values[layer][head], 6);
  }
  if (state.view === "movement" && loading.movement.current) {
    const lines = [...loading.movement.current].flatMap(([run, { points, stages }]) =>
      points.flatMap((places, stage) =>
        places.map(([x, y], t) => {
          const names = [manifest.runs[run].name, stages[stage], manifest.runs[run].tokens[t].text];
          return [...names.map((part) => csvField(part)), String(x), String(y)].join(",");
        })));
    return `${["run,stage,token,x,y", ...lines].join("\n")}\n`;
  }
  if (state.view === "cell" && loading.cell.current) return cellCsv(loading.cell.current);
  const span = map.span();
  const rows = field.rows.slice(span.row0, span.row1).map(({ full }) => full);
  const cols = field.cols.slice(span.col0, span.col1).map(({ full }) => full);
  return csvOf(rows, cols, (row, col) => numberAt(field.pyramid, row + span.row0, col + span.col0), app.decimals());
}
