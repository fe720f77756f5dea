"""Ready-made edits of a run: ``model(text, edit=ablate((3, 7)))``.

Each function returns `Edits`, from names of steps to functions, as `Trace` and the models take them; ``one | other``
has both. A *site* is the name of a step, ``"blocks.3.mlp.output"``, or a head, ``(3, 7)``: its ``context``, which
enters the output projection. A layer is its number, or the name of its attention, ``"decoder.blocks.3.cross_attn"``.

`positions` are those of tokens (of queries, where the value is a map), from 0, or from the end if negative, counted
with the padding of a batch. While a text is generated, each step after the prompt has one position, the new token's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional.arrays import Array
from regard.trace.edit_sites import (
    Edits,
    Head,
    Positions,
    Site,
    broadcast_like,
    checked_indices,
    index_of,
    parts_of,
    steps_of_heads,
    write_part,
)
from regard.trace.mask_io import to_numpy
from regard.trace.trace import Edit, Trace

__all__ = [
    "Edits",
    "Head",
    "Site",
    "Positions",
    "Reference",
    "Pattern",
    "ablate",
    "mean_ablate",
    "resample_ablate",
    "force_pattern",
    "patch",
    "freeze",
    "add",
    "scale",
]

Reference: TypeAlias = "Trace | Iterable[Trace | tuple[int, Trace]]"
"""Runs on other texts: a trace, some, or what `TextModel.iter_traces` yields."""
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


def patch(trace: Trace, *sites: Site, positions: Positions = None, heads: Positions = None) -> Edits:
    """Return the edits that replace values by those recorded in another run: activation patching.

    Parameters
    ----------
    trace : Trace
        Of a run on a sequence of the same length; of one text, or of as many as the run.
    *sites : str or (layer, head)
        Recorded in it, or patterns, as for `Trace`.
    positions, heads : int or sequence of int, optional
        Those to replace; all by default. `heads` is for steps that have an axis of heads: ``q``, ``k``, ``v``,
        ``weights``, ``context``.

    Raises
    ------
    RegardError
        The trace has no such value; or, in the run, its shape differs.

    References
    ----------
    Meng et al. (2022), "Locating and editing factual associations in GPT", https://arxiv.org/abs/2202.05262.
    """
    return _replacing(trace, parts_of(sites, heads, trace), positions)


def freeze(trace: Trace, *sites: Site, but: Iterable[Site] = ()) -> Edits:
    """Return the edits that hold values at those of a run, whatever else is edited.

    Parameters
    ----------
    trace : Trace
        Of the run without edits.
    *sites : str or (layer, head)
        Recorded in it, or patterns, as for `Trace`: ``"blocks.*.attn.weights"`` freezes all patterns of attention.
    but : str, or iterable of str or (layer, head)
        Sites that are left free: steps, or heads of the steps ``context``.

    Raises
    ------
    RegardError
        The trace has no such value, or `but` names one that is not frozen; or, in the run, its shape differs.

    References
    ----------
    Elhage et al. (2021), "A mathematical framework for transformer circuits",
    https://transformer-circuits.pub/2021/framework.
    """
    frozen, but = parts_of(sites, None, trace), (but,) if isinstance(but, str) else tuple(but)
    free = parts_of(but, None, trace) if but else {}
    for site in but:
        for name, heads in parts_of([site], None, trace).items():
            if name not in frozen or not set(heads or ()) <= set(frozen[name] or range(trace[name].shape[-3])):
                raise RegardError(f"but= leaves {site!r} free, which is not among what is frozen")
    kept: dict[str, list[int] | None] = {}
    for name, heads in frozen.items():
        if name in free:
            released = free[name]
            if released is None:
                continue
            kept[name] = sorted(set(range(trace[name].shape[-3]) if heads is None else heads) - set(released))
        else:
            kept[name] = heads
    return _replacing(trace, {name: heads for name, heads in kept.items() if heads != []}, None)


def mean_ablate(reference: Reference, *sites: Site, positions: Positions = None, by_position: bool = False) -> Edits:
    """Return the edits that replace values by their mean over a reference set of texts.

    Parameters
    ----------
    reference : Trace or iterable of Trace
        Runs on other texts that recorded the sites, as ``model.iter_traces(texts, only="*.attn.context")`` yields them.
    *sites : str or (layer, head)
    positions : int or sequence of int, optional
        Those to replace; all by default.
    by_position : bool
        Take the mean over the texts at each position, for texts that have as many tokens as that of the run; by
        default it is over all tokens of all texts, those of padding left out.

    Raises
    ------
    RegardError
        The reference is empty or lacks a site; or its texts differ in their number of tokens, with `by_position`.

    References
    ----------
    Wang et al. (2022), "Interpretability in the wild: a circuit for indirect object identification in GPT-2 small",
    https://arxiv.org/abs/2211.00593.
    """
    parts = parts_of(sites, None)
    sums: dict[str, Any] = {}
    count = 0
    for entry in _entries(reference, parts):
        for name, value in entry.values.items():
            total = value.astype(np.float64) if by_position else value.sum(-2, keepdims=True, dtype=np.float64)
            if name in sums and sums[name].shape != total.shape:
                raise RegardError(
                    f"{name} has shape {total.shape} in one text of the reference and {sums[name].shape} in another: a "
                    "mean by position, or of a map, needs texts of the same number of tokens"
                )
            sums[name] = sums.get(name, 0) + total
        count += 1 if by_position else entry.length
    return Edits({name: _writing(name, sums[name] / count, heads, positions) for name, heads in parts.items()})


def resample_ablate(reference: Reference, *sites: Site, positions: Positions = None, seed: int = 0) -> Edits:
    """Return the edits that replace values by those of a text drawn from a reference set, position by position.

    Each text of a batch draws one text, the same for all sites, among those with at least as many tokens.

    Parameters
    ----------
    reference : Trace or iterable of Trace
        Runs on other texts, as for `mean_ablate`; their values at the sites are held.
    *sites : str or (layer, head)
    positions : int or sequence of int, optional
        Those to replace; all by default.
    seed : int
        The same seed draws the same texts.

    Raises
    ------
    RegardError
        The reference is empty or lacks a site; or, in the run, no text of it is long enough.

    References
    ----------
    Chan et al. (2022), "Causal scrubbing", https://www.alignmentforum.org/posts/JvZhhzycHu2Yd57RN.
    """
    parts = parts_of(sites, None)
    entries = list(_entries(reference, parts))

    def resampled(name: str, heads: list[int] | None) -> Edit:
        def edit(before: Array) -> Array:
            length = before.shape[-2]
            values = [entry.values[name] for entry in entries if entry.length >= length]
            if not values:
                longest = max(entry.length for entry in entries)
                raise RegardError(f"no text of the reference has {length} tokens or more; the longest has {longest}")
            drawn = np.random.default_rng(seed).integers(len(values), size=before.shape[0])
            source = np.stack([values[i][..., :length, :] for i in drawn])
            return write_part(name, source, heads, positions, before)

        return edit

    return Edits({name: resampled(name, heads) for name, heads in parts.items()})


def add(vector: Array, *sites: Site, positions: Positions = None, heads: Positions = None) -> Edits:
    """Return the edits that add a vector to values: a steering vector, in a run or while a text is generated.

    Parameters
    ----------
    vector : array, ``E`` or ``D``, or one that broadcasts to the positions and heads that are changed
        A tensor of PyTorch has a gradient in a run that keeps tensors (`regard.capture`).
    *sites : str or (layer, head)
    positions, heads : int or sequence of int, optional
        As for `patch`.

    References
    ----------
    Turner et al. (2023), "Activation addition: steering language models without optimization",
    https://arxiv.org/abs/2308.10248.

    Examples
    --------
    >>> import regard
    >>> model = regard.load("induction")
    >>> edit = add(np.zeros(128), "blocks.0.output")
    >>> model.generate("qzkfqz", max_new_tokens=1, edit=edit).text
    'k'
    """
    vector = vector if hasattr(vector, "requires_grad") else np.asarray(vector)

    def added(part: Array) -> Array:
        shape = tuple(part.shape)
        try:
            return part + broadcast_like(vector, part, shape)
        except ValueError:
            given = tuple(vector.shape)
            raise RegardError(f"a vector of shape {given} cannot be added to values of shape {shape}") from None

    return _changing(sites, heads, positions, added)


def scale(factor: float, *sites: Site, positions: Positions = None, heads: Positions = None) -> Edits:
    """Return the edits that multiply values by a factor: 0 removes them, 2 doubles them.

    Parameters
    ----------
    factor : float
    *sites : str or (layer, head)
    positions, heads : int or sequence of int, optional
        As for `patch`.
    """
    factor = finite_number("factor", factor)
    return _changing(sites, heads, positions, lambda part: part * factor)


class _Entry(NamedTuple):
    """One text of a reference set: its number of tokens, and its values ``… T …`` without batch axis and padding."""

    length: int
    values: dict[str, np.ndarray]


def _entries(reference: Reference, names: Iterable[str]) -> Iterable[_Entry]:
    """Yield the texts of a reference set; an error if there is none."""
    found = False
    for item in (reference,) if isinstance(reference, Trace) else reference:
        trace = item if isinstance(item, Trace) else item[1]
        values = {name: trace[name] for name in names}
        values = {name: to_numpy(value) if hasattr(value, "requires_grad") else value for name, value in values.items()}
        for at in range(len(next(iter(values.values())))):
            found = True
            size = next(iter(values.values())).shape[-2]
            length = len(trace.encodings[at]) if trace.encodings else size
            yield _Entry(length, {name: value[at][..., :length, :] for name, value in values.items()})
    if not found:
        raise RegardError("the reference has no texts: give a trace, or what model.iter_traces(texts, only=...) yields")


def _replacing(trace: Trace, parts: Mapping[str, list[int] | None], positions: Positions) -> Edits:
    return Edits({name: _writing(name, trace[name], heads, positions) for name, heads in parts.items()})


def _writing(name: str, source: np.ndarray, heads: list[int] | None, positions: Positions) -> Edit:
    return lambda before: write_part(name, source, heads, positions, before)


def _changing(sites: Sequence[Site], heads: Positions, positions: Positions, change: Callable[[Array], Array]) -> Edits:
    """Return edits that put a function of a part of each value in its place."""

    def changing(name: str, numbers: list[int] | None) -> Edit:
        def edit(value: Array) -> Array:
            at = index_of(name, numbers, positions, value.shape)
            value[at] = change(value[at])
            return value

        return edit

    return Edits({name: changing(name, numbers) for name, numbers in parts_of(sites, heads).items()})


def _of_heads(heads: Sequence[Head], step: str, change: Callable[[Array], None]) -> Edits:
    """Return edits of a step with an axis of heads, ``B H …``; `change` writes into those of `heads`."""
    if not heads:
        raise RegardError("no heads given: give each as (layer, head)")
    chosen = steps_of_heads(heads, step)
    return Edits({name: _in_each(name, sorted(set(numbers)), change) for name, numbers in chosen.items()})


def _in_each(name: str, heads: list[int], change: Callable[[Array], None]) -> Edit:
    def edit(value: Array) -> Array:
        for head in checked_indices(f"head {{}} of {name}", heads, value.shape[1]):
            change(value[:, head])
        return value

    return edit
