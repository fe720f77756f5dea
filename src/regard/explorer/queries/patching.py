"""Activation patching between two runs that are compared: the grids of `regard.metrics.patch_grid`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypedDict

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.queries.figures import DRAWING, check_format
from regard.explorer.queries.next_tokens import PredictedToken, logits_at, next_tokens, predicted_token
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run
from regard.functional import softmax
from regard.metrics import PatchGrid, patch_grid
from regard.metrics.activation_patching import Over
from regard.metrics.attribution_target import next_token_id, predicts_at_each_token
from regard.metrics.layer_maps import CancelCheck
from regard.models.base import TextModel
from regard.models.encoder_decoder import EncoderDecoder
from regard.views.next_tokens import token_name

PatchingKey: TypeAlias = tuple[int, int, str, int | None, int | None]
"""The runs of a grid, over, token and versus."""

_OVER: dict[str, Over] = {"output": ("layer", "position"), "attn": "attn", "mlp": "mlp", "head": "head"}
_MAX_TOKENS = 256  # of a text: a run of the model for each, in every layer
_MAX_FILE_CELLS = 1024  # of a grid that an exported page holds, each a run of the model
_TOP = 10  # next tokens of each text, to choose from


class Patching(TypedDict):
    """What each step of A recovers in the run of B, ``L T`` or ``L H``; None where A and B have the same number.

    ``is_default`` tells whether the tokens are those of a question that names none.
    """

    over: str
    token: int | None
    versus: int | None
    is_default: bool
    likely: list[PredictedToken]  # after A or B, with the probability after one of them
    metric: str
    clean: float
    corrupted: float
    values: answers.HeadValues
    recovered: answers.HeadValues
    code: str  # of Python, that computes it


class Patched(NamedTuple):
    """A grid, what the page is told of it, and the Python that computes it."""

    grid: PatchGrid
    answer: Patching


def has_patching(run: Run) -> bool:
    """Tell whether steps of a run can be put into another run of its model."""
    is_of_text = isinstance(run.model, TextModel) and run.encoding is not None
    return is_of_text and not isinstance(run.model, EncoderDecoder) and not run.ablated


def _fits_file(clean: Run, corrupted: Run) -> bool:
    """Tell whether an exported page holds the grid of two runs."""
    is_pair = has_patching(clean) and has_patching(corrupted) and clean.model is corrupted.model
    is_small = clean.length <= _MAX_TOKENS and clean.length * len(clean.layers) <= _MAX_FILE_CELLS
    is_small = is_small and clean.length == corrupted.length
    return is_pair and is_small and clean.encoding != corrupted.encoding


@query(slow=True)
def patching(
    exploration: Exploration,
    run: int,
    other: int,
    *,
    over: str = "output",  # of each block, or of its "attn" or "mlp", at each position; or each "head"
    token: int | None = None,  # of a decoder: by default the likeliest next token of `run`
    versus: int | None = None,  # whose logit is subtracted: by default that of `other`
    check: CancelCheck = lambda: None,
) -> Patching:
    """Return how much of a number each step of a run recovers in another; see `regard.metrics.patch_grid`.

    A site of `other` has its value in `run`: 0 is the number of `other`, 1 that of `run`. For an encoder the number is
    the similarity with the vector of `run`. The last 8 are kept. `check` is called after each layer.

    An error if the runs are not of one model of texts with all its heads, differ in their number of tokens, or have
    more than 256; or there is no such token or step.
    """
    return _patched(exploration, (run, other, over, token, versus), check).answer


@query(slow=True)
def patching_figure(
    exploration: Exploration,
    run: int,
    other: int,
    *,
    over: str = "output",
    token: int | None = None,
    versus: int | None = None,
    format: str = "pdf",
    width: str = "column",
    caption: bool = False,
    check: CancelCheck = lambda: None,
) -> bytes:
    """Return a figure for print of `patching`, as `regard.explorer.queries.figures.figure` does."""
    patched = _patched(exploration, (run, other, over, token, versus), check)
    check_format(format)
    if format == "py":
        return "\n".join([
            *patched.answer["code"].splitlines()[:-1],
            f"drawn = regard.plot.patching(grid, width={width!r}, caption={caption})",
            'regard.plot.save(drawn, "patching.pdf")',
            "",
        ]).encode()  # fmt: skip
    from regard import plot
    from regard.plot.save import encode

    with DRAWING:
        return encode(plot.patching(patched.grid, width=width, caption=caption), format)


def file_patching(exploration: Exploration) -> list[Patching]:
    """Return the grids of A and B that an exported page holds: those that were computed, and the first if small."""
    if len(exploration.runs) == 2 and _fits_file(*exploration.runs):
        with suppress(RegardError):  # of vectors that are not finite
            patching(exploration, 0, 1)
    return [patched.answer for key, patched in exploration.grids_kept.items() if key[:2] == (0, 1)]


def _patched(exploration: Exploration, key: PatchingKey, check: CancelCheck) -> Patched:
    return exploration.grids_kept.compute(key, lambda: _patch(exploration, *key, check))


def _patch(
    exploration: Exploration, a: int, b: int, over: str, token: int | None, versus: int | None, check: CancelCheck
) -> Patched:
    clean, corrupted = exploration.run(a), exploration.run(b)
    for name, run in (("A", clean), ("B", corrupted)):
        if not has_patching(run):
            raise RegardError(
                f"patching needs a model of texts, an encoder or a decoder, with all its heads: {name} has none"
            )
    assert clean.encoding is not None
    assert corrupted.encoding is not None
    if clean.model is not corrupted.model:
        raise RegardError("patching is within one model: A and B are of two")
    if over not in _OVER:
        raise RegardError(f"over is one of {', '.join(_OVER)}, not {over[:40]!r}")
    if clean.length > _MAX_TOKENS:
        raise RegardError(f"patching is for texts of at most {_MAX_TOKENS} tokens, these have {clean.length:,}")
    model = clean.model
    likely: list[PredictedToken] = []
    metric: Any = clean.encoding
    default: tuple[int | None, int | None] = None, None
    if predicts_at_each_token(model):
        of_a, of_b = (next_tokens(run)["tokens"][:_TOP] for run in (clean, corrupted))
        likely = list({each["token"]: each for each in (*of_b, *of_a)}.values())[::-1]
        likely.sort(key=lambda each: -each["probability"])
        other = of_b[0]["token"] if of_b[0]["token"] != of_a[0]["token"] else of_a[1]["token"]
        default = of_a[0]["token"], other
        token = default[0] if token is None else token
        if versus is None:
            versus = next(one for one in (other, of_a[0]["token"]) if one != token)
        metric = token, versus
    else:
        token = versus = None
    done = [0.0]

    def progress(layers: int, of: int) -> None:
        done[0] = layers / of
        check()

    check()
    with exploration.watch("patching") as watch:
        watch(lambda: done[0])
        grid = patch_grid(model, clean.encoding, corrupted.encoding, metric, over=_OVER[over], progress=progress)
    for one in (token, versus):
        if one is not None and one not in {each["token"] for each in likely}:
            probability = softmax(logits_at(clean, clean.length - 1))[one]
            likely.append(predicted_token(one, token_name(model.tokenizer, one), probability))
    texts = clean.encoding.text, corrupted.encoding.text
    written = repr(texts[0]) if token is None else repr(tuple(_written(clean, each) for each in metric))
    arguments = "" if over == "output" else f", over={_OVER[over]!r}"
    code = [
        "import regard",
        "from regard.metrics import patch_grid",
        "",
        f"model = {exploration.load_expression(model)}",
        f"grid = patch_grid(model, {texts[0]!r}, {texts[1]!r}, {written}{arguments})",
        "print(grid.recovered)",
    ]
    answer: Patching = {
        "over": over,
        "token": token,
        "versus": versus,
        "is_default": (token, versus) == default,
        "likely": likely,
        "metric": grid.metric,
        "clean": grid.clean,
        "corrupted": grid.corrupted,
        "values": [[short_number(x) for x in row] for row in grid.values],
        "recovered": [[short_number(x) for x in row] for row in grid.recovered],
        "code": "\n".join(code),
    }
    return Patched(grid, answer)


def _written(run: Run, token: int) -> str | int:
    """Return a next token as text, where that means it, else its id."""
    text = token_name(run.model.tokenizer, token)
    try:
        return text if next_token_id(run.model, run.encoding, text) == token else token  # type: ignore[arg-type]
    except RegardError:
        return token
