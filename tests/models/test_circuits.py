"""Circuits of a decoder, against products that are multiplied out, and what they say of the model `induction`."""

import copy
import gc
import pickle
import tracemalloc
import weakref

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, Trace
from regard.models import Circuits, DeepseekV3
from regard.models.decoder import Decoder
from regard.nn import LayerNorm, parameters


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


def normed(norm, x):
    """Return vectors divided by the size by which a norm divides, of a LayerNorm without their mean."""
    if norm is None:
        return x
    x = x - x.mean(-1, keepdims=True) if isinstance(norm, LayerNorm) else x
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps)


def size_of(norm, x):
    """Return by what a norm of queries, of each head or of all, ``H D``, divides."""
    if norm is None:
        return np.ones((len(x), 1))
    x = x - x.mean(-1, keepdims=True) if isinstance(norm, LayerNorm) else x
    over = (-1,) if norm.weight.shape[-1:] == x.shape[-1:] else (0, 1)
    return np.broadcast_to(np.sqrt((x**2).mean(over, keepdims=True) + norm.eps), (len(x), 1))


def offset(linear, norm):
    """Return what the biases of a norm and of the map after it add."""
    bias = np.zeros(linear.weight.shape[1]) if linear.bias is None else linear.bias
    return bias + (0 if getattr(norm, "bias", None) is None else norm.bias @ linear.weight)


@pytest.mark.parametrize(
    "case", [each for each in golden.cases(Decoder, without=DeepseekV3) if not each.startswith(golden.WITHOUT_SUMS)]
)
def test_circuits_are_what_a_decoder_computes_but_for_sizes_and_biases(case):
    """Of every family: each circuit times the sizes by which the norms of a run divide gives what the run recorded."""
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    ids, trace = [5, 9, 4, 9, 7], Trace()
    output = model(ids, trace=trace)
    circuits, rope = model.circuits, getattr(model.config, "rope", None)
    cosine = 1 if rope is None else rope(np.array([0]), np.float64)[0].flat[0]  # which YaRN scales

    def same(found, expected):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max()))

    embeddings = circuits.W_E[ids]
    if "position_embeddings" in trace:
        embeddings = embeddings + trace["position_embeddings"]
    x = trace["embeddings"][0]
    same(embeddings.reshape(x.shape), x)
    for i, block in enumerate(model.blocks):
        attn, read = block.attn, normed(block.attn_norm, x)
        group = attn.num_heads // attn.num_kv_heads
        values = trace[f"blocks.{i}.attn.v"][0]
        biases = {
            part: offset(getattr(attn, f"{part}_proj"), block.attn_norm).reshape(
                attn.num_heads if part == "q" else attn.num_kv_heads, -1
            )
            for part in "qkv"
        }
        for head in range(attn.num_heads):
            same(read @ circuits.W_V[i, head] + biases["v"][head // group], values[head // group])
        for part, matrices in (("q", circuits.W_Q), ("k", circuits.W_K)):
            linear, norm = getattr(attn, f"{part}_proj"), getattr(attn, f"{part}_norm")
            number = len(biases[part])
            raw = read[0] if block.attn_norm is None else read[0] * block.attn_norm.weight
            sizes = size_of(norm, (raw @ linear.weight).reshape(number, -1) + biases[part])
            gains = np.ones(1) if norm is None else np.resize(norm.weight, linear.weight.shape[1]).reshape(number, -1)
            found = trace[f"blocks.{i}.attn.{part}"][0, :, 0]  # the first token, which is not rotated
            wanted = np.stack([read[0] @ matrices[i, h * (attn.num_heads // number)] for h in range(number)])
            wanted = (wanted + biases[part] * gains) / sizes
            same(np.where(np.isclose(found, wanted, rtol=1e-6), wanted, wanted * cosine), found)
        context = trace[f"blocks.{i}.attn.context"][0]
        written = sum(context[head] @ circuits.W_O[i, head] for head in range(attn.num_heads))
        bias = 0 if attn.o_proj.bias is None else attn.o_proj.bias * block.before_residual("attn")[1]
        if (norm := block.attn_post_norm) is not None:
            size = np.sqrt((trace[f"blocks.{i}.attn.output"][0] ** 2).mean(-1, keepdims=True) + norm.eps)
            written, bias = written / size, bias * norm.weight / size
        added = trace[f"blocks.{i}.attn.output"][0] if block.parallel else trace[f"blocks.{i}.attn_residual"][0] - x
        same(written + bias, added)
        x = trace[f"blocks.{i}.output"][0]
    logits = normed(model.final_norm, x) @ circuits.W_U
    if getattr(model.final_norm, "bias", None) is not None:
        head = model.token_embedding.weight.T if model.lm_head is None else model.lm_head.weight
        logits = logits + model.final_norm.bias @ head
    if model.lm_head is not None and model.lm_head.bias is not None:
        logits = logits + model.lm_head.bias
    cap = getattr(model.config, "logit_softcap", None)
    same(logits if cap is None else cap * np.tanh(logits / cap), output.logits[0])


def test_matrices_of_heads_index_as_an_array():
    circuits = Circuits(regard.load(golden.FOLDER / "llama" / "plain"))  # 2 layers, 6 heads
    for weights in (circuits.W_Q, circuits.W_V, circuits.W_O):
        whole = np.asarray(weights)
        assert whole.shape == weights.shape == (2, 6, *whole.shape[2:])
        assert whole.dtype == weights.dtype
        indices = [(1, 4), 1, -1, (slice(0, 2), 1), (1, slice(1, 6, 3)), (1, -2, 3), (0, slice(None), 3), slice(2, 2)]
        for index in [*indices, ([0, 1], [3, 4]), (..., 0)]:
            np.testing.assert_array_equal(weights[index], whole[index])
        assert len(weights) == len(list(weights)) == 2
        np.testing.assert_array_equal(2 * weights, 2 * whole)
        np.testing.assert_array_equal(weights.mT, whole.mT)
        for index in (2, (0, 6), (-3, 0), (0, -7)):
            with pytest.raises(IndexError, match="there is no"):
                weights[index]


def test_heads_of_a_group_read_one_matrix_of_the_model():
    model = regard.load(golden.FOLDER / "llama" / "plain", dtype=np.float64)
    circuits, stored = Circuits(model, fold_norms=False), model.blocks[0].attn.k_proj.weight
    group = model.config.num_heads // model.config.num_kv_heads
    assert group > 1
    for head in range(group):
        assert np.shares_memory(circuits.W_K[0, head], stored)
        assert circuits.W_K[0, head].ctypes.data == circuits.W_K[0, 0].ctypes.data
    assert circuits.W_K[0, group].ctypes.data != circuits.W_K[0, 0].ctypes.data


def test_one_matrix_does_not_copy_the_model(our_smollm2):
    circuits = Circuits(our_smollm2)
    tracemalloc.start()
    circuits.W_K[4, 2], circuits.W_O[4, 2]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 576 * 576 * 4  # a few matrices of one layer; all have 30 times as much


def test_circuits_are_made_once_and_keep_no_model_alive(model, tmp_path):
    assert model.circuits is model.circuits
    loaded = regard.load("induction")
    before = loaded.circuits.ov(1, 0).norm
    for other in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert other.circuits is not loaded.circuits
    weights = {name: 2 * x for name, x in parameters(loaded).items() if name.endswith("v_proj.weight")}
    changed = regard.nn.with_parameters(loaded, weights)
    np.testing.assert_allclose(changed.circuits.ov(1, 0).norm, 2 * before, rtol=1e-6)
    gc.collect()
    gc.disable()
    try:
        gone, circuits = weakref.ref(loaded), loaded.circuits
        del loaded
        assert gone() is None  # without the collector of cycles
    finally:
        gc.enable()
    assert circuits.ov(1, 0).norm == before  # and they work without it


def test_a_short_repr(model, our_smollm2):
    for each in (model.circuits, our_smollm2.circuits, model.circuits.W_Q, model.circuits.ov(0, 0)):
        assert len(repr(each)) <= 200
    assert "2 layers of 4 heads" in repr(model.circuits)


def test_eigenvalues_come_from_the_largest(model):
    sizes = np.abs(model.circuits.ov(0, 1).eigenvalues)
    assert (np.diff(sizes) <= 0).all()
    values = model.circuits.ov(0, 1).singular_values
    assert (np.diff(values) <= 0).all()


def test_errors(model, write_bert):
    for at in ((2, 0), (-3, 0), (0, 4), (0, -1), (0.5, 0)):
        with pytest.raises(RegardError, match=r"layer|head"):
            model.circuits.ov(*at)
    with pytest.raises(RegardError, match="q, k or v"):
        model.circuits.composition("o")
    for other in (regard.load(write_bert()), None, "smollm2"):
        with pytest.raises(RegardError, match="has no circuits: they are those of a decoder"):
            Circuits(other)
    with pytest.raises(RegardError, match="has no circuits: its heads read latents, with a norm between"):
        regard.load(golden.FOLDER / "deepseek_v3" / "plain").circuits  # noqa: B018
    for kept in (model.circuits.W_E, model.circuits.W_U):
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 0
