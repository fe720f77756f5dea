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


class Layer(TypedDict):
    """A layer and its map."""

    number: int | str  # in the model, or a name of an encoder–decoder's
    block: list[Block] | None  # the tokens of its rows and of its columns; None: all
    name: str
    heads: int
    kv_heads: int | None
    rows: int
    cols: int
    causal: bool
    row_sum_error: float | None
    num_nonfinite_rows: int


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
    """The numbers that go with the arrays of `regard.explorer.queries.cell.cell_inputs`."""

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


# One weight.


# What a model computes from the text.


class NewRun(TypedDict):
    """A run of another text."""

    run: int
    metadata: RunDescription


class NumberedRun(TypedDict):
    """A run with its number."""

    number: int
    metadata: RunDescription


class TrainingNews(TypedDict):
    """What is new of a training run."""

    training: Training
    runs: list[NumberedRun]
