"""Patching between two runs that are compared: grids of `regard.metrics.patch_grid`, and paths from head to head."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.queries.figures import DRAWING, check_format
from regard.explorer.queries.next_tokens import PredictedToken, logits_at, next_tokens, predicted_token
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run
from regard.functional import softmax
from regard.metrics import PatchGrid, PathEffect, patch_grid, path_patching
from regard.metrics.activation_patching import Over
from regard.metrics.attribution_target import next_token_id, predicts_at_each_token
from regard.metrics.layer_maps import CancelCheck
from regard.models.base import TextModel
from regard.models.encoder_decoder import EncoderDecoder
from regard.views.labels import head_label
from regard.views.next_tokens import token_name

PathHead: TypeAlias = tuple[int, int]  # layer and head
PatchingKey: TypeAlias = tuple[int, int, str, int | None, int | None, PathHead | None, PathHead | None]
"""The runs of a grid, over, token and versus, and of a path its sender and receiver."""

_OVER: dict[str, Over] = {"output": ("layer", "position"), "attn": "attn", "mlp": "mlp", "head": "head"}
_INPUTS: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")  # of the receiver of a path
_MAX_TOKENS = 256  # of a text: a run of the model for each, in every layer
_MAX_FILE_CELLS = 1024  # of a grid that an exported page holds, each a run of the model
_TOP = 10  # next tokens of each text, to choose from


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
    layers: list[int]  # the number of the layer of each row, none of a path
    sender: PathHead | None  # of a path
    receiver: PathHead | None
    metric: str
    clean: float
    corrupted: float
    values: answers.HeadValues
    recovered: answers.HeadValues
    code: str  # of Python, that computes it


class Patched(NamedTuple):
    """A grid, None for a path, and what the page is told of it."""

    grid: PatchGrid | None
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
    over: str = "output",  # of each block, or of its "attn" or "mlp", at each position; each "head"; or a "path"
    token: int | None = None,  # of a decoder: by default the likeliest next token of `run`
    versus: int | None = None,  # whose logit is subtracted: by default that of `other`
    sender: PathHead | None = None,  # of a path, a layer and a head: by default that which recovers most
    receiver: PathHead | None = None,  # of a later layer
    check: CancelCheck = lambda: None,
) -> Patching:
    """Return how much of a number each step of a run recovers in another; see `regard.metrics.patch_grid`.

    A site of `other` has its value in `run`: 0 is the number of `other`, 1 that of `run`. For an encoder the number is
    the similarity with the vector of `run`. Of a decoder also the path from a head to the query, key and value of
    another: see `regard.metrics.path_patching`. The last 8 are kept. `check` is called after each layer.

    An error if the runs are not of one model of texts with all its heads, differ in their number of tokens, or have
    more than 256; or there is no such token, step or path; or a sender or receiver is given of no path.
    """
    if over != "path" and (sender or receiver):
        raise RegardError(f"a sender and a receiver are those of a path, not of {over[:40]!r}: leave them out")
    return _patched(exploration, (run, other, over, token, versus, sender, receiver), check).answer


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
    check_format(format)
    if over == "path":
        raise RegardError("figures are of grids: a path is three numbers")
    grid, answer = _patched(exploration, (run, other, over, token, versus, None, None), check)
    assert grid is not None  # it is one of a path alone
    if format == "py":
        return "\n".join([
            *answer["code"].splitlines()[:-1],
            f"drawn = regard.plot.patching(grid, width={width!r}, caption={caption})",
            'regard.plot.save(drawn, "patching.pdf")',
            "",
        ]).encode()  # fmt: skip
    from regard import plot
    from regard.plot.save import encode

    with DRAWING:
        return encode(plot.patching(grid, width=width, caption=caption), format)


def file_patching(exploration: Exploration) -> list[Patching]:
    """Return the grids of A and B that an exported page holds: those that were computed, and the first if small."""
    if len(exploration.runs) == 2 and _fits_file(*exploration.runs):
        with suppress(RegardError):  # of vectors that are not finite
            patching(exploration, 0, 1)
    return [patched.answer for key, patched in exploration.grids_kept.items() if key[:2] == (0, 1)]


def _patched(exploration: Exploration, key: PatchingKey, check: CancelCheck) -> Patched:
    sender, receiver = key[5:]
    if key[2] == "path" and (sender is None or receiver is None):
        heads = _patched(exploration, (*key[:2], "head", *key[3:5], None, None), check).grid
        assert heads is not None
        key = (*key[:5], *_strongest_path(heads, sender, receiver))
    return exploration.grids_kept.compute(key, lambda: _patch(exploration, key, check))


def _patch(exploration: Exploration, key: PatchingKey, check: CancelCheck) -> Patched:
    a, b, over, token, versus, sender, receiver = key
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
    if over not in (*_OVER, "path"):
        raise RegardError(f"over is one of {', '.join(_OVER)}, path, not {over[:40]!r}")
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
    texts = clean.encoding, corrupted.encoding
    grid: PatchGrid | None = None
    number: PatchGrid | PathEffect
    with exploration.watch("patching") as watch:
        watch(lambda: done[0])
        if over == "path":
            assert sender is not None
            assert receiver is not None
            effects: list[PathEffect] = []
            for into in _INPUTS:
                effects.append(path_patching(model, *texts, metric, sender=sender, receiver=receiver, into=into))
                progress(len(effects), len(_INPUTS))
            number, values = effects[0], [[each.value for each in effects]]
            recovered = [[each.recovered for each in effects]]
        else:
            sender = receiver = None
            number = grid = patch_grid(model, *texts, metric, over=_OVER[over], progress=progress)
            values, recovered = grid.values.tolist(), grid.recovered.tolist()
    for one in (token, versus):
        if one is not None and one not in {each["token"] for each in likely}:
            probability = softmax(logits_at(clean, clean.length - 1))[one]
            likely.append(predicted_token(one, token_name(model.tokenizer, one), probability))
    answer: Patching = {
        "over": over,
        "token": token,
        "versus": versus,
        "is_default": (token, versus) == default,
        "likely": likely,
        "layers": [] if grid is None else list(grid.layers),
        "sender": sender,
        "receiver": receiver,
        "metric": number.metric,
        "clean": number.clean,
        "corrupted": number.corrupted,
        "values": [[short_number(x) for x in row] for row in values],
        "recovered": [[short_number(x) for x in row] for row in recovered],
        "code": _python(exploration.load_expression(model), clean, corrupted, over, metric, sender, receiver),
    }
    return Patched(grid, answer)


def _strongest_path(heads: PatchGrid, sender: PathHead | None, receiver: PathHead | None) -> tuple[PathHead, PathHead]:
    """Return a sender and a receiver, of a later layer: what is not given is the head that recovers most, ``L H``."""
    layers, recovered = heads.layers, np.abs(np.nan_to_num(heads.recovered))
    if len(layers) < 2:
        raise RegardError("a path goes from a head to one of a later layer: this model has one layer of heads")

    def strongest(rows: list[int]) -> PathHead:
        best = max(rows, key=lambda row: recovered[row].max())
        return layers[best], int(recovered[best].argmax())

    rows = range(len(layers))
    if receiver is None and sender is not None and sender[0] == layers[-1]:
        raise RegardError(
            f"a path goes to a head of a later layer: the sender, {head_label(*sender)}, is one of the last"
        )
    if sender is None and receiver is not None and receiver[0] == layers[0]:
        first = head_label(*receiver)
        raise RegardError(f"a path comes from a head of an earlier layer: the receiver, {first}, is one of the first")
    if receiver is None:
        later = [row for row in rows if row and (sender is None or layers[row] > sender[0])]
        receiver = strongest(later or [*rows[1:]])
    if sender is None:
        sender = strongest([row for row in rows[:-1] if layers[row] < receiver[0]] or [0])
    return sender, receiver


def _python(
    load: str, clean: Run, corrupted: Run, over: str, metric: Any, sender: PathHead | None, receiver: PathHead | None
) -> str:
    """Return the Python that computes a grid, or a path."""
    assert clean.encoding is not None
    assert corrupted.encoding is not None
    written = repr(tuple(_written(clean, each) for each in metric) if isinstance(metric, tuple) else metric.text)
    arguments = f"model, {clean.encoding.text!r}, {corrupted.encoding.text!r}, {written}"
    lines = ["import regard", f"from regard.metrics import {'patch_grid' if sender is None else 'path_patching'}", ""]
    lines.append(f"model = {load}")
    if sender is None:
        lines.append(f"grid = patch_grid({arguments}{'' if over == 'output' else f', over={_OVER[over]!r}'})")
        lines.append("print(grid.recovered)")
    else:
        lines.append('for into in "qkv":')
        lines.append(f"    print(path_patching({arguments}, sender={sender}, receiver={receiver}, into=into))")
    return "\n".join(lines)


def _written(run: Run, token: int) -> str | int:
    """Return a next token as text, where that means it, else its id."""
    text = token_name(run.model.tokenizer, token)
    try:
        return text if next_token_id(run.model, run.encoding, text) == token else token  # type: ignore[arg-type]
    except RegardError:
        return token
