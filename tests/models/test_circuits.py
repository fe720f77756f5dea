"""Circuits of a decoder, against products that are multiplied out, and what they say of the model `induction`."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import RegardError
from regard.models import Circuits


@pytest.fixture(scope="module")
def model():
    return regard.load("induction")


def wide(x):
    return np.asarray(x, np.float64)


def test_circuits_are_products_of_weights(model):
    circuits = model.circuits
    ov = wide(circuits.W_E) @ wide(circuits.W_V[1, 2]) @ wide(circuits.W_O[1, 2]) @ wide(circuits.W_U)
    np.testing.assert_allclose(np.asarray(circuits.ov(1, 2)), ov, atol=1e-4 * np.abs(ov).max())
    qk = wide(circuits.W_E) @ wide(circuits.W_Q[1, 2]) @ (wide(circuits.W_E) @ wide(circuits.W_K[1, 2])).T
    np.testing.assert_allclose(np.asarray(circuits.qk(-1, 2)), qk, atol=1e-4 * np.abs(qk).max())
    eigenvalues = np.linalg.eigvals(ov)
    assert circuits.copying_score[1, 2] == pytest.approx(eigenvalues.sum().real / np.abs(eigenvalues).sum(), abs=1e-4)


@pytest.mark.parametrize("kind", ["q", "k", "v"])
def test_composition(model, kind):
    circuits = Circuits(model, fold_norms=False)
    found = circuits.composition(kind)
    assert found.shape == (2, 4, 2, 4)
    assert not found[1].any()
    assert not found[:, :, 0].any()
    for first in range(4):
        writes = wide(circuits.W_V[0, first]) @ wide(circuits.W_O[0, first])
        for second in range(4):
            qk = wide(circuits.W_Q[1, second]) @ wide(circuits.W_K[1, second]).T
            ov = wide(circuits.W_V[1, second]) @ wide(circuits.W_O[1, second])
            reads = {"q": qk, "k": qk.T, "v": ov}[kind]
            expected = np.linalg.norm(writes @ reads) / np.linalg.norm(writes) / np.linalg.norm(reads)
            assert found[0, first, 1, second] == pytest.approx(expected, rel=1e-6)


def test_what_the_induction_heads_do(model):
    circuits = model.circuits
    assert circuits.copying_score[1].min() > 0.9  # they raise the logit of what they attend to
    keys, queries = circuits.composition("k")[0, :, 1], circuits.composition("q")[0, :, 1]
    assert keys.mean() > 1.5 * queries.mean()  # and find it by what the first layer wrote into the keys


def test_folded_norms_read_the_same_logits(model):
    trace = regard.Trace(only="*.output")
    logits = model("qzkfqz", trace=trace).logits
    x = wide(trace["blocks.1.output"])
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + model.final_norm.eps)
    np.testing.assert_allclose(normed @ model.circuits.W_U, logits, atol=1e-4)


def test_grouped_heads_share_keys_and_values(our_smollm2):
    circuits = our_smollm2.circuits
    assert circuits.W_Q.shape == circuits.W_K.shape == circuits.W_V.shape == (30, 9, 576, 64)
    np.testing.assert_array_equal(circuits.W_K[4, 0], circuits.W_K[4, 2])
    assert (circuits.W_K[4, 2] != circuits.W_K[4, 3]).any()


def test_errors(model):
    for at in ((2, 0), (-3, 0), (0, 4), (0, -1), (0.5, 0)):
        with pytest.raises(RegardError, match=r"layer|head"):
            model.circuits.ov(*at)
    with pytest.raises(RegardError, match="q, k or v"):
        model.circuits.composition("o")
