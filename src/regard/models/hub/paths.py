"""Candidate model directories. Does not verify contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from regard._utils.errors import RegardError
from regard.models.hub.registry import WheelSource


def cache_folder() -> Path:
    """Return regard's folder in the user's cache, without platformdirs as Linux has it."""
    try:
        from platformdirs import user_cache_dir
    except ModuleNotFoundError:
        return _caches() / "regard"
    return Path(user_cache_dir("regard", appauthor=False))


def models_folder() -> Path:
    """Return the folder of downloaded models, ``REGARD_MODELS`` or one in the user's cache."""
    path = os.environ.get("REGARD_MODELS")
    if path is None or not path:
        return cache_folder() / "models"
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise RegardError(f"REGARD_MODELS is {path}, but there is no such user; set another folder") from None


def shipped_folder(name: str) -> Path:
    """Return the folder of a model that is a part of regard."""
    return Path(__file__).parent.parent / "shipped" / name


def importable(module: str) -> bool:
    """Tell whether `module` can be imported, without running its code."""
    return _locations(module) is not None


def in_package(source: WheelSource) -> Iterator[Path]:
    """Yield the folders of a model inside an installed package, without running its code."""
    for location in _locations(source.module) or ():
        yield Path(location) / source.folder


def in_hub_cache(repository: str) -> Iterator[Path]:
    """Yield the snapshots of `repository` in the local Hugging Face cache."""
    yield from sorted(hub_cache().glob(f"models--{repository.replace('/', '--')}/snapshots/*"))


def hub_cache() -> Path:
    """Return the folder that huggingface_hub would use; importing it takes 0.3 s."""
    path = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not path:
        path = os.path.join(os.environ.get("HF_HOME") or _caches() / "huggingface", "hub")  # noqa: PTH118
    return _expanded(path)


def _caches() -> Path:
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(path)))  # noqa: PTH111 (Path.expanduser raises for an unknown user)


def _locations(module: str) -> list[str] | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a broken finder, or a placeholder in sys.modules
        return None
    return list(spec.submodule_search_locations or ()) if spec else None


def offline_variable() -> str | None:
    """Return the environment variable that forbids downloads, if one is set."""
    for name in ("REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").lower() not in ("", "0", "no", "off", "false"):
            return name
    return None
