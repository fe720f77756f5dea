import numpy as np
import pytest

from regard import RegardError
from regard.nn import Embedding
from regard.text import random_embeddings


def test_a_seed_and_its_generator_draw_the_same_numbers():
    from_seed = random_embeddings(7, 11, rng=42)
    np.testing.assert_array_equal(from_seed, random_embeddings(7, 11, rng=np.random.default_rng(42)))
    assert from_seed.shape == (7, 11)
    assert from_seed.dtype == np.float32


def test_another_seed_draws_other_numbers():
    assert not np.array_equal(random_embeddings(7, 11, rng=1), random_embeddings(7, 11, rng=2))


def test_without_a_seed_every_call_differs():
    assert not np.array_equal(random_embeddings(7, 11), random_embeddings(7, 11))


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


@pytest.mark.parametrize(("size", "embed_dim", "wrong"), [(-1, 3, "size"), (3, 0, "embed_dim"), (2, -5, "embed_dim")])
def test_impossible_sizes_are_refused(size, embed_dim, wrong):
    with pytest.raises(RegardError, match=f"{wrong} must be a whole number"):
        random_embeddings(size, embed_dim)


@pytest.mark.parametrize("rng", [-1, "seed", 0.5])
def test_a_bad_seed_is_refused(rng):
    with pytest.raises(RegardError, match="rng must be"):
        random_embeddings(2, 3, rng=rng)


def test_integers_are_no_embeddings():
    with pytest.raises(RegardError, match=r"floating type .*, got int64"):
        random_embeddings(2, 3, dtype=np.int64)


def test_a_size_that_is_no_whole_number_is_refused():
    with pytest.raises(RegardError, match=r"size must be a whole number of at least 0, got 2\.5"):
        random_embeddings(2.5, 3)
