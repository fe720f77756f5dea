"""Run as a module by `hub_models`: fetch a model of the Hugging Face hub into the cache of its library.

A process of its own ends with the library's threads, and its waits can be cut short. What is fetched stands in
``plan.json`` of the folder that it is given, what came of it in ``result.json``. After the plan it waits for a line on
standard input before it fetches large files.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

from regard._utils.errors import RegardError
from regard._utils.files import MAX_BYTES, atomic_write
from regard._utils.validation import short_name
from regard.models.hub.hub_cache import COMMIT, model_path, remember_listing, storage_folder
from regard.models.hub.hub_files import is_configuration, needed_files
from regard.models.hub.hub_gguf import is_gguf_name
from regard.models.hub.hub_models import NoAnswerError
from regard.models.hub.hub_name import HubName
from regard.models.hub.paths import hub_cache
from regard.models.hub.redact import redact, redact_addresses
from regard.text.words import join_names

_BLOB_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,200}")
_MAX_REASON = 200  # characters of the library's message
_NOT_WRITABLE = {
    getattr(errno, name) for name in ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "ENOTDIR") if hasattr(errno, name)
}


def main(
    work: str, repository: str, quantization: str, revision: str, force: str, *, wait: Callable[[], object]
) -> None:
    """Fetch a model, with its weights again if `force` is not empty, and write the result.

    `wait` is called when there is a plan, before the large files, and returns once they are wanted.
    """
    name = HubName(repository, quantization or None, revision)
    try:
        result = {"path": str(_fetch(name, Path(work), bool(force), wait))}
    except RegardError as error:
        result = _problem(error)
    except Exception as error:
        result = _problem(_explained(name, error, is_begun=(Path(work) / "plan.json").exists()))
    _write(Path(work) / "result.json", result)


def _fetch(name: HubName, work: Path, force: bool, wait: Callable[[], object]) -> Path:
    """Download the files that are missing, with a plan before the large ones, and return the model."""
    from huggingface_hub import constants, hf_hub_download

    endpoint, cache = constants.ENDPOINT, hub_cache()
    _check_blob_names()
    info = _info(name, endpoint, work)
    sizes = {each.rfilename: max(each.size or 0, 0) for each in info.siblings or ()}
    fetched: set[str] = set()

    def download(file: str) -> Path:
        if file.endswith((".json", ".jinja")) and sizes.get(file, 0) > MAX_BYTES:
            raise RegardError(
                f"{short_name(file)} of {name} has {sizes[file]:,} bytes, more than the {MAX_BYTES:,} it may"
            )
        again = force and file not in fetched
        fetched.add(file)
        path = hf_hub_download(
            name.repository, file, revision=info.sha, endpoint=endpoint, cache_dir=cache, force_download=again
        )
        return Path(path)

    needed = needed_files(name, sizes, download)
    if absent := [each for each in needed if each not in sizes]:
        raise RegardError(
            f"{name} lacks files that its index names ({join_names(map(short_name, absent), most=3)}): choose another "
            "revision or model"
        )
    snapshot = storage_folder(name.repository) / "snapshots" / info.sha
    configuration = [each for each in needed if is_configuration(each)]
    for each in configuration:  # what forbids access is said before a download is announced
        download(each)
    missing = [each for each in needed if (force and each not in fetched) or not (snapshot / each).is_file()]
    if missing:
        plan = {"files": len(missing), "size": sum(sizes[each] for each in missing)}
        place = None if is_gguf_name(needed[0]) else str(snapshot)
        _write(work / "plan.json", {**plan, "endpoint": redact_addresses(endpoint), "configuration": place})
        wait()
    for each in needed:
        download(each)
    remember_listing(name.repository, info.sha, list(sizes))
    if name.revision != info.sha:
        _set_revision(name, info.sha)
    return model_path(snapshot, needed)


def _check_blob_names() -> None:
    """Make the library refuse an ETag or a commit that is more than a name: it writes to files of these names."""
    from huggingface_hub import file_download

    read = file_download.get_hf_file_metadata

    def metadata(*args: Any, **kwargs: Any) -> Any:
        answer = read(*args, **kwargs)
        for name in (answer.etag, answer.commit_hash):
            if name is not None and not _BLOB_NAME.fullmatch(name):
                raise ValueError(f"an ETag or commit is {short_name(name)}")
        return answer

    file_download.get_hf_file_metadata = metadata


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
        error = _no_answer(endpoint, f"no answer within {2 * seconds} seconds")
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


def _explained(name: HubName, problem: Exception, *, is_begun: bool) -> RegardError:
    """Return an error of the library, before or after the download has begun, as one sentence with what to do."""
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
    elif status == 404:
        text = f"{endpoint} lacks {name}, or a file of it (HTTP 404): check the name, and HF_ENDPOINT if it is a mirror"
    elif status == 429:
        text = f"{endpoint} is limiting requests: wait a few minutes, or log in with `hf auth login`"
    elif status is not None:
        text = f"{endpoint} failed to send {name} (HTTP {status}): try again later"
    elif _is_of_the_token(error):
        text = (
            f"the token for {endpoint} has characters that HTTP does not allow: log in again with `hf auth login`, "
            "or set HF_TOKEN"
        )
    elif _is_of_the_network(error) and is_begun:
        text = (
            f"the download of {name} from {endpoint} broke off: run `{name.pull_command}` again, which keeps the files "
            "that are here"
        )
    elif _is_of_the_network(error):
        return _no_answer(endpoint, _reason(error))
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


def _no_answer(endpoint: str, reason: str) -> RegardError:
    return _noted(NoAnswerError(f"{endpoint} does not answer"), reason)


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


def _wait_for_a_line() -> None:
    """Return when the process that wants the download has written a line; end this one if it has ended."""
    if not sys.stdin.readline():
        sys.exit(1)


def _write(path: Path, content: object) -> None:
    with atomic_write(path) as stream:
        stream.write(json.dumps(content).encode())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwinds, so that the library removes its partial file
    main(*sys.argv[1:], wait=_wait_for_a_line)
