// The data of the page, behind one interface: from the server, from the kernel of a notebook, or from the page itself.

import { withProducts } from "./cell.js";

/** The API of `regard.explorer.api`, over any transport. @param {Transport} request @returns {Source} */
export function apiSource(request) {
  /** @param {string} method @param {Record<string, any>} params @param {AbortSignal} [signal] */
  const floats = async (method, params, signal) => new Float32Array((await request(method, params, signal)).buffer);
  return {
    manifest: (signal) => request("manifest", {}, signal),
    heads: (run, signal) => request("heads", { run }, signal),
    thumbnails: (run, signal) => request("thumbnails", { run }, signal),
    differences: (runs, signal) => request("differences", { runs }, signal),
    tile: (run, layer, head, region, signal) => floats("tile", { run, layer, head, ...region }, signal),
    row: (run, layer, head, i, mode, signal) => floats("row", { run, layer, head, i, mode }, signal),
    column: (run, layer, head, j, mode, signal) => floats("column", { run, layer, head, j, mode }, signal),
    cell: async (run, layer, head, i, j, mode, signal) =>
      withProducts(await request("cell", { run, layer, head, i, j, mode }, signal)),
    movement: (runs, signal) => request("movement", { runs }, signal),
    attribution: (run, query, signal) => request("attribution", { run, ...query }, signal),
    progress: (signal) => request("progress", {}, signal),
    memory: (signal) => request("memory", {}, signal),
    training: (known, signal) => request("training", { known }, signal),
    ablate: (heads, run, signal) => request("ablate", { heads, run }, signal),
    runText: (text, model, signal) => request("run_text", { text, model }, signal),
    nextTokens: (run, query, signal) => request("next_tokens", { run, ...query }, signal),
    sweep: (run, layer, query, signal) => request("sweep", { run, layer, ...query }, signal),
    findHeads: (run, cells, signal) =>
      request("find_heads", { run, cells: cells.map((cell) => cell.join(".")).join("_") }, signal),
    strongestRows: (run, layer, head, pair, signal) => request("strongest_rows", { run, layer, head, pair }, signal),
    residualStream: (run, query, signal) => request("residual_stream", { run, ...query }, signal),
    lens: (run, query, signal) => request("lens", { run, ...query }, signal),
    figure: (query, signal) => request("figure", query, signal),
  };
}
