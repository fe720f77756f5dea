"""A model whose folder or file has no tokenizer reads ids, and of a text says what to do."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import gguf_files
import golden
import regard
import tiny_decoder
from regard import RegardError, Trace
from regard.metrics import corpus_head_metrics, logit_lens, repeated_tokens

IDS = [5, 17, 9, 5, 17]
FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


@pytest.fixture
def folder(tmp_path):
    tiny_decoder.write(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    return tmp_path / "model"


def test_ids_have_the_values_that_they_have_with_a_tokenizer(folder, tmp_path):
    model, complete = regard.load(folder), regard.load(tiny_decoder.write(tmp_path / "complete"))
    trace = Trace()
    output = model([IDS], trace=trace)
    np.testing.assert_array_equal(output.logits, complete([IDS]).logits)
    assert output.encodings[0].ids == tuple(IDS)
    assert trace.encodings[0].tokens == ("⟨5⟩", "⟨17⟩", "⟨9⟩", "⟨5⟩", "⟨17⟩")
    assert model.generate(IDS, max_new_tokens=4).ids == complete.generate(IDS, max_new_tokens=4).ids
    assert model.predictions(IDS, k=2)[0].id == complete.predictions(IDS, k=2)[0].id
    np.testing.assert_array_equal(logit_lens(model, trace, 3).target_rank, logit_lens(complete, trace, 3).target_rank)
    assert repeated_tokens(model, length=5).values["induction"].shape == (1, 2, 6)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model("the cat"),
        lambda model: model(["the cat"]),
        lambda model: model.generate("the cat"),
        lambda model: model.embed(["the cat"], pooling="mean"),
        lambda model: corpus_head_metrics(model, ["the cat"]),
    ],
)
def test_of_a_text_it_says_what_to_do(folder, use):
    model = regard.load(folder)
    with pytest.raises(RegardError) as caught:
        use(model)
    message = str(caught.value)
    assert message.startswith(f"no tokenizer in {folder}: it has neither tokenizer.json nor vocab.txt nor vocab.json")
    assert message.endswith("; without one give ids, such as model([5, 3, 8])")


def test_ids_beyond_the_embeddings_are_named(folder):
    with pytest.raises(RegardError, match="not among the 257 ids of the vocabulary: 257, 999"):
        regard.load(folder)([5, 257, 999])


@pytest.mark.parametrize("case", {case.split("/")[0]: case for case in golden.KEPT}.values())
def test_every_family_is_loaded_without_one(case, tmp_path):
    folder = shutil.copytree(golden.FOLDER / case, tmp_path / "model", ignore=shutil.ignore_patterns(*FILES))
    model = regard.load(folder)
    assert type(model) is type(regard.load(golden.FOLDER / case))


def test_a_gguf_file_without_one_reads_ids(tmp_path):
    model = regard.load(gguf_files.write_gguf(tmp_path / "model.gguf", metadata={}))
    assert np.isfinite(model([IDS]).logits).all()
    with pytest.raises(RegardError, match=r"no tokenizer in .*model.gguf.*without one give ids"):
        model("the cat")
