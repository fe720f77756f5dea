"""What is explored: one run or two, and the answers to every question that a page asks of them.

An answer is plain data that JSON can hold, or an array. Knows traces, maps and models; knows no HTTP and no HTML.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._version import __version__
from regard.explorer.ablation import without_heads
from regard.explorer.cache import Cache
from regard.explorer.cell import cell, vectors
from regard.explorer.display_modes import LONGEST, WAYS, heads_of, heads_together, norms, rollouts
from regard.explorer.head_metrics import MEASURES, measures_of
from regard.explorer.maps import Pool, edges, edges_by, from_overview, overview, pooled, region
from regard.explorer.movement import MOST_TOKENS, movement
from regard.explorer.run import SAMPLED, Run, run_of, worth_seeing
from regard.explorer.validation import check_number, check_sides, check_span
from regard.functional import native
from regard.metrics.layer_maps import CancelCheck, LayerMap
from regard.trace import Trace
from regard.views.trace_access import resolve_index

FORMAT = "regard.explore/1"
Head: TypeAlias = int | Literal["mean"]

_THUMBNAIL = 32  # cells along a side
_FIRST = 256  # cells along a side of the first picture
_BASE = 2048  # cells along a side of the overview that others are made from
_DIRECT = 1 << 25  # weights of a part that are pooled anew; larger parts are made from the overview,
_NEAR = 1 << 22  # and parts that are larger than this if its cells are fine enough for them
_MOST_EDITS = 8


class Exploration:
    """One run, or two to be compared.

    Parameters
    ----------
    *traces : Trace
        One or two, recorded with ``Trace(maps=True)`` or with whole weights.
    models : sequence, optional
        What ran, one for each trace; without it nothing can be edited and weights are not seen with their values.
    batch : int
        Which text of a batch.
    layer, head : int, optional
        What the page opens with.

    Raises
    ------
    RegardError
        A trace holds no attention of a text to itself; or there is no such text, layer or head.
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
        check_sides(len(traces), len(models))
        if not all(isinstance(trace, Trace) for trace in traces):
            raise RegardError("what is explored here are traces; regard.explore takes texts too")
        self._runs: dict[int, Run] = {}
        for trace, model in zip(traces, models, strict=True):
            self._runs[len(self._runs)] = run_of(trace, model, batch)
        self._given = len(self._runs)
        self._edits: list[tuple[int, Sequence[Sequence[int]]]] = []  # of which run, without which heads
        self._cache = Cache()
        self._lock = threading.Lock()
        self._again = threading.Lock()
        self._opening = self._opens_with(layer, head)

    # What there is

    def manifest(self) -> dict[str, Any]:
        """Return what the page has to know before it asks: texts, layers, what can be shown, and what it means."""
        unavailable_reason = self._why_not_comparable()
        return {
            "format": FORMAT,
            "title": self.title,
            "computed": self._computed(),
            "can": {"edit": self._can_edit(), "tiles": True},
            "digits": None,
            "runs": [self._described(number) for number in range(self._given)],
            "comparable": unavailable_reason is None,
            "unavailable_reason": unavailable_reason,
            "measures": list(MEASURES),
            "ways": [way for way in WAYS if way["key"] in self.ways],
        }

    def prepare(self, check: CancelCheck = lambda: None) -> None:
        """Work out what a page asks for first: what there is, and the map that it opens with, from afar."""
        self.manifest()
        layer, head = self._opening
        n = self._runs[0].length
        self.tile(0, layer, head, row0=0, row1=n, col0=0, col1=n, by=-(-n // _FIRST), check=check)

    @property
    def title(self) -> str:
        """The beginning of the first text, or the model's name."""
        run = self._runs[0]
        text = " ".join((run.encoding.text if run.encoding else "").split())
        return (text if len(text) <= 60 else f"{text[:59]}…") or run.trace.model or "attention"

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that were given, A and B."""
        return tuple(self._runs[number] for number in range(self._given))

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways in which the maps of all runs can be looked at."""
        return tuple(str(way["key"]) for way in WAYS if all(way["key"] in run.ways for run in self.runs))

    @property
    def opening(self) -> tuple[int, int]:
        """The layer and head that the page opens with."""
        return self._opening

    def memory(self) -> dict[str, int | None]:
        """Return how many bytes are held: of the runs, of overviews now and at most, and of the process at its largest.

        The last is None where the system does not tell.
        """
        held = 0
        for run in list(self._runs.values()):
            held += sum(look.nbytes for layer in run.layers for look in layer.heads)
            held += sum(step.values.nbytes for step in run.trace.steps() if not step.name.endswith("weights"))
        return {
            "runs": held,
            "overviews": self._cache.nbytes,
            "overviews_at_most": self._cache.limit,
            "process_at_most": _process_at_most(),
        }

    def heads(self, run: int, *, check: CancelCheck = lambda: None) -> dict[str, Any]:
        """Return the measures of every head, ``L H`` each; of a long text, from some of its rows."""
        its = self._run(run)
        key = ("heads", run)
        found = self._cache.get(key, lambda: measures_of(its, its.sampled(), check))
        return {
            "measures": {
                measure["key"]: [[None if np.isnan(x) else round(float(x), 6) for x in row] for row in values]
                for measure, values in zip(MEASURES, found, strict=True)
            }
        }

    def thumbnails(self, run: int, *, check: CancelCheck = lambda: None) -> tuple[int, bytes]:
        """Return the side t of a thumbnail and a byte for each cell, ``L H t t``.

        The largest weight of each cell, of a long text that of some of its rows; √ of its share of the head's largest.
        """
        its = self._run(run)
        side = self.thumbnail_side(run)
        found = self._cache.get(("thumbnails", run), lambda: self._thumbnails(its, side, check))
        return side, found.tobytes()

    def thumbnail_side(self, run: int) -> int:
        """Return how many cells a thumbnail of a run has along a side."""
        return min(_THUMBNAIL, self._run(run).length)

    # Weights

    def tile(
        self,
        run: int,
        layer: int,
        head: Head,
        *,
        way: str = "raw",
        row0: int,
        row1: int,
        col0: int,
        col1: int,
        by: int,
        pool: Pool = "max",
        check: CancelCheck = lambda: None,
    ) -> np.ndarray:
        """Return a part of a map as float32, in cells of `by` tokens by `by`; exact weights where that is 1.

        The last row and column of cells have what is left. Each cell is the largest or the mean weight in it, for the
        mean of all heads the mean of what the heads show. A part of more than 32 million weights, and of so large a map
        one of more than 4 million where that loses nothing, is made from an overview of the whole map in at most
        2048 × 2048 cells: a cell of it takes in all of those that it touches.

        Raises
        ------
        RegardError
            There is no such run, layer, head, way or part of the map.
        """
        its, layer_map = self._layer(run, layer)
        self._check_head(layer_map, head)
        check_span("rows", row0, row1, by, layer_map.length)
        check_span("columns", col0, col1, by, layer_map.length)
        if pool not in ("max", "mean"):
            raise RegardError(f"cells show the max or the mean, not {pool!r}")
        row_edges, col_edges = edges_by(row0, row1, by), edges_by(col0, col1, by)
        whole = self._whole(run, its, layer, head, way, check)
        if whole is not None:
            part = whole[row0:row1, col0:col1]
            return _float32(pooled(part, row_edges - row0, col_edges - col0, pool))
        total = np.zeros((len(row_edges) - 1, len(col_edges) - 1))
        heads = heads_of(layer_map, head)
        for each in heads:
            check()
            total += self._part(run, layer, layer_map, each, row_edges, col_edges, pool, check)
        return _float32(total / len(heads))

    def whole(self, run: int, layer: int, head: Head, way: str = "raw") -> np.ndarray:
        """Return a whole map, float32 ``T S``: for texts of which it can be held."""
        n = self._layer(run, layer)[1].length
        return self.tile(run, layer, head, way=way, row0=0, row1=n, col0=0, col1=n, by=1)

    def row(
        self, run: int, layer: int, head: Head, i: int, *, way: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return how much token i looks at every other, float32 ``S``."""
        return self._line(run, layer, head, i, 0, way, check)

    def column(
        self, run: int, layer: int, head: Head, j: int, *, way: str = "raw", check: CancelCheck = lambda: None
    ) -> np.ndarray:
        """Return how much every token looks at token j, float32 ``T``."""
        return self._line(run, layer, head, j, 1, way, check)

    def cell(self, run: int, layer: int, head: Head, i: int, j: int) -> dict[str, Any]:
        """Return one weight step by step; see `regard.explorer.cell.cell`."""
        its, layer_map = self._layer(run, layer)
        if head == "mean":
            raise RegardError("the mean of heads has no steps of its own: ask for one head")
        self._check_head(layer_map, head)
        check_number("token", i, layer_map.length)
        check_number("token", j, layer_map.length)
        off = (layer, head) in its.off
        return cell(its.trace, layer_map, head, i, j, batch=its.batch, rotated=its.rotates, off=off)

    def vectors(self, run: int, layer: int, head: int) -> tuple[bytes, dict[str, Any]] | None:
        """Return what all cells of a head can be computed from, float32, and the numbers that go with it.

        q ``T D``, k ``S D``, v ``S Dv`` and lse ``T``, and of each row the first column that it sees and the one behind
        the last, ``T`` each: one after the other. None where that is not all: there is a bias, a mask with holes, or
        no v.
        """
        its, layer_map = self._layer(run, layer)
        self._check_head(layer_map, head)
        return vectors(its.trace, layer_map, head, batch=its.batch, rotated=its.rotates)

    def values_of(self, run: int, layer: int) -> np.ndarray:
        """Return how long the vector is that each token hands on in each head, float32 ``H S``: what weights scale.

        A head that is off hands nothing on.
        """
        its, layer_map = self._layer(run, layer)
        if "norms" not in its.ways:
            raise RegardError("how long values are is known of a run with its model")
        lengths = norms(its.model, its.trace, layer_map, its.batch)
        lengths[[head for at, head in its.off if at == layer]] = 0
        return _float32(lengths)

    # What becomes of the tokens

    def movement(self, runs: Sequence[int]) -> dict[str, Any]:
        """Return where each token stands at every stage, on one plane for the runs that are asked for together.

        Raises
        ------
        RegardError
            There is no such run, or none is asked for; vectors were not recorded, or are of too many tokens; or runs
            share no plane, for their stages or the sizes of their vectors differ (see ``plane`` of the manifest).
        """
        if len(set(runs)) != len(runs):
            raise RegardError("each run is asked for once")
        found = [self._run(run) for run in runs]
        planes = {run.plane for run in found}
        if not found or None in planes:
            raise RegardError(
                f"movement needs the outputs of blocks, of a text of at most {MOST_TOKENS} tokens: record them too"
            )
        if len(planes) > 1:
            raise RegardError("these runs have different stages or vectors of different sizes, and share no plane")
        return movement([(run.trace, run.batch, run.length) for run in found])

    # Edits

    def edit(self, ablate: Sequence[Sequence[int]], *, run: int = 0) -> dict[str, Any]:
        """Run the model of A or B again without some heads, (layer, head), and return the new run and what has changed.

        The last 8 stay in memory; another is run again when it is asked for.

        Raises
        ------
        RegardError
            There is no such run or head, or the run has no model.
        """
        check_number("run to be edited", run, self._given)
        edited, changes = without_heads(self._run(run), ablate)
        with self._lock:
            number = self._given + len(self._edits)
            self._edits.append((run, ablate))
            self._keep(number, edited)
        return {"run": number, "entry": {**self._described(number), "of": run}, "changes": changes}

    # How it is done

    def _run(self, number: int) -> Run:
        check_number("run", number, self._given + len(self._edits))
        run = self._runs.get(number)
        return self._run_again(number) if run is None else run

    def _run_again(self, number: int) -> Run:
        """Return the run of an edit that other edits have put out of memory."""
        with self._again:  # many ask for it at once
            run = self._runs.get(number)
            if run is None:
                of, ablate = self._edits[number - self._given]
                run, _ = without_heads(self._run(of), ablate)
                with self._lock:
                    self._keep(number, run)
            return run

    def _keep(self, number: int, edited: Run) -> None:
        """Hold an edited run, and of those that were asked for before it the last few; within the lock."""
        self._runs[number] = edited
        for old in list(self._runs)[self._given : -_MOST_EDITS]:
            del self._runs[old]

    def _layer(self, run: int, layer: int) -> tuple[Run, LayerMap]:
        its = self._run(run)
        check_number("layer", layer, len(its.layers))
        return its, its.layers[layer]

    def _check_head(self, layer: LayerMap, head: Head) -> None:
        if head != "mean":
            check_number("head", head, len(layer.heads))

    def _opens_with(self, layer: int | None, head: int | None) -> tuple[int, int]:
        run = self._runs[0]
        if layer is None and head is None and run.length <= LONGEST:
            return worth_seeing(run)
        numbers = [run.number(place) for place in range(len(run.layers))]
        layer = -1 if layer is None else layer
        layer = numbers.index(resolve_index("layer", layer, numbers))
        head = 0 if head is None else head
        check_number("head", head, len(run.layers[layer].heads))
        return layer, head

    def _described(self, number: int) -> dict[str, Any]:
        run = self._run(number)
        layer, head = self._opening
        opening = (min(layer, len(run.layers) - 1), head)
        return {
            "title": run.title,
            "model": run.trace.model,
            "text": run.encoding.text if run.encoding else "",
            "tokens": run.described_tokens,
            "layers": run.described_layers,
            "plane": run.plane,
            "thumbnail": self.thumbnail_side(number),
            "sampled": None if run.length <= LONGEST else SAMPLED,
            "opening": {"layer": opening[0], "head": min(opening[1], len(run.layers[opening[0]].heads) - 1)},
        }

    def _computed(self) -> str:
        """Return where weights come from, and in which precision; what computed recorded ones is not known here."""
        kernel = native.kernel()
        by = "NumPy" if kernel is None else f"native · {kernel.instruction_set()}"
        sources = {
            f"{layer.tile(0, [0], [0]).dtype} · "
            + (f"from recorded q and k by {by} · regard {__version__}" if layer.is_map else "as recorded")
            for run in self.runs
            for layer in run.layers
        }
        return "; ".join(sorted(sources))

    def _can_edit(self) -> bool:
        return all(run.model is not None and run.encoding is not None for run in self.runs)

    def _why_not_comparable(self) -> str | None:
        """Return why A − B cannot be shown, cell by cell; None where it can."""
        if self._given < 2:
            return "there is one run: give two texts"
        one, other = self.runs
        if one.length != other.length:
            return f"A has {one.length} tokens and B {other.length}: cells of one have no partner in the other"
        sizes = [[(run.number(n), len(layer.heads)) for n, layer in enumerate(run.layers)] for run in (one, other)]
        if sizes[0] != sizes[1]:
            return "A and B have different layers and heads"
        return None

    def _whole(self, run: int, its: Run, layer: int, head: Head, way: str, check: CancelCheck) -> np.ndarray | None:
        """Return a map that is not the weights of a head themselves; None for those."""
        if way not in its.ways:
            raise RegardError(f"there is no way {way!r} to look at this run; there are {', '.join(its.ways)}")
        if way == "rollout":
            reached: np.ndarray = self._cache.get(("rollout", run), lambda: rollouts(its.layers, check, its.off))[layer]
            return reached
        if way == "norms":
            make = lambda: heads_together(its.layers[layer], head, self.values_of(run, layer), check)  # noqa: E731
            return self._cache.get(("norms", run, layer, head), make)
        return None

    def _line(
        self, run: int, layer: int, head: Head, token: int, axis: int, way: str, check: CancelCheck
    ) -> np.ndarray:
        """Return the row of a token, or with axis 1 its column."""
        its, layer_map = self._layer(run, layer)
        self._check_head(layer_map, head)
        check_number("token", token, layer_map.length)
        whole = self._whole(run, its, layer, head, way, check)
        if whole is not None:
            return _float32(whole.take(token, axis))
        at = ([token], None) if axis == 0 else (None, [token])
        lines = [layer_map.tile(each, *at).take(0, axis) for each in heads_of(layer_map, head)]
        return _float32(np.mean(lines, axis=0))

    def _part(
        self,
        run: int,
        layer: int,
        layer_map: LayerMap,
        head: int,
        row_edges: np.ndarray,
        col_edges: np.ndarray,
        pool: Pool,
        check: CancelCheck,
    ) -> np.ndarray:
        """Return a part of one head, from its weights or from the overview of all of it."""
        heights, widths = np.diff(row_edges), np.diff(col_edges)
        n = layer_map.length
        side = min(_BASE, n)
        finer = max(heights.max(), widths.max()) * side < n
        if heights.sum() * widths.sum() <= (_DIRECT if finer or n * n <= _DIRECT else _NEAR):
            return region(layer_map, head, row_edges, col_edges, pool, check)
        make = lambda: _float32(overview(layer_map, head, (side, side), pool, check))  # noqa: E731
        base = self._cache.get(("base", run, layer, head, pool), make)
        return from_overview(base, n, row_edges, col_edges, pool)

    def _thumbnails(self, run: Run, side: int, check: CancelCheck) -> np.ndarray:
        rows = run.sampled()
        found = np.zeros((len(run.layers), max(len(layer.heads) for layer in run.layers), side, side), np.uint8)
        for number, layer in enumerate(run.layers):
            for head in range(len(layer.heads)):
                check()
                if len(rows) == layer.length:
                    weights = overview(layer, head, (side, side), "max", check)
                else:
                    strip = layer.tile(head, rows, None)
                    weights = pooled(strip, edges(0, len(rows), side), edges(0, layer.length, side), "max")
                largest = float(weights.max())
                found[number, head] = np.round(255 * np.sqrt(weights / (largest or 1.0))).astype(np.uint8)
        return found


def _process_at_most() -> int | None:
    """Return the most bytes that this process has had in memory, which Linux tells."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), None)


def _float32(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32)
