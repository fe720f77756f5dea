"""Where the files of a model may lie on this machine. Knows nothing of whether they are right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from regard._utils.errors import RegardError
from regard.models.hub.registry import WheelSource


def cache_folder() -> Path:
    """Return regard's folder in the user's cache."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("regard", appauthor=False))


def models_folder() -> Path:
    """Return the folder that holds a folder for each fetched model: ``REGARD_MODELS``, else in the cache."""
    chosen = os.environ.get("REGARD_MODELS")
    if chosen is None or not chosen:
        return cache_folder() / "models"
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError:
        raise RegardError(f"REGARD_MODELS is {chosen}, but there is no such user: name another folder") from None


def importable(module: str) -> bool:
    """Return whether Python would find `module`, without running any of its code."""
    return _locations(module) is not None


def in_package(source: WheelSource) -> Iterator[Path]:
    """Yield where the files of a model lie inside an installed package, whose code is not run."""
    for location in _locations(source.module) or ():
        yield Path(location) / source.folder


def in_hub_cache(repository: str) -> Iterator[Path]:
    """Yield the snapshots of `repository` in the local Hugging Face cache."""
    yield from sorted(_hub_cache().glob(f"models--{repository.replace('/', '--')}/snapshots/*"))


def _hub_cache() -> Path:
    """Find the cache as huggingface_hub does, which takes 0.3 s to import."""
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not chosen:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        chosen = os.path.join(os.environ.get("HF_HOME") or os.path.join(caches, "huggingface"), "hub")  # noqa: PTH118
    return Path(os.path.expanduser(os.path.expandvars(chosen)))  # noqa: PTH111 (Path's raises where there is no such user)


def _locations(module: str) -> list[str] | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a broken finder, or a stand-in in sys.modules
        return None
    return list(spec.submodule_search_locations or ()) if spec else None
