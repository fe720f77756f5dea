// The pure functions of the page: what they say of numbers, colours, text, views and addresses.
import assert from "node:assert/strict";
import { test } from "node:test";

const at = (name) => import(new URL(`../../../src/regard/explorer/frontend/${name}.js`, import.meta.url));
const text = await at("data/tokens");
const scale = await at("render/scale");
const format = await at("render/format");
const colormap = await at("render/colormap");
const viewport = await at("render/viewport");
const matrix = await at("data/matrix");
const state = await at("state/state");
const sides = await at("state/sides");
const url = await at("state/url");
const codec = await at("data/codec");
const files = await at("export/file-export");
const keys = await at("app/keybindings");
const grid = await at("views/head-grid");
const movement = await at("views/movement-view");
const plane = await at("render/plane");
const lines = await at("render/lines");
const tiles = await at("data/tile-source");
const maps = await at("data/map-data");
const annotations = await at("render/map-annotations");
const panel = await at("views/word-strip");
const cells = await at("data/cell");
const aggregate = await at("data/aggregate");
const messages = await at("views/messages");
const compare = await at("views/side-switch");
const ablation = await at("views/ablation-panel");
const attribution = await at("data/attribution");
const memory = await at("views/memory-panel");
const cellView = await at("views/cell-view");
const queries = await at("app/queries");
const curves = await at("render/curves");
const token = (t, word, start = 0, special = false) => ({
    text: t,
    special,
    word,
    start,
    end: start + t.replace("##", "").length,
});

test("what does not show has a stand-in", () => {
    assert.equal(text.escapeInvisible("a\u0000b\u202ec\u007f"), "a␀b⟨U+202E⟩c␡");
    assert.equal(text.escapeInvisible("\ud800"), "⟨U+D800⟩");
    assert.equal(text.escapeInvisible("👩‍🔬"), "👩‍🔬");
    assert.equal(text.escapeInvisible("a\u200db"), "a⟨U+200D⟩b");
});
test("labels are short and never empty", () => {
    assert.equal(text.label(""), "∅");
    assert.equal(text.label("  "), "␣␣");
    assert.equal(text.label(" the"), "the");
    assert.equal(Array.from(text.label("🙂".repeat(10_000))).length, 18);
});
test("pieces join to the word that they are of", () => {
    const tokens = [token("[CLS]", null, 0, true), token("un", 0, 0), token("##kind", 0, 2), token("ly", 1, 6)];
    const wanted = { words: true, special: false, from: 0, to: 9 };
    assert.deepEqual(
        text.groupTokens(tokens, "unkindly", wanted).map((g) => [g.full, g.members]),
        [
            ["unkind", [1, 2]],
            ["ly", [3]],
        ],
    );
    assert.deepEqual(Array.from(text.groupIndices(text.groupTokens(tokens, "unkindly", wanted), 4)), [-1, 0, 0, 1]);
});
test("no picture holds what XML cannot", () => {
    assert.equal(files.toXmlText("a\u0000\u001b\ufffe\ud800\n\t漢🙂"), "a\ufffd\ufffd\ufffd\ufffd\n\t漢🙂");
});
test("a text runs as its first letter does", () => {
    assert.deepEqual(["1. שלום world", "hello مرحبا", "漢字", ""].map(text.textDirection), [
        "rtl",
        "ltr",
        "ltr",
        "ltr",
    ]);
});
test("the largest come first, whatever their sign", () => {
    const many = Float32Array.from({ length: 5000 }, (_, n) => ((n * 7919) % 5000) / 5000 - 0.5);
    const sorted = Array.from(many.keys()).sort((a, b) => Math.abs(many[b]) - Math.abs(many[a]) || a - b);
    assert.deepEqual(matrix.topK(many, 9), sorted.slice(0, 9));
});
test("what is rounded shows fewer digits once it is summed", () => {
    assert.deepEqual(
        [1, 2, 10, 11].map((terms) => format.decimalsOfSum(4, terms)),
        [4, 3, 3, 2],
    );
});
test("an edit that is taken back leaves nothing to compare with", () => {
    const run = runOf(1, 2, 3);
    const manifest = { ...manifestOf(run), runs: [run, run] };
    assert.equal(sides.sidesOf({ ...state.INITIAL_STATE, editedRun: 1 }, manifest).length, 2);
    assert.equal(sides.sidesOf(state.INITIAL_STATE, manifest).length, 1);
});
test("runs move together where they share a plane", () => {
    const runs = ["p", "p", null, "q"].map((projection_key) => ({ projection_key }));
    const moved = (here, ...selectionBs) =>
        sides.runsOnPlane(
            [here, ...selectionBs].map((run) => ({ run })),
            { run: here },
            { runs },
        );
    assert.deepEqual(moved(1, 0), [0, 1]);
    assert.deepEqual(moved(0, 0), [0]);
    assert.deepEqual([moved(3, 0), moved(0, 3)], [[3], [0]]);
    assert.deepEqual([moved(2, 0), moved(2)], [[0], []]);
    runs[1].model = "another";
    assert.deepEqual(moved(1, 0), [1]);
});
test("a scale is even, or in powers of ten, or has two signs", () => {
    assert.equal(scale.scalePosition({ kind: "linear", max: 0.5, signed: false }, 0.25), 0.5);
    assert.equal(scale.scalePosition({ kind: "log", max: 1, signed: false }, 0.01), 0.5);
    assert.equal(scale.scalePosition({ kind: "linear", max: 2, signed: true }, -1), -0.5);
    assert.equal(scale.scalePosition({ kind: "linear", max: 2, signed: false }, -1), 0);
    assert.equal(scale.scalePosition({ kind: "log", max: 1, signed: false }, 0), 0);
    assert.deepEqual(scale.ticks({ kind: "linear", max: 1, signed: true }), [-1, -0.5, 0, 0.5, 1]);
    assert.deepEqual(scale.ticks({ kind: "log", max: 0.5, signed: true }), [-0.5, -0.005, 0, 0.005, 0.5]);
    assert.deepEqual(scale.ticks({ kind: "log", max: 1, signed: false }), [1e-4, 0.001, 0.01, 0.1, 1]);
});
test("digits are those asked for", () => {
    assert.equal(format.formatFixed(-0.00001, 3), "0.000");
    assert.equal(format.formatFixed(-Infinity), "−∞");
    assert.equal(format.formatCompact(0.314, 2), ".31");
    assert.equal(format.formatCompact(-0.314, 2), "−.31");
    assert.equal(format.formatSignificant(0.029834), "0.02983");
    assert.equal(format.formatSignificant(3.35e-7), "3.35·10⁻⁷");
});

test("a weight has three significant digits, and none that are not exact", () => {
    assert.deepEqual(
        [0.652858, 0.0147, 0.012, 0.00123, 1, 6.4, -0.0242].map((x) => format.formatWeight(x)),
        ["0.653", "0.0147", "0.0120", "0.00123", "1.00", "6.40", "−0.0242"],
    );
    assert.deepEqual([format.formatWeight(0.01234, 4), format.formatWeight(0.00004, 4)], ["0.0123", "0.0000"]);
    assert.deepEqual([format.formatWeight(0.0000123), format.formatWeight(0)], ["1.23·10⁻⁵", "0"]);
});

test("lightness goes one mode along both families, in light and dark", () => {
    for (const theme of ["light", "dark"])
        for (const sign of [1, -1]) {
            const steps = Array.from({ length: 21 }, (_, n) =>
                colormap.luminance(colormap.colorAt(theme, (sign * n) / 20)),
            );
            steps
                .slice(1)
                .forEach((y, n) => assert.ok(theme === "light" ? y < steps[n] : y > steps[n], `${theme} ${sign} ${n}`));
        }
});
test("ink is read on every colour", () => {
    for (const theme of ["light", "dark"])
        for (let n = -20; n <= 20; n++) {
            const ground = colormap.colorAt(theme, n / 20);
            const text = colormap.parseHex(colormap.textColorOn(ground));
            const [low, high] = [ground, text].map(colormap.luminance).sort((x, y) => x - y);
            assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${theme} ${n}`);
        }
});
test("the table of colours has 0 in the middle", () => {
    const bytes = new Uint8Array(colormap.colorTable("light").buffer);
    assert.deepEqual(
        Array.from(bytes.slice(4 * colormap.tableIndex(0), 4 * colormap.tableIndex(0) + 4)),
        [255, 255, 255, 255],
    );
});

const size = { width: 500, height: 500 };
const extent = { rows: 1000, cols: 1000 };
test("zoom keeps the cell under the pointer", () => {
    const before = { x: 0, y: 0, k: viewport.minCellSize(extent, size) };
    const after = viewport.zoomAt(before, 8, 200, 100, (one) => viewport.clampViewport(one, extent, size));
    assert.equal(before.x + 200 / before.k, after.x + 200 / after.k);
    assert.equal(before.y + 100 / before.k, after.y + 100 / after.k);
});
test("a cell that is zoomed about stays all the way", () => {
    const from = { x: 0, y: 0, k: viewport.minCellSize(extent, size) };
    const to = viewport.zoomAt(from, 16, 120, 40, (one) => viewport.clampViewport(one, extent, size));
    for (const share of [0, 0.3, 0.9, 1]) {
        const { x, k } = viewport.interpolate(from, to, share);
        assert.ok(Math.abs(x + 120 / k - (from.x + 120 / from.k)) < 1e-9);
    }
    assert.deepEqual(viewport.interpolate({ x: 0, y: 0, k: 2 }, { x: 4, y: 8, k: 2 }, 0.25), { x: 1, y: 2, k: 2 });
});
test("a view stays on its map", () => {
    const wide = { rows: 10, cols: 2000 };
    assert.deepEqual(viewport.clampViewport({ x: -5, y: 99, k: 1 }, wide, size), { x: 0, y: 0, k: 1 });
    assert.equal(viewport.clampViewport({ x: 9e9, y: 0, k: 10 }, wide, size).x, 1950);
    assert.equal(viewport.clampViewport({ x: 0, y: 0, k: 1e9 }, wide, size).k, viewport.MAX_CELL_SIZE);
});
test("levels and tiles cover what is seen", () => {
    const extent = { rows: 32768, cols: 32768 };
    assert.equal(viewport.numLevels(extent), 8);
    assert.equal(viewport.levelFor(0.25, 8), 2);
    assert.equal(viewport.levelFor(30, 8), 0);
    assert.deepEqual(viewport.visibleTiles({ x: 0, y: 0, k: 1 / 128 }, { width: 256, height: 256 }, extent, 7), [
        { i: 0, j: 0 },
    ]);
    assert.equal(viewport.visibleTiles({ x: 250, y: 0, k: 10 }, { width: 100, height: 100 }, extent, 0).length, 2);
});

const groups = (...members) => members.map((m) => ({ members: m, label: "", full: "", special: false }));
test("a word is looked at by the sum and looks by the mean; the rest is hidden", () => {
    const values = Float32Array.of(0.5, 0.25, 0.25, 0, 1, 0, 0.25, 0.25, 0.5);
    const { matrix: found, hidden } = matrix.mergeTokens(values, 3, groups([0], [1, 2]), groups([0], [1]));
    assert.deepEqual(Array.from(found.values), [0.5, 0.25, 0.125, 0.625]);
    assert.deepEqual(Array.from(hidden), [0.25, 0.25]);
});
test("halves keep what is farthest from 0, or the mean", () => {
    const odd = { values: Float32Array.of(1, 2, 3, 4, -9, 6, 7, 8, 9), rows: 3, cols: 3 };
    assert.deepEqual(Array.from(matrix.downsample(odd, "max").values), [-9, 6, 8, 9]);
    assert.deepEqual(Array.from(matrix.downsample(odd, "mean").values), [-0.5, 4.5, 7.5, 9]);
});
test("a part in as many cells as it has is exact", () => {
    const all = { values: Float32Array.of(1, 2, 3, 4, 5, 6), rows: 2, cols: 3 };
    assert.deepEqual(
        Array.from(matrix.poolRegion(all, { row0: 0, row1: 2, col0: 1, col1: 3, bin_size: 1, pool: "max" })),
        [2, 3, 5, 6],
    );
    assert.deepEqual(
        Array.from(matrix.poolRegion(all, { row0: 0, row1: 2, col0: 0, col1: 3, bin_size: 2, pool: "max" })),
        [5, 6],
    );
    assert.deepEqual(
        Array.from(matrix.poolRegion(all, { row0: 0, row1: 2, col0: 0, col1: 3, bin_size: 4, pool: "mean" })),
        [3.5],
    );
});

test("a state comes back from its address", () => {
    const one = {
        ...state.INITIAL_STATE,
        view: "cell",
        layer: 3,
        head: "mean",
        row: 4,
        pins: [1, 2],
        log: true,
        selectionB: { layer: 1, head: 2 },
        zoom: { x: 1.5, y: 2, k: 8 },
        query: "a&b=c #",
    };
    assert.deepEqual({ ...state.INITIAL_STATE, ...url.decode(`#${url.encode(one)}`) }, one);
});
const runOf = (layers, heads, length, more = {}) => ({
    model: "m",
    text: "t",
    tokens: Array.from({ length }, (_, n) => token(`${n}`, n)),
    layers: Array.from({ length: layers }, () => ({ heads, rows: length, cols: length })),
    ...more,
});
const manifestOf = (...runs) => ({
    stories: [],
    attribution_methods: [{ key: "gradient" }],
    runs,
    numGivenRuns: runs.length,
    modes: [{ key: "raw" }],
    metrics: [{ key: "entropy" }],
    can: { ablate: true },
});
test("what is folded is there, on the side that is seen", () => {
    const manifest = manifestOf(runOf(2, 3, 4), runOf(9, 5, 4));
    const folds = (side) => {
        const { collapsedLayers, collapsedHeads } = state.normalize(
            { ...state.INITIAL_STATE, side, collapsedLayers: [1, 7, 7, 20], collapsedHeads: [4, 5] },
            manifest,
        );
        return [collapsedLayers, collapsedHeads];
    };
    assert.deepEqual(
        [folds("A"), folds("B")],
        [
            [[1], []],
            [[1, 7], [4]],
        ],
    );
});
test("texts that join to as many words have a difference, others none", () => {
    const wordsOf = (...words) => runOf(1, 1, 4, { text: "", tokens: words.map((word) => token("x", word)) });
    const whyNot = (more, ...runs) =>
        sides.differenceBlockedBy({ ...state.INITIAL_STATE, words: true, ...more }, manifestOf(...runs));
    assert.equal(whyNot({}, wordsOf(0, 0, 1, 2), wordsOf(0, 1, 2, 2)), null);
    assert.match(whyNot({}, wordsOf(0, 0, 1, 2), wordsOf(0, 1, 2, 3)), /merged into words, A has 3 rows and B 4/);
    assert.equal(whyNot({ to: 1 }, wordsOf(0, 0, 1, 2), wordsOf(0, 1, 2, 3)), null);
    assert.equal(whyNot({ words: false }, wordsOf(0, 0, 1, 2), wordsOf(0, 1, 2, 3)), null);
});
test("each side keeps its own layers and heads where models differ", () => {
    const manifest = manifestOf(runOf(6, 12, 9), runOf(30, 9, 12));
    const one = state.normalize({ ...state.INITIAL_STATE, layer: 4, head: 11, side: "B" }, manifest);
    assert.deepEqual([one.layer, one.head, one.selectionB], [4, 11, { layer: 4, head: 8 }]);
    const there = state.normalize(
        { ...one, ...sides.withSelection(one, { layer: 20, head: 7 }), row: 11, col: 12 },
        manifest,
    );
    assert.deepEqual(sides.sidesOf(there, manifest), [
        { run: 0, layer: 4, head: 11 },
        { run: 1, layer: 20, head: 7 },
    ]);
    assert.deepEqual([there.row, there.col], [11, null]);
    assert.deepEqual(sides.withSelection({ ...there, side: "A" }, { head: 2 }), { layer: 4, head: 2 });
    assert.equal(
        state.normalize({ ...there, side: "diff" }, { ...manifest, difference_blocked_by: "they differ" }).side,
        "A",
    );
});
test("two texts share a layer and head; an edit is compared with the text that it is of", () => {
    const manifest = manifestOf(runOf(2, 2, 3), runOf(2, 2, 5));
    assert.equal(
        state.normalize({ ...state.INITIAL_STATE, selectionB: { layer: 1, head: 1 } }, manifest).selectionB,
        null,
    );
    manifest.runs[2] = runOf(2, 2, 5, { base_run: 1 });
    assert.deepEqual(
        sides.sidesOf({ ...state.INITIAL_STATE, editedRun: 2 }, manifest).map(({ run }) => run),
        [1, 2],
    );
    assert.match(sides.differenceBlockedBy(state.INITIAL_STATE, manifest), /A has 3 tokens and B 5/);
    assert.equal(sides.differenceBlockedBy({ ...state.INITIAL_STATE, editedRun: 2 }, manifest), null);
});
test("heads of a second text that has not run yet are not ablated in the first", () => {
    const manifest = manifestOf(runOf(2, 2, 3));
    const ablatedOf = (given) =>
        state.normalize({ ...state.INITIAL_STATE, ablated: [[0, 1]], ...given }, manifest).ablated;
    assert.deepEqual(ablatedOf({ textB: "b", ablatedRun: 1 }), []);
    assert.deepEqual(ablatedOf({ textB: "b", ablatedRun: 0 }), [[0, 1]]);
    assert.deepEqual(ablatedOf({ ablatedRun: 1 }), [[0, 1]]);
    manifest.runs[1] = runOf(2, 2, 3);
    assert.deepEqual(ablatedOf({ text: "a", liveRun: 1, textB: "b", ablatedRun: 1 }), [[0, 1]]);
    assert.deepEqual(ablatedOf({ textB: "b", liveRunB: 1, ablatedRun: 1 }), [[0, 1]]);
});
test("any stretch of tokens becomes one that there is", () => {
    const all = [
        [null, null],
        [-3, 6],
        [2.5, 4],
        [6, 4],
        [99, 100],
        [0, 10],
    ].map(([from, to]) => state.clampRange({ from, to }, 10));
    assert.deepEqual(
        all.map(({ from, to }) => [from, to]),
        [
            [null, null],
            [null, 6],
            [2, 4],
            [3, 7],
            [9, null],
            [null, null],
        ],
    );
    assert.deepEqual(maps.tokenRange({ from: 3, to: 7 }, 5), { from: 3, to: 5 });
    assert.deepEqual(maps.tokenRange({ from: 5, to: 7 }, 5), { from: 0, to: 5 });
});
test("an address keeps a zoom, however far out", () => {
    for (const zoom of [
        { x: 12345.678, y: 0.5, k: 0.0183105 },
        { x: 0, y: 0, k: 0.000412345 },
        { x: 1, y: 2, k: 3e-8 },
    ])
        assert.deepEqual(url.decode(url.encode({ ...state.INITIAL_STATE, zoom })).zoom, zoom);
});
test("an address that says nonsense says nothing", () => {
    assert.deepEqual(url.decode("#v=x&l=-1&h=1e3&z=1_2_0&b=a.b&n=7&s=<"), {});
});
test("an address that is incomplete in a part says nothing there, and not something else", () => {
    const parts = [
        ...["ps=1", "pr=1.", "b=1.2.3", "x=0.1_0", "cells=3.4_5", "lh=0.1_x", "pins=1.a.3", "sl=1..2", "z=1__2"],
        ...["z=1_2_3_4", "ws=3.7.2.1_0.m", "ws=3.7_0.m", "ws=3.7.2_0.", "words=yes", "t=", "temp=0x1", "n=1e-1"],
        ...["k=1", `gt=${"x".repeat(2001)}`, `text=${"x".repeat(4001)}`],
    ];
    for (const part of parts) {
        assert.deepEqual(url.decode(`#${part}`), {}, part);
        assert.deepEqual(url.unread(`#${part}&v=head`), [part]);
    }
    assert.deepEqual(url.unread("#v=patching&po=path&ps=1.2&lh=&text=&z=-1_0.5_3e-8&temp=.5&words=0"), []);
    assert.equal(
        messages.unreadMessage(["ps=1", "a=\u202e"]),
        "Left out, since it means nothing in an address: \u2068ps=1\u2069, \u2068a=⟨U+202E⟩\u2069.",
    );
});

test("weights are unpacked row by row", () => {
    const blob = Uint8Array.of(1, 1, 255, 3, 4, 16, 39); // columns (1, 10000), (3, 4)
    assert.deepEqual(
        Array.from(codec.unpackWeights(blob, 2, 2, 4)).map((x) => Number(x.toFixed(4))),
        [0.0001, 0.0003, 1, 0.0004],
    );
});
test("two small weights stand in a byte", () => {
    const blob = Uint8Array.of(2, 0x12, 0xe0, 0xf0, 44, 1); // one column, and half a byte that is over
    assert.deepEqual(
        Array.from(codec.unpackWeights(blob, 5, 1, 3)).map((x) => Number(x.toFixed(3))),
        [0.001, 0.002, 0.014, 0, 0.3],
    );
});
test("memory is told in words, of Python where there is one", () => {
    const held = { bytes: 2_500_000, limit: 84_000_000 };
    const python = { runs: 103e6, overviews: 67e6, overviews_limit: 268e6, process_peak: 358e6 };
    assert.equal(
        memory.describeMemory(null, held, null),
        "The maps on the page hold 2.5 MB of weights and pixels, at most 84 MB.",
    );
    assert.ok(
        memory
            .describeMemory(python, held, 1e7)
            .startsWith(
                "Python holds 103 MB of runs and 67 MB of overviews, at most 268 MB; the peak of its process is 358 MB. ",
            ),
    );
});
test("a blob is zlib in base 85, as Python writes it but for one character", async () => {
    assert.deepEqual(Array.from(codec.fromBase85("Xk~0{")), [104, 101, 108, 108]);
    assert.equal(new TextDecoder().decode(await codec.decodeBlob("c$~{f&B@6J00t}q6#")), "hello");
});

test("what a spreadsheet would run is inert", () => {
    assert.equal(files.csvField("=1+1"), "'=1+1");
    assert.equal(files.csvField('a,"b"'), '"a,""b"""');
    assert.equal(
        files.toCsv("", ["r"], ["a", "b"], (_, c) => (c ? null : 0.12345), 3),
        ",a,b\nr,0.123,\n",
    );
    assert.equal(files.fileName("Ünï <b>/.."), "uni-b");
});
test("what is typed into a field is left alone", () => {
    const bindings = [
        { keys: ["s"], description: "", action() {} },
        { keys: ["Escape"], description: "", action() {} },
    ];
    const event = (key, matches) => ({ key, target: { matches: (q) => q.startsWith(matches) } });
    assert.equal(keys.findBinding(bindings, event("s", "input")), undefined);
    assert.equal(keys.findBinding(bindings, event("Escape", "input")), bindings[1]);
    assert.equal(keys.findBinding(bindings, event("s", "nothing")), bindings[0]);
    assert.equal(keys.findBinding(bindings, event("S", "nothing")), bindings[0]);
    assert.equal(keys.findBinding([{ ...bindings[0], disabled: true }], event("s", "nothing")), undefined);
});
test("heads are ranked, those without a number last", () => {
    assert.deepEqual(
        grid
            .rankHeads([
                [1, null],
                [3, 2],
            ])
            .map(({ layer, head }) => `${layer}.${head}`),
        ["1.0", "1.1", "0.0", "0.1"],
    );
});
test("a thumbnail of several is their mean", () =>
    assert.equal(grid.meanThumbnail([Uint8Array.of(255), Uint8Array.of(0)])[0], 180));
test("tokens stand between two stages", () => {
    const track = [
        { x: 0, y: 0 },
        { x: 2, y: 4 },
    ];
    assert.deepEqual(plane.positionAt(track, 0.5), { x: 1, y: 2 });
    assert.deepEqual(plane.positionAt(track, 9), { x: 2, y: 4 });
    assert.equal(movement.stageName("blocks.3.output"), "after layer 3");
});
test("a word stands at the mean of its tokens, and up is up", () => {
    const path = {
        movement: {
            points: [
                [
                    [0, 0],
                    [2, 4],
                    [9, 9],
                ],
            ],
            left_out: [2],
        },
        side: 1,
    };
    const axis = [
        { members: [0, 1], label: "word" },
        { members: [2], label: "sink" },
    ];
    const [word, sink] = movement.dotsOf({ ...path, axis }, new Set([1]));
    assert.deepEqual(word.track, [{ x: 1, y: -2 }]);
    assert.deepEqual([word.isSelected, word.isFitted, sink.isSelected, sink.isFitted], [true, true, false, false]);
});
test("a viewport fits what it is given, with the same scale along both axes", () => {
    const size = { width: 488, height: 288 };
    const bounds = plane.boundsOf([[{ x: -1, y: 0 }], [{ x: 1, y: 4 }]]);
    assert.deepEqual(bounds, { left: -1, right: 1, top: 0, bottom: 4 });
    const line = Array.from({ length: 9 }, (_, n) => [{ x: n, y: n === 8 ? 21 : n - 7 }]);
    assert.deepEqual(plane.boundsOf(line, 3), { left: 0, right: 8, top: -7, bottom: 0 }); // the half from -5 to -1
    assert.deepEqual(plane.boundsOf(line, 7), { left: 0, right: 8, top: -7, bottom: 21 });
    const same = [[{ x: 1, y: 1 }], [{ x: 1, y: 1 }], [{ x: 1, y: 5 }], [{ x: 1, y: 1 }], [{ x: 1, y: 1 }]];
    assert.deepEqual(plane.boundsOf(same, 3), { left: 1, right: 1, top: 1, bottom: 5 });
    const growing = Array.from({ length: 9 }, (_, n) =>
        Array.from({ length: 13 }, (_, stage) => ({ x: (n - 4) * 1.5 ** stage, y: n * 2 ** stage })),
    );
    assert.deepEqual(plane.boundsOf(growing, 3), plane.boundsOf(growing)); // all of the last stage is shown
    growing[8][12] = { x: 100 * 1.5 ** 12, y: 8 * 2 ** 12 };
    assert.deepEqual(plane.boundsOf(growing, 3), { ...plane.boundsOf(growing), right: 3 * 1.5 ** 12 });
    const { x, y, k } = plane.fitViewport(bounds, size);
    assert.equal(k, 50); // 44 pixels are free on each side
    assert.deepEqual([(0 - x) * k, (2 - y) * k], [244, 144]);
});
test("lines of one opacity are one path, from keys to queries", () => {
    const map = { values: Float32Array.of(0.5, 0.5, 1, 0.04), rows: 2, cols: 2 };
    const linear = { kind: "linear", max: 1, signed: false };
    const all = lines.linePaths(map, linear, 0, () => true);
    assert.deepEqual(
        all.map(({ opacity }) => opacity),
        [0.5, 1],
    );
    assert.equal(all[0].d, "M0 0.5C45 0.5 55 0.5 100 0.5M0 1.5C45 1.5 55 0.5 100 0.5");
    const [one] = lines.linePaths(map, linear, 0.1, (row) => row === 1);
    assert.deepEqual([one.d, one.opacity], ["M0 0.6C45 0.6 55 1.6 100 1.6", 1]);
    assert.deepEqual(lines.linePaths(map, { ...linear, kind: "log" }, 0, () => true).length, 3);
});
test("an item of a list is toggled, whatever it holds", () => {
    assert.deepEqual(state.toggled([[1, 2]], [3, 4]), [
        [1, 2],
        [3, 4],
    ]);
    assert.deepEqual(
        state.toggled(
            [
                [1, 2],
                [3, 4],
            ],
            [1, 2],
        ),
        [[3, 4]],
    );
});
test("the heads of lines are those of the layers, and none is not the same as no choice", () => {
    const manifest = manifestOf(runOf(1, 2, 3));
    const linesOf = (address) => state.normalize({ ...state.INITIAL_STATE, ...url.decode(address) }, manifest).lines;
    assert.equal(linesOf(""), null);
    assert.deepEqual(linesOf("lh="), []);
    assert.deepEqual(linesOf("lh=0.1_0.mean_0.2_1.0"), [
        { layer: 0, head: 1 },
        { layer: 0, head: "mean" },
    ]);
});
test("no name covers another", () => {
    const points = Array.from({ length: 30 }, () => ({ x: 400, y: 300 }));
    const size = { width: 900, height: 560 };
    const labels = points.map((point) => ({ ...point, width: 40 }));
    const placed = plane.placeLabels(labels, points, size).filter(Boolean);
    assert.ok(placed.length > 0 && placed.length < 5);
    for (const [n, one] of placed.entries())
        for (const other of placed.slice(0, n))
            assert.ok(
                one.right < other.left || other.right < one.left || one.bottom < other.top || other.bottom < one.top,
            );
});
test("tiles that are no longer seen are given up", async () => {
    const signals = [];
    const never = (part, signal) =>
        new Promise((_, reject) => {
            signals.push(signal);
            signal.addEventListener("abort", () => reject(signal.reason));
        });
    const map = new tiles.RemoteTiles(never, { rows: 4096, cols: 4096 }, () => {}, assert.fail);
    for (let j = 0; j < 9; j++) assert.equal(map.tile(0, 0, j), null);
    assert.equal(signals.length, 6);
    map.cancelExcept(new Set([tiles.tileKey(0, 0, 0)]));
    assert.equal(signals.filter((s) => s.aborted).length, 5);
});
test("labels keep a distance, and the chosen one is there", () => {
    assert.deepEqual(annotations.labelPositions(0, 10, 4, 5, new Set()), [0, 5]);
});
test("of a long text a part stands on the page", () => {
    assert.deepEqual(panel.visibleRange(10, 3), { start: 0, end: 10 });
    const { start, end } = panel.visibleRange(32768, 20000);
    assert.ok(end - start === 600 && start <= 20000 && 20000 < end);
});
test("the steps of a cell sum to its score and its weight", () => {
    const q = [1, 2, 3, 4],
        k = [1, 0, 0, 1],
        v = [1, 2];
    const scores = [
        [1, 2],
        [3, 4],
    ];
    const lse = scores.map((row) => Math.log(row.reduce((sum, s) => sum + Math.exp(0.5 * s), 0)));
    const fields = { head_dim: 2, value_dim: 1, scale: 0.5, softcap: null, sink: null, kv_head: 0, rotated: false };
    const stretch = [0, 0, 2, 2];
    const vectors = [...q, ...k, ...v, ...lse];
    const cell = cells.withProducts(
        cells.cellFrom(Float32Array.of(...vectors, ...stretch), fields, { rows: 2, cols: 2 }, 1, 0),
    );
    assert.deepEqual(cell.products, [3, 0]);
    assert.equal(cell.score_raw, 3);
    assert.ok(Math.abs(cell.weight - Math.exp(1.5) / (Math.exp(1.5) + Math.exp(2))) < 1e-6);
    assert.ok(Math.abs(cell.output[0] - (cell.weight + 2 * (1 - cell.weight))) < 1e-6);
    assert.ok(Math.abs(cell.row_sum - 1) < 1e-6);
    const half = lse.map((x) => x + Math.log(2)); // a sink that takes as much as all tokens together
    const halved = cells.cellFrom(
        Float32Array.of(...q, ...k, ...v, ...half, ...stretch),
        { ...fields, sink: lse[1] },
        { rows: 2, cols: 2 },
        1,
        0,
    );
    assert.ok(Math.abs(halved.row_sum - 0.5) < 1e-6);
    assert.ok(Math.abs(Math.exp(halved.sink - halved.lse) - 0.5) < 1e-6);
    const hidden = cells.cellFrom(Float32Array.of(...vectors, 0, 1, 2, 2), fields, { rows: 2, cols: 2 }, 1, 0);
    assert.deepEqual([hidden.masked, hidden.weight, hidden.biased], [true, 0, null]);
});
test("a masked or ablated value is 0, and what is no number has no product", () => {
    const recorded = { q: [1, 2], k: [null, 3], v: [null, 4], weight: 0, ablated: false };
    const masked = cells.withProducts(recorded);
    assert.deepEqual([masked.products, masked.score_raw, masked.weighted_value], [[null, 6], null, [0, 0]]);
    const ablated = cells.withProducts({ ...recorded, k: [1, 3], weight: 0.5, ablated: true });
    assert.deepEqual([ablated.products, ablated.score_raw, ablated.weighted_value], [[1, 6], 7, [0, 0]]);
    assert.deepEqual(cells.withProducts({ ...recorded, q: null, v: [2, 4], weight: 0.5 }).weighted_value, [1, 2]);
});
test("shares join to words as a map does", () => {
    assert.deepEqual(Array.from(aggregate.mergeByGroup(Float32Array.of(1, 2, 3), groups([0, 1], [2]), "out")), [3, 3]);
    assert.deepEqual(Array.from(aggregate.mergeByGroup(Float32Array.of(1, 2, 3), groups([0, 1], [2]), "in")), [1.5, 3]);
});

test("words are found where they stand in the text, whole or across tokens", () => {
    const tokens = [
        token("[CLS]", null, 0, true),
        token("un", 0, 0),
        token("##kind", 0, 2),
        token("the", 1, 7),
        token("mat", 2, 11),
    ];
    tokens[0].end = 0;
    const found = (wanted) => text.search(tokens, "unkind the mat", wanted);
    assert.deepEqual(["UNKIND", "nk", "kind", "the  mat", "t", "[cls]", "cat", " ", "un|the"].map(found), [
        [[1, 2]],
        [[1, 2]],
        [[2]],
        [[3, 4]],
        [[3], [4]],
        [[0]],
        [],
        [],
        [],
    ]);
    assert.deepEqual(text.search([token("a-b", 0)], "a-b", "a-b"), [[0]]);
});
test("a text that is too long for an address is not in it, since it would be read as none", () => {
    const written = (length) => url.encode({ ...state.INITIAL_STATE, text: "a".repeat(length) });
    assert.equal(url.decode(written(4000)).text.length, 4000);
    assert.doesNotMatch(written(4001), /text=/);
});
test("headings name one head, or what is taken from it", () => {
    assert.equal(messages.headingMessage({ layer: 2, head: "mean" }), "Layer 2 · mean of heads");
    assert.equal(messages.headingMessage({ layer: 2, head: 3 }, { layer: 2, head: 5 }), "Layer 2 · Head 3 − Head 5");
    assert.equal(
        messages.headingMessage({ layer: 2, head: 3 }, { layer: 4, head: 3 }),
        "Layer 2 · Head 3 − Layer 4 · Head 3",
    );
});
test("each mode has its own verb, in the cell and over the list", () => {
    const axis = groups([0], [1]);
    const said = (mode, isDifference = false) =>
        messages.cellMessage(
            { ...state.INITIAL_STATE, mode },
            { rows: axis, cols: axis, hiddenMass: Float32Array.of(0.25, 0) },
            isDifference,
            0,
            1,
            0.5,
            2,
        );
    assert.match(said("raw"), /attends to .*: 0.50; 0.250 of this row is hidden/);
    assert.match(said("norms"), /receives from .*; 0.250 of the lengths in this row is hidden/);
    assert.match(said("rollout", true), /contributes to .*, A − B: 0.50/);
    const most = (mode, direction, isDifference, many) =>
        messages.topWordsMessage({ ...state.INITIAL_STATE, mode, direction }, isDifference, many);
    assert.equal(most("raw", "out", false, 2), "attend most to");
    assert.equal(most("rollout", "in", false, 1), "contributes most to");
    assert.equal(most("norms", "in", true, 1), "gives to, A − B");
});
test("the legend says what the colours are of", () => {
    const says = (more, isDifference, max = 1, pooled = { binSize: 1, clipped: false, inMemory: true }) =>
        messages.legendMessage({ ...state.INITIAL_STATE, ...more }, isDifference, max, pooled);
    assert.equal(
        says({ byRow: true, log: true }, false),
        "weight, divided by the largest of its row, in powers of ten",
    );
    assert.match(says({}, true), /blue where A is larger, brown where B is/);
    assert.match(says({}, true, 0), /they are equal/);
    assert.equal(
        says({ pool: "mean" }, false, 1, { binSize: 4, clipped: true, inMemory: false }),
        "weight, the mean of 4 × 4, the end of the scale includes larger values",
    );
    const far = (pool, inMemory) => says({ pool }, true, 1, { binSize: 4, clipped: false, inMemory });
    assert.equal(
        far("max", false),
        "weight, the largest of 4 × 4, in A minus the largest in B: blue where A is larger, brown where B is",
    );
    assert.match(far("max", true), /^weight in A minus weight in B: .*, the largest of 4 × 4$/);
    assert.match(far("mean", false), /^weight in A minus weight in B: .*, the mean of 4 × 4$/);
});
test("as many decimals are shown as are known", () => {
    const known = (more, max = 1, terms = 1) =>
        messages.knownDecimals(
            4,
            { ...state.INITIAL_STATE, ...more },
            [[0], [1, 2, 3]].map((one) => ({ cols: groups(one) })),
            max,
            terms,
        );
    assert.deepEqual(
        [
            known({}),
            known({ side: "diff" }),
            known({ mode: "norms" }, 6.4),
            known({}, 1, 5),
            known({ byRow: true }),
            known({ words: true }),
        ],
        [4, 3, 2, 3, 4, 3],
    );
    assert.equal(messages.knownDecimals(null, state.INITIAL_STATE, [], 1), 6);
});
test("what is hidden is a share, of weights and of lengths", () => {
    const lengths = { values: Float32Array.of(1, 2, 0, 0), rows: 2, cols: 2 };
    assert.deepEqual(Array.from(maps.hiddenMassOf(lengths, Float32Array.of(3, 0))), [0.5, 0]);
    assert.deepEqual(
        Array.from(maps.hiddenMassOf({ values: Float32Array.of(0.5, 0.25), rows: 1, cols: 2 }, null)),
        [0.25],
    );
});
const whole = (rows, cols, at) =>
    new tiles.InMemoryTiles(
        {
            values: Float32Array.from({ length: rows * cols }, (_, n) => at(Math.floor(n / cols), n % cols)),
            rows,
            cols,
        },
        "max",
    );
test("a map that is held is cut into tiles, level by level", () => {
    const map = whole(300, 500, (r, c) => (r === 299 && c === 499 ? 9 : 1));
    assert.deepEqual([map.levels, map.pooledMax], [2, 9]);
    const { rows, cols, values } = map.tile(0, 1, 1);
    assert.deepEqual([rows, cols, values[values.length - 1]], [44, 244, 9]);
    const top = map.tile(1, 0, 0);
    assert.deepEqual([top.rows, top.cols, Math.max(...top.values)], [150, 250, 9]);
});
test("a difference is taken tile by tile, and its scale holds both", async () => {
    const side = (values, scale) => {
        const found = async () => Float32Array.from(values);
        return Object.assign(new tiles.RemoteTiles(found, { rows: 2, cols: 2 }, () => {}, assert.fail), scale);
    };
    const a = side([3, 3, 3, 3], { pooledMax: 3, cellMax: 3 });
    const difference = new tiles.DifferenceTiles(a, side([0, 0, 1, 1], { pooledMax: 1, cellMax: 5 }));
    assert.deepEqual([difference.pooledMax, difference.cellMax], [3, 5]);
    assert.equal(difference.tile(0, 0, 0), null);
    await difference.load(0, 0, 0, new AbortController().signal);
    assert.deepEqual(Array.from(difference.tile(0, 0, 0).values), [3, 3, 2, 2]);
});
test("rows are coloured by themselves and keep their numbers", () => {
    const one = (at) => ({
        rows: groups([0], [1]),
        cols: groups([0], [1]),
        pyramid: whole(2, 2, at),
        hidden: null,
        inMemory: true,
    });
    const { pyramid, colorPyramid } = maps.differenceOf(
        one((r, c) => r + c),
        one(() => 0),
        { byRow: true, pool: "max" },
    );
    assert.deepEqual(Array.from(pyramid.matrices[0].values), [0, 1, 1, 2]);
    assert.deepEqual(Array.from(colorPyramid.matrices[0].values), [0, 1, 0.5, 1]);
});
test("sides are named by what sets them apart", () => {
    const runs = [
        { model: "one", text: "a cat" },
        { model: "two", text: "a cat" },
        { model: "one", text: "a dog" },
        { model: "one", text: "a cat", title: "without layer 1 head 2" },
    ].map((run) => ({ ...run, layers: [{ number: 4 }, { number: 7 }] }));
    const named = (more, ...at) =>
        compare.sideNames(
            { ...state.INITIAL_STATE, ...more },
            { runs },
            at.map((run, n) => ({ run, layer: 1, head: n })),
        );
    assert.deepEqual(named({}, 0, 1), ["one", "two"]);
    assert.deepEqual(named({}, 0, 2), ["a cat", "a dog"]);
    assert.deepEqual(named({ editedRun: 3 }, 0, 3), ["original", "without layer 1 head 2"]);
    assert.deepEqual(named({}, 0, 0), ["layer 7 head 0", "layer 7 head 1"]);
});
test("two long texts are named by where they part", () => {
    const begin = "The animal did not cross the street because it was too";
    assert.deepEqual(text.distinctTexts(`${begin} tired`, `${begin} wide`), ["…it was too tired", "…it was too wide"]);
});
test("a token is found in another text by its place between words that stay, else by its name", () => {
    const tokens = (words) => words.split(" ").map((word) => ({ text: word }));
    const place = (before, after, index) => text.sameToken(tokens(before), tokens(after), index);
    assert.equal(place("the cat was tired .", "the cat was hungry .", 1), 1);
    assert.equal(place("the cat was tired .", "the cat was hungry .", 3), 3);
    assert.equal(place("the cat was tired .", "the cat was very tired .", 3), 4);
    assert.equal(place("the cat was tired .", "a cat slept", 1), 1);
    assert.equal(place("the cat was tired .", "a dog slept here", 3), null);
    assert.equal(place("the cat", "the cat", null), null);
});
test("a token of nothing but a variation selector is named", () => {
    assert.equal(text.label("\ufe0f"), "⟨U+FE0F⟩");
    assert.equal(text.label("❤\ufe0f"), "❤\ufe0f");
});
test("words that a text has more than once are numbered, wherever a part of it begins", () => {
    const tokens = "John gave to john a to"
        .split(" ")
        .map((word, n) => ({ text: n ? ` ${word}` : word, special: false, word: n }));
    const names = (query) =>
        text.groupTokens(tokens, "", { words: false, special: true, from: 0, to: 6, ...query }).map(({ name }) => name);
    assert.deepEqual(names({}), ["John:1", "gave", "to:1", "john:2", "a", "to:2"]);
    assert.deepEqual(names({ from: 3, words: true }), ["john:2", "a", "to:2"]);
    assert.equal(text.tokenName(tokens, 5), "to:2");
});
test("brackets count however a keyboard makes them", () => {
    const bindings = [{ keys: ["[", "]"], description: "", action() {} }];
    const pressed = (more) =>
        keys.findBinding(bindings, {
            key: "]",
            target: null,
            ctrlKey: false,
            altKey: false,
            metaKey: false,
            getModifierState: () => false,
            ...more,
        });
    assert.equal(
        pressed({ ctrlKey: true, altKey: true, getModifierState: (name) => name === "AltGraph" }),
        bindings[0],
    );
    assert.equal(pressed({ altKey: true }), bindings[0]); // Option
    assert.deepEqual([pressed({ ctrlKey: true }), pressed({ metaKey: true })], [undefined, undefined]);
});
test("means have a scale, and single cells another", async () => {
    const map = new tiles.RemoteTiles(
        async ({ row1, col1, bin_size }, _, pool = "mean") =>
            new Float32Array((row1 / bin_size) * (col1 / bin_size)).fill(pool === "max" ? 1 : 0.125),
        { rows: 512, cols: 512 },
        () => {},
        assert.fail,
    );
    await map.overview(new AbortController().signal, "mean");
    assert.deepEqual([map.pooledMax, map.cellMax], [0.125, 1]);
});
test("bars go up and down from the middle, the longest to the edge", () => {
    const bars = cellView.barLayout([2, -1, null, NaN], 64);
    assert.deepEqual(
        bars.map(({ y, height, isUp }) => [y, height, isUp]),
        [
            [2, 30, true],
            [32, 15, false],
            [32, 0.4, true],
            [32, 0.4, true],
        ],
    );
});
test("heads that an edit does not change are not named", () => {
    assert.deepEqual(
        ablation.mostChangedHeads([
            [0, 0],
            [0.1, 0.3],
        ]),
        [
            { layer: 1, head: 1, value: 0.3 },
            { layer: 1, head: 0, value: 0.1 },
        ],
    );
});
test("a page that is closed gives up the tiles that are on their way", () => {
    const signals = [];
    const tile = (part, signal) => new Promise(() => signals.push(signal));
    const pyramid = new tiles.RemoteTiles(
        tile,
        { rows: 600, cols: 600 },
        () => {},
        () => {},
    );
    const closing = new queries.Queries({ setBusy() {}, controller: new AbortController() });
    closing.client.named("maps").last.data = { sides: [{ pyramid }], difference: null, pooledMax: 1, cellMax: 1 };
    pyramid.tile(0, 1, 1);
    closing.close();
    assert.deepEqual(
        signals.map(({ aborted }) => aborted),
        [true],
    );
});

test("a query has what was chosen, and leaves out what is the default", () => {
    const run = { attribution: { target: "token", has_positions: true }, tokens: Array(5) };
    const query = (more, other = run) => attribution.attributionQuery({ ...state.INITIAL_STATE, ...more }, other);
    assert.deepEqual(query({}), {});
    assert.deepEqual(query({ attributionMethod: "relevance", targetToken: 7 }), { method: "relevance", token: 7 });
    assert.deepEqual(query({ target: " Paris", targetToken: 7 }), { to: " Paris" });
    assert.deepEqual(query({ afterRow: true, row: 2 }), { position: 2 });
    assert.deepEqual(query({ afterRow: true, row: 4 }), {}); // the last token, which is the default
    assert.deepEqual(query({ row: 2 }), {});
    const encoder = { attribution: { target: "text", has_positions: false }, tokens: Array(5) };
    assert.deepEqual(query({ afterRow: true, row: 2, targetToken: 7 }, encoder), {});
});
test("a page in a file answers for its default target, and names the server for any other", () => {
    const gradient = { token: 5, to: null, likely: [{ token: 5, text: "f" }] };
    const held = { gradient, relevance: { error: "no slope" } };
    const titles = { gradient: "Gradient", relevance: "Relevance", integrated: "Integrated gradients" };
    const answer = (query, of = held) => attribution.heldAttribution(of, query, "gradient", titles);
    assert.equal(answer({}), gradient);
    assert.equal(answer({ method: "gradient", token: 5 }), gradient);
    assert.equal(answer({ to: "f" }), gradient);
    assert.throws(() => answer({ to: "g" }), /default target alone: regard explore without -o has all/);
    assert.throws(() => answer({ token: 6 }), /default target alone/);
    assert.throws(() => answer({ position: 2 }), /default target alone/);
    assert.throws(() => answer({ method: "relevance" }), /^Error: no slope$/);
    assert.throws(() => answer({ method: "relevance", to: "g" }), /default target alone/);
    assert.throws(
        () => answer({ method: "integrated" }),
        /holds Gradient, Relevance, not Integrated gradients: regard/,
    );
    assert.throws(() => answer({}, {}), /holds no attribution, not Gradient/);
    const text = { gradient: { token: null, to: "a dog", likely: null } };
    assert.equal(answer({ to: "a dog" }, text), text.gradient);
    assert.throws(() => answer({ to: "a cat" }, text), /default target alone/);
});
test("a contribution has three digits of the largest, and its sign", () => {
    const shown = attribution.formatContribution;
    assert.deepEqual(
        [shown(3.244, 3.244, true), shown(-0.271, 3.244, true), shown(0.001, 3.244, true), shown(0, 3.244, true)],
        ["+3.24", "−0.27", "0.00", "0.00"],
    );
    assert.deepEqual([shown(27.6, 27.6, true), shown(1234, 1234, true)], ["+27.6", "+1234"]);
    assert.deepEqual([shown(0.00063, 0.00063, false), shown(2.5e-9, 2.5e-9, true)], ["0.000630", "+2.50·10⁻⁹"]);
    assert.equal(shown(0, 0, true), "0.00");
});
test("what mattered most is named beside what was attended to most", () => {
    const said = (scores, weights) =>
        attribution
            .strongestMessage(["a", "b", "c"], Float32Array.from(scores), weights && Float32Array.from(weights))
            .replace(/[\u2068\u2069]/g, "");
    assert.equal(said([0.1, -0.5, 0.2], [0.2, 0.1, 0.7]), "b mattered most; c was attended to most.");
    assert.equal(said([0.1, 0.5, 0.2], [0, 1, 0]), "b mattered most, and was attended to most.");
    assert.equal(said([0.1, 0.5, 0.2], null), "b mattered most.");
    assert.equal(said([0, 0, 0], [0, 1, 0]), "Nothing mattered: every contribution is 0.");
    assert.equal(attribution.indexOfLargest(Float32Array.of(0, -3, 2)), 1);
    assert.equal(attribution.wordMessage("b", "+0.5", 0.25), "\u2068b\u2069 contributed +0.5; attended to: 0.250");
    assert.equal(attribution.wordMessage("b", "+0.5", null), "\u2068b\u2069 contributed +0.5");
});
test("a message becomes a sentence", () => {
    assert.equal(attribution.sentence("'a b' is 2 tokens: choose one"), "'a b' is 2 tokens: choose one.");
    assert.equal(attribution.sentence("there is no token 9…"), "There is no token 9…");
});
test("what a word attends to is named with its head", () => {
    const said = (...args) => messages.attendedMessage(...args).replace(/[\u2068\u2069]/g, "");
    assert.equal(said("raw", ["it"], "Layer 3 · Head 1"), "it attends to, Layer 3 · Head 1");
    assert.equal(said("norms", ["a", "b", "c", "d"], "Layer 0"), "a + b + c + … receive from, Layer 0");
});
test("a target is kept in the address, up to 2,000 characters", () => {
    const chosen = {
        attribution: true,
        attributionMethod: "relevance",
        target: " Paris & #1",
        targetToken: 3,
        afterRow: true,
    };
    const read = url.decode(url.encode({ ...state.INITIAL_STATE, ...chosen }));
    for (const [name, value] of Object.entries(chosen)) assert.deepEqual(read[name], value);
});
test("ticks are round numbers up to the largest value", () => {
    const { ticksUpTo } = curves;
    assert.deepEqual(ticksUpTo(600, 6), [0, 100, 200, 300, 400, 500, 600]);
    assert.deepEqual(ticksUpTo(4.17, 3), [0, 2, 4]);
    assert.deepEqual(ticksUpTo(0.03, 3), [0, 0.01, 0.02, 0.03]);
    assert.deepEqual(ticksUpTo(1, 7), [0, 0.2, 0.4, 0.6, 0.8, 1]);
    assert.deepEqual(ticksUpTo(0, 3), [0]);
});

test("a curve is interrupted where a value is missing", () => {
    const points = [1, 2, null, 4, null].map((y, x) => ({ x, y }));
    assert.equal(curves.pathThrough(points), "M0.0 1.0L1.0 2.0M3.0 4.0");
    assert.equal(curves.pathThrough([]), "");
});

test("labels at the ends of curves keep apart and inside", () => {
    const frame = { left: 0, right: 0, top: 0, bottom: 100 };
    assert.deepEqual(curves.spreadLabels([50, 10, 52], 13, frame), [50, 10, 63]);
    assert.deepEqual(curves.spreadLabels([99, 98, 100], 13, frame), [87, 74, 100]);
    assert.deepEqual(curves.spreadLabels([], 13, frame), []);
});

test("the checkpoint of a step is the last one before it", () => {
    const { checkpointIndex } = sides;
    const checkpoints = [0, 20, 40].map((step, n) => ({ step, run: 2 * n }));
    const indices = [null, 0, 19, 20, 39, 1000].map((checkpoint) => checkpointIndex({ checkpoint }, { checkpoints }));
    assert.deepEqual(indices, [2, 0, 0, 1, 1, 2]);
    assert.equal(checkpointIndex({ checkpoint: 3 }, { checkpoints: checkpoints.slice(1) }), 0);
    assert.equal(curves.nearestIndex([0, 20, 40], 31), 2);
});

test("the run of a checkpoint is shown, and its ablation with it alone", () => {
    const run = runOf(1, 2, 3);
    const manifest = {
        ...manifestOf(run),
        runs: [run, run, { ...run, base_run: 1 }, run],
        training: { checkpoints: [0, 20, 40].map((step, n) => ({ step, run: [0, 1, 3][n] })) },
    };
    const normalized = (change) => state.normalize({ ...state.INITIAL_STATE, ...change }, manifest);
    assert.deepEqual(sides.runsOf(normalized({}), manifest), [3]);
    assert.deepEqual(sides.runsOf(normalized({ checkpoint: 25 }), manifest), [1]);
    assert.equal(normalized({ checkpoint: 25 }).checkpoint, 20);
    assert.equal(normalized({}).ablatedRun, 0);
    const edited = normalized({ checkpoint: 20, ablated: [[0, 1]], editedRun: 2 });
    assert.deepEqual(sides.runsOf(edited, manifest), [1, 2]);
    const moved = state.normalize({ ...edited, checkpoint: null }, manifest);
    assert.deepEqual([moved.editedRun, moved.ablatedRun, moved.ablated], [null, 3, [[0, 1]]]);
    assert.equal(
        state.normalize({ ...state.INITIAL_STATE, checkpoint: 20 }, { ...manifest, training: undefined }).checkpoint,
        null,
    );
    assert.equal(url.decode(url.encode({ ...state.INITIAL_STATE, checkpoint: 20 })).checkpoint, 20);
});
