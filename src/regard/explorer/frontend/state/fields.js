// The fields of the state, once: the key of each in the address, its initial value, and how it stands there.

export const MAX_TEXT = 4000; // characters of a text in an address

/** @type {Codec<number>} */
const count = { read: (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined), write: String };
/** @type {Codec<number | "mean">} */
const head = { read: (text) => (text === "mean" ? text : count.read(text)), write: String };
const flag = /** @type {Codec<boolean>} */ ({
  read: (text) => ({ 1: true, 0: false })[text],
  write: (on) => (on ? "1" : "0"),
});

/** @template {string} T @param {...T} choices @returns {Codec<T>} */
const oneOf = (...choices) => ({ read: (text) => choices.find((choice) => choice === text), write: String });

/** A text that is whole or not at all. @param {number} [maxLength] @returns {Codec<string>} */
const text = (maxLength = 200) => ({
  read: (value) => (value.length <= maxLength ? value : undefined),
  write: String,
});

/** A number from 0, with three decimals. @param {number} [max] @returns {Codec<number>} */
const decimal = (max = Infinity) => ({
  read: (value) => (/^[\d.]+$/.test(value) && Number(value) <= max ? Number(value) : undefined),
  write: (value) => String(Number(value.toFixed(3))),
});

/** All of a list, or nothing: a part of it says something else. @template T @param {Codec<T>} item @param {string} [separator] @returns {Codec<T[]>} */
const list = (item, separator = ".") => ({
  read: (all) => {
    const found = all === "" ? [] : all.split(separator).map(item.read);
    return found.includes(undefined) ? undefined : /** @type {any[]} */ (found);
  },
  write: (all) => all.map(item.write).join(separator),
});

/** @type {Codec<HeadChoice>} */
const selection = {
  read: (value) => {
    const [first, second = "", ...others] = value.split(".");
    const [layer, ofLayer] = [count.read(first), head.read(second)];
    return layer === undefined || ofLayer === undefined || others.length ? undefined : { layer, head: ofLayer };
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
    const [x, y, k, ...others] = value.split("_").map((part) => Number(part || NaN));
    return [x, y, k].every(Number.isFinite) && k > 0 && !others.length ? { x, y, k } : undefined;
  },
  write: ({ x, y, k }) => [x.toFixed(3), y.toFixed(3), k.toPrecision(6)].map(Number).join("_"),
};

/** "3.7.2_0.m_4.1.5": in row 2 of layer 3 head 7 key 0 is masked, and key 4 has the score 1.5. @type {Codec<ChangedScores>} */
const changedScores = {
  read: (value) => {
    const [place, ...all] = value.split("_");
    const [layer, head, row, ...others] = place.split(".").map(count.read);
    const scores = all.map((one) => {
      const [key, ...rest] = one.split(".");
      const score = rest.join(".");
      return /** @type {[number | undefined, number | null]} */ ([
        count.read(key),
        score === "m" ? null : Number(score || NaN),
      ]);
    });
    const isValid = scores.every(([key, score]) => key !== undefined && (score === null || Math.abs(score) < 1e6));
    if (layer === undefined || head === undefined || row === undefined || others.length) return undefined;
    if (!isValid || all.length > 64) return undefined;
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

/**
 * A field of the address.
 * @template T @template {string | number | boolean | null | object} I
 * @param {string} key @param {I} initial @param {Codec<T>} codec @returns {Field<T | I>}
 */
const field = (key, initial, codec) => [key, initial, /** @type {Codec<any>} */ (codec)];

/** A field that is not in the address. @template T @param {T} initial @returns {Field<T>} */
const unwritten = (initial) => ["", initial];

export const FIELDS = {
  view: field("v", "head", oneOf(...VIEW_NAMES)),
  /** of A, and of B without a selection of its own */
  layer: field("l", 0, count),
  head: field("h", 0, head),
  /** if B is another head, or of a model with other layers */
  selectionB: field("b", null, selection),
  /** the query token of the cell */
  row: field("i", null, count),
  /** its key token */
  col: field("j", null, count),
  side: field("s", "A", oneOf("A", "B", "diff")),
  mode: field("w", "raw", text()),
  metric: field("m", "entropy", text()),
  order: field("o", "layer", oneOf("layer", "metric")),
  /** heads below it are dimmed: a share of the range of the metric */
  threshold: field("n", 0, decimal(1)),
  /** rows of the grid shown as their mean */
  collapsedLayers: field("sl", [], list(count)),
  /** columns of the grid shown as their mean */
  collapsedHeads: field("sh", [], list(count)),
  /** merge the tokens of a word */
  words: field("words", false, flag),
  /** show special tokens */
  special: field("special", true, flag),
  log: field("log", false, flag),
  /** normalize the colours of each row */
  byRow: field("byrow", false, flag),
  pool: field("pool", "max", oneOf("max", "mean")),
  /** the first token shown */
  from: field("from", null, count),
  /** the token after the last */
  to: field("to", null, count),
  pins: field("pins", [], list(count)),
  /** of the text panel: what a word attends to, or what attends to it */
  direction: field("d", "out", oneOf("out", "in")),
  arcs: field("arcs", false, flag),
  /** whether the panel of what mattered is open */
  attribution: field("g", false, flag),
  /** empty: that of the model */
  attributionMethod: field("gm", "", text()),
  /** of the attribution, as text; empty: the default or the token */
  target: field("gt", "", text(2000)),
  /** as the id of a next token */
  targetToken: field("gi", null, count),
  /** the next token is that after the row */
  afterRow: field("gr", false, flag),
  query: field("q", "", text()),
  /** of the movement */
  stage: field("t", -1, decimal()),
  theme: field("theme", "auto", oneOf("auto", "light", "dark")),
  /** null: the whole map */
  zoom: field("z", null, viewport),
  /** (layer, head) */
  ablated: field("x", [], list(layerAndHead, "_")),
  /** the run that they are ablated in: 0 or 1 */
  ablatedRun: field("xr", 0, count),
  /** the step of the one that is shown, of a training run; null: the newest */
  checkpoint: field("step", null, count),
  /** the run of that ablation, which is then B; valid until the server ends */
  editedRun: unwritten(/** @type {number | null} */ (null)),
  /** the ablations before and after this one, which run, and what went wrong */
  edits: unwritten(/** @type {Edits} */ ({ past: [], future: [], applied: { ablated: [], ablatedRun: 0 }, error: "" })),
  /** a text that the page runs itself; empty: that of the given runs */
  text: field("text", "", text(MAX_TEXT)),
  /** the name of what runs it */
  model: field("model", "", text()),
  /** its run, which is then A; null until it has run */
  liveRun: unwritten(/** @type {number | null} */ (null)),
  /** a text that the page runs itself and compares with; empty: that of the second given run, if there is one */
  textB: field("text_b", "", text(MAX_TEXT)),
  modelB: field("model_b", "", text()),
  /** its run, which is then B; null until it has run */
  liveRunB: unwritten(/** @type {number | null} */ (null)),
  /** the text of B is open, even if nothing has run */
  comparing: unwritten(/** @type {boolean} */ (false)),
  /** whether the panel of what comes next is open */
  nextTokens: field("nt", false, flag),
  /** the cells that heads are searched by, (query, key); none: the chosen one */
  cells: field("cells", [], list(layerAndHead, "_")),
  /** the heads whose lines are drawn; null: the shown one, and of other layers the mean */
  lines: field("lh", null, list(selection, "_")),
  /** lines are drawn in all layers, one after the other */
  chain: field("ch", false, flag),
  /** whether the panel of a corpus is open */
  corpus: field("cp", false, flag),
  /** the kind of pairs that it is searched for */
  pair: field("pair", "any", text()),
  /** whether the panel of why a token attends to another is open */
  why: field("y", false, flag),
  /** it is of the difference to the strongest other key */
  contrast: field("yc", false, flag),
  /** whether the panel of other scores is open */
  whatIf: field("wi", false, flag),
  /** other scores of the keys of one row */
  changedScores: field("ws", null, changedScores),
  /** of the next token */
  temperature: field("temp", 1, decimal(2)),
  /** the id of the next token whose paths are shown; null, or one that is not likely: the likeliest */
  pathsToken: field("pt", null, count),
  /** that of another, whose logit is subtracted */
  pathsVersus: field("pv", null, count),
  /** the text that the paths are compared with; empty: that of B, or the means over the tokens */
  corrupted: field("pc", "", text(2000)),
  /** the step of A that is put into the run of B */
  patchOver: field("po", "output", oneOf("output", "attn", "mlp", "head", "path")),
  /** the heads of a path; null: those that recover most */
  patchSender: field("ps", null, layerAndHead),
  patchReceiver: field("pr", null, layerAndHead),
  /** the ids of the next tokens whose logits are compared; null: the likeliest */
  patchToken: field("px", null, count),
  patchVersus: field("py", null, count),
  /** the question of patching that is not asked, as JSON */
  cancelledPatching: unwritten(/** @type {string} */ ("")),
  /** the key of the story that is told; empty: none */
  story: field("story", "", text()),
  /** its step, from 0 */
  part: field("part", 0, count),
  /** the cell was chosen on this page since the step or text was shown: not by an address, nor by the teacher */
  chosenHere: unwritten(/** @type {boolean} */ (false)),
  /** large type, words and map only, where one head is shown */
  presenter: field("big", false, flag),
};
