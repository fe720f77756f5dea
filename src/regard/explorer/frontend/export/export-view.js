// Export of the current view: a picture as SVG or PNG, or its values as CSV.

import { tokenName } from "../data/tokens.js";
import { downloadFile } from "../platform/dom.js";
import { levelOf, themeColors, valueAt, visibleCells } from "../render/scene.js";
import { linesOf } from "../views/lines-view.js";
import { layerName, legendMessage } from "../views/messages.js";
import { positionNames, sidesOfTexts } from "../views/patching-view.js";
import { csvOf, fileName, rasterize, toCsv, toRecordCsv } from "./file-export.js";
import { composeSheet } from "./svg-snapshot.js";

/** What has other numbers than those of the map: its question, and its table. @type {Record<string, [string, (app: App, data: any) => string]>} */
const TABLES = {
  movement: ["movement", movementCsv],
  lines: ["lines", (app) => linesCsv(/** @type {LinesProps} */ (linesOf(app)))],
  paths: ["paths", pathsCsv],
  patching: ["patching", patchingCsv],
  model: ["residual_stream", streamCsv],
};

export const NOTHING_DRAWN = "There is nothing to save: the view says why.";

/** Whether the view has a drawing, and not only a sentence. @param {App} app */
export function isDrawn({ state: { view }, parts: { grid }, queries }) {
  return view === "heads" ? grid.cells.length > 0 : Boolean(queries.data(TABLES[view]?.[0] ?? "maps"));
}

/** Download the current view. @param {App} app @param {"svg" | "png" | "csv"} kind */
export async function exportView(app, kind) {
  await app.queries.client.idle();
  if (!isDrawn(app)) throw new Error(NOTHING_DRAWN);
  const name = `${savedName(app)}.${kind}`;
  if (kind === "csv") return downloadFile(name, new Blob([composeCsv(app)], { type: "text/csv" }));
  const drawing = composeDrawing(app);
  if (kind === "svg") return downloadFile(name, new Blob([drawing], { type: "image/svg+xml" }));
  const blob = await rasterize(drawing, 2).catch(() => null);
  if (!blob) throw new Error("The browser cannot create this PNG: save the picture as SVG.");
  downloadFile(name, blob);
}

/** The name of a file: the text, and what is shown of it; the head, where one is. @param {App} app */
export function savedName({ state: { view }, manifest, refs }) {
  const ofHead = ["head", "cell", "text"].includes(view) ? (refs.title.textContent ?? "") : "";
  return fileName(manifest.title, ofHead, view === "head" ? "" : view);
}

/** @param {App} app */
function composeDrawing(app) {
  const { state, manifest, parts, refs } = app;
  const { map, movement, sideSwitches, legend } = parts;
  const titleOf = (/** @type {{ key: string, title: string }[]} */ list, /** @type {string} */ key) =>
    list.find((one) => one.key === key)?.title.toLowerCase();
  const metric = titleOf(manifest.metrics, state.metric);
  const headTitle = `${refs.title.textContent} · ${titleOf(manifest.modes, state.mode)}`;
  const gridTitle = `All heads: a row for each layer, below each head its ${metric}`;
  const title = {
    heads: state.order === "metric" ? `All heads by ${metric}` : gridTitle,
    head: headTitle,
    cell: headTitle,
    movement: "Representations by layer",
    model: "Whole model",
    lines: "Lines",
    text: headTitle,
    paths: "Paths behind the next token",
    patching: "Patching: steps of A in the run of B",
  }[state.view];
  const head = [sideSwitches.head.names, map.node, refs.readout, legend.node, refs.modeDescription];
  const { metricDescription, headCount, grid, movementLegend, stageText, movementText } = refs;
  const columns = {
    heads: [[sideSwitches.heads.names, metricDescription, headCount, grid]],
    head: [head],
    cell: [head, [refs.cell]],
    text: [[sideSwitches.head.names, refs.textContainer, refs.topHeading, refs.top]],
    model: [[sideSwitches.model.names, refs.modelHeading, refs.stream]],
    paths: [[sideSwitches.paths.names, refs.pathsSummary, refs.pathsGraph], [refs.pathsTree]],
    patching: [[refs.patchingSummary, refs.patchingGrid, refs.patchingLegend]],
    lines: [[sideSwitches.lines.names, refs.linesNote, refs.lines, refs.linesReadout]],
    movement: [[sideSwitches.movement.names, movementLegend, stageText, movement.plane.node, movementText]],
  }[state.view];
  const { model, text } = app.shownRun();
  const texts =
    state.view === "patching" ? sidesOfTexts(state, manifest).map((run) => manifest.runs[run].text) : [text];
  const named = texts.map((one, n) => (texts.length > 1 ? `${"AB"[n]}: ` : "") + one.replace(/\s+/g, " "));
  const subtitle = [model, ...named].filter(Boolean).join("  ·  ");
  const drawCanvas = (/** @type {HTMLCanvasElement} */ canvas) =>
    [map, movement.plane].find((view) => view.canvas === canvas)?.toSvg() ?? null;
  return composeSheet(title, subtitle, columns, themeColors(refs.main), drawCanvas);
}

/** @param {App} app */
function composeCsv(app) {
  const { state, queries, parts } = app;
  const values = parts.grid.data.metrics?.[state.metric] ?? parts.grid.values;
  if (state.view === "heads" && values) {
    const layers = values.map((_, layer) => layerName(parts.grid.layers()[layer].number).toLowerCase());
    const heads = values[0].map((_, head) => `head ${head}`);
    return toCsv(state.metric, layers, heads, (layer, head) => values[layer][head], 6);
  }
  const cell = queries.data("cell");
  if (state.view === "cell" && cell?.source && state.row !== null && state.col !== null) {
    const { layer, head } = app.shownHead();
    const { model, tokens, layers } = app.shownRun();
    const { row, col } = state;
    const [query, key] = [row, col].map((i) => tokenName(tokens, i));
    const names = { model, layer: layers[layer].number, head, row, query, column: col, key };
    return toRecordCsv({ ...names, ...cell, row });
  }
  const [question, toTable] = TABLES[state.view] ?? ["maps", mapCsv];
  const data = queries.data(question);
  return toTable(app, data);
}

/** @param {App} app @param {Map<number, Movement>} movements by run */
function movementCsv(app, movements) {
  const sides = app.sides();
  const rows = [...movements].flatMap(([run, { points, stages }]) => {
    const side = "AB"[sides.findIndex((ref) => ref.run === run)];
    const { tokens } = app.manifest.runs[run];
    return points.flatMap((ofStage, stage) =>
      ofStage.map((place, t) => [side, stages[stage], tokenName(tokens, t), ...place]),
    );
  });
  return csvOf([["run", "stage", "token", "x", "y"], ...rows]);
}

/** The weights of the heads whose lines are drawn. @param {LinesProps} props */
function linesCsv({ columns, layers }) {
  const rows = layers.flatMap(({ name, drawn }, n) =>
    drawn.flatMap(({ head, map: { values, cols } }) =>
      Array.from(values, (weight, at) => {
        const [query, key] = [columns[n + 1][Math.floor(at / cols)], columns[n][at % cols]];
        return [name, head, query.full, key.full, weight];
      }),
    ),
  );
  return csvOf([["layer", "head", "query", "key", "weight"], ...rows]);
}

/** The edges, the strongest first. @param {App} app @param {Paths} paths */
function pathsCsv(app, { graph: { nodes, edges } }) {
  const { tokens } = app.shownRun();
  const rows = edges.map(({ writer, token, read_by: reader, score }) => [
    nodes[writer].label,
    tokenName(tokens, token),
    reader,
    score,
  ]);
  return csvOf([["writer", "token", "read by", "effect"], ...rows]);
}

/** The sites. @param {App} app @param {Patching} patching */
function patchingCsv({ state, manifest }, { over, values, recovered, layers, sender, receiver }) {
  if (sender && receiver) {
    const ends = [...sender, ...receiver];
    const names = ["sender layer", "sender head", "receiver layer", "receiver head", "input", "value", "recovered"];
    return csvOf([names, ...recovered[0].map((share, n) => [...ends, "qkv"[n], values[0][n], share])]);
  }
  const [a, b] = sidesOfTexts(state, manifest).map((run) => manifest.runs[run]);
  const names = positionNames(a, b);
  const isOfHeads = over === "head";
  const rows = recovered.flatMap((row, layer) =>
    row.map((share, site) => {
      const place = isOfHeads ? [site] : [site, names[site]];
      return [layers[layer], ...place, values[layer][site], share];
    }),
  );
  return csvOf([["layer", ...(isOfHeads ? ["head"] : ["position", "token"]), "value", "recovered"], ...rows]);
}

/** What each part writes, and adds to the logit of a token. @param {App} app @param {ResidualStream} stream */
function streamCsv(app, { position, text, embeddings, bias, logit, layers }) {
  const { tokens, layers: ofRun } = app.shownRun();
  const adds = text === null ? "" : `adds to the logit of ${text}`;
  const ends = (/** @type {string} */ name, /** @type {number | null | undefined} */ value) =>
    value === undefined ? [] : [text === null ? ["", name, value, ""] : ["", name, "", value]];
  const rows = layers.flatMap(({ attn, mlp, output, adds: added }, n) => {
    const { number } = ofRun[n];
    return [
      [number, "attention", attn, added?.attn],
      ...(added?.heads ?? []).map((value, head) => [number, `head ${head}`, "", value]),
      [number, "MLP", mlp, added?.mlp],
      [number, "residual stream after", output, ""],
    ];
  });
  const heading = ["layer", `part, at ${tokenName(tokens, position)}`, "length", adds];
  return csvOf([heading, ...ends("embedding", embeddings), ...rows, ...ends("bias", bias), ...ends("logit", logit)]);
}

/** The visible cells of the map, of the level that is drawn. @param {App} app @param {Maps} maps */
function mapCsv(app, maps) {
  const { rows, cols, pyramid } = app.mapOf(maps);
  const scene = app.parts.map.scene();
  const [cells, level] = [visibleCells(scene), levelOf(scene)];
  const binSize = 2 ** level;
  const [row0, col0] = [Math.floor(cells.row0 / binSize), Math.floor(cells.col0 / binSize)];
  const labelsOf = (/** @type {Group[]} */ axis, /** @type {number} */ from, /** @type {number} */ to) =>
    Array.from({ length: Math.ceil(to / binSize) - from }, (_, n) => {
      const [first, last] = [axis[(from + n) * binSize], axis[Math.min(axis.length, (from + n + 1) * binSize) - 1]];
      return first === last ? first.full : `${first.members[0]} ${first.full} … ${last.members[0]} ${last.full}`;
    });
  const state = { ...app.state, log: false, byRow: false }; // of the values, not of the colors
  const corner = legendMessage(state, app.showsDifference, Infinity, app.parts.map.pooling());
  return toCsv(
    corner,
    labelsOf(rows, row0, cells.row1),
    labelsOf(cols, col0, cells.col1),
    (row, col) => valueAt(pyramid, row + row0, col + col0, level),
    app.decimals(app.sidesOf(maps), maps.pooledMax),
  );
}
