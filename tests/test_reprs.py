"""What a person sees who types the name of a result: shapes and beginnings, never a page of numbers."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import Trace, metrics
from regard.text import Vocabulary, WordVectors

TEXT = "qzkfabcd" * 8


@pytest.fixture(scope="module")
def results():
    model, trace = regard.load("induction"), Trace()
    output = model(TEXT, trace=trace)
    words = tuple(f"word{i}" for i in range(2000))
    return {
        "model": model,
        "tokenizer": model.tokenizer,
        "block": model.blocks[0],
        "output": output,
        "encoding": output.encodings[0],
        "trace": trace,
        "step": trace.steps()[0],
        "metrics": metrics.head_metrics(trace),
        "corpus": metrics.corpus_head_metrics(model, [TEXT, "qzkf"]),
        "generated": model.generate(TEXT[:40], max_new_tokens=3),
        "attribution": metrics.attribute(model, TEXT, to="k"),
        "grid": metrics.patch_grid(model, TEXT, "x" + TEXT[1:], "k"),
        "lens": metrics.logit_lens(model, trace),
        "logits": metrics.logit_attribution(model, trace, "k"),
        "vocabulary": Vocabulary(words),
        "vectors": WordVectors(Vocabulary(words), np.ones((2000, 50))),
    }


NAMES = (
    "model tokenizer block output encoding trace step metrics corpus generated attribution grid lens logits "
    "vocabulary vectors"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_a_repr_is_short(results, name):
    assert len(repr(results[name])) < 1500


def test_it_shows_shapes_and_beginnings(results):
    assert repr(results["output"]).startswith("Output(hidden=float32[1 64 128], encodings=(Encoding(text='qzkfabcd")
    assert "ids=(16, 25, 10, 5, … 64 in all)" in repr(results["encoding"])
    assert repr(results["vocabulary"]) == "Vocabulary(words=('word0', 'word1', 'word2', 'word3', … 2000 in all))"
    assert "scores=float64[64]" in repr(results["attribution"])


def test_one_item_of_a_tuple_is_a_tuple():
    assert repr(Vocabulary(("a",))) == "Vocabulary(words=('a',))"
