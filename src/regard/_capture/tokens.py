"""The tokens of a model's input_ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from regard._capture.session import CaptureSession
from regard._utils.errors import RegardError
from regard.text.encoding import Encoding
from regard.text.token_bytes import encode_ids
from regard.trace.text_layout import TextLayout

_CACHE_NAMES = ("cache", "past_key_values")  # of transformers since 5.24, and before


@contextmanager
def recorded_tokens(model: Any, tokenizer: Any, session: CaptureSession) -> Iterator[None]:
    """Record the model's name and, with a tokenizer, the tokens of its ``input_ids`` at each run."""
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
    has_one_text = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    prompts: list[np.ndarray] = []  # of a text that is generated, their lengths

    def before_forward(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if not session.is_recording():
            session.pass_by()
            return
        session.start_run()
        ids = options.get("input_ids", args[0] if args else None)
        encodings: tuple[Encoding, ...] = ()
        if tokenizer is not None:
            encodings = _encodings(ids, options.get("attention_mask"), tokenizer)
        session.trace.set_metadata(name, encodings)
        if has_one_text and (layout := _layout(ids, options, prompts)) is not None:
            session.trace.set_layout(layout)

    def after_forward(*_: Any) -> None:
        if session.is_recording():
            session.end_run()

    handles = (
        model.register_forward_pre_hook(before_forward, with_kwargs=True),
        model.register_forward_hook(after_forward, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layout(ids: Any, options: dict[str, Any], prompts: list[np.ndarray]) -> TextLayout | None:
    """Return where the texts of a call stand; None where it does not say it. `prompts` keeps the first call's."""
    inputs: Any = options.get("inputs_embeds") if ids is None else ids
    mask = options.get("attention_mask")
    cache = next((options[name] for name in _CACHE_NAMES if options.get(name) is not None), None)
    if getattr(inputs, "ndim", 0) < 2 or (mask is not None and mask.ndim != 2):
        return None
    batch, length = inputs.shape[:2]
    before = 0 if cache is None or not hasattr(cache, "get_seq_length") else int(cache.get_seq_length())
    is_token = None if mask is None else np.asarray(mask.detach().cpu()) > 0
    if is_token is not None and is_token.shape != (batch, before + length):
        return None
    layout = TextLayout.from_shape((batch, before + length), is_token)
    if before == 0 or not prompts or len(prompts[0]) != batch:
        prompts[:] = [layout.lengths]
    return TextLayout(layout.starts - before, prompts[0], layout.rows, grows=cache is not None)


def _encodings(ids: Any, mask: Any, tokenizer: Any) -> tuple[Encoding, ...]:
    """Return the rows of ids as encodings, without trailing padding."""
    rows = np.asarray(ids.detach().cpu()) if hasattr(ids, "detach") else None
    if rows is None or rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise RegardError("capture has a tokenizer, but the model was called without input_ids of shape B T")
    lengths = [rows.shape[1]] * len(rows)
    if mask is not None and mask.ndim == 2:
        is_token = np.asarray(mask.detach().cpu()) > 0
        lengths = [int(np.flatnonzero(row).max(initial=-1)) + 1 for row in is_token]
    return tuple(_encoding(row[:length].tolist(), tokenizer) for row, length in zip(rows, lengths, strict=True))


def _encoding(ids: Sequence[int], tokenizer: Any) -> Encoding:
    if hasattr(tokenizer, "from_ids"):
        encoding: Encoding = tokenizer.from_ids(ids)
        return encoding
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise RegardError(f"tokenizer must be one of transformers or of regard, got {type(tokenizer).__name__}")
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    special = set(tokenizer.all_special_ids)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return encode_ids(ids, tokens, [i in special for i in ids], backend)
