"""What the cache of huggingface_hub holds, read without that library, whose import takes 0.3 s.

A snapshot there may lack files: a download was interrupted, or another program fetched those that it reads. regard
therefore keeps the list of all files of each commit that it fetched from, in its own cache: a commit never changes, so
a snapshot with all the files that are needed of that list is complete, and no request is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write, read_file, read_json_object
from regard.models.hub.hub_files import needed_files, quantizations
from regard.models.hub.hub_name import HubName, parse_hub_name
from regard.models.hub.paths import cache_folder, hub_cache

COMMIT = re.compile(r"[0-9a-f]{40}")
GGUF = "GGUF"


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache, or what keeps a repository there from being one."""

    name: str  # as `regard.load` takes it
    path: Path  # a folder or a GGUF file
    size: int  # bytes of the files that are read
    kind: str | None  # the model_type of its configuration, `GGUF`, or None
    problem: str | None = None  # why it cannot be loaded from here


def find_snapshot(name: HubName, *, complete: bool = True) -> Path | None:
    """Return the folder of a model in the cache, or its GGUF file; None if it is not there.

    Without `complete` a snapshot counts of which regard has no list of files, as another program left it.

    An error if it is there, but not in a form that regard reads.
    """
    folder, commit = storage_folder(name.repository), _commit(name)
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    names = _listed(name.repository, commit)
    if names is None:
        names = None if complete else _names_in(snapshot)
    return _model_in(snapshot, name, names) if names else None


def cached_models() -> list[CachedModel]:
    """Return the models in the cache at their main revision, or else the newest that is there, by name."""
    found: list[CachedModel] = []
    for folder in sorted(hub_cache().glob("models--*--*")):
        owner, _, rest = folder.name.removeprefix("models--").partition("--")
        if name := parse_hub_name(f"{owner}/{rest}"):
            with suppress(OSError):
                found += _models_of(name, folder)
    return found


def storage_folder(repository: str) -> Path:
    """Return the folder of a repository in the cache."""
    return hub_cache() / f"models--{repository.replace('/', '--')}"


def remember_listing(repository: str, commit: str, names: Sequence[str]) -> None:
    """Keep the names of all files of a commit; where nothing can be written the hub is asked again next time."""
    path = _listing(repository, commit)
    with suppress(OSError, RegardError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(json.dumps({"files": sorted(names)}, indent=1).encode())


def _listing(repository: str, commit: str) -> Path:
    return cache_folder() / "hub" / repository.replace("/", "--") / f"{commit}.json"


def _listed(repository: str, commit: str) -> list[str] | None:
    try:
        files = (read_json_object(_listing(repository, commit)) or {}).get("files")
    except RegardError:
        return None
    return files if isinstance(files, list) and all(isinstance(each, str) for each in files) else None


def _commit(name: HubName) -> str | None:
    """Return the commit that a revision was when it was fetched."""
    if COMMIT.fullmatch(name.revision):
        return name.revision
    try:
        content = read_file(storage_folder(name.repository) / "refs" / name.revision)
    except RegardError:
        return None
    commit = (content or b"").decode(errors="replace").strip()
    return commit if COMMIT.fullmatch(commit) else None


def _model_in(snapshot: Path, name: HubName, names: Sequence[str]) -> Path | None:
    """Return the model in a snapshot; None if a file is missing that is needed of those of the repository."""
    try:
        needed = needed_files(name, names, _local(snapshot))
    except FileNotFoundError:
        return None
    if not all((snapshot / each).is_file() for each in needed):
        return None
    return model_path(snapshot, needed)


def model_path(snapshot: Path, needed: Sequence[str]) -> Path:
    """Return what is loaded of a snapshot with the files `needed`: the folder, or the GGUF file."""
    return snapshot / needed[0] if needed[0].lower().endswith(".gguf") else snapshot


def _local(snapshot: Path) -> Callable[[str], Path]:
    def local(name: str) -> Path:
        if not (snapshot / name).is_file():
            raise FileNotFoundError(name)
        return snapshot / name

    return local


def _names_in(snapshot: Path) -> list[str]:
    return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]


def _models_of(name: HubName, folder: Path) -> Iterator[CachedModel]:
    """Yield the models of a repository in the cache: one, or each of its GGUF files."""
    commit = _commit(name)
    snapshots = (
        [folder / "snapshots" / commit]
        if commit
        else sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime)
    )
    if not snapshots or not (names := _names_in(snapshots[-1])):
        return
    snapshot = snapshots[-1]
    listed = _listed(name.repository, snapshot.name)
    if found := quantizations(names):
        yield from (_gguf_of(name, snapshot, key, files) for key, files in found.items())
    if "config.json" in names and not found:
        yield _folder_of(name, snapshot, names, listed)


def _gguf_of(name: HubName, snapshot: Path, quantization: str, files: Sequence[str]) -> CachedModel:
    size = sum((snapshot / each).stat().st_size for each in files)
    problem = None if len(files) == 1 else f"in {len(files)} files, which regard does not read"
    return CachedModel(f"{name}:{quantization}", snapshot / files[0], size, GGUF, problem)


def _folder_of(name: HubName, snapshot: Path, names: Sequence[str], listed: Sequence[str] | None) -> CachedModel:
    kind, size, problem = None, 0, None
    try:
        kind = (read_json_object(snapshot / "config.json") or {}).get("model_type")
        if _model_in(snapshot, name, names if listed is None else listed) is None:
            raise FileNotFoundError
        size = sum((snapshot / each).stat().st_size for each in needed_files(name, names, _local(snapshot)))
    except FileNotFoundError:
        problem = f"incomplete; run {name.pull_command}"
    except RegardError as error:
        problem = str(error)
    return CachedModel(str(name), snapshot, size, kind if isinstance(kind, str) else None, problem)
