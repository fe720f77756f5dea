"""`Trace`: the recorder that stores intermediate values by name, and applies edits to them.

A tap, ``scores = trace("scores", q @ k.mT, "... H T S")``, passes its value to the trace, which stores a copy, or
returns the result of the user's function, with which the computation continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import native
from regard.functional.arrays import Array, as_array, namespace
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.functional.recorder import Recorder, RunStopped
from regard.functional.scores.stages import STAGES
from regard.functional.variable import Variable, plain
from regard.trace.attention_map import AttentionMap
from regard.trace.mask_io import to_numpy
from regard.trace.recorded_steps import RecordedSteps
from regard.trace.step_names import (
    any_asked,
    any_matches,
    asks_by_name,
    canonical_name,
    canonical_names,
    did_you_mean,
    matches,
    quadratic_stage,
    scoped,
)
from regard.trace.text_layout import Place, TextLayout, located
from regard.trace.trace_file import fitted_axes

__all__ = ["Edit", "Trace"]

Edit = Callable[[np.ndarray], np.ndarray]


class Trace(RecordedSteps):
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
        Further names to record, of steps that not every model has: one that matches no step is not an error.
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
        super().__init__()
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
        self._prefix = ""
        self._layout: TextLayout | None = None  # of the values that are computed now
        self._buffers: set[int] | None = None  # in a run whose large values are stored without a copy, those stored

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
        if self._is_recorded(full):
            return True
        return bool(self._edit or self._stop) and (self._is_edited(full) or self._is_computed_last(full))

    def asks_for(self, *names: str) -> bool:
        """Whether one of these optional taps of this scope is to be made; count their names as those of the run."""
        full = scoped(self._prefix, names)
        self._untapped.update(dict.fromkeys(full))
        return any_asked(full, self._asked) and any(self._asks_for(each) for each in full)

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
        full = scoped(self._prefix, names)
        is_named = self._only is None or any_matches(full, self._asked)
        if is_named and any(self.wants(name) for name in names):
            return False
        self._taps.update(dict.fromkeys(full))
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

    def unmatched(self) -> tuple[str, ...]:
        """Return the names of ``only`` and ``edit`` that have matched no step so far."""
        return self._without_tap(dict.fromkeys((*self._required, *self._edit)))

    def patterns(self) -> tuple[str, ...] | None:
        """Return the names, or patterns, of what is recorded or edited, and of the last step; None: all is recorded."""
        last = () if self._stop is None else (self._stop,)
        return None if self._only is None else (*self._only, *self._edit, *last)

    def _without_tap(self, patterns: Iterable[str]) -> tuple[str, ...]:
        return tuple(pattern for pattern in patterns if not any(matches(tap, pattern) for tap in self._taps))

    def __repr__(self) -> str:
        said = super().__repr__()
        unmatched = self.unmatched() if self._taps else ()
        return f"{said[:-1]}; no step is called {', '.join(unmatched)}>" if unmatched else said


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
