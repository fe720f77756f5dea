"""The trace of a run in PyTorch that keeps its tensors, with their gradients."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import Recorder, RecordingPlan
from regard.trace.mask_io import to_numpy
from regard.trace.trace import Trace

__all__ = ["TensorTrace"]


class TensorTrace(Trace):
    """A trace whose values are tensors of PyTorch on the way from the model's input to its output.

    ``torch.autograd.grad(loss, trace["blocks.3.output"])`` is the gradient at that step, and after ``loss.backward()``
    it is ``trace["blocks.3.output"].grad``. Where gradients are enabled, a recorded step has one even if nothing before
    it does. An edit gets a tensor, a copy, and returns one: autograd differentiates it as it is written.

    Parameters
    ----------
    only, optional, edit
        As for `Trace`.
    """

    def __init__(self, *, only: Any = None, optional: Any = (), edit: Mapping[str, Any] | None = None) -> None:
        super().__init__(only=only, optional=optional, edit=edit)

    def __call__(self, name: str, value: Any, axes: str, *, owned: bool = False) -> Any:  # noqa: ARG002
        """Record a copy of `value`, or of the result of its edit, and return the copy, which the run goes on with."""
        import torch

        full = self._prefix + name
        self._taps[full] = None
        step = self._step_plan(full)
        for function in self._edits_of(step, full, axes, value.ndim) if step.edits else ():
            value = _edited(full, value, function)
        if not step.is_recorded:
            return value
        self._note(full, axes, value.ndim)
        value = value.clone()
        if torch.is_grad_enabled():
            value = value if value.requires_grad else value.requires_grad_()
            value.retain_grad()
        self._values[full] = value
        return value.clone()  # for the model may write into what it has

    def plan(self, *names: str, optional: tuple[str, ...] = ()) -> RecordingPlan:
        """Return what the run does at steps of this scope; later ones depend on the tap of each recorded one."""
        plan = super().plan(*names, optional=optional)
        return plan._replace(edited=plan.asked)

    def checkpoint(self) -> tuple[Recorder, Recorder, Sequence[Any]]:
        """Raise RegardError: a part of a run that is computed again has other tensors."""
        raise RegardError("tensors of a part that is computed again, by gradient checkpointing, cannot be recorded")

    def to_trace(self) -> Trace:
        """Return the values as NumPy arrays, in a trace that can be saved, shown, and passed to functions of regard."""
        trace = Trace()
        trace.set_metadata(self.model, self.encodings, self.target_encodings)
        for name, value in self._values.items():
            trace(name, to_numpy(value), self._axes[name], owned=True)
        trace._layouts = dict(self._layouts)
        return trace

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values as `Trace.save` does."""
        self.to_trace().save(path)

    def to_xarray(self, name: str) -> Any:
        """Return a value as `Trace.to_xarray` does."""
        return self.to_trace().to_xarray(name)

    def _repr_html_(self) -> str:
        return self.to_trace()._repr_html_()

    def _stack(self, values: list[Any]) -> Any:
        import torch

        return torch.stack(values)


def _edited(name: str, value: Any, function: Any) -> Any:
    """Return the result of an edit of a tensor; an error if it does not fit."""
    import torch

    changed = function(value.clone())
    if changed is None:
        raise RegardError(f"the edit of {name} returned nothing; return the tensor")
    if isinstance(changed, np.ndarray) or not isinstance(changed, torch.Tensor):
        raise RegardError(f"the edit of {name} returned a {type(changed).__name__}; with tensors=True return a tensor")
    if changed.shape != value.shape:
        raise RegardError(f"the edit of {name} returned shape {tuple(changed.shape)} instead of {tuple(value.shape)}")
    if not changed.dtype.is_floating_point:
        raise RegardError(f"the edit of {name} returned {changed.dtype} instead of {value.dtype}; convert it")
    return changed.to(value)
