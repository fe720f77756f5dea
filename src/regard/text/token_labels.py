"""Tokens as they are read, in place of how a vocabulary spells them."""

from __future__ import annotations

from regard.text.encoding import Encoding

_END_OF_WORD = "</w>"  # in the vocabulary of CLIP

# The byte of each letter of a byte-level vocabulary: printable bytes are themselves, the others are the letters from
# U+0100 on. Source: ``bytes_to_unicode`` of GPT-2 (Radford et al. 2019).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + n): byte for n, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}


def token_labels(encoding: Encoding) -> tuple[str, ...]:
    r"""Return a label for each token: its vocabulary spelling, decoded if it is byte-level.

    Byte-level vocabularies (GPT-2, Llama 3, SmolLM2) spell `` café`` as ``ĠcafÃ©``, and that of CLIP as ``cafÃ©</w>``.
    The bytes of an incomplete character are shown as ``\xf0``.
    """
    text = encoding.text
    return tuple(
        token if special else _decode(token, text[start:end])
        for token, special, (start, end) in zip(
            encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    )


def _decode(token: str, spanned: str) -> str:
    if token != _END_OF_WORD and not spanned.endswith(_END_OF_WORD):
        token = token.removesuffix(_END_OF_WORD)
    if token.lower() == spanned.lower() or not all(letter in _BYTES for letter in token):
        return token
    spelled = bytes(_BYTES[letter] for letter in token)
    if spelled.strip() not in spanned.encode("utf-8", "surrogatepass"):
        return token
    # The leading space belongs to the vocabulary's spelling, not to the word.
    return spelled.decode("utf-8", "backslashreplace").strip(" ") or " "
