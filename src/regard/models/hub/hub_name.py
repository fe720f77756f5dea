"""The name of a model of the Hugging Face hub, as it is typed: ``org/name`` or ``org/name:Q4_K_M``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regard._utils.errors import RegardError

DEFAULT_REVISION = "main"
_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?::([\w.-]+))?", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_MAX_LENGTH = 96  # characters of a repository's name, as the hub has it
_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin")  # of paths; the names of repositories end otherwise


@dataclass(frozen=True)
class HubName:
    """A repository of the hub, one of its revisions, and which of its GGUF files."""

    repository: str  # org/name
    quantization: str | None = None  # of a GGUF file; None for safetensors, or for the only GGUF file
    revision: str = DEFAULT_REVISION  # a branch, a tag or a commit

    def __str__(self) -> str:
        """Return the name as it is typed."""
        return self.repository if self.quantization is None else f"{self.repository}:{self.quantization}"

    @property
    def pull_command(self) -> str:
        """The command that downloads it."""
        return f"regard pull {self}" + f" --revision {self.revision}" * (self.revision != DEFAULT_REVISION)


def parse_hub_name(text: str, revision: str | None = None) -> HubName | None:
    """Return the name that `text` is; None for what can only be another name, or a path.

    An error if the revision cannot be one.
    """
    match = _NAME.fullmatch(text)
    repository = match[1] if match else ""
    if not match or len(repository) > _MAX_LENGTH or "--" in repository or ".." in repository:
        return None
    if repository.lower().endswith(_SUFFIXES):
        return None
    if revision is None:
        return HubName(repository, match[2])
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise RegardError(f"{ascii(revision)[:80]} is not a revision: give a branch, a tag or a commit of {repository}")
    return HubName(repository, match[2], revision)
