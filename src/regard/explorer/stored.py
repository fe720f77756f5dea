"""An attention map on disk as an exploration: one layer, without a model and without words."""

from __future__ import annotations

import os
from pathlib import Path

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.exploration import Exploration
from regard.explorer.opening import opening_of
from regard.explorer.run import Run
from regard.explorer.run_store import RunStore
from regard.metrics.layer_maps import LayerMap
from regard.trace import Trace
from regard.trace.stored_map import StoredMap, open_map


class StoredExploration(Exploration):
    """The attention map of a folder that `regard.dask.AttentionMap.to_zarr` wrote.

    Parameters
    ----------
    source : StoredMap, or path of one
    batch : int
        Which text of a batch.
    head : int, optional
        What the page opens with.

    Raises
    ------
    RegardError
        The folder holds no map; or its queries are not the tokens of its keys; or there is no such text or head.
    """

    can_be_shared = False

    def __init__(self, source: StoredMap | str | os.PathLike[str], *, batch: int = 0, head: int | None = None) -> None:
        stored = source if isinstance(source, StoredMap) else open_map(source)
        *lead, queries, keys = stored.shape
        if queries != keys:
            raise RegardError(
                f"the explorer shows a text's attention to itself; {stored.name} has {queries} queries and {keys} keys"
            )
        entries = lead[0] if len(lead) > 1 else 1
        if len(lead) > 2:
            raise RegardError(f"the explorer shows one text, and {stored.name} has the shape {stored.shape}")
        if not 0 <= batch < entries:
            raise RegardError(f"there is no text {batch} in a map of {entries}")
        one = stored.select(batch) if len(lead) > 1 else stored
        run = Run(Trace(), [LayerMap("", one, stored.num_kv_heads, queries)], batch, None, None)
        self._name = Path(stored.name).name
        self._open(RunStore([run]), [run])
        self.opening = opening_of(run, None, head)

    @property
    def live_models(self) -> tuple[str, ...]:
        """None: the map is of vectors, not of words."""
        return ()

    def manifest(self) -> answers.Manifest:
        """Return what the page loads first, with the name of the folder as its title."""
        manifest = super().manifest()
        return {**manifest, "title": self._name, "can": {**manifest["can"], "figures": False}}
