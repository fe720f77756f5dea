"""The bytes that tokens of byte-level vocabularies (GPT-2, Llama 3, CLIP) spell, and the text that they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from regard.text.combining_marks import continues_by_mark
from regard.text.encoding import Encoding

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_WORD = "</w>"  # in the vocabulary of CLIP

# The byte of each letter: printable bytes are themselves, the others are the letters from U+0100 on.
# Source: ``bytes_to_unicode`` of GPT-2 (Radford et al. 2019).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + n): byte for n, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}


def is_byte_level(backend: Tokenizer) -> bool:
    """Return whether the tokens of a tokenizer spell bytes."""
    decoder = backend.decoder
    return decoder is not None and b'"ByteLevel"' in decoder.__getstate__()


def token_bytes(token: str) -> bytes | None:
    """Return the bytes that a token of a byte-level vocabulary spells; None if it is not spelled so."""
    return bytes(_BYTES[letter] for letter in token) if all(letter in _BYTES for letter in token) else None


def encode_byte_tokens(ids: Sequence[int], tokens: Sequence[str], special_tokens_mask: Sequence[bool]) -> Encoding:
    """Return the encoding of byte-level tokens, whose text is that of their bytes; special tokens have none.

    Tokens that share a character all have its offsets, as when a tokenizer splits it; a byte that belongs to no
    character is U+FFFD. A word ends at a special token and where `continues_word` says so.
    """
    pieces = [b"" if special else _spelled(t) for t, special in zip(tokens, special_tokens_mask, strict=True)]
    letters = b"".join(pieces).decode("utf-8", "surrogateescape")  # a byte that belongs to no character is a surrogate
    text = "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= letter <= "\udfff" else letter for letter in letters)
    place = [n for n, letter in enumerate(letters) for _ in letter.encode("utf-8", "surrogateescape")]
    offsets: list[tuple[int, int]] = []
    word_ids: list[int | None] = []
    word, previous = -1, -1  # where the token before ends, -1 after a special token
    ends = list(accumulate(map(len, pieces)))
    for token, piece, end in zip(tokens, pieces, ends, strict=True):
        if not piece:
            offsets.append((0, 0))
            word_ids.append(None)
            previous = -1
            continue
        start, stop = place[end - len(piece)], place[end - 1] + (not token.endswith(END_OF_WORD))
        word += not (start < previous or (start == previous and continues_word(text, start)))
        offsets.append((start, stop))
        word_ids.append(word)
        previous = stop
    return Encoding(text, tuple(ids), tuple(tokens), tuple(special_tokens_mask), tuple(word_ids), tuple(offsets))


def continues_word(text: str, at: int) -> bool:
    """Tell whether `text[at]` continues the word before it: letters or digits meet, a space precedes, or by a mark."""
    before, first = text[at - 1 : at], text[at : at + 1]
    letters_meet = before.isalnum() and first.isalnum()
    return letters_meet or (before.isspace() and not first.isspace()) or continues_by_mark(text, at)


def _spelled(token: str) -> bytes:
    spelled = token_bytes(token.removesuffix(END_OF_WORD))
    if spelled is None:  # an added token, which is spelled as it is
        return token.encode("utf-8", "surrogatepass")
    return spelled + b" " * token.endswith(END_OF_WORD)
