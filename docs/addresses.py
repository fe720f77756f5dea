"""Links out of the repository, judged by their form: nothing is fetched.

This finds a mistyped number of a paper, an address cut off, a file that was moved; not a page that is gone.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parent.parent
_REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
OWN = urlsplit(_REPOSITORY).path  # /owner/name

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\{}|\]]+")
_MONTH = "(?:0[1-9]|1[0-2])"
_FORMS = {  # of what follows the host; for arXiv four digits until 2014, then five
    "arxiv.org": rf"/(?:abs|pdf)/(?:(?:0[7-9]|1[0-4]){_MONTH}\.\d{{4}}|(?:1[5-9]|[2-9]\d){_MONTH}\.\d{{5}})(?:v\d+)?",
    "doi.org": r"/10\.\d{4,9}/[^\s?#]+[^\s?#.,;]",
    "huggingface.co": r"/(?:docs/)?[\w.-]+(?:/[\w./-]+)?",
}
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")
_FILE = re.compile(
    rf"(?:/github|/v2/gh)?{OWN}/(?:(?:blob|tree|edit)/)?(?:main|HEAD|v[\d.]+(?:(?:a|b|rc)\d+)?)(?:/(.+))?"
)


def addresses(text: str) -> set[str]:
    """Return the addresses in a text, without the marks of the sentence around them."""
    found = set()
    for address in _ADDRESS.findall(text):
        address = address.rstrip(".,;:!?*")
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip(".,;:!?*")
        found.add(address)
    return found


def fault(address: str) -> str | None:
    """Say what is wrong with an address that leads out of the repository; None if nothing is."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        return "is not https"
    if not _HOST.fullmatch(parts.netloc):
        return "has no public host"
    if re.search(r"//|[^\x21-\x7e]", parts.path):
        return "has a path with // or characters that are not ASCII"
    form = _FORMS.get(parts.netloc)
    if form and not re.fullmatch(form, parts.path):
        return f"has not the form of addresses at {parts.netloc}"
    if parts.path.startswith((f"{OWN}/", f"/github{OWN}/", f"/v2/gh{OWN}/")) and (file := _FILE.fullmatch(parts.path)):
        named = [file[1] or "", *parse_qs(parts.query).get("labpath", ())]
        if absent := [name for name in named if not (ROOT / name).exists()]:
            return f"names {absent[0]}, which the repository has not"
    return None
