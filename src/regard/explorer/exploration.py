"""One explored run, or two to compare: every answer that the page requests.

An answer is plain data for JSON, or an array.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.attribution import (
    EXPLANATIONS as ATTRIBUTION_METHODS,
    AttributionQuery,
    attribute_run,
    default_attributions,
)
from regard.explorer.cache import Cache, Kept
from regard.explorer.cell import bias_note, cell, cell_inputs
from regard.explorer.classroom import Classroom
from regard.explorer.corpus import PAIRS, Corpus
from regard.explorer.display_modes import DISPLAY_MODES
from regard.explorer.figures import FigureOptions, Side, draw_figure
from regard.explorer.head_metrics import DIFFERENCE, EXPLANATIONS, head_metrics_of
from regard.explorer.head_search import ablate_each_head, heads_with_weights, live_metrics
from regard.explorer.live import LiveRuns
from regard.explorer.manifest import describe_run, difference_blocked_by, provenance_of, title_of
from regard.explorer.map_reader import Head, MapReader
from regard.explorer.movement import MAX_MOVEMENT_TOKENS, describe_plane, movement
from regard.explorer.next_tokens import next_tokens, predictions_by_layer, predicts_next_tokens
from regard.explorer.opening import Opening, opening_of
from regard.explorer.pair import run_of
from regard.explorer.patching import Patched, PatchingQuestion, draw_patching, fits_file, patch
from regard.explorer.paths import PathsQuestion, prediction_paths
from regard.explorer.progress import Progress
from regard.explorer.query import query
from regard.explorer.residual_stream import residual_stream
from regard.explorer.rotation import rotated_pairs, rotates
from regard.explorer.run import Run
from regard.explorer.run_store import RunStore
from regard.explorer.story import load_story, shipped, texts_of
from regard.explorer.validation import check_index, check_num_runs
from regard.explorer.what_if import with_scores
from regard.explorer.why import why_attends
from regard.functional.native.map import Pooling
from regard.metrics.layer_maps import CancelCheck
from regard.trace import Trace

FORMAT = "regard.explore/1"
_MAX_FILE_PREDICTIONS = 256  # of a page in a file, one after each token
_INITIAL_CELLS = 256  # along a side of the map that the page opens with


class Exploration:
    """One run, or two to compare.

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
        self._runs = store
        self._cache = Cache()
        self._progress = Progress()
        self._maps = MapReader(store, self._cache)
        self._live = LiveRuns(store, [run.reader for run in shown])
        self._grids: Kept[tuple[int, int, PatchingQuestion], Patched] = Kept()
        self._paths: Kept[tuple[int, PathsQuestion], answers.Paths] = Kept()  # about 20 kB of JSON each
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

    def run(self, number: int) -> Run:
        """Return a run by its number."""
        return self._runs[number]

    def holds(self, number: int) -> bool:
        """Tell whether a run is in memory, so that no model has to run for it."""
        return self._runs.holds(number)

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
        return self._live.names

    def prepare(self, check: CancelCheck = lambda: None) -> None:
        """Compute what the page requests first: the manifest, and an overview of the initial head."""
        self.manifest()
        n = self.runs[0].length
        bin_size = -(-n // _INITIAL_CELLS)
        self.tile(
            self.numbers[-len(self.runs)],
            *self.initial_head,
            row0=0,
            row1=n,
            col0=0,
            col1=n,
            bin_size=bin_size,
            check=check,
        )

    @query()
    def progress(self) -> dict[str, answers.Share]:
        """Return how far the ablation and the metrics of heads are that are computed now; see `Progress.describe`."""
        return self._progress.describe()

    @query()
    def publish(self, address: str, *, run: int | None = None) -> None:
        """Show the class what the teacher's page shows.

        Parameters
        ----------
        address : str
            The fragment of the page's address.
        run : int, optional
            The run of a text that the teacher's page ran.

        Raises
        ------
        RegardError
            No class looks at this page, the address is too long, or there is no such run or its text is too long.
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
        for run in self._runs:
            held += sum(source.nbytes for layer in run.layers for source in layer.heads)
            held += sum(step.values.nbytes for step in run.trace.steps() if not step.name.endswith("weights"))
        return {
            "runs": held,
            "overviews": self._cache.nbytes,
            "overviews_limit": self._cache.limit,
            "process_peak": _process_peak(),
        }

    @query(slow=True)
    def heads(self, run: int, *, check: CancelCheck = lambda: None) -> answers.HeadMetrics:
        """Return the metrics of every head, ``L H`` each; for a long text from some of its rows."""
        recorded = self._runs[run]

        def compute() -> np.ndarray:
            with self._progress.watch("heads") as watch:
                return head_metrics_of(recorded, check, watch)

        values = self._cache.get(("heads", run), compute)
        return {
            "metrics": {
                metric["key"]: [[None if np.isnan(x) else round(float(x), 6) for x in row] for row in of_metric]
                for metric, of_metric in zip(EXPLANATIONS, values, strict=True)
            }
        }

    @query(slow=True)
    def thumbnails(self, run: int, *, check: CancelCheck = lambda: None) -> bytes:
        """Return a thumbnail of every head, a byte for each cell, ``L H t t``; a run's ``thumbnail_size`` is t.

        A cell is the largest weight in it, for a long text in some of its rows: 255 · √(weight / largest of the head).
        """
        return self._maps.thumbnails(run, check).tobytes()

    @query(slow=True)
    def differences(self, runs: Sequence[int], *, check: CancelCheck = lambda: None) -> answers.HeadDifferences:
        """Return how the weights of every head differ between two runs, the first minus the second.

        ``largest`` is the largest change of a weight in each head, ``L H``; for a long text in some of its rows.
        ``thumbnails`` has a signed byte for each cell, ``L H t t`` in base64, of the difference farthest from 0 in it:
        its sign times 127 · √(difference / largest of all heads). ``explanation`` is of the grid, as those of metrics.

        Raises
        ------
        RegardError
            Not two runs, or they differ in their numbers of tokens, layers or heads.
        """
        if len(runs) != 2:
            raise RegardError(f"a difference is of two runs, not {len(runs)}")
        blocked_by = difference_blocked_by([self._runs[run] for run in runs])
        if blocked_by is not None:
            raise RegardError(blocked_by)
        differences = self._maps.differences(runs[0], runs[1], check)
        largest = float(np.abs(differences).max())
        scaled = np.sign(differences) * np.round(127 * np.sqrt(np.abs(differences) / (largest or 1.0)))
        return {
            "largest": [[round(float(x), 6) for x in row] for row in np.abs(differences).max(axis=(-2, -1))],
            "thumbnails": base64.b64encode(scaled.astype(np.int8).tobytes()).decode("ascii"),
            "explanation": DIFFERENCE,
        }

    @query()
    def tile(
        self,
        run: int,
        layer: int,
        head: Head,
        *,
        mode: str = "raw",
        row0: int,
        row1: int,
        col0: int,
        col1: int,
        bin_size: int,
        pool: Pooling = "max",
        check: CancelCheck = lambda: None,
    ) -> np.ndarray:
        """Return a region of a map as float32, in bins of `bin_size` × `bin_size` tokens; with 1, exact weights.

        The last row and column of bins cover what is left. Each is the largest or the mean weight in it; for the mean
        of all heads, the mean of those. A region of more than 32 million weights, and in a map that large one of more
        than 4 million where that loses nothing, is pooled from an overview of the whole map in at most 2048 × 2048
        cells: a bin covers all cells that it touches.

        Raises
        ------
        RegardError
            There is no such run, layer, head, mode or region.
        """
        return self._maps.tile(run, layer, head, mode, (row0, row1), (col0, col1), bin_size, pool, check)

    def whole(self, run: int, layer: int, head: Head, mode: str = "raw") -> np.ndarray:
        """Return a whole map, float32 ``T S``, of a text short enough for one tile."""
        n = self._maps.layer(run, layer, head)[1].length
        return self.tile(run, layer, head, mode=mode, row0=0, row1=n, col0=0, col1=n, bin_size=1)

    @query()
    def row(
        self, run: int, layer: int, head: Head, i: int, *, mode: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return the attention of token i to every token, float32 ``S``."""
        return self._maps.line(run, layer, head, i, 0, mode, check)

    @query()
    def column(
        self, run: int, layer: int, head: Head, j: int, *, mode: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return the attention of every token to token j, float32 ``T``."""
        return self._maps.line(run, layer, head, j, 1, mode, check)

    @query()
    def cell(self, run: int, layer: int, head: Head, i: int, j: int, *, mode: str = "raw") -> answers.RecordedCell:
        """Return one weight step by step; see `regard.explorer.cell.cell`.

        With ``rotation``, the pairs of dimensions that turn, and ``projected``, what the head writes into the residual
        stream, where there is a model; with ``value_length`` for the mode "norms", and the terms of ``rollout`` for
        that mode. For the mean of heads only ``mean``, what each head has, and the terms of rollout.
        """
        recorded, layer_map = self._maps.layer(run, layer, head)
        check_index("token", i, layer_map.length)
        check_index("token", j, layer_map.length)
        mean, rollout = self._maps.rollout_terms(run, layer, i, j) if mode == "rollout" else (None, None)
        if head == "mean":
            mean = mean or self._maps.mean_terms(run, layer, i, j, mode)
            nothing = cast("answers.RecordedCell", dict.fromkeys(answers.RecordedCell.__annotations__))
            return {**nothing, "mean": mean, "rollout": rollout}
        ablated, block = (layer, head) in recorded.ablated, recorded.number(layer)
        steps = cell(recorded.trace, layer_map, head, i, j, batch=recorded.batch, ablated=ablated)
        return {
            **steps,
            "rotated": rotates(recorded.model, block),
            "rotation": rotated_pairs(recorded.model, block, recorded.length, steps["q"], steps["k"], i, j),
            "projected": self._maps.projected_output(run, layer, head, i),
            "value_length": float(self._maps.value_norms(run, layer)[head, j]) if mode == "norms" else None,
            "mean": mean,
            "rollout": rollout,
            "bias_note": bias_note(layer_map, recorded.bias_rule(layer), head, i, j),
        }

    @query(slow=True)
    def why(self, run: int, layer: int, head: Head, i: int, j: int, *, contrast: bool = False) -> answers.Why:
        """Return the score of a cell as a sum over pairs of writers: the ten largest, and the others together.

        See `regard.metrics.why`. With `contrast` the score is less that of the word besides with the largest weight.

        Raises
        ------
        RegardError
            There is no such run, layer, head or cell; the query does not attend to the key, or with `contrast` to no
            other; or the run has no model, is too long, or lacks a step.
        """
        recorded, layer_map = self._maps.layer(run, layer, head)
        if head == "mean":
            raise RegardError("a score is of one head, not of the mean of heads: choose a head")
        for token in (i, j):
            check_index("token", token, layer_map.length)
        return why_attends(recorded, layer, head, i, j, contrast)

    @query(slow=True)
    def what_if(
        self, run: int, layer: int, head: int, i: int, scores: Sequence[tuple[int, float | None]]
    ) -> answers.WhatIf:
        """Run the model again with other scores, (key, score), in row i of a head; return what has changed.

        None masks a key. Scores are those before the softmax, with bias; the next token is that after the last.

        Raises
        ------
        RegardError
            There is no such run, layer, head, row or key; a key is masked; or the run has no model, or no scores.
        """
        recorded, layer_map = self._maps.layer(run, layer, head)
        check_index("token", i, layer_map.length)
        return with_scores(recorded, layer, head, i, scores)

    def cell_inputs(self, run: int, layer: int, head: int) -> tuple[bytes, answers.HeadFields] | None:
        """Return the arrays that all cells of a head can be computed from, float32, and the numbers that go with them.

        q ``T D``, k ``S D``, v ``S Dv``, lse ``T``, and the first and the end of the columns that each row attends to,
        ``T`` each, concatenated. None if these are not enough: with a bias, a mask with holes, or without v.
        """
        recorded, layer_map = self._maps.layer(run, layer, head)
        rotated = rotates(recorded.model, recorded.number(layer))
        return cell_inputs(recorded.trace, layer_map, head, batch=recorded.batch, rotated=rotated)

    def value_norms(self, run: int, layer: int) -> np.ndarray:
        """Return ‖v W_O‖ of each token in each head, float32 ``H S``; 0 for ablated heads."""
        return self._maps.value_norms(run, layer)

    @query(slow=True)
    def movement(self, runs: Sequence[int]) -> answers.Movements:
        """Return the position of each token at every stage, on one plane for all `runs`; see `movement`.

        The ``note`` says what the plane shows, and what is left out of its fit.

        Raises
        ------
        RegardError
            There is no such run, or none is given; vectors were not recorded, or are of too many tokens; or the runs
            have different stages or vector sizes (see ``projection_key`` of the manifest).
        """
        if len(set(runs)) != len(runs):
            raise RegardError("runs holds a number twice")
        recorded = [self._runs[run] for run in runs]
        keys = {run.projection_key for run in recorded}
        if not recorded or None in keys:
            raise RegardError(
                f"movement needs the outputs of blocks, of at most {MAX_MOVEMENT_TOKENS} tokens: record them too"
            )
        if len(keys) > 1:
            raise RegardError("these runs have different stages or vector sizes, so they share no plane")
        moved = movement([(run.trace, run.batch, run.special) for run in recorded])
        return {**moved, "note": describe_plane(moved, [run.token_descriptions for run in recorded])}

    @query(slow=True)
    def ablate(self, heads: Sequence[tuple[int, int]], *, run: int = 0) -> answers.Ablation:
        """Run the model of A or B again without some heads, (layer, head); return the new run and what has changed.

        The last 8 ablated runs stay in memory; an earlier one is run again when it is requested.

        Raises
        ------
        RegardError
            There is no such run or head, or the run has no model.
        """
        with self._progress.watch("ablate") as watch:
            number, changes = self._runs.ablate(run, heads, watch)
        return {"run": number, "metadata": {**self.describe(number), "base_run": run}, "changes": changes}

    @query(slow=True)
    def run_text(self, text: str, *, model: str | None = None) -> answers.NewRun:
        """Run a model on a text; return the number of the new run, and its description.

        The same text and model have the same number. The last 8 such runs stay in memory; an earlier one is run again
        when it is requested.

        Raises
        ------
        RegardError
            The model is none of `live_models`, or cannot read the text.
        """
        if not self.live_models:
            raise RegardError("no text can be run here: regard explore TEXT opens a page that runs texts")
        number, opening = self._live.run(text, model or self.live_models[0])
        return {"run": number, "metadata": self.describe(number, opening)}

    @query()
    def next_tokens(
        self, run: int, *, position: int | None = None, temperature: float = 1.0, seed: int | None = None
    ) -> answers.NextTokens:
        """Return the distribution of the next token: the 20 likeliest ``tokens``, the ``rest``, and its ``entropy``.

        Parameters
        ----------
        run : int
        position : int, optional
            The token that the next one follows, by default the last.
        temperature : float
            Above 0; the logits are divided by it.
        seed : int, optional
            Draw a token too, ``drawn``, the same for the same seed.

        Raises
        ------
        RegardError
            The run has no model that predicts a next token; or there is no such position, temperature or seed.
        """
        return next_tokens(self._runs[run], position, temperature, seed)

    def all_next_tokens(self, run: int) -> list[answers.NextTokens]:
        """Return `next_tokens` after each token, for an exported page; none of a long text, or without predictions."""
        recorded = self._runs[run]
        if recorded.length > _MAX_FILE_PREDICTIONS or not predicts_next_tokens(recorded):
            return []
        return [next_tokens(recorded, i, 1.0, None) for i in range(recorded.length)]

    @query()
    def lens(self, run: int, *, position: int | None = None, token: int | None = None) -> answers.Lens:
        """Return the logit lens of one position: the likeliest tokens after the embeddings and after each block.

        Each has the ``probability`` and the ``rank`` of `token`, by default the one that is likeliest at the end; see
        `regard.metrics.logit_lens`.

        Raises
        ------
        RegardError
            The run has no decoder, or lacks the outputs of blocks; or there is no such position or token.
        """
        return predictions_by_layer(self._runs[run], position, token)

    @query(slow=True)
    def paths(
        self,
        run: int,
        *,
        position: int | None = None,
        token: int | None = None,
        versus: int | None = None,
        corrupted: str | None = None,
        check: CancelCheck = lambda: None,
    ) -> answers.Paths:
        """Return the paths through which a next token comes from the text, as a graph; see `regard.metrics.paths`.

        The last 8 graphs are kept, and an exported page holds them.

        Parameters
        ----------
        run : int
        position : int, optional
            The token that the next one follows, by default the last.
        token : int, optional
            The next token by its id, by default the likeliest.
        versus : int, optional
            Another one, whose logit is subtracted.
        corrupted : str, optional
            A text of as many tokens, by default that of the run that this one is compared with, if it has as many.
            Without one what is cut is replaced by its mean over the tokens.
        check
            Called between runs of the model.

        Raises
        ------
        RegardError
            The run has no decoder, is an ablation or too long; or there is no such position, token or text.
        """
        other = self._other_text(run) if run in self.numbers else None
        question = PathsQuestion.completed(self._runs[run], position, token, versus, corrupted, other)
        return self._paths.compute((run, question), lambda: prediction_paths(self._runs[run], question, check))

    def kept_paths(self, run: int) -> list[answers.Paths]:
        """Return the graphs of a run that were computed, for an exported page."""
        return [paths for (number, *_), paths in self._paths.items() if number == run]

    @query(slow=True)
    def patching(
        self,
        run: int,
        other: int,
        *,
        over: str = "output",
        token: int | None = None,
        versus: int | None = None,
        sender: tuple[int, int] | None = None,
        receiver: tuple[int, int] | None = None,
        check: CancelCheck = lambda: None,
    ) -> answers.Patching:
        """Return how much of a number each step of a run recovers in another; see `regard.metrics.patch_grid`.

        A site of `other` has its value in `run`: 0 is the number of `other`, 1 that of `run`. The last 8 are kept.

        Parameters
        ----------
        run, other : int
            Two runs of one model, of as many tokens.
        over : {"output", "attn", "mlp", "head", "path"}
            The output of each block, of its attention or its feed-forward layer, at each position; each head; or, of a
            decoder, the path from a head to the query, key and value of another (`regard.metrics.path_patching`).
        token, versus : int, optional
            Of a decoder, whose logits are subtracted: by default the likeliest next token of `run`, and of `other`. Of
            an encoder the number is the similarity with the vector of `run`.
        sender, receiver : (layer, head), optional
            Of a path, the receiver in a later layer: by default the heads that recover most.
        check
            Called after each layer.

        Raises
        ------
        RegardError
            The runs are not of one model of texts with all its heads, differ in their number of tokens, or have more
            than 256; or there is no such token, step or path.
        """
        return self._patched(
            run, other, PatchingQuestion(over, token, versus, _head(sender), _head(receiver)), check
        ).answer

    @query(slow=True)
    def patching_figure(
        self,
        run: int,
        other: int,
        *,
        over: str = "output",
        token: int | None = None,
        versus: int | None = None,
        format: str = "pdf",
        width: str = "column",
        caption: bool = False,
        check: CancelCheck = lambda: None,
    ) -> bytes:
        """Return a figure for print of `patching`, as `figure` does."""
        patched = self._patched(run, other, PatchingQuestion(over, token, versus), check)
        return draw_patching(patched, format, width, caption=caption)

    def _patched(self, run: int, other: int, question: PatchingQuestion, check: CancelCheck) -> Patched:
        heads = None
        if question.over == "path" and None in (question.sender, question.receiver):
            of_heads = question._replace(over="head", sender=None, receiver=None)
            heads = self._patched(run, other, of_heads, check).grid

        def compute() -> Patched:
            with self._progress.watch("patching") as watch:
                return patch(self._runs[run], self._runs[other], question, heads, self.load_expression, check, watch)

        return self._grids.compute((run, other, question), compute)

    def file_patching(self) -> list[answers.Patching]:
        """Return the grids of A and B that an exported page holds: those that were computed, and the first if small."""
        if len(self.runs) == 2 and fits_file(*self.runs):
            with suppress(RegardError):  # of vectors that are not finite
                self.patching(0, 1)
        return [patched.answer for (run, other, _), patched in self._grids.items() if (run, other) == (0, 1)]

    @query(slow=True)
    def residual_stream(
        self, run: int, *, position: int | None = None, token: int | None = None
    ) -> answers.ResidualStream:
        """Return what each part of the model writes into the residual stream at one position.

        For each layer the length of what attention (``attn``) and the feed-forward layer (``mlp``) write, and of the
        ``output``. For a decoder also what they and each head add to the logit of `token`, by default the likeliest:
        see `regard.metrics.logit_attribution`.

        Raises
        ------
        RegardError
            The run has no model, or is too long; or there is no such position or token.
        """
        return residual_stream(self._runs[run], position, token)

    @query(slow=True)
    def sweep(
        self,
        run: int,
        layer: int,
        *,
        position: int | None = None,
        token: int | None = None,
        check: CancelCheck = lambda: None,
    ) -> answers.Sweep:
        """Return what the ablation of each head of a layer does to one number, ``before`` and ``after`` it.

        For a language model the number is the probability of `token` after `position`, by default of the likeliest
        after the last; for another model the cosine similarity of the vector at `position` with what it was.

        Raises
        ------
        RegardError
            The run has no model or is an ablation; or there is no such layer, position or token.
        """
        return ablate_each_head(self._runs[run], layer, position, token, check)

    @query(slow=True)
    def find_heads(
        self, run: int, cells: Sequence[tuple[int, int]], *, check: CancelCheck = lambda: None
    ) -> answers.FoundHeads:
        """Return the mean weight of some cells, (query, key), in every head, ``L H``.

        Raises
        ------
        RegardError
            There is no such run or cell, or there are more than 64 cells.
        """
        return {"values": heads_with_weights(self._runs[run], cells, check)}

    @query(slow=True)
    def strongest_rows(
        self,
        run: int,
        layer: int,
        head: Head,
        *,
        pair: str = "any",
        count: int = 20,
        check: CancelCheck = lambda: None,
    ) -> answers.StrongRows:
        """Return the rows of the corpus in which a head attends most strongly, the strongest first, and the ``texts``.

        See `regard.metrics.strongest_rows`; ``parts`` are the words of a row with the text around them.

        Raises
        ------
        RegardError
            There is no corpus; or the run has no model of texts, or is an ablation; or there is no such layer, head or
            kind of pairs.
        """
        if self.corpus is None:
            raise RegardError("there is no corpus to search: regard explore --corpus FILE")
        recorded, _ = self._maps.layer(run, layer, head)
        with self._progress.watch("strongest_rows") as watch:
            return self.corpus.strongest_rows(recorded, layer, head, pair, count, check, watch)

    @query(slow=True)
    def figure(
        self,
        sides: Sequence[tuple[int, int, Side]],
        *,
        format: str = "pdf",
        mode: str = "raw",
        special: bool = True,
        words: bool = False,
        first: int = 0,
        end: int | None = None,
        width: str = "column",
        caption: bool = False,
    ) -> bytes:
        """Return a figure for print of one map, of A, B and A − B, or of all heads.

        Parameters
        ----------
        sides : sequence of (run, layer, head)
            One, or A and B; the head "all" stands for the maps of all heads.
        format : {"pdf", "svg", "png", "py"}
            "py" is the Python that writes the figure as PDF.
        mode : str
            The display mode; figures are of "raw" weights.
        special, words : bool
            Show special tokens; merge the tokens of words.
        first, end : int, optional
            The first token that is shown, and the first after it that is not.
        width : {"column", "page"}
        caption : bool

        Raises
        ------
        RegardError
            There is no such run, layer, head, format or width; the run has no trace; or more than 2,048 tokens would be
            shown.
        """
        run_sides = [
            (self._maps.layer(run, layer, 0 if head == "all" else head)[0], layer, head)
            for run, layer, head in dict.fromkeys((run, layer, head) for run, layer, head in sides)
        ]
        options = FigureOptions(mode, special, words, first, end, width, caption)
        return draw_figure(run_sides, format, options, self.load_expression)

    def load_expression(self, model: Any) -> str:
        """Return the Python that loads a model of a run."""
        return f"regard.load({model.name!r})"

    @query(slow=True)
    def attribution(
        self,
        run: int,
        *,
        method: str | None = None,
        to: str | None = None,
        token: int | None = None,
        position: int | None = None,
        check: CancelCheck = lambda: None,
    ) -> answers.Attribution:
        """Return how much each token contributed to a number, and the weight that it receives.

        Of `regard.metrics.attribute`: ``method``, ``metric``, ``value``, ``baseline_value``, ``scores`` and
        ``attended``. In addition the target, ``to`` or ``token``, and ``likely``, the most likely next tokens.

        Parameters
        ----------
        run : int
        method : str, optional
            By default that of `attribute`.
        to : str, optional
            A next token as text, or the text to compare with. By default the most likely next token; of an encoder the
            text of the run that this one is compared with, else the text itself.
        token : int, optional
            A next token by its id, in place of `to`.
        position : int, optional
            The token that the next token follows, by default the last.
        check
            Called between runs of the model.

        Raises
        ------
        RegardError
            The run has no model, is an ablation or too long; or there is no such method, target or position.
        """
        query = AttributionQuery(method, to, token, position)
        return attribute_run(self._runs[run], self._other_text(run), query, check)

    def default_attributions(self, run: int) -> dict[str, answers.Attribution | answers.Failure]:
        """Return the attributions that an exported page holds, for the default target by method."""
        return dict(default_attributions(self._runs[run], self._other_text(run)))

    def _other_text(self, number: int) -> str | None:
        """Return the text of the run that a given one is compared with."""
        others = [run for at, run in enumerate(self.runs) if at != number]
        return others[0].encoding.text if len(others) == 1 and others[0].encoding is not None else None

    def describe(self, number: int, opening: Opening | None = None) -> answers.RunDescription:
        """Return a run as plain data; `opening` is its own, by default that of the page."""
        run = self._runs[number]
        is_own = opening is not None or run is self.runs[0]
        size, other_text = self._maps.thumbnail_size(number), self._other_text(number)
        return describe_run(run, size, opening or self.opening, other_text, is_own=is_own)


def _head(head: Sequence[int] | None) -> tuple[int, int] | None:
    """Return a layer and a head, which JSON has as a list."""
    return None if head is None else (head[0], head[1])


def _process_peak() -> int | None:
    """Return the peak resident bytes of this process, which Linux reports."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), None)
