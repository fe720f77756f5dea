"""The bytes that tokens of byte-level (GPT-2, Llama 3) and SentencePiece (Llama 2, Gemma) vocabularies spell.

They make the text of ids that come without one, its words, and the labels of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from regard.text.combining_marks import continues_by_mark
from regard.text.encoding import Encoding
from regard.text.encoding_from_ids import encode_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_WORD = "</w>"  # in the vocabulary of CLIP
SPACE = "\u2581"  # how SentencePiece spells a space

# The byte of each letter: printable bytes are themselves, the others are the letters from U+0100 on.
# Source: ``bytes_to_unicode`` of GPT-2 (Radford et al. 2019).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + n): byte for n, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}
LETTERS = "".join(sorted(_BYTES, key=lambda letter: _BYTES[letter]))
"""The letter of each byte."""
_BYTE = re.compile("<0x([0-9A-F]{2})>")  # of a character that a SentencePiece vocabulary lacks


def is_byte_level(backend: Tokenizer) -> bool:
    """Return whether the tokens of a tokenizer spell bytes."""
    return backend.decoder is not None and b'"ByteLevel"' in backend.decoder.__getstate__()


def is_sentencepiece(backend: Tokenizer) -> bool:
    """Return whether the tokens of a tokenizer spell spaces as SentencePiece does."""
    decoder = b"" if backend.decoder is None else backend.decoder.__getstate__()
    return b'"Metaspace"' in decoder or SPACE.encode() in decoder


def spelling(backend: Tokenizer | None) -> Callable[[str], bytes] | None:
    """Return what gives the bytes of a token of a tokenizer; None if its vocabulary says nothing of spaces."""
    if backend is None:
        return None
    return _spelled if is_byte_level(backend) else piece_bytes if is_sentencepiece(backend) else None


def token_bytes(token: str) -> bytes | None:
    """Return the bytes that a token of a byte-level vocabulary spells; None if it is not spelled so."""
    return bytes(_BYTES[letter] for letter in token) if all(letter in _BYTES for letter in token) else None


def is_byte(token: str) -> bool:
    """Return whether a token of a SentencePiece vocabulary spells one byte."""
    return _BYTE.fullmatch(token) is not None


def piece_bytes(token: str) -> bytes:
    """Return the bytes that a token of a SentencePiece vocabulary spells."""
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode("utf-8", "surrogatepass")


def encode_ids(
    ids: Sequence[int], tokens: Sequence[str], special_tokens_mask: Sequence[bool], backend: Tokenizer | None
) -> Encoding:
    """Return the encoding of tokens without a text: `encode_spelled` if they spell one, else `encode_tokens`."""
    spell = spelling(backend)
    if backend is None or spell is None:
        return encode_tokens(ids, tokens, special_tokens_mask)
    strips = spell is piece_bytes and backend.decoder.decode([f"{SPACE}a"]) == "a"
    return encode_spelled(ids, tokens, special_tokens_mask, spell, strips_space=strips)


def encode_spelled(
    ids: Sequence[int],
    tokens: Sequence[str],
    special_tokens_mask: Sequence[bool],
    spell: Callable[[str], bytes],
    *,
    strips_space: bool = False,
) -> Encoding:
    """Return the encoding of tokens, whose text is that of their bytes; special tokens have none.

    Tokens that share a character all have its offsets, as when a tokenizer splits it; a byte that belongs to no
    character is U+FFFD. Words are those of `find_words`.

    Parameters
    ----------
    ids, tokens, special_tokens_mask
        One entry for each token.
    spell
        What gives the bytes of a token; see `spelling`.
    strips_space
        Whether the space before the first word is none of the text, since the tokenizer puts it there.
    """
    pieces = [None if special else spell(t) for t, special in zip(tokens, special_tokens_mask, strict=True)]
    first = next((i for i, piece in enumerate(pieces) if piece is not None), None)
    if strips_space and first is not None:
        pieces[first] = (pieces[first] or b"").removeprefix(b" ")
    ends = list(accumulate(len(piece or b"") for piece in pieces))
    letters = b"".join(filter(None, pieces)).decode("utf-8", "surrogateescape")  # a surrogate is a byte of no character
    text = "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= letter <= "\udfff" else letter for letter in letters)
    place = [n for n, letter in enumerate(letters) for _ in letter.encode("utf-8", "surrogateescape")]
    offsets: list[tuple[int, int]] = []
    for token, piece, end in zip(tokens, pieces, ends, strict=True):
        if not piece:
            at = 0 if piece is None or not end else place[end - 1] + 1
            offsets.append((at, at))
        else:
            offsets.append((place[end - len(piece)], place[end - 1] + (not token.endswith(END_OF_WORD))))
    words = find_words(text, offsets, special_tokens_mask)
    return Encoding(text, tuple(ids), tuple(tokens), tuple(special_tokens_mask), words, tuple(offsets))


def find_words(
    text: str, offsets: Sequence[tuple[int, int]], special_tokens_mask: Sequence[bool | int]
) -> tuple[int | None, ...]:
    """Return the words of tokens by the text alone: one ends at a special token and where `continues_word` says so.

    A token without a character, as a space that the text does not have, is of the word that begins there.
    """
    word_ids: list[int | None] = []
    word, previous, is_empty = -1, -1, False  # where the token before ends, -1 after a special one
    for (start, stop), special in zip(offsets, special_tokens_mask, strict=True):
        if special:
            word_ids.append(None)
            previous = -1
            continue
        word += not (start < previous or (start == previous and (is_empty or continues_word(text, start))))
        word_ids.append(word)
        previous, is_empty = stop, start == stop
    return tuple(word_ids)


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
