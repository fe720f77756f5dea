// The three places of the page, and the views of each.

import { VIEW_NAMES } from "../state/fields.js";
import { looksOnly } from "../state/state.js";
import { runsOf } from "../state/sides.js";
import { showSegment } from "../platform/dom.js";

/** @type {Record<string, ViewName[]>} */
const PLACES = { text: ["text", "paths"], heads: ["heads", "head"], model: ["model", "movement", "patching"] };

/** The view that shows more of one head, or draws it otherwise, has no choice of its own. @param {ViewName} view */
const choiceOf = (view) => (view === "cell" || view === "lines" ? "head" : view);

/** @param {ViewName} view */
export const placeOf = (view) => Object.keys(PLACES).find((place) => PLACES[place].includes(choiceOf(view))) ?? "heads";

/** Whether a view has something to show of this run. @param {App} app @param {ViewName} view */
export function isOffered(app, view) {
  const { manifest, state } = app;
  const { runs, can } = manifest;
  const texts = runsOf({ ...state, editedRun: null }, manifest);
  const computes = !looksOnly(manifest);
  if (view === "model") return can.ablate && computes;
  if (view === "movement") return app.sides().some(({ run }) => runs[run].projection_key);
  if (view === "paths") return app.shownRun().has_paths && computes;
  if (view === "patching") return texts.length > 1 && runs[texts[0]].has_patching && computes;
  return true;
}

/** @param {App} app */
export function showPlaces(app) {
  const { refs, state } = app;
  const place = placeOf(state.view);
  const views = VIEW_NAMES.filter((view) => view === state.view || isOffered(app, view));
  const choices = PLACES[place].filter((view) => views.includes(view));
  for (const button of buttonsOf(refs.places))
    button.hidden = !PLACES[button.dataset.key ?? ""].some((view) => views.includes(view));
  for (const button of buttonsOf(refs.views)) button.hidden = !choices.some((view) => view === button.dataset.key);
  refs.views.hidden = choices.length < 2;
  showSegment(refs.places, place);
  showSegment(refs.views, choiceOf(state.view));
  showSegment(refs.drawings, state.view === "lines" ? "lines" : "head");
}

/** @param {HTMLElement} node */
const buttonsOf = (node) => /** @type {NodeListOf<HTMLElement>} */ (node.querySelectorAll("[data-key]"));

/** Open a place where it was left. @param {App} app @param {string} place */
export function openPlace(app, place) {
  const views = [app.lastViews[place], ...PLACES[place]].filter((view) => view && isOffered(app, view));
  app.set({ view: views[0] ?? PLACES[place][0] });
}
