"""The token ids in generation_config.json; those of config.json count where the file is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
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
    """Return an encoder-decoder's configuration, with the start token of generation_config.json if that names one."""
    reader = checkpoint.config()
    if (start := _start_id(_generation_config(checkpoint) or {})) is not None:
        reader.put("decoder_start_token_id", start)
    return reader


def has_start_id(checkpoint: Checkpoint) -> bool:
    """Return whether an encoder-decoder has a start token to generate from: a generation_config.json must name it."""
    settings = _generation_config(checkpoint)
    return settings is None or _start_id(settings) is not None


def _start_id(settings: dict[str, Any]) -> Any:
    """Return the start token that generation settings name, also in a list of one; None if they name none."""
    start = settings.get("decoder_start_token_id")
    start = settings.get("bos_token_id") if start is None else start
    return start[0] if isinstance(start, list) and len(start) == 1 else start


def _ids(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    settings = _generation_config(checkpoint)
    value = _of_config(checkpoint.config(), name) if settings is None else settings.get(name)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(i) is int and i >= 0 for i in ids):
        raise RegardError(f"{name} of {checkpoint.path} must be an id or a list of ids, got {truncate(value)}")
    return tuple(ids)


def _of_config(reader: ConfigReader, name: str) -> Any:
    """Return a field of a configuration, or else of the part that reads texts."""
    value, part = reader.peek(name), reader.peek("text_config")
    return part.get(name) if value is None and isinstance(part, dict) else value


def _generation_config(checkpoint: Checkpoint) -> dict[str, Any] | None:
    return read_json_object(checkpoint.path / "generation_config.json")
