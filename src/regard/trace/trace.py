"""`Trace`: the recorder that stores intermediate values by name, and applies edits to them.

A tap, ``scores = trace("scores", q @ k.mT, "... H T S")``, passes its value to the trace, which stores a copy, or
returns the result of the user's function, with which the computation continues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from regard._utils import hooks
from regard._utils.errors import RegardError
from regard._utils.frames import load_xarray
from regard.functional import native
from regard.functional.arrays import Array, as_array, namespace
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.functional.recorder import NULL_RECORDER, Recorder, RunStopped
from regard.functional.scores import STAGES
from regard.functional.variable import Variable, plain
from regard.text.encoding import Encoding
from regard.trace.attention_map import AttentionMap
from regard.trace.mask_io import to_numpy
from regard.trace.notebook_html import MAX_SIDE, MAX_TILES, page, picture, table, tokens_line
from regard.trace.step_names import (
    asks_by_name,
    canonical_name,
    canonical_names,
    did_you_mean,
    matches,
    preferred_names,
    quadratic_stage,
)
from regard.trace.steps import Step, formula
from regard.trace.text_layout import Place, TextLayout, located
from regard.trace.trace_file import TraceData, check_batch, fitted_axes, read_trace, write_trace

__all__ = ["NULL_RECORDER", "Edit", "Recorder", "Step", "Trace"]

_SHOWN = 8  # steps in the HTML of a trace

Edit = Callable[[np.ndarray], np.ndarray]


class Trace:
    """Named intermediate values of one computation.

    Parameters
    ----------
    only : str or iterable of str, optional
        Names to record, everything by default. Between two dots ``*`` is one part of a name,
        ``"blocks.*.attn.weights"``; elsewhere it is anything, ``"*weights"``. The model raises after the run if one
        matched no step; after a bare layer see `unmatched`.

        Some steps are recorded only if a name ends with theirs, ``"*.head_outputs"``, and not by default or by ``"*"``:
        what each head adds to the residual stream (``head_outputs``, ``H`` times the size of a stream), the inputs of
        sublayers and the scales of norms (``attn_norm``, ``attn_norm.scale``, ``attn_norm.normalized``, and so of each
        norm), queries and keys before norms and rotary embedding (``projected_q``, ``projected_k``), and ``mlp.up``
        without a gate.
    optional : str or iterable of str, optional
        Further names to record, of steps that not every model has: one that matches no step is no error.
    maps : bool
        Store each attention as an `AttentionMap`, in O(n · D) memory, instead of the arrays ``scores`` … ``weights``,
        which hold n² numbers. ``trace["blocks.3.attn.weights"]`` then computes the weights, and
        ``trace.map("blocks.3.attn")`` any part of them. Where one of those arrays is edited, the weights are recorded
        instead.
    start : mapping of str to array, optional
        The output of a block of a decoder, from which its run starts in place of the embeddings, with the bits of a
        whole run: ``{"blocks.3.output": recorded["blocks.3.output"]}``. Nothing earlier is computed, nor recorded. For
        a batch, the output of one text stands for all.
    stop : str, optional
        The name of the step after which a run ends: nothing later is computed, and the result of the model has no
        vectors. A function or a layer called by itself raises instead.
    edit : mapping of str to function, optional
        Names (``*`` as above) to functions: a function gets a copy of the value and returns an array of the same shape,
        with which the computation continues. The edited value is recorded. The model raises after the run if a name
        matched no step; after a bare layer see `unmatched`.

    Names of TransformerLens are understood too: ``blocks.3.attn.hook_pattern``, ``blocks.3.hook_resid_post``
    (`regard.trace.steps`). Arrays of other libraries are recorded, and passed to edits, as NumPy arrays (bfloat16 as
    float32); the result of an edit returns to their library and device. Where PyTorch records a gradient, the function
    runs once more when it is computed, on a tensor, and is differentiated; one that cannot run on tensors, or gives
    other numbers for them, is then an error.

    Attributes
    ----------
    model : str
        Name of the traced model, "" for a bare layer.
    encodings : tuple of Encoding
        The tokens of each batch entry; empty where there is no text.
    target_encodings : tuple of Encoding
        The tokens that the decoder of an encoder–decoder read for each of them; empty for other models.

    Examples
    --------
    >>> import numpy as np
    >>> from regard import attention
    >>> trace = Trace()
    >>> x = np.eye(2)
    >>> _ = attention(x, x, x, trace=trace)
    >>> trace.names()
    ('scores', 'weights', 'context')
    >>> trace.axes("weights"), trace["weights"].shape
    ('T S', (2, 2))
    """

    def __init__(
        self,
        *,
        only: str | Iterable[str] | None = None,
        optional: str | Iterable[str] = (),
        maps: bool = False,
        start: Mapping[str, Array] | None = None,
        stop: str | None = None,
        edit: Mapping[str, Edit] | None = None,
    ) -> None:
        self.model = ""
        self.encodings: tuple[Encoding, ...] = ()
        self.target_encodings: tuple[Encoding, ...] = ()
        self._optional = names_of("optional", optional)
        self._required = () if only is None else names_of("only", only)
        self._only = None if only is None and not self._optional else (*self._required, *self._optional)
        if not isinstance(edit, Mapping | None):
            raise RegardError(f"edit maps names to functions, {{'blocks.0.attn.weights': function}}, got {edit!r}")
        self._edit = dict(edit or {})
        for name, function in self._edit.items():
            if not isinstance(name, str):
                raise RegardError(f"edit maps names to functions, got {name!r} for a name")
            if not callable(function):
                raise RegardError(f"the edit of {name} must be a function of its array, got {function!r}")
        if stop is not None and (not isinstance(stop, str) or set(stop) & set("*?[")):
            raise RegardError(f"stop is the name of one step, such as 'blocks.3.output', got {stop!r}")
        self._stop = stop
        self._start = _start_of(start)
        self._is_before_start = self._start is not None
        self._asked = (*(self._only or ()), *self._edit, *([] if stop is None else [stop]))
        self._is_ambiguous = False  # whether a name stands for several steps, of which a run has one
        for pattern in self._asked:
            names = canonical_names(pattern)  # raises where it names several steps at once
            self._is_ambiguous |= len(names) > 1
            if pattern not in (self._only or ()) and names[-1].endswith("token_embeddings") and len(names) > 1:
                raise RegardError(f"{pattern} is one of {', '.join(names)}: name that of this model")
        self._keep_maps = maps
        self._maps: dict[str, AttentionMap] = {}  # by the name of its weights
        self._prefix = ""
        self._taps: dict[str, None] = {}  # the names of all taps, recorded or not, in order
        self._untapped: dict[str, None] = {}  # those of optional taps, whether they were made or not
        self._values: dict[str, np.ndarray] = {}
        self._axes: dict[str, str] = {}
        self._layout: TextLayout | None = None  # of the values that are computed now
        self._layouts: dict[str, TextLayout | None] = {}  # of those recorded
        self._buffers: set[int] | None = None  # in a run whose large values are stored without a copy, those stored

    # Recording

    def __call__(self, name: str, value: Array, axes: str) -> Array:
        """Record `value` as `name` in the current scope and return it, or the result of its edit."""
        return self._tap(name, value, axes, is_shared=True)

    def take(self, name: str, value: np.ndarray, axes: str) -> None:
        """Record a value that nothing else refers to, as a call does but without a copy of a NumPy array."""
        self._tap(name, value, axes, is_shared=not isinstance(value, np.ndarray) or self.edits(name))

    def _tap(self, name: str, value: Array, axes: str, *, is_shared: bool) -> Array:
        if self._is_before_start:
            return value
        full = self._prefix + name
        self._taps[full] = None
        edits = self._edits_of(full, axes, value.ndim)
        for function in edits:
            value = _edited(full, value, function)
        if self._is_recorded(full):
            self._note(full, axes, value.ndim)
            needs_copy = is_shared and (bool(edits) or not self._holds(value))
            self._values[full] = to_numpy(value) if needs_copy else value
        self._stop_after(full, value)
        return value

    def _holds(self, value: Array) -> bool:
        """Tell whether a value may be stored without a copy: of those of a run, one that fills a buffer, once."""
        if self._buffers is None or (buffer := native.pool_buffer(value)) is None or buffer in self._buffers:
            return False
        self._buffers.add(buffer)
        return True

    @contextmanager
    def without_copies(self) -> Iterator[None]:
        """Return the context of a run whose values are not written to, and stay inside it but for `for_caller`."""
        self._buffers = set()
        try:
            yield
        finally:
            self._buffers = None

    def for_caller(self, value: Array) -> Array:
        """Return a value that leaves a run, or a copy of it if it is stored."""
        is_stored = self._buffers is not None and native.pool_buffer(value) in self._buffers
        return native.pooled_copy(value) if is_stored else value

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which every name begins with ``name.``; scopes nest."""
        return _Scope(self, name)

    def editing(self) -> Trace:
        """Return a trace with the same edits that records nothing, so that names may repeat."""
        return Trace(only=(), edit=self._edit)

    @property
    def leaves(self) -> Sequence[Any]:
        """Nothing: a trace takes no gradients."""
        return ()

    def checkpoint(self) -> tuple[Recorder, Recorder]:
        """Return the recorders of a part of a run that keeps nothing for gradients, and of the same part again."""
        again = self.editing()
        again._prefix, again._layout = self._prefix, self._layout
        return self, again

    def wants(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be recorded or edited."""
        full = self._prefix + name
        return self._is_recorded(full) or self._is_edited(full) or self._is_computed_last(full)

    def asks_for(self, *names: str) -> bool:
        """Whether one of these optional taps of this scope is to be made; count their names as those of the run."""
        full = [self._prefix + name for name in names]
        self._untapped.update(dict.fromkeys(full))
        return bool(self._asked) and any(self._asks_for(each) for each in full)

    def announce(self, name: str) -> None:
        """Count a tap that follows in this scope as one of the run."""
        if not self._is_before_start:
            self._taps[self._prefix + name] = None

    def _asks_for(self, full: str) -> bool:
        return any(asks_by_name(full, pattern) and self._means(pattern, full) for pattern in self._asked)

    def edits(self, name: str) -> bool:
        """Whether a tap called `name` in this scope would be edited."""
        return self._is_edited(self._prefix + name)

    def stops(self, name: str) -> bool:
        """Whether a run ends after a tap called `name` in this scope."""
        return self._is_last(self._prefix + name)

    @property
    def _selection(self) -> tuple[Any, ...]:
        """What decides which steps are recorded or edited, and where a run ends: two traces alike in it are alike."""
        return self._only, self._keep_maps, tuple(self._edit), self._stop

    @property
    def asks_for_values(self) -> bool:
        """Whether there may be steps that it records or edits, or after which a run ends."""
        return self._only is None or bool(self._only or self._edit or self._stop)

    @property
    def has_start(self) -> bool:
        """Whether a run starts from the output of a block."""
        return self._start is not None

    def resume(self, x: Array) -> tuple[int, Array]:
        """Return the index of the first block that a decoder runs, and its input, `x` for the first one of all.

        Raises
        ------
        RegardError
            The output of a block from which the run starts has another shape than `x`.
        """
        if self._start is None:
            return 0, x
        name, block, state = self._start
        if state.shape != x.shape and state.shape != (1, *x.shape[1:]):
            raise RegardError(f"start= has {name} of shape {state.shape}, and this run needs {tuple(x.shape)}")
        self._is_before_start = False
        return block + 1, np.broadcast_to(state.astype(x.dtype, copy=False), x.shape)

    def can_skip(self, *names: str) -> bool:
        """Whether none of these taps needs its value; if so, count their names as tapped."""
        if any([self.wants(name) for name in names]):  # noqa: C419, a list is faster
            return False
        self._taps.update(dict.fromkeys(self._prefix + name for name in names))
        return True

    def attention_options(self) -> dict[str, Any]:
        """Return no further options of a call of attention."""
        return {}

    def wants_attention(self) -> bool:
        """Whether `record_attention` would store a map in this scope."""
        name = self._prefix + "weights"
        is_named = any(self._is_named(self._prefix + stage) for stage in STAGES)
        return self._keep_maps and is_named and not self._has_edited_map(name)

    def record_attention(self, inputs: Any, stats: Any = None) -> None:
        """Store the map of a call of attention: its inputs without values, and the `stats` of its rows, if computed."""
        if not self.wants_attention():
            return
        name = self._prefix + "weights"
        inputs = inputs.with_parameters({name: plain(x) for name, x in inputs.parameters.items()})
        attention_map = AttentionMap.of(inputs.to_compute_dtype(), stats).copy()
        self._taps[name] = None
        self._note(name, "... H T S", attention_map.ndim)
        for stage in STAGES if self._only is not None else ():
            if self._is_named(self._prefix + stage):  # its map gives it
                self._taps[self._prefix + stage] = None
        self._maps[name] = attention_map
        self._stop_after_map(attention_map.q)

    def record_weights(self, weights: Array) -> None:
        """Store the weights of a call of attention as an array, where a map is wanted that cannot be computed again."""
        if self.wants_attention():
            name = self._prefix + "weights"
            self._note(name, "... H T S", weights.ndim)
            self._values[name] = to_numpy(weights)

    def set_metadata(self, model: str, encodings: Sequence[Encoding], targets: Sequence[Encoding] = ()) -> None:
        """Store the model's name, and the tokens of each batch entry, of an encoder–decoder also of its target."""
        self.model = model
        self.encodings, self.target_encodings = tuple(encodings), tuple(targets)

    def set_layout(self, layout: TextLayout) -> None:
        """Say where the texts of the batch stand in the values that are computed from here on."""
        self._layout = layout

    def check_matched(self) -> None:
        """Check after a run that every name was that of a step, and that it began at ``start`` and ended at ``stop``.

        Within a `scope` the run is not over, and nothing is checked.

        Raises
        ------
        RegardError
            A name of ``only`` or ``edit``, or ``stop``, matched no step; or the model cannot start from the output of
            a block.
        """
        if self._prefix:
            return
        if self._is_before_start:
            raise RegardError("start= is for a decoder: this run cannot start from the output of a block")
        last = [] if self._stop is None else [self._stop]
        for argument, names in (("edit", self._edit), ("stop", last), ("only", self._required)):
            if unused := self._without_tap(names):
                named = "; ".join(f"{name!r} ({did_you_mean(name, self._known())})" for name in unused)
                ended = f", which ended after {self._stop}" if argument == "only" and last else ""
                raise RegardError(f"{argument}= matched no step of this run{ended}: {named}")

    def _stop_after(self, full: str, value: Any) -> None:
        """End the run if this is the step after which it ends."""
        if self._is_last(full):
            raise RunStopped(full, value)

    def _stop_after_map(self, value: Any) -> None:
        """End the run if it ends after a step of this scope that its map gives."""
        for stage in STAGES:
            self._stop_after(self._prefix + stage, value)

    def _edits_of(self, full: str, axes: str, ndim: int) -> list[Edit]:
        """Return the functions that edit a step, one after the other."""
        found = [function for pattern, function in self._edit.items() if self._means(pattern, full)]
        if not found:
            return found
        place = Place(self._layout, fitted_axes(full, axes, ndim))
        return [located(function, place) for function in found]

    def _note(self, full: str, axes: str, ndim: int) -> None:
        """Note the axes and the layout of a step that is recorded now."""
        if full in self._axes:
            raise RegardError(f"{full} is recorded already; use a new Trace() for a second run")
        self._axes[full] = fitted_axes(full, axes, ndim)
        self._layouts[full] = self._layout

    def _is_recorded(self, full: str) -> bool:
        if not self._is_named(full):
            return False
        stage = quadratic_stage(full) if self._keep_maps else None
        return stage is None or (stage == "weights" and self._has_edited_map(full))

    def _is_named(self, full: str) -> bool:
        return self._only is None or self._is_meant(full, self._only)

    def _is_edited(self, full: str) -> bool:
        return bool(self._edit) and self._is_meant(full, self._edit)

    def _is_last(self, full: str) -> bool:
        """Whether a run ends after this step."""
        return self._stop is not None and self._is_meant(full, (self._stop,))

    def _is_meant(self, full: str, patterns: Iterable[str]) -> bool:
        """Whether a pattern names this step of the run."""
        if not self._is_ambiguous:
            return matches(full, *patterns)
        return any(self._means(pattern, full) for pattern in patterns)

    def _means(self, pattern: str, full: str) -> bool:
        """Whether a pattern names this step, and not another of the run in its place."""
        preferred = preferred_names(full, pattern)
        return preferred is not None and not any(
            name in names for name in preferred for names in (self._taps, self._untapped, self._axes)
        )

    def _known(self) -> dict[str, None]:
        """Return the names of all steps that the run has, whether they were computed or not."""
        scopes = (name.removesuffix("context") for name in self._taps if name.rpartition(".")[2] == "context")
        of_maps = [f"{scope}{stage}" for scope in scopes for stage in ("scores", "weights")]
        return self._taps | self._untapped | dict.fromkeys(of_maps)

    def _is_computed_last(self, full: str) -> bool:
        """Whether a run ends after this step, and no map gives it, so that it has to be computed."""
        return self._is_last(full) and (quadratic_stage(full) not in STAGES or not self.wants_attention())

    def _has_edited_map(self, full: str) -> bool:
        """Whether a step from ``scores`` to ``weights`` in the scope of `full` is edited."""
        scope = full.rpartition(".")[0]
        return bool(self._edit) and any(
            self._is_edited(f"{scope}.{stage}" if scope else stage) for stage in QUADRATIC_STEPS
        )

    # Reading

    def names(self) -> tuple[str, ...]:
        """Return the recorded names in the order in which they were computed."""
        return tuple(self._axes)

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

    def unmatched(self) -> tuple[str, ...]:
        """Return the names of ``only`` and ``edit`` that have matched no step so far."""
        return self._without_tap(dict.fromkeys((*self._required, *self._edit)))

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the recorded names that a pattern, or a name, stands for."""
        return tuple(name for name in self._axes if self._means(pattern, name))

    def tapped(self) -> tuple[str, ...]:
        """Return the names of all steps of the run, recorded or not, in the order in which they were computed."""
        return tuple(self._taps)

    def patterns(self) -> tuple[str, ...] | None:
        """Return the names, or patterns, of what is recorded or edited, and of the last step; None: all is recorded."""
        last = () if self._stop is None else (self._stop,)
        return None if self._only is None else (*self._only, *self._edit, *last)

    def _without_tap(self, patterns: Iterable[str]) -> tuple[str, ...]:
        return tuple(pattern for pattern in patterns if not any(matches(tap, pattern) for tap in self._taps))

    def steps(self) -> tuple[Step, ...]:
        """Return the recorded arrays as a table: name, formula, axes (with the shape) and values of each step."""
        return tuple(Step(name, formula(name), self._axes[name], values) for name, values in self._values.items())

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

    def _empty(self) -> Trace:
        """Return a trace for a part of the values."""
        return Trace()

    def resolved(self, name: object) -> Any:
        """Return the name of a step of the run for a name of TransformerLens; any other unchanged."""
        if name in self._values or not isinstance(name, str):
            return name
        return canonical_name(name, self._axes if not self._untapped else self._axes | self._untapped)

    def keys(self) -> KeysView[str]:
        """Return the recorded names, in the order in which they were computed."""
        return self._axes.keys()

    def values(self) -> Iterator[np.ndarray]:
        """Yield the recorded values in that order; the weights of each map are computed in turn."""
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the recorded names and values as `values` does."""
        return ((name, self[name]) for name in self)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value recorded as `name`, or computed from the attention map; `default` if there is none."""
        try:
            return self[name]
        except RegardError:
            return default

    def to_xarray(self, name: str) -> Any:
        """Return a recorded value as an ``xarray.DataArray`` with its axes as dimensions.

        Its name is that of the step. Of one text, positions ``T`` and ``S`` have the tokens
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

    def select(self, index: int) -> Trace:
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
        found = self._empty()
        found.set_metadata(self.model, self.encodings[index : index + 1], self.target_encodings[index : index + 1])
        found._taps, found._untapped, found._axes = dict(self._taps), dict(self._untapped), dict(self._axes)
        one = slice(index, index + 1)
        found._layouts = {name: layout and layout.select(one) for name, layout in self._layouts.items()}
        found._values = {
            name: value[one] if self._axes[name].startswith("B ") else value for name, value in self._values.items()
        }
        found._maps = {
            name: each.select(one) if self._axes[name].startswith("B ") else each for name, each in self._maps.items()
        }
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._values[name].shape if name in self._values else self._maps[name].shape

    def subtrace(self, name: str) -> Trace:
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
        found = self._empty()
        is_decoder = name.split(".")[0] == "decoder"
        found.set_metadata(self.model, self.target_encodings if is_decoder else self.encodings)
        for attribute in ("_taps", "_untapped", "_values", "_axes", "_maps", "_layouts"):
            inside = {full: value for full, value in getattr(self, attribute).items() if full.startswith(prefix)}
            getattr(found, attribute).update({full.removeprefix(prefix): value for full, value in inside.items()})
        if not found:
            raise RegardError(f"the trace has nothing under {prefix!r}; {did_you_mean(name, self._axes)}")
        return found

    def map(self, name: str = "") -> AttentionMap:
        """Return the map of an attention, ``"blocks.3.attn"``; "" for a bare layer."""
        weights = f"{name}.weights" if isinstance(name, str) and name else "weights"
        if not isinstance(name, str) or weights not in self._maps:
            known = ", ".join(known.rpartition(".")[0] for known in self._maps)
            remedy = f"there are {known}" if known else "record with Trace(maps=True)"
            raise RegardError(
                f"the trace has no map of {'the layer' if isinstance(name, str) and not name else name!r}; {remedy}"
            )
        return self._maps[weights]

    def has_map(self, name: str = "") -> bool:
        """Whether the trace has the map of this attention."""
        return (f"{name}.weights" if name else "weights") in self._maps

    def explore(self, other: Trace | None = None, **options: Any) -> Any:
        """Return the explorer of this run, or of two side by side, to be shown in a notebook; see `regard.explore`.

        Needs the extra ``notebook``. From a script, ``regard.explore(trace)`` opens it in the browser.
        """
        return hooks.explorer_widget(*(trace for trace in (self, other) if trace is not None), **options)

    def __contains__(self, name: object) -> bool:
        return self.resolved(name) in self._axes

    def __iter__(self) -> Iterator[str]:
        return iter(self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def __repr__(self) -> str:
        of = f" of {self.model}" if self.model else ""
        size = (sum(v.nbytes for v in self._values.values()) + sum(m.nbytes for m in self._maps.values())) / 1e6
        unmatched = f"; no step is called {', '.join(self.unmatched())}" if self._taps and self.unmatched() else ""
        return f"<Trace{of}: {len(self)} values, {size:.1f} MB{unmatched}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the tokens, the last attention, and the first steps."""
        parts = [tokens_line(self.encodings[0].tokens)] if self.encodings else []
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

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, with the tokens, the model's name and the axes as metadata.

        The file is written atomically.

        Raises
        ------
        RegardError
            The file cannot be written, or the number of encodings is not the batch size.
        """
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
    def load(cls, path: str | os.PathLike[str]) -> Trace:
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


class _Scope:
    """A context that extends the prefix of a trace. Not a generator: entered several times in every layer."""

    __slots__ = ("_name", "_outer", "_trace")

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace, self._name, self._outer = trace, name, ""

    def __enter__(self) -> None:
        self._outer = self._trace._prefix
        self._trace._prefix = f"{self._outer}{self._name}."

    def __exit__(self, *_: object) -> None:
        self._trace._prefix = self._outer


def names_of(argument: str, names: object) -> tuple[str, ...]:
    """Return the names of an argument that is one name or several."""
    found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in found):
        raise RegardError(f"{argument} is a name or several, {argument}='blocks.*.attn.weights', got {names!r}")
    return found


def _small_tiles(source: AttentionMap | np.ndarray) -> list[np.ndarray]:
    """Return the first heads of the weights ``... T S`` of a call of attention as small maps."""
    if isinstance(source, AttentionMap):
        return source.small_tiles()
    heads = source[(0,) * (source.ndim - 3)] if source.ndim > 2 else source[None]
    steps = (-(-size // MAX_SIDE) for size in heads.shape[-2:])
    rows, cols = (range(0, size, step) for size, step in zip(heads.shape[-2:], steps, strict=True))
    pooled = np.maximum.reduceat(np.maximum.reduceat(heads[:MAX_TILES].astype(np.float64), rows, -2), cols, -1)
    return list(pooled)


def _start_of(start: Any) -> tuple[str, int, np.ndarray] | None:
    """Return the name, the index and the output of the block from which a run starts."""
    if start is None:
        return None
    if not isinstance(start, Mapping) or len(start) != 1:
        raise RegardError(
            f"start maps the output of one block to its value, {{'blocks.3.output': array}}, got {start!r}"
        )
    ((name, value),) = start.items()
    found = re.fullmatch(r"blocks\.(\d+)\.output", canonical_name(name) if isinstance(name, str) else "")
    if found is None:
        raise RegardError(f"a run starts from the output of a block, such as 'blocks.3.output', got {name!r}")
    return name, int(found[1]), to_numpy(as_array(value, f"start={name}"))


def _edited(name: str, value: Array, function: Edit) -> Array:
    if type(value) is Variable:
        raise RegardError(f"there is no gradient through the edit of {name}; take gradients of a run without edits")
    copy = to_numpy(value)
    dtype = copy.dtype
    returned = function(copy)
    if returned is None:
        raise RegardError(f"the edit of {name} returned nothing; return the array")
    changed = to_numpy(as_array(returned, f"the result of the edit of {name}"))
    if changed.shape != tuple(value.shape):
        raise RegardError(f"the edit of {name} returned shape {changed.shape} instead of {tuple(value.shape)}")
    if not np.can_cast(changed.dtype, dtype, "same_kind"):
        raise RegardError(f"the edit of {name} returned {changed.dtype} instead of {dtype}; convert it")
    if isinstance(value, np.ndarray):
        return changed.astype(value.dtype, copy=False)
    from array_api_compat import device

    result = namespace(value).asarray(changed, dtype=value.dtype, device=device(value))
    if not hasattr(value, "requires_grad"):
        return result
    from regard.trace.torch_edits import with_gradient

    return with_gradient(name, value, result, function)
