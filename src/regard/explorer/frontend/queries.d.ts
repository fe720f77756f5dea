// The queries of the page and their answers: written by `python tests/make_query_types.py` from the annotations of the
// functions that `regard.explorer.query.query` decorates, which say what each is; and the elements of the page.

interface Ablation {
  run: number;
  metadata: RunDescription;
  changes: Changes;
}

interface RunDescription {
  title: string;
  model: string;
  text: string;
  tokens: Token[];
  picture: Picture | null;
  layers: Layer[];
  projection_key: string | null;
  thumbnail_size: number;
  num_sampled_rows: number | null;
  initial: Initial;
  distinctive: DistinctiveCell[];
  predicts_tokens: boolean;
  has_paths: boolean;
  has_patching: boolean;
  attribution: Attributable;
  base_run?: number;
}

interface Token {
  text: string;
  special: boolean;
  word: number | null;
  start: number;
  end: number;
}

interface Picture {
  rows: number;
  cols: number;
  height: number;
  width: number;
  pixels: string;
}

interface Layer {
  number: number | string;
  block: Block[] | null;
  name: string;
  heads: number;
  kv_heads: number | null;
  rows: number;
  cols: number;
  causal: boolean;
  row_sum_error: number | null;
  num_nonfinite_rows: number;
}

interface Block {
  from: number;
  to: number;
}

interface Initial {
  layer: number;
  head: number;
  row?: number;
  col?: number;
}

interface DistinctiveCell {
  layer: number;
  head: number;
  row: number;
  col: number;
  weight: number;
}

interface Attributable {
  blocked_by: string | null;
  method: string;
  target: "token" | "text";
  default_text: string | null;
  has_positions: boolean;
}

interface Changes {
  cosines: number[];
  next_tokens: ChangedToken[] | null;
  heads: number[][];
}

interface ChangedToken {
  token: string;
  before: number;
  after: number;
}

interface Attribution {
  method: string;
  metric: string;
  value: number;
  baseline_value: number | null;
  note: string;
  scores: number[];
  attended: number[];
  to: string | null;
  token: number | null;
  likely: PredictedToken[] | null;
}

interface PredictedToken {
  token: number;
  text: string;
  probability: number;
}

interface RecordedCell {
  q: (number | null)[] | null;
  k: (number | null)[] | null;
  v: (number | null)[] | null;
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
  output: (number | null)[] | null;
  output_length: number | null;
  row: RowTerms | null;
  terms: ValueTerms | null;
  ablated: boolean | null;
  embedding: (number | null)[] | null;
  source: string | null;
  rotated: boolean | null;
  rotation: RotatedPairs | null;
  projected: Projected | null;
  value_length: number | null;
  bias_note: string | null;
  mean: MeanTerms | null;
  rollout: RolloutTerms | null;
}

interface RowTerms {
  columns: number[];
  scores: (number | null)[];
  shifted: (number | null)[];
  weights: (number | null)[];
  max: number;
  sum: number;
}

interface ValueTerms {
  columns: number[];
  weights: (number | null)[];
  vectors: (number | null)[][];
  rest: (number | null)[];
}

interface RotatedPairs {
  i: number;
  j: number;
  distance: number;
  pairs: RotatedPair[];
}

interface RotatedPair {
  dims: number[];
  angle: number;
  q: number[][];
  k: number[][];
  product: number;
}

interface Projected {
  vector: (number | null)[] | null;
  attention: (number | null)[] | null;
  before: (number | null)[] | null;
  after: (number | null)[] | null;
  lengths: Record<string, number | null>;
  width: number;
  share: number | null;
  normed: boolean;
}

interface MeanTerms {
  heads: (number | null)[];
  sum: number | null;
  value: number | null;
}

interface RolloutTerms {
  mixed: number;
  before: number;
  total: number;
  value: number;
  columns: number[];
  means: (number | null)[];
  previous: (number | null)[];
}

interface HeadDifferences {
  largest: number[][];
  thumbnails: string;
  explanation: Explanation;
}

interface Explanation {
  key: string;
  title: string;
  unit?: string;
  description: string;
  caveat: string;
  source: string;
  live?: boolean;
}

interface FoundHeads {
  values: (number | null)[][];
}

interface TeacherView {
  version: number;
  address: string;
  run: TeacherRun | null;
}

interface TeacherRun {
  number: number;
  metadata: RunDescription;
}

interface HeadMetrics {
  metrics: Record<string, (number | null)[][]>;
}

interface Lens {
  position: number;
  token: number;
  text: string;
  layers: LensRow[];
}

interface LensRow {
  step: string;
  tokens: PredictedToken[];
  probability: number;
  rank: number;
}

interface Manifest {
  format: string;
  title: string;
  provenance: string;
  can: Can;
  live_models: string[];
  pairs: Pair[];
  stories: Story[];
  story: string | null;
  decimals: number | null;
  runs: RunDescription[];
  difference_blocked_by: string | null;
  metrics: Explanation[];
  modes: Explanation[];
  attribution_methods: AttributionMethod[];
  classroom: ClassPage | null;
  training?: Training;
  blobs?: Record<string, [number, number]>;
  cell_inputs?: Record<string, HeadFields>;
  heads_with_steps?: string;
}

interface Can {
  ablate: boolean;
  tiles: boolean;
  figures: boolean;
}

interface Pair {
  key: string;
  title: string;
}

interface Story {
  key: string;
  title: string;
  steps: StoryStep[];
}

interface StoryStep {
  title: string;
  prose: StoryBlock[];
  question: StoryQuestion | null;
  reveal: StoryBlock[];
  view: string | null;
  answer_view: string | null;
}

interface StoryBlock {
  is_item: boolean;
  spans: StorySpan[];
}

interface StorySpan {
  kind: string;
  text: string;
  address: string;
}

interface StoryQuestion {
  choices: StoryChoice[];
  number: number | null;
  tolerance: number;
  words: string[];
}

interface StoryChoice {
  spans: StorySpan[];
  is_right: boolean;
}

interface AttributionMethod {
  key: string;
  title: string;
  description: string;
  caveat: string;
  source: string;
  is_signed: boolean;
}

interface ClassPage {
  role: "teacher" | "pupil";
  address: string;
  code: string;
  qr: string[];
}

interface Training {
  is_live: boolean;
  end: number;
  loss: LossCurve;
  held_out: LossCurve;
  checkpoints: Checkpoint[];
  num_left_out: number;
  prominent: Record<string, number>;
  measures: Measure[];
}

interface LossCurve {
  steps: number[];
  values: number[];
  steps_per_point?: number;
}

interface Checkpoint {
  step: number;
  run: number;
  message: string;
}

interface Measure {
  key: string;
  title: string;
  description: string;
  values: (number | null)[][][];
  strongest: [number, number][];
}

interface HeadFields {
  head_dim: number;
  value_dim: number;
  scale: number;
  softcap: number | null;
  sink: number | null;
  kv_head: number | null;
  rotated: boolean | null;
}

interface Memory {
  runs: number;
  overviews: number;
  overviews_limit: number;
  process_peak: number | null;
}

interface Movements {
  explained_variance_ratio: number[];
  stages: string[];
  points: number[][][][];
  left_out: number[][];
  note: string;
}

interface NextTokens {
  position: number;
  tokens: PredictedToken[];
  rest: number;
  entropy: number;
  drawn: PredictedToken | null;
}

interface Patching {
  over: string;
  token: number | null;
  versus: number | null;
  is_default: boolean;
  likely: PredictedToken[];
  layers: number[];
  sender: [number, number] | null;
  receiver: [number, number] | null;
  metric: string;
  clean: number;
  corrupted: number;
  values: (number | null)[][];
  recovered: (number | null)[][];
  code: string;
}

interface Paths {
  position: number;
  token: number;
  versus: number | null;
  corrupted: string | null;
  is_default: boolean;
  summary: string;
  faithfulness: number;
  graph: PathGraph;
  tree: [number, number, boolean][];
}

interface PathGraph {
  width: number;
  height: number;
  box: [number, number];
  nodes: PathNode[];
  feet: [number, number][];
  edges: PathEdge[];
}

interface PathNode {
  label: string;
  kind: string;
  layer: number | null;
  head: number | null;
  token: number;
  x: number;
  y: number;
}

interface PathEdge {
  writer: number;
  reader: number;
  read_by: string;
  token: number;
  score: number;
  line: string;
}

interface Share {
  share: number;
  seconds_left: number | null;
}

interface ResidualStream {
  position: number;
  token: number | null;
  text: string | null;
  logit?: number | null;
  embeddings?: number | null;
  bias?: number | null;
  layers: StreamLayer[];
}

interface StreamLayer {
  attn: number | null;
  mlp: number | null;
  output: number | null;
  adds?: Added;
}

interface Added {
  heads: (number | null)[];
  attn: number | null;
  mlp: number | null;
}

interface NewRun {
  run: number;
  metadata: RunDescription;
}

interface StrongRows {
  texts: number;
  rows: StrongRow[];
}

interface StrongRow {
  text: string;
  row: number;
  col: number;
  query: string;
  key: string;
  weight: number;
  parts: [string, "" | "query" | "key"][];
}

interface Sweep {
  before: number;
  after: number[];
  token: number | null;
  text: string | null;
}

interface TrainingNews {
  training: Training;
  runs: NumberedRun[];
}

interface NumberedRun {
  number: number;
  metadata: RunDescription;
}

interface WhatIf {
  cosines: number[];
  next_tokens: ChangedToken[] | null;
  weights: number[];
}

interface Why {
  score: number;
  versus: number | null;
  pairs: ScorePair[];
  others: number;
  num_others: number;
  terms: Record<string, number>;
}

interface ScorePair {
  query: ScoreWriter;
  key: ScoreWriter;
  value: number;
}

interface ScoreWriter {
  label: string;
  kind: string;
  layer: number | null;
  head: number | null;
}

// prettier-ignore
interface Source {
  ablate: (params: { heads: [number, number][]; run?: number }, signal?: AbortSignal) => Promise<Ablation>;
  attribution: (params: { run: number; method?: string; to?: string; token?: number; position?: number }, signal?: AbortSignal) => Promise<Attribution>;
  cell: (params: { run: number; layer: number; head: number | "mean"; i: number; j: number; mode?: string }, signal?: AbortSignal) => Promise<RecordedCell>;
  column: (params: { run: number; layer: number; head: number | "mean"; j: number; mode?: string }, signal?: AbortSignal) => Promise<Float32Array<ArrayBuffer>>;
  differences: (params: { runs: number[] }, signal?: AbortSignal) => Promise<HeadDifferences>;
  figure: (params: { sides: [number, number, number | "mean" | "all"][]; format?: string; mode?: string; special?: boolean; words?: boolean; first?: number; end?: number; width?: string; caption?: boolean }, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>;
  find_heads: (params: { run: number; cells: [number, number][] }, signal?: AbortSignal) => Promise<FoundHeads>;
  follow: (params: { known: number }, signal?: AbortSignal) => Promise<TeacherView | null>;
  heads: (params: { run: number }, signal?: AbortSignal) => Promise<HeadMetrics>;
  lens: (params: { run: number; position?: number; token?: number }, signal?: AbortSignal) => Promise<Lens>;
  manifest: (params?: {}, signal?: AbortSignal) => Promise<Manifest>;
  memory: (params?: {}, signal?: AbortSignal) => Promise<Memory>;
  movement: (params: { runs: number[] }, signal?: AbortSignal) => Promise<Movements>;
  next_tokens: (params: { run: number; position?: number; temperature?: number; seed?: number }, signal?: AbortSignal) => Promise<NextTokens>;
  patching: (params: { run: number; other: number; over?: string; token?: number; versus?: number; sender?: [number, number]; receiver?: [number, number] }, signal?: AbortSignal) => Promise<Patching>;
  patching_figure: (params: { run: number; other: number; over?: string; token?: number; versus?: number; format?: string; width?: string; caption?: boolean }, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>;
  paths: (params: { run: number; position?: number; token?: number; versus?: number; corrupted?: string }, signal?: AbortSignal) => Promise<Paths>;
  progress: (params?: {}, signal?: AbortSignal) => Promise<Record<string, Share>>;
  publish: (params: { address: string; run?: number }, signal?: AbortSignal) => Promise<null>;
  residual_stream: (params: { run: number; position?: number; token?: number }, signal?: AbortSignal) => Promise<ResidualStream>;
  row: (params: { run: number; layer: number; head: number | "mean"; i: number; mode?: string }, signal?: AbortSignal) => Promise<Float32Array<ArrayBuffer>>;
  run_text: (params: { text: string; model?: string }, signal?: AbortSignal) => Promise<NewRun>;
  strongest_rows: (params: { run: number; layer: number; head: number | "mean"; pair?: string; count?: number }, signal?: AbortSignal) => Promise<StrongRows>;
  sweep: (params: { run: number; layer: number; position?: number; token?: number }, signal?: AbortSignal) => Promise<Sweep>;
  thumbnails: (params: { run: number }, signal?: AbortSignal) => Promise<Uint8Array<ArrayBuffer>>;
  tile: (params: { run: number; layer: number; head: number | "mean"; mode?: string; row0: number; row1: number; col0: number; col1: number; bin_size: number; pool?: "max" | "mean" }, signal?: AbortSignal) => Promise<Float32Array<ArrayBuffer>>;
  training: (params?: { known?: number }, signal?: AbortSignal) => Promise<TrainingNews>;
  what_if: (params: { run: number; layer: number; head: number; i: number; scores: [number, number | null][] }, signal?: AbortSignal) => Promise<WhatIf>;
  why: (params: { run: number; layer: number; head: number | "mean"; i: number; j: number; contrast?: boolean }, signal?: AbortSignal) => Promise<Why>;
}

/** by their `data-ref` */
// prettier-ignore
type Refs =
  Record<"ablation" | "ablationStatus" | "afterRow" | "aligned" | "attended" | "attendedLegend" |
  "attributionControls" | "attributionDescription" | "attributionReadout" | "attributionResult" | "attributionStatus"
  | "cell" | "cellHead" | "cellSearch" | "cellSide" | "cellSource" | "cellTitle" | "cells" | "cellsStatus" |
  "changedContext" | "changedHeads" | "changes" | "changesNote" | "changesSides" | "changesTitle" | "classAddress" |
  "classCode" | "classQr" | "classStatus" | "collapse" | "columnB" | "contrast" | "corpus" | "curves" | "displayNote"
  | "drawings" | "errorBar" | "errorText" | "figureNote" | "followStatus" | "followSwitch" | "grid" | "headCount" |
  "headSides" | "headsName" | "headsSides" | "intro" | "introExamples" | "introTerms" | "introText" | "legend" |
  "lensRows" | "lensToken" | "likely" | "lines" | "linesNote" | "linesReadout" | "linesSides" | "live" | "liveB" |
  "liveMessage" | "liveRecent" | "liveRegion" | "liveStatus" | "liveStatusB" | "main" | "map" | "matchCount" |
  "mattered" | "matteredLegend" | "memoryText" | "metricDescription" | "metricField" | "minCosine" | "modeDescription"
  | "model" | "modelHeading" | "modelSides" | "movementBar" | "movementLegend" | "movementSides" | "movementText" |
  "nextControls" | "nextHeading" | "nextLine" | "nextList" | "nextTokens" | "patchHeads" | "patchTokens" |
  "patchingGrid" | "patchingLegend" | "patchingReadout" | "patchingStatus" | "patchingSummary" | "pathsGraph" |
  "pathsSides" | "pathsStatus" | "pathsSummary" | "pathsTree" | "places" | "plane" | "planeTokens" | "provenance" |
  "readout" | "rowsStatus" | "saveStatus" | "steps" | "stepsB" | "story" | "storyChoices" | "storyList" | "storyName"
  | "storyProse" | "storyReveal" | "storyTitle" | "storyVerdict" | "stream" | "streamNames" | "strongRows" |
  "targetName" | "temperatureText" | "text" | "textContainer" | "textNote" | "thresholdText" | "title" | "titleA" |
  "titleB" | "top" | "topHeading" | "training" | "trainingBar" | "trainingStatus" | "turnedWords" | "views" |
  "whatFollows" | "whatIf" | "whatIfOutputs" | "wheelKey" | "why" | "whyPairs" | "whySum" | "wordBar", HTMLElement> &
  Record<"ablateButton" | "addCell" | "allTokens" | "calculateButton" | "cancelPatching" | "cancelRows" | "clearLines"
  | "closeB" | "closeCell" | "closeHelp" | "closeIntro" | "closeStory" | "compareButton" | "compareText" |
  "figureSave" | "findHeads" | "helpButton" | "liveRun" | "liveRunB" | "newest" | "patchPath" | "presentButton" |
  "redoButton" | "restoreButton" | "restoreScores" | "retry" | "sample" | "startPatching" | "storyBack" | "storyNext"
  | "storyShow" | "themeButton" | "undoButton" | "unpin", HTMLElementTagNameMap["button"]> & Record<"classMenu" |
  "lensTable" | "liveMenu" | "memory" | "more" | "saveMenu" | "stories", HTMLElementTagNameMap["details"]> &
  Record<"help", HTMLElementTagNameMap["dialog"]> & Record<"figure", HTMLElementTagNameMap["fieldset"]> &
  Record<"storyForm", HTMLElementTagNameMap["form"]> & Record<"byRow" | "characterKeys" | "checkpoint" | "corrupted" |
  "figureCaption" | "firstToken" | "follow" | "lastToken" | "openCommand" | "searchInput" | "showIntro" | "special" |
  "stage" | "storyNumber" | "target" | "words" | "writtenCells", HTMLElementTagNameMap["input"]> &
  Record<"checkpointText" | "stageText", HTMLElementTagNameMap["output"]> & Record<"figureFormat" | "figureWidth" |
  "head" | "layer" | "liveModel" | "liveModelB" | "method" | "metric" | "modes" | "pair" | "patchReceiver" |
  "patchSender" | "patchToken" | "patchVersus" | "pathsToken" | "pathsVersus", HTMLElementTagNameMap["select"]> &
  Record<"changedTokens" | "knobs" | "whatIfTokens", HTMLElementTagNameMap["table"]> & Record<"knobRow" | "liveBox" |
  "stepTemplate" | "streamRow", HTMLElementTagNameMap["template"]> & Record<"figureCode" | "liveInput" | "liveInputB"
  | "patchingCode", HTMLElementTagNameMap["textarea"]>;
