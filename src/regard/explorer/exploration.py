"""One explored run, or two to compare: every answer that the page requests.

An answer is plain data for JSON, or an array.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer import answers, queries
from regard.explorer.cache import Kept
from regard.explorer.classroom import Classroom
from regard.explorer.display_modes import DISPLAY_MODES
from regard.explorer.manifest import provenance_of, title_of
from regard.explorer.map_reader import MapReader, difference_blocked_by
from regard.explorer.opening import Opening, opening_of
from regard.explorer.pair import run_of
from regard.explorer.progress import Progress, Watch
from regard.explorer.queries.attribution import EXPLANATIONS as ATTRIBUTION_METHODS, describe_attribution
from regard.explorer.queries.corpus import PAIRS, Corpus
from regard.explorer.queries.head_metrics import EXPLANATIONS
from regard.explorer.queries.head_search import live_metrics
from regard.explorer.queries.live import LiveRuns
from regard.explorer.queries.next_tokens import predicts_next_tokens
from regard.explorer.queries.patching import Patched, PatchingKey, has_patching
from regard.explorer.queries.paths import Paths, has_paths
from regard.explorer.query import QUERIES, query
from regard.explorer.run import Run
from regard.explorer.run_store import RunStore
from regard.explorer.story import load_story, shipped, texts_of
from regard.explorer.validation import check_num_runs
from regard.metrics.layer_maps import CancelCheck
from regard.trace import Trace

for module in pkgutil.iter_modules(queries.__path__):
    import_module(f"regard.explorer.queries.{module.name}")

FORMAT = "regard.explore/1"
_INITIAL_CELLS = 256  # along a side of the map that the page opens with


class Exploration(MapReader):
    """One run, or two to compare, with a method for each query of the page.

    Parameters
    ----------
    *traces : Trace
        One or two, recorded with ``Trace(maps=True)`` or with whole weights.
    models : sequence, optional
        What ran, one for each trace; ablations and value norms need it.
    batch : int
        Which text of a batch.
    layer, head : int, optional
        What the page opens with.

    Raises
    ------
    RegardError
        A trace holds no self-attention; or there is no such text, layer or head.
    """

    def __init__(
        self,
        *traces: Trace,
        models: Sequence[Any] | None = None,
        batch: int = 0,
        layer: int | None = None,
        head: int | None = None,
    ) -> None:
        models = [None] * len(traces) if models is None else list(models)
        check_num_runs(len(traces), len(models))
        if not all(isinstance(trace, Trace) for trace in traces):
            raise RegardError("an Exploration is of traces; regard.explore takes texts too")
        runs = [run_of(trace, model, batch) for trace, model in zip(traces, models, strict=True)]
        self._open(RunStore(runs), runs)
        self.opening = opening_of(self.runs[0], layer, head)

    def _open(self, store: RunStore, shown: Sequence[Run]) -> None:
        super().__init__(store)
        self._progress = Progress()
        self.live = LiveRuns(store, [run.reader for run in shown])
        self.grids_kept: Kept[PatchingKey, Patched] = Kept()
        self.paths_kept: Kept[tuple[Any, ...], Paths] = Kept()  # by run and question; about 20 kB of JSON each
        self.runs = tuple(shown)  # A and B
        self.corpus: Corpus | None = None  # sentences in which heads are sought
        self.story: answers.Story | None = None  # that the page opens with
        self.classroom: Classroom | None = None  # that looks at it

    can_be_shared = True
    """Whether a class can look at it: its runs are few and in memory."""

    @property
    def initial_head(self) -> tuple[int, int]:
        """The layer and head that the page opens with, by their places."""
        return self.opening[:2]

    @property
    def modes(self) -> tuple[str, ...]:
        """Keys of the display modes that all given runs have."""
        return tuple(str(mode["key"]) for mode in DISPLAY_MODES if all(mode["key"] in run.modes for run in self.runs))

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the runs that the page can show, without those of ablations."""
        return range(len(self.runs))

    def fewer(self) -> Exploration | None:
        """Return an exploration of fewer runs, for a smaller file; None if there is none."""
        return None

    @query(slow=True)
    def training(self, known: int = 0) -> answers.TrainingNews:
        """Return what is new of a training run; see `TrainingExploration.training`."""
        raise RegardError(f"this page shows no training run, and knows no {known} checkpoints of one")

    @query()
    def manifest(self) -> answers.Manifest:
        """Return what the page loads first: texts, layers, display modes and metrics."""
        return {
            "format": FORMAT,
            "title": title_of(self.runs[0]),
            "provenance": provenance_of(self.runs),
            "can": {
                "ablate": all(run.model is not None and run.encoding is not None for run in self.runs),
                "tiles": True,
                "figures": all(run.block(0) is None for run in self.runs),
            },
            "live_models": list(self.live_models),
            "pairs": list(PAIRS) if self.corpus else [],
            "stories": self._stories(),
            "story": self.story["key"] if self.story else None,
            "decimals": None,
            "runs": [self.describe(number) for number in self.numbers],
            "difference_blocked_by": difference_blocked_by(self.runs),
            "metrics": [*EXPLANATIONS, *live_metrics(self.runs)],
            "modes": [mode for mode in DISPLAY_MODES if mode["key"] in self.modes],
            "attribution_methods": list(ATTRIBUTION_METHODS),
            "classroom": self.classroom.page() if self.classroom else None,
        }

    def _stories(self) -> list[answers.Story]:
        """Return the story that the page opens with, and those of the package whose models are here."""
        own = [self.story] if self.story else []
        others = [load_story(name) for name in shipped() if not own or own[0]["key"] != name]
        models = {*self.live_models, *(run.trace.model for run in self.runs)}
        return own + [story for story in others if {model for _, model in texts_of(story)} <= models]

    @property
    def live_models(self) -> tuple[str, ...]:
        """The names of the models that `run_text` takes, the first by default; none where no text can be run."""
        return self.live.names

    def prepare(self, check: CancelCheck = lambda: None) -> None:
        """Compute what the page requests first: the manifest, and an overview of the initial head."""
        self.manifest()
        bin_size = -(-self.runs[0].length // _INITIAL_CELLS)
        self.whole(self.numbers[-len(self.runs)], *self.initial_head, bin_size=bin_size, check=check)

    @query()
    def progress(self) -> dict[str, answers.Share]:
        """Return how far the ablation and the metrics of heads are that are computed now; see `Progress.describe`."""
        return self._progress.describe()

    def watch(self, name: str) -> AbstractContextManager[Watch]:
        """Watch a computation, which `progress` tells of while the block runs."""
        return self._progress.watch(name)

    @query()
    def publish(self, address: str, *, run: int | None = None) -> None:
        """Show the class what the teacher's page shows: the fragment of its address, and the run of a text that it ran.

        An error if no class looks at this page, the address is too long, there is no such run or its text is too long.
        """
        self._class().publish(address, run)

    @query()
    def follow(self, known: int) -> answers.TeacherView | None:
        """Return what the teacher shows the class; None if it is the version that is known."""
        return self._class().follow(known)

    def _class(self) -> Classroom:
        if self.classroom is None:
            raise RegardError("no class looks at this page: regard explore TEXT --share")
        return self.classroom

    @query()
    def memory(self) -> answers.Memory:
        """Return bytes held: by the runs, by overviews now and at most, and the peak of the process.

        The last is None where the system does not report it.
        """
        held = 0
        for run in self.store:
            held += sum(source.nbytes for layer in run.layers for source in layer.heads)
            held += sum(step.values.nbytes for step in run.trace.steps() if not step.name.endswith("weights"))
        return {
            "runs": held,
            "overviews": self.cache.nbytes,
            "overviews_limit": self.cache.limit,
            "process_peak": _process_peak(),
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a query that another module declares, as a method."""
        if name not in QUERIES:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return QUERIES[name].bind(self)

    def load_expression(self, model: Any) -> str:
        """Return the Python that loads a model of a run."""
        return f"regard.load({model.name!r})"

    def other_text(self, number: int) -> str | None:
        """Return the text of the run that a given one is compared with."""
        others = [run for at, run in enumerate(self.runs) if at != number]
        return others[0].encoding.text if len(others) == 1 and others[0].encoding is not None else None

    def describe(self, number: int, opening: Opening | None = None) -> answers.RunDescription:
        """Return a run as plain data; `opening` is its own, by default that of the page."""
        run = self.store[number]
        is_own, opening = opening is not None or run is self.runs[0], opening or self.opening
        return {
            "title": run.title,
            "model": run.trace.model,
            "text": run.encoding.text if run.encoding else "",
            "tokens": run.token_descriptions,
            "picture": run.picture_description,
            "layers": run.layer_descriptions,
            "projection_key": run.projection_key,
            "thumbnail_size": self.thumbnail_size(number),
            "num_sampled_rows": len(run.sampled_rows()) if run.is_long else None,
            "initial": opening.describe(run),
            "distinctive": list(opening.cells) if is_own else [],
            "predicts_tokens": predicts_next_tokens(run),
            "has_paths": has_paths(run),
            "has_patching": has_patching(run),
            "attribution": describe_attribution(run, self.other_text(number)),
        }


def _process_peak() -> int | None:
    """Return the peak resident bytes of this process, which Linux reports."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), None)
