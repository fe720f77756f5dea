// The plane of the token vectors of A and B.

import { NOTHING } from "../data/query.js";
import { groupTokens } from "../data/tokens.js";
import { runsOnPlane } from "../state/sides.js";
import { sideNames } from "../views/side-switch.js";

/** @param {App} app @returns {View} */
export const showMovement = (app) => (ask) => {
  const { state, parts, refs, source } = app;
  const { runs } = app.manifest;
  if (state.view !== "movement") return null;
  const sides = app.sides();
  const together = runsOnPlane(sides, app.shownHead(), app.manifest);
  const load = async (/** @type {AbortSignal} */ signal) => {
    const { points, left_out, ...plane } = await source.movement({ runs: together }, signal);
    return new Map(together.map((run, n) => [run, { ...plane, points: points[n], left_out: left_out[n] }]));
  };
  const answer = together.length ? ask("movement", together, load, { inBar: true }) : NOTHING;
  const draw = () => {
    if (!answer.data)
      return parts.movement.showMessage(
        answer.error ? "The plane could not be computed." : "This trace has no token vectors: record them too.",
      );
    const names = sides.length > 1 ? sideNames(state, app.manifest, sides) : [""];
    const selection = { words: state.words, special: state.special, from: state.from ?? 0, to: state.to ?? Infinity };
    const paths = [...answer.data].map(([run, movement]) => {
      const side = sides.findIndex((ref) => ref.run === run);
      const { tokens, text } = runs[run];
      return { movement, side, title: names[side], axis: groupTokens(tokens, text, selection) };
    });
    const hasOtherPlane = sides.some(({ run }) => runs[run].projection_key && !together.includes(run));
    parts.sideSwitches.movement.node.hidden = !hasOtherPlane;
    const selected = new Set([...state.pins, ...(state.row === null ? [] : [state.row])]);
    parts.movement.show(paths, state.stage, selected, hasOtherPlane);
  };
  return [
    { draw: () => parts.movement.setPending(answer.isPending) },
    { nodes: [parts.movement.plane.node, refs.movementLegend, refs.movementText], answers: [answer], draw },
  ];
};
