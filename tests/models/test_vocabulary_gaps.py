"""A vocabulary whose ids have gaps, such as that of a vocab.txt with a line twice: its size is not its last id."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import regard
import tiny_bert
import tiny_decoder
from regard import RegardError, training
from regard.metrics.attribution_target import most_probable_token
from regard.text import SubwordTokenizer

IDS = range(0, 257, 3)


@pytest.fixture
def tokenizer():
    backend = Tokenizer(WordLevel({f"w{i}": i for i in IDS}, unk_token="w0"))
    backend.pre_tokenizer = WhitespaceSplit()
    return SubwordTokenizer(backend)


@pytest.fixture
def model(tmp_path, tokenizer):
    return replace(regard.load(tiny_decoder.write(tmp_path / "tiny")), tokenizer=tokenizer)


def test_its_ids_are_known(tokenizer):
    np.testing.assert_array_equal(tokenizer.token_ids, IDS)
    assert tokenizer.vocab_size == len(IDS)


def test_the_next_token_is_any_of_the_vocabulary_and_no_other(model):
    last = len(IDS)
    chosen = []
    for start in IDS:
        ids = [start, 3]
        logits = model([ids]).logits[0, -1]
        best = max(IDS, key=lambda i, logits=logits: logits[i])
        assert list(model.generate(ids, max_new_tokens=1).ids) == [best]
        assert most_probable_token(model, model.tokenizer.from_ids(ids)).id == best
        chosen.append((best, int(logits.argmax())))
    assert any(best >= last for best, _ in chosen)  # which a slice of the logits would leave out
    assert any(best != highest for best, highest in chosen)  # an id that is no token


def test_sampled_tokens_are_of_the_vocabulary(model):
    ids = model.generate([0, 3], max_new_tokens=30, temperature=2.0, seed=1).ids
    assert set(ids) <= set(IDS)
    assert max(ids) >= len(IDS)


def test_a_vocabulary_file_with_a_line_twice(write_bert):
    folder = write_bert()
    pieces = [*tiny_bert.PIECES]
    pieces[-2] = pieces[-3]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = regard.load(folder).tokenizer
    assert tokenizer.token_ids.tolist() == [i for i in range(len(pieces)) if i != len(pieces) - 3]
    (folder / "vocab.txt").write_text("\n".join([*pieces, "one", "more"]))
    with pytest.raises(RegardError, match="has 24 tokens, but its embeddings have 23 rows"):
        regard.load(folder)


def test_a_new_model_has_a_row_for_each_id(tokenizer):
    task = training.text_task("w0 w3 w255 " * 200, tokenizer=tokenizer, context=8, batch_size=2)
    assert task.new_model().model.config.vocab_size == 256
    masked = Tokenizer(WordLevel({"[MASK]": 0, "[PAD]": 1, "a": 2, "b": 40}, unk_token="a"))
    masked.pre_tokenizer = WhitespaceSplit()
    task = training.text_task("a b " * 200, tokenizer=SubwordTokenizer(masked), context=8, batch_size=64, masked=True)
    drawn = np.concatenate([task.draw(np.random.default_rng(seed), False).ids.ravel() for seed in range(20)])
    assert ((drawn > 4) & (drawn < 40)).any()
