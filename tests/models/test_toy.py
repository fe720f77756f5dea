"""The lessons' layer on any text."""

import numpy as np
import pytest

from regard import RegardError, Trace
from regard.functional import sinusoidal_positions
from regard.models import toy
from regard.text import Vocabulary


def test_a_seed_gives_the_same_numbers():
    one, same, other = (toy("the cat sat", seed=seed)("the cat sat").hidden for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_every_step_has_the_name_that_a_real_model_gives_it():
    trace = Trace()
    toy("the cat", embed_dim=4, num_heads=2)("the cat", trace=trace)
    assert trace["blocks.0.attn.weights"].shape == (1, 2, 2, 2)
    assert trace["blocks.0.output"].shape == (1, 2, 4)
    assert trace.encodings[0].tokens == ("the", "cat")
    assert "seed 42" in trace.model


def test_sinusoidal_positions_are_added():
    trace = Trace()
    toy("a b", embed_dim=6)("a b", trace=trace)
    np.testing.assert_allclose(
        trace["embeddings"] - trace["token_embeddings"], sinusoidal_positions(2, 6)[None], atol=1e-6
    )


def test_without_positions_a_word_is_the_same_everywhere():
    layer = toy("a b a", positions="none")
    hidden = layer("a b a").hidden[0]
    np.testing.assert_allclose(hidden[0], hidden[2], rtol=1e-6)
    assert not np.allclose(toy("a b a", positions="learned")("a b a").hidden[0, [0]], hidden[2])


def test_given_embeddings_are_looked_up(rng):
    table = rng.standard_normal((2, 5)).astype(np.float32)
    trace = Trace()
    toy("b a", embeddings=table, vocabulary=Vocabulary(("a", "b")))("b a", trace=trace)
    np.testing.assert_array_equal(trace["token_embeddings"][0], table[[1, 0]])


def test_texts_of_a_batch_may_differ_in_length():
    layer = toy(["a b c", "c"])
    np.testing.assert_allclose(layer(["a b c", "c"]).hidden[1, 0], layer("c").hidden[0, 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toy(""), "the text is empty"),
        (lambda: toy("a", num_heads=3), "8 does not split into 3 heads"),
        (lambda: toy("a b", embeddings=np.ones((3, 4))), r"2 words need vectors of shape .* got \(3, 4\)"),
        (lambda: toy("a", embeddings=np.ones((1, 4)), embed_dim=5), "embeddings have 4 features, but embed_dim is 5"),
        (lambda: toy("a", embeddings=[[1.0, 2.0], [3.0]]), "rows of one length"),
        (lambda: toy("a", embeddings=[[1.0, np.nan]]), "finite real numbers"),
        (lambda: toy("a", embeddings=[[1.0, 2j]]), "complex128.* are not"),
        (lambda: toy("a", embeddings=[["1"]]), "finite real numbers"),
        (lambda: toy("a", embed_dim=5000), "embed_dim must be at most 4096, got 5000"),
        (lambda: toy("a", embed_dim=0), "embed_dim must be a whole number of at least 1, got 0"),
        (lambda: toy("a", embed_dim=2.0), "embed_dim must be a whole number of at least 1, got 2.0"),
        (lambda: toy("a", num_heads=None), "num_heads must be a whole number of at least 1, got None"),
        (lambda: toy("a", seed="x"), "seed must be a whole number of at least 0, got 'x'"),
        (lambda: toy(None), "a text or a sequence of texts, got NoneType"),
        (lambda: toy([1]), "a text must be a str, got int"),
        (lambda: toy([], vocabulary=Vocabulary(("a",))), "the text is empty; give at least one word"),
        (lambda: toy("a")(5), r"a text must be a str, an Encoding or integer ids.*int64 of shape \(\)"),
        (lambda: toy("a")(None), "a text must be a str, an Encoding or integer ids"),
        (lambda: toy("a", positions="rotary"), "positions must be one of sinusoidal, learned, none"),
        (lambda: toy("a b")("a c"), "'c'"),
        (lambda: toy("a b")("a b a"), "accepts at most 2"),
        (lambda: toy("a " * 5000)("a " * 5000), "5000 tokens.*accepts at most 4096"),
    ],
)
def test_mistakes_say_what_to_do(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_whole_numbers_as_embeddings_give_the_layer_that_they_give_as_floats():
    whole = np.arange(8).reshape(2, 4)
    given = [toy("a b", embeddings=table)("a b").hidden for table in (whole, whole.tolist(), whole.astype(np.float64))]
    assert np.array_equal(given[0], given[2])
    assert np.array_equal(given[1], given[2])
    assert np.ptp(given[0], axis=1).min() > 0
