"""Making any token readable and inert: what a label shows is what the token is, and it can do nothing.

Tokens come from strangers' texts and files. Knows characters; nothing of terminals, figures or fonts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from rich.cells import cell_len

from regard.text.encoding import Encoding

_JOINERS = "\u200c\u200d"
_JOINABLE = {"Lo", "Mn", "Mc", "So", "Sk"}
_INVISIBLE = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MOST_MARKS = 3

# The byte that each letter of a byte-level vocabulary stands for: printable bytes for themselves, the others for
# the letters from U+0100 on. Source: ``bytes_to_unicode`` of GPT-2 (Radford et al. 2019).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + n): byte for n, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}


def escape(character: str) -> str:
    """Return the code point of a character in a form that can be read: ``⟨U+202E⟩``."""
    return f"⟨U+{ord(character):04X}⟩"


def readable(text: str, width: int | None = None, missing: Collection[str] = ()) -> str:
    """Return `text` as one line that can be read and that does nothing.

    Control characters appear as their pictures (``␛``); marks of direction, characters without width,
    lone surrogates and characters that Unicode does not define appear as code points (``⟨U+202E⟩``). Spaces
    are shown (``␣``) where there is nothing else. Letters of every script stay as they are, with the joiners that
    Persian, Indic scripts and emoji need. Marks piled on one letter are counted after the third.

    Parameters
    ----------
    text : str
    width : int, optional
        The most terminal columns that the label may take (an East Asian wide character takes two). What is
        longer loses its middle to ``…``.
    missing : collection of str
        More characters to be shown as code points: those that cannot be drawn.
    """
    clusters = _clusters(text, missing)
    if width is None or sum(map(cell_len, clusters)) <= width:
        return "".join(clusters)
    room = width - 1
    tail = _fitting(clusters[::-1], room // 2)[::-1]
    head = _fitting(clusters, room - sum(map(cell_len, tail)))
    return "".join([*head, "…", *tail])


def head_label(layer: int, head: int) -> str:
    """Return the short name of a head: ``L3H7`` is head 7 of layer 3, both from 0."""
    return f"L{layer}H{head}"


def pieces(encoding: Encoding) -> tuple[str, ...]:
    r"""Return a label for each token: its spelling in the vocabulary, with byte-level spellings decoded.

    Vocabularies of bytes (GPT-2, Llama 3, SmolLM2) spell with stand-in letters: ``ĠcafÃ©`` for `` café``.
    Such a token is shown as what it stands for; where it is only a part of a character, its bytes stay, as ``\xf0``.
    """
    text = encoding.text
    return tuple(
        token if special else _decoded(token, text[start:end])
        for token, special, (start, end) in zip(
            encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    )


def _clusters(text: str, missing: Collection[str]) -> list[str]:
    """Split into what the eye takes as one: a letter with its marks, a joined emoji, an escape."""
    blank = not text.strip()
    clusters: list[str] = []
    marks = 0
    joined = False  # whether the character before is a joiner that was kept
    for at, character in enumerate(text):
        category = unicodedata.category(character)
        is_mark = category in ("Mn", "Me") and character not in _INVISIBLE and character not in missing
        marks = marks + 1 if is_mark else 0
        if character in _JOINERS and _joins(text, at):
            clusters[-1] += character
            joined = True
            continue
        if is_mark and marks > _MOST_MARKS:
            if marks == _MOST_MARKS + 1:
                clusters.append(f"⟨+{_run_of_marks(text, at)} marks⟩")
        elif is_mark and (not clusters or clusters[-1] == " " or clusters[-1].startswith("⟨")):
            clusters.append("◌" + character)
        elif is_mark or (joined and character not in missing):
            clusters[-1] += character
        else:
            shown = _visible(character, category, blank)
            clusters.append(escape(character) if shown in missing else shown)
        joined = False
    return clusters


def _visible(character: str, category: str, blank: bool) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if character == " ":
        return "␣" if blank else " "
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or character in _INVISIBLE:
        return escape(character)
    return escape(character) if blank else character


def _joins(text: str, at: int) -> bool:
    """Tell whether the joiner at this place is spelling, as in Persian, Indic scripts and emoji."""
    neighbours = text[at - 1 : at] + text[at + 1 : at + 2]
    return len(neighbours) == 2 and all(
        unicodedata.category(c) in _JOINABLE and c not in _INVISIBLE for c in neighbours
    )


def _run_of_marks(text: str, start: int) -> int:
    end = start
    while end < len(text) and unicodedata.category(text[end]) in ("Mn", "Me"):
        end += 1
    return end - start


def _fitting(clusters: list[str], width: int) -> list[str]:
    kept: list[str] = []
    for cluster in clusters:
        width -= cell_len(cluster)
        if width < 0:
            break
        kept.append(cluster)
    return kept


def _decoded(token: str, spanned: str) -> str:
    if token.lower() == spanned.lower() or not all(letter in _BYTES for letter in token):
        return token
    spelled = bytes(_BYTES[letter] for letter in token)
    if spelled.strip() not in spanned.encode("utf-8", "surrogatepass"):
        return token
    # The space before a word belongs to the spelling of the vocabulary, not to the word.
    return spelled.decode("utf-8", "backslashreplace").strip(" ") or " "
