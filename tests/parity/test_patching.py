"""Grids of patched runs, and paths between two heads, beside hooks of PyTorch on models of transformers."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import golden
import make_golden
import regard
from regard.metrics import patch_grid, path_patching

CASE, TO, VERSUS = "gpt2/plain", 3, 4
CLEAN, CORRUPTED = [5, 9, 4, 9, 11, 6, 5], [5, 8, 4, 9, 7, 6, 5]


def site_of(block, over):
    """Return the module whose output, or input for a head, is patched."""
    return {"attn": block.attn, "mlp": block.mlp, "head": block.attn.c_proj}.get(over, block)


def first(output):
    return output[0] if isinstance(output, tuple) else output


@torch.no_grad()
def patched_by_hooks(over):
    """Return the logit difference of the corrupted run with each site of the clean one, and that of both runs."""
    model = AutoModelForCausalLM.from_pretrained(
        golden.FOLDER / CASE, attn_implementation="eager", dtype=torch.float64
    ).eval()
    clean, corrupted = torch.tensor([CLEAN]), torch.tensor([CORRUPTED])
    heads, width = model.config.n_head, model.config.n_embd // model.config.n_head

    def number(ids):
        logits = model(ids).logits[0, -1]
        return float(logits[TO] - logits[VERSUS])

    rows = []
    for block in model.transformer.h:
        module, kept = site_of(block, over), []
        if over == "head":
            hook = module.register_forward_pre_hook(lambda _, inputs, kept=kept: kept.append(inputs[0].clone()))
        else:
            hook = module.register_forward_hook(lambda _, __, output, kept=kept: kept.append(first(output).clone()))
        number(clean)
        hook.remove()
        row = []
        for site in range(heads if over == "head" else len(CLEAN)):
            part = slice(site * width, (site + 1) * width)

            def change(module, inputs, output=None, site=site, part=part, kept=kept):
                value = first(inputs if output is None else output).clone()
                at = (slice(None), slice(None), part) if output is None else (slice(None), site)
                value[at] = kept[0][at]
                return (value, *output[1:]) if isinstance(output, tuple) else (value,) if output is None else value

            register = module.register_forward_pre_hook if over == "head" else module.register_forward_hook
            hook = register(change)
            row.append(number(corrupted))
            hook.remove()
        rows.append(row)
    return np.array(rows), number(clean), number(corrupted)


@pytest.mark.parametrize("over", [("layer", "position"), "attn", "mlp", "head"])
def test_a_grid_is_that_of_hooks(over):
    model = regard.load(golden.FOLDER / CASE)
    texts = (model.tokenizer.from_ids(ids) for ids in (CLEAN, CORRUPTED))
    grid = patch_grid(model, *texts, (TO, VERSUS), over=over)
    values, clean, corrupted = patched_by_hooks(over)
    np.testing.assert_allclose(grid.values, values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grid.recovered, (values - corrupted) / (clean - corrupted), rtol=1e-3, atol=1e-4)


SENDER, RECEIVER, LAYERS = (0, 1), (2, 0), 3
SIZES = {"gpt2": {"n_layer": LAYERS}, "llama": {"num_hidden_layers": LAYERS}}


@pytest.fixture(scope="module", params=SIZES)
def three_layers(request, transformers, tmp_path_factory):
    """Return a random model of three layers in transformers and in regard, in float64."""
    folder = tmp_path_factory.mktemp("model")
    with make_golden.doubles_throughout():
        peer = make_golden.make_model(request.param, "plain", 0, "float64", **SIZES[request.param])
    make_golden.write_checkpoint(peer, folder)
    return peer, regard.load(folder, dtype=np.float64)


@torch.no_grad()
def path_by_hooks(peer, into, freeze_mlps):
    """Return the numbers of the run with the path, and of the clean and the corrupted run."""
    is_gpt2 = hasattr(peer, "transformer")
    blocks = peer.transformer.h if is_gpt2 else peer.model.layers
    config, T = peer.config, len(CLEAN)
    H = config.num_attention_heads
    kv = H if is_gpt2 else config.num_key_value_heads
    width = config.hidden_size // H if is_gpt2 else config.head_dim

    def merging(layer):  # the module that reads the contexts of the heads
        return blocks[layer].attn.c_proj if is_gpt2 else blocks[layer].self_attn.o_proj

    def run(ids, before=(), after=()):
        """Run with changes of what modules read, and of what they return."""
        hooks = [m.register_forward_pre_hook(lambda _, x, f=f: (f(x[0].clone()),)) for m, f in before]
        hooks += [m.register_forward_hook(lambda _, __, y, f=f: f(y.clone())) for m, f in after]
        with make_golden.doubles_throughout():
            logits = peer(torch.tensor([ids])).logits[0, -1]
        for hook in hooks:
            hook.remove()
        return float(logits[TO] - logits[VERSUS])

    def contexts(ids):
        kept = {}
        keep = [(merging(i), lambda x, i=i: kept.setdefault(i, x)) for i in range(LAYERS)]
        outputs = [(block.mlp, lambda y, i=i: kept.setdefault(f"mlp{i}", y)) for i, block in enumerate(blocks)]
        return run(ids, keep, outputs), kept

    def only(layer, head, other):  # the contexts of a layer, of which one head has another
        def change(x):
            frozen = old[layer].view(1, T, H, width).clone()
            frozen[:, :, head] = (x if other is None else other[layer]).view(1, T, H, width)[:, :, head]
            return frozen.view(x.shape)

        return merging(layer), change

    (clean, new), (corrupted, old) = contexts(CLEAN), contexts(CORRUPTED)
    (sends, head), (receives, to_head) = SENDER, RECEIVER
    frozen = [only(sends, head, new)] + [(merging(i), lambda x, i=i: old[i]) for i in range(sends + 1, receives)]
    mlps = [(blocks[i].mlp, lambda y, i=i: old[f"mlp{i}"]) for i in range(sends, receives)] if freeze_mlps else []
    reached = {}
    attn = blocks[receives].attn if is_gpt2 else blocks[receives].self_attn
    projection = attn.c_attn if is_gpt2 else getattr(attn, f"{into}_proj")
    run(CORRUPTED, frozen, [*mlps, (projection, lambda y: reached.setdefault("y", y))])
    number = to_head if into == "q" else to_head * kv // H
    start = number * width + ("qkv".index(into) * config.hidden_size if is_gpt2 else 0)

    def put(y):
        y[..., start : start + width] = reached["y"][..., start : start + width]
        return y

    value = run(CORRUPTED, [only(receives, to_head, None)], [(projection, put)])
    return value, clean, corrupted


@pytest.mark.parametrize("freeze_mlps", [False, True])
@pytest.mark.parametrize("into", ["q", "k", "v"])
def test_a_path_between_two_heads_is_that_of_hooks(three_layers, into, freeze_mlps):
    peer, model = three_layers
    value, clean, corrupted = path_by_hooks(peer, into, freeze_mlps)
    texts = [model.tokenizer.from_ids(ids) for ids in (CLEAN, CORRUPTED)]
    options = {"sender": SENDER, "receiver": RECEIVER, "into": into, "freeze_mlps": freeze_mlps}
    effect = path_patching(model, *texts, (TO, VERSUS), **options)
    assert abs(value - corrupted) > 1e-6
    np.testing.assert_allclose([effect.value, effect.clean, effect.corrupted], [value, clean, corrupted], atol=1e-10)
