// What the parts of the page show of the state and of the data that has arrived.

import { sentence } from "../data/attribution.js";
import { fitsInMemory } from "../data/map-data.js";
import { maxAbs } from "../data/matrix.js";
import { NOTHING } from "../data/query.js";
import { escapeInvisible, groupIndices, groupTokens, label, search, tokenName, truncate } from "../data/tokens.js";
import { bidi, el, present, setAttribute, setOptions, setText } from "../platform/dom.js";
import { LABEL_PX, LARGE_LABEL_PX, valueAt } from "../render/scene.js";
import { checkpointIndex, differenceBlockedBy, runsOnPlane, selectionOf } from "../state/sides.js";
import * as messages from "../views/messages.js";
import { sideNames } from "../views/side-switch.js";
import { visibleRange } from "../views/word-strip.js";
import { isPresenting } from "./actions.js";
import { showAttribution } from "./attribution.js";
import { showControls } from "./controls.js";
import { showStrongRows } from "./corpus.js";
import { liveMetric, showCellSearch } from "./head-search.js";
import { showIntro } from "./intro.js";
import { showLines } from "./lines.js";
import { showPatching } from "./patching.js";
import { showPaths } from "./paths.js";
import { showPlaces } from "./places.js";
import { showAligned, showLive, showModel, showNextTokens } from "./predictions.js";
import { showStory } from "./story.js";
import { showWhatIf } from "./what-if.js";
import { showWhy } from "./why.js";

export class Presenter {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
  }

  /** Show the state: controls at once, each view together with its data. @param {State} state */
  refresh(state) {
    const { app } = this;
    const { theme, parts, refs, queries, manifest, root } = app;
    if (root.dataset.theme !== theme) root.dataset.theme = theme;
    if (app.syncUrl) {
      document.documentElement.dataset.theme = theme;
      const { text } = app.shownRun();
      document.title = `${escapeInvisible(truncate(text.trim().replace(/\s+/g, " "), 60) || manifest.title)} · regard`;
    }
    root.toggleAttribute("data-presenting", isPresenting(state));
    showControls(root, state);
    this.showDisplayOptions();
    showPlaces(app);
    if (refs.main.dataset.view !== state.view) app.switchView(state.view);
    const sides = app.sides();
    const blockedBy = differenceBlockedBy(state, manifest);
    const { heads, head, ...others } = parts.sideSwitches;
    heads.update(state, sides, this.comparesHeads() ? "A and B are heads of one run" : blockedBy);
    head.update(state, sides, blockedBy);
    for (const one of Object.values(others)) one.update(state, sides, null);
    this.showChoice(state);
    showStory(app);
    showIntro(app);
    showAligned(app);
    this.showAblation();
    this.showTraining();
    const maps = queries.fetchMaps(state, sides);
    this.showMap(maps);
    this.showWordBar();
    this.showText(maps);
    this.showHeads(maps);
    this.showCellSteps();
    showWhy(app);
    showWhatIf(app);
    this.showMovement();
    showAttribution(app);
    showNextTokens(app);
    showModel(app);
    showLines(app);
    showPaths(app);
    showPatching(app);
    showStrongRows(app);
    showCellSearch(app);
    showLive(app);
  }

  /** Whether two heads of one run are compared. */
  comparesHeads() {
    const [a, b] = this.app.sides();
    return b !== undefined && a.run === b.run;
  }

  /** Tokens and words of a long text are neither merged nor left out. */
  showDisplayOptions() {
    const { state, refs, manifest } = this.app;
    const { tokens, layers } = this.app.shownRun();
    const inMemory = fitsInMemory(state, layers[this.app.shownHead().layer]);
    for (const option of refs.modes.options)
      option.disabled = !(option.value === "raw" || inMemory || manifest.can.tiles);
    const { special, words, byRow, firstToken, lastToken, displayNote } = refs;
    [special.checked, words.checked, byRow.checked] = inMemory
      ? [state.special, state.words, state.byRow]
      : [true, false, false];
    for (const box of [special, words, byRow]) box.disabled = !inMemory;
    [firstToken.value, lastToken.value] = [state.from ?? 0, (state.to ?? tokens.length) - 1].map(String);
    firstToken.max = lastToken.max = String(tokens.length - 1);
    displayNote.hidden = inMemory;
  }

  /** What is chosen by lists and fields. @param {State} state */
  showChoice(state) {
    const { app } = this;
    const { refs } = app;
    const run = app.shownRun();
    const { layers } = app.selectedRun();
    const { layer, head } = selectionOf(state);
    const named = (/** @type {number | string} */ name) => ({ key: String(name), title: String(name) });
    const numbers = layers.map(({ number }) => number);
    setOptions(refs.layer, numbers.map(named));
    refs.layer.selectedIndex = layer;
    setOptions(refs.head, [...Array(layers[layer].heads).keys(), "mean"].map(named));
    refs.head.value = String(head);
    const text = label(run.text.replace(/\s+/g, " "), 90);
    const title = escapeInvisible(run.text.slice(0, 600));
    refs.text.replaceChildren(el("span", { class: "rg-model" }, run.model), " ", bidi(text, { title }));
    setText(refs.compareButton, this.comparesHeads() ? "Stop comparing" : "Compare with another head");
    refs.compareButton.hidden = !this.comparesHeads() && app.sides().length > 1;
    setText(refs.matchCount, state.query ? `${search(run.tokens, run.text, state.query).length} found` : "");
  }

  /** The heads, after the map, which a reader waits for. @param {Answer<Maps>} maps */
  showHeads(maps) {
    const { app } = this;
    const { state, queries, parts, refs, theme, manifest } = app;
    const { run } = app.shownHead();
    const sides = app.sides();
    const isDifference = state.side === "diff" && sides.length > 1 && !this.comparesHeads();
    const mayStart = state.view === "heads" || !maps.isPending;
    const { thumbnails, heads } = queries.fetchHeads(run, mayStart);
    const differences = isDifference
      ? queries.fetchDifferences(
          sides.map((side) => side.run),
          mayStart,
        )
      : NOTHING;
    const live = liveMetric(app, mayStart);
    const isOther = parts.grid.data.run >= 0 && parts.grid.data.run !== run; // else pictures are shown before metrics
    const shown = isDifference ? [differences] : isOther || manifest.training ? [thumbnails, heads] : [thumbnails];
    const answers = [...shown, live?.answer ?? NOTHING];
    present([refs.grid, refs.metricDescription, refs.headCount, parts.sideSwitches.heads.names], answers, () => {
      parts.sideSwitches.heads.name(state, manifest, sides);
      parts.grid.setData(run, heads.data, thumbnails.data, differences.data);
      parts.grid.update(state, theme, sides, live?.metric ?? null, app.ablatedHeads());
    });
  }

  /** How far long computations are. @param {Record<string, Share>} progress */
  showProgress({ heads, ablate, strongest_rows: rows, patching }) {
    const { headProgress, ablationProgress, rowsProgress, patchingProgress } = this.app.refs;
    setText(patchingProgress, patching ? messages.progressMessage(patching) : "");
    setText(rowsProgress, rows ? messages.progressMessage(rows) : "");
    setText(headProgress, heads ? `Measuring the heads … ${messages.progressMessage(heads)}` : "");
    setText(ablationProgress, ablate ? messages.progressMessage(ablate) : "");
  }

  showTraining() {
    const { state, manifest, parts } = this.app;
    if (manifest.training) parts.training?.show(manifest.training, checkpointIndex(state, manifest.training), state);
  }

  /** The decimals of the shown maps that are exact. @param {Axes[]} maps @param {number} max @param {number} [terms] of a sum */
  decimals(maps, max, terms = 1) {
    const { manifest, state } = this.app;
    return messages.knownDecimals(manifest.decimals, state, maps, max, terms);
  }

  /** The map with its heading, its legend and its cell. @param {Answer<Maps>} maps */
  showMap(maps) {
    const { parts, refs } = this.app;
    const nodes = [refs.title, parts.map.stage, parts.legend.node, refs.modeDescription, parts.sideSwitches.head.names];
    present([...nodes, refs.provenance], [maps], () => {
      this.showHeadings();
      if (maps.data) this.drawMap(maps.data);
      else parts.map.stage.classList.add("rg-stale"); // of before, beside the error
    });
    this.showCell(maps);
  }

  showHeadings() {
    const { app } = this;
    const { refs, manifest, state } = app;
    const shown = app.shownHead();
    const sides = app.sides();
    const numbered = (/** @type {HeadRef} */ ref) => ({
      layer: manifest.runs[ref.run].layers[ref.layer].number,
      head: ref.head,
    });
    const other = (state.side === "diff" && sides[1]) || shown;
    setText(refs.title, messages.headingMessage(numbered(shown), numbered(other)));
    app.parts.sideSwitches.head.name(state, manifest, sides);
    const mode = manifest.modes.find(({ key }) => key === state.mode);
    if (mode) {
      setText(refs.modeDescription, `${mode.description} ${mode.caveat}`);
      refs.modeDescription.title = mode.source;
    }
    setText(refs.provenance, messages.provenanceMessage(manifest, shown.run, shown.layer));
  }

  /** @param {Maps} maps */
  drawMap(maps) {
    const { app } = this;
    const { state, parts, showsDifference, theme } = app;
    const mapData = app.mapOf(maps);
    const { rows, cols, pyramid, colorPyramid, inMemory } = mapData;
    const matches = this.matchesOn(mapData);
    const { pooledMax, cellMax } = showsDifference || state.byRow ? colorPyramid : maps;
    const layer = app.shownRun().layers[app.shownHead().layer];
    parts.map.show({
      mapData,
      scale: { kind: state.log ? "log" : "linear", max: pooledMax || 1, signed: showsDifference },
      cellMax,
      theme,
      labelSize: isPresenting(state) ? LARGE_LABEL_PX : LABEL_PX,
      decimals: this.decimals(app.sidesOf(maps), maps.pooledMax),
      ...app.cursor(),
      chosen: state.cells.map(([row, col]) => app.cursor({ row, col })),
      rowsFound: matches.rows,
      colsFound: matches.cols,
      causal: layer.causal && !(state.words && inMemory) && state.mode === "raw" && rows.length === cols.length,
      viewport: state.zoom,
      message: (row, col, value) => this.cellMessage(maps, row, col, value),
    });
    const name = `Attention map, ${rows.length} query rows, ${cols.length} key columns. Arrow keys move the cell.`;
    setAttribute(parts.map.stage, "aria-label", name);
    const legend = messages.legendMessage(state, showsDifference, pyramid.pooledMax, parts.map.pooling());
    parts.legend.update(parts.map.scale(), theme, legend);
  }

  /** The matches of the search as rows and columns. @param {Axes} axes */
  matchesOn(axes) {
    const { tokens, text } = this.app.shownRun();
    const found = search(tokens, text, this.app.state.query).flat();
    const on = (/** @type {Group[]} */ axis) => indicesOf(groupIndices(axis, tokens.length), found);
    return { tokens: found, rows: on(axes.rows), cols: on(axes.cols) };
  }

  /** The value of the cell, in the line below the map and for screen readers. @param {Answer<Maps>} maps */
  showCell(maps) {
    const { app } = this;
    const { readout, calculateButton, liveRegion, title } = app.refs;
    const { row, col } = app.cursor();
    calculateButton.hidden = row === null || col === null;
    if (row === null || col === null) {
      app.queries.cellValue.reset();
      return setText(readout, "Rows are queries, columns are keys. Click a cell, and again for its calculation.");
    }
    const drawn = maps.data && valueAt(app.mapOf(maps.data).pyramid, row, col);
    const isOverview = maps.data !== null && drawn === null;
    const value = isOverview ? app.queries.fetchCellValue(app.state, app.queriedHeads()).data : drawn;
    if (!isOverview) app.queries.cellValue.reset();
    const message = this.cellMessage(maps.data, row, col, value);
    setText(readout, message);
    readout.title = this.cellMessage(maps.data, row, col, value, true);
    if (value !== null && !maps.isPending) setText(liveRegion, `${message}. ${title.textContent}`);
  }

  /** @param {Maps | null} maps @param {number} row @param {number} col of the map @param {number | null} value @param {boolean} [inFull] */
  cellMessage(maps, row, col, value, inFull) {
    const { app } = this;
    const { state, showsDifference } = app;
    const map = maps ? app.mapOf(maps) : { ...app.axes(), hiddenMass: null };
    const decimals = maps ? this.decimals(app.sidesOf(maps), maps.pooledMax) : 0;
    return messages.cellMessage(state, map, showsDifference, row, col, value, decimals, inFull);
  }

  /** The words above the view: the chosen one, and those that are pinned. */
  showWordBar() {
    const { app } = this;
    const { state, parts, theme } = app;
    if (state.view === "head" || state.view === "text") return; // they have the text itself
    const { text, tokens } = app.shownRun();
    const { rows: groups } = app.axes();
    const indices = groupIndices(groups, tokens.length);
    const row = state.row ?? (state.view === "model" ? tokens.length - 1 : null); // as the view has it
    const selected = indicesOf(indices, [...(row === null ? [] : [row]), ...state.pins]);
    const [first = 0] = selected;
    const scale = /** @type {Scale} */ ({ kind: "linear", max: 1, signed: false });
    const range = visibleRange(groups.length, first);
    parts.wordBar.show({ groups, ...range, text, values: null, scale, theme, selected, format: String });
    const pinned = indicesOf(indices, state.pins);
    parts.wordBar.mark("rg-pinned", (index) => pinned.has(index));
  }

  /** The words, shaded by their weights. @param {Answer<Maps>} maps */
  showText(maps) {
    const { app } = this;
    const { state, queries, parts, theme, refs } = app;
    const isOut = state.direction === "out";
    const axesOf = (/** @type {Axes} */ { rows, cols }) =>
      isOut ? { own: rows, axis: cols } : { own: cols, axis: rows };
    const axes = app.axes();
    const { own, axis } = axesOf(axes);
    const token = isOut ? state.row : state.col;
    const tokens = state.pins.length ? state.pins : token === null ? [] : [token];
    const { tokens: all, text, picture, layers } = app.shownRun();
    const { block } = layers[app.shownHead().layer];
    const crosses = block && block[0].from !== block[1].from; // the words of both are shown, the text's before the target's
    const [groups, start] = crosses ? [[...axes.cols, ...axes.rows], isOut ? 0 : axes.cols.length] : [axis, 0];
    const [ownIndices, indices] = [groupIndices(own, all.length), groupIndices(groups, all.length)];
    const selected = indicesOf(indices, tokens);
    const chosen = [...indicesOf(ownIndices, tokens)];
    const answer = queries.fetchWordWeights(state, app.queriedHeads(), app.queriedAxes().map(axesOf), chosen);
    present([refs.top, refs.topHeading, refs.textNote, parts.textPanel.strip.node], [maps, answer], () => {
      const weights = answer.data && new Float32Array(groups.length);
      weights?.set(/** @type {Float32Array} */ (answer.data), start);
      const max = weights ? maxAbs(weights) || 1 : 1;
      parts.textPanel.show({
        groups,
        text,
        picture,
        weights,
        selected,
        pinned: indicesOf(indices, state.pins),
        found: indicesOf(indices, this.matchesOn(axes).tokens),
        scale: { kind: state.log ? "log" : "linear", max, signed: app.showsDifference },
        heading: messages.topWordsMessage(state, app.showsDifference, selected.size),
        theme,
        decimals: this.decimals(app.queriedAxes(), maps.data?.pooledMax ?? 1, Math.max(1, state.pins.length)),
        state,
      });
    });
  }

  showCellSteps() {
    const { app } = this;
    const { state, queries, parts } = app;
    if (state.view !== "cell") return;
    const { row, col, mode } = state;
    const cell = app.shownCell();
    const answer = cell ? queries.fetchCell({ ...cell, mode }) : NOTHING;
    const cellB = state.side === "diff" ? app.cellOfB() : null;
    const answerB = cellB ? queries.fetchCell({ ...cellB, mode }, "cellB") : queries.cellB.reset();
    present([parts.cellView.node], [answer, answerB], () => {
      if (!cell || !answer.data)
        return parts.cellView.showMessage(
          answer.error?.message ??
            (row === null || col === null
              ? "Choose a cell of the map to see its weight step by step."
              : "This text is shorter: it has no such cell."),
        );
      const why = answerB.error ? sentence(answerB.error.message) : "B has no such words.";
      const b = cellB && answerB.data ? { cell: answerB.data, names: this.namesOf(cellB) } : { message: why };
      const isOfTwo = state.side === "diff" && app.sides().length > 1;
      parts.cellView.show(answer.data, { ...this.namesOf(cell), side: this.stepsSideMessage() }, isOfTwo ? b : null);
    });
  }

  /** @param {HeadRef & { i: number, j: number }} cell @returns {CellNames} */
  namesOf({ run, layer, head, i, j }) {
    const { tokens, layers } = this.app.manifest.runs[run];
    const { number, heads, kv_heads: kvHeads } = layers[layer];
    const labels = tokens.map((_, n) => tokenName(tokens, n));
    const names = { from: labels[i], to: labels[j], layer: number, head, heads, kvHeads, labels };
    return { side: "", mode: this.app.state.mode, ...names };
  }

  /** Of which side the steps are, of two. */
  stepsSideMessage() {
    const { side, words } = this.app.state;
    if (words) return "The map shows whole words; these are the steps of their first tokens.";
    if (this.app.sides().length < 2) return "";
    return side === "diff" ? "Why and What if are of A; choose B for its own." : `These are the steps of ${side}.`;
  }

  /** The buttons of an ablation, and what it changes. */
  showAblation() {
    const { state, queries, parts, manifest, theme, edits, refs } = this.app;
    const answer = queries.fetchAblation(state);
    const isRunning = answer.isPending;
    parts.ablation.update(state, this.app.shownHead(), isRunning, edits);
    present([refs.changes], [answer], () => parts.ablation.showResult(answer.data, manifest, theme));
  }

  showMovement() {
    const { app } = this;
    const { state, queries, parts, refs } = app;
    const { runs } = app.manifest;
    if (state.view !== "movement") return;
    const sides = app.sides();
    const together = runsOnPlane(sides, app.shownHead(), app.manifest);
    const answer = together.length ? queries.fetchMovement(together) : NOTHING;
    parts.movement.setPending(answer.isPending);
    present([parts.movement.plane.node, refs.movementLegend, refs.movementText], [answer], () => {
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
      parts.sideSwitches.movement.name(state, app.manifest, sides);
      parts.sideSwitches.movement.node.hidden = !hasOtherPlane;
      const selected = new Set([...state.pins, ...(state.row === null ? [] : [state.row])]);
      parts.movement.show(paths, state.stage, selected, hasOtherPlane);
    });
  }
}

/** @param {Int32Array} indices of all tokens, -1 for hidden ones @param {number[]} tokens */
function indicesOf(indices, tokens) {
  return new Set(tokens.map((i) => indices[i]).filter((index) => index >= 0));
}
