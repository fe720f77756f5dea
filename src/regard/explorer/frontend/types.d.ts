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

/** without its format */
type FigureQuery = Omit<Parameters<Source["figure"]>[0], "format">;

/** What a page in a file answers; null for what it cannot know. */
type HeldAnswers = {
  [Q in keyof Source]?: (
    params: NonNullable<Parameters<Source[Q]>[0]>,
  ) => Promise<Awaited<ReturnType<Source[Q]>> | null>;
};

/** Resolves to a Float32Array or a Uint8Array for a binary response, else to the JSON value. */
type Transport = (method: string, params: Record<string, any>, signal?: AbortSignal) => Promise<any>;

// index.html

/** The elements of the page by their `data-ref`; `tests/explorer/test_markup.py` compares them. */
interface Refs {
  live: HTMLElement;
  liveBox: HTMLTemplateElement;
  liveModel: HTMLSelectElement;
  liveInput: HTMLTextAreaElement;
  liveRun: HTMLButtonElement;
  liveMenu: HTMLDetailsElement;
  liveRecent: HTMLElement;
  liveStatus: HTMLElement;
  compareText: HTMLButtonElement;
  liveB: HTMLElement;
  liveModelB: HTMLSelectElement;
  liveInputB: HTMLTextAreaElement;
  liveRunB: HTMLButtonElement;
  closeB: HTMLButtonElement;
  liveStatusB: HTMLElement;
  aligned: HTMLElement;
  text: HTMLElement;
  places: HTMLElement;
  views: HTMLElement;
  searchInput: HTMLInputElement;
  matchCount: HTMLElement;
  special: HTMLInputElement;
  words: HTMLInputElement;
  byRow: HTMLInputElement;
  firstToken: HTMLInputElement;
  lastToken: HTMLInputElement;
  allTokens: HTMLButtonElement;
  showIntro: HTMLInputElement;
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
  followSwitch: HTMLElement;
  follow: HTMLInputElement;
  followStatus: HTMLElement;
  classMenu: HTMLDetailsElement;
  classAddress: HTMLElement;
  classCode: HTMLElement;
  classQr: HTMLElement;
  classStatus: HTMLElement;
  presentButton: HTMLButtonElement;
  themeButton: HTMLButtonElement;
  helpButton: HTMLButtonElement;
  training: HTMLElement;
  curves: HTMLElement;
  trainingBar: HTMLElement;
  checkpoint: HTMLInputElement;
  checkpointText: HTMLOutputElement;
  newest: HTMLButtonElement;
  trainingStatus: HTMLElement;
  stories: HTMLDetailsElement;
  storyList: HTMLElement;
  story: HTMLElement;
  storyName: HTMLElement;
  closeStory: HTMLButtonElement;
  storyTitle: HTMLElement;
  storyProse: HTMLElement;
  storyChoices: HTMLElement;
  storyForm: HTMLFormElement;
  storyNumber: HTMLInputElement;
  storyVerdict: HTMLElement;
  storyReveal: HTMLElement;
  storyBack: HTMLButtonElement;
  storyNext: HTMLButtonElement;
  storyShow: HTMLButtonElement;
  intro: HTMLElement;
  introText: HTMLElement;
  introExamples: HTMLElement;
  closeIntro: HTMLButtonElement;
  nextLine: HTMLElement;
  main: HTMLElement;
  wordBar: HTMLElement;
  headsSides: HTMLElement;
  headSides: HTMLElement;
  movementSides: HTMLElement;
  modelSides: HTMLElement;
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
  modes: HTMLSelectElement;
  drawings: HTMLElement;
  more: HTMLDetailsElement;
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
  why: HTMLElement;
  contrast: HTMLElement;
  whySum: HTMLElement;
  whyPairs: HTMLElement;
  whatIf: HTMLElement;
  knobs: HTMLTableElement;
  restoreScores: HTMLButtonElement;
  whatFollows: HTMLElement;
  changedContext: HTMLElement;
  whatIfOutputs: HTMLElement;
  whatIfTokens: HTMLTableElement;
  steps: HTMLElement;
  titleA: HTMLElement;
  columnB: HTMLElement;
  titleB: HTMLElement;
  stepsB: HTMLElement;
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
  clearLines: HTMLButtonElement;
  pathsSides: HTMLElement;
  pathsToken: HTMLSelectElement;
  pathsVersus: HTMLSelectElement;
  corrupted: HTMLInputElement;
  pathsStatus: HTMLElement;
  pathsSummary: HTMLElement;
  pathsGraph: HTMLElement;
  pathsTree: HTMLElement;
  patchTokens: HTMLElement;
  patchToken: HTMLSelectElement;
  patchVersus: HTMLSelectElement;
  cancelPatching: HTMLButtonElement;
  startPatching: HTMLButtonElement;
  patchingStatus: HTMLElement;
  patchingProgress: HTMLElement;
  patchingSummary: HTMLElement;
  patchingGrid: HTMLElement;
  patchingLegend: HTMLElement;
  patchingReadout: HTMLElement;
  patchingCode: HTMLTextAreaElement;
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
  characterKeys: HTMLInputElement;
  wheelKey: HTMLElement;
}

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
type HeldAttributions = Record<string, Attribution | Failure>;

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
  /** a text that the page runs itself and compares with; empty: that of the second given run, if there is one */
  textB: string;
  modelB: string;
  /** its run, which is then B; null until it has run */
  liveRunB: number | null;
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
  /** whether the panel of why a token attends to another is open */
  why: boolean;
  /** it is of the difference to the strongest other key */
  contrast: boolean;
  /** whether the panel of other scores is open */
  whatIf: boolean;
  /** other scores of the keys of one row */
  changedScores: ChangedScores | null;
  /** the id of the next token whose paths are shown; null, or one that is not likely: the likeliest */
  pathsToken: number | null;
  /** that of another, whose logit is subtracted */
  pathsVersus: number | null;
  /** the text that the paths are compared with; empty: that of B, or the means over the tokens */
  corrupted: string;
  /** the step of A that is put into the run of B */
  patchOver: "output" | "attn" | "mlp" | "head";
  /** the ids of the next tokens whose logits are compared; null: the likeliest */
  patchToken: number | null;
  patchVersus: number | null;
  /** the key of the story that is told; empty: none */
  story: string;
  /** its step, from 0 */
  part: number;
  /** large type, words and map only, where one head is shown */
  presenter: boolean;
}

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

type AblationResult = Ablation & AblationChoice;

type Predictions = { now: NextTokens; before: NextTokens | null; lens: Lens | null };

/** of a text that was run */
type LiveAnswer = { run: number; metadata: Run };

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
  answer: Attribution | null;
  error: string;
  /** of the words */
  scores: Float32Array | null;
  attended: Attended | null;
  theme: Theme;
}

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

/** the elements of a text that can be run, of A or of B */
type LiveRefs = {
  input: HTMLTextAreaElement;
  model: HTMLSelectElement;
  run: HTMLButtonElement;
  status: HTMLElement;
};

// views/map-view.js

/** `cellMax` ends the scale of single cells; the viewport is null for the whole map. */
type MapProps = Omit<Scene, "viewport" | "table" | "colors" | "plotArea"> & {
  viewport: Viewport | null;
  cellMax: number;
  message: (row: number, col: number, value: number | null) => string;
};

type MapActions = {
  selectCell: (row: Group, col: Group) => void;
  openCell: () => void;
  /** In the state: a second click may come before the first is drawn. */
  isSelected: (row: Group, col: Group) => boolean;
  addCell: (row: Group, col: Group) => void;
  saveViewport: (viewport: Viewport | null) => void;
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
  predictions: Predictions | null;
  /** a token may be appended to the text */
  canContinue: boolean;
  error: string;
}

// views/story-panel.js

type StoryActions = {
  goTo: (story: string, part: number) => void;
  open: (address: string) => void;
  close: () => void;
  /** what is chosen on the page: its query and its key */
  chosenWords: () => string[];
};

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
