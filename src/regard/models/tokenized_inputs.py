"""Model inputs as a tokenizer of transformers returns them: a mapping with ids and an attention mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard._utils.errors import RegardError

_FIELDS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True, eq=False)
class TokenizedInputs:
    """Ids, and where there is text.

    Parameters
    ----------
    rows : list of integer arrays, each ``T``
        Lists without padding may differ in length.
    texts : list of slice
        Where the tokens of each text are in its row; the rest is padding.
    is_one : bool
        Whether the ids were those of one text, ``T``, rather than of a batch, ``B T``.
    """

    rows: list[np.ndarray]
    texts: list[slice]
    is_one: bool

    @classmethod
    def read(cls, fields: Mapping[Any, Any]) -> TokenizedInputs:
        """Return the inputs in a mapping: NumPy arrays, lists or tensors.

        Raises
        ------
        RegardError
            A field is missing, unknown or of another type or shape; a mask has a gap; or there are two segments.
        """
        present = {name: value for name, value in fields.items() if value is not None}
        if "input_ids" not in present:
            raise RegardError(
                f"a mapping needs input_ids, as a tokenizer of transformers returns them; its keys are "
                f"{', '.join(map(str, fields)) or 'none'}"
            )
        if unknown := [str(name) for name in present if name not in _FIELDS]:
            raise RegardError(f"regard reads {', '.join(_FIELDS)} of a mapping; remove {', '.join(unknown)}")
        rows, is_one = _rows("input_ids", present["input_ids"], "iu")
        others = {name: _rows(name, present[name], "iufb")[0] for name in _FIELDS[1:] if name in present}
        for name, values in others.items():
            if len(values) != len(rows):
                raise RegardError(f"{name} has {len(values)} rows, input_ids {len(rows)}; give one for each text")
            for value, row in zip(values, rows, strict=True):
                if len(value) != len(row):
                    raise RegardError(f"{name} has rows of {len(value)} entries, but input_ids has rows of {len(row)}")
        if any(types.any() for types in others.get("token_type_ids", ())):
            raise RegardError("token_type_ids must be 0: regard runs texts of one segment; give a pair as two texts")
        masks = others.get("attention_mask") or [np.ones(len(row)) for row in rows]
        return cls(rows, [_extent(mask, i) for i, mask in enumerate(masks)], is_one)

    @property
    def is_left_padded(self) -> bool:
        """Whether there is padding before a text."""
        return any(text.start for text in self.texts)


def _rows(name: str, value: Any, kinds: str) -> tuple[list[np.ndarray], bool]:
    """Return the rows of a field, with dtypes of these kinds, and whether it is one row without a batch."""
    if hasattr(value, "detach"):  # PyTorch, on any device
        value = value.detach().cpu()
    is_one = False
    try:
        if isinstance(value, list | tuple) and all(isinstance(row, list | tuple) for row in value):
            rows = [np.asarray(row) for row in value]
        else:
            array = np.asarray(value)
            is_one = array.ndim == 1
            rows = list(array) if array.ndim == 2 else [array]
    except (TypeError, ValueError) as error:
        raise RegardError(f"{name} must be integers of shape T or B T: {error}") from error
    for row in rows:
        if row.size and (row.ndim != 1 or row.dtype.kind not in kinds):
            raise RegardError(f"{name} must be integers of shape T or B T, got {row.dtype} of shape {row.shape}")
    return rows, is_one


def _extent(mask: np.ndarray, index: int) -> slice:
    """Return where the text of a row is; raise RegardError unless its mask is 1 there and 0 elsewhere."""
    if not np.isin(mask, (0, 1)).all():
        raise RegardError(f"attention_mask must be 0 or 1 for each token, got {mask[~np.isin(mask, (0, 1))][0]}")
    positions = np.flatnonzero(mask)
    if not len(positions):
        return slice(0, 0)
    text = slice(int(positions[0]), int(positions[-1]) + 1)
    if len(positions) < text.stop - text.start:
        raise RegardError(f"attention_mask of text {index} is 0 between its tokens; padding is before or after them")
    return text
