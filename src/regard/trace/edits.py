"""Ready-made edits of a run: ``model(text, edit=ablate((3, 7)))``.

Each function returns a dict from names of steps to functions, as `Trace` and the models take them; edits of different
steps join with ``|``. A layer is given by its number, or by its attention's name, ``"decoder.blocks.3.cross_attn"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.trace import Edit, Trace

__all__ = ["Edits", "Head", "Pattern", "ablate", "patch", "force_pattern"]

Edits: TypeAlias = dict[str, Edit]
Head: TypeAlias = "tuple[int | str, int]"
"""A layer and a head of it, both from 0."""
Pattern: TypeAlias = Literal["uniform", "self", "previous", "first"]


def ablate(*heads: Head, by: Literal["zero", "mean"] = "zero") -> Edits:
    """Return the edits that take out what some heads hand on: their ``context``, before the output projection.

    Parameters
    ----------
    *heads : (layer, head)
    by : {"zero", "mean"}
        What stands in its place: nothing, or the same for every token, the mean over the tokens of the run. (Of texts
        of different lengths in one batch the mean would count padding: run them one by one.)

    Examples
    --------
    >>> edit = ablate((3, 7), (3, 8), (5, 0))
    >>> list(edit)
    ['blocks.3.attn.context', 'blocks.5.attn.context']
    """
    if by not in ("zero", "mean"):
        raise RegardError(f"a head is ablated by zero or mean, not {by!r}")

    def taken_out(context: np.ndarray) -> np.ndarray:  # B T Dv
        return np.zeros_like(context) if by == "zero" else np.asarray(context.mean(-2, keepdims=True))

    return _of_heads(heads, "context", taken_out)


def force_pattern(pattern: Pattern, *heads: Head) -> Edits:
    """Return the edits that make some heads look by a pattern, whatever the text.

    Parameters
    ----------
    pattern : {"uniform", "self", "previous", "first"}
        Each token looks at all keys that it gives any weight to, equally; at itself; at the one before, the first at
        itself; at the first of all. For texts that look at themselves, without a cache.
    *heads : (layer, head)
    """
    if pattern not in get_args(Pattern):
        raise RegardError(f"a pattern is one of {', '.join(get_args(Pattern))}, not {pattern!r}")

    def forced(weights: np.ndarray) -> np.ndarray:  # B T S
        queries, keys = weights.shape[-2:]
        if pattern == "uniform":
            seen = weights > 0
            return np.asarray(seen / np.maximum(seen.sum(-1, keepdims=True), 1))
        if queries != keys:
            raise RegardError(f"{queries} tokens that look at {keys} others have no {pattern} one to look at")
        looked_at = {"self": np.arange(keys), "previous": np.arange(-1, keys - 1), "first": np.zeros(keys, int)}
        return np.broadcast_to(np.eye(keys)[np.maximum(looked_at[pattern], 0)], weights.shape)

    return _of_heads(heads, "weights", forced)


def patch(trace: Trace, *names: str) -> Edits:
    """Return the edits that put in values which were recorded in another run: activation patching.

    Parameters
    ----------
    trace : Trace
        Of a run on a text of as many tokens.
    *names : str
        Steps that it holds: ``"blocks.3.output"``.

    Raises
    ------
    RegardError
        The trace has no such value; or, in the run, its shape is another.

    References
    ----------
    Meng et al. (2022), "Locating and editing factual associations in GPT", https://arxiv.org/abs/2202.05262.
    """
    if not names:
        raise RegardError("patch needs the names of the steps to put in, such as 'blocks.3.output'")

    def putting(value: np.ndarray) -> Edit:
        return lambda before: value.astype(before.dtype)

    return {name: putting(trace[name]) for name in names}


def _of_heads(heads: Sequence[Head], step: str, change: Callable[[np.ndarray], np.ndarray]) -> Edits:
    """Return edits of a step with an axis of heads, ``B H …``, that change those of `heads` alone."""
    if not heads:
        raise RegardError("no heads are named: give each as (layer, head)")
    chosen: dict[str, list[int]] = {}
    for named in heads:
        try:
            layer, head = named
        except (TypeError, ValueError):
            raise RegardError(f"a head is named by (layer, head), got {named!r}") from None
        scope = layer if isinstance(layer, str) else f"blocks.{whole_number('a layer', layer, 0)}.attn"
        chosen.setdefault(f"{scope}.{step}", []).append(whole_number("a head", head, 0))
    return {name: _changing(name, sorted(set(numbers)), change) for name, numbers in chosen.items()}


def _changing(name: str, heads: list[int], change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(value: np.ndarray) -> np.ndarray:
        if heads[-1] >= value.shape[1]:
            raise RegardError(f"{name} has heads 0 to {value.shape[1] - 1}, there is no {heads[-1]}")
        for head in heads:
            value[:, head] = change(value[:, head])
        return value

    return edit
