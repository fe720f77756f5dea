// The data of the page, behind one interface: from the server, from the kernel of a notebook, or from the page itself.

import { withProducts } from "./cell.js";

/**
 * @typedef {import("./cell.js").Cell} Cell
 * @typedef {import("./tokens.js").Token} Token
 * @typedef {import("../state/state.js").Head} Head
 * @typedef {{ name: string, number: number, heads: number, kv_heads: number | null, rows: number, cols: number, causal: boolean, row_sum_error: number | null, num_nonfinite_rows: number }} Layer
 * @typedef {{ rows: number, cols: number, height: number, width: number, pixels: string }} Picture  red, green and blue, in base64
 * @typedef {{ model: string, text: string, tokens: Token[], picture: Picture | null, layers: Layer[], projection_key: string | null, initial: { layer: number, head: number, row?: number, col?: number }, attribution: Attributable, predicts_tokens: boolean, title?: string, base_run?: number, thumbnail_size: number, num_sampled_rows?: number | null }} Run
 * @typedef {{ key: string, title: string, unit?: string, description: string, caveat: string, source: string }} Explanation
 * @typedef {object} Manifest
 * @property {string} format
 * @property {string} title
 * @property {string} provenance
 * @property {{ ablate: boolean, tiles: boolean }} can
 * @property {string[]} live_models  that a text can be run with; none in a file
 * @property {number | null} decimals
 * @property {Run[]} runs
 * @property {Explanation[]} metrics
 * @property {Explanation[]} modes
 * @property {AttributionMethod[]} attribution_methods
 * @property {string | null} [difference_blocked_by]
 * @property {Training} [training]  of a training run, whose checkpoints are the runs
 * @property {number} [numGivenRuns]  that are compared: without those of ablations and checkpoints
 * @property {Record<string, [number, number]>} [blobs]  of an exported page: first character and number of characters
 * @property {Record<string, import("./cell.js").HeadFields>} [cell_inputs]  of an exported page
 * @typedef {{ step: number, run: number }} Checkpoint
 * @typedef {{ key: string, title: string, description: string, values: (number | null)[][][], strongest: [number, number][] }} Measure
 *   `values` are those of every head at each checkpoint, C L H; `strongest` are the heads in which the last are largest.
 * @typedef {{ steps: number[], values: number[], steps_per_point?: number }} LossCurve
 * @typedef {object} Training
 * @property {boolean} is_live     more checkpoints may come
 * @property {number} end          the last step, of a run that goes on the last planned one
 * @property {LossCurve} loss
 * @property {LossCurve} held_out
 * @property {Checkpoint[]} checkpoints
 * @property {number} num_left_out checkpoints of the run that the page does not have
 * @property {Measure[]} measures
 * @typedef {{ training: Training, runs: { number: number, metadata: Run }[] }} TrainingNews
 * @typedef {{ mode: string, row0: number, row1: number, col0: number, col1: number, bin_size: number, pool: "max" | "mean" }} Region
 * @typedef {{ explained_variance_ratio: number[], points: number[][][], stages: string[], sink_length: number, left_out: number[] }} Movement   of one run
 * @typedef {{ explained_variance_ratio: number[], points: number[][][][], stages: string[], sink_length: number, left_out: number[][] }} Movements   of runs on one plane
 * @typedef {{ metrics: Record<string, (number | null)[][]> }} HeadMetrics
 * @typedef {{ largest: number[][], thumbnails: string }} HeadDifferences  as `regard.explorer.exploration` describes it
 * @typedef {{ token: string, before: number, after: number }} NextToken
 * @typedef {{ runs: number, overviews: number, overviews_limit: number, process_peak: number | null }} Memory  bytes
 * @typedef {{ run: number, metadata: Run, changes: { cosines: number[], next_tokens: NextToken[] | null, heads: number[][] } }} Ablation
 *   `heads` has the largest change of a weight in each layer and head.
 * @typedef {{ key: string, title: string, description: string, caveat: string, source: string, is_signed: boolean }} AttributionMethod
 * @typedef {{ blocked_by: string | null, method: string, target: "token" | "text", default_text: string | null, has_positions: boolean }} Attributable
 *   What can be attributed in a run; only `blocked_by` if nothing can.
 * @typedef {{ token: number, text: string, probability: number }} LikelyToken
 * @typedef {{ method?: string, to?: string, token?: number, position?: number }} AttributionQuery  without what is the default
 * @typedef {{ token: number, text: string, probability: number }} PredictedToken
 * @typedef {{ position?: number, temperature?: number, seed?: number }} NextTokensQuery  after the last token by default
 * @typedef {{ position: number, tokens: PredictedToken[], rest: number, entropy: number, drawn: PredictedToken | null }} NextTokens
 * @typedef {{ position: number, token: number, text: string, layers: { step: string, tokens: PredictedToken[], probability: number, rank: number }[] }} Lens
 * @typedef {object} Attribution
 * @property {string} method
 * @property {string} metric           the number that is attributed, in words
 * @property {number} value
 * @property {number | null} baseline_value
 * @property {boolean | null} is_complete  of integrated gradients: whether the scores add up to the difference
 * @property {number[]} scores         the contribution of each token
 * @property {number[]} attended       the weight of each token in the mean over layers and heads
 * @property {string | null} to
 * @property {number | null} token
 * @property {LikelyToken[] | null} likely
 *
 * @typedef {object} Source
 * @property {(signal?: AbortSignal) => Promise<Manifest>} manifest
 * @property {(run: number, signal?: AbortSignal) => Promise<HeadMetrics>} heads
 * @property {(run: number, signal?: AbortSignal) => Promise<Uint8Array>} thumbnails  0 to 255, L H t t; the manifest has t
 * @property {(runs: number[], signal?: AbortSignal) => Promise<HeadDifferences>} differences
 * @property {(run: number, layer: number, head: Head, region: Region, signal?: AbortSignal) => Promise<Float32Array>} tile
 * @property {(run: number, layer: number, head: Head, i: number, mode: string, signal?: AbortSignal) => Promise<Float32Array>} row
 * @property {(run: number, layer: number, head: Head, j: number, mode: string, signal?: AbortSignal) => Promise<Float32Array>} column
 * @property {(run: number, layer: number, head: Head, i: number, j: number, signal?: AbortSignal) => Promise<Cell>} cell
 * @property {(runs: number[], signal?: AbortSignal) => Promise<Movements>} movement
 * @property {(run: number, query: AttributionQuery, signal?: AbortSignal) => Promise<Attribution>} attribution
 * @property {(signal?: AbortSignal) => Promise<Memory | null>} memory  of Python; null without it
 * @property {(known: number, signal?: AbortSignal) => Promise<TrainingNews | null>} training  the runs of checkpoints from the number `known` on; null where none can come
 * @property {(heads: [number, number][], run: number, signal?: AbortSignal) => Promise<Ablation>} ablate
 * @property {(text: string, model: string, signal?: AbortSignal) => Promise<{ run: number, metadata: Run }>} runText
 * @property {(run: number, query: NextTokensQuery, signal?: AbortSignal) => Promise<NextTokens>} nextTokens
 * @property {(run: number, query: { position?: number }, signal?: AbortSignal) => Promise<Lens | null>} lens  null where there is none
 *
 * @typedef {(method: string, params: Record<string, any>, signal?: AbortSignal) => Promise<any>} Transport
 *   Resolves to a Uint8Array for a binary response, else to the JSON value.
 */

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
    cell: async (run, layer, head, i, j, signal) =>
      withProducts(await request("cell", { run, layer, head, i, j }, signal)),
    movement: (runs, signal) => request("movement", { runs }, signal),
    attribution: (run, query, signal) => request("attribution", { run, ...query }, signal),
    memory: (signal) => request("memory", {}, signal),
    training: (known, signal) => request("training", { known }, signal),
    ablate: (heads, run, signal) => request("ablate", { heads, run }, signal),
    runText: (text, model, signal) => request("run_text", { text, model }, signal),
    nextTokens: (run, query, signal) => request("next_tokens", { run, ...query }, signal),
    lens: (run, query, signal) => request("lens", { run, ...query }, signal),
  };
}
