"""What the cache of huggingface_hub holds, read without that library, whose import takes 0.3 s.

A snapshot there may lack files: a download was interrupted, or another program fetched those that it reads. regard
therefore keeps the list of all files of each commit that it fetched from, in its own cache: a commit never changes, so
a snapshot with all the files that are needed of that list is complete, and no request is made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write, read_file, read_json_object
from regard._utils.validation import short_name
from regard.formats.gguf_parts import files_of_model
from regard.models.hub.hub_files import (
    MODULES,
    NAMES,
    SENTENCE_TEXTS,
    TOKENIZER,
    WEIGHTS,
    module_folders,
    needed_files,
)
from regard.models.hub.hub_gguf import GgufModel, gguf_models, is_gguf_name
from regard.models.hub.hub_name import DEFAULT_REVISION, HubName, parse_hub_name
from regard.models.hub.paths import cache_folder, hub_cache
from regard.models.sentence import SETTINGS_FILES, transformer_folder
from regard.text.words import join_names

COMMIT = re.compile(r"[0-9a-f]{40}")
GGUF = "GGUF"
_LIBRARY_LISTING = 1  # the version of the library's own lists of files that is read
_SHOWN = 3  # names of files in a message


@dataclass(frozen=True)
class Snapshot:
    """What the cache has of a model."""

    path: Path | None  # the folder of the model, or its GGUF file; None if it cannot be loaded
    is_listed: bool  # whether all files of the repository are known
    lacks: str = ""  # what keeps it from being loaded
    unknown: tuple[str, ...] = ()  # files that the repository may have too

    @property
    def place(self) -> str:
        """Where the model is, as the end of a sentence about it."""
        if self.path is None:
            return f"is on this machine only in part ({self.lacks})"
        if self.is_listed:
            return "is on this machine"
        may = f"; it may lack {join_names(self.unknown, most=_SHOWN)}" if self.unknown else ""
        return f"is on this machine as another program left it{may}"


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache, or what keeps a repository there from being one."""

    name: str  # as `regard.load` takes it
    path: Path  # a folder or a GGUF file
    size: int  # bytes of the files that are read
    kind: str | None  # the model_type of its configuration, `GGUF`, or None
    problem: str | None = None  # why it cannot be loaded from here
    revision: str | None = None  # if another than the default one


def find_snapshot(name: HubName) -> Snapshot | None:
    """Return what the cache has of a model; None if it has nothing of it.

    An error if all files of the repository are known, and it is not a model that regard reads.
    """
    commit = _commit(name)
    if commit is None:
        return None
    snapshot = storage_folder(name.repository) / "snapshots" / commit
    names = _listed(name.repository, commit)
    if names is not None:
        return _state(snapshot, name, names, is_listed=True)
    names = _names_in(snapshot)
    if not names:
        return None
    try:
        state = _state(snapshot, name, names, is_listed=False)
    except RegardError:  # it is said of the files here alone
        if name.quantization:
            return None
        models = gguf_models(names)
        what = f"GGUF alone, such as {name.repository}:{short_name(models[0].key)}" if models else "without weights"
        return Snapshot(None, is_listed=False, lacks=what)
    if state is None or state.path is None or (state.path.is_file() and name.quantization):
        return state
    absent = storage_folder(name.repository) / ".no_exist" / commit  # where other programs note what they asked for
    files = [WEIGHTS] if state.path.is_file() else _files_that_may_be(snapshot, names)
    unknown = [each for each in files if each not in names and not (absent / each).exists()]
    return Snapshot(state.path, is_listed=False, unknown=tuple(unknown))


def _files_that_may_be(snapshot: Path, names: Sequence[str]) -> list[str]:
    """Return the files beside the weights that a repository may have, those first without which numbers differ."""
    one_of = {TOKENIZER: True, SETTINGS_FILES: MODULES in names}  # of which one is enough
    kinds = [kind[0] for kind, is_likely in one_of.items() if is_likely and not any(each in names for each in kind)]
    texts = [SENTENCE_TEXTS] if MODULES in names else []
    settings = [each for each in NAMES if each not in (MODULES, SENTENCE_TEXTS, *TOKENIZER, *SETTINGS_FILES)]
    modules = [folder + "config.json" for folder in module_folders(names, _local(snapshot)) if folder]
    return [MODULES, *modules, *kinds, *texts, *settings]


def cached_models() -> list[CachedModel]:
    """Return the models in the cache by name: their main revision, other branches and tags, or else the newest."""
    models: list[CachedModel] = []
    for folder in sorted(hub_cache().glob("models--*--*")):
        repository = _repository(folder.name)
        if parse_hub_name(repository):
            with suppress(OSError, RegardError):
                for revision in _revisions(repository):
                    models += _models_of(HubName(repository, revision=revision))
    return models


def identity(path: Path) -> list[str] | None:
    """Return what says which content a model in the cache has: its commit and the files that are read.

    None where these do not say it: for a path elsewhere, or a file that is not the cache's own.
    """
    cache, path = Path(os.path.abspath(hub_cache())), Path(os.path.abspath(path))  # noqa: PTH100 (resolve follows links)
    parts = path.relative_to(cache).parts if path.is_relative_to(cache) else ()
    if len(parts) < 3 or parts[1] != "snapshots" or not COMMIT.fullmatch(parts[2]):
        return None
    snapshot = cache.joinpath(*parts[:3])
    try:
        files = (
            needed_files(HubName(_repository(parts[0])), _names_in(snapshot), snapshot.joinpath)
            if path == snapshot
            else [each.relative_to(snapshot).as_posix() for each in files_of_model(path)]
        )
    except (RegardError, OSError):
        return None
    blobs = os.path.realpath(cache / parts[0] / "blobs")
    if not all(os.path.dirname(os.path.realpath(snapshot / each)) == blobs for each in files):  # noqa: PTH120
        return None  # copied there, as where links are not allowed, or changed by a person
    return [parts[2], *sorted(files)]


def storage_folder(repository: str) -> Path:
    """Return the folder of a repository in the cache."""
    return hub_cache() / f"models--{repository.replace('/', '--')}"


def _repository(folder: str) -> str:
    """Return the repository of a folder with the name that `storage_folder` gives."""
    return folder.removeprefix("models--").replace("--", "/", 1)


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
    """Return the names of all files of a commit, if regard or the library keeps them."""
    with suppress(RegardError):
        files = (read_json_object(_listing(repository, commit)) or {}).get("files")
        if isinstance(files, list) and all(isinstance(each, str) for each in files):
            return files
    with suppress(RegardError):
        listing = read_json_object(storage_folder(repository) / "trees" / f"{commit}.json") or {}
        files = listing.get("files")
        if listing.get("format_version") == _LIBRARY_LISTING and isinstance(files, dict):
            return list(files)
    return None


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


def _state(snapshot: Path, name: HubName, names: Sequence[str], *, is_listed: bool) -> Snapshot | None:
    """Return what a snapshot has of the files that are needed of those of the repository; None for nothing."""
    try:
        needed = needed_files(name, names, _local(snapshot))
    except FileNotFoundError as error:
        missing, needed = [str(error)], []
    else:
        missing = [each for each in needed if not (snapshot / each).is_file()]
        if not missing:
            return Snapshot(model_path(snapshot, needed), is_listed)
    if len(missing) == len(needed) or not snapshot.is_dir():
        return None
    verb = "is" if len(missing) == 1 else "are"
    return Snapshot(None, is_listed, lacks=f"{join_names(map(short_name, missing), most=_SHOWN)} {verb} missing")


def model_path(snapshot: Path, needed: Sequence[str]) -> Path:
    """Return what is loaded of a snapshot with the files `needed`: the folder, or the GGUF file."""
    return snapshot / needed[0] if is_gguf_name(needed[0]) else snapshot


def _local(snapshot: Path) -> Callable[[str], Path]:
    def local(name: str) -> Path:
        if not (snapshot / name).is_file():
            raise FileNotFoundError(name)
        return snapshot / name

    return local


def _names_in(snapshot: Path) -> list[str]:
    return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]


def _revisions(repository: str) -> list[str]:
    """Return the revisions of a repository that are listed, the main one first."""
    folder = storage_folder(repository)
    refs = folder / "refs"
    names = sorted(path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file())
    commits = {name: _commit(HubName(repository, revision=name)) for name in names}
    there = {name: commit for name, commit in commits.items() if commit and (folder / "snapshots" / commit).is_dir()}
    others = [name for name in there if there[name] != there.get(DEFAULT_REVISION)]
    if there:
        return [DEFAULT_REVISION, *others] if DEFAULT_REVISION in there else others
    snapshots = sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime)
    return [path.name for path in snapshots[-1:] if COMMIT.fullmatch(path.name)]


def _models_of(name: HubName) -> Iterator[CachedModel]:
    """Yield the models of a revision in the cache: its folder, and each of its GGUF files."""
    commit = _commit(name)
    if commit is None:
        return
    snapshot = storage_folder(name.repository) / "snapshots" / commit
    names = _names_in(snapshot)
    listed = _listed(name.repository, commit)
    models = [each for each in gguf_models(listed or names) if any(file in names for file in each.files)]
    yield from (_gguf_of(name, snapshot, each) for each in models)
    has_weights = any(each.endswith(".safetensors") for each in names)
    if has_weights or (names and not models):
        yield _folder_of(name, snapshot, names)


def _gguf_of(name: HubName, snapshot: Path, model: GgufModel) -> CachedModel:
    there = [snapshot / each for each in model.files if (snapshot / each).is_file()]
    size = sum(path.stat().st_size for path in there)
    key, revision = f"{name.repository}:{model.key}", _other(name.revision)
    pull = replace(name, quantization=model.key).pull_command
    problem = (
        f"incomplete, {len(there)} of {model.num_parts} files; run {pull}" if len(there) < model.num_parts else None
    )
    return CachedModel(key, snapshot / model.files[0], size, GGUF, problem, revision)


def _folder_of(name: HubName, snapshot: Path, names: Sequence[str]) -> CachedModel:
    kind, size, problem = None, 0, None
    try:
        kind = (read_json_object(transformer_folder(snapshot) / "config.json") or {}).get("model_type")
        state = find_snapshot(name)
        if state is None or state.path is None:
            problem = f"incomplete; run {name.pull_command}"
        else:
            size = sum((snapshot / each).stat().st_size for each in needed_files(name, names, _local(snapshot)))
    except RegardError as error:
        problem = str(error)
    kind = short_name(kind) if isinstance(kind, str) else None
    return CachedModel(str(name), snapshot, size, kind, problem, _other(name.revision))


def _other(revision: str) -> str | None:
    return None if revision == DEFAULT_REVISION else revision
