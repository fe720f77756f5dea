"""Ready-made edits of a run: ``model(text, edit=ablate((3, 7)))``.

Each function returns `Edits`, from names of steps to functions, as `Trace` and the models take them; ``one | other``
has both. A *site* is the name of a step, ``"blocks.3.mlp.output"``, or a head, ``(3, 7)``: its ``context``, which
enters the output projection. A layer is its number, or the name of its attention, ``"decoder.blocks.3.cross_attn"``.
Where an output gate multiplies the context before the projection, what a head has in another run (`patch`, `freeze`,
`mean_ablate`, `resample_ablate`) is the product, ``gated_context``; `ablate`, `add` and `scale` change the context.

`positions` are those of tokens (of queries, where the value is a map), counted from the first of each text, or from its
end if negative: the padding of a batch has none. While a text is generated they are those of the whole text, prompt and
new tokens, negative ones counted from the end of the prompt; the new tokens of an encoder-decoder follow a start token,
its target's position 0. A position that a generated text does not reach changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import boolean, finite_number, one_of, truncate, whole_number
from regard.functional.arrays import Array, as_array
from regard.trace.edit_parts import Source, broadcast_like, change_part, checked_indices, write_part
from regard.trace.edit_sites import Edits, Head, Positions, Site, indices_of, parts_of, steps_of_heads
from regard.trace.mask_io import to_numpy
from regard.trace.text_layout import LocatedEdit, Place, TextLayout
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
    *heads : (layer, head) or str
        Or ``"L3H7"``.
    by : {"zero", "mean"}
        Replace it by 0, or by its mean over the tokens of its text. A text that is generated has no mean yet: there,
        use `mean_ablate`.

    Examples
    --------
    >>> edit = ablate((3, 7), (3, 8), (5, 0))
    >>> list(edit)
    ['blocks.3.attn.context', 'blocks.5.attn.context']
    """
    if not isinstance(by, str) or by not in ("zero", "mean"):
        raise RegardError(f"by must be zero or mean, got {by!r}")

    def ablated(context: Array, layout: TextLayout | None) -> None:  # B T Dv
        if by == "zero":
            context[...] = 0
        elif layout is None:
            context[...] = context.mean(-2, keepdims=True)
        elif layout.grows:
            raise RegardError("a text that is generated has no mean yet: use mean_ablate, over other texts")
        else:
            for i, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
                context[i] = context[i, start : start + length].mean(-2, keepdims=True)

    return _of_heads(heads, "context", ablated)


def force_pattern(pattern: Pattern, *heads: Head) -> Edits:
    """Return the edits that replace the attention pattern of some heads by a fixed one.

    Parameters
    ----------
    pattern : {"uniform", "self", "previous", "first"}
        All weight uniformly on the keys that have any; on the token itself; on the token before (the first: itself);
        on the first token. For self-attention without a cache.
    *heads : (layer, head) or str
        Or ``"L3H7"``.
    """
    one_of("pattern", pattern, get_args(Pattern))

    def forced(weights: Array, _: TextLayout | None) -> None:  # B T S
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
        For a run on texts of the same numbers of tokens; of one text, or as many as the run. While a text is
        generated, of any number: a position gets the value of the same position.
    *sites : str or (layer, head)
        Recorded in it, or patterns, as for `Trace`.
    positions, heads : int or sequence of int, optional
        Those to replace; by default all that the other run has. `heads` is for steps that have an axis of heads: ``q``,
        ``k``, ``v``, ``weights``, ``context``.

    Raises
    ------
    RegardError
        The trace has no such value; or, in the run, its shape differs.

    References
    ----------
    Meng et al. (2022), "Locating and editing factual associations in GPT", https://arxiv.org/abs/2202.05262.
    """
    return _replacing(trace, parts_of(sites, heads, _checked_trace(trace)), positions)


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
    frozen, but = parts_of(sites, None, _checked_trace(trace)), _sites_of(but)
    free: dict[str, list[int] | None] = {}
    for site in but:
        for name, heads in parts_of([site], None, trace).items():
            names = {name, name.replace(".gated_", ".")} & frozen.keys()  # a head is free before its gate too
            if not names or not all(set(heads or ()) <= set(frozen[each] or _heads_of(trace, each)) for each in names):
                raise RegardError(f"but= leaves {site!r} free, which is not among what is frozen")
            for each in names:
                others = free.get(each, [])
                free[each] = None if heads is None or others is None else [*others, *heads]
    kept: dict[str, list[int] | None] = {}
    for name, heads in frozen.items():
        if name in free:
            released = free[name]
            if released is None:
                continue
            kept[name] = sorted(set(_heads_of(trace, name) if heads is None else heads) - set(released))
        else:
            kept[name] = heads
    return _replacing(trace, {name: heads for name, heads in kept.items() if heads != []}, None)


def _heads_of(trace: Trace, name: str) -> range:
    return range(trace[name].shape[-3])


def mean_ablate(reference: Reference, *sites: Site, positions: Positions = None, by_position: bool = False) -> Edits:
    """Return the edits that replace values by their mean over a reference set of texts.

    Parameters
    ----------
    reference : Trace or iterable of Trace
        Runs on other texts that recorded the sites, as ``model.iter_traces(texts, only="*.attn.context")`` yields them.
    *sites : str or (layer, head)
        Recorded in them, or patterns, as for `Trace`.
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
    by_position = boolean("by_position", by_position)
    indices = indices_of("positions", positions)
    parts, entries = _reference_parts(reference, sites)
    sums: dict[str, Any] = {}
    count = 0
    for entry in entries:
        for name, value in entry.values.items():
            total = value.astype(np.float64) if by_position else value.sum(-2, keepdims=True, dtype=np.float64)
            if name in sums and sums[name].shape != total.shape:
                raise RegardError(
                    f"{name} has shape {total.shape} in one text of the reference and {sums[name].shape} in another: a "
                    "mean by position, or of a map, needs texts of the same number of tokens"
                )
            sums[name] = sums.get(name, 0) + total
        count += 1 if by_position else entry.length
    means = {name: total / count for name, total in sums.items()}
    if by_position:
        return Edits({name: _writing(name, Source(means[name][None]), heads, indices) for name, heads in parts.items()})

    def averaged(name: str, heads: list[int] | None) -> Edit:
        mean = means[name]
        if heads is not None:
            mean = mean[checked_indices(f"head {{}} of {name}", heads, mean.shape[-3])]

        def averaging(part: Array) -> Array:
            if mean.shape[-1] != part.shape[-1]:
                raise RegardError(
                    f"the reference has {name} with {mean.shape[-1]} numbers instead of {part.shape[-1]}: it is of "
                    "another model, or, of maps, of texts of another number of tokens"
                )
            return broadcast_like(mean, part, part.shape)

        return _changing(name, heads, indices, averaging)

    return Edits({name: averaged(name, heads) for name, heads in parts.items()})


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
    indices, seed = indices_of("positions", positions), whole_number("seed", seed, 0)
    parts, iterator = _reference_parts(reference, sites)
    entries = list(iterator)
    longest = max(entry.length for entry in entries)

    def draw(layout: TextLayout) -> list[_Entry]:
        """Return the text that each text of a run draws."""
        chances, drawn = np.random.default_rng(seed).random(layout.rows.max() + 1), []
        for length, chance in zip(layout.lengths, chances[layout.rows], strict=True):
            candidates = [entry for entry in entries if entry.length >= length]
            if not candidates:
                raise RegardError(f"no text of the reference has {length} tokens or more; the longest has {longest}")
            drawn.append(candidates[int(chance * len(candidates))])
        return drawn

    def resampled(name: str, heads: list[int] | None) -> Edit:
        def edit(before: Array, place: Place) -> Array:
            layout = place.layout or TextLayout.from_shape((len(before), before.shape[-2]))
            drawn, rows = draw(layout), np.arange(len(layout.rows))
            lengths = np.array([entry.length for entry in drawn]) if layout.grows else layout.lengths
            values = [entry.values[name][..., :length, :] for entry, length in zip(drawn, lengths, strict=True)]
            source = Source(_stacked(values), TextLayout(np.zeros_like(rows), lengths, rows))
            return write_part(name, before, heads, indices, Place(replace(layout, rows=rows), place.axes), source)

        return LocatedEdit(edit)

    return Edits({name: resampled(name, heads) for name, heads in parts.items()})


def _stacked(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return values ``... T E`` of several texts as one array, shorter ones padded with 0."""
    length = max(value.shape[-2] for value in values)
    pads = ([(0, 0)] * (value.ndim - 2) + [(0, length - value.shape[-2]), (0, 0)] for value in values)
    return np.stack([np.pad(value, pad) for value, pad in zip(values, pads, strict=True)])


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
    vector = as_array(vector, "vector")

    def added(part: Array) -> Array:
        shape = tuple(part.shape)
        try:
            return part + broadcast_like(vector, part, shape)
        except ValueError:
            size = tuple(vector.shape)
            raise RegardError(f"a vector of shape {size} cannot be added to values of shape {shape}") from None

    return _changing_all(sites, heads, positions, added)


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
    return _changing_all(sites, heads, positions, lambda part: part * factor)


class _Entry(NamedTuple):
    """One text of a reference set: its number of tokens, and its values ``… T …`` without batch axis and padding."""

    length: int
    values: dict[str, np.ndarray]


def _reference_parts(
    reference: Reference, sites: Sequence[Site]
) -> tuple[dict[str, list[int] | None], Iterator[_Entry]]:
    """Return the steps of some sites with their heads, and the texts of a reference set; an error if there is none."""
    if not isinstance(reference, Iterable) or isinstance(reference, str):
        raise RegardError(f"a reference is a trace, or several, such as model.iter_traces(texts), got {reference!r}")
    items = (reference,) if isinstance(reference, Trace) else reference
    traces = (_checked_trace(item[1] if isinstance(item, tuple) and len(item) == 2 else item) for item in items)
    first = next(traces, None)
    if first is None:
        raise RegardError("the reference has no texts: give a trace, or what model.iter_traces(texts, only=...) yields")
    parts = parts_of(sites, None, first)
    return parts, _entries(chain((first,), traces), parts)


def _entries(traces: Iterable[Trace], names: Iterable[str]) -> Iterator[_Entry]:
    """Yield the texts of a reference set."""
    for trace in traces:
        values = {name: trace[name] for name in names}
        for name in names:
            if trace.axes(name).split()[-2:-1] not in (["T"], ["S"]):
                raise RegardError(f"{name} has the axes {trace.axes(name)}: a reference is of vectors or maps, … T E")
        values = {name: to_numpy(value) if hasattr(value, "requires_grad") else value for name, value in values.items()}
        first = next(iter(values))
        layout = trace.layout(first)
        for at in range(len(values[first])):
            if layout is not None:
                start, length = int(layout.starts[at]), int(layout.lengths[at])
            else:
                start, length = 0, len(trace.encodings[at]) if trace.encodings else values[first].shape[-2]
            text = slice(start, start + length)
            yield _Entry(length, {name: value[at][..., text, :] for name, value in values.items()})


def _checked_trace(trace: Any) -> Trace:
    if not isinstance(trace, Trace):
        raise RegardError(f"a trace of a run is needed, regard.Trace(), got {truncate(trace)}")
    return trace


def _sites_of(but: Any) -> tuple[Site, ...]:
    """Return one site, or several, as several."""
    is_head = isinstance(but, tuple) and len(but) == 2 and isinstance(but[1], int | np.integer)
    if isinstance(but, str) or is_head or not isinstance(but, Iterable):
        return (but,)
    return tuple(but)


def _replacing(trace: Trace, parts: Mapping[str, list[int] | None], positions: Positions) -> Edits:
    indices = indices_of("positions", positions)
    return Edits(
        {name: _writing(name, Source(trace[name], trace.layout(name)), heads, indices) for name, heads in parts.items()}
    )


def _writing(name: str, source: Source, heads: list[int] | None, positions: list[int] | None) -> Edit:
    return LocatedEdit(lambda before, place: write_part(name, before, heads, positions, place, source))


def _changing(
    name: str, heads: list[int] | None, positions: list[int] | None, change: Callable[[Array], Array]
) -> Edit:
    """Return the edit that puts a function of a part of a value in its place."""
    return LocatedEdit(lambda value, place: change_part(name, value, heads, positions, place, change))


def _changing_all(
    sites: Sequence[Site], heads: Positions, positions: Positions, change: Callable[[Array], Array]
) -> Edits:
    parts, indices = parts_of(sites, heads), indices_of("positions", positions)
    return Edits({name: _changing(name, numbers, indices, change) for name, numbers in parts.items()})


def _of_heads(heads: Sequence[Head], step: str, change: Callable[[Array, TextLayout | None], None]) -> Edits:
    """Return edits of a step with an axis of heads, ``B H …``; `change` writes into those of `heads`."""
    if not heads:
        raise RegardError("no heads given: give each as (layer, head) or 'L3H7'")
    numbers_by_step = steps_of_heads(heads, step)
    return Edits({name: _in_each(name, sorted(set(numbers)), change) for name, numbers in numbers_by_step.items()})


def _in_each(name: str, heads: list[int], change: Callable[[Array, TextLayout | None], None]) -> Edit:
    def edit(value: Array, place: Place) -> Array:
        for head in checked_indices(f"head {{}} of {name}", heads, value.shape[1]):
            change(value[:, head], place.layout)
        return value

    return LocatedEdit(edit)
