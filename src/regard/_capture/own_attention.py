"""Hooks on an attention that a model computes in its own code, by linear maps, a softmax and a dropout module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from regard._capture.layout import AttentionSite
from regard._capture.session import CaptureSession

Register: TypeAlias = Callable[[Any, Callable[[Any], Any]], None]

_AXES = {"q": "B H T D", "k": "B H S D", "v": "B H S Dv", "context": "B H T Dv"}


class OwnAttention:
    """Records ``q``, ``k``, ``v``, ``weights`` and ``context`` of an attention, as far as modules compute them.

    Parameters
    ----------
    site : AttentionSite
    current : function
        Return the `BlockCall` that runs.
    session : CaptureSession
    """

    def __init__(self, site: AttentionSite, current: Callable[[], Any], session: CaptureSession) -> None:
        self._site, self._current, self._session = site, current, session

    def register(self, before: Register, after: Register) -> None:
        """Put hooks on modules: of what they get, of what they return."""
        import torch

        for step, linear in self._site.own.items():
            after(linear, partial(self._heads, step))
        for module in self._site.module.modules():
            if isinstance(module, torch.nn.Dropout):
                before(module, self._weights)
        if self._site.own and self._site.projection is not None:
            before(self._site.projection, partial(self._heads, "context"))

    def _heads(self, step: str, x: Any) -> Any:
        """Record the heads of ``B T (H D)``."""
        if x.ndim != 3 or not self._is_first(step):
            return None
        heads = x.unflatten(-1, (self._site.num_heads, -1)).transpose(1, 2)
        changed = self._session.tap(f"{self._scope}.{step}", heads, _AXES[step])
        return None if changed is None else changed.transpose(1, 2).flatten(-2)

    def _weights(self, x: Any) -> Any:
        """Record what a dropout module gets, if it is a map of each head."""
        if x.ndim != 4 or x.shape[1] != self._site.num_heads or not self._is_first("weights"):
            return None
        return self._session.tap_weights(self._scope, x)

    @property
    def _scope(self) -> str:
        return f"{self._current().scope}.{self._site.kind}"

    def _is_first(self, step: str) -> bool:
        """Whether a step has not been met in this call: a map may serve for other vectors too."""
        done, name = self._current().done, f"{self._site.kind}.{step}"
        is_new = name not in done
        done.add(name)
        return is_new
