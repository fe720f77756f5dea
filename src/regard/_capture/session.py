"""One capture: the trace, and what has run since it began."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard._capture.recording import GROUPS, Recording
from regard._capture.scopes import ModuleScopes
from regard._utils.errors import RegardError
from regard.functional import Options
from regard.functional.arrays import Array
from regard.functional.inputs import validate_inputs
from regard.functional.recorder import Recorder
from regard.functional.scores.stages import QUADRATIC_STEPS
from regard.functional.scores.tile import record_maps
from regard.trace import Trace
from regard.trace.step_names import generalized


class CaptureSession:
    """The trace of a capture, the scopes of the model's modules, and whether model and attention have run.

    It sees what runs in the thread that made it.
    """

    def __init__(self, recording: Recording, scopes: ModuleScopes) -> None:
        self.trace: Trace = recording.trace
        self.scopes = scopes
        self._recording = recording
        self._thread = threading.get_ident()
        self._model_ran = self._attention_ran = self._ran_elsewhere = False

    def is_recording(self) -> bool:
        """Whether what this thread runs is to be recorded."""
        return threading.get_ident() == self._thread

    @contextmanager
    def scope(self, module: Any) -> Iterator[Trace]:
        """Return a context in which the trace has the scope of a module."""
        self._attention_ran = True
        scope = self.scopes.scope_of_attention(module)
        if not scope:
            yield self.trace
            return
        with self.trace.scope(scope):
            yield self.trace

    def tap(self, name: str, value: Any, axes: str) -> Any:
        """Record a step of a module and return its new value; None if it is unchanged, or no tensor of numbers."""
        if not hasattr(value, "ndim") or not value.dtype.is_floating_point:
            return None
        tapped = self.trace(name, value, axes)
        return None if tapped is value else tapped

    def tap_weights(self, scope: str, weights: Any) -> Any:
        """Record weights whose map cannot be computed again; return their new value, None if they are unchanged."""
        self._attention_ran = True
        changed = self.tap(f"{scope}.weights", weights, "B H T S")
        with self.trace.scope(scope):
            self.trace.record_weights(weights)
        return changed

    def start_run(self) -> None:
        """Register a run of the model; an error if an earlier run is recorded already."""
        if self._model_ran | self._attention_ran and len(self.trace):
            raise RegardError(
                "the model runs again, but a trace holds one run: use a capture for each. generate runs the model for "
                "each token, so let it end first: ids = model.generate(...), then model(ids) inside capture (for an "
                "encoder-decoder, with the generated ids as decoder_input_ids)"
            )
        self._model_ran = True
        self.scopes.start_run()

    def end_run(self) -> None:
        """Register the end of a run of the model, in success or failure."""
        self.scopes.end_run()

    def pass_by(self) -> None:
        """Register a run of the model in another thread."""
        self._ran_elsewhere = True

    def check_recorded(self) -> None:
        """Raise RegardError if the model ran without a step that was asked for, or if an edit matched no step."""
        if not self._model_ran and not self._attention_ran and not self.trace.tapped():
            if self._ran_elsewhere:
                raise RegardError(
                    "the model ran in another thread than the one that entered capture, so nothing was recorded: "
                    "enter capture in the thread that runs the model"
                )
            return
        missing = self._recording.missing()
        if missing and not self._attention_ran and all(self._recording.is_of_attention(name) for name in missing):
            raise RegardError(
                "the model ran, but no attention was recorded: it does not use the attention interface of "
                f"transformers, or a fast path of PyTorch bypassed its modules{self._found()}"
            )
        if missing:
            advice = self._found() or f"; the groups are {', '.join(GROUPS)}, and a name is 'blocks.3.output', for one"
            raise RegardError(f"record= matched no step of this run: {', '.join(map(repr, missing))}{advice}")
        self.trace.check_matched()

    def _found(self) -> str:
        """Return the end of an error message: the steps that a capture of this model can record."""
        names = generalized(self.trace.tapped())
        return f"; the steps found in it are {', '.join(names)}, and the groups {', '.join(GROUPS)}" if names else ""


def edits_weights(trace: Recorder) -> bool:
    """Whether a step between the queries and the context is edited, so that the context depends on the edit."""
    return bool(trace.plan(*QUADRATIC_STEPS).edited)


def record_call(trace: Recorder, q: Array, k: Array, v: Array, options: Options) -> None:
    """Record the map of a call, and the n² arrays that the trace wants."""
    p = validate_inputs(q, k, v, **options)
    trace.record_attention(p.to_compute_dtype())
    record_maps(p, trace)
