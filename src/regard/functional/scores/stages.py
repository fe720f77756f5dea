"""The scores of any block of rows and columns: masks and biases as arrays, then the equation of `reference`."""

from __future__ import annotations

from functools import partial
from itertools import compress
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from regard.functional.arrays import Array
from regard.functional.biases.score_mod import is_score_function
from regard.functional.inputs import AttentionInputs
from regard.functional.nonfinite import saturate_cast
from regard.functional.recorder import Recorder
from regard.functional.reference import attention_scores, softmax
from regard.functional.scores.layout import ALL, Index, take

Stage: TypeAlias = Literal["scores", "capped", "biased", "weights"]
STAGES: tuple[Stage, ...] = get_args(Stage)
QUADRATIC_STEPS = (*STAGES, "dropped")  # of shape ``... H T S``


def map_steps(p: AttentionInputs) -> tuple[str, ...]:
    """Return the names of the steps of shape ``... H T S`` that a call has, in the order in which they are computed."""
    has = (True, p.softcap is not None, p.bias is not None or p.mask is not None, True, p.dropout is not None)
    return tuple(compress(QUADRATIC_STEPS, has))


class BlockScores(NamedTuple):
    """Scores of a block; each broadcasts to ``... H R C``."""

    scores: Array  # q · kᵀ × scale
    capped: Array  # after the softcap
    biased: Array  # after bias and mask; −inf where masked
    mask: Array | None  # True: the query attends to the key; None: everywhere


def block_scores(p: AttentionInputs, rows: Index = ALL, cols: Index = ALL, *, unmasked: bool = False) -> BlockScores:
    """Return the scores of `rows` and `cols`; `unmasked` skips a mask that is known to be True for the whole block."""
    with np.errstate(invalid="ignore", over="ignore"):  # masked keys may hold anything
        arguments = block_arguments(p, rows, cols, unmasked=unmasked)
        return BlockScores(*attention_scores(**arguments), arguments["mask"])


def block_arguments(
    p: AttentionInputs, rows: Index = ALL, cols: Index = ALL, *, unmasked: bool = False
) -> dict[str, Any]:
    """Return the arguments of `reference.attention_scores` for a block: q, k, mask and bias as arrays."""
    mask, bias = mask_and_bias(p, rows, cols, unmasked=unmasked)
    change = None
    if p.bias is not None and is_score_function(p.bias):
        change = partial(p.bias.scores, p.layout, rows, cols)
    return {
        "q": p.q if rows is ALL else take(p.q, rows, -2),
        "k": p.k if cols is ALL else take(p.k, cols, -2),
        "scale": p.scale,
        "softcap": p.softcap,
        "bias": change if bias is None else saturate_cast(bias, p.q.dtype),
        "mask": mask,
    }


def mask_and_bias(
    p: AttentionInputs, rows: Index = ALL, cols: Index = ALL, *, unmasked: bool = False
) -> tuple[Array | None, Array | None]:
    """Return the mask of a block, with what the bias masks, and the bias; each broadcasts to ``... H R C``."""
    mask = None if p.mask is None or unmasked else p.mask.allows(p.layout, rows, cols)
    bias = None if p.bias is None or is_score_function(p.bias) else p.bias.values(p.layout, rows, cols)
    if p.bias is not None and p.bias.can_mask:
        shown = bias != -p.layout.xp.inf
        mask = shown if mask is None else p.layout.xp.logical_and(mask, shown)
    return mask, bias


def whole_map(p: AttentionInputs, stage: Stage, trace: Recorder) -> Array:
    """Return a stage of the whole map, ``... H T S``, by the reference."""
    with np.errstate(invalid="ignore", over="ignore"):  # masked keys may hold anything
        scores = attention_scores(**block_arguments(p), trace=trace)
    if stage != "weights":
        return scores[STAGES.index(stage)]
    weights = trace("weights", softmax(scores[-1], p.sinks), "... H T S")
    if p.dropout is None:
        return weights
    return trace("dropped", weights * p.dropout.factors(p.layout, ALL, ALL, p.q.dtype), "... H T S")
