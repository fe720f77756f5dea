"""Steps, lenses, attribution and circuits beside TransformerLens, with the same tiny random models."""

import re

import numpy as np
import pytest
import torch

from fake_traces import recorded
from lens_models import IDS, TOKEN, TOLERANCE, VERSUS, assert_close, cached, tiny_pair
from regard import Trace
from regard.metrics import logit_attribution, logit_lens
from regard.models import Circuits

NO_COUNTERPART = {
    r"(embed|pos_embed)\.hook_in": "ids and positions are no step: `trace.encodings`",
    r"rotary_emb\..*|.*\.hook_(cos|sin)": "cosines and sines are a table of the positions alone",
    r"unembed\.hook_out|hook_unembed": "logits are computed when they are read: `output.logits`",
    r"ln_final\.hook_in": "the output of the last block, whose number differs",
    r"(hook_embed|embed\.hook_out) of Gemma": "there after the scale √E, which is in `embeddings`",
    r".*\.ln2\.hook_in of a parallel block": "both sublayers read the input of the block, `resid_pre`",
    r".*\.ln[12]_post\.hook_in": "`attn.output` and `mlp.output`",
    r".*\.[qk]_norm\.hook_in": "`projected_q`, `projected_k`",
}


def as_ours(theirs, name):
    """Return a value of TransformerLens with the axes that it has in regard."""
    values = np.asarray(theirs.detach())
    if values.ndim == 4 and re.search(r"hook_(q|k|v|z|rot_q|rot_k|result)$|\.[qkv]\.hook_out$|\.o\.hook_in$", name):
        values = np.moveaxis(values, 2, 1)
    return values[..., 0] if name.endswith("hook_scale") else values


def test_every_name_of_its_cache(pair):
    """Each name has the value that it has there, or is in the list of those without a counterpart."""
    plain, _, model, _ = pair
    plain.set_use_attn_result(True)
    try:
        _, cache = cached(plain)
    finally:
        plain.set_use_attn_result(False)
    assert any(name.endswith("hook_result") for name in cache)
    parallel = model.blocks[0].parallel
    is_gemma, named = "gemma" in type(model).__name__.lower(), []
    for name in cache:
        said = f"{name} of a parallel block" if parallel and name.endswith("ln2.hook_in") else name
        said += " of Gemma" if is_gemma and name in ("hook_embed", "embed.hook_out") else ""
        reasons = [pattern for pattern in NO_COUNTERPART if re.fullmatch(pattern, said)]
        named += [] if reasons else [name]
    trace = recorded(model, np.array(IDS), only=named)
    for name in named:
        ours, theirs = trace[name], as_ours(cache[name], name)
        if name.endswith("hook_attn_scores"):  # they mask by the least float
            theirs = np.where(theirs < -1e30, -np.inf, theirs)
            np.testing.assert_array_equal(np.isneginf(ours), np.isneginf(theirs))
            ours, theirs = (np.where(np.isneginf(x), 0, x) for x in (ours, theirs))
        if name in ("hook_pos_embed", "pos_embed.hook_out"):
            ours = ours[None]
        assert_close(ours, theirs)
    assert len(named) >= 70


def test_edits_by_its_names(pair):
    plain, _, model, _ = pair
    names = (
        "hook_resid_pre",
        "attn.hook_q",
        "attn.hook_k",
        "attn.hook_v",
        "attn.hook_z",
        "hook_attn_out",
        "hook_mlp_out",
    )
    for name in (*names, "mlp.hook_pre", "mlp.hook_post", "hook_resid_post"):
        full = f"blocks.1.{name}"
        ours = model(np.array(IDS), edit={full: lambda x: x * 1.5}).logits
        with torch.no_grad():
            theirs = plain.run_with_hooks(torch.tensor([IDS]), fwd_hooks=[(full, lambda x, hook: x * 1.5)])
        assert_close(ours, theirs)


def test_logit_lens(pair):
    plain, _, model, trace = pair
    _, cache = cached(plain)
    lens = logit_lens(model, trace, TOKEN)
    for name, logits in zip(lens.names, lens.target_logit, strict=True):
        step = "blocks.0.hook_resid_pre" if name == "embeddings" else name.replace("output", "hook_resid_post")
        with torch.no_grad():
            expected = plain.original_model.lm_head(plain.ln_final(cache[step]))
        cap = getattr(model.config, "logit_softcap", None)
        expected = expected if cap is None else cap * torch.tanh(expected / cap)
        assert_close(logits, expected[..., TOKEN])
        place = lens.names.index(name)
        probabilities = expected.double().softmax(-1)
        assert_close(lens.target_probability[place], probabilities[..., TOKEN])
        assert_close(lens.entropy[place], torch.special.entr(probabilities).sum(-1))
        # Ranks and the likeliest tokens are theirs, but where logits are as near as they are known.
        theirs, apart = np.asarray(expected), 2 * TOLERANCE * expected.abs().max().item()
        above = theirs - theirs[..., TOKEN, None]
        rank = lens.target_rank[place]
        assert ((above > apart).sum(-1) <= rank).all()
        assert (rank <= (above > -apart).sum(-1) - 1).all()
        chosen = np.take_along_axis(theirs, lens.ids[place], -1)
        assert (np.abs(chosen - -np.sort(-theirs, -1)[..., :5]) <= apart).all()


def test_why_numbers_differ(tmp_path):
    """As docs/interventions.md says: another text, and weights that are folded and centred."""
    theirs, _, model, _ = tiny_pair("gpt2", tmp_path)
    assert theirs.to_tokens("a b").shape[1] == len(model.tokenizer("a b").ids) + 1
    assert theirs.to_tokens("a b", prepend_bos=False).tolist() == [list(model.tokenizer("a b").ids)]
    theirs.enable_compatibility_mode()
    logits, cache = cached(theirs)
    same = [f"blocks.1.{name}" for name in ("attn.hook_pattern", "ln1.hook_scale", "attn.hook_q", "attn.hook_k")]
    others = [f"blocks.1.{name}" for name in ("attn.hook_v", "attn.hook_z", "hook_resid_post")]
    trace = Trace(only=[*same, *others])
    ours = model(np.array(IDS), trace=trace).logits
    assert_close(torch.tensor(ours).log_softmax(-1), logits.log_softmax(-1))
    assert abs(np.asarray(logits.detach()) - ours).max() > 0.1
    for name in same:
        assert_close(trace[name], as_ours(cache[name], name))
    for name in others:
        assert abs(trace[name] - as_ours(cache[name], name)).max() > 0.1


def test_logit_attribution(pair):
    _, folded, model, trace = pair
    if any(block.attn_post_norm for block in model.blocks):
        pytest.skip("TransformerLens does not scale heads by the norm after attention")
    logits, cache = cached(folded)
    found = logit_attribution(model, trace, TOKEN, VERSUS)
    assert_close(found.logit, logits[..., TOKEN] - logits[..., VERSUS])
    heads = cache.stack_head_results(layer=-1)
    expected = cache.logit_attrs(heads, TOKEN, VERSUS)
    layers, batch, number, length = found.heads.shape
    assert_close(found.heads, expected.reshape(layers, number, batch, length).transpose(1, 2))
    parts, names = cache.decompose_resid(layer=-1, return_labels=True)
    expected = dict(zip(names, cache.logit_attrs(parts, TOKEN, VERSUS), strict=True))
    for layer in range(layers):
        assert_close(found.mlps[layer], expected[f"{layer}_mlp_out"])
        assert_close(found.heads[layer].sum(1) + found.attn_biases[layer], expected[f"{layer}_attn_out"])
    np.testing.assert_allclose(found.total, found.logit, rtol=0, atol=1e-4)


GAINS = {"W_Q": "q_norm", "W_K": "k_norm"}


def gain_of(model, name):
    """Return the weights of the norms after a map, ``L 1 1 D``, which TransformerLens does not fold into it."""
    attentions = [block.attn for block in model.blocks]
    norms = [getattr(attn, GAINS[name]) if name in GAINS else None for attn in attentions]
    norms = [block.attn_post_norm for block in model.blocks] if name == "W_O" else norms
    return 1 if None in norms else np.stack([norm.weight for norm in norms])[:, None, None]


@pytest.mark.parametrize("fold", [False, True])
def test_weights_and_composition(pair, fold):
    plain, folded, model, _ = pair
    bridge, circuits = folded if fold else plain, Circuits(model, fold_norms=fold)
    gains = {name: gain_of(model, name) if fold else 1 for name in ("W_Q", "W_K", "W_V", "W_O")}
    for name, gain in gains.items():
        theirs = getattr(bridge, name).detach().numpy()
        ours = np.asarray(getattr(circuits, name))
        group = ours.shape[1] // theirs.shape[1]
        assert_close(ours, theirs.repeat(group, 1) * gain)
    assert_close(circuits.W_U, bridge.W_U)
    if all(np.ndim(gain) == 0 for gain in gains.values()):
        for kind in ("q", "k", "v"):
            assert_close(circuits.composition(kind), bridge.all_composition_scores(kind.upper()).scores)


def test_circuits(pair):
    _, folded, model, _ = pair
    circuits, gain = model.circuits, gain_of(model, "W_O")
    ov = folded.OV
    for head in range(circuits.W_O.shape[1]):
        ours = circuits.ov(1, head)
        out = ov.B[1, head] * (torch.tensor(gain[1, 0]) if np.ndim(gain) else 1)
        theirs = model.embedding_scale * folded.W_E @ ov.A[1, head] @ out @ folded.W_U
        assert_close(np.asarray(ours), theirs)
        expected = np.linalg.eigvals(theirs.detach().double().numpy())
        expected = expected[np.argsort(-abs(expected))][: ours.left.shape[1]]
        assert abs(ours.eigenvalues.sum() - expected.sum()) < 1e-4 * abs(expected).sum()
        np.testing.assert_allclose(abs(ours.eigenvalues), abs(expected), rtol=0, atol=1e-3 * abs(expected).max())
        score = expected.sum().real / abs(expected).sum()
        assert circuits.copying_score[1, head] == pytest.approx(score, abs=1e-4)


def test_the_writers_of_a_value_are_its_decomposed_residual_stack(pair):
    """Each part of the stack, through the norm with its scale held and the projection of values.

    Where a norm follows attention, TransformerLens does not scale the heads by it: their sum stands for them there.
    """
    plain, _, model, trace = pair
    has_heads = not any(block.attn_post_norm for block in model.blocks)
    plain.set_use_attn_result(True)
    try:
        _, cache = cached(plain)
    finally:
        plain.set_use_attn_result(False)
    layer, key = len(model.blocks) - 1, 3
    heads, head_names = cache.stack_head_results(layer=layer, return_labels=True)
    others, names = cache.decompose_resid(layer=layer, return_labels=True)
    stack = {name: part[0, key] for name, part in zip(head_names, heads, strict=True)} if has_heads else {}
    whole = [part for part in zip(names, others, strict=True) if not (has_heads and part[0].endswith("attn_out"))]
    stack |= {name: part[0, key] for name, part in whole}
    found = trace.carried(layer, 0, 5, key)
    labels, seen = [writer.label for writer in found.writers], []
    norm, w_v = model.blocks[layer].attn_norm, model.blocks[layer].attn.v_proj.weight
    for name, part in stack.items():
        label = {"embed": "token embedding", "pos_embed": "position embedding"}.get(name, name)
        label = f"L{label.removesuffix('_mlp_out')} MLP" if label.endswith("_mlp_out") else label
        part = part - part.mean() if type(norm).__name__ == "LayerNorm" else part
        read = (part / cache[f"blocks.{layer}.ln1.hook_scale"][0, key]).detach().numpy() * norm.weight
        heads_of = f"L{label.removesuffix('_attn_out')}H" if label.endswith("_attn_out") else None
        parts = [i for i, each in enumerate(labels) if (each.startswith(heads_of) if heads_of else each == label)]
        assert_close(found.values[parts].sum(0), read @ w_v[:, : found.values.shape[1]])
        seen += parts
    assert sorted(seen) == [i for i, writer in enumerate(found.writers) if writer.kind != "bias"]
