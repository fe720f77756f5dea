"""Patching between two runs that are compared: grids of `regard.metrics.patch_grid`, and paths from head to head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.codec import short_number
from regard.explorer.figures import DRAWING, check_format
from regard.explorer.next_tokens import logits_at, next_tokens, predicted_token
from regard.explorer.run import Run
from regard.functional import softmax
from regard.metrics import PatchGrid, PathEffect, patch_grid, path_patching
from regard.metrics.activation_patching import Over
from regard.metrics.attribution_target import next_token_id, predicts_at_each_token
from regard.metrics.layer_maps import CancelCheck
from regard.models.base import TextModel
from regard.models.encoder_decoder import EncoderDecoder
from regard.views.next_tokens import token_name

_OVER: dict[str, Over] = {"output": ("layer", "position"), "attn": "attn", "mlp": "mlp", "head": "head"}
_INPUTS: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")  # of the receiver of a path
_MAX_TOKENS = 256  # of a text: a run of the model for each, in every layer
_MAX_FILE_CELLS = 1024  # of a grid that an exported page holds, each a run of the model
_TOP = 10  # next tokens of each text, to choose from


class PatchingQuestion(NamedTuple):
    """What a grid is asked for; see `Exploration.patching`."""

    over: str = "output"
    token: int | None = None
    versus: int | None = None
    sender: tuple[int, int] | None = None
    receiver: tuple[int, int] | None = None


class Patched(NamedTuple):
    """A grid, None for a path, and what the page is told of it."""

    grid: PatchGrid | None
    answer: answers.Patching


def has_patching(run: Run) -> bool:
    """Tell whether steps of a run can be put into another run of its model."""
    is_of_text = isinstance(run.model, TextModel) and run.encoding is not None
    return is_of_text and not isinstance(run.model, EncoderDecoder) and not run.ablated


def fits_file(clean: Run, corrupted: Run) -> bool:
    """Tell whether an exported page holds the grid of two runs."""
    is_pair = has_patching(clean) and has_patching(corrupted) and clean.model is corrupted.model
    is_small = clean.length <= _MAX_TOKENS and clean.length * len(clean.layers) <= _MAX_FILE_CELLS
    is_small = is_small and clean.length == corrupted.length
    return is_pair and is_small and clean.encoding != corrupted.encoding


def patch(
    clean: Run,
    corrupted: Run,
    question: PatchingQuestion,
    heads: PatchGrid | None,
    load_expression: Callable[[Any], str],
    check: CancelCheck,
    watch: Callable[[Callable[[], float]], None],
) -> Patched:
    """Return the grid, or a path, of two runs of a model; see `Exploration.patching`.

    `heads` is the grid of heads, for a path of which an end is not given.
    """
    for name, run in (("A", clean), ("B", corrupted)):
        if not has_patching(run):
            raise RegardError(
                f"patching needs a model of texts, an encoder or a decoder, with all its heads: {name} has none"
            )
    assert clean.encoding is not None
    assert corrupted.encoding is not None
    if clean.model is not corrupted.model:
        raise RegardError("patching is within one model: A and B are of two")
    if question.over not in (*_OVER, "path"):
        raise RegardError(f"over is one of {', '.join(_OVER)}, path, not {question.over[:40]!r}")
    if clean.length > _MAX_TOKENS:
        raise RegardError(f"patching is for texts of at most {_MAX_TOKENS} tokens, these have {clean.length:,}")
    model = clean.model
    token = versus = None
    likely: list[answers.PredictedToken] = []
    metric: Any = clean.encoding
    default: tuple[int | None, int | None] = None, None
    if predicts_at_each_token(model):
        of_a, of_b = (next_tokens(run, None, 1.0, None)["tokens"][:_TOP] for run in (clean, corrupted))
        likely = list({each["token"]: each for each in (*of_b, *of_a)}.values())[::-1]
        likely.sort(key=lambda each: -each["probability"])
        other = of_b[0]["token"] if of_b[0]["token"] != of_a[0]["token"] else of_a[1]["token"]
        default = of_a[0]["token"], other
        token = default[0] if question.token is None else question.token
        versus = question.versus
        if versus is None:
            versus = next(one for one in (other, of_a[0]["token"]) if one != token)
        metric = token, versus
    done = [0.0]
    watch(lambda: done[0])

    def progress(layers: int, of: int) -> None:
        done[0] = layers / of
        check()

    check()
    texts = clean.encoding, corrupted.encoding
    sender = receiver = grid = None
    number: PatchGrid | PathEffect
    if question.over == "path":
        sender, receiver = question.sender, question.receiver
        if sender is None or receiver is None:
            assert heads is not None
            sender, receiver = _strongest_path(heads.recovered, sender, receiver)
        effects: list[PathEffect] = []
        for into in _INPUTS:
            effects.append(path_patching(model, *texts, metric, sender=sender, receiver=receiver, into=into))
            progress(len(effects), len(_INPUTS))
        number, values = effects[0], [[each.value for each in effects]]
        recovered = [[each.recovered for each in effects]]
    else:
        over = _OVER[question.over]
        number = grid = patch_grid(model, *texts, metric, over=over, progress=progress)
        values, recovered = grid.values.tolist(), grid.recovered.tolist()
    for one in (token, versus):
        if one is not None and one not in {each["token"] for each in likely}:
            probability = softmax(logits_at(clean, clean.length - 1))[one]
            likely.append(predicted_token(one, token_name(model.tokenizer, one), probability))
    answer: answers.Patching = {
        "over": question.over,
        "token": token,
        "versus": versus,
        "is_default": (token, versus) == default,
        "likely": likely,
        "sender": sender,
        "receiver": receiver,
        "metric": number.metric,
        "clean": number.clean,
        "corrupted": number.corrupted,
        "values": [[short_number(x) for x in row] for row in values],
        "recovered": [[short_number(x) for x in row] for row in recovered],
        "code": _python(load_expression(model), clean, corrupted, question.over, metric, sender, receiver),
    }
    return Patched(grid, answer)


def _strongest_path(
    recovered: np.ndarray, sender: tuple[int, int] | None, receiver: tuple[int, int] | None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return a sender and a receiver, of a later layer: what is not given is the head that recovers most, ``L H``."""
    num_layers, num_heads = recovered.shape
    if num_layers < 2:
        raise RegardError("a path goes from a head to one of a later layer: this model has one layer")

    def strongest(first: int, end: int) -> tuple[int, int]:
        best = int(np.abs(np.nan_to_num(recovered[first:end])).argmax())
        return first + best // num_heads, best % num_heads

    receiver = receiver or strongest(sender[0] + 1 if sender and sender[0] < num_layers - 1 else 1, num_layers)
    return sender or strongest(0, max(1, min(receiver[0], num_layers - 1))), receiver


def _python(
    load: str, clean: Run, corrupted: Run, over: str, metric: Any, sender: tuple[int, int] | None, receiver: Any
) -> str:
    """Return the Python that computes a grid, or a path."""
    assert clean.encoding is not None
    assert corrupted.encoding is not None
    written = repr(tuple(_written(clean, each) for each in metric) if isinstance(metric, tuple) else metric.text)
    arguments = f"model, {clean.encoding.text!r}, {corrupted.encoding.text!r}, {written}"
    lines = ["import regard", f"from regard.metrics import {'patch_grid' if sender is None else 'path_patching'}", ""]
    lines.append(f"model = {load}")
    if sender is None:
        lines.append(f"grid = patch_grid({arguments}{'' if over == 'output' else f', over={over!r}'})")
        lines.append("print(grid.recovered)")
    else:
        lines.append('for into in "qkv":')
        lines.append(f"    print(path_patching({arguments}, sender={sender}, receiver={receiver}, into=into))")
    return "\n".join(lines)


def draw_patching(patched: Patched, format: str, width: str, *, caption: bool) -> bytes:
    """Return the file of a figure of a grid, or with the format "py" the Python that writes it."""
    from regard.plot.patching import patching
    from regard.plot.save import encode

    check_format(format)
    if patched.grid is None:
        raise RegardError("figures are of grids: a path is three numbers")
    if format == "py":
        return "\n".join([
            *patched.answer["code"].splitlines()[:-1],
            f"drawn = regard.plot.patching(grid, width={width!r}, caption={caption})",
            'regard.plot.save(drawn, "patching.pdf")',
            "",
        ]).encode()  # fmt: skip
    with DRAWING:
        return encode(patching(patched.grid, width=width, caption=caption), format)


def _written(run: Run, token: int) -> str | int:
    """Return a next token as text, where that means it, else its id."""
    text = token_name(run.model.tokenizer, token)
    try:
        return text if next_token_id(run.model, run.encoding, text) == token else token  # type: ignore[arg-type]
    except RegardError:
        return token
