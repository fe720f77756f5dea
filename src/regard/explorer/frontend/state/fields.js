// The fields of the state, once: the key of each in the address, its initial value, and how it stands there.

/**
 * @template T
 * @typedef {{ read: (text: string) => T | undefined, write: (value: any) => string }} Codec  `undefined` for what is not valid
 */

export const MAX_TEXT = 4000; // characters of a text in an address

/** @type {Codec<number>} */
const count = { read: (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined), write: String };
/** @type {Codec<number | "mean">} */
const head = { read: (text) => (text === "mean" ? text : count.read(text)), write: String };
const flag = /** @type {Codec<boolean>} */ ({ read: (text) => text === "1", write: (on) => (on ? "1" : "0") });

/** @param {...string} choices @returns {Codec<string>} */
const oneOf = (...choices) => ({ read: (text) => choices.find((choice) => choice === text), write: String });

/** @param {number} [maxLength] @returns {Codec<string>} */
const text = (maxLength = 200) => ({ read: (value) => value.slice(0, maxLength), write: String });

/** A text that is whole or not at all. @type {Codec<string>} */
const wholeText = { read: (value) => (value.length <= MAX_TEXT ? value : undefined), write: String };

/** A number from 0, with three decimals. @param {number} [max] @returns {Codec<number>} */
const decimal = (max = Infinity) => ({
  read: (value) => (Number(value) >= 0 && Number(value) <= max ? Number(value) : undefined),
  write: (value) => String(Number(value.toFixed(3))),
});

/** @template T @param {Codec<T>} item @param {string} [separator] @returns {Codec<T[]>} */
const list = (item, separator = ".") => ({
  read: (all) =>
    all
      .split(separator)
      .map(item.read)
      .filter((one) => one !== undefined),
  write: (all) => all.map(item.write).join(separator),
});

/** @type {Codec<{ layer: number, head: number | "mean" }>} */
const selection = {
  read: (value) => {
    const [layer, ofLayer] = [count.read(value.split(".")[0]), head.read(value.split(".")[1] ?? "")];
    return layer === undefined || ofLayer === undefined ? undefined : { layer, head: ofLayer };
  },
  write: (at) => `${at.layer}.${at.head}`,
};

/** @type {Codec<[number, number]>} */
const layerAndHead = {
  read: (value) => {
    const at = selection.read(value);
    return at && at.head !== "mean" ? [at.layer, at.head] : undefined;
  },
  write: (at) => at.join("."),
};

/** @type {Codec<Viewport>} */
const viewport = {
  read: (value) => {
    const [x, y, k] = value.split("_").map(Number);
    return [x, y, k].every(Number.isFinite) && k > 0 ? { x, y, k } : undefined;
  },
  write: ({ x, y, k }) => [x.toFixed(3), y.toFixed(3), k.toPrecision(6)].map(Number).join("_"),
};

/** "3.7.2_0.m_4.1.5": in row 2 of layer 3 head 7 key 0 is masked, and key 4 has the score 1.5. @type {Codec<ChangedScores>} */
const changedScores = {
  read: (value) => {
    const [place, ...all] = value.split("_");
    const [layer, head, row] = place.split(".").map(count.read);
    const scores = all.slice(0, 64).map((one) => {
      const [key, ...rest] = one.split(".");
      const score = rest.join(".");
      return /** @type {[number | undefined, number | null]} */ ([
        count.read(key),
        score === "m" ? null : Number(score || NaN),
      ]);
    });
    const isValid = scores.every(([key, score]) => key !== undefined && (score === null || Math.abs(score) < 1e6));
    if (layer === undefined || head === undefined || row === undefined || !isValid) return undefined;
    return { layer, head, row, scores: /** @type {ChangedScore[]} */ (scores) };
  },
  write: ({ layer, head, row, scores }) =>
    [
      `${layer}.${head}.${row}`,
      ...scores.map((/** @type {ChangedScore} */ [key, score]) => `${key}.${score ?? "m"}`),
    ].join("_"),
};

export const VIEW_NAMES = /** @type {const} */ ([
  "heads",
  "head",
  "cell",
  "movement",
  "model",
  "lines",
  "paths",
  "patching",
  "text",
]);

/** Key, initial value and codec; a field without these two is not in the address. @type {Record<keyof State, [string, any, Codec<any>?]>} */
export const FIELDS = {
  view: ["v", "head", oneOf(...VIEW_NAMES)],
  layer: ["l", 0, count],
  head: ["h", 0, head],
  selectionB: ["b", null, selection],
  row: ["i", null, count],
  col: ["j", null, count],
  side: ["s", "A", oneOf("A", "B", "diff")],
  mode: ["w", "raw", text()],
  metric: ["m", "entropy", text()],
  order: ["o", "layer", oneOf("layer", "metric")],
  threshold: ["n", 0, decimal(1)],
  collapsedLayers: ["sl", [], list(count)],
  collapsedHeads: ["sh", [], list(count)],
  words: ["words", false, flag],
  special: ["special", true, flag],
  log: ["log", false, flag],
  byRow: ["byrow", false, flag],
  pool: ["pool", "max", oneOf("max", "mean")],
  from: ["from", null, count],
  to: ["to", null, count],
  pins: ["pins", [], list(count)],
  direction: ["d", "out", oneOf("out", "in")],
  arcs: ["arcs", false, flag],
  attribution: ["g", false, flag],
  attributionMethod: ["gm", "", text()],
  target: ["gt", "", text(2000)],
  targetToken: ["gi", null, count],
  afterRow: ["gr", false, flag],
  query: ["q", "", text()],
  stage: ["t", -1, decimal()],
  theme: ["theme", "auto", oneOf("auto", "light", "dark")],
  zoom: ["z", null, viewport],
  ablated: ["x", [], list(layerAndHead, "_")],
  ablatedRun: ["xr", 0, count],
  checkpoint: ["step", null, count],
  editedRun: ["", null],
  text: ["text", "", wholeText],
  model: ["model", "", text()],
  liveRun: ["", null],
  textB: ["text_b", "", wholeText],
  modelB: ["model_b", "", text()],
  liveRunB: ["", null],
  nextTokens: ["nt", false, flag],
  cells: ["cells", [], list(layerAndHead, "_")],
  lines: ["lh", null, list(selection, "_")],
  chain: ["ch", false, flag],
  corpus: ["cp", false, flag],
  pair: ["pair", "any", text()],
  why: ["y", false, flag],
  contrast: ["yc", false, flag],
  whatIf: ["wi", false, flag],
  changedScores: ["ws", null, changedScores],
  temperature: ["temp", 1, decimal(2)],
  pathsToken: ["pt", null, count],
  pathsVersus: ["pv", null, count],
  corrupted: ["pc", "", text(2000)],
  patchOver: ["po", "output", oneOf("output", "attn", "mlp", "head")],
  patchToken: ["px", null, count],
  patchVersus: ["py", null, count],
  story: ["story", "", text()],
  part: ["part", 0, count],
  presenter: ["big", false, flag],
};
