"""Taking note of a call of attention that somebody else computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard._capture.names import Names
from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional import Options, tile
from regard.functional.dispatch import QUADRATIC_STEPS
from regard.functional.inputs import validate_inputs
from regard.functional.recorder import Recorder
from regard.trace import Trace


class Notes:
    """A trace, the names of what goes into it, and whether anything came by."""

    def __init__(self, trace: Trace, names: Names) -> None:
        if not isinstance(trace, Trace):
            raise RegardError(f"capture records into a Trace, trace=regard.Trace(maps=True), got {trace!r}")
        self.trace = trace
        self._names = names
        self._ran = self._heard = False

    @contextmanager
    def of(self, module: Any) -> Iterator[Trace]:
        """Return the trace in the scope of a module."""
        self._heard = True
        scope = self._names.of(module)
        if not scope:
            yield self.trace
            return
        with self.trace.scope(scope):
            yield self.trace

    def run(self) -> None:
        """Take note that the model runs; complain if another run of this context is recorded."""
        if self._heard and len(self.trace):
            raise RegardError(
                "the model runs again, and a trace holds one run. To look into generate, which runs the model for each "
                "token, let it end first: ids = model.generate(...), then model(ids) inside capture; a model with an "
                "encoder takes what it wrote as decoder_input_ids. Else give each run a capture of its own"
            )
        self._ran = True

    def check(self) -> None:
        """Complain if the model ran and no attention came by, or if an edit named no step."""
        if self._ran and not self._heard:
            raise RegardError(
                "the model ran, but no attention came by: it does not use the attention interface of transformers, or "
                "a fast path of PyTorch went around its modules"
            )
        if self._heard:
            self.trace.check_edits_used()


def is_edited(trace: Recorder) -> bool:
    """Tell whether a step between queries and context is edited, so that the output is to be computed from it."""
    return any(trace.edits(stage) for stage in QUADRATIC_STEPS)


def record_call(trace: Recorder, q: Array, k: Array, v: Array, options: Options) -> None:
    """Record the map of a call, and the whole maps that are wanted."""
    tile.record_call(validate_inputs(q, k, v, **options), trace)
