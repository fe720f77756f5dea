"""A model whose folder or file has no tokenizer reads ids, and of a text says what to do."""

import shutil

import numpy as np
import pytest

import gguf_files
import golden
import regard
import tiny_decoder
from regard import RegardError, Trace
from regard.metrics import (
    attribute,
    attribution_patching,
    corpus_head_metrics,
    logit_difference,
    logit_lens,
    patch_grid,
    path_patching,
    repeated_tokens,
)
from regard.metrics.running_sums import run_identity

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


def test_a_researcher_needs_no_tokenizer(folder, tmp_path):
    """Grids, paths, differences, attributions and corpora take ids, and have the numbers of the same text."""
    model, complete = regard.load(folder), regard.load(tiny_decoder.write(tmp_path / "complete"))
    other = [5, 17, 30, 5, 17]
    same = [complete.tokenizer.from_ids(ids) for ids in (IDS, other)]
    for clean, corrupted in ((IDS, other), (tuple(IDS), np.array(other))):
        for over in (("layer", "position"), "head"):
            grid = patch_grid(model, clean, corrupted, (3, 4), over=over)
            np.testing.assert_array_equal(grid.values, patch_grid(complete, *same, (3, 4), over=over).values)
        assert grid.metric == "logit of '⟨3⟩' minus that of '⟨4⟩'"
        path = {"sender": (0, 1), "receiver": (1, 2), "into": "k"}
        assert (
            path_patching(model, clean, corrupted, 3, **path).value == path_patching(complete, *same, 3, **path).value
        )
        found, expected = (
            attribution_patching(m, *texts, 3) for m, texts in ((model, (clean, corrupted)), (complete, same))
        )
        np.testing.assert_array_equal(found.positions(), expected.positions())
        np.testing.assert_array_equal(attribute(model, clean, 3).scores, attribute(complete, same[0], 3).scores)
    pairs = [(3, 4), (4, 3)]
    np.testing.assert_array_equal(
        logit_difference(model, [IDS, np.array(other)], pairs), logit_difference(complete, same, pairs)
    )
    corpus = corpus_head_metrics(model, [IDS, np.array(other)], resume=tmp_path / "sums")
    np.testing.assert_array_equal(corpus.means["entropy"], corpus_head_metrics(complete, same).means["entropy"])


def test_long_ids_are_told_apart_in_a_resumed_run(folder):
    model, ids = regard.load(folder), np.arange(3000) % 200
    changed = ids.copy()
    changed[1500] += 1  # where the repr of an array has an ellipsis
    assert run_identity(model, [ids], {})["texts"] != run_identity(model, [changed], {})["texts"]


@pytest.mark.parametrize("ids", [[], [[1, 2]], [1.5], [True], np.zeros((1, 2), int), np.zeros(2), range(2)])
def test_what_is_no_list_of_ids_is_no_text(folder, ids):
    model = regard.load(folder)
    with pytest.raises(RegardError, match="give one text, or one as tokens, got"):
        patch_grid(model, ids, ids, 3)
    with pytest.raises(RegardError, match="text 0 is not a str, an encoding or ids, got"):
        list(model.iter_traces([ids]))


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
