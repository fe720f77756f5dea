// The types of the page: the state, and what the views are given; `queries.d.ts` has what Python sends. Nothing of them is
// loaded, and every module knows them without an import.

// data/source.js

type Run = RunDescription;

interface Manifest {
  /** runs that are compared: without those of ablations and checkpoints */
  numGivenRuns?: number;
}

type Numbers = (number | null)[];

type Vector = Numbers | null;

/** of each layer and head */
type HeadValues = Numbers[];

type Region = {
  mode: string;
  row0: number;
  row1: number;
  col0: number;
  col1: number;
  bin_size: number;
  pool: "max" | "mean";
};

/** of one run */
type Movement = {
  explained_variance_ratio: number[];
  points: number[][][];
  stages: string[];
  left_out: number[];
  note: string;
};

/** what is drawn, without how */
type FigureQuery = Omit<Parameters<Source["figure"]>[0], "format" | "width" | "caption">;

/** What a page in a file answers; null for what it cannot know. */
type HeldAnswers = {
  [Q in keyof Source]?: (
    params: NonNullable<Parameters<Source[Q]>[0]>,
  ) => Promise<Awaited<ReturnType<Source[Q]>> | null>;
};

/** Resolves to a Float32Array or a Uint8Array for a binary response, else to the JSON value. */
type Transport = (method: string, params: Record<string, any>, signal?: AbortSignal) => Promise<any>;

// data/tokens.js

/** A row or column of a map: a token, or the tokens of one word. */
type Group = {
  members: number[];
  label: string;
  /** its label, numbered if other words read the same: to:2 */
  name: string;
  /** its whole text, numbered too */
  full: string;
  special: boolean;
};

/** Whether to merge words and to show special tokens; the half-open range of tokens. */
type TokenSelection = { words: boolean; special: boolean; from: number; to: number };

/** A place of two texts: a token of each, or of one alone. */
type TokenPair = { a: number | null; b: number | null; isChanged: boolean };

// data/cell.js

type Cell = RecordedCell & { products: Vector; score_raw: number | null; weighted_value: Vector };

// data/attribution.js

/** without what is the default */
type AttributionQuery = Omit<Parameters<Source["attribution"]>[0], "run">;

/** of the default target, by method */
type HeldAttributions = Record<string, Attribution | { error: string }>;

// data/matrix.js

type Matrix = { values: Float32Array; rows: number; cols: number };

// data/tile-source.js

type HeadRef = { run: number; layer: number; head: Head };

type TileRegion = { row0: number; row1: number; col0: number; col1: number; bin_size: number };

interface TileSource {
  rows: number;
  cols: number;
  levels: number;
  /** the largest absolute value of the overview */
  pooledMax: number;
  /** the largest absolute value of a single cell */
  cellMax: number;
  /** null until it is fetched */
  tile: (level: number, i: number, j: number) => Matrix | null;
  /** cancel the fetches of all other tiles */
  cancelExcept: (visible: Set<string>) => void;
  numPending: number;
  /** of values and their pixels */
  memory: { bytes: number; limit: number };
}

type Axes = { rows: Group[]; cols: Group[] };

interface MapData extends Axes {
  pyramid: TileSource;
  /** what is coloured: the same values, or normalized by row */
  colorPyramid: TileSource;
  /** of each row, the attention to tokens without a column */
  hiddenMass: Float32Array | null;
  /** tokens can be merged and left out */
  inMemory: boolean;
}

// data/query.js

/** `data` and `error` are null as long as neither has come, and where nothing is asked for. */
type Answer<T> = { readonly data: T | null; readonly error: Error | null; readonly isPending: boolean };

interface Ask {
  /** what Python answers */
  <Q extends keyof Source>(
    name: Q,
    params: NonNullable<Parameters<Source[Q]>[0]>,
  ): Answer<Awaited<ReturnType<Source[Q]>>>;
  /** what is made of answers; `question` is plain data that names it */
  <T>(
    name: string,
    question: unknown,
    queryFn: (signal: AbortSignal) => Promise<T>,
    options?: AskOptions<T>,
  ): Answer<T>;
}

type AskOptions<T> = {
  /** whether it is fetched now, if it is another question */
  mayStart?: boolean;
  /** its error stands in the bar, and not in a view */
  inBar?: boolean;
  /** what it changes is done again if it is asked for again */
  forgets?: boolean;
  /** what is done once, before it is shown */
  onData?: (data: T) => void;
  onError?: (error: Error) => void;
};

// app/presenter.js

/** `of` names what is drawn, if that is not done for each change; the first of the nodes then names the part. */
type Part = { nodes?: Element[]; answers?: Answer<any>[]; of?: unknown[]; draw: () => void };

type View = (ask: Ask) => Part | Part[] | null;

// data/map-data.js

type Extent = { rows: number; cols: number };

// state/state.js

type ViewName = (typeof import("./state/fields.js").VIEW_NAMES)[number];

type Side = "A" | "B" | "diff";

type Head = number | "mean";

type HeadChoice = { layer: number; head: Head };

/** each choice, by its name: the table in `state/fields.js` says what each is */
type State = { -readonly [K in keyof Fields]: Fields[K] extends Field<infer T> ? T : never };

type Fields = typeof import("./state/fields.js").FIELDS;

/** the key in the address, the initial value, and how it stands there; a field without the first and last is not there */
type Field<T> = readonly [string, T, Codec<T>?];

/** `undefined` for what is not valid */
type Codec<T> = { read: (text: string) => T | undefined; write: (value: T) => string };

/** A key and its score before the softmax; null: it is masked. */
type ChangedScore = [number, number | null];

interface ChangedScores {
  layer: number;
  head: number;
  row: number;
  scores: ChangedScore[];
}

// render/colormap.js

type Theme = "light" | "dark";

type Rgb = [number, number, number];

// render/curves.js

/** in pixels */
type Frame = { left: number; right: number; top: number; bottom: number };

// render/plane.js

/** in pixels */
type Size = { width: number; height: number };

type Point = { x: number; y: number };

type Box = { left: number; right: number; top: number; bottom: number };

interface Dot {
  token: number;
  /** of the run, A or B */
  side: 0 | 1;
  label: string;
  isSelected: boolean;
  /** the plane is fitted to it */
  isFitted: boolean;
  /** at each stage; y grows downwards */
  track: Point[];
}

interface PlaneScene {
  dots: Dot[];
  stage: number;
  /** index of the dot with the focus, or -1 */
  focused: number;
  viewport: Viewport;
  size: Size;
  colors: ThemeColors;
}

// render/scale.js

type ScaleKind = "linear" | "log";

/** `max` is the value at the end; a signed scale goes from -max to max. */
type Scale = { kind: ScaleKind; max: number; signed: boolean };

// render/scene.js

interface Scene {
  mapData: MapData;
  viewport: Viewport;
  scale: Scale;
  theme: Theme;
  colors: ThemeColors;
  table: Uint32Array;
  /** that are exact */
  decimals: number;
  /** of the cell, an index */
  row: number | null;
  col: number | null;
  /** the cells that heads are searched by, as indices */
  chosen: { row: number | null; col: number | null }[];
  rowsFound: Set<number>;
  colsFound: Set<number>;
  causal: boolean;
  /** of the words beside the map, in pixels */
  labelSize: number;
  plotArea: PlotArea;
}

/** of the cells, in pixels; `strip` is the width for the hidden mass */
type PlotArea = { left: number; top: number; width: number; height: number; strip: number };

type ThemeColors = Record<(typeof import("./render/scene.js").COLOR_NAMES)[number], string>;

/** of a canvas, or an SvgContext */
type Context2D = Pick<
  CanvasRenderingContext2D,
  | "save"
  | "restore"
  | "translate"
  | "rotate"
  | "beginPath"
  | "moveTo"
  | "lineTo"
  | "clip"
  | "fill"
  | "stroke"
  | "arc"
  | "fillRect"
  | "strokeRect"
  | "textAlign"
  | "textBaseline"
  | "direction"
  | "font"
  | "lineWidth"
  | "globalAlpha"
  | "imageSmoothingEnabled"
> & {
  fillStyle: any;
  strokeStyle: any;
  rect: (x: number, y: number, width: number, height: number) => void;
  roundRect: (x: number, y: number, width: number, height: number, radius: number) => void;
  fillText: (text: string, x: number, y: number) => void;
  measureText: (text: string) => { width: number };
  drawImage: (picture: HTMLCanvasElement, x: number, y: number, width: number, height: number) => void;
};

// render/viewport.js

/** column and row at the corner; pixels a cell */
type Viewport = { x: number; y: number; k: number };

// platform/color-scheme.js

type ColorScheme = {
  readonly matches: boolean;
  addEventListener: (type: "change", onChange: () => void, options: { signal: AbortSignal }) => void;
};

// platform/dom.js

/** `on` maps events to listeners, `style` properties to values, `data` names to data attributes; null and false are omitted. */
type Props = Record<string, any>;

// app/keybindings.js

type Binding = {
  keys: string[];
  disabled: boolean;
  action: (key: string) => void;
};

// app/queries.js

/** The values of a metric that is computed when it is chosen, and what is said of them. */
type LiveMetric = { values: HeadValues | null; message: string };

/** of the drawn heads of each drawn layer */
type LineMaps = LineLayer["drawn"][];

/** heads without output, and the run that they are of */
type AblationChoice = Pick<State, "ablated" | "ablatedRun">;

type Edits = { past: AblationChoice[]; future: AblationChoice[]; applied: AblationChoice; error: string };

type AblationResult = Ablation & AblationChoice;

type Predictions = { now: NextTokens; before: NextTokens | null; lens: Lens | null };

/** of a text that was run */
type LiveAnswer = { run: number; metadata: Run };

type Maps = { sides: MapData[]; difference: MapData | null; pooledMax: number; cellMax: number };

// views/attribution-panel.js

/** by whom, and the weight of each word */
type Attended = { name: string; quantity: string; weights: Float32Array };

// views/cell-view.js

/** a layer as its model numbers or names it */
type HeadName = { layer: number | string; head: Head };

type CellNames = {
  side: string;
  /** the query and the key */
  from: string;
  to: string;
  layer: number | string;
  head: Head;
  heads: number;
  kvHeads: number | null;
  mode: string;
  /** of every token */
  labels: string[];
};

// views/head-grid.js

type GridCell = { layer: number | "mean"; head: number | "mean"; node: HTMLButtonElement; caption: HTMLElement };

// views/lines-view.js

type LineLayer = { layer: number; name: string; drawn: { head: Head; map: Matrix }[] };

/** `column` counts from the left, where the keys of the first layer are. */
type LineWord = { column: number; index: number };

/** the keys of the first layer, and the queries of each */
type LinesProps = { columns: Group[][]; layers: LineLayer[] };

// views/live-text.js

type LiveRun = { text: string; model: string };

// views/map-view.js

/** `cellMax` ends the scale of single cells; the viewport is null for the whole map. */
type MapProps = Omit<Scene, "viewport" | "table" | "colors" | "plotArea"> & {
  viewport: Viewport | null;
  cellMax: number;
  message: (row: number, col: number, value: number | null) => string;
};

// views/memory-panel.js

/** of the maps that are shown */
type PageMemory = { bytes: number; limit: number };

// views/movement-view.js

/** of one run, A (0) or B (1) */
type Path = { movement: Movement; axis: Group[]; side: number; title: string };

// views/training-panel.js

type Shown = { training: Training; index: number; selection: HeadChoice };

/** `right` is the margin, for names of lines. */
type Chart = {
  node: HTMLElement;
  caption: HTMLElement;
  picture: SVGElement;
  size: { width: number; height: number };
  right: number;
};

// views/word-strip.js

interface StripProps {
  groups: Group[];
  /** of the words on the page */
  start: number;
  end: number;
  text: string;
  /** whose patches the words are */
  picture?: Picture | null;
  values: ArrayLike<number> | null;
  scale: Scale;
  theme: Theme;
  selected: Set<number>;
  format: (value: number) => string;
}

// views/zoom-view.js

type PointerPosition = { clientX: number; clientY: number; shiftKey?: boolean };

// classes that other modules name

type App = import("./app/app.js").App;
