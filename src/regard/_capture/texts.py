"""The tokens of what a model is called with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from regard._capture.notes import Notes
from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.text.encoding_from_ids import encode_tokens


@contextmanager
def texts_of(model: Any, tokenizer: Any, notes: Notes) -> Iterator[None]:
    """Note the model's name and, where there is a tokenizer, the tokens of the ids that it is called with."""
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__

    def note(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        notes.run()
        ids = options.get("input_ids", args[0] if args else None)
        encodings: tuple[Encoding, ...] = ()
        if tokenizer is not None:
            encodings = _encodings(ids, options.get("attention_mask"), tokenizer)
        notes.trace.set_metadata(name, encodings)

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _encodings(ids: Any, mask: Any, tokenizer: Any) -> tuple[Encoding, ...]:
    """Return the rows of ids as encodings, without the padding behind them."""
    rows = np.asarray(ids.detach().cpu()) if hasattr(ids, "detach") else None
    if rows is None or rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise RegardError("capture was given a tokenizer, but the model was called without input_ids of shape B T")
    lengths = [rows.shape[1]] * len(rows)
    if mask is not None and mask.ndim == 2:
        allowed = np.asarray(mask.detach().cpu()) > 0
        lengths = [int(np.flatnonzero(row).max(initial=-1)) + 1 for row in allowed]
    return tuple(_encoding(row[:length].tolist(), tokenizer) for row, length in zip(rows, lengths, strict=True))


def _encoding(ids: Sequence[int], tokenizer: Any) -> Encoding:
    if hasattr(tokenizer, "from_ids"):
        encoding: Encoding = tokenizer.from_ids(ids)
        return encoding
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise RegardError(f"a tokenizer is one of transformers or of regard, got {type(tokenizer).__name__}")
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    special = set(tokenizer.all_special_ids)
    return encode_tokens(ids, tokens, [i in special for i in ids])
