"""The answers to the queries of the page, as types of plain data.

`frontend/queries.d.ts` has them for the page; ``python tests/make_query_types.py`` writes it.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict

Numbers: TypeAlias = list[float | None]  # None: not finite
Vector: TypeAlias = Numbers | None
HeadValues: TypeAlias = list[Numbers]  # of each layer and head


# The manifest and what it holds.


class Token(TypedDict):
    """A token; ``start`` and ``end`` count UTF-16 code units of the text, as JavaScript does."""

    text: str
    special: bool
    word: int | None
    start: int
    end: int


Block = TypedDict("Block", {"from": int, "to": int})


class MapFacts(TypedDict):
    """The map of a layer."""

    name: str
    heads: int
    kv_heads: int | None
    rows: int
    cols: int
    causal: bool
    row_sum_error: float | None
    num_nonfinite_rows: int


class Layer(MapFacts):
    """A layer and its map."""

    number: int | str  # in the model, or a name of an encoder–decoder's
    block: list[Block] | None  # the tokens of its rows and of its columns; None: all


class Picture(TypedDict):
    """What a model of images saw: red, green and blue in base64."""

    rows: int
    cols: int
    height: int
    width: int
    pixels: str


class Initial(TypedDict):
    """What the page opens with."""

    layer: int
    head: int
    row: NotRequired[int]
    col: NotRequired[int]


class DistinctiveCell(TypedDict):
    """A weight between two words that tells something of a text: the layer by its place, and both tokens."""

    layer: int
    head: int
    row: int
    col: int
    weight: float


class Attributable(TypedDict):
    """What can be attributed in a run; nothing if something blocks it."""

    blocked_by: str | None
    method: str
    target: Literal["token", "text"]
    default_text: str | None
    has_positions: bool


class RunDescription(TypedDict):
    """A run, without its maps."""

    title: str
    model: str
    text: str
    tokens: list[Token]
    picture: Picture | None
    layers: list[Layer]
    projection_key: str | None
    thumbnail_size: int
    num_sampled_rows: int | None
    initial: Initial
    distinctive: list[DistinctiveCell]  # the first is what the page opens with, if no head is asked for
    predicts_tokens: bool
    has_paths: bool
    has_patching: bool
    attribution: Attributable
    base_run: NotRequired[int]  # of an ablation


class Explanation(TypedDict):
    """A metric or a display mode, in words."""

    key: str
    title: str
    unit: NotRequired[str]
    description: str
    caveat: str
    source: str
    live: NotRequired[bool]  # computed when it is chosen


class AttributionMethod(TypedDict):
    """A method of attribution, in words."""

    key: str
    title: str
    description: str
    caveat: str
    source: str
    is_signed: bool


class Pair(TypedDict):
    """A kind of pairs that a corpus is searched for."""

    key: str
    title: str


class Can(TypedDict):
    """What the page can ask for."""

    ablate: bool
    tiles: bool
    figures: bool


class Checkpoint(TypedDict):
    """A checkpoint of a training run; ``message`` is its step and losses, in words."""

    step: int
    run: int
    message: str


class Measure(TypedDict):
    """What every head does at each checkpoint, ``C L H``; the heads that it is largest in at the last."""

    key: str
    title: str
    description: str
    values: list[HeadValues]
    strongest: list[tuple[int, int]]


class LossCurve(TypedDict):
    """The loss over the steps."""

    steps: list[int]
    values: list[float]
    steps_per_point: NotRequired[int]


class Training(TypedDict):
    """A training run, whose checkpoints are runs."""

    is_live: bool  # more checkpoints may come
    end: int  # the last step, or the last planned one
    loss: LossCurve
    held_out: LossCurve
    checkpoints: list[Checkpoint]
    num_left_out: int
    prominent: dict[str, int]  # the heads that stand out, ``layer.head``: the first measure in which they do
    measures: list[Measure]


class HeadFields(TypedDict):
    """The numbers that go with the arrays of `Exploration.cell_inputs`."""

    head_dim: int
    value_dim: int
    scale: float
    softcap: float | None
    sink: float | None
    kv_head: int | None
    rotated: bool | None


class StorySpan(TypedDict):
    """Some words of a story; those of a view have its address."""

    kind: str  # text, em, strong, code or view
    text: str
    address: str


class StoryBlock(TypedDict):
    """A paragraph of a story, or an item of a list."""

    is_item: bool
    spans: list[StorySpan]


class StoryChoice(TypedDict):
    """An answer to choose."""

    spans: list[StorySpan]
    is_right: bool


class StoryQuestion(TypedDict):
    """What a step asks: one of some choices, a number, or a word or cell of the page."""

    choices: list[StoryChoice]
    number: float | None
    tolerance: float
    words: list[str]  # of the query, and of the key of a cell


class StoryStep(TypedDict):
    """A step of a story; ``view`` and ``answer_view`` are addresses, before and after the answer."""

    title: str
    prose: list[StoryBlock]
    question: StoryQuestion | None
    reveal: list[StoryBlock]
    view: str | None
    answer_view: str | None


class Story(TypedDict):
    """A story; see `regard.explorer.story`."""

    key: str
    title: str
    steps: list[StoryStep]


class ClassPage(TypedDict):
    """Where a class looks at the page; of a pupil's page the role alone.

    ``qr`` has the rows of the QR code of the address with the code, a 1 for each dark module.
    """

    role: Literal["teacher", "pupil"]
    address: str
    code: str
    qr: list[str]


class Manifest(TypedDict):
    """What the page loads first."""

    format: str
    title: str
    provenance: str
    can: Can
    live_models: list[str]  # that a text can be run with
    pairs: list[Pair]  # none without a corpus
    stories: list[Story]
    story: str | None  # that the page opens with
    decimals: int | None
    runs: list[RunDescription]
    difference_blocked_by: str | None
    metrics: list[Explanation]
    modes: list[Explanation]
    attribution_methods: list[AttributionMethod]
    classroom: ClassPage | None
    training: NotRequired[Training]
    # For a page in a file:
    blobs: NotRequired[dict[str, tuple[int, int]]]  # first character and number of characters
    cell_inputs: NotRequired[dict[str, HeadFields]]
    heads_with_steps: NotRequired[str]  # in words


class TeacherRun(TypedDict):
    """A text that the teacher ran."""

    number: int
    metadata: RunDescription


class TeacherView(TypedDict):
    """What the teacher's page shows: the fragment of its address, and the run if it is not a given one."""

    version: int
    address: str
    run: TeacherRun | None


# Heads and maps.


class Share(TypedDict):
    """How far a computation is."""

    share: float
    seconds_left: float | None


class Memory(TypedDict):
    """Bytes held."""

    runs: int
    overviews: int
    overviews_limit: int
    process_peak: int | None


class HeadMetrics(TypedDict):
    """Metrics of every head, by key."""

    metrics: dict[str, HeadValues]


class HeadDifferences(TypedDict):
    """How every head differs between two runs."""

    largest: list[list[float]]
    thumbnails: str
    explanation: Explanation


class FoundHeads(TypedDict):
    """The mean weight of some cells in every head."""

    values: HeadValues


class StrongRow(TypedDict):
    """A row in which a head attends strongly; ``parts`` are the query, the key and the text around them."""

    text: str
    row: int
    col: int
    query: str
    key: str
    weight: float
    parts: list[tuple[str, Literal["", "query", "key"]]]


class StrongRows(TypedDict):
    """The rows in which a head attends most strongly."""

    texts: int
    rows: list[StrongRow]


class Movements(TypedDict):
    """The place of each token of some runs on one plane, at every stage: ``R L T 2``."""

    explained_variance_ratio: list[float]
    stages: list[str]
    points: list[list[list[list[float]]]]
    left_out: list[list[int]]  # of the fit
    note: str


# One weight.


class RowTerms(TypedDict):
    """The scores and weights of the heaviest tokens of a row.

    ``max`` is the largest score of the row, ``sum`` that of exp(score − max), with the sink.
    """

    columns: list[int]
    scores: Numbers
    shifted: Numbers
    weights: Numbers
    max: float
    sum: float


class ValueTerms(TypedDict):
    """Weight · value of the heaviest tokens, and of all others together."""

    columns: list[int]
    weights: Numbers
    vectors: list[Numbers]
    rest: Numbers


class RotatedPair(TypedDict):
    """A pair of dimensions of a query and a key, before and after the rotation; ``angle`` is that of one token."""

    dims: list[int]
    angle: float
    q: list[list[float]]
    k: list[list[float]]
    product: float


class RotatedPairs(TypedDict):
    """The pairs of dimensions with the largest products."""

    i: int
    j: int
    distance: int
    pairs: list[RotatedPair]


class Projected(TypedDict):
    """What a head and what all heads write into the stream, and the stream before and after it."""

    vector: Vector
    attention: Vector
    before: Vector
    after: Vector
    lengths: dict[str, float | None]
    width: int
    share: float | None
    normed: bool


class MeanTerms(TypedDict):
    """What each head has, of the mean of heads and in rollout."""

    heads: Numbers
    sum: float | None
    value: float | None


class RolloutTerms(TypedDict):
    """The terms of a cell on the map of rollout."""

    mixed: float
    before: float
    total: float
    value: float
    columns: list[int]
    means: Numbers
    previous: Numbers


class CellSteps(TypedDict):
    """The steps from a query and a key to a weight; see `regard.explorer.cell.cell`."""

    q: Vector
    k: Vector
    v: Vector
    kv_head: int | None
    scale: float | None
    scaled: float | None
    softcap: float | None
    capped: float | None
    bias: float | None
    masked: bool | None
    biased: float | None
    sink: float | None
    sink_weight: float | None
    lse: float | None
    row_sum: float | None
    weight: float | None
    output: Vector
    output_length: float | None
    row: RowTerms | None
    terms: ValueTerms | None
    ablated: bool | None
    embedding: Vector
    source: str | None


class RecordedCell(CellSteps):
    """One weight, step by step; None for what was not recorded, or is not of the map that is shown."""

    rotated: bool | None
    rotation: RotatedPairs | None
    projected: Projected | None
    value_length: float | None
    bias_note: str | None
    mean: MeanTerms | None
    rollout: RolloutTerms | None


class ScoreWriter(TypedDict):
    """What wrote into a residual stream; ``layer`` and ``head`` name the map of a head."""

    label: str
    kind: str
    layer: int | None
    head: int | None


class ScorePair(TypedDict):
    """What a writer of the query and a writer of the key add to a score together."""

    query: ScoreWriter
    key: ScoreWriter
    value: float


class Why(TypedDict):
    """A score as a sum of pairs, the largest of them and the ``others`` together; what ``terms`` add is not in it.

    With ``versus`` it is less the score of that key.
    """

    score: float
    versus: int | None
    pairs: list[ScorePair]
    others: float
    num_others: int
    terms: dict[str, float]


class PathNode(ScoreWriter):
    """A node of a graph of paths, with the token at which it stands and its center."""

    token: int
    x: float
    y: float


class PathEdge(TypedDict):
    """An edge between two nodes, by their places in the list; its line is a path of SVG.

    ``token`` is where most of it is read, ``score`` the estimate of how much the number falls without it.
    """

    writer: int
    reader: int
    read_by: str
    token: int
    score: float
    line: str


class PathGraph(TypedDict):
    """A graph of paths, in pixels from its upper left corner; ``feet`` are the tokens at which no edge begins."""

    width: float
    height: float
    box: tuple[float, float]
    nodes: list[PathNode]
    feet: list[tuple[int, float]]
    edges: list[PathEdge]


class Paths(TypedDict):
    """The paths behind a next token; ``tree`` is a row of depth, edge, and whether it is a repeat.

    ``is_default`` tells whether the corrupted text, or none, is what is compared with where none is named.
    """

    position: int
    token: int
    versus: int | None
    corrupted: str | None
    is_default: bool
    summary: str
    faithfulness: float
    graph: PathGraph
    tree: list[tuple[int, int, bool]]


class Patching(TypedDict):
    """What each step of A recovers in the run of B, ``L T`` or ``L H``; None where A and B have the same number.

    Of a path a row of three: by the query, the key and the value of the receiver. ``is_default`` tells whether the
    tokens are those of a question that names none.
    """

    over: str
    token: int | None
    versus: int | None
    is_default: bool
    likely: list[PredictedToken]  # after A or B, with the probability after one of them
    sender: tuple[int, int] | None  # of a path, layer and head
    receiver: tuple[int, int] | None
    metric: str
    clean: float
    corrupted: float
    values: HeadValues
    recovered: HeadValues
    code: str  # of Python, that computes it


# What a model computes from the text.


class PredictedToken(TypedDict):
    """A next token."""

    token: int
    text: str
    probability: float


class NextTokens(TypedDict):
    """The distribution of the next token."""

    position: int
    tokens: list[PredictedToken]
    rest: float
    entropy: float
    drawn: PredictedToken | None


class LensRow(TypedDict):
    """The likeliest tokens after a step."""

    step: str
    tokens: list[PredictedToken]
    probability: float
    rank: int


class Lens(TypedDict):
    """The logit lens of one position."""

    position: int
    token: int
    text: str
    layers: list[LensRow]


class Added(TypedDict):
    """What the parts of a layer add to a logit."""

    heads: Numbers
    attn: float | None
    mlp: float | None


class StreamLayer(TypedDict):
    """Lengths of what a layer writes into the residual stream, and what it adds to the logit."""

    attn: float | None
    mlp: float | None
    output: float | None
    adds: NotRequired[Added]


class ResidualStream(TypedDict):
    """What each part writes into the residual stream; of a decoder also what it adds to the logit of a token."""

    position: int
    token: int | None
    text: str | None
    logit: NotRequired[float | None]
    embeddings: NotRequired[float | None]
    bias: NotRequired[float | None]
    layers: list[StreamLayer]


class Attribution(TypedDict):
    """How much each token contributed to a number, ``metric``, and the weight that it receives."""

    method: str
    metric: str
    value: float
    baseline_value: float | None
    note: str  # that contributions do not add up yet; empty if they do
    scores: list[float]
    attended: list[float]
    to: str | None
    token: int | None
    likely: list[PredictedToken] | None


class Failure(TypedDict):
    """Why a page in a file has no answer."""

    error: str


class ChangedToken(TypedDict):
    """The probability of a next token before and after an edit."""

    token: str
    before: float
    after: float


class ChangedOutputs(TypedDict):
    """What an edit changes of the last vector of each token and of the next token."""

    cosines: list[float]
    next_tokens: list[ChangedToken] | None


class WhatIf(ChangedOutputs):
    """What other scores of a row change; ``weights`` are those of the row then, ``S``."""

    weights: list[float]


class Changes(ChangedOutputs):
    """What an ablation changes; ``heads`` has the largest change of a weight in each layer and head."""

    heads: list[list[float]]


class NewRun(TypedDict):
    """A run of another text."""

    run: int
    metadata: RunDescription


class Ablation(NewRun):
    """A run without some heads."""

    changes: Changes


class Sweep(TypedDict):
    """A number before and after the ablation of each head of a layer: the probability of a token, or a cosine."""

    before: float
    after: list[float]
    token: int | None
    text: str | None


class NumberedRun(TypedDict):
    """A run with its number."""

    number: int
    metadata: RunDescription


class TrainingNews(TypedDict):
    """What is new of a training run."""

    training: Training
    runs: list[NumberedRun]
