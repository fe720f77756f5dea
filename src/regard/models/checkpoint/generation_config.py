"""The token ids in generation_config.json, or in config.json where it has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard.models.checkpoint.config import ConfigReader
from regard.models.generation.options import ForcedTokens

if TYPE_CHECKING:
    from regard.models.checkpoint.open import Checkpoint


def end_ids(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the end-of-sequence tokens; an error if they are not ids."""
    return _ids(checkpoint, "eos_token_id")


def forced_ids(checkpoint: Checkpoint) -> ForcedTokens:
    """Return the forced tokens, of several the smallest id; an error if they are not ids."""
    bos, eos = (_ids(checkpoint, f"forced_{name}_token_id") for name in ("bos", "eos"))
    return ForcedTokens(min(bos, default=None), min(eos, default=None))


def config_with_start_id(checkpoint: Checkpoint) -> ConfigReader:
    """Return an encoder-decoder's configuration, with ``decoder_start_token_id`` of generation_config.json if there."""
    reader = checkpoint.config()
    if (start := _generation_config(checkpoint).get("decoder_start_token_id")) is not None:
        reader.put("decoder_start_token_id", start)
    return reader


def _ids(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    found = _generation_config(checkpoint).get(name)
    if found is None:
        found = checkpoint.config().peek(name)
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if not all(type(i) is int and i >= 0 for i in ids):
        raise RegardError(f"{name} of {checkpoint.path} must be an id or a list of ids, got {found!r}")
    return tuple(ids)


def _generation_config(checkpoint: Checkpoint) -> dict[str, Any]:
    return read_json_object(checkpoint.path / "generation_config.json") or {}
