"""The ids of a model that has no tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.text.library import build
from regard.text.subword_tokenizer import SubwordTokenizer


@dataclass(frozen=True, eq=False)
class IdTokenizer(SubwordTokenizer):
    """The tokens of a model without a tokenizer, each spelled as its id: ``⟨17⟩``. A text is an error.

    Parameters
    ----------
    reason : str
        Why there is no tokenizer.
    """

    reason: str = field(default="", kw_only=True)

    @classmethod
    def of_size(cls, vocab_size: int, reason: str) -> IdTokenizer:
        """Return the tokenizer of the ids from 0 to `vocab_size` − 1."""
        model = {"type": "WordLevel", "vocab": {f"⟨{i}⟩": i for i in range(vocab_size)}, "unk_token": "⟨0⟩"}
        return cls(build(model), reason=reason)

    def __call__(self, text: str) -> Encoding:
        """Return the encoding of no tokens, of the empty text; raise `RegardError` for another."""
        if text == "":
            return self.from_ids(())
        raise RegardError(f"{self.reason}; without one give ids, such as model([5, 3, 8])")
