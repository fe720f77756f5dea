import numpy as np
import pytest

from regard import RegardError
from regard.nn import Embedding
from regard.text import random_embeddings


def test_a_seed_and_its_generator_draw_the_same_numbers_and_others_differ():
    from_seed = random_embeddings(7, 11, rng=42)
    np.testing.assert_array_equal(from_seed, random_embeddings(7, 11, rng=np.random.default_rng(42)))
    assert from_seed.shape == (7, 11)
    assert from_seed.dtype == np.float32
    for options in ({"rng": 2}, {}, {}):
        other = random_embeddings(7, 11, **options)
        assert not np.array_equal(from_seed, other)
        from_seed = other


def test_the_type_only_rounds_the_numbers():
    wide = random_embeddings(7, 11, rng=42, dtype=np.float64)
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide.astype(np.float32), random_embeddings(7, 11, rng=42))


def test_the_numbers_are_standard_normal():
    # 101 × 997 draws: the mean's standard error is 0.0032, the deviation's 0.0022; allow five of them.
    table = random_embeddings(101, 997, rng=5, dtype=np.float64)
    assert abs(table.mean()) < 0.016
    assert abs(table.std() - 1) < 0.012


def test_the_layer_draws_the_same_numbers():
    layer = Embedding.init(np.random.default_rng(42), 7, 11)
    np.testing.assert_array_equal(layer.weight, random_embeddings(7, 11, rng=42))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((-1, 3), {}, "size must be a whole number"),
        ((2.5, 3), {}, r"size must be a whole number of at least 0, got 2\.5"),
        ((3, 0), {}, "embed_dim must be a whole number"),
        ((2, -5), {}, "embed_dim must be a whole number"),
        *(((2, 3), {"rng": rng}, "rng must be") for rng in (-1, "seed", 0.5)),
        ((2, 3), {"dtype": np.int64}, r"floating type .*, got int64"),
    ],
)
def test_mistakes(arguments, options, message):
    with pytest.raises(RegardError, match=message):
        random_embeddings(*arguments, **options)
