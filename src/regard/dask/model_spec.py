"""A model as tasks name it: loaded once in each process, and checked to be the one that the client has."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard._version import __version__
from regard.formats.gguf_parts import files_of_model
from regard.functional.native import set_num_threads
from regard.models.base import TextModel, as_text_model
from regard.models.families import load_unpacked
from regard.models.hub import hub_cache, registry, resolve

_ONE_AT_A_TIME = threading.RLock()  # a run takes all threads of the worker


@dataclass(frozen=True)
class ModelSpec:
    """What identifies a model on another machine."""

    name: str  # as `regard.load` takes it
    ignore: tuple[str, ...]  # fields of its configuration, as `regard.load` takes them
    sha256: str  # of its files, or of their identity
    version: str  # of regard


def describe_model(name: str, ignore: Sequence[str] = ()) -> ModelSpec:
    """Return the spec of a model of this machine; an error if it cannot be loaded, or reads no texts."""
    if not isinstance(name, str):
        raise RegardError("model is a name or the path of a folder, which each worker loads, not a loaded model")
    spec = ModelSpec(name, tuple(ignore), _sha256(name), __version__)
    _load(spec.name, spec.ignore)
    return spec


def load_model(spec: ModelSpec) -> TextModel:
    """Return the model of a spec, which this process loads once; its arrays are the file's pages, shared by processes.

    In a worker of Dask the kernel gets the threads of the worker.

    Raises
    ------
    RegardError
        This process has another version of regard, or other files of the model.
    """
    with _ONE_AT_A_TIME:
        return _checked(spec)


@functools.lru_cache(maxsize=1)
def _checked(spec: ModelSpec) -> TextModel:
    if spec.version != __version__:
        raise RegardError(
            f"{_place()} has regard {__version__}, and the run was started by {spec.version}: install the same version"
        )
    if _sha256(spec.name) != spec.sha256:
        raise RegardError(f"the files of {spec.name} on {_place()} are not those of the client: copy them again")
    if (worker := _worker()) is not None:
        set_num_threads(worker.state.nthreads)
    return _load(spec.name, spec.ignore)


@functools.lru_cache(maxsize=1)
def _load(name: str, ignore: tuple[str, ...]) -> TextModel:
    return as_text_model(load_unpacked(name, ignore=ignore))  # packed where it runs: a client only plans


def one_at_a_time() -> AbstractContextManager[Any]:
    """Return the lock of this process, held while its model runs: tasks beside it read and write."""
    return _ONE_AT_A_TIME


def _worker() -> Any:
    """Return the worker of Dask that runs this task, None in another process."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _place() -> str:
    worker = _worker()
    return "this process" if worker is None else f"worker {worker.address}"


def _sha256(name: str) -> str:
    """Return the digest of the files that a model is read from, or of what says which they are in the hub's cache."""
    path, entry = resolve.find(name), registry.KNOWN.get(name)
    if entry is None and (identity := hub_cache.identity(path)) is not None:
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    files = files_of_model(path) if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    if entry is not None and path.is_dir():
        files = [path / file.name for file in entry.files]
    digest = hashlib.sha256()
    for file in files:
        with open_regular(file) as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
