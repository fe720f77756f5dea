"""Latent attention: what the cache holds, and that a step from it is that of a whole run."""

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, Trace, edits
from regard.functional.recorder import NULL_RECORDER
from regard.models import LatentAttention
from regard.models.memory import estimate_memory

CASES = [case for case in golden.KEPT if case.startswith("deepseek_v3/")]
IDS = np.array([[5, 9, 4, 9, 11, 6, 5, 8], [7, 3, 8, 2, 10, 6, 5, 9]])


@pytest.fixture(params=CASES)
def model(request):
    return regard.load(golden.FOLDER / request.param, dtype=np.float64)


def decoded(model, trace, prompt=3):
    """Return the contextual vectors of all tokens, after a prompt one by one, and the caches."""
    found, state = model.prefill(IDS[:, :prompt], trace=trace)
    parts = [found]
    for t in range(prompt, IDS.shape[1]):
        found, state = model.decode_step(IDS[:, t : t + 1], state, trace=trace)
        parts.append(found)
    return np.concatenate(parts, axis=1), state.caches


def test_the_cache_has_latents_and_no_keys_or_values(model):
    config = model.config
    hidden, caches = decoded(model, NULL_RECORDER)
    for cache in caches:
        assert cache.k.shape == (2, IDS.shape[1], config.latent_dim)
        assert cache.v.shape == (2, IDS.shape[1], config.rotated_dim)
    np.testing.assert_allclose(hidden, model(IDS).hidden, rtol=1e-9, atol=1e-10)


def test_attention_to_latents_is_that_to_their_keys_and_values(model, monkeypatch):
    """Without a trace no key or value is made of the tokens before; with one they are, to be recorded."""
    made = []
    expand = LatentAttention._keys_and_values
    monkeypatch.setattr(
        LatentAttention, "_keys_and_values", lambda self, *parts: made.append(len(parts[0])) or expand(self, *parts)
    )
    hidden, _ = decoded(model, NULL_RECORDER)
    assert len(made) == len(model.blocks)  # of the prompt alone
    traced, _ = decoded(model, Trace(only="*.q").editing())
    assert len(made) == len(model.blocks) * (2 + IDS.shape[1] - 3)
    np.testing.assert_allclose(hidden, traced, rtol=1e-9, atol=1e-10)


def test_the_latent_of_a_step_is_recorded(model):
    trace = Trace()
    model(IDS, trace=trace)
    latent, k, v = (trace[f"blocks.0.attn.{name}"] for name in ("kv_latent", "k", "v"))
    attn, heads = model.blocks[0].attn, model.config.num_heads
    for values, projection in ((k[..., : -model.config.rotated_dim], attn.k_proj), (v, attn.v_proj)):
        made = (latent @ projection.weight).reshape(*IDS.shape, heads, -1).swapaxes(1, 2)
        np.testing.assert_allclose(values, made, rtol=1e-12, atol=1e-14)
    shared = k[..., -model.config.rotated_dim :]
    np.testing.assert_array_equal(shared, np.broadcast_to(shared[:, :1], shared.shape))


@pytest.mark.parametrize("name", ["k", "v", "kv_latent", "q", "context"])
def test_an_edit_while_decoding_is_that_of_a_whole_run(model, name):
    """Edited keys and values have no latent, and stay in the cache as they are."""
    site = f"blocks.0.attn.{name}"
    edit = edits.scale(1.5, site) | edits.scale(-1, site, positions=[1, 4])
    hidden, _ = decoded(model, Trace(only=(), edit=edit))
    np.testing.assert_allclose(hidden, model(IDS, edit=edit).hidden, rtol=1e-9, atol=1e-10)


def test_the_memory_of_a_cache_is_that_of_latents(model):
    estimates = [estimate_memory(model, 1, 1000, Trace(only=()), cached=cached).total for cached in (False, True)]
    config = model.config
    of_latents = 8 * 1000 * config.num_layers * config.latent_dim
    assert estimates[1] - estimates[0] == 3 * of_latents


def test_layers_for_further_tokens_are_not_read(changed):
    extra = {"model.layers.3.eh_proj.weight": np.zeros((2, 2), np.float16)}
    expected = regard.load(golden.FOLDER / "deepseek_v3" / "plain")(IDS).hidden
    found = regard.load(changed("deepseek_v3/plain", extra=extra))
    np.testing.assert_array_equal(found(IDS).hidden, expected)
    with pytest.raises(RegardError, match=r"unexpected model\.layers\.3\.eh_proj\.weight"):
        regard.load(changed("deepseek_v3/plain", {"num_nextn_predict_layers": 0}, extra=extra))
