// All heads: pictures and metrics of each, or how each differs between A and B.

import { NOTHING } from "../data/query.js";
import { liveMetric } from "./head-search.js";

/** The heads, after the map, which a reader waits for. @param {App} app @returns {View} */
export const showHeads = (app) => (ask) => {
  const { state, queries, parts, refs, theme, manifest, source } = app;
  const { signal } = app.controller;
  const { run } = app.shownHead();
  const sides = app.sides();
  const isDifference = state.side === "diff" && sides.length > 1 && !app.comparesHeads;
  const mayStart = state.view === "heads" || !queries.maps(ask).isPending;
  /** @template T @param {string} name @param {unknown} of @param {() => Promise<T>} queryFn @returns {Answer<T>} */
  const held = (name, of, queryFn) =>
    ask(name, of, () => queries.cached(`${name} ${of}`, queryFn), { mayStart, inBar: true });
  // Pictures first, for the metrics of a long text take ten times as long
  const thumbnails = held("thumbnails", run, () => source.thumbnails({ run }, signal));
  const heads = held("heads", run, () => source.heads({ run }, signal));
  const runs = sides.map((side) => side.run);
  const differences = isDifference
    ? held("differences", runs, () => source.differences({ runs }, signal))
    : /** @type {Answer<HeadDifferences>} */ (NOTHING);
  const live = liveMetric(app, ask, mayStart);
  const isOther = parts.grid.data.run >= 0 && parts.grid.data.run !== run; // else pictures are shown before metrics
  const shown = isDifference ? [differences] : isOther || manifest.training ? [thumbnails, heads] : [thumbnails];
  return {
    nodes: [refs.grid, refs.metricDescription, refs.headCount],
    answers: [...shown, live?.answer ?? NOTHING],
    draw: () => {
      parts.grid.setData(run, heads.data, thumbnails.data, differences.data);
      parts.grid.update(state, theme, sides, live?.metric ?? null, app.ablatedHeads());
    },
  };
};
