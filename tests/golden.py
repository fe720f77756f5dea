"""Whether regard computes what transformers computed: of a case that `make_golden` wrote, all that it expects."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import regard
from regard import Trace
from regard._safetensors import SafetensorsFile

FOLDER = Path(__file__).parent / "models" / "golden"
KEPT = sorted(path.parent.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*/expected.safetensors"))


def check(folder: Path, *, dtype: type, tolerance: float) -> None:
    """Run the model in `folder` on the batch that is kept there and compare every number that belongs to a text."""
    file = SafetensorsFile(folder / "expected.safetensors")
    expected = {name: file[name] for name in file}
    model = regard.load(folder, dtype=dtype)
    lengths = expected.pop("lengths")
    targets = expected.pop("target_lengths", None)
    options = {}
    texts = _texts(model, expected.pop("ids"), lengths)
    if targets is not None:
        options["target"] = _texts(model, expected.pop("target_ids"), targets)
    trace = Trace()
    output = model(texts, trace=trace, **options)
    assert output.hidden.dtype == dtype
    greedy = expected.pop("greedy", None)
    assert {name for name in trace.names() if name.endswith(".weights")} <= expected.keys()
    for name, values in expected.items():
        ours = trace[name] if name in trace else getattr(output, name)
        of_encoder = targets is None or name == "memory" or name.startswith("encoder.")
        for i, length in enumerate(lengths if of_encoder else targets):
            rows = (i, ..., slice(length), slice(None))  # what padding looks at is nobody's concern
            np.testing.assert_allclose(ours[rows], values[rows], rtol=0, atol=tolerance, err_msg=name)
    if greedy is not None:
        np.testing.assert_array_equal(continued(model, texts[0].ids, len(greedy)), greedy)


def continued(model, ids, count: int) -> list[int]:
    """Return the tokens that are likeliest, one after the other, behind `ids`."""
    new, state = model.begin(np.array([ids]), mask=None, trace=regard.trace.SILENT)
    found = []
    for _ in range(count):
        hidden, state = model.advance(new, state, trace=regard.trace.SILENT)
        new = model.head(hidden[:, -1:]).argmax(-1)
        found.append(int(new[0, 0]))
    return found


def _texts(model, ids, lengths):
    return [model.tokenizer.from_ids(row[:length]) for row, length in zip(ids.tolist(), lengths, strict=True)]
