// The paths behind the next token, as a graph from the words to the logits, and as a tree with the number of each edge.

import { openRow } from "../app/actions.js";
import { positionOf } from "../app/predictions.js";
import { sentence } from "../data/attribution.js";
import { NOTHING } from "../data/query.js";
import { escapeInvisible, isolate, tokenName, truncate } from "../data/tokens.js";
import { bidi, button, closest, el, onArrows, onPoint, setOptions, setTabStop, setText, svg } from "../platform/dom.js";
import { formatSigned } from "../render/format.js";
import { nextInRows } from "./head-grid.js";
import { tokenChoice } from "./next-tokens-panel.js";

const WIDEST = 6; // pixels
const VAGUE = 0.5; // so far is the share that a graph keeps from 1
const MAX_NAME = 16;

/** @param {App} app @returns {View} */
export function showPaths(app) {
  const { refs, source } = app;
  const { pathsToken, pathsVersus, pathsGraph, pathsTree } = refs;
  pathsToken.addEventListener("change", () => app.set({ pathsToken: Number(pathsToken.value) }));
  pathsVersus.addEventListener("change", () =>
    app.set({ pathsVersus: pathsVersus.value ? Number(pathsVersus.value) : null }),
  );
  for (const node of [pathsGraph, pathsTree]) {
    onPoint(node, (target) => point(app, target));
    onArrows(node, "button", nextInRows);
  }

  return (ask) => {
    const { state } = app;
    if (state.view !== "paths") return null;
    const run = app.shownRun();
    const at = { run: app.shownHead().run, position: positionOf(app) };
    const next = ask("pathTokens", at, (signal) => source.next_tokens(at, signal));
    const tokens = next.data?.tokens ?? [];
    const chosen = tokens.find(({ token }) => token === state.pathsToken) ?? tokens[0];
    const versus = tokens.find((one) => one.token === state.pathsVersus && one !== chosen);
    const question = {
      ...at,
      token: chosen?.token,
      ...(versus && { versus: versus.token }),
      ...(state.corrupted && { corrupted: state.corrupted }),
    };
    const answer = chosen ? ask("paths", question) : NOTHING;
    const error = next.error ?? answer.error;
    const isPending = next.isPending || answer.isPending;
    const drawPaths = () => {
      if (answer.data) return draw(app, answer.data, run);
      setText(refs.pathsSummary, error ? sentence(error.message) : "");
      pathsGraph.removeAttribute("style");
      for (const node of [pathsGraph, pathsTree]) node.replaceChildren();
    };
    return [
      {
        draw: () => setText(refs.pathsStatus, isPending ? "Following the paths back to the words: some seconds …" : ""),
      },
      {
        nodes: [pathsToken, pathsVersus],
        answers: [next],
        of: [next, chosen, versus],
        draw: () => showChoice(refs, tokens, chosen, versus),
      },
      {
        nodes: [refs.pathsSummary, pathsGraph, pathsTree],
        answers: [next, answer],
        of: [answer, error, run],
        draw: drawPaths,
      },
    ];
  };
}

/** @param {Refs} refs @param {PredictedToken[]} tokens @param {PredictedToken} [chosen] @param {PredictedToken} [versus] */
function showChoice({ pathsToken, pathsVersus }, tokens, chosen, versus) {
  setOptions(pathsToken, tokens.map(tokenChoice));
  const others = tokens.filter((one) => one !== chosen).map(tokenChoice);
  setOptions(pathsVersus, [{ key: "", title: "no other" }, ...others]);
  pathsToken.value = String(chosen?.token);
  pathsVersus.value = String(versus?.token ?? "");
}

/** @param {App} app @param {Paths} paths @param {Run} run */
function draw(app, paths, run) {
  const { pathsSummary, pathsGraph, pathsTree, corrupted } = app.refs;
  const { summary, faithfulness, graph, tree } = paths;
  const isVague = paths.corrupted === null && Math.abs(1 - faithfulness) > VAGUE;
  const hint = " These edges say little: compare with a text of as many tokens that lacks what decides.";
  const written = summary.replace(/(\w) -(?=\d)/g, "$1 −");
  setText(pathsSummary, sentence(escapeInvisible(written)) + (isVague ? hint : ""));
  corrupted.placeholder = paths.corrupted ?? "a text of as many tokens";
  const name = (/** @type {number} */ token) => truncate(tokenName(run.tokens, token), MAX_NAME);
  pathsGraph.style.width = `${graph.width}px`;
  pathsGraph.style.height = `${graph.height}px`;
  const boxOf = boxesOf(graph);
  const nodes = graph.nodes.map((node, n) => {
    const box = boxOf(node.x, node.y, n);
    if (node.kind === "token_embeddings") return el("span", box, bidi(name(node.token)));
    return opening(app, node, node.token, name, box) ?? el("span", box, node.label);
  });
  const feet = graph.feet.map(([token, x]) => el("span", boxOf(x, graph.height - graph.box[1]), bidi(name(token))));
  pathsGraph.replaceChildren(drawing(graph, name), ...nodes.reverse(), ...feet); // the logits first
  const rows = tree.map(([depth, n, repeats]) => {
    const { writer, token, read_by: reader, score } = graph.edges[n];
    const number = el("span", { class: "rg-number" }, formatSigned(score));
    const start = opening(app, graph.nodes[writer], token, name) ?? graph.nodes[writer].label;
    const words = el("span", {}, start, " at ", bidi(name(token)), ` → ${reader}${repeats ? " …" : ""}`);
    return el("li", { style: { "--rg-depth": depth }, data: { edge: n } }, number, words);
  });
  pathsTree.replaceChildren(...rows);
  const container = /** @type {HTMLElement} */ (pathsGraph.parentElement);
  container.scrollLeft = graph.nodes[graph.nodes.length - 1].x - container.clientWidth / 2; // to the logits
  for (const node of [pathsGraph, pathsTree]) {
    const buttons = node.querySelectorAll("button");
    setTabStop(buttons, buttons[0]);
  }
}

/** What opens a head at a word; null of what is none. @param {App} app @param {PathNode} node @param {number} token @param {(token: number) => string} name @param {Props} [props] */
function opening(app, { label: title, layer, head }, token, name, props = {}) {
  if (layer === null || head === null) return null;
  const open = () => openRow(app, { layer, head }, token);
  const says = `${title} at ${isolate(name(token))}`;
  return button(title, open, { class: "rg-token", title: `Open ${says}`, "aria-label": says, ...props });
}

/** Mark the edges of the node or the row that is pointed at. @param {App} app @param {EventTarget | null} target */
function point({ refs, queries }, target) {
  const at = closest(target, "[data-node], [data-edge]");
  const { node, edge } = at?.dataset ?? {};
  const { edges } = /** @type {Paths} */ (queries.data("paths"))?.graph ?? { edges: [] };
  const isMarked = edges.map(
    ({ writer, reader }, n) => String(n) === edge || [writer, reader].map(String).includes(node ?? ""),
  );
  for (const parent of [refs.pathsGraph, refs.pathsTree]) {
    parent.classList.toggle("rg-has-marks", Boolean(at));
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (parent.querySelectorAll("[data-edge]")))
      one.classList.toggle("rg-marked", isMarked[Number(one.dataset.edge)]);
  }
}

/** The lines, the strongest above the others, and the boxes. @param {PathGraph} graph @param {(token: number) => string} name */
function drawing({ width, height, box, nodes, edges }, name) {
  const largest = Math.max(...edges.map(({ score }) => Math.abs(score)));
  const lines = edges.map(({ writer, token, read_by: reader, score, line }, n) => {
    const says = `${formatSigned(score)} ${nodes[writer].label} at ${name(token)} → ${reader}`;
    const props = { "stroke-width": 0.8 + (WIDEST * Math.abs(score)) / largest, "data-edge": n };
    return svg("path", { d: line, class: score < 0 ? "rg-down" : "rg-up", ...props }, svg("title", {}, says));
  });
  const boxes = nodes.map(({ x, y }) => {
    const [w, h] = box;
    return svg("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: 5 });
  });
  const size = { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" };
  return svg("svg", size, ...lines.reverse(), ...boxes);
}

/** The properties of what stands at a place of a graph. @param {PathGraph} graph @returns {(x: number, y: number, node?: number) => Props} */
function boxesOf({ box: [width, height] }) {
  return (x, y, node) => ({
    class: node === undefined ? "rg-path-box rg-muted" : "rg-path-box",
    style: { left: `${x - width / 2}px`, top: `${y - height / 2}px`, width: `${width}px`, height: `${height}px` },
    data: node === undefined ? {} : { node },
  });
}
