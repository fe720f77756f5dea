// The data of an exported page, which holds it in blobs: `regard.explorer.export_html` lists them.

import { heldAttribution } from "./attribution.js";
import { cellFrom } from "./cell.js";
import { decodeBlob, unpackWeights } from "./codec.js";
import { poolRegion } from "./matrix.js";
import { methods } from "./source.js";
import { keepLast } from "./tile-source.js";
import { tokenName } from "./tokens.js";

const MAX_CACHED_WEIGHTS = 1 << 24;

/** @param {Manifest} contents @param {string} text of all blobs @returns {Source} */
export function embeddedSource(contents, text) {
  const { runs } = contents;
  const maps = /** @type {Map<string, Promise<Float32Array>>} */ (new Map());

  /** @param {string} name */
  const blob = async (name) => {
    const entry = contents.blobs?.[name];
    if (!entry) throw new Error(`this page has no ${name}`);
    const [start, length] = entry;
    return decodeBlob(text.slice(start, start + length));
  };
  const floats = async (/** @type {string} */ name) => new Float32Array((await blob(name)).buffer);
  const json = async (/** @type {string} */ name) => JSON.parse(new TextDecoder().decode(await blob(name)));

  /** The whole map of a head, T S. @param {number} run @param {number} layer @param {Head} head @param {string} mode */
  const mapOf = (run, layer, head, mode) => {
    const key = [run, layer, head, mode].join("/");
    const found = maps.get(key) ?? unpackMap(run, layer, head, mode);
    maps.set(key, found);
    const { rows, cols } = runs[run].layers[layer];
    keepLast(maps, Math.max(1, Math.floor(MAX_CACHED_WEIGHTS / (rows * cols))));
    return found;
  };

  /** @param {number} run @param {number} layer @param {Head} head @param {string} mode @returns {Promise<Float32Array>} */
  const unpackMap = async (run, layer, head, mode) => {
    const { rows, cols, heads } = runs[run].layers[layer];
    const unpack = async (/** @type {string} */ name) =>
      unpackWeights(await blob(name), rows, cols, contents.decimals ?? 4);
    if (mode === "rollout") return unpack(`rollout/${run}/${layer}`);
    if (head === "mean") {
      const all = await Promise.all(Array.from({ length: heads }, (_, h) => unpackMap(run, layer, h, mode)));
      return all[0].map((_, n) => all.reduce((sum, map) => sum + map[n], 0) / heads);
    }
    const weights = await unpack(`weights/${run}/${layer}/${head}`);
    if (mode !== "norms") return weights;
    const norms = await floats(`norms/${run}/${layer}`);
    return weights.map((weight, n) => weight * norms[head * cols + (n % cols)]);
  };

  const refuse = async () => {
    throw new Error("A page in a file has no model to run again: use regard explore without -o.");
  };

  /** @type {HeldAnswers} */
  const held = {
    manifest: async () => contents,
    progress: async () => ({}),
    memory: async () => null,
    training: async () => null,
    heads: ({ run }) => json(`heads/${run}`),
    thumbnails: ({ run }) => blob(`thumbnails/${run}`),
    differences: () => json("differences"),
    movement: async ({ runs: numbers }) => {
      const all = await Promise.all(numbers.map((run) => json(`movement/${run}`)));
      return { ...all[0], points: all.map(({ points }) => points[0]), left_out: all.map((one) => one.left_out[0]) };
    },
    attribution: async ({ run, ...query }) => {
      const name = `attributions/${run}`;
      const answers = contents.blobs?.[name] ? await json(name) : {};
      const titles = Object.fromEntries(contents.attribution_methods.map(({ key, title }) => [key, title]));
      return heldAttribution(answers, query, runs[run].attribution.method, titles);
    },
    next_tokens: async ({ run, position = runs[run].tokens.length - 1 }) => {
      const all = contents.blobs?.[`next_tokens/${run}`] ? await json(`next_tokens/${run}`) : refuse();
      return (await all)[position];
    },
    paths: async ({ run, position, token, versus = null, corrupted }) => {
      const name = `paths/${run}`;
      /** @type {Paths[]} */
      const answers = contents.blobs?.[name] ? await json(name) : [];
      const found = answers.find(
        (one) =>
          [one.position, one.token, one.versus].join() === [position, token, versus].join() &&
          (corrupted === undefined ? one.is_default : corrupted === one.corrupted),
      );
      if (found) return found;
      const holds = answers.length ? "other paths than these" : "no paths";
      const how = "regard explore without -o follows any, and with --paths a file holds those of what it opens with";
      throw new Error(`This file holds ${holds}: ${how}.`);
    },
    patching: async ({ over = "output", token, versus, sender, receiver }) => {
      /** @type {Patching[]} */
      const answers = contents.blobs?.patching ? await json("patching") : [];
      const first = answers.find((one) => one.is_default);
      const to = token ?? first?.token;
      const from = versus ?? (first?.versus === to ? first?.token : first?.versus); // as the server chooses it
      const isOf = (/** @type {Patching} */ one) =>
        [sender, receiver].every((head, n) => !head || String(head) === String([one.sender, one.receiver][n]));
      const found = answers.find((one) => one.over === over && one.token === to && one.versus === from && isOf(one));
      if (found) return found;
      throw new Error("This file does not hold this: regard explore without -o computes any.");
    },
    lens: async () => null,
    tile: async ({ run, layer, head, mode = "raw", pool = "max", ...region }) => {
      const values = await mapOf(run, layer, head, mode);
      return poolRegion({ ...runs[run].layers[layer], values }, { ...region, pool });
    },
    row: async ({ run, layer, head, i, mode = "raw" }) => {
      const { cols } = runs[run].layers[layer];
      return (await mapOf(run, layer, head, mode)).slice(i * cols, (i + 1) * cols);
    },
    column: async ({ run, layer, head, j, mode = "raw" }) => {
      const { rows, cols } = runs[run].layers[layer];
      const map = await mapOf(run, layer, head, mode);
      return Float32Array.from({ length: rows }, (_, i) => map[i * cols + j]);
    },
    cell: async ({ run, layer, head, i, j, mode = "raw" }) => {
      const name = `cell_inputs/${run}/${layer}/${head}`;
      const fields = contents.cell_inputs?.[name];
      const has = "regard explore without -o has";
      if (head === "mean") throw new Error(`A file holds no steps of the mean of heads; ${has} them.`);
      if (!fields) throw new Error(`This file holds the steps of ${contents.heads_with_steps}; ${has} all.`);
      const { layers } = runs[run];
      const steps = cellFrom(await floats(name), fields, layers[layer], i, j);
      if (mode === "rollout") steps.source += `. They end at the weight; ${has} those of rollout too`;
      const norms = mode === "norms" ? await floats(`norms/${run}/${layer}`) : [];
      return { ...steps, value_length: norms[head * layers[layer].cols + j] ?? null };
    },
    why: async ({ run, layer, head, i, j, contrast }) => {
      if (!contents.blobs?.why) throw new Error("This file holds no pairs; regard explore without -o shows them.");
      const answers = await json("why");
      const ofHead = `${run}/${layer}/${head}/`;
      const answer = answers[`${ofHead}${i}/${j}`];
      if (answer && !contrast) return answer;
      const name = (/** @type {string} */ token) => tokenName(runs[run].tokens, Number(token));
      const cells = Object.keys(answers).filter((at) => at.startsWith(ofHead));
      const words = cells.map((at) => at.split("/").slice(3).map(name).join(" → ")).join(" and ");
      const holds = words ? `only the pairs of ${words}` : "no pairs";
      throw new Error(`For this head, this file holds ${holds}; regard explore without -o has every cell.`);
    },
  };
  return methods((name) => held[/** @type {keyof Source} */ (name)] ?? refuse);
}
