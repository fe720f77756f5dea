"""The name of a model of the Hugging Face hub, as it is typed: ``org/name`` or ``org/name:Q4_K_M``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from regard._utils.errors import RegardError
from regard._utils.validation import truncate

DEFAULT_REVISION = "main"
_FORM = re.compile(r"([^/:]+/[^/:]+)(?::(.*))?", re.DOTALL)
_ADDRESS = re.compile(r"(?:https?://)?(?:huggingface\.co|hf\.co)/([^/]+/[^/?#]+)")
# First parts of other addresses of the hub.
_NO_OWNERS = ("api", "blog", "collections", "datasets", "docs", "organizations", "papers", "spaces")
_QUANTIZATION = re.compile(r"[\w.-]+", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_MAX_LENGTH = 96  # characters of either part of a repository's name, as the hub has it
_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin")  # of paths; the names of repositories end otherwise


@dataclass(frozen=True)
class HubName:
    """A repository of the hub, one of its revisions, and which of its GGUF files."""

    repository: str  # org/name
    quantization: str | None = None  # of a GGUF file, or its path; None for safetensors, or for the only GGUF file
    revision: str = DEFAULT_REVISION  # a branch, a tag or a commit

    def __str__(self) -> str:
        """Return the name as it is typed."""
        return self.repository if self.quantization is None else f"{self.repository}:{self.quantization}"

    @property
    def pull_command(self) -> str:
        """The command that downloads it."""
        revision = f" --revision {shlex.quote(self.revision)}" if self.revision != DEFAULT_REVISION else ""
        return f"regard pull {shlex.quote(str(self))}{revision}"


def parse_hub_name(text: str, revision: str | None = None) -> HubName | None:
    """Return the name that `text` is; None for what can only be another name, or a path.

    An error if the revision cannot be one.
    """
    match = _FORM.fullmatch(text)
    if not match or match[1].lower().endswith(_SUFFIXES) or _fault(match[1]):
        return None
    repository, quantization = match[1], match[2]
    if quantization is not None and not (_QUANTIZATION.fullmatch(quantization) or _is_gguf_path(quantization)):
        return None
    if revision is None:
        return HubName(repository, quantization)
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise RegardError(f"{truncate(revision)} is not a revision: give a branch, a tag or a commit of {repository}")
    return HubName(repository, quantization, revision)


def why_not_a_hub_name(text: str) -> str | None:
    """Return why a text of the form org/name is not the name of a model of the hub; None if it has another form.

    An address of a model's page counts as one.
    """
    address = _ADDRESS.match(text)
    if address and address[1].partition("/")[0] in _NO_OWNERS:
        return "the address is not that of a model"
    if address and parse_hub_name(address[1]):
        return f"give {address[1]}, without the address"
    match = _FORM.fullmatch(text)
    if not match or text.startswith((".", "~")) or match[1].lower().endswith(_SUFFIXES):
        return None
    if "@" in match[1]:
        return "a revision is given apart, by --revision of `regard pull` or revision= of regard.load"
    if fault := _fault(match[1]):
        return fault
    if match[2] is not None and parse_hub_name(text) is None:
        return "what stands after the colon is the quantisation of a GGUF file, such as Q4_K_M, or its path"
    return None


def _fault(repository: str) -> str | None:
    """Return what the hub does not allow in the name of a repository, as `validate_repo_id` of its library has it."""
    parts = repository.split("/")
    if not re.fullmatch(r"[\w./-]+", repository, re.ASCII):
        return "such a name has letters of ASCII, digits, -, _ and . alone"
    if any(part[0] in "-." or part[-1] in "-." for part in parts):
        return "neither part of such a name begins or ends with - or ."
    if "--" in repository or ".." in repository:
        return "such a name has neither -- nor .."
    if repository.endswith(".git"):
        return "such a name does not end with .git"
    if any(len(part) > _MAX_LENGTH for part in parts):
        return f"each part of such a name has at most {_MAX_LENGTH} characters"
    return None


def _is_gguf_path(text: str) -> bool:
    """Tell whether a text is the path of a GGUF file inside a repository."""
    return text.lower().endswith(".gguf") and text.isprintable() and not {"", ".", ".."} & set(text.split("/"))
