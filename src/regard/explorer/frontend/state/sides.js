// The two sides of a comparison, A and B: which run, layer and head each one shows, and whether A − B is defined.

import { numRowsShown } from "../data/map-data.js";

/**
 * The number of the checkpoint that is shown: that of the chosen step, or the last one before it; without a choice the
 * newest.
 * @param {Pick<State, "checkpoint">} state @param {Training} training
 */
export function checkpointIndex({ checkpoint }, { checkpoints }) {
  if (checkpoint === null) return checkpoints.length - 1;
  const last = checkpoints.findLastIndex(({ step }) => step <= checkpoint);
  return Math.max(0, last);
}

/** The runs of A and B: the two given, a checkpoint, a text that was run, or one run and its ablation. @param {State} state @param {Manifest} manifest */
export function runsOf(state, { numGivenRuns, runs, training }) {
  const { editedRun, liveRun, liveRunB } = state;
  if (editedRun !== null) return [runs[editedRun].base_run ?? 0, editedRun];
  if (training && liveRun === null) return [training.checkpoints[checkpointIndex(state, training)].run];
  const b = liveRunB ?? ((numGivenRuns ?? runs.length) > 1 ? 1 : null);
  return b === null ? [liveRun ?? 0] : [liveRun ?? 0, b];
}

/** What the page runs itself as A and as B, by the text and the name of the model; no text: nothing. @param {State} state @param {Manifest} manifest @returns {LiveRun[]} */
export function liveTexts({ text, model, textB, modelB }, { live_models: models, runs }) {
  return [
    { text, model: model || models[0] },
    { text: textB, model: modelB || model || runs[0].model },
  ];
}

/** What A and B are of, whether it was given or is run; A alone without a comparison. @param {State} state @param {Manifest} manifest @returns {LiveRun[]} */
export function comparedTexts({ text, model, textB, modelB }, { runs, numGivenRuns }) {
  const [given, givenB] = runs.slice(0, numGivenRuns);
  const a = text ? { text, model } : given;
  const b = textB ? { text: textB, model: modelB || a.model } : givenB;
  return b ? [a, b] : [a];
}

/** Whether a run is there, and is that of a text. @param {Manifest} manifest @param {number | null} number @param {LiveRun} run */
export function isRunOf({ runs }, number, { text, model }) {
  return number !== null && runs[number].text === text && runs[number].model === model;
}

/** A and B, or A alone. @param {State} state @param {Manifest} manifest @returns {HeadRef[]} */
export function sidesOf(state, manifest) {
  const { layer, head, selectionB } = state;
  const [runA, runB] = runsOf(state, manifest);
  const a = { run: runA, layer, head };
  return runB === undefined && !selectionB ? [a] : [a, { run: runB ?? runA, ...(selectionB ?? { layer, head }) }];
}

/** The layer and head of the visible side. @param {State} state @returns {HeadChoice} */
export function selectionOf({ side, layer, head, selectionB }) {
  return selectionB && side !== "A" ? selectionB : { layer, head };
}

/** The change that selects a layer or head on the visible side. @param {State} state @param {Partial<HeadChoice>} choice @returns {Partial<State>} */
export function withSelection(state, choice) {
  const selection = { ...selectionOf(state), ...choice };
  return state.selectionB && state.side !== "A" ? { selectionB: selection } : selection;
}

/**
 * The runs whose movement is drawn together: those compared that share the model and the plane of the visible one.
 * @param {{ run: number }[]} sides @param {{ run: number }} shown @param {Manifest} manifest
 */
export function runsOnPlane(sides, shown, { runs }) {
  const projected = [...new Set([shown, ...sides].map(({ run }) => run))].filter((run) => runs[run].projection_key);
  const [first] = projected.map((run) => runs[run]);
  return projected
    .filter((run) => runs[run].projection_key === first.projection_key && runs[run].model === first.model)
    .sort((a, b) => a - b);
}

/** Why A − B cannot be shown cell by cell; null if it can. @param {State} state @param {Manifest} manifest @returns {string | null} */
export function differenceBlockedBy(state, manifest) {
  const sides = sidesOf(state, manifest);
  if (sides.length < 2) return "there is nothing to compare with";
  const [a, b] = sides.map(({ run, layer }) => manifest.runs[run].layers[layer]);
  const blocked = "A and B cannot be compared cell by cell";
  const ofGiven = state.liveRun === null && state.liveRunB === null ? manifest.difference_blocked_by : null;
  if (a.rows !== b.rows || a.cols !== b.cols) return ofGiven ?? `A has ${a.rows} tokens and B ${b.rows}: ${blocked}`;
  if (String(a.block?.map(Object.values)) !== String(b.block?.map(Object.values)))
    return `the tokens are others: ${blocked}`;
  if (sides[0].run === sides[1].run || state.editedRun !== null) return null; // of one text
  if (ofGiven) return ofGiven;
  const [runA, runB] = sides.map(({ run }) => manifest.runs[run]);
  if (!sameHeads(runA, runB)) return "A and B have different layers and heads";
  const [rowsA, rowsB] = sides.map(({ run, layer }) => numRowsShown(state, manifest.runs[run], layer));
  if (rowsA === rowsB) return null;
  return `${state.words ? "merged into words" : "as they are shown"}, A has ${rowsA} rows and B ${rowsB}: ${blocked}`;
}

/** Whether two runs have the same layers and heads. @param {Run} a @param {Run} b */
export function sameHeads(a, b) {
  return a.layers.length === b.layers.length && a.layers.every(({ heads }, n) => heads === b.layers[n].heads);
}
