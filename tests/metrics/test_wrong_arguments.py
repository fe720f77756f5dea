"""Whatever is given in place of an argument works, or is said in one sentence: never an error of Python itself."""

from types import SimpleNamespace

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, edits
from regard.metrics import (
    attribution_patching,
    carried,
    corpus_head_metrics,
    head_metrics,
    patch_grid,
    path_patching,
    repeated_tokens,
    why,
)
from regard.models import Circuits

CLEAN, CORRUPTED, STEP, HEADS = "qzkfqz", "qxkfqz", "blocks.0.output", "blocks.0.attn.context"
VECTOR = np.zeros(128, np.float32)
MOVED = {"layer": 1, "head": 0, "query": 5, "key": 2}
WHY = MOVED | {"versus": 0}


@pytest.fixture(scope="module")
def things():
    """Return a model, a trace of it, and what somebody may give in place of anything."""
    model, trace, other = regard.load("induction"), Trace(), Trace()
    model(CLEAN, trace=trace)
    regard.load(golden.FOLDER / "gemma2" / "plain")([5, 9, 4, 9, 7, 6], trace=other)
    junk = [
        None, True, 3, -1, 1.5, float("nan"), 10**30, np.int64(1), np.float32(1),
        "", "a", STEP, "é\ud800", b"x", {0}, {"a": 1}, slice(0, 2), range(2), SimpleNamespace, SimpleNamespace(), other,
        [], [0], [[1], [2, 3]], (0, 0), (0,), (0, 1, 2), (9, 0), (0, 9), (True, 0), (0.5, 0), ("x", 0), (0, "x"),
        np.arange(2), np.array([0.5]), np.array([[1]]), np.zeros((3, 3)), iter([0]),
    ]  # fmt: skip
    return model, trace, junk


def grid(model, /, **given):
    return patch_grid(**{"model": model, "clean": CLEAN, "corrupted": CORRUPTED, "metric": "k", "over": "head"} | given)


def path(model, /, **given):
    arguments = {"clean": CLEAN, "corrupted": CORRUPTED, "metric": "k", "sender": (0, 0), "receiver": (1, 0)}
    return path_patching(**{"model": model} | arguments | given)


def corpus(model, /, **given):
    return corpus_head_metrics(**{"model": model, "texts": ["qzkf"]} | given)


def continued(model, /, **given):
    return model.generate(**{"prompt": "qz", "max_new_tokens": 1} | given)


CALLS = {
    "ablate": lambda m, t, x: m(CLEAN, edit=edits.ablate(x)),
    "ablate by": lambda m, t, x: m(CLEAN, edit=edits.ablate((0, 0), by=x)),
    "force_pattern": lambda m, t, x: m(CLEAN, edit=edits.force_pattern(x, (0, 0))),
    "patch trace": lambda m, t, x: m(CLEAN, edit=edits.patch(x, STEP)),
    "patch site": lambda m, t, x: m(CLEAN, edit=edits.patch(t, x)),
    "patch positions": lambda m, t, x: m(CLEAN, edit=edits.patch(t, STEP, positions=x)),
    "patch heads": lambda m, t, x: m(CLEAN, edit=edits.patch(t, HEADS, heads=x)),
    "freeze trace": lambda m, t, x: m(CLEAN, edit=edits.freeze(x, STEP)),
    "freeze but": lambda m, t, x: m(CLEAN, edit=edits.freeze(t, "blocks.*.attn.context", but=x)),
    "mean reference": lambda m, t, x: m(CLEAN, edit=edits.mean_ablate(x, STEP)),
    "mean site": lambda m, t, x: m(CLEAN, edit=edits.mean_ablate(t, x)),
    "mean by_position": lambda m, t, x: m(CLEAN, edit=edits.mean_ablate(t, STEP, by_position=x)),
    "resample reference": lambda m, t, x: m(CLEAN, edit=edits.resample_ablate(x, STEP)),
    "resample seed": lambda m, t, x: m(CLEAN, edit=edits.resample_ablate(t, STEP, seed=x)),
    "add vector": lambda m, t, x: m(CLEAN, edit=edits.add(x, STEP)),
    "add positions": lambda m, t, x: continued(m, edit=edits.add(VECTOR, STEP, positions=x)),
    "scale": lambda m, t, x: m(CLEAN, edit=edits.scale(x, STEP)),
    "edit": lambda m, t, x: m(CLEAN, edit=x),
    "joined edits": lambda m, t, x: m(CLEAN, edit=edits.scale(2, STEP) | x),
    "call trace": lambda m, t, x: m(CLEAN, trace=x),
    "generate prompt": lambda m, t, x: continued(m, prompt=x),
    "generate edit": lambda m, t, x: continued(m, edit=x),
    "generate trace": lambda m, t, x: continued(m, trace=x),
    "generate on_text": lambda m, t, x: continued(m, on_text=x),
    "predictions": lambda m, t, x: m.predictions(x),
    **{f"grid {name}": lambda m, t, x, name=name: grid(m, **{name: x})
       for name in ("model", "clean", "corrupted", "metric", "over", "layers", "positions", "batch_size", "progress")},
    "grid pair": lambda m, t, x: grid(m, metric=("k", x)),
    "grid number": lambda m, t, x: grid(m, metric=lambda _: x),
    **{f"path {name}": lambda m, t, x, name=name: path(m, **{name: x})
       for name in ("model", "clean", "corrupted", "metric", "sender", "receiver", "into", "freeze_mlps")},
    "circuits": lambda m, t, x: Circuits(x),
    "circuits layer": lambda m, t, x: m.circuits.ov(x, 0),
    "circuits head": lambda m, t, x: m.circuits.qk(0, x),
    "composition": lambda m, t, x: m.circuits.composition(x),
    "iter_traces texts": lambda m, t, x: list(m.iter_traces(x)),
    "iter_traces text": lambda m, t, x: list(m.iter_traces([x])),
    **{f"iter_traces {name}": lambda m, t, x, name=name: list(m.iter_traces(["qz"], **{name: x}))
       for name in ("batch_size", "only", "keep", "edit", "skip", "progress")},
    **{f"corpus {name}": lambda m, t, x, name=name: corpus(m, **{name: x})
       for name in ("model", "texts", "batch_size", "progress")},
    "interval name": lambda m, t, x: corpus(m).interval(x),
    "interval level": lambda m, t, x: corpus(m).interval("entropy", x),
    "attribution_patching model": lambda m, t, x: attribution_patching(x, CLEAN, CORRUPTED, "k"),
    "attribution_patching score": lambda m, t, x: attribution_patching(m, CLEAN, CORRUPTED, "k", score=x),
    "head_metrics": lambda m, t, x: head_metrics(x),
    "repeated_tokens": lambda m, t, x: repeated_tokens(x),
    "select": lambda m, t, x: t.select(x),
    "subtrace": lambda m, t, x: t.subtrace(x),
    "map": lambda m, t, x: t.map(x),
    **{f"why {name}": lambda m, t, x, name=name: why(**WHY | {"trace": t, name: x})
       for name in ("trace", "layer", "head", "query", "key", "versus", "by", "batch", "model")},
    **{f"carried {name}": lambda m, t, x, name=name: carried(**MOVED | {"trace": t, name: x})
       for name in ("trace", "layer", "key", "by")},
    "into_logit": lambda m, t, x: carried(t, **MOVED).into_logit(x),
    "into_head layer": lambda m, t, x: carried(t, **MOVED | {"layer": 0}).into_head(x, 0),
    "into_head head": lambda m, t, x: carried(t, **MOVED | {"layer": 0}).into_head(1, x),
    "into_head reads": lambda m, t, x: carried(t, **MOVED | {"layer": 0}).into_head(1, 0, x),
    "top": lambda m, t, x: why(t, **WHY).top(x),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_no_argument_raises_an_error_of_python(things, call):
    model, trace, junk = things
    refused = 0
    for value in junk:
        if callable(value) and call in {"grid metric", "path metric", "grid progress", "iter_traces progress",
                                        "corpus progress", "generate on_text"}:  # fmt: skip
            continue  # a function may raise what it likes
        try:
            CALLS[call](model, trace, value)
        except RegardError as error:
            refused += len(str(error).splitlines()[0]) < 500
    assert refused > len(junk) // 4


def test_heads_that_are_not_there_and_runs_of_another_model(things):
    model, trace, _ = things
    other = recorded(regard.load(golden.FOLDER / "gemma2" / "plain"), [5, 9, 4, 9, 7, 6])
    for edit, message in (
        (lambda: edits.mean_ablate(trace, (0, 9)), "head 9 of blocks.0.attn.context is out of range: it has 4"),
        (lambda: edits.patch(trace, (0, 9)), "head 9 of blocks.0.attn.context is out of range: it has 4"),
        (lambda: edits.patch(other, STEP), r"of shape \(1, 6, 12\) instead of \(1, 6, 128\): it is of another model"),
        (lambda: edits.mean_ablate(other, STEP), "with 12 numbers instead of 128: it is of another model"),
        (lambda: edits.scale(2, STEP) | None, "edits are joined with edits, .* got None"),
        (lambda: edits.scale(2, STEP, positions=range(0)), r"positions is an integer or several, got range\(0, 0\)"),
        (lambda: edits.scale(2, STEP, positions=slice(2)), "positions is an integer or several, got slice"),
        (lambda: edits.scale(2, HEADS, heads={0, 1}), r"heads is an integer or several, got \{0, 1\}"),
    ):
        with pytest.raises(RegardError, match=message):
            model(CLEAN, edit=edit())
