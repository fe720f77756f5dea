"""Models of the Hugging Face hub: found in the cache of its library, or fetched into that, by a child process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard.models.hub.hub_cache import find_snapshot, storage_folder
from regard.models.hub.hub_name import HubName
from regard.models.hub.paths import importable, offline_variable
from regard.models.hub.redact import redact
from regard.models.hub.transfer import DownloadError, Progress, bytes_in, progress_bar, run, signals_unwind

TypeCheck = Callable[[str, str], None]
"""Called with the name and the ``model_type`` of a model; raises an error if regard cannot run it."""


class NoAnswerError(RegardError):
    """The hub cannot be reached."""


def find_hub_model(
    name: HubName,
    *,
    download: bool = True,
    progress: Progress | None = None,
    check_type: TypeCheck | None = None,
) -> Path:
    """Return the folder of a model of the hub, or its GGUF file.

    The cache comes first, without a request; what is not in it, or not all, is downloaded into it. Where that is
    forbidden or the hub does not answer, a snapshot serves that another program left there.

    Raises
    ------
    RegardError
        It is not in the cache and could not be fetched, or it is not a model that regard reads.
    """
    if path := find_snapshot(name):
        return path
    variable = offline_variable()
    if not download or variable:
        if path := find_snapshot(name, complete=False):
            return path
        forbidden = f" and {variable} forbids downloads" if download else ""
        raise RegardError(f"{name} is not on this machine{forbidden}: run `{name.pull_command}` with a network")
    try:
        return _fetch(name, force=False, progress=progress, check_type=check_type)
    except NoAnswerError:
        if path := find_snapshot(name, complete=False):
            return path
        raise


def pull_hub_model(
    name: HubName, *, force: bool, progress: Progress | None = None, check_type: TypeCheck | None = None
) -> Path:
    """Return a model of the hub as it is there now: files that are missing or have changed are downloaded.

    With `force` all are. Offline, or where the hub does not answer, it is what the cache has.
    """
    if not force and offline_variable():
        return find_hub_model(name)
    try:
        return _fetch(name, force=force, progress=progress, check_type=check_type)
    except NoAnswerError as error:
        if force or (path := find_snapshot(name)) is None:
            raise
        if sys.stderr is not None:
            print(f"{name} may not be the newest: {'; '.join(error.__notes__)}", file=sys.stderr)
        return path


def _fetch(name: HubName, *, force: bool, progress: Progress | None, check_type: TypeCheck | None) -> Path:
    """Download what is missing into the cache, and return the model there."""
    if variable := offline_variable():
        raise RegardError(f"{name} cannot be fetched, as {variable} forbids downloads: unset it")
    if not importable("huggingface_hub"):
        raise RegardError(f"{name} is fetched by huggingface_hub, which is not installed: pip install 'regard[hub]'")
    command = [sys.executable, "-P", "-m", "regard.models.hub.fetch_snapshot"]
    with signals_unwind(), TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as work:
        arguments = [work, name.repository, name.quantization or "", name.revision, "force" * force]
        with ExitStack() as stack:
            report = _Report(name, Path(work), stack, progress, check_type)
            try:
                _, output = run([*command, *arguments], Path(work), report, cleans_up=True)
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
    """Checks the type of the model that a child fetches, and shows its progress, once it has written its plan."""

    def __init__(
        self,
        name: HubName,
        work: Path,
        stack: ExitStack,
        progress: Progress | None,
        check_type: TypeCheck | None,
    ) -> None:
        self._name, self._plan, self._stack, self._progress = name, work / "plan.json", stack, progress
        self._check_type = check_type
        self._blobs = storage_folder(name.repository) / "blobs"
        self._before = bytes_in(self._blobs)
        self._show: Progress | None = None
        self._total = 0

    def __call__(self) -> None:
        """Show how much there is."""
        if self._show is None:
            self._start()
        if self._show is not None:
            self._show(min(max(bytes_in(self._blobs) - self._before, 0), self._total), self._total)

    def end(self) -> None:
        """Show that it ended, which may have been before the first report."""
        if self._show is None:
            self._start()
        if self._show is not None:
            self._show(self._total, self._total)

    def _start(self) -> None:
        plan = read_json_object(self._plan)
        if plan is None or not plan["files"]:
            return
        if self._check_type is not None and plan["model_type"] is not None:
            self._check_type(str(self._name), plan["model_type"])
        self._total = plan["size"]
        files = f"{plan['files']} file{'s' * (plan['files'] != 1)}"
        title = (
            f"downloading {self._name} ({files}, {self._total // 1_000_000} MB) from {plan['endpoint']} "
            f"to {self._blobs.parent}"
        )
        self._show = self._stack.enter_context(progress_bar(title, self._progress))
