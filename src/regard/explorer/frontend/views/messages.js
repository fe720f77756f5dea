// What the page says of what it shows, in words and numbers. Knows no page.

import { decimalsAfter, digits, significant } from "../render/format.js";

/**
 * @typedef {import("../state/state.js").State} State
 * @typedef {import("../state/state.js").Place} Place
 * @typedef {import("../data/tile-source.js").Field} Field
 * @typedef {import("../data/source.js").Manifest} Manifest
 */

/** @param {Place} at with the number of its layer in the model @param {Place} [less] what is taken from it */
export function headingOf(at, less = at) {
  const head = (/** @type {Place} */ { head: its }) => (its === "mean" ? "mean of heads" : `Head ${its}`);
  const one = `Layer ${at.layer} · ${head(at)}`;
  if (less.layer === at.layer) return less.head === at.head ? one : `${one} − ${head(less)}`;
  return `${one} − Layer ${less.layer} · ${head(less)}`;
}

/** Where the numbers come from and how exact they are. @param {Manifest} manifest @param {number} run @param {number} layer */
export function proofOf({ computed, digits: known, runs }, run, layer) {
  const { layers, sampled } = runs[run];
  const { row_sum_error: error, not_numbers: wrong } = layers[layer];
  const parts = [
    computed,
    error === null ? null : `rows sum to 1 within ${significant(error)}`,
    wrong ? `${wrong} ${wrong > 1 ? "rows hold" : "row holds"} what is no number` : null,
    known === null ? "weights as computed, sent as float32" : `weights exact to ${known} decimals`,
    sampled ? `measures and thumbnails from ${sampled} rows` : null,
  ];
  return parts.filter(Boolean).join("  ·  ");
}

/**
 * How many decimals are known of what is shown.
 * @param {number | null} known of a weight @param {State} state @param {Field[]} fields @param {number} max
 * @param {number} [terms] numbers that were summed
 */
export function decimalsOf(known, { words, side, way }, fields, max, terms = 1) {
  if (known === null) return 6;
  const pieces = words
    ? fields.flatMap(({ cols }) => cols).reduce((most, { members }) => Math.max(most, members.length), 1)
    : 1;
  return decimalsAfter(
    known,
    terms * pieces * (side === "diff" ? 2 : 1) * (way === "norms" ? Math.max(10, 2 * max) : 1),
  );
}

/**
 * What the colours say.
 * @param {State} state @param {boolean} isDifference @param {number} max the largest number of all
 * @param {{ by: number, clipped: boolean, whole: boolean }} pooled  how many tokens a cell stands for on each side; whether
 *   one may be beyond the scale; whether the map is held whole, and so the difference taken first
 */
export function legendOf({ byRow, way, log, pool }, isDifference, max, { by, clipped, whole }) {
  const what = way === "norms" ? "length of what is handed over" : way === "rollout" ? "share of the vector" : "weight";
  if (isDifference && max === 0) return `${what} in A minus ${what} in B: they are the same here`;
  const many = by > 1 ? `${pool === "max" ? "the largest" : "the mean"} of ${by} × ${by}` : "";
  const isOfLargest = isDifference && many !== "" && pool === "max" && !whole;
  const minus = isOfLargest ? `${what}, ${many}, in A minus the largest in B` : `${what} in A minus ${what} in B`;
  const parts = [isDifference ? `${minus}: blue where A has more, brown where B has` : what];
  if (byRow) parts.push("as a share of the largest in its row");
  if (many && !isOfLargest) parts.push(many);
  if (log) parts.push("in powers of ten");
  if (clipped) parts.push("at its end that or more");
  return parts.join(", ");
}

// What a token does with others and what they do with it: of one, of several, and the word after it.
const VERBS = /** @type {Record<string, { out: string[], in: string[] }>} */ ({
  raw: { out: ["looks", "look", "at"], in: ["is looked at", "are looked at", "by"] },
  rollout: { out: ["holds", "hold", "of"], in: ["is held", "are held", "by"] },
  norms: { out: ["takes", "take", "from"], in: ["gives", "give", "to"] },
});

/** What heads the list of words. @param {State} state @param {boolean} isDifference @param {number} many words that were chosen */
export function mostOf({ way, direction }, isDifference, many) {
  const [one, several, after] = (VERBS[way] ?? VERBS.raw)[direction];
  const verb = many > 1 ? several : one;
  return isDifference ? `${verb} ${after}, A − B` : `${verb} most ${after}`;
}

/**
 * A cell in words.
 * @param {State} state @param {Field} field @param {boolean} isDifference @param {number} row @param {number} col
 * @param {number | null} value @param {number} decimals
 */
export function cellOf({ way }, { rows, cols, hidden }, isDifference, row, col, value, decimals) {
  const [one, other] = [rows[row], cols[col]];
  if (!one || !other) return "";
  const number = value === null ? "…" : digits(value, decimals);
  const rest = hidden
    ? `; ${digits(hidden[row], 3)} of ${way === "norms" ? "the lengths in this row" : "this row"} is hidden`
    : "";
  const [verb, , after] = (VERBS[way] ?? VERBS.raw).out;
  return `\u2068${one.label}\u2069 ${verb} ${after} \u2068${other.label}\u2069${isDifference ? ", A − B" : ""}: ${number}${rest}`;
}
