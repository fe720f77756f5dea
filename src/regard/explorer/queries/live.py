"""Texts that the page runs itself: with which models, and as which runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.opening import Opening, opening_of
from regard.explorer.pair import run_of
from regard.explorer.query import Exploration, query
from regard.explorer.run import Run, recorded
from regard.explorer.run_store import RunStore
from regard.models import load
from regard.models.base import TextModel, as_text_model
from regard.models.hub.resolve import installed


@query(slow=True)
def run_text(exploration: Exploration, text: str, *, model: str | None = None) -> answers.NewRun:
    """Run a model on a text; return the number of the new run, and its description.

    The same text and model have the same number. The last 8 such runs stay in memory; an earlier one is run again
    when it is requested.

    An error if the model is none of `Exploration.live_models`, or cannot read the text.
    """
    if not exploration.live_models:
        raise RegardError("no text can be run here: regard explore TEXT opens a page that runs texts")
    number, opening = exploration.live.run(text, model or exploration.live_models[0])
    return {"run": number, "metadata": exploration.describe(number, opening)}


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
