"""Recording what a computation does, step by step, without touching its mathematics.

A tap, ``scores = trace("scores", q @ k.mT, "... H T S")``, hands its value to a `Trace`, which keeps a copy or lets a
person's function return another value in its place, with which the computation runs on. Knows arrays and names; does
not know models, layers or pictures.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from regard._utils import hooks
from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.functional.arrays import as_array, namespace
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.text.encoding import Encoding
from regard.trace.attention_map import AttentionMap
from regard.trace.mask_io import to_numpy
from regard.trace.steps import Step, formula

__all__ = ["NULL_RECORDER", "Edit", "Recorder", "Step", "Trace"]

Edit = Callable[[np.ndarray], np.ndarray]

_FORMAT = "regard.trace/1"
_MAP = "map:"  # begins the names of the arrays of a map in a file


class Trace:
    """Named intermediate values of one computation.

    Parameters
    ----------
    only : str or iterable of str, optional
        Record these names alone. ``*`` stands for anything: ``"blocks.*.attn.weights"``. Everything by default.
    maps : bool
        Keep each attention as an `AttentionMap`: queries, keys and the log-sum-exp, in memory that grows with the
        text and not with its square, in place of the arrays ``scores`` … ``weights`` that hold a number for each pair
        of tokens. ``trace["blocks.3.attn.weights"]`` then computes them when it is asked for, and
        ``trace.map("blocks.3.attn")`` gives any part. An attention in which one of those arrays is edited has no such
        map; its weights are recorded.
    edit : mapping of str to function, optional
        Names (``*`` as above) and what to do to the value there: the function gets a copy and returns an array
        of the same shape, with which the computation runs on. What is recorded is the edited value. A model says
        at the end of its run when a name was that of no step; after a bare layer ask `unused`.

    Values of other array libraries are recorded, and given to an edit, as NumPy arrays (bfloat16 as float32); what
    an edit returns goes back to the library and device it came from, without a gradient.

    Attributes
    ----------
    model : str
        Name of the model that was traced, "" for a bare layer.
    encodings : tuple of Encoding
        The text as tokens, one for each batch entry; empty where there is no text.

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
        maps: bool = False,
        edit: Mapping[str, Edit] | None = None,
    ) -> None:
        self.model = ""
        self.encodings: tuple[Encoding, ...] = ()
        self._only = None if only is None else _names(only)
        if not isinstance(edit, Mapping | None):
            raise RegardError(f"edit maps names to functions, {{'blocks.0.attn.weights': function}}, got {edit!r}")
        self._edit = dict(edit or {})
        for name, function in self._edit.items():
            if not isinstance(name, str):
                raise RegardError(f"edit maps names to functions, got {name!r} for a name")
            if not callable(function):
                raise RegardError(f"the edit of {name} must be a function of the array there, got {function!r}")
        self._keep_maps = maps
        self._maps: dict[str, AttentionMap] = {}  # by the name of its weights
        self._prefix = ""
        self._taps: dict[str, None] = {}  # every name that came by, kept or not, in order
        self._values: dict[str, np.ndarray] = {}
        self._axes: dict[str, str] = {}

    # Recording

    def __call__(self, name: str, value: Array, axes: str) -> Array:
        """Record `value` as `name` in the current scope and return it, or what an edit makes of it."""
        full = self._prefix + name
        self._taps[full] = None
        for pattern, function in self._edit.items():
            if fnmatch.fnmatchcase(full, pattern):
                value = _edited(full, value, function)
        if self._is_kept(full):
            self._check_new(full)
            self._axes[full] = _fitted(full, axes, value.ndim)
            self._values[full] = to_numpy(value)
        return value

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Begin every name inside with ``name.``; scopes nest."""
        return _Scope(self, name)

    def editing(self) -> Trace:
        """Return a trace that edits as this one does and records nothing, however often a name comes by."""
        return Trace(only=(), edit=self._edit)

    def wants(self, name: str) -> bool:
        """Tell whether a tap called `name` in this scope would be kept or edited."""
        full = self._prefix + name
        return self._is_kept(full) or self._is_edited(full)

    def edits(self, name: str) -> bool:
        """Tell whether a tap called `name` in this scope would be edited."""
        return self._is_edited(self._prefix + name)

    def can_skip(self, *names: str) -> bool:
        """Tell whether taps of all these names may go by without their values, and if so take note of the names."""
        if any([self.wants(name) for name in names]):  # noqa: C419, a list is made sooner
            return False
        self._taps.update(dict.fromkeys(self._prefix + name for name in names))
        return True

    def wants_attention(self) -> bool:
        """Tell whether `record_attention` would take note of a call in this scope."""
        name = self._prefix + "weights"
        return self._keep_maps and self._is_named(name) and not self._has_edited_map(name)

    def record_attention(self, problem: Any, sums: Any = None) -> None:
        """Take note of a call of attention: its queries, keys and rules, from which any weight can be had again.

        `sums` are what normalises its rows, where the kernel has found them on the way.
        """
        if not self.wants_attention():
            return
        name = self._prefix + "weights"
        self._check_new(name)
        look = AttentionMap.of(problem.to_compute_dtype(), sums).copy()
        self._taps[name] = None
        self._axes[name] = _fitted(name, "... H T S", look.ndim)
        self._maps[name] = look

    def set_metadata(self, model: str, encodings: Sequence[Encoding]) -> None:
        """Take note of what is being computed: the model's name and each text of the batch."""
        self.model = model
        self.encodings = tuple(encodings)

    def check_edits_used(self) -> None:
        """Take note that a model's run is over.

        Raises
        ------
        RegardError
            The name of an edit was that of no step, so that the answer is not edited. (Inside a `scope` a larger
            computation goes on, which may still come to it.)
        """
        if not self._edit or self._prefix:
            return
        idle = [pattern for pattern in self.unmatched() if pattern in self._edit]
        if idle:
            named = "; ".join(f"{pattern!r} ({_near(pattern, self._taps)})" for pattern in idle)
            raise RegardError(f"edit= names what is no step of this run, so it changed nothing there: {named}")

    def _check_new(self, full: str) -> None:
        if full in self._axes:
            raise RegardError(f"{full} is recorded already; a second run needs a new Trace()")

    def _is_kept(self, full: str) -> bool:
        if not self._is_named(full):
            return False
        stage = _stage(full) if self._keep_maps else None
        return stage is None or (stage == "weights" and self._has_edited_map(full))

    def _is_named(self, full: str) -> bool:
        return self._only is None or _is_one_of(full, self._only)

    def _is_edited(self, full: str) -> bool:
        return bool(self._edit) and _is_one_of(full, tuple(self._edit))

    def _has_edited_map(self, full: str) -> bool:
        """Tell whether a step between the queries and the weights beside `full` is edited."""
        scope = full.rpartition(".")[0]
        return bool(self._edit) and any(
            self._is_edited(f"{scope}.{stage}" if scope else stage) for stage in QUADRATIC_STEPS
        )

    # Looking

    def names(self) -> tuple[str, ...]:
        """Return the recorded names in the order in which they were computed."""
        return tuple(self._axes)

    def axes(self, name: str) -> str:
        """Return the axis letters of a recorded value, such as ``"B H T S"``."""
        if name not in self._axes:
            self[name]  # says what is near
        return self._axes[name]

    def unmatched(self) -> tuple[str, ...]:
        """Return the names of ``only`` and ``edit`` that were, so far, those of no step."""
        patterns = dict.fromkeys((*(self._only or ()), *self._edit))
        return tuple(p for p in patterns if not any(fnmatch.fnmatchcase(tap, p) for tap in self._taps))

    def steps(self) -> tuple[Step, ...]:
        """Return the recorded arrays as a table: name, formula, axes (with the shape) and values of each step."""
        return tuple(Step(name, formula(name), self._axes[name], values) for name, values in self._values.items())

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value recorded as `name`, or computed from the map of its attention."""
        if not isinstance(name, str):
            raise RegardError(f"values are asked for by name, one of {', '.join(self._axes)}; got {name!r}")
        if name in self._values:
            return self._values[name]
        stage, scope = _stage(name), name.rpartition(".")[0]
        look = self._maps.get(f"{scope}.weights" if scope else "weights")
        if look is not None and stage is not None and stage != "dropped":
            whole: np.ndarray = look.tile(stage=stage)
            return whole
        only = f", with only={', '.join(self._only)}" if self._only is not None else ""
        raise RegardError(f"the trace has no {name!r}; {_near(name, self._axes)}{only}")

    def subtrace(self, name: str) -> Trace:
        """Return what was recorded under ``name.`` as a trace of its own, whose names are without it.

        The ``"encoder"`` of a model that has a decoder too is then looked at as any other encoder, and so is its
        ``"decoder"``, without tokens: those of a trace are the tokens that the encoder read.

        Raises
        ------
        RegardError
            Nothing was recorded there.
        """
        begin = f"{name}."
        found = Trace()
        found.model, found.encodings = self.model, () if name.split(".")[0] == "decoder" else self.encodings
        for kept in ("_taps", "_values", "_axes", "_maps"):
            inside = {full: value for full, value in getattr(self, kept).items() if full.startswith(begin)}
            getattr(found, kept).update({full.removeprefix(begin): value for full, value in inside.items()})
        if not found:
            raise RegardError(f"the trace has nothing under {begin!r}; {_near(name, self._axes)}")
        return found

    def map(self, name: str = "") -> AttentionMap:
        """Return the map of an attention, ``"blocks.3.attn"``; of a bare layer's without a name."""
        weights = f"{name}.weights" if name else "weights"
        if weights not in self._maps:
            known = ", ".join(known.rpartition(".")[0] for known in self._maps)
            way_out = f"there are {known}" if known else "record with Trace(maps=True)"
            raise RegardError(f"the trace has no map of {name or 'the layer'!r}; {way_out}")
        return self._maps[weights]

    def has_map(self, name: str = "") -> bool:
        """Tell whether `map` has an answer for the attention of this name."""
        return (f"{name}.weights" if name else "weights") in self._maps

    def explore(self, other: Trace | None = None, **options: Any) -> Any:
        """Return the explorer of this run, or of two side by side, to be shown in a notebook; see `regard.explore`.

        Needs the extra ``notebook``. From a script, ``regard.explore(trace)`` opens it in the browser.
        """
        return hooks.explorer_widget(*(trace for trace in (self, other) if trace is not None), **options)

    def __contains__(self, name: object) -> bool:
        return name in self._axes

    def __iter__(self) -> Iterator[str]:
        return iter(self._axes)

    def __len__(self) -> int:
        return len(self._axes)

    def __repr__(self) -> str:
        of = f" of {self.model}" if self.model else ""
        size = (sum(v.nbytes for v in self._values.values()) + sum(m.nbytes for m in self._maps.values())) / 1e6
        unused = f"; no step is called {', '.join(self.unmatched())}" if self._taps and self.unmatched() else ""
        return f"<Trace{of}: {len(self)} values, {size:.1f} MB{unused}>"

    # Keeping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, with the text, the model's name and the axes as metadata.

        The file appears whole or not at all.

        Raises
        ------
        RegardError
            The file cannot be written, or the number of texts is not that of the batch.
        """
        self._check_texts()
        metadata = {
            "format": _FORMAT,
            "model": self.model,
            "encodings": json.dumps([encoding.to_dict() for encoding in self.encodings]),
            "axes": json.dumps(self._axes),
        }
        arrays, maps = dict(self._values), {}
        for name, look in self._maps.items():
            parts, maps[name] = look.to_arrays(f"{_MAP}{name}.")
            arrays.update(parts)
        write_safetensors(path, arrays, metadata | ({"maps": json.dumps(maps)} if maps else {}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace that `save` wrote. The values stay in the file, memory-mapped and read-only.

        Raises
        ------
        RegardError
            The file is missing, damaged, or not a trace.
        """
        file = SafetensorsFile(path)
        if file.metadata.get("format") != _FORMAT:
            found = file.metadata.get("format", "none")
            raise RegardError(f"{path} is not a trace of regard: its format is {found!r}, not {_FORMAT!r}")
        trace = cls()
        try:
            encodings = json.loads(file.metadata["encodings"])
            trace.model = file.metadata["model"]
            trace.encodings = tuple(Encoding.from_dict(fields) for fields in encodings)
            # A safetensors file orders its tensors by itself; the axes keep the order of computation.
            axes = json.loads(file.metadata["axes"])
            maps = json.loads(file.metadata.get("maps", "{}"))
            kept = {name: file[name] for name in file}
            for name, fields in maps.items():
                trace._maps[name] = AttentionMap.from_arrays(kept, fields, f"{_MAP}{name}.")
            if axes.keys() - maps.keys() != {name for name in file if not name.startswith(_MAP)}:
                raise RegardError(
                    f"axes are given for {len(axes)} names, which are not those of its {len(file)} values"
                )
            for name, letters in axes.items():
                if name not in maps:
                    trace._values[name] = file[name]
                trace._axes[name] = _fitted(name, letters, (trace._maps if name in maps else trace._values)[name].ndim)
            trace._check_texts()
        except RegardError as error:
            raise RegardError(f"{path} is a damaged trace: {error}") from error
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise RegardError(f"{path} is a damaged trace: {error!r}") from error
        return trace

    def _check_texts(self) -> None:
        for name, axes in self._axes.items():
            batch = (self._maps[name] if name in self._maps else self._values[name]).shape[0]
            if self.encodings and axes.startswith("B ") and batch != len(self.encodings):
                raise RegardError(f"{len(self.encodings)} texts are described, but {name} has a batch of {batch}")


class _Scope:
    """Where every name of a trace begins with one more part; as quick as can be, for every layer has several."""

    __slots__ = ("_name", "_outer", "_trace")

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace, self._name, self._outer = trace, name, ""

    def __enter__(self) -> None:
        self._outer = self._trace._prefix
        self._trace._prefix = f"{self._outer}{self._name}."

    def __exit__(self, *_: object) -> None:
        self._trace._prefix = self._outer


def _names(only: object) -> tuple[str, ...]:
    names = (only,) if isinstance(only, str) else tuple(only) if isinstance(only, Iterable) else (only,)
    if not all(isinstance(name, str) for name in names):
        raise RegardError(f"only is a name or several, only='blocks.*.attn.weights', got {only!r}")
    return names


@functools.lru_cache(4096)
def _is_one_of(full: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(full, pattern) for pattern in patterns)


@functools.lru_cache(4096)
def _stage(full: str) -> Any:
    """Return the last part of a name that holds a number for each pair of tokens, else None."""
    last = full.rpartition(".")[2]
    return last if last in QUADRATIC_STEPS else None


def _near(name: str, names: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"near it are {', '.join(close)}" if close else f"none of the {len(names)} names is near"


def _edited(name: str, value: Array, function: Edit) -> Array:
    copy = to_numpy(value)
    dtype = copy.dtype
    returned = function(copy)
    if returned is None:
        raise RegardError(f"the edit of {name} returned nothing; return the array")
    changed = to_numpy(as_array(returned, f"what the edit of {name} returned"))
    if changed.shape != tuple(value.shape):
        raise RegardError(f"the edit of {name} returned shape {changed.shape} in place of {tuple(value.shape)}")
    if not np.can_cast(changed.dtype, dtype, "same_kind"):
        raise RegardError(f"the edit of {name} returned {changed.dtype} in place of {dtype}; convert it")
    if isinstance(value, np.ndarray):
        return changed.astype(value.dtype, copy=False)
    from array_api_compat import device

    return namespace(value).asarray(changed, dtype=value.dtype, device=device(value))


@functools.lru_cache(1024)
def _fitted(name: str, axes: str, ndim: int) -> str:
    """Return the letters of `axes` that a value of `ndim` dimensions has.

    ``...`` stands for any number of leading axes. Fewer dimensions than letters means that the leading ones
    are not there: the weights of one head, ``... H T S``, may be just ``T S``.
    """
    letters = axes.split()
    if not all(letter.isidentifier() for letter in letters[letters[:1] == ["..."] :]):
        raise RegardError(f"{name} has the axes {axes!r}; give a letter for each, such as 'B H T S'")
    if letters[:1] == ["..."]:
        letters = letters[1:]
        if ndim > len(letters):
            missing = ndim - len(letters)
            return " ".join([*(["B"] if missing == 1 else [f"B{i}" for i in range(missing)]), *letters])
        return " ".join(letters[len(letters) - ndim :])
    if ndim != len(letters):
        raise RegardError(f"{name} has {ndim} dimensions but the axes {axes!r}")
    return " ".join(letters)
