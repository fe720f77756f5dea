"""Incremental detokenization: text from tokens as they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from regard.text import Encoding, SubwordTokenizer
from regard.text.token_bytes import continues_word

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what the first bytes of a character decode to


class StreamingDetokenizer:
    """Incremental detokenizer; emits a character once all its bytes have arrived.

    Tokens are decoded together with those of the piece before them, because a tokenizer may treat the first token of a
    text differently. Before the first piece that is the whole prompt, whose last tokens may be a part of a character.
    """

    def __init__(self, tokenizer: SubwordTokenizer, prompt_ids: Sequence[int]) -> None:
        self._decode = partial(tokenizer.decode, clean_up_spaces=False)
        self._special = tokenizer.special_ids
        self._ids = [token for token in prompt_ids if token not in self._special]
        self._num_emitted = len(self._ids)

    def add(self, token: int) -> str:
        """Return the text that `token` completes."""
        if token in self._special:
            return ""
        self._ids.append(token)
        piece = self.flush()
        if not piece or piece.endswith(_INCOMPLETE):
            return ""
        self._ids = self._ids[self._num_emitted :]
        self._num_emitted = len(self._ids)
        return piece

    def flush(self) -> str:
        """Return the text of the tokens that were not emitted, complete or not."""
        emitted, text = self._decode(self._ids[: self._num_emitted]), self._decode(self._ids)
        if not text.startswith(emitted) and not emitted.endswith(_INCOMPLETE):
            return self._decode(self._ids[self._num_emitted :])  # invalid bytes corrupt the character before them
        while not text.startswith(emitted):  # the prompt ends inside a character, which these tokens complete
            emitted = emitted[:-1]
        return text[len(emitted) :]


def append_tokens(prompt: Encoding, ids: Sequence[int], tokenizer: SubwordTokenizer) -> Encoding:
    """Return a prompt and the tokens after it as one encoding.

    Tokens that share a character all have its offsets, as when a tokenizer splits it.
    """
    if not ids:
        return prompt
    added, detokenizer = tokenizer.from_ids(ids), StreamingDetokenizer(tokenizer, prompt.ids)
    pieces = [detokenizer.add(token) for token in ids]
    pieces[-1] += detokenizer.flush()
    text, offsets, word_ids = prompt.text, list(prompt.offsets), list(prompt.word_ids)
    word = max((word for word in word_ids if word is not None), default=-1)
    parts = 0  # tokens so far of an incomplete character
    for piece, special in [*zip(pieces, added.special_tokens_mask, strict=True), ("", True)]:
        parts += not special
        if parts and (piece or special):
            word += word_ids[-1:] == [None] or not continues_word(text + piece, len(text))
            offsets += [(len(text), len(text) + len(piece))] * parts
            word_ids += [word] * parts
            text, parts = text + piece, 0
        if special:
            offsets.append((0, 0))
            word_ids.append(None)
    return Encoding(
        text,
        (*prompt.ids, *added.ids),
        (*prompt.tokens, *added.tokens),
        (*prompt.special_tokens_mask, *added.special_tokens_mask),
        tuple(word_ids[:-1]),  # without the sentinel
        tuple(offsets[:-1]),
    )
