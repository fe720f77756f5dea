"""Grids of patched runs beside forward hooks of PyTorch on a model of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import golden
import regard
from regard.metrics import patch_grid

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
