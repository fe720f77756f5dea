"""One capture: the trace, and what has run since it began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard._capture.scopes import ModuleScopes
from regard._utils.errors import RegardError
from regard.functional import Options
from regard.functional.arrays import Array
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.functional.inputs import validate_inputs
from regard.functional.recorder import Recorder
from regard.functional.tile import record_maps
from regard.trace import Trace


class CaptureSession:
    """The trace of a capture, the scopes of the model's modules, and whether model and attention have run."""

    def __init__(self, trace: Trace, scopes: ModuleScopes) -> None:
        if not isinstance(trace, Trace):
            raise RegardError(f"capture records into a Trace, trace=regard.Trace(maps=True), got {trace!r}")
        self.trace = trace
        self._scopes = scopes
        self._model_ran = self._attention_ran = False

    @contextmanager
    def scope(self, module: Any) -> Iterator[Trace]:
        """Return a context in which the trace has the scope of a module."""
        self._attention_ran = True
        scope = self._scopes.of(module)
        if not scope:
            yield self.trace
            return
        with self.trace.scope(scope):
            yield self.trace

    def start_run(self) -> None:
        """Register a run of the model; an error if an earlier run is recorded already."""
        if self._attention_ran and len(self.trace):
            raise RegardError(
                "the model runs again, but a trace holds one run: use a capture for each. generate runs the model for "
                "each token, so let it end first: ids = model.generate(...), then model(ids) inside capture (for an "
                "encoder-decoder, with the generated ids as decoder_input_ids)"
            )
        self._model_ran = True
        self._scopes.start_run()

    def end_run(self) -> None:
        """Register the end of a run of the model, in success or failure."""
        self._scopes.end_run()

    def check_recorded(self) -> None:
        """Raise RegardError if the model ran without a recorded attention, or if an edit matched no step."""
        if self._model_ran and not self._attention_ran:
            raise RegardError(
                "the model ran, but no attention was recorded: it does not use the attention interface of "
                "transformers, or a fast path of PyTorch bypassed its modules"
            )
        if self._attention_ran:
            self.trace.check_matched()


def edits_weights(trace: Recorder) -> bool:
    """Whether a step between the queries and the context is edited, so that the context depends on the edit."""
    return any(trace.edits(stage) for stage in QUADRATIC_STEPS)


def record_call(trace: Recorder, q: Array, k: Array, v: Array, options: Options) -> None:
    """Record the map of a call, and the n² arrays that the trace wants."""
    p = validate_inputs(q, k, v, **options)
    trace.record_attention(p.to_compute_dtype())
    record_maps(p, trace)
