"""What a type checker knows of a loaded model; checked by mypy (`nox -s types`), never run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np

import regard
from regard.models import Generated, ImageModel, ImageOutput, LanguageModel, Output, PretrainedModel, TextModel
from regard.models.bert import Bert
from regard.models.llama import Llama

minilm = regard.load("minilm", download=False)
assert_type(minilm, Bert)
assert_type(minilm("The cat", edit={"blocks.0.attn.weights": np.zeros_like}), Output)
assert_type(minilm.embed(["The cat"]), np.ndarray)
minilm.generate("The cat")  # type: ignore[attr-defined]  # an encoder

smollm2 = regard.load("smollm2", dtype=np.float64)
assert_type(smollm2, Llama)
assert_type(smollm2.generate("The cat", max_new_tokens=4), Generated)
assert_type(smollm2("The cat").logits, np.ndarray)

assert_type(regard.load("induction"), Llama)

name = "".join(["mini", "lm"])
for folder in (name, Path(name)):
    model = regard.load(folder)
    assert_type(model, PretrainedModel)
    if isinstance(model, TextModel):
        assert_type(model.embed(["The cat"]), np.ndarray)
        model("The cat", edit={})
    if isinstance(model, LanguageModel):
        assert_type(model.generate("The cat"), Generated)
    if isinstance(model, ImageModel):
        assert_type(model("cat.png"), ImageOutput)
