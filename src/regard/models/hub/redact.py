"""What a library or another program said, fit to be shown: without secrets, on one line."""

from __future__ import annotations

import re


def redact(text: str) -> str:
    """Return `text` on one line, printable, without tokens, passwords in addresses, and signatures after them.

    To be shortened only afterwards: a part of a token is not recognised.
    """
    text = re.sub(r"Bearer\s.*", "Bearer ***", text, flags=re.IGNORECASE)  # a token may have any character
    text = re.sub(r"hf_(?!hub_)\w+", "***", text)  # hf_hub_download is a function
    return _joined(redact_addresses(text))


def redact_addresses(text: str) -> str:
    """Return `text` without the passwords and signatures of addresses."""
    text = re.sub(r"//[^/\s]*@", "//", text)
    return re.sub(r"(https?://[^\s?]+)\?\S*", r"\1", text)


def _joined(text: str) -> str:
    """Return `text` with a space for each run of white space and of characters that are not printable."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
