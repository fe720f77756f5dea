// What is seen, whichever view it is, as a file to keep.

import { handOver } from "../platform/dom.js";
import { inkOf, levelOf, numberAt, spanOf } from "../render/map-renderer.js";
import { legendOf } from "../views/messages.js";
import { csvField, csvOf, fileName, linesCsv, pngOf } from "./file-export.js";
import { sheetOf } from "./svg-snapshot.js";

/** @typedef {import("../app/app.js").App} App */

/** Hand over what is seen as a file, or say why not. @param {App} app @param {"svg" | "png" | "csv"} kind */
export async function saveView(app, kind) {
  const {
    field,
    state,
    manifest,
    parts: { title },
  } = app;
  if (!field) return;
  const name = `${fileName(manifest.title, title.textContent ?? "", state.view === "head" ? "" : state.view)}.${kind}`;
  if (kind === "csv") return handOver(name, new Blob([numbersOf(app, field)], { type: "text/csv" }));
  const drawing = drawingOf(app);
  if (kind === "svg") return handOver(name, new Blob([drawing], { type: "image/svg+xml" }));
  const blob = await pngOf(drawing, 2).catch(() => null);
  if (!blob) throw new Error("The browser cannot make this PNG: save the picture as SVG.");
  handOver(name, blob);
}

/** @param {App} app */
function drawingOf(app) {
  const {
    state,
    manifest,
    parts: { main, title: heading, compare, map, readout, legend, waySays, steps, grid, movement },
  } = app;
  const titleOf = (/** @type {{ key: string, title: string }[]} */ list, /** @type {string} */ key) =>
    list.find((one) => one.key === key)?.title.toLowerCase();
  const measure = titleOf(manifest.measures, state.measure);
  const one = `${heading.textContent} · ${titleOf(manifest.ways, state.way)}`;
  const title = {
    heads:
      state.order === "measure"
        ? `All heads by ${measure}`
        : `All heads: a row for each layer, below each head its ${measure}`,
    head: one,
    cell: one,
    movement: "Movement",
  }[state.view];
  const [overHeads, overHead, overMovement] = compare.map(({ text }) => text);
  const head = [overHead, map.node, readout, legend.node, waySays];
  const columns = {
    heads: [[overHeads, grid.says, grid.count, grid.body]],
    head: [head],
    cell: [head, [steps.node]],
    movement: [[overMovement, movement.runs, movement.stageText, movement.picture, movement.explained]],
  }[state.view];
  const { model, text } = app.run();
  return sheetOf(
    title,
    [model, text.replace(/\s+/g, " ")].filter(Boolean).join("  ·  "),
    columns,
    inkOf(main),
    (canvas) => (canvas === map.canvas ? map.drawing() : null),
  );
}

/** What is seen, as CSV. @param {App} app @param {import("../data/tile-source.js").Field} field */
function numbersOf(app, field) {
  const {
    state,
    manifest,
    loading,
    parts: { grid },
  } = app;
  if (state.view === "heads" && grid.known.heads) {
    const values = grid.known.heads.measures[state.measure];
    return csvOf(
      state.measure,
      values.map((_, layer) => `layer ${grid.layers()[layer].number}`),
      values[0].map((_, head) => `head ${head}`),
      (layer, head) => values[layer][head],
      6,
    );
  }
  if (state.view === "movement" && loading.movement.current) {
    const sides = app.sides();
    const lines = [...loading.movement.current].flatMap(([run, { points, stages }]) =>
      points.flatMap((places, stage) =>
        places.map(([x, y], t) => {
          const names = [
            "AB"[sides.findIndex((at) => at.run === run)],
            stages[stage],
            manifest.runs[run].tokens[t].text,
          ];
          return [...names.map((part) => csvField(part)), String(x), String(y)].join(",");
        }),
      ),
    );
    return `${["run,stage,token,x,y", ...lines].join("\n")}\n`;
  }
  const { current } = loading.cell;
  if (state.view === "cell" && current && state.row !== null && state.col !== null) {
    const { layer, head } = app.here();
    const { model, tokens, layers } = app.run();
    return linesCsv({
      model,
      layer: layers[layer].number,
      head,
      "looks, number": state.row,
      looks: tokens[state.row].text,
      "is looked at, number": state.col,
      "is looked at": tokens[state.col].text,
      ...current,
    });
  }
  return mapCsv(app, field);
}

/** The cells of the map that are seen; from afar, those that stand for several. @param {App} app @param {import("../data/tile-source.js").Field} field */
function mapCsv(app, { rows, cols, pyramid }) {
  const scene = app.parts.map.scene();
  const [span, level] = [spanOf(scene), levelOf(scene)];
  const by = 2 ** level;
  const [row0, col0] = [Math.floor(span.row0 / by), Math.floor(span.col0 / by)];
  const named = (
    /** @type {import("../data/tokens.js").Group[]} */ axis,
    /** @type {number} */ from,
    /** @type {number} */ to,
  ) =>
    Array.from({ length: Math.ceil(to / by) - from }, (_, n) => {
      const [first, last] = [axis[(from + n) * by], axis[Math.min(axis.length, (from + n + 1) * by) - 1]];
      return first === last ? first.full : `${first.members[0]} ${first.full} … ${last.members[0]} ${last.full}`;
    });
  const corner = legendOf(
    { ...app.state, log: false, byRow: false },
    app.isDifference,
    Infinity,
    app.parts.map.pooled(),
  );
  return csvOf(
    corner,
    named(rows, row0, span.row1),
    named(cols, col0, span.col1),
    (row, col) => numberAt(pyramid, row + row0, col + col0, level),
    app.decimals(),
  );
}
