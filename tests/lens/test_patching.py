"""Patching grids, path patching and started runs beside TransformerLens."""

import numpy as np
import pytest
import torch

import regard
from lens_models import IDS, TOKEN, VERSUS, assert_close
from regard.metrics import patch_grid, path_patching

CORRUPTED = [5, 8, 4, 9, 7, 6, 5]
HOOKS = {
    ("layer", "position"): "hook_resid_post",
    "attn": "hook_attn_out",
    "mlp": "hook_mlp_out",
    "head": "attn.hook_z",
}


def difference(logits):
    return logits[0, -1, TOKEN] - logits[0, -1, VERSUS]


def hooked(bridge, ids, hooks):
    with torch.no_grad():
        return bridge.run_with_hooks(torch.tensor([ids]), fwd_hooks=hooks)


@pytest.mark.parametrize("over", HOOKS)
def test_a_grid(pair, over):
    plain, _, model, _ = pair
    if over in ("attn", "mlp") and any(block.attn_post_norm for block in model.blocks):
        pytest.skip("what TransformerLens patches there is after the norm")
    with torch.no_grad():
        _, cache = plain.run_with_cache(torch.tensor([IDS]))
    clean, corrupted = (model.tokenizer.from_ids(ids) for ids in (IDS, CORRUPTED))
    grid = patch_grid(model, clean, corrupted, (TOKEN, VERSUS), over=over)
    expected = np.empty(grid.values.shape)
    for i, j in np.ndindex(expected.shape):
        name = f"blocks.{i}.{HOOKS[over]}"

        def put(value, hook, name=name, j=j):
            value = value.clone()
            at = (slice(None), slice(None), j) if over == "head" else (slice(None), j)
            value[at] = cache[name][at]
            return value

        expected[i, j] = difference(hooked(plain, CORRUPTED, [(name, put)]))
    assert_close(grid.values, expected)


def test_a_path_between_two_heads(pair):
    """Path patching by hooks: all heads frozen but the sender; then the receiver's query put in place."""
    plain, _, model, _ = pair
    if any(block.attn_post_norm for block in model.blocks) or getattr(model.config, "rope", None) is not None:
        pytest.skip("queries enter the scores rotated")
    with torch.no_grad():
        _, clean = plain.run_with_cache(torch.tensor([IDS]))
        _, corrupted = plain.run_with_cache(torch.tensor([CORRUPTED]))
    found = {}

    z = "blocks.0.attn.hook_z"  # a hook has another name than its alias

    def freeze(value, hook):
        value = corrupted[z].clone()
        value[:, :, 1] = clean[z][:, :, 1]
        return value

    def remember(value, hook):
        found["q"] = value.clone()
        return value

    def put(value, hook):
        value = value.clone()
        value[:, :, 0] = found["q"][:, :, 0]
        return value

    name = "blocks.1.attn.hook_q"
    hooked(plain, CORRUPTED, [(z, freeze), (name, remember)])
    expected = difference(hooked(plain, CORRUPTED, [(name, put)]))
    texts = [model.tokenizer.from_ids(ids) for ids in (IDS, CORRUPTED)]
    effect = path_patching(model, *texts, (TOKEN, VERSUS), sender=(0, 1), receiver=(1, 0))
    assert effect.value == pytest.approx(float(expected), rel=1e-5, abs=1e-5)
    assert abs(effect.value - effect.corrupted) > 1e-5


def test_steering(pair):
    plain, _, model, _ = pair
    vector = np.random.default_rng(0).standard_normal(model.config.embed_dim).astype(np.float32)
    edit = regard.edits.add(vector, "blocks.0.output", positions=[2, -1])

    def steer(value, hook):
        value = value.clone()
        value[:, [2, -1]] += torch.tensor(vector)
        return value

    assert_close(model(np.array(IDS), edit=edit).logits, hooked(plain, IDS, [("blocks.0.hook_resid_post", steer)]))
