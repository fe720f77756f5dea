"""Ready-made edits of a run: ``model(text, edit=ablate((3, 7)))``.

Each function returns a dict from names of steps to functions, as `Trace` and the models take it; edits of different
steps combine with ``|``. A layer is its number, or the name of its attention, ``"decoder.blocks.3.cross_attn"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.arrays import Array, device, namespace
from regard.trace import Edit, Trace

__all__ = ["Edits", "Head", "Pattern", "ablate", "patch", "force_pattern"]

Edits: TypeAlias = dict[str, Edit]
Head: TypeAlias = "tuple[int | str, int]"
"""Layer and head, both from 0."""
Pattern: TypeAlias = Literal["uniform", "self", "previous", "first"]


def ablate(*heads: Head, by: Literal["zero", "mean"] = "zero") -> Edits:
    """Return the edits that ablate some heads: replace their ``context``, before the output projection.

    Parameters
    ----------
    *heads : (layer, head)
    by : {"zero", "mean"}
        Replace it by 0, or by its mean over the tokens of the run. (In a batch of sequences of different lengths the
        mean would include padding: run them one by one.)

    Examples
    --------
    >>> edit = ablate((3, 7), (3, 8), (5, 0))
    >>> list(edit)
    ['blocks.3.attn.context', 'blocks.5.attn.context']
    """
    if by not in ("zero", "mean"):
        raise RegardError(f"by must be zero or mean, got {by!r}")

    def ablated(context: Array) -> None:  # B T Dv
        context[...] = 0 if by == "zero" else context.mean(-2, keepdims=True)

    return _of_heads(heads, "context", ablated)


def force_pattern(pattern: Pattern, *heads: Head) -> Edits:
    """Return the edits that replace the attention pattern of some heads by a fixed one.

    Parameters
    ----------
    pattern : {"uniform", "self", "previous", "first"}
        All weight uniformly on the keys that have any; on the token itself; on the token before (the first: itself);
        on the first token. For self-attention without a cache.
    *heads : (layer, head)
    """
    if pattern not in get_args(Pattern):
        raise RegardError(f"pattern must be one of {', '.join(get_args(Pattern))}, got {pattern!r}")

    def forced(weights: Array) -> None:  # B T S
        queries, keys = weights.shape[-2:]
        if pattern == "uniform":
            has_weight = weights > 0
            weights[...] = has_weight / has_weight.sum(-1, keepdims=True).clip(1)
            return
        if queries != keys:
            raise RegardError(f"the pattern {pattern} needs self-attention, got {queries} queries and {keys} keys")
        rows = np.arange(keys)
        targets = {"self": rows, "previous": np.maximum(rows - 1, 0), "first": 0 * rows}
        weights[...] = 0
        weights[..., rows, targets[pattern]] = 1

    return _of_heads(heads, "weights", forced)


def patch(trace: Trace, *names: str) -> Edits:
    """Return the edits that replace values by those recorded in another run: activation patching.

    Parameters
    ----------
    trace : Trace
        Of a run on a sequence of the same length.
    *names : str
        Steps recorded in it: ``"blocks.3.output"``.

    Raises
    ------
    RegardError
        The trace has no such value; or, in the run, its shape differs.

    References
    ----------
    Meng et al. (2022), "Locating and editing factual associations in GPT", https://arxiv.org/abs/2202.05262.
    """
    if not names:
        raise RegardError("patch needs the names of the steps to replace, such as 'blocks.3.output'")

    def replace_by(value: Array) -> Edit:
        def edit(before: Array) -> Array:
            xp = namespace(before)
            return xp.astype(xp.asarray(value, device=device(before)), before.dtype, copy=True)

        return edit

    return {name: replace_by(trace[name]) for name in names}


def _of_heads(heads: Sequence[Head], step: str, change: Callable[[Array], None]) -> Edits:
    """Return edits of a step with an axis of heads, ``B H …``; `change` writes into those of `heads`."""
    if not heads:
        raise RegardError("no heads given: give each as (layer, head)")
    chosen: dict[str, list[int]] = {}
    for named in heads:
        try:
            layer, head = named
        except (TypeError, ValueError):
            raise RegardError(f"a head is given as (layer, head), got {named!r}") from None
        scope = layer if isinstance(layer, str) else f"blocks.{whole_number('a layer', layer, 0)}.attn"
        chosen.setdefault(f"{scope}.{step}", []).append(whole_number("a head", head, 0))
    return {name: _changing(name, sorted(set(numbers)), change) for name, numbers in chosen.items()}


def _changing(name: str, heads: list[int], change: Callable[[Array], None]) -> Edit:
    def edit(value: Array) -> Array:
        if heads[-1] >= value.shape[1]:
            raise RegardError(f"head {heads[-1]} of {name} is out of range: it has {value.shape[1]}")
        for head in heads:
            change(value[:, head])
        return value

    return edit
