"""Whether regard computes what transformers computed: of a case that `make_golden` wrote, all that it expects.

``python tests/golden.py`` prints for each family how far the farthest number is off, as `docs/models.md` has it, and by
what it was computed: the kernel and NumPy round differently.
"""

from pathlib import Path

import numpy as np

import regard
from regard import Trace, models
from regard.formats.safetensors import SafetensorsFile
from regard.functional import native
from regard.models import Model

_OUTPUTS = ("hidden", "logits", "memory", "pooled", "embedding")
FOLDER = Path(__file__).parent / "models" / "golden"
WITHOUT_MAPS = ("qwen3_next",)
"""Families with layers of linear attention, which have no map."""
WITHOUT_SUMS = (*WITHOUT_MAPS, "gemma4", "gemma4_text")
"""Families whose streams are not sums of what heads and feed-forward layers add."""
KEPT = sorted(path.parent.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*/expected.safetensors"))


def cases(kind: type[Model], without: type[Model] | None = None) -> list[str]:
    """Return the cases of the families that are subclasses of `kind` but not of `without`."""
    classes = {name: getattr(models, entry.rpartition(".")[2]) for name, entry in models.FAMILIES.items()}
    chosen = {name for name, c in classes.items() if issubclass(c, kind) and not (without and issubclass(c, without))}
    found = [case for case in KEPT if case.split("/")[0] in chosen]
    assert found, f"no case of a {kind.__name__} is stored"
    return found


def load(case):
    """Return the model of a case in float64."""
    return regard.load(FOLDER / case, dtype=np.float64)


def one_of_each(cases: list[str]) -> list[str]:
    """Return the first case of each family."""
    return list({case.split("/")[0]: case for case in reversed(cases)}.values())


def check(folder: Path, *, dtype: type, tolerance: float, greedy: bool = True) -> None:
    """Run the model in `folder` on the batch that is kept there and compare every number that belongs to a text.

    `tolerance` is of 1, and of the largest number of the array, from whose like each is summed. Without `greedy` the
    tokens that greedy decoding appends are left out.
    """
    model, texts, expected, ours = _run(folder, dtype)
    assert {ours[name].dtype for name in ours if name.endswith("hidden")} == {np.dtype(dtype)}
    weights = {name for name in ours if name.endswith(".weights")}
    assert weights <= expected.keys() or not weights & expected.keys()  # of a long text they are not kept
    for name, rows in _pairs(expected, ours):
        largest = max(1.0, float(np.abs(rows[1]).max(initial=0, where=np.isfinite(rows[1]))))
        np.testing.assert_allclose(*rows, rtol=0, atol=tolerance * largest, err_msg=name)
    for name in weights if "lengths" in expected else ():
        if name.startswith("vision."):
            continue
        of_target = name.startswith("decoder.") and ".cross_attn." not in name
        for row, length in zip(ours[name], expected["target_lengths" if of_target else "lengths"], strict=True):
            assert not row[..., length:].any(), f"{name} of padding"  # no row of a text has any, if it is causal
    if greedy and "greedy" in expected:
        np.testing.assert_array_equal(continued(model, texts[0].ids, len(expected["greedy"])), expected["greedy"])


def deviations(folder: Path, dtype: type) -> dict[str, float]:
    """Return how far the farthest number is from what is expected, of vectors, scores and weights."""
    _, _, expected, ours = _run(folder, dtype)
    found: dict[str, float] = {}
    for name, (values, wanted) in _pairs(expected, ours):
        kind = "weights" if name.endswith(".weights") else "logits" if name == "logits" else "hidden"
        found[kind] = max(found.get(kind, 0.0), float(np.abs(values - wanted).max()))
    return found


def _run(folder, dtype):
    """Return the model, the texts, what is expected, and what regard makes of them under the same names."""
    file = SafetensorsFile(folder / "expected.safetensors")
    expected = {name: file[name] for name in file}
    model = regard.load(folder, dtype=dtype)
    if "pixel_values" in expected:
        return model, None, expected, _of_pictures(model, expected)
    texts = _texts(model, expected["ids"], expected["lengths"])
    target = {}
    if "target_ids" in expected:
        target["target"] = _texts(model, expected["target_ids"], expected["target_lengths"])
    trace = Trace(only=("*.weights", "*.output"))
    output = model(texts, trace=trace, **target)
    ours = {name: getattr(output, name) for name in _OUTPUTS if name in expected}
    return model, texts, expected, ours | {name: trace[name] for name in trace.names()}


def _of_pictures(model, expected):
    """Return what regard makes of pictures; of a CLIP, of both halves under the names ``text.`` and ``vision.``."""
    pictures = {"pixel_values": expected["pixel_values"]}
    runs = {"": (model, pictures)}
    if isinstance(model, models.CLIP):
        texts = _texts(model.text, expected["ids"], expected["lengths"])
        runs = {"text.": (model.text, texts), "vision.": (model.vision, pictures)}
    ours = {}
    for scope, (half, given) in runs.items():
        trace = Trace(only=("*.weights", "*.output"))
        output = half(given, trace=trace)
        ours |= {scope + name: getattr(output, name) for name in _OUTPUTS if scope + name in expected}
        ours |= {scope + name: trace[name] for name in trace.names()}
    if "similarity" in expected:
        ours["similarity"] = model.similarity(pictures, texts)
    return ours


def _pairs(expected, ours):
    """Yield the values of both, text by text, without the rows of padding."""
    for name, values in expected.items():
        if name in ("ids", "lengths", "pixel_values", "target_ids", "target_lengths", "greedy"):
            continue
        if values.ndim == 2 or "lengths" not in expected or name.startswith("vision."):  # nothing is padded
            yield name, (ours[name], values)
            continue
        of_encoder = "target_lengths" not in expected or name == "memory" or name.startswith("encoder.")
        for i, length in enumerate(expected["lengths" if of_encoder else "target_lengths"]):
            rows = (i, ..., slice(length), slice(None))
            yield name, (ours[name][rows], values[rows])


def continued(model, ids, count: int) -> list[int]:
    """Return the tokens that greedy decoding appends to `ids`."""
    hidden, state = model.prefill(np.array([ids]))
    found = []
    while True:
        new = model.head(hidden[:, -1:]).argmax(-1)
        found.append(int(new[0, 0]))
        if len(found) == count:
            return found
        hidden, state = model.decode_step(new, state)


def _texts(model, ids, lengths):
    return [model.tokenizer.from_ids(row[:length]) for row, length in zip(ids.tolist(), lengths, strict=True)]


if __name__ == "__main__":
    print("by the compiled kernel" if native.kernel() is not None else f"by NumPy: {native.unavailable_reason()}")
    for family in sorted({case.split("/")[0] for case in KEPT}):
        worst = {}
        for dtype in (np.float32, np.float64):
            for case in KEPT:
                if case.split("/")[0] == family:
                    for kind, far in deviations(FOLDER / case, dtype).items():
                        worst[dtype, kind] = max(worst.get((dtype, kind), 0.0), far)
        kinds = ("hidden", "logits", "weights")
        cells = [
            " · ".join(f"{worst[dtype, kind]:.0e}" if (dtype, kind) in worst else "–" for kind in kinds)
            for dtype in (np.float32, np.float64)
        ]
        print(f"| `{family}` | {cells[0]} | {cells[1]} |")
