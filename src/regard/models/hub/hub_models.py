"""Models of the Hugging Face hub: found in the cache of its library, or fetched into that, by a child process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard.models.hub.hub_cache import Snapshot, find_snapshot, storage_folder
from regard.models.hub.hub_name import HubName
from regard.models.hub.paths import importable, offline_variable
from regard.models.hub.redact import redact
from regard.models.hub.transfer import DownloadError, Progress, bytes_in, progress_bar, run

_LIBRARY = "huggingface_hub"

ConfigCheck = Callable[[str, Path], None]
"""Called with the name of a model and a folder with its configuration; raises an error if regard cannot run it."""


class NoAnswerError(RegardError):
    """The hub cannot be reached."""


def find_hub_model(
    name: HubName,
    *,
    download: bool = True,
    progress: Progress | None = None,
    check_config: ConfigCheck | None = None,
) -> Path:
    """Return the folder of a model of the hub, or its GGUF file.

    The cache comes first, without a request; what is not in it, or not all, is downloaded into it. Where that is
    forbidden or the hub does not answer, what another program left there serves, and what it may lack is printed.

    Raises
    ------
    RegardError
        It is not in the cache, or only in part, and could not be fetched, or it is not a model that regard reads.
    """
    snapshot = find_snapshot(name)
    if snapshot is not None and snapshot.path is not None and snapshot.is_listed:
        return snapshot.path
    variable = offline_variable()
    if not download or variable:
        return _as_it_is(name, snapshot, f"{variable} forbids downloads" if download else "")
    if snapshot is not None and snapshot.path is not None and not importable(_LIBRARY):
        return _as_it_is(name, snapshot, f"{_LIBRARY} is not installed")
    try:
        return fetch_hub_model(name, force=False, progress=progress, check_config=check_config)
    except NoAnswerError as error:
        try:
            return _as_it_is(name, snapshot, str(error))
        except RegardError as problem:
            raise _with_notes(problem, error) from error


def pull_hub_model(
    name: HubName, *, force: bool, progress: Progress | None = None, check_config: ConfigCheck | None = None
) -> Path:
    """Return a model of the hub as it is there now: files that are missing or have changed are downloaded.

    With `force` all are. Offline, or where the hub does not answer, it is what the cache has.
    """
    if not force and offline_variable():
        return find_hub_model(name)
    try:
        return fetch_hub_model(name, force=force, progress=progress, check_config=check_config)
    except NoAnswerError as error:
        snapshot = find_snapshot(name)
        if force or snapshot is None or snapshot.path is None or not snapshot.is_listed:
            problem = _not_here(name, snapshot, str(error))
            raise _with_notes(problem, error) from error
        if sys.stderr is not None:
            print(f"{name} may not be the newest: {'; '.join(error.__notes__)}", file=sys.stderr)
        return snapshot.path


def _as_it_is(name: HubName, snapshot: Snapshot | None, reason: str) -> Path:
    """Return what another program left of a model, and print what it may lack; an error if it cannot be loaded."""
    if snapshot is None or snapshot.path is None:
        raise _not_here(name, snapshot, reason)
    if snapshot.unknown and sys.stderr is not None:
        print(_not_here(name, snapshot, reason), file=sys.stderr)
    return snapshot.path


def _not_here(name: HubName, snapshot: Snapshot | None, reason: str) -> RegardError:
    place = "is not on this machine" if snapshot is None else snapshot.place
    because = f"{'' if snapshot is None else ','} and {reason}" if reason else ""
    return RegardError(f"{name} {place}{because}: run `{name.pull_command}` with a network")


def _with_notes(error: RegardError, other: RegardError) -> RegardError:
    for note in getattr(other, "__notes__", ()):
        error.add_note(note)
    return error


def fetch_hub_model(
    name: HubName,
    *,
    force: bool,
    progress: Progress | None = None,
    check_config: ConfigCheck | None = None,
    settings: Mapping[str, str] | None = None,
) -> Path:
    """Download what is missing into the cache, and return the model there; `settings` are those of `transfer.run`."""
    if variable := offline_variable():
        raise RegardError(f"{name} cannot be fetched, as {variable} forbids downloads: unset it")
    if not importable(_LIBRARY):
        raise RegardError(f"{name} is fetched by {_LIBRARY}, which is not installed: pip install 'regard[hub]'")
    command = [sys.executable, "-P", "-m", "regard.models.hub.fetch_snapshot"]
    with TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as work:
        arguments = [work, name.repository, name.quantization or "", name.revision, "force" * force]
        with ExitStack() as stack:
            report = _Report(name, Path(work), stack, progress, check_config)
            try:
                _, output = run([*command, *arguments], Path(work), report, settings=settings or {})
            except DownloadError as error:
                raise RegardError(f"{name} could not be fetched: {error}") from error
            result = read_json_object(Path(work) / "result.json")
            if result is not None and "error" not in result:
                report.end()
    if result is None:
        lines = output.decode(errors="replace").strip().splitlines()
        last = "\n".join(map(redact, lines))[-1000:]
        result = {"error": f"{name} could not be fetched: run `{name.pull_command}` again", "notes": [last]}
    if "error" in result:
        problem = (NoAnswerError if result.get("has_no_answer") else RegardError)(result["error"])
        for note in result["notes"]:
            problem.add_note(note)
        raise problem
    return Path(result["path"])


class _Report:
    """Checks the configuration of the model that a child fetches, and shows its progress, once there is a plan."""

    def __init__(
        self,
        name: HubName,
        work: Path,
        stack: ExitStack,
        progress: Progress | None,
        check_config: ConfigCheck | None,
    ) -> None:
        self._name, self._plan, self._stack, self._progress = name, work / "plan.json", stack, progress
        self._check_config = check_config
        self._blobs = storage_folder(name.repository) / "blobs"
        self._before = 0
        self._show: Progress | None = None
        self._total = 0

    def __call__(self) -> bool:
        """Show how much there is; return whether the large files are wanted."""
        if self._show is None:
            self._start()
        if self._show is not None:
            self._show(min(max(bytes_in(self._blobs) - self._before, 0), self._total), self._total)
        return self._show is not None

    def end(self) -> None:
        """Show that it ended."""
        if self._show is not None:
            self._show(self._total, self._total)

    def _start(self) -> None:
        plan = read_json_object(self._plan)
        if plan is None:
            return
        if self._check_config is not None and plan["configuration"] is not None:
            self._check_config(str(self._name), Path(plan["configuration"]))
        self._before = bytes_in(self._blobs)
        self._total = plan["size"]
        files = f"{plan['files']} file{'s' * (plan['files'] != 1)}"
        title = (
            f"downloading {self._name} ({files}, {self._total // 1_000_000} MB) from {plan['endpoint']} "
            f"to {self._blobs.parent}"
        )
        self._show = self._stack.enter_context(progress_bar(title, self._progress))
