// What the parts of the page show of the state and of the data that has arrived.

import { withProducts } from "../data/cell.js";
import { fitsInMemory } from "../data/map-data.js";
import { maxAbs } from "../data/matrix.js";
import { escapeInvisible, groupIndices, groupTokens, label, search } from "../data/tokens.js";
import { bidi, el, setAttribute, setOptions, setText, showSegment } from "../platform/dom.js";
import { valueAt } from "../render/scene.js";
import { checkpointIndex, differenceBlockedBy, runsOnPlane, selectionOf } from "../state/sides.js";
import * as messages from "../views/messages.js";
import { sideNames } from "../views/side-switch.js";
import { showAttribution } from "./attribution.js";
import { showControls } from "./controls.js";
import { showStrongRows } from "./corpus.js";
import { liveMetric, showCellSearch } from "./head-search.js";
import { showLines } from "./lines.js";
import { showLive, showModel, showNextTokens } from "./predictions.js";

export class Presenter {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
  }

  /** @param {State} state */
  refresh(state) {
    const { app } = this;
    const { theme, parts, refs, queries, manifest, root } = app;
    if (root.dataset.theme !== theme) root.dataset.theme = theme;
    if (app.syncUrl) {
      document.documentElement.dataset.theme = theme;
      app.writeUrl();
      document.title = `${escapeInvisible(manifest.title)} · regard`;
    }
    const shown = app.shownHead();
    showControls(root, state);
    this.showDisplayOptions();
    if (refs.main.dataset.view !== state.view) app.switchView(state.view);
    const sides = app.sides();
    const blockedBy = differenceBlockedBy(state, manifest);
    const isOneRun = sides.length > 1 && sides[0].run === sides[1].run;
    const { heads, head, movement, lines } = parts.sideSwitches;
    heads.update(state, manifest, sides, isOneRun ? "A and B are heads of one run" : blockedBy);
    head.update(state, manifest, sides, blockedBy);
    for (const one of [movement, lines]) one.update(state, manifest, sides, null);
    queries.fetchAblation(state);
    parts.ablation.update(state, shown, state.ablated.length > 0 && !queries.ablation.isCurrent, app.edits);
    parts.ablation.showResult(queries.ablation.current, manifest, theme);
    this.showTraining();
    this.showHeads();
    this.showHeadings(state);
    queries.fetchMaps(state, app.sides());
    this.showMap();
    this.showCellSteps();
    this.showMovement();
    showAttribution(app);
    showNextTokens(app);
    showModel(app);
    showLines(app);
    showStrongRows(app);
    showCellSearch(app);
    showLive(app);
  }

  /** Tokens and words of a long text are neither merged nor left out. */
  showDisplayOptions() {
    const { state, refs, manifest } = this.app;
    const { tokens, layers } = this.app.shownRun();
    const inMemory = fitsInMemory(state, layers[this.app.shownHead().layer]);
    showSegment(refs.modes, state.mode, (key) => key === "raw" || inMemory || manifest.can.tiles);
    const { special, words, byRow, firstToken, lastToken, displayNote } = refs;
    [special.checked, words.checked, byRow.checked] = inMemory
      ? [state.special, state.words, state.byRow]
      : [true, false, false];
    for (const box of [special, words, byRow]) box.disabled = !inMemory;
    [firstToken.value, lastToken.value] = [state.from ?? 0, (state.to ?? tokens.length) - 1].map(String);
    firstToken.max = lastToken.max = String(tokens.length - 1);
    displayNote.hidden = inMemory;
  }

  /** @param {State} state */
  showHeadings(state) {
    const { app } = this;
    const { refs, manifest } = app;
    const shown = app.shownHead();
    const run = app.shownRun();
    const sides = app.sides();
    const isOneRun = sides.length > 1 && sides[0].run === sides[1].run; // two heads of it are compared
    const { layers } = app.selectedRun();
    const { layer, head } = selectionOf(state);
    const numbered = (/** @type {HeadRef} */ ref) => ({
      layer: manifest.runs[ref.run].layers[ref.layer].number,
      head: ref.head,
    });
    setText(
      refs.title,
      messages.headingMessage(numbered(shown), numbered((state.side === "diff" && sides[1]) || shown)),
    );
    const named = (/** @type {number | string} */ name) => ({ key: String(name), title: String(name) });
    const numbers = layers.map(({ number }) => number);
    for (const list of [refs.layer, refs.linesLayer]) {
      setOptions(list, numbers.map(named));
      list.selectedIndex = layer;
    }
    setOptions(refs.head, [...Array(layers[layer].heads).keys(), "mean"].map(named));
    refs.head.value = String(head);
    const text = label(run.text.replace(/\s+/g, " "), 90);
    const title = escapeInvisible(run.text.slice(0, 600));
    refs.text.replaceChildren(el("span", { class: "rg-model" }, run.model), " ", bidi(text, { title }));
    const mode = manifest.modes.find(({ key }) => key === state.mode);
    if (mode) {
      setText(refs.modeDescription, `${mode.description} ${mode.caveat}`);
      refs.modeDescription.title = mode.source;
    }
    setText(refs.compareButton, isOneRun ? "Stop comparing" : "Compare with another head");
    refs.compareButton.hidden = !isOneRun && sides.length > 1;
    setText(refs.matchCount, state.query ? `${search(run.tokens, run.text, state.query).length} found` : "");
    setText(refs.provenance, messages.provenanceMessage(manifest, shown.run, shown.layer));
  }

  showHeads() {
    const { state, queries, parts, theme, manifest } = this.app;
    const { run } = this.app.shownHead();
    const sides = this.app.sides();
    const { data, error } = queries.maps;
    const isDifference = state.side === "diff" && sides.length > 1 && sides[0].run !== sides[1].run;
    if (state.view === "heads" || data || error) {
      queries.fetchHeads(run); // else after the map
      if (isDifference) queries.fetchDifferences(sides.map((side) => side.run));
    }
    const { heads, thumbnails, differences } = queries;
    const shown = (/** @type {Query<any>} */ query) => query.current ?? (manifest.training ? query.data : null); // of the checkpoint before, until others have come
    parts.grid.setData(run, shown(heads), shown(thumbnails), isDifference ? differences.current : null);
    const canSearch = state.view === "heads" || data || error;
    parts.grid.update(state, theme, sides, canSearch ? liveMetric(this.app) : null);
  }

  /** How far long computations are. @param {Record<string, Share>} progress */
  showProgress({ heads, ablate, strongest_rows: rows }) {
    const { headProgress, ablationProgress, rowsProgress } = this.app.refs;
    setText(rowsProgress, rows ? messages.progressMessage(rows) : "");
    setText(headProgress, heads ? `Measuring the heads … ${messages.progressMessage(heads)}` : "");
    setText(ablationProgress, ablate ? messages.progressMessage(ablate) : "");
  }

  showTraining() {
    const { state, manifest, parts } = this.app;
    if (manifest.training) parts.training?.show(manifest.training, checkpointIndex(state, manifest.training), state);
  }

  /** The decimals that are exact. @param {number} [terms] of a sum */
  decimals(terms = 1) {
    const { manifest, state, queries } = this.app;
    const max = queries.maps.data?.pooledMax ?? 1;
    return messages.knownDecimals(manifest.decimals, state, this.app.queriedMaps(), max, terms);
  }

  /** The map, its legend and its cell; stale ones are faint. */
  showMap() {
    const { app } = this;
    const { state, parts, showsDifference, theme } = app;
    const { maps } = app.queries;
    for (const node of [parts.map.stage, parts.legend.node]) node.classList.toggle("rg-stale", !maps.isCurrent);
    if (!maps.data) return;
    const mapData = (showsDifference && maps.data.difference) || app.queriedMaps()[0];
    app.mapData = mapData;
    const { rows, cols, pyramid, colorPyramid, inMemory } = mapData;
    const matches = this.matchesOn(mapData);
    const { pooledMax, cellMax } = showsDifference || state.byRow ? colorPyramid : maps.data;
    const layer = app.shownRun().layers[app.shownHead().layer];
    parts.map.show({
      mapData,
      scale: { kind: state.log ? "log" : "linear", max: pooledMax || 1, signed: showsDifference },
      cellMax,
      theme,
      decimals: this.decimals(),
      ...app.cursor(),
      chosen: state.cells.map(([row, col]) => app.cursor({ row, col })),
      rowsFound: matches.rows,
      colsFound: matches.cols,
      causal: layer.causal && !(state.words && inMemory) && state.mode === "raw" && rows.length === cols.length,
      viewport: state.zoom,
    });
    const name = `Attention map, ${rows.length} query rows, ${cols.length} key columns. Arrow keys move the cell.`;
    setAttribute(parts.map.stage, "aria-label", name);
    const legend = messages.legendMessage(state, showsDifference, pyramid.pooledMax, parts.map.pooling());
    parts.legend.update(parts.map.scale(), theme, legend);
    this.showCell();
    this.showText();
  }

  /** The matches of the search as rows and columns. @param {MapData} mapData */
  matchesOn(mapData) {
    const { tokens, text } = this.app.shownRun();
    const found = search(tokens, text, this.app.state.query).flat();
    const on = (/** @type {Group[]} */ axis) => indicesOf(groupIndices(axis, tokens.length), found);
    return { tokens: found, rows: on(mapData.rows), cols: on(mapData.cols) };
  }

  /** The value of the cell, in the line below the map and for screen readers. */
  showCell() {
    const { app } = this;
    const { readout, calculateButton, liveRegion, title } = app.refs;
    const { maps, cellValue } = app.queries;
    const { row, col } = app.cursor();
    calculateButton.hidden = row === null || col === null;
    if (!app.mapData || row === null || col === null)
      return setText(readout, "Rows are queries, columns are keys. Click a cell, and again for its calculation.");
    if (maps.isCurrent && valueAt(app.mapData.pyramid, row, col) === null)
      app.queries.fetchCellValue(app.state, app.queriedHeads());
    else cellValue.reset();
    const value = this.cellValue();
    const message = this.cellMessage(row, col, value);
    setText(readout, message);
    readout.title = this.cellMessage(row, col, value, true);
    if (value !== null) setText(liveRegion, `${message}. ${title.textContent}`);
  }

  /** The value of the chosen cell on the map; null before it is loaded. */
  cellValue() {
    const { mapData, queries } = this.app;
    const { row, col } = this.app.cursor();
    if (!mapData || row === null || col === null || !queries.maps.isCurrent) return null;
    return valueAt(mapData.pyramid, row, col) ?? queries.cellValue.current;
  }

  /** @param {number} row @param {number} col of the map @param {number | null} value @param {boolean} [inFull] */
  cellMessage(row, col, value, inFull) {
    const { mapData, state, showsDifference } = this.app;
    return mapData
      ? messages.cellMessage(state, mapData, showsDifference, row, col, value, this.decimals(), inFull)
      : "";
  }

  /** The words, shaded by their weights. */
  showText() {
    const { app } = this;
    const { state, queries, mapData, parts, theme } = app;
    if (!mapData) return;
    const isOut = state.direction === "out";
    const axesOf = (/** @type {MapData} */ { rows, cols }) =>
      isOut ? { own: rows, axis: cols } : { own: cols, axis: rows };
    const { own, axis } = axesOf(mapData);
    const token = isOut ? state.row : state.col;
    const tokens = state.pins.length ? state.pins : token === null ? [] : [token];
    const { length } = app.shownRun().tokens;
    const { block } = app.shownRun().layers[app.shownHead().layer];
    const crosses = block && block[0].from !== block[1].from; // the words of both are shown, the text's before the target's
    const [groups, start] = crosses ? [[...mapData.cols, ...mapData.rows], isOut ? 0 : mapData.cols.length] : [axis, 0];
    const [ownIndices, indices] = [groupIndices(own, length), groupIndices(groups, length)];
    const selected = indicesOf(indices, tokens);
    queries.fetchWordWeights(state, app.queriedHeads(), app.queriedMaps().map(axesOf), [
      ...indicesOf(ownIndices, tokens),
    ]);
    const { data, error, isCurrent } = queries.wordWeights;
    const weights = error || data?.length !== axis.length ? null : new Float32Array(groups.length);
    weights?.set(/** @type {Float32Array} */ (data), start);
    const max = weights ? maxAbs(weights) || 1 : 1;
    app.refs.top.classList.toggle("rg-stale", weights !== null && !isCurrent);
    parts.textPanel.show({
      groups,
      text: app.shownRun().text,
      picture: app.shownRun().picture,
      weights,
      selected,
      pinned: indicesOf(indices, state.pins),
      found: indicesOf(indices, this.matchesOn(mapData).tokens),
      scale: { kind: state.log ? "log" : "linear", max, signed: app.showsDifference },
      heading: messages.topWordsMessage(state, app.showsDifference, selected.size),
      theme,
      decimals: this.decimals(Math.max(1, state.pins.length)),
      state,
    });
  }

  showCellSteps() {
    const { app } = this;
    const { state, queries, parts } = app;
    if (state.view !== "cell") return;
    const headRef = app.shownHead();
    const { tokens, layers } = app.shownRun();
    const { number, heads, kv_heads, rows, cols } = layers[headRef.layer];
    const { row, col } = state;
    const { head } = headRef;
    const showMessage = (/** @type {string} */ message) => {
      queries.cell.reset();
      parts.cellView.showMessage(message);
    };
    if (row === null || col === null) return showMessage("Choose a cell of the map to see its weight step by step.");
    if (row >= rows || col >= cols) return showMessage("This text is shorter: it has no such cell.");
    const { run, layer } = headRef;
    const at = { run, layer, head, i: row, j: col, mode: state.mode };
    queries.cell.fetch(at, async (signal) => withProducts(await app.source.cell(at, signal)));
    if (queries.cell.error) return parts.cellView.showMessage(queries.cell.error.message);
    if (!queries.cell.current) return parts.cellView.setStale(true);
    parts.cellView.show(queries.cell.current, {
      side: this.stepsSideMessage(),
      from: tokens[row].text,
      to: tokens[col].text,
      layer: number,
      head,
      heads,
      kvHeads: kv_heads,
      mode: state.mode,
      labels: tokens.map(({ text }) => label(text)),
    });
  }

  /** Of which side the steps are, of two. */
  stepsSideMessage() {
    const { side, words } = this.app.state;
    if (words) return "The map shows whole words; these are the steps of their first tokens.";
    if (this.app.sides().length < 2) return "";
    return side === "diff" ? "These are the steps of A; choose B for its own." : `These are the steps of ${side}.`;
  }

  /** The run of an ablation becomes B. */
  showAblation() {
    const { app } = this;
    const { data, error, current } = app.queries.ablation;
    if (error) {
      app.set({ ablated: data?.ablated ?? [], ablatedRun: data?.ablatedRun ?? 0 }); // as before
      return setText(app.refs.ablationStatus, error.message);
    }
    if (!current) return;
    app.manifest.runs[current.run] = current.metadata;
    app.set({ editedRun: current.run });
  }

  showMovement() {
    const { app } = this;
    const { state, queries, parts } = app;
    const { runs } = app.manifest;
    if (state.view !== "movement") return;
    const sides = app.sides();
    const together = runsOnPlane(sides, app.shownHead(), app.manifest);
    if (together.length === 0) return parts.movement.showMessage("This trace has no token vectors: record them too.");
    queries.fetchMovement(together);
    parts.movement.setPending(!queries.movement.isCurrent);
    if (queries.movement.currentError) return parts.movement.showMessage("The plane could not be computed.");
    if (!queries.movement.current) return;
    const names = sides.length > 1 ? sideNames(state, app.manifest, sides) : [""];
    const selection = { words: state.words, special: state.special, from: state.from ?? 0, to: state.to ?? Infinity };
    const paths = [...queries.movement.current].map(([run, movement]) => {
      const side = sides.findIndex((ref) => ref.run === run);
      const { tokens, text } = runs[run];
      return { movement, side, title: names[side], axis: groupTokens(tokens, text, selection) };
    });
    const hasOtherPlane = sides.some(({ run }) => runs[run].projection_key && !together.includes(run));
    parts.sideSwitches.movement.node.hidden = !hasOtherPlane;
    const selected = new Set([...state.pins, ...(state.row === null ? [] : [state.row])]);
    parts.movement.show(paths, state.stage, selected, hasOtherPlane);
  }
}

/** @param {Int32Array} indices of all tokens, -1 for hidden ones @param {number[]} tokens */
function indicesOf(indices, tokens) {
  return new Set(tokens.map((i) => indices[i]).filter((index) => index >= 0));
}
