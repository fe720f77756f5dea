"""Run as a module by `hub_models`: fetch a model of the Hugging Face hub into the cache of its library.

A process of its own ends with the library's threads, and its waits can be cut short. What is fetched stands in
``plan.json`` of the folder that it is given, what came of it in ``result.json``.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write, read_json_object
from regard.models.hub.hub_cache import COMMIT, model_path, remember_listing, storage_folder
from regard.models.hub.hub_files import needed_files
from regard.models.hub.hub_models import NoAnswerError
from regard.models.hub.hub_name import HubName
from regard.models.hub.paths import hub_cache
from regard.models.hub.redact import redact, redact_addresses
from regard.text.words import join_names

_MAX_REASON = 200  # characters of the library's message
_NOT_WRITABLE = {
    getattr(errno, name) for name in ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "ENOTDIR") if hasattr(errno, name)
}


def main(work: str, repository: str, quantization: str, revision: str, force: str) -> None:
    """Fetch a model, with its weights again if `force` is not empty, and write the result."""
    name = HubName(repository, quantization or None, revision)
    try:
        result = {"path": str(_fetch(name, Path(work), bool(force)))}
    except RegardError as error:
        result = _problem(error)
    except Exception as error:
        result = _problem(_explained(name, error))
    _write(Path(work) / "result.json", result)


def _fetch(name: HubName, work: Path, force: bool) -> Path:
    """Download the files that are missing, write the plan before the large ones, and return the model."""
    from huggingface_hub import constants, hf_hub_download

    endpoint, cache = constants.ENDPOINT, hub_cache()
    info = _info(name, endpoint, work)
    sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
    fetched: set[str] = set()

    def download(file: str) -> Path:
        again = force and file not in fetched
        fetched.add(file)
        path = hf_hub_download(
            name.repository, file, revision=info.sha, endpoint=endpoint, cache_dir=cache, force_download=again
        )
        return Path(path)

    needed = needed_files(name, sizes, download)
    if absent := [each for each in needed if each not in sizes]:
        raise RegardError(
            f"{name} lacks files that its index names ({join_names(absent)}): choose another revision or model"
        )
    snapshot = storage_folder(name.repository) / "snapshots" / info.sha
    if len(needed) > 1:
        download(needed[0])  # small: what forbids access is said before a download is announced
    missing = [each for each in needed if (force and each not in fetched) or not (snapshot / each).is_file()]
    size = sum(sizes[each] for each in missing)
    plan = {"files": len(missing), "size": size, "endpoint": redact_addresses(endpoint), "model_type": None}
    if "config.json" in needed:
        plan["model_type"] = (read_json_object(download("config.json")) or {}).get("model_type")
    _write(work / "plan.json", plan)
    for each in needed:
        download(each)
    remember_listing(name.repository, info.sha, list(sizes))
    if name.revision != info.sha:
        _set_revision(name, info.sha)
    return model_path(snapshot, needed)


def _set_revision(name: HubName, commit: str) -> None:
    """Make a branch or tag in the cache this commit, of which all files are there, as the library does at once.

    The library would ask the hub again, where the branch may have moved meanwhile to a commit without files here.
    """
    path = storage_folder(name.repository) / "refs" / name.revision
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as stream:
        stream.write(commit.encode())


def _info(name: HubName, endpoint: str, work: Path) -> Any:
    """Return what the hub says of a revision: its commit and its files."""
    from huggingface_hub import HfApi, constants

    seconds = constants.HF_HUB_ETAG_TIMEOUT

    def give_up() -> None:
        error = _no_answer(name, endpoint, f"no answer within {2 * seconds} seconds")
        _write(work / "result.json", _problem(error))
        os._exit(0)

    timer = threading.Timer(2 * seconds, give_up)  # the library's limit is one of each step of a request
    timer.daemon = True
    timer.start()
    try:
        info = HfApi(endpoint).model_info(name.repository, revision=name.revision, files_metadata=True, timeout=seconds)
    finally:
        timer.cancel()
    if not COMMIT.fullmatch(info.sha or ""):
        raise ValueError(f"the commit of the revision is {info.sha!r}")
    return info


def _problem(error: RegardError) -> dict[str, Any]:
    """Return an error as the parent process reads it, without the passwords and signatures of addresses."""
    return {
        "error": redact_addresses(str(error)),
        "notes": getattr(error, "__notes__", []),
        "has_no_answer": isinstance(error, NoAnswerError),
    }


def _explained(name: HubName, problem: Exception) -> RegardError:
    """Return an error of the library as one sentence with what to do."""
    import huggingface_hub.utils
    from huggingface_hub import constants

    endpoint = constants.ENDPOINT
    utils: Any = huggingface_hub.utils  # where every version has its errors
    error = _answered(problem) or problem
    status = getattr(getattr(error, "response", None), "status_code", None)
    page = f"{endpoint}/{name.repository}"
    if isinstance(error, utils.GatedRepoError):
        text = f"{name} is gated: ask for access at {page}, then log in with `hf auth login`, or set HF_TOKEN"
    elif isinstance(error, utils.RepositoryNotFoundError):
        text = _not_a_model(name, endpoint)
    elif isinstance(error, utils.RevisionNotFoundError):
        text = f"{name} has no revision {name.revision}: give a branch, a tag or a commit that {page} lists"
    elif status == 401:
        text = f"{endpoint} refuses the token: log in again with `hf auth login`, or set HF_TOKEN"
    elif status == 403:
        text = f"{endpoint} does not let this account read {name}: see {page}"
    elif status == 429:
        text = f"{endpoint} is limiting requests: wait a few minutes, or log in with `hf auth login`"
    elif status is not None:
        text = f"{endpoint} failed to send {name} (HTTP {status}): try again later"
    elif _is_of_the_token(error):
        text = (
            f"the token for {endpoint} has characters that HTTP does not allow: log in again with `hf auth login`, "
            "or set HF_TOKEN"
        )
    elif _is_of_the_network(error):
        return _no_answer(name, endpoint, _reason(error))
    elif _is_of_the_cache(error):
        text = (
            f"cannot put {name} into {storage_folder(name.repository)}: {error.strerror}; set HF_HUB_CACHE to a folder "
            "that can be written and has room"
        )
    elif isinstance(error, ValueError | TypeError | KeyError) or isinstance(
        error.__cause__, getattr(utils, "FileMetadataError", ())
    ):
        text = (
            f"{endpoint} does not answer as the Hugging Face hub does: check HF_ENDPOINT, and the proxy if there is one"
        )
    else:
        text = f"{name} could not be fetched: run `{name.pull_command}` again"
    return _noted(RegardError(text), _reason(error))


def _not_a_model(name: HubName, endpoint: str) -> str:
    """Return what to say of a repository that is not a model: it may have another type."""
    from huggingface_hub import HfApi, constants

    for kind in ("dataset", "space"):
        try:
            HfApi(endpoint).repo_info(name.repository, repo_type=kind, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception:
            continue
        return f"{name} is a {kind}, not a model: give the name of a model"
    return (
        f"{endpoint} has no model {name.repository}, or none for this account: check the name, or log in with "
        "`hf auth login` if it is private"
    )


def _no_answer(name: HubName, endpoint: str, reason: str) -> RegardError:
    error = NoAnswerError(
        f"{name} is not on this machine and {endpoint} does not answer: run `{name.pull_command}` with a network"
    )
    return _noted(error, reason)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def _answered(error: Exception) -> BaseException | None:
    """Return the error, or what it was raised from, that has the answer of a server; None if there is none."""
    return next((each for each in _chain(error) if getattr(each, "response", None) is not None), None)


def _is_of_the_token(error: BaseException) -> bool:
    """Tell whether a header could not be made, of which the token is the only part that the user gives."""
    return any(
        isinstance(each, UnicodeEncodeError) or type(each).__name__ == "LocalProtocolError" for each in _chain(error)
    )


def _is_of_the_network(error: BaseException) -> bool:
    """Tell whether an error without an answer, or what it was raised from, is one of the connection."""
    clients = ("httpx", "httpx2", "httpcore", "requests", "urllib3")
    return any(
        type(each).__module__.partition(".")[0] in clients or isinstance(each, ConnectionError | TimeoutError)
        for each in _chain(error)
    )


def _is_of_the_cache(error: BaseException) -> TypeGuard[OSError]:
    """Tell whether a file could not be put into the cache."""
    if not isinstance(error, OSError) or error.errno is None:
        return False
    return error.errno in _NOT_WRITABLE or str(error.filename).startswith(f"{hub_cache()}{os.sep}")


def _reason(error: BaseException) -> str:
    return redact(f"{type(error).__name__}: {error}")[:_MAX_REASON]


def _noted(error: RegardError, reason: str) -> RegardError:
    error.add_note(reason)
    return error


def _write(path: Path, content: object) -> None:
    with atomic_write(path) as stream:
        stream.write(json.dumps(content).encode())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwinds, so that the library removes its partial file
    main(*sys.argv[1:])
