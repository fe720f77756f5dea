"""Texts that the page runs itself: with which models, and as which runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer.opening import Opening, opening_of
from regard.explorer.pair import run_of
from regard.explorer.run import Run, recorded
from regard.explorer.run_store import RunStore
from regard.models import load
from regard.models.base import TextModel, as_text_model
from regard.models.hub.resolve import installed


class LiveRuns:
    """Runs of texts by the models of the given runs, and by the named ones on this machine.

    None is downloaded, and no path names one. Safe to use from several threads.
    """

    def __init__(self, store: RunStore, models: Iterable[Any]) -> None:
        self._store = store
        self._loaded = {model.name: model for model in models if isinstance(model, TextModel)}
        self._runs: dict[tuple[str, str], tuple[int, Opening]] = {}
        self._lock = threading.Lock()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the models, those of the given runs first."""
        installed_names = (model.name for model, folder in installed() if isinstance(folder, Path))
        return tuple(dict.fromkeys([*self._loaded, *installed_names]))

    def run(self, text: str, name: str) -> tuple[int, Opening]:
        """Return the number of the run of a text, and what the page opens with."""
        with self._lock:
            if (name, text) not in self._runs:
                model = self._model(name)

                def make() -> Run:
                    return run_of(recorded(model, text), model, 0)

                run = make()
                self._runs[name, text] = self._store.add(run, make), opening_of(run, None, None)
            return self._runs[name, text]

    def _model(self, name: str) -> Any:
        if name not in self.names:
            raise RegardError(f"there is no model {name!r} here: choose from {', '.join(self.names)}")
        if name not in self._loaded:
            self._loaded[name] = as_text_model(load(name))
        return self._loaded[name]
