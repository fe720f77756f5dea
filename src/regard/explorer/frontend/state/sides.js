// The two sides of a comparison, A and B: which run, layer and head each one shows, and whether A − B is defined.

import { rowsShown } from "../data/map-data.js";

/**
 * @typedef {import("./state.js").State} State
 * @typedef {import("./state.js").Place} Place
 * @typedef {import("./state.js").Head} Head
 */

/** The runs that are A and B: what was there before an edit and the edited one, else those given. @param {State} state @param {import("../data/source.js").Manifest} manifest */
export function runsOf({ edited }, { given, runs }) {
  if (edited !== null) return [runs[edited].of ?? 0, edited];
  return (given ?? runs.length) > 1 ? [0, 1] : [0];
}

/**
 * What is compared: A and B, or A alone.
 * @param {State} state @param {import("../data/source.js").Manifest} manifest
 * @returns {{ run: number, layer: number, head: Head }[]}
 */
export function sidesOf(state, manifest) {
  const { layer, head, other } = state;
  const [a, b] = runsOf(state, manifest);
  const one = { run: a, layer, head };
  return b === undefined && !other ? [one] : [one, { run: b ?? a, ...(other ?? { layer, head }) }];
}

/** The layer and head that a choice changes: those of B where it is seen and has its own. @param {State} state @returns {Place} */
export function placeOf({ side, layer, head, other }) {
  return other && side !== "A" ? other : { layer, head };
}

/** What changes with a choice of layer or head. @param {State} state @param {Partial<Place>} choice @returns {Partial<State>} */
export function placed(state, choice) {
  const place = { ...placeOf(state), ...choice };
  return state.other && state.side !== "A" ? { other: place } : place;
}

/**
 * The runs whose movement is seen together: those that are compared, as far as they are of the model that is looked at and
 * share its plane. Vectors of another model live in a space of its own.
 * @param {{ run: number }[]} sides @param {{ run: number }} here @param {import("../data/source.js").Manifest} manifest
 */
export function movedRuns(sides, here, { runs }) {
  const moved = [...new Set([here, ...sides].map(({ run }) => run))].filter((run) => runs[run].plane);
  const [first] = moved.map((run) => runs[run]);
  return moved
    .filter((run) => runs[run].plane === first.plane && runs[run].model === first.model)
    .sort((a, b) => a - b);
}

/**
 * Why A − B cannot be shown, cell by cell; null where it can.
 * @param {State} state @param {import("../data/source.js").Manifest} manifest @returns {string | null}
 */
export function whyNoDifference(state, manifest) {
  const sides = sidesOf(state, manifest);
  if (sides.length < 2) return "there is nothing to compare with";
  const [a, b] = sides.map(({ run, layer }) => manifest.runs[run].layers[layer]);
  if (a.rows !== b.rows || a.cols !== b.cols)
    return manifest.why_not ?? `A has ${a.rows} tokens and B ${b.rows}: cells of one have no partner in the other`;
  if (sides[0].run === sides[1].run || state.edited !== null) return null; // of one text
  if (manifest.comparable === false) return manifest.why_not ?? "A and B do not match";
  const [one, other] = sides.map(({ run, layer }) => rowsShown(state, manifest.runs[run], layer));
  return one === other
    ? null
    : `${state.words ? "joined to words" : "as they are shown"}, A has ${one} rows and B ${other}: cells of one have no partner in the other`;
}
