"""`Trace`: the recorder that stores intermediate values by name, and applies edits to them.

A tap, ``scores = trace("scores", q @ k.mT, "... H T S")``, passes its value to the trace, which stores a copy, or
returns the result of the user's function, with which the computation continues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import native
from regard.functional.arrays import Array, as_array, namespace
from regard.functional.recorder import Recorder, RecordingPlan, RunStopped, Scoped
from regard.functional.scores.stages import STAGES, map_steps
from regard.functional.variable import Variable, plain
from regard.text.encoding import Encoding
from regard.trace.attention_map import AttentionMap
from regard.trace.mask_io import to_numpy
from regard.trace.plan import StepPlan, run_plan
from regard.trace.recorded_steps import RecordedSteps
from regard.trace.step_names import asks_by_name, canonical_name, canonical_names, did_you_mean, matches, scoped
from regard.trace.text_layout import Place, TextLayout, located
from regard.trace.trace_file import fitted_axes, write_mapped

__all__ = ["Edit", "Trace"]

Edit = Callable[[np.ndarray], np.ndarray]


class Trace(Scoped, RecordedSteps):
    """Named intermediate values of one computation.

    Parameters
    ----------
    only : str or iterable of str, optional
        Names to record, everything by default (with `maps`, the maps). Between two dots ``*`` is one part of a name,
        ``"blocks.*.attn.weights"``; elsewhere it is anything, ``"*weights"``. The model raises after the run if one
        matched no step; after a bare layer see `unmatched`.

        Some steps are recorded, and edited, only if a name ends with theirs, ``"*.head_outputs"``, and not by default
        or by ``"*"``: what each head adds to the residual stream (``head_outputs``, ``H`` times the size of a stream),
        the inputs of sublayers and the scales of norms (``attn_norm``, ``attn_norm.scale``, ``attn_norm.normalized``,
        and so of each norm), queries and keys before norms and rotary embedding (``projected_q``, ``projected_k``), and
        ``mlp.up`` without a gate.
    optional : str or iterable of str, optional
        Further names to record, of steps that not every model has: one that matches no step is not an error.
    maps : bool
        Store each attention as an `AttentionMap`, in O(n · D) memory, instead of the arrays ``scores`` … ``weights``,
        which hold n² numbers. ``trace["blocks.3.attn.weights"]`` then computes the weights, and
        ``trace.map("blocks.3.attn")`` any part of them. Where one of those arrays is edited, the weights are recorded
        instead. Without `only` the maps alone are recorded; with ``only="*"`` all other steps too, which take most of
        the memory.
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

    folder : path, optional
        Where each array is written as soon as it is made, to a file of its name (``blocks.3.output.npy``), which the
        trace reads through a memory map: the memory of a run then hardly depends on what it records. Maps stay in
        memory. No such file may be there yet. Before Python 3.13 each array holds a file open (``ulimit -n``).

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
    source
        The model itself, of a run in this process; otherwise None. A copy for another process and a file are without.

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
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(folder, str | os.PathLike | None):
            raise RegardError(f"folder is the path of a folder, got {folder!r}")
        self.folder = None if folder is None else Path(folder)
        self._optional = names_of("optional", optional)
        self._required = () if only is None else names_of("only", only)
        self._only = None if only is None and not self._optional else (*self._required, *self._optional)
        if self._only is None and maps:
            self._only = ("*weights",)
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
        self._plan = run_plan(self._only, tuple(self._edit), stop, bool(maps))  # raises for a name of several steps
        for pattern in self._plan.asked:
            names = canonical_names(pattern)
            if pattern not in (self._only or ()) and names[-1].endswith("token_embeddings") and len(names) > 1:
                raise RegardError(f"{pattern} is one of {', '.join(names)}: name that of this model")
        self._layout: TextLayout | None = None  # of the values that are computed now
        self._buffers: set[int] | None = None  # in a run whose large values are stored without a copy, those stored

    def __call__(self, name: str, value: Array, axes: str, *, owned: bool = False) -> Array:
        """Record `value` as `name` in the current scope and return it, or the result of its edit.

        If nothing else refers to it, it is `owned`, and a NumPy array is stored without a copy.
        """
        if self._is_before_start:
            return value
        full = self._prefix + name
        self._taps[full] = None
        step = self._plan.step(full, self._means, is_optional=full in self._untapped)  # `_step_plan`, without its call
        edits = self._edits_of(step, full, axes, value.ndim) if step.edits else ()
        for function in edits:
            value = _edited(full, value, function)
        if step.is_recorded:
            self._note(full, axes, value.ndim)
            is_ours = owned and not step.edits and isinstance(value, np.ndarray)
            if self.folder is not None:
                self._values[full] = write_mapped(self.folder, full, to_numpy(value))
            else:
                self._values[full] = value if is_ours or (not edits and self._holds(value)) else to_numpy(value)
        if step.is_last:
            raise RunStopped(full, value)
        return value

    def _holds(self, value: Array) -> bool:
        """Tell whether a value may be stored without a copy: of those of a run, one that fills a buffer, once."""
        if self._buffers is None or (buffer := native.pool_buffer(value)) is None or buffer in self._buffers:
            return False
        self._buffers.add(buffer)
        return True

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:
        """Return what the run does at steps of this scope, and count the optional ones as those of the run.

        Not if one of `names` is asked for: a layer then reads the plan of each optional step before it computes it.
        """
        plan = self._plan.plan(self._prefix, names, optional, self._means)
        if optional and not (names and plan.asked):
            self._untapped.update(dict.fromkeys(scoped(self._prefix, optional)))
        return plan

    def note(self, *names: str) -> None:
        """Count steps of this scope, which a fused call computes or whose taps follow, as steps of the run."""
        if not self._is_before_start:
            self._taps.update(dict.fromkeys(scoped(self._prefix, names)))

    @contextmanager
    def run(
        self,
        model: str,
        encodings: Sequence[Encoding],
        targets: Sequence[Encoding] = (),
        *,
        copies: bool = True,
        source: Any = None,
    ) -> Iterator[Callable[[Array], Array]]:
        """Return the context of a run of a model, whose value is the function through which the result leaves the run.

        At its end `check_matched` is called. Without `copies` large values are stored as they are.
        """
        self.set_metadata(model, encodings, targets)
        self.source = source
        self._buffers = None if copies else set()
        stopped: RunStopped | None = None
        try:
            yield self._for_caller
        except RunStopped as reason:
            stopped = reason
        finally:
            self._buffers = None
        self.check_matched()
        if stopped is not None:
            raise stopped

    def _for_caller(self, value: Array) -> Array:
        """Return a value that leaves a run, or a copy of it if it is stored."""
        is_stored = self._buffers is not None and native.pool_buffer(value) in self._buffers
        return native.pooled_copy(value) if is_stored else value

    def editing(self) -> Trace:
        """Return a trace with the same edits that records nothing, so that names may repeat."""
        return Trace(only=(), edit=self._edit)

    def checkpoint(self) -> tuple[Recorder, Recorder, Sequence[Any]]:
        """Return the recorders of a part of a run and of the same part again, and no variables: it takes no gradients.

        The part that runs again is edited, but not recorded.
        """
        again = self.editing()
        again._prefix, again._layout = self._prefix, self._layout
        return self, again, ()

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

    def record_attention(self, inputs: Any, stats: Any = None) -> None:
        """Store the map of a call of attention: its inputs without values, and the `stats` of its rows, if computed."""
        if not self.plan("weights").keeps_map:
            return
        name = self._prefix + "weights"
        inputs = inputs.with_parameters({name: plain(x) for name, x in inputs.parameters.items()})
        attention_map = AttentionMap.from_inputs(inputs.to_compute_dtype(), stats).copy()
        self._note(name, "... H T S", attention_map.ndim)
        self._maps[name] = attention_map
        steps = map_steps(inputs)
        self.note(*steps)
        for full in [self._prefix + stage for stage in STAGES if stage in steps]:  # those that the map gives
            if self._step_plan(full).is_last:
                raise RunStopped(full, attention_map.q)

    def record_weights(self, weights: Array) -> None:
        """Store the weights of a call of attention as an array, where a map is wanted that cannot be computed again."""
        if self.plan("weights").keeps_map:
            name = self._prefix + "weights"
            self._note(name, "... H T S", weights.ndim)
            values = to_numpy(weights)
            self._values[name] = values if self.folder is None else write_mapped(self.folder, name, values)

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

    def _step_plan(self, full: str) -> StepPlan:
        """Return what this run does at a step that it taps; it has asked for the plan of an optional one before."""
        return self._plan.step(full, self._means, is_optional=full in self._untapped)

    def _edits_of(self, step: StepPlan, full: str, axes: str, ndim: int) -> list[Edit]:
        """Return the functions that edit a step, one after the other; of a step of `GradientTrace` there are none."""
        place = Place(self._layout, fitted_axes(full, axes, ndim))
        return [located(self._edit[pattern], place) for pattern in step.edits if pattern in self._edit]

    def _note(self, full: str, axes: str, ndim: int) -> None:
        """Note the axes and the layout of a step that is recorded now."""
        if full in self._axes:
            raise RegardError(f"{full} is recorded already; use a new Trace() for a second run")
        self._axes[full] = fitted_axes(full, axes, ndim)
        self._layouts[full] = self._layout

    def _known(self) -> dict[str, None]:
        """Return the names of all steps that the run has, whether they were computed or not."""
        return self._taps | self._untapped

    def unmatched(self) -> tuple[str, ...]:
        """Return the names of ``only`` and ``edit`` that have matched no step so far."""
        return self._without_tap(dict.fromkeys((*self._required, *self._edit)))

    def patterns(self) -> tuple[str, ...] | None:
        """Return the names, or patterns, of what is recorded or edited, and of the last step; None: all is recorded."""
        return None if self._only is None else self._plan.asked

    def _without_tap(self, patterns: Iterable[str]) -> tuple[str, ...]:
        return tuple(pattern for pattern in patterns if not any(self._names(pattern, tap) for tap in self._taps))

    def _names(self, pattern: str, full: str) -> bool:
        """Whether a pattern names a step of this run; an optional one only by the step's own name."""
        return matches(full, pattern) and (full not in self._untapped or asks_by_name(full, pattern))

    def __repr__(self) -> str:
        said = super().__repr__()
        unmatched = self.unmatched() if self._taps else ()
        return f"{said[:-1]}; no step is called {', '.join(unmatched)}>" if unmatched else said


def names_of(argument: str, names: object) -> tuple[str, ...]:
    """Return the names of an argument that is one name or several."""
    strings = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in strings):
        raise RegardError(f"{argument} is a name or several, {argument}='blocks.*.attn.weights', got {names!r}")
    return strings


def _start_of(start: Any) -> tuple[str, int, np.ndarray] | None:
    """Return the name, the index and the output of the block from which a run starts."""
    if start is None:
        return None
    if not isinstance(start, Mapping) or len(start) != 1:
        raise RegardError(
            f"start maps the output of one block to its value, {{'blocks.3.output': array}}, got {start!r}"
        )
    ((name, value),) = start.items()
    match = re.fullmatch(r"blocks\.(\d+)\.output", canonical_name(name) if isinstance(name, str) else "")
    if match is None:
        raise RegardError(f"a run starts from the output of a block, such as 'blocks.3.output', got {name!r}")
    return name, int(match[1]), to_numpy(as_array(value, f"start={name}"))


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
