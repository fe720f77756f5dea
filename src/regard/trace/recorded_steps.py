"""The steps of a run that were recorded: read by name, selected, stored in a file, shown."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, KeysView, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from regard._utils import hooks
from regard._utils.errors import RegardError
from regard._utils.frames import load_xarray
from regard.functional.scores.stages import STAGES
from regard.text.encoding import Encoding
from regard.text.token_labels import token_labels
from regard.trace.attention_map import AttentionMap
from regard.trace.notebook_html import MAX_SIDE, MAX_TILES, page, picture, table, tokens_line
from regard.trace.step_names import canonical_name, did_you_mean, preferred_names, quadratic_stage
from regard.trace.steps import Step, formula
from regard.trace.text_layout import TextLayout
from regard.trace.trace_file import TraceData, check_batch, read_trace, write_trace

__all__ = ["RecordedSteps"]

_SHOWN = 8  # steps in the HTML of a trace


class RecordedSteps:
    """What a `Trace` is once its run is over: named values, and attention maps from which weights are computed."""

    _only: tuple[str, ...] | None = None  # the names that were to be recorded; None: all

    def __init__(self) -> None:
        self.model = ""
        self.source: Any = None  # the model itself, of a run in this process
        self.encodings: tuple[Encoding, ...] = ()
        self.target_encodings: tuple[Encoding, ...] = ()
        self._taps: dict[str, None] = {}  # the names of all taps, recorded or not, in order
        self._untapped: dict[str, None] = {}  # those of optional taps, whether they were made or not
        self._values: dict[str, np.ndarray] = {}
        self._axes: dict[str, str] = {}
        self._maps: dict[str, AttentionMap] = {}  # by the name of its weights
        self._layouts: dict[str, TextLayout | None] = {}  # the positions of the texts in each value

    def set_metadata(self, model: str, encodings: Sequence[Encoding], targets: Sequence[Encoding] = ()) -> None:
        """Store the model's name, and the tokens of each batch entry, of an encoder–decoder also of its target."""
        self.model = model
        self.encodings, self.target_encodings = tuple(encodings), tuple(targets)

    def names(self) -> tuple[str, ...]:
        """Return the recorded names in the order in which they were computed."""
        return tuple(self._axes)

    def tapped(self) -> tuple[str, ...]:
        """Return the names of all steps of the run, recorded or not, in the order in which they were computed."""
        return tuple(self._taps)

    def optional_steps(self) -> tuple[str, ...]:
        """Return the names of the optional steps of the run, which are recorded only if they are named."""
        return tuple(self._untapped)

    def steps(self) -> tuple[Step, ...]:
        """Return the recorded arrays as a table: name, formula, axes (with the shape) and values of each step."""
        return tuple(Step(name, formula(name), self._axes[name], values) for name, values in self._values.items())

    def axes(self, name: str) -> str:
        """Return the axis letters of a recorded value, such as ``"B H T S"``."""
        resolved = self.resolved(name)
        if resolved not in self._axes:
            self[name]  # raises
        return self._axes[resolved]

    def layout(self, name: str) -> TextLayout | None:
        """Return where the texts stand in a recorded value; None where no model said it, and in a trace of a file."""
        resolved = self.resolved(name)
        scope = resolved.rpartition(".")[0]
        return self._layouts.get(resolved) or self._layouts.get(f"{scope}.weights" if scope else "weights")

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the recorded names that a pattern, or a name, stands for."""
        return tuple(name for name in self._axes if self._means(pattern, name))

    def _means(self, pattern: str, full: str) -> bool:
        """Whether a pattern names this step, and not another of the run in its place."""
        preferred = preferred_names(full, pattern)
        return preferred is not None and not any(
            name in names for name in preferred for names in (self._taps, self._untapped, self._axes)
        )

    def resolved(self, name: object) -> Any:
        """Return the name of a step of the run for a name of TransformerLens; any other unchanged."""
        if name in self._values or not isinstance(name, str):
            return name
        return canonical_name(name, self._axes if not self._untapped else self._axes | self._untapped)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value recorded as `name`, or compute it from the attention map.

        A pattern, ``"blocks.*.attn.weights"``, returns the values of all steps that match it as one array with a new
        first axis, ``L B H T S``, in the order in which they were computed.

        Raises
        ------
        RegardError
            There is no such value; or the values that match a pattern have several shapes.
        """
        if not isinstance(name, str):
            raise RegardError(f"a step is read by its name, such as 'blocks.0.attn.weights', got {name!r}")
        if set(name) & set("*?["):
            return self._stacked(name)
        resolved = self.resolved(name)
        if resolved in self._values:
            return self._values[resolved]
        stage, scope = quadratic_stage(resolved), resolved.rpartition(".")[0]
        attention_map = self._maps.get(f"{scope}.weights" if scope else "weights")
        if attention_map is not None and stage is not None and stage != "dropped":
            values: np.ndarray = attention_map.tile(stage=stage)
            return values
        if resolved in self._untapped:
            raise RegardError(f"the trace has no {resolved}: it is recorded if asked for, Trace(only={resolved!r})")
        only = f", with only={', '.join(self._only)}" if self._only is not None else ""
        raise RegardError(f"the trace has no {name!r}; {did_you_mean(name, self._axes)}{only}")

    def _stacked(self, pattern: str) -> np.ndarray:
        """Return the values of all steps that match a pattern, as one array."""
        stages = (f"{name.rpartition('.')[0]}.{stage}".removeprefix(".") for name in self._maps for stage in STAGES)
        names = [name for name in dict.fromkeys((*self._axes, *stages)) if self._means(pattern, name)]
        if not names:
            raise RegardError(f"the trace has no {pattern!r}; {did_you_mean(pattern, self._axes)}")
        values = [self[name] for name in names]
        for name, value in zip(names, values, strict=True):
            first = values[0].shape
            if value.shape != first:
                raise RegardError(
                    f"{pattern!r} matches {names[0]} of shape {first} and {name} of {value.shape}, which make "
                    "no one array: read each, or give a pattern of one kind"
                )
        return self._stack(values)

    def _stack(self, values: list[np.ndarray]) -> np.ndarray:
        return np.stack(values)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value recorded as `name`, or computed from the attention map; `default` if there is none."""
        try:
            return self[name]
        except RegardError:
            return default

    def keys(self) -> KeysView[str]:
        """Return the recorded names, in the order in which they were computed."""
        return self._axes.keys()

    def values(self) -> Iterator[np.ndarray]:
        """Yield the recorded values in that order; the weights of each map are computed in turn."""
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the recorded names and values as `values` does."""
        return ((name, self[name]) for name in self)

    def __contains__(self, name: object) -> bool:
        return self.resolved(name) in self._axes

    def __iter__(self) -> Iterator[str]:
        return iter(self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def has_map(self, name: str = "") -> bool:
        """Whether the trace has the map of this attention."""
        return (f"{name}.weights" if name else "weights") in self._maps

    def map(self, name: str = "") -> AttentionMap:
        """Return the map of an attention, ``"blocks.3.attn"``; "" for a bare layer."""
        weights = f"{name}.weights" if isinstance(name, str) and name else "weights"
        if not isinstance(name, str) or weights not in self._maps:
            scopes = ", ".join(each.rpartition(".")[0] for each in self._maps)
            remedy = f"there are {scopes}" if scopes else "record with Trace(maps=True)"
            raise RegardError(
                f"the trace has no map of {'the layer' if isinstance(name, str) and not name else name!r}; {remedy}"
            )
        return self._maps[weights]

    def select(self, index: int) -> Self:
        """Return the trace of one text of a batch, with a batch of 1: views of the arrays, padding included.

        Raises
        ------
        RegardError
            There is no such text.
        """
        sizes = [self._shape(name)[0] for name, axes in self._axes.items() if axes.startswith("B ")]
        count = max(1, len(self.encodings), *sizes)
        if not isinstance(index, int | np.integer) or not 0 <= index < count:
            raise RegardError(f"there is no text {index!r} in a batch of {count}")
        trace = self._empty()
        trace.set_metadata(self.model, self.encodings[index : index + 1], self.target_encodings[index : index + 1])
        trace.source = self.source
        trace._taps, trace._untapped, trace._axes = dict(self._taps), dict(self._untapped), dict(self._axes)
        one = slice(index, index + 1)
        trace._layouts = {name: layout and layout.select(one) for name, layout in self._layouts.items()}
        trace._values = {
            name: value[one] if self._axes[name].startswith("B ") else value for name, value in self._values.items()
        }
        trace._maps = {
            name: each.select(one) if self._axes[name].startswith("B ") else each for name, each in self._maps.items()
        }
        return trace

    def subtrace(self, name: str) -> Self:
        """Return the values recorded under ``name.``, without that prefix, as a trace.

        The ``"encoder"`` or the ``"decoder"`` of an encoder–decoder is then a trace like that of any other model, with
        the tokens of the text or of the target.

        Raises
        ------
        RegardError
            Nothing was recorded there.
        """
        if not isinstance(name, str):
            raise RegardError(f"a part of a trace is named, 'decoder', got {name!r}")
        prefix = f"{name}."
        trace = self._empty()
        is_decoder = name.split(".")[0] == "decoder"
        trace.set_metadata(self.model, self.target_encodings if is_decoder else self.encodings)
        for attribute in ("_taps", "_untapped", "_values", "_axes", "_maps", "_layouts"):
            inside = {full: value for full, value in getattr(self, attribute).items() if full.startswith(prefix)}
            getattr(trace, attribute).update({full.removeprefix(prefix): value for full, value in inside.items()})
        if not trace:
            raise RegardError(f"the trace has nothing under {prefix!r}; {did_you_mean(name, self._axes)}")
        return trace

    def _empty(self) -> Self:
        """Return a trace for a part of the values."""
        return type(self)()

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._values[name].shape if name in self._values else self._maps[name].shape

    def to_xarray(self, name: str) -> Any:
        """Return a recorded value as an ``xarray.DataArray`` with its axes as dimensions.

        Its name is that of the step. For one text, positions ``T`` and ``S`` have the tokens
        beside them, as the coordinates ``token`` and ``key_token``.

        Raises
        ------
        RegardError
            There is no such value, or xarray is not installed.
        """
        if set(name) & set("*?["):
            raise RegardError(f"a DataArray is of one step, got the pattern {name!r}: xarray.concat joins several")
        values, axes = self[name], self.axes(name).split()
        coordinates = {}
        for axis, label in (("T", "token"), ("S", "key_token")):
            if axis in axes and len(self.encodings) == 1:
                tokens = self.encodings[0].tokens
                if values.shape[axes.index(axis)] == len(tokens):
                    coordinates[label] = (axis, list(tokens))
        return load_xarray().DataArray(values, dims=axes, coords=coordinates, name=name, attrs={"model": self.model})

    def why(
        self,
        layer: int | str,
        head: int,
        query: int | str,
        key: int | str,
        versus: int | str | None = None,
        **options: Any,
    ) -> Any:
        """Return why a token attends to another: the score as a sum over pairs of writers of both residual streams.

        The same as `regard.metrics.why`, which has the arguments: ``by="token"``, ``batch``, ``model``.
        """
        return hooks.metrics().why(self, layer, head, query, key, versus, **options)

    def carried(self, layer: int | str, head: int, query: int | str, key: int | str, **options: Any) -> Any:
        """Return what a head moves from a key to a query, by who wrote the value: `regard.metrics.carried`."""
        return hooks.metrics().carried(self, layer, head, query, key, **options)

    def explore(self, other: Self | None = None, **options: Any) -> Any:
        """Return the explorer of this run, or of two side by side, to be shown in a notebook; see `regard.explore`.

        Needs the extra ``notebook``. From a script, ``regard.explore(trace)`` opens it in the browser.
        """
        return hooks.explorer_widget(*(trace for trace in (self, other) if trace is not None), **options)

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of what was recorded, of the same model."""
        memo[id(self.source)] = self.source
        copied = memo[id(self)] = object.__new__(type(self))
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the model, which is not part of what was recorded."""
        return {name: value for name, value in vars(self).items() if name != "source"} | {"source": None}

    def __repr__(self) -> str:
        of = f" of {self.model}" if self.model else ""
        size = (sum(v.nbytes for v in self._values.values()) + sum(m.nbytes for m in self._maps.values())) / 1e6
        return f"<Trace{of}: {len(self)} values, {size:.1f} MB>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the tokens, the last attention, and the first steps."""
        parts = [tokens_line(token_labels(self.encodings[0]))] if self.encodings else []
        attentions = [name for name in self if quadratic_stage(name) == "weights" and 0 not in self._shape(name)]
        for name in attentions[-1:]:
            source = self._maps.get(name) or self._values[name]
            parts.append(picture(_small_tiles(source), f"{name}: the first heads, queries down, keys across"))
        rows = [(name, axes, " × ".join(map(str, self._shape(name)))) for name, axes in self._axes.items()]
        more = [(f"… {len(rows) - _SHOWN} more", "", "")] if len(rows) > _SHOWN else []
        step = repr((attentions or [*self, ""])[0])
        return page(
            repr(self)[1:-1],
            *parts,
            table(("step", "axes", "shape"), rows[:_SHOWN] + more),
            try_next=(f"trace[{step}]", "trace.names()", "trace.explore()") if rows else (),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, with the tokens, the model's name and the axes as metadata.

        The file is written atomically.

        Raises
        ------
        RegardError
            The name ends with that of another format, the file cannot be written, or the number of encodings is not the
            batch size.
        """
        if Path(path).suffix.lower() not in ("", ".safetensors"):
            raise RegardError(f"a trace is saved as a .safetensors file, not as {os.fspath(path)}")
        data = TraceData(
            self.model,
            self.encodings,
            self._axes,
            self._values,
            self._maps,
            tuple(self._untapped),
            self.target_encodings,
        )
        check_batch(data)
        write_trace(path, data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a trace that `save` wrote. The values stay in the file, memory-mapped and read-only.

        Raises
        ------
        RegardError
            The file is missing, damaged, or not a trace.
        """
        trace, data = cls(), read_trace(path)
        trace.set_metadata(data.model, data.encodings, data.target_encodings)
        trace._axes, trace._values, trace._maps = data.axes, data.values, data.maps
        trace._untapped = dict.fromkeys(data.untapped)
        return trace


def _small_tiles(source: AttentionMap | np.ndarray) -> list[np.ndarray]:
    """Return the first heads of the weights ``... T S`` of a call of attention as small maps."""
    if isinstance(source, AttentionMap):
        return source.small_tiles()
    heads = source[(0,) * (source.ndim - 3)] if source.ndim > 2 else source[None]
    steps = (-(-size // MAX_SIDE) for size in heads.shape[-2:])
    rows, cols = (range(0, size, step) for size, step in zip(heads.shape[-2:], steps, strict=True))
    pooled = np.maximum.reduceat(np.maximum.reduceat(heads[:MAX_TILES].astype(np.float64), rows, -2), cols, -1)
    return list(pooled)
