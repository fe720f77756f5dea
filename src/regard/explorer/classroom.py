"""What a class may look at, and what its teacher shows.

A pupil's page has the same views as the teacher's, and fewer questions: those of `LOOKS`, of the texts that the teacher
gave or ran. None of them runs a model on a text, writes, or reads a file.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard.explorer import answers
from regard.explorer.query import QUERIES, dispatch
from regard.explorer.story import lacking_texts

if TYPE_CHECKING:
    from regard.explorer.exploration import Exploration

_HEAD = ("run", "layer", "head", "mode")
LOOKS: dict[str, tuple[str, ...]] = {
    "heads": ("run",),
    "thumbnails": ("run",),
    "differences": ("runs",),
    "tile": (*_HEAD, "row0", "row1", "col0", "col1", "bin_size", "pool"),
    "row": (*_HEAD, "i"),
    "column": (*_HEAD, "j"),
    "cell": (*_HEAD, "i", "j"),
    "movement": ("runs",),
    "next_tokens": ("run", "position", "temperature"),
    "lens": ("run", "position"),
}
"""The queries of a pupil's page that are answered once and kept, with the parameters that it may give."""
MAX_TOKENS = 512  # of a shared text: a map has 1 MB
MAX_ADDRESS = 16_384  # characters
_MAX_SHOWN = 4  # texts that the teacher ran, the last of which stay
_ALPHABET = "ACDEFGHJKMNPQRTUVWXY34679"  # none looks like another
_CODE_LENGTH = 6  # 244 million codes
_TEMPERATURES = frozenset(round(n / 10, 1) for n in range(1, 21))  # of the slider


def new_code() -> str:
    """Return a random code that can be read aloud and typed."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))


def code_of(text: str) -> str | None:
    """Return a code as it is written, with any case, or None for what has not the form of one."""
    code = text.upper()
    return code if len(code) == _CODE_LENGTH and set(code) <= set(_ALPHABET) else None


class Classroom:
    """An exploration as a class sees it; safe to use from several threads.

    Parameters
    ----------
    exploration : Exploration
    address : str
        Of the page for the class, without the code.

    Raises
    ------
    RegardError
        The exploration is of a training run or of a map on disk, or a text is too long.
    """

    def __init__(self, exploration: Exploration, address: str) -> None:
        if not exploration.can_be_shared:
            raise RegardError("--share is for texts and saved runs: leave it out for a training run or a map on disk")
        for number in exploration.numbers:
            length = exploration.run(number).length
            if length > MAX_TOKENS:
                raise RegardError(f"--share is for texts of at most {MAX_TOKENS} tokens, this one has {length}")
        self._exploration = exploration
        self.code, self.address = new_code(), address
        models = {exploration.run(number).trace.model for number in exploration.numbers}
        self._folders = {model: Path(model).resolve().name for model in models if model and Path(model).exists()}
        self._shown: answers.TeacherView = {"version": 1, "address": "", "run": None}
        self._runs: deque[int] = deque(maxlen=_MAX_SHOWN)
        self._lock = threading.Lock()

    def page(self) -> answers.ClassPage:
        """Return what the teacher's page tells the class."""
        qr = _qr_rows(f"{self.address}{self.code}/")
        return {"role": "teacher", "address": self.address, "code": self.code, "qr": qr}

    def manifest(self) -> answers.Manifest:
        """Return what a pupil's page loads first: that of the teacher, without what it cannot ask for."""
        manifest = self._exploration.manifest()
        stories = [story for story in manifest["stories"] if not _lacks(story, manifest)]
        return {
            **manifest,
            "title": self.without_folders(manifest["title"]),
            "runs": [self._described(run) for run in manifest["runs"]],
            "can": {"ablate": False, "tiles": True, "figures": False},
            "live_models": [],
            "pairs": [],
            "stories": stories,
            "story": manifest["story"] if manifest["story"] in [story["key"] for story in stories] else None,
            "metrics": [metric for metric in manifest["metrics"] if not metric.get("live")],
            "attribution_methods": [],
            "classroom": {"role": "pupil", "address": "", "code": "", "qr": []},
        }

    def lacking(self) -> str:
        """Return which stories of the teacher's page the class does not have, and why; empty if it has the one told."""
        manifest = self._exploration.manifest()
        lacking = {story["key"]: story for story in manifest["stories"] if _lacks(story, manifest)}
        if manifest["story"] is None and lacking:
            names = ", ".join(lacking)
            return f"A class runs no text, so stories of other texts are on your page alone (--story NAME): {names}."
        if (told := lacking.get(manifest["story"] or "")) is None:
            return ""
        texts = ", ".join(repr(text[:60]) for text in _lacks(told, manifest))
        reason = f"a class runs no text, and these are not on the page, which has two at most: {texts}"
        return f"The class does not have the story {told['title']}: {reason}."

    def publish(self, address: str, run: int | None) -> None:
        """Show the class a view, and the text of a run if it is not a given one; see `Exploration.publish`."""
        if len(address) > MAX_ADDRESS:
            raise RegardError(f"an address has at most {MAX_ADDRESS:,} characters")
        described: answers.TeacherRun | None = None
        if run is not None and run not in self._exploration.numbers:
            if self._exploration.run(run).length > MAX_TOKENS:
                raise RegardError(f"the class sees texts of at most {MAX_TOKENS} tokens")
            described = {"number": run, "metadata": self._described(self._exploration.describe(run))}
        with self._lock:
            if described is not None and run not in self._runs:
                self._runs.append(described["number"])
            self._shown = {"version": self._shown["version"] + 1, "address": address, "run": described}

    def follow(self, known: int) -> answers.TeacherView | None:
        """Return what the teacher shows; None if it is the version that is known."""
        shown = self._shown
        return None if shown["version"] == known else shown

    def check(self, name: str, params: Mapping[str, Any]) -> None:
        """Raise `RegardError` if a pupil's page may not ask this."""
        if name not in LOOKS:
            raise RegardError("the page of a class only looks: the teacher's page has this")
        if refused := sorted(set(params) - set(LOOKS[name])):
            raise RegardError(f"for a class {name} takes {', '.join(LOOKS[name])}; not {', '.join(refused)}")
        QUERIES[name].check(params)
        for run in params["runs"] if "runs" in params else [params["run"]]:
            if not self._shows(run):
                raise RegardError(f"the class sees no run {run}")
        if len(params.get("runs", [])) > 2:
            raise RegardError("the class compares two runs")
        if params.get("temperature", 1.0) not in _TEMPERATURES:
            raise RegardError("the class chooses a temperature from 0.1 to 2, in steps of 0.1")

    def dispatch(self, name: str, params: Mapping[str, Any]) -> Any:
        """Return the answer to a question that `check` allows."""
        return dispatch(self._exploration, name, params)

    def without_folders(self, text: str) -> str:
        """Return what a pupil reads: a model in a folder of the teacher's machine by its last name."""
        for folder, name in self._folders.items():
            text = text.replace(folder, name)
        return text

    def _described(self, run: answers.RunDescription) -> answers.RunDescription:
        return {**run, "title": self.without_folders(run["title"]), "model": self.without_folders(run["model"])}

    def _shows(self, run: int) -> bool:
        if run in self._exploration.numbers:
            return True
        return run in self._runs and self._exploration.store.holds(run)  # else it would be run again


def _lacks(story: answers.Story, manifest: answers.Manifest) -> list[str]:
    """Return the texts of a story that are not on a page."""
    return lacking_texts(story, [(run["text"], run["model"]) for run in manifest["runs"]])


def _qr_rows(address: str) -> list[str]:
    """Return the modules of the QR code of an address, of which the case does not matter; without the margin."""
    import segno  # on use: no other page needs it

    code = segno.make(address.upper(), micro=False, error="m", boost_error=False)  # capitals need fewer modules
    return ["".join("01"[module] for module in row) for row in code.matrix]
