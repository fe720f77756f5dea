"""Calls of models in the golden files, of the batches that are kept with them."""

from collections.abc import Iterator
from typing import Any

import golden
import regard
from regard.formats.safetensors import SafetensorsFile
from regard.models import CLIP


def calls(case: str, dtype: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each model of a golden case, both halves of CLIP, and the arguments of its call."""
    file = SafetensorsFile(golden.FOLDER / case / "expected.safetensors")
    expected = {name: file[name] for name in file}
    model = regard.load(golden.FOLDER / case, dtype=dtype)
    for half in [model.text, model.vision] if isinstance(model, CLIP) else [model]:
        if hasattr(half, "embed_patches"):
            yield half, [{"pixel_values": expected["pixel_values"].astype(dtype)}]
            continue
        names = [("ids", "lengths"), *([("target_ids", "target_lengths")] if "target_ids" in expected else [])]
        yield half, [golden._texts(half, expected[ids], expected[lengths]) for ids, lengths in names]
