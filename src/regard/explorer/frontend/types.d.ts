// The types of the page: what Python sends, the state, and what the views are given. Nothing of it is loaded, and every
// module knows them without an import.

// data/source.js

type Layer = {
  name: string;
  /** in the model, or a name of an encoder–decoder's */
  number: number | string;
  /** the tokens of its rows and of its columns; null: all */
  block: { from: number; to: number }[] | null;
  heads: number;
  kv_heads: number | null;
  rows: number;
  cols: number;
  causal: boolean;
  row_sum_error: number | null;
  num_nonfinite_rows: number;
};

/** red, green and blue, in base64 */
type Picture = { rows: number; cols: number; height: number; width: number; pixels: string };

type Run = {
  model: string;
  text: string;
  tokens: Token[];
  picture: Picture | null;
  layers: Layer[];
  projection_key: string | null;
  initial: { layer: number; head: number; row?: number; col?: number };
  attribution: Attributable;
  predicts_tokens: boolean;
  title?: string;
  base_run?: number;
  thumbnail_size: number;
  num_sampled_rows?: number | null;
};

type Explanation = {
  key: string;
  title: string;
  unit?: string;
  description: string;
  caveat: string;
  source: string;
  /** computed when it is chosen */
  live?: boolean;
};

/** `before` and `after` the ablation of each head of a layer: the probability of a token, or a cosine. */
type Sweep = { before: number; after: number[]; token: number | null; text: string | null };

/** `parts` are the query, the key and the text around them. */
type StrongRow = {
  text: string;
  row: number;
  col: number;
  query: string;
  key: string;
  weight: number;
  parts: [string, "" | "query" | "key"][];
};

type StrongRows = { texts: number; rows: StrongRow[] };

/** What each part writes into the residual stream, its length and what it adds to the logit, as `regard.explorer.residual_stream` has it. */
interface ResidualStream {
  position: number;
  /** null of a model that is no decoder, as all that it adds */
  token: number | null;
  text: string | null;
  logit?: number | null;
  embeddings?: number | null;
  bias?: number | null;
  layers: StreamLayer[];
}

/** Lengths, and what is added to the logit. */
interface StreamLayer {
  attn: number | null;
  mlp: number | null;
  output: number | null;
  adds?: { heads: (number | null)[]; attn: number | null; mlp: number | null };
}

interface Manifest {
  format: string;
  title: string;
  provenance: string;
  can: { ablate: boolean; tiles: boolean; figures: boolean };
  /** kinds of pairs that a corpus is searched for; none without one */
  pairs?: { key: string; title: string }[];
  /** that a text can be run with; none in a file */
  live_models: string[];
  decimals: number | null;
  runs: Run[];
  metrics: Explanation[];
  modes: Explanation[];
  attribution_methods: AttributionMethod[];
  difference_blocked_by?: string | null;
  /** the texts of A and B without their common beginning */
  distinct_texts: string[];
  /** of a file, in words */
  heads_with_steps?: string;
  /** of a training run, whose checkpoints are the runs */
  training?: Training;
  /** that are compared: without those of ablations and checkpoints */
  numGivenRuns?: number;
  /** of an exported page: first character and number of characters */
  blobs?: Record<string, [number, number]>;
  /** of an exported page */
  cell_inputs?: Record<string, HeadFields>;
}

/** `message`: its step and losses, in words */
type Checkpoint = { step: number; run: number; message: string };

/** `values` are those of every head at each checkpoint, C L H; `strongest` are the heads in which the last are largest. */
type Measure = {
  key: string;
  title: string;
  description: string;
  values: (number | null)[][][];
  strongest: [number, number][];
};

type LossCurve = { steps: number[]; values: number[]; steps_per_point?: number };

interface Training {
  /** more checkpoints may come */
  is_live: boolean;
  /** the last step, of a run that goes on the last planned one */
  end: number;
  loss: LossCurve;
  held_out: LossCurve;
  checkpoints: Checkpoint[];
  /** checkpoints of the run that the page does not have */
  num_left_out: number;
  /** the heads that stand out, `layer.head`: the first measure in which they do */
  prominent: Record<string, number>;
  measures: Measure[];
}

type TrainingNews = { training: Training; runs: { number: number; metadata: Run }[] };

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

/** of runs on one plane */
type Movements = {
  explained_variance_ratio: number[];
  points: number[][][][];
  stages: string[];
  left_out: number[][];
  note: string;
};

type HeadMetrics = { metrics: Record<string, (number | null)[][]> };

/** as `regard.explorer.exploration` describes it */
type HeadDifferences = { largest: number[][]; thumbnails: string; explanation: Explanation };

type NextToken = { token: string; before: number; after: number };

/** bytes */
type Memory = { runs: number; overviews: number; overviews_limit: number; process_peak: number | null };

/** `heads` has the largest change of a weight in each layer and head. */
type Ablation = {
  run: number;
  metadata: Run;
  changes: { cosines: number[]; next_tokens: NextToken[] | null; heads: number[][] };
};

type AttributionMethod = {
  key: string;
  title: string;
  description: string;
  caveat: string;
  source: string;
  is_signed: boolean;
};

/** What can be attributed in a run; only `blocked_by` if nothing can. */
type Attributable = {
  blocked_by: string | null;
  method: string;
  target: "token" | "text";
  default_text: string | null;
  has_positions: boolean;
};

type LikelyToken = { token: number; text: string; probability: number };

/** without what is the default */
type AttributionQuery = { method?: string; to?: string; token?: number; position?: number };

/** Sides are `run.layer.head`, A and B with _ between them; the head "all" stands for all heads. */
type FigureQuery = {
  sides: string;
  mode: string;
  special: boolean;
  words: boolean;
  first: number;
  end: number;
  width: string;
  caption: boolean;
};

type PredictedToken = { token: number; text: string; probability: number };

/** after the last token by default */
type NextTokensQuery = { position?: number; temperature?: number; seed?: number };

type NextTokens = {
  position: number;
  tokens: PredictedToken[];
  rest: number;
  entropy: number;
  drawn: PredictedToken | null;
};

type Lens = {
  position: number;
  token: number;
  text: string;
  layers: { step: string; tokens: PredictedToken[]; probability: number; rank: number }[];
};

interface Attribution {
  method: string;
  /** the number that is attributed, in words */
  metric: string;
  value: number;
  baseline_value: number | null;
  /** that integrated gradients do not add up yet; empty if they do */
  note: string;
  /** the contribution of each token */
  scores: number[];
  /** the weight of each token in the mean over layers and heads */
  attended: number[];
  to: string | null;
  token: number | null;
  likely: LikelyToken[] | null;
}

type Progress = { share: number; seconds_left: number | null };

interface Source {
  manifest: (signal?: AbortSignal) => Promise<Manifest>;
  heads: (run: number, signal?: AbortSignal) => Promise<HeadMetrics>;
  /** 0 to 255, L H t t; the manifest has t */
  thumbnails: (run: number, signal?: AbortSignal) => Promise<Uint8Array>;
  differences: (runs: number[], signal?: AbortSignal) => Promise<HeadDifferences>;
  tile: (run: number, layer: number, head: Head, region: Region, signal?: AbortSignal) => Promise<Float32Array>;
  row: (run: number, layer: number, head: Head, i: number, mode: string, signal?: AbortSignal) => Promise<Float32Array>;
  column: (
    run: number,
    layer: number,
    head: Head,
    j: number,
    mode: string,
    signal?: AbortSignal,
  ) => Promise<Float32Array>;
  cell: (
    run: number,
    layer: number,
    head: Head,
    i: number,
    j: number,
    mode: string,
    signal?: AbortSignal,
  ) => Promise<Cell>;
  movement: (runs: number[], signal?: AbortSignal) => Promise<Movements>;
  attribution: (run: number, query: AttributionQuery, signal?: AbortSignal) => Promise<Attribution>;
  /** of each computation that runs, by method */
  progress: (signal?: AbortSignal) => Promise<Record<string, Progress>>;
  /** of Python; null without it */
  memory: (signal?: AbortSignal) => Promise<Memory | null>;
  /** the runs of checkpoints from the number `known` on; null where none can come */
  training: (known: number, signal?: AbortSignal) => Promise<TrainingNews | null>;
  ablate: (heads: [number, number][], run: number, signal?: AbortSignal) => Promise<Ablation>;
  runText: (text: string, model: string, signal?: AbortSignal) => Promise<{ run: number; metadata: Run }>;
  nextTokens: (run: number, query: NextTokensQuery, signal?: AbortSignal) => Promise<NextTokens>;
  /** null where there is none */
  lens: (run: number, query: { position?: number }, signal?: AbortSignal) => Promise<Lens | null>;
  sweep: (run: number, layer: number, query: { position?: number }, signal?: AbortSignal) => Promise<Sweep>;
  findHeads: (run: number, cells: [number, number][], signal?: AbortSignal) => Promise<{ values: HeadValues }>;
  strongestRows: (run: number, layer: number, head: Head, pair: string, signal?: AbortSignal) => Promise<StrongRows>;
  residualStream: (run: number, query: { position?: number }, signal?: AbortSignal) => Promise<ResidualStream>;
  /** the bytes of the file */
  figure: (query: FigureQuery & { format: string }, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>;
}

/** Resolves to a Uint8Array for a binary response, else to the JSON value. */
type Transport = (method: string, params: Record<string, any>, signal?: AbortSignal) => Promise<any>;

// index.html

/** The elements of the page by their `data-ref`; `tests/explorer/test_markup.py` compares them. */
interface Refs {
  live: HTMLElement;
  liveModel: HTMLSelectElement;
  liveInput: HTMLTextAreaElement;
  liveRun: HTMLButtonElement;
  liveMenu: HTMLDetailsElement;
  liveRecent: HTMLElement;
  liveStatus: HTMLElement;
  text: HTMLElement;
  tabs: HTMLElement;
  searchInput: HTMLInputElement;
  matchCount: HTMLElement;
  special: HTMLInputElement;
  words: HTMLInputElement;
  byRow: HTMLInputElement;
  firstToken: HTMLInputElement;
  lastToken: HTMLInputElement;
  allTokens: HTMLButtonElement;
  displayNote: HTMLElement;
  saveMenu: HTMLDetailsElement;
  figure: HTMLFieldSetElement;
  figureFormat: HTMLSelectElement;
  figureWidth: HTMLSelectElement;
  figureCaption: HTMLInputElement;
  figureSave: HTMLButtonElement;
  figureCode: HTMLTextAreaElement;
  figureNote: HTMLElement;
  openCommand: HTMLInputElement;
  saveStatus: HTMLElement;
  themeButton: HTMLButtonElement;
  helpButton: HTMLButtonElement;
  training: HTMLElement;
  curves: HTMLElement;
  trainingBar: HTMLElement;
  checkpoint: HTMLInputElement;
  checkpointText: HTMLOutputElement;
  newest: HTMLButtonElement;
  trainingStatus: HTMLElement;
  main: HTMLElement;
  headsSides: HTMLElement;
  headSides: HTMLElement;
  movementSides: HTMLElement;
  legend: HTMLElement;
  matteredLegend: HTMLElement;
  attendedLegend: HTMLElement;
  collapse: HTMLElement;
  metricField: HTMLElement;
  metric: HTMLSelectElement;
  thresholdText: HTMLElement;
  headCount: HTMLElement;
  headProgress: HTMLElement;
  metricDescription: HTMLElement;
  liveMessage: HTMLElement;
  grid: HTMLElement;
  title: HTMLElement;
  layer: HTMLSelectElement;
  head: HTMLSelectElement;
  modes: HTMLElement;
  compareButton: HTMLButtonElement;
  ablation: HTMLElement;
  ablateButton: HTMLButtonElement;
  restoreButton: HTMLButtonElement;
  undoButton: HTMLButtonElement;
  redoButton: HTMLButtonElement;
  ablationStatus: HTMLElement;
  ablationProgress: HTMLElement;
  map: HTMLElement;
  readout: HTMLElement;
  calculateButton: HTMLButtonElement;
  modeDescription: HTMLElement;
  unpin: HTMLButtonElement;
  textContainer: HTMLElement;
  textNote: HTMLElement;
  topHeading: HTMLElement;
  top: HTMLElement;
  cellSearch: HTMLElement;
  findHeads: HTMLButtonElement;
  addCell: HTMLButtonElement;
  writtenCells: HTMLInputElement;
  cellsStatus: HTMLElement;
  cells: HTMLElement;
  nextTokens: HTMLElement;
  nextHeading: HTMLElement;
  nextControls: HTMLElement;
  temperatureText: HTMLElement;
  sample: HTMLButtonElement;
  nextList: HTMLElement;
  lensTable: HTMLElement;
  lensToken: HTMLElement;
  lensRows: HTMLElement;
  attributionControls: HTMLElement;
  method: HTMLSelectElement;
  targetName: HTMLElement;
  target: HTMLInputElement;
  likely: HTMLElement;
  afterRow: HTMLElement;
  attributionStatus: HTMLElement;
  attributionResult: HTMLElement;
  attributionReadout: HTMLElement;
  mattered: HTMLElement;
  attended: HTMLElement;
  attributionDescription: HTMLElement;
  corpus: HTMLElement;
  pair: HTMLSelectElement;
  cancelRows: HTMLButtonElement;
  rowsProgress: HTMLElement;
  rowsStatus: HTMLElement;
  strongRows: HTMLElement;
  changes: HTMLElement;
  changesTitle: HTMLElement;
  changesSides: HTMLElement;
  changesNote: HTMLElement;
  changedHeads: HTMLElement;
  minCosine: HTMLElement;
  turnedWords: HTMLElement;
  changedTokens: HTMLTableElement;
  cell: HTMLElement;
  cellHead: HTMLElement;
  cellTitle: HTMLElement;
  closeCell: HTMLButtonElement;
  cellSide: HTMLElement;
  steps: HTMLElement;
  stepTemplate: HTMLTemplateElement;
  cellSource: HTMLElement;
  movementBar: HTMLElement;
  stage: HTMLInputElement;
  stageText: HTMLOutputElement;
  movementLegend: HTMLElement;
  plane: HTMLElement;
  planeTokens: HTMLElement;
  movementText: HTMLElement;
  model: HTMLElement;
  modelHeading: HTMLElement;
  stream: HTMLElement;
  streamNames: HTMLElement;
  headsName: HTMLElement;
  streamRow: HTMLTemplateElement;
  linesSides: HTMLElement;
  linesLayer: HTMLSelectElement;
  clearLines: HTMLButtonElement;
  linesNote: HTMLElement;
  lines: HTMLElement;
  linesReadout: HTMLElement;
  provenance: HTMLElement;
  memory: HTMLDetailsElement;
  memoryText: HTMLElement;
  errorBar: HTMLElement;
  errorText: HTMLElement;
  retry: HTMLButtonElement;
  liveRegion: HTMLElement;
  help: HTMLDialogElement;
  closeHelp: HTMLButtonElement;
  wheelKey: HTMLElement;
}

// data/tokens.js

/** `start` and `end` count UTF-16 code units of the text, as JavaScript does. */
type Token = { text: string; special: boolean; word: number | null; start: number; end: number };

/** A row or column of a map: a token, or the tokens of one word. */
type Group = { members: number[]; label: string; full: string; special: boolean };

/** Whether to merge words and to show special tokens; the half-open range of tokens. */
type TokenSelection = { words: boolean; special: boolean; from: number; to: number };

// data/cell.js

/** null within: not finite */
type Vector = (number | null)[] | null;

/** as `regard.explorer.cell` describes it */
type RecordedCell = {
  q: Vector;
  k: Vector;
  kv_head: number | null;
  scale: number | null;
  scaled: number | null;
  softcap: number | null;
  capped: number | null;
  bias: number | null;
  masked: boolean | null;
  biased: number | null;
  sink: number | null;
  sink_weight: number | null;
  lse: number | null;
  row_sum: number | null;
  weight: number | null;
  v: Vector;
  output: Vector;
  output_length: number | null;
  ablated: boolean;
  rotated: boolean | null;
  embedding: Vector;
  /** the scores and weights of the heaviest tokens of the row; null without scores */
  row: RowTerms | null;
  /** weight · value of the heaviest tokens, and of all others together; null without values */
  terms: { columns: number[]; weights: number[]; vectors: number[][]; rest: number[] | null } | null;
  /** the pairs of dimensions with the largest products; null where nothing rotates, or without a model */
  rotation: { i: number; j: number; distance: number; pairs: RotatedPair[] } | null;
  /** what the head and what all heads write into the stream, and the stream before and after it; null without a model */
  projected: Projected | null;
  /** of the value after W_O, in the mode "norms" */
  value_length: number | null;
  /** what each head has, of the mean of heads and in rollout; null of one head */
  mean: { heads: Vector; sum: number; value: number } | null;
  /** of the cell on the map of rollout; null without one, or in another mode */
  rollout: {
    mixed: number;
    before: number;
    total: number;
    value: number;
    columns: number[];
    means: number[];
    previous: number[];
  } | null;
  /** what the bias is, in words; null without one */
  bias_note: string | null;
  /** null of the mean of heads */
  source: string | null;
};

type Projected = {
  vector: Vector;
  attention: Vector;
  before: Vector;
  after: Vector;
  lengths: Record<string, number | null>;
  width: number;
  share: number | null;
  normed: boolean;
};

/** a query and a key, each before and after the rotation; `angle` is that of one token, in radians */
type RotatedPair = { dims: number[]; angle: number; q: number[][]; k: number[][]; product: number };

/** `max` is the largest score of the row, `sum` that of exp(score − max), with the sink */
type RowTerms = {
  columns: number[];
  scores: (number | null)[];
  shifted: (number | null)[];
  weights: number[];
  max: number;
  sum: number;
};

type Cell = RecordedCell & { products: Vector; score_raw: number | null; weighted_value: Vector };

type HeadFields = {
  head_dim: number;
  value_dim: number;
  scale: number;
  softcap: number | null;
  sink: number | null;
  kv_head: number;
  rotated: boolean | null;
};

// data/attribution.js

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

interface MapData {
  rows: Group[];
  cols: Group[];
  pyramid: TileSource;
  /** what is coloured: the same values, or normalized by row */
  colorPyramid: TileSource;
  /** of each row, the attention to tokens without a column */
  hiddenMass: Float32Array | null;
  /** tokens can be merged and left out */
  inMemory: boolean;
}

// data/map-data.js

type Extent = { rows: number; cols: number };

// state/state.js

type ViewName = (typeof import("./state/fields.js").VIEW_NAMES)[number];

type Side = "A" | "B" | "diff";

type Head = number | "mean";

type HeadChoice = { layer: number; head: Head };

interface State {
  view: ViewName;
  /** of A, and of B without a selection of its own */
  layer: number;
  head: Head;
  /** if B is another head, or of a model with other layers */
  selectionB: HeadChoice | null;
  /** the query token of the cell */
  row: number | null;
  /** its key token */
  col: number | null;
  side: Side;
  mode: string;
  metric: string;
  order: "layer" | "metric";
  /** heads below it are dimmed: a share of the range of the metric */
  threshold: number;
  /** rows of the grid shown as their mean */
  collapsedLayers: number[];
  /** columns of the grid shown as their mean */
  collapsedHeads: number[];
  /** merge the tokens of a word */
  words: boolean;
  /** show special tokens */
  special: boolean;
  log: boolean;
  /** normalize the colours of each row */
  byRow: boolean;
  pool: "max" | "mean";
  /** the first token shown */
  from: number | null;
  /** the token after the last */
  to: number | null;
  pins: number[];
  /** of the text panel: what a word attends to, or what attends to it */
  direction: "out" | "in";
  arcs: boolean;
  /** whether the panel of what mattered is open */
  attribution: boolean;
  /** empty: that of the model */
  attributionMethod: string;
  /** of the attribution, as text; empty: the default or the token */
  target: string;
  /** as the id of a next token */
  targetToken: number | null;
  /** the next token is that after the row */
  afterRow: boolean;
  query: string;
  /** of the movement */
  stage: number;
  theme: "auto" | "light" | "dark";
  /** null: the whole map */
  zoom: Viewport | null;
  /** (layer, head) */
  ablated: [number, number][];
  /** the run that they are ablated in: 0 or 1 */
  ablatedRun: number;
  /** the step of the one that is shown, of a training run; null: the newest */
  checkpoint: number | null;
  /** the run of that ablation, which is then B; valid until the server ends */
  editedRun: number | null;
  /** a text that the page runs itself; empty: that of the given runs */
  text: string;
  /** the name of what runs it */
  model: string;
  /** its run, which is then A; null until it has run */
  liveRun: number | null;
  /** whether the panel of what comes next is open */
  nextTokens: boolean;
  /** the cells that heads are searched by, (query, key); none: the chosen one */
  cells: [number, number][];
  /** the heads whose lines are drawn; null: the shown one, and of other layers the mean */
  lines: HeadChoice[] | null;
  /** lines are drawn in all layers, one after the other */
  chain: boolean;
  /** of the next token */
  temperature: number;
  /** whether the panel of a corpus is open */
  corpus: boolean;
  /** the kind of pairs that it is searched for */
  pair: string;
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

type AblationResult = Ablation & AblationChoice;

type Predictions = { now: NextTokens; before: NextTokens | null; lens: Lens | null };

type Maps = { sides: MapData[]; difference: MapData | null; pooledMax: number; cellMax: number };

// views/attribution-panel.js

/** by whom, and the weight of each word */
type Attended = { name: string; quantity: string; weights: Float32Array };

interface AttributionProps {
  state: State;
  run: Run;
  /** of two, else empty */
  side: string;
  /** the token that the next one follows; empty: the last */
  after: string;
  /** the words */
  groups: Group[];
  /** indices of words */
  selected: Set<number>;
  method: AttributionMethod;
  /** the last one */
  answer: Attribution | null;
  /** whether it is that of the choice */
  isCurrent: boolean;
  error: string;
  /** of the words */
  scores: Float32Array | null;
  attended: Attended | null;
  theme: Theme;
}

// views/cell-view.js

type Numbers = (number | null)[];

/** a layer as its model numbers or names it */
type HeadName = { layer: number | string; head: Head };

type CellNames = {
  side: string;
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

/** of each layer and head */
type HeadValues = (number | null)[][];

type GridCell = { layer: number | "mean"; head: number | "mean"; node: HTMLButtonElement; caption: HTMLElement };

// views/lines-view.js

type LineLayer = { layer: number; name: string; heads: Head[]; drawn: { head: Head; map: Matrix }[] };

/** `column` counts from the left, where the keys of the first layer are. */
type LineWord = { column: number; index: number };

type LinesProps = {
  /** the keys of the first layer, and the queries of each */
  columns: Group[][];
  titles: string[];
  layers: LineLayer[];
  /** indices on each column */
  pinned: Set<number>[];
  /** whether they are pinned as keys */
  isKey: boolean;
  scale: Scale;
  note: string;
};

// views/live-text.js

type LiveRun = { text: string; model: string };

// views/map-view.js

/** `cellMax` ends the scale of single cells; the viewport is null for the whole map. */
type MapProps = Omit<Scene, "viewport" | "table" | "colors" | "plotArea"> & {
  viewport: Viewport | null;
  cellMax: number;
};

type MapActions = {
  selectCell: (row: number, col: number) => void;
  openCell: () => void;
  /** In the state: a second click may come before the first is drawn. */
  isSelected: (row: number, col: number) => boolean;
  addCell: (row: number, col: number) => void;
  saveViewport: (viewport: Viewport | null) => void;
  message: (row: number, col: number, value: number | null) => string;
};

// views/memory-panel.js

/** of the maps that are shown */
type PageMemory = { bytes: number; limit: number };

// views/movement-view.js

/** of one run, A (0) or B (1) */
type Path = { movement: Movement; axis: Group[]; side: number; title: string };

// views/next-tokens-panel.js

interface NextTokensProps {
  /** the token that the next one follows */
  after: string;
  now: NextTokens | null;
  /** without the edit, where there is one */
  before: NextTokens | null;
  lens: Lens | null;
  temperature: number;
  /** a token may be appended to the text */
  canContinue: boolean;
  error: string;
}

// views/text-panel.js

/** `weights` has a value for each group: the attention from or to the `selected` ones. */
type TextProps = {
  groups: Group[];
  text: string;
  picture: Picture | null;
  weights: Float32Array | null;
  selected: Set<number>;
  pinned: Set<number>;
  found: Set<number>;
  scale: Scale;
  heading: string;
  theme: Theme;
  decimals: number;
  state: State;
};

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

type Query<T> = import("./data/query.js").Query<T>;
