"""Training beside PyTorch's own loop: the same start, batches, optimizer, clipping and schedule."""

import numpy as np
import pytest
import torch

import tiny_decoder
from regard import training

CONFIG = {
    "model_type": "gpt2", "vocab_size": 257, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32,
    "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
}  # fmt: skip


def batches(count):
    """Return batches that can be learned: each token is the one before plus one of few strides."""
    rng = np.random.default_rng(5)
    starts, strides = rng.integers(0, 64, (count, 8, 1)), rng.integers(1, 4, (count, 8, 1))
    return (starts + strides * np.arange(17)) % 64


def cross_entropy(model, batch):
    batch = torch.from_numpy(batch)
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 257), batch[:, 1:].reshape(-1))


def trained_by_pytorch(transformers, folder, dtype, ids):
    """Return the model after a step for each of `ids`, and the losses."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=getattr(torch, np.dtype(dtype).name))
    model.train()
    decays = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for step, batch in enumerate(ids):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * training.schedule_factor(step, steps=len(ids), warmup=20)
        loss = cross_entropy(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def trained(new, ids, **options):
    rates = {"learning_rate": 3e-3, "warmup": 20, "weight_decay": 0.1, "betas": (0.9, 0.95)}
    return training.train(new, ids, steps=len(ids), **rates, **options)


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [(np.float32, 20, 1e-4), (np.float64, 200, 1e-10)])
def test_steps_of_a_small_gpt_are_those_of_pytorch(transformers, tmp_path, dtype, steps, tolerance):
    """In float32 only the first ones: each multiplies the difference that rounding made of those before."""
    new = training.new_model(CONFIG, tiny_decoder.tokenizer(), seed=1, dtype=dtype)
    new.save(tmp_path)
    ids = batches(steps)
    _, expected = trained_by_pytorch(transformers, tmp_path, dtype, ids)
    run = trained(new, ids, folder=tmp_path / "run")
    losses = np.array([step.loss for step in run.steps])
    assert losses[-1] < (0.3 if steps == 200 else 0.9) * losses[0]
    np.testing.assert_allclose(losses, expected, rtol=0, atol=tolerance)

    text = ids[0][:, :-1]
    saved = transformers.GPT2LMHeadModel.from_pretrained(run.checkpoint, dtype=getattr(torch, np.dtype(dtype).name))
    with torch.no_grad():
        logits = saved(torch.from_numpy(text)).logits.numpy()
    ours = run.model.head(run.model.forward(text))
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-10)


def test_a_run_ends_with_the_evaluation_loss_of_pytorch(transformers, tmp_path):
    new = training.new_model(CONFIG, tiny_decoder.tokenizer(), seed=2, dtype=np.float64)
    new.save(tmp_path)
    ids = batches(140)
    ids, held_out = ids[:120], ids[120:].reshape(-1, ids.shape[-1])
    model, _ = trained_by_pytorch(transformers, tmp_path, np.float64, ids)
    with torch.no_grad():
        expected = cross_entropy(model.eval(), held_out).item()
    run = trained(new, ids, evaluation=[held_out])
    assert expected < 0.9 * run.steps[0].loss
    assert run.steps[-1].evaluation_loss == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_is_that_of_pytorch(dtype, weight_decay):
    rng = np.random.default_rng(0)
    size, decayed = 40_000, 20_000
    x = rng.standard_normal(size).astype(dtype)
    first, second = (torch.tensor(part, requires_grad=True) for part in (x[:decayed], x[decayed:]))
    groups = [{"params": [first], "weight_decay": weight_decay}, {"params": [second], "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.95), eps=1e-6)
    ours = training.AdamW(size, decayed, x.dtype, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay)
    for _ in range(20):
        gradient = (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 3, size)).astype(dtype)
        first.grad, second.grad = torch.from_numpy(gradient[:decayed]), torch.from_numpy(gradient[decayed:])
        theirs.step()
        ours.step(x, gradient, 1e-2)
    expected = np.concatenate([first.detach().numpy(), second.detach().numpy()])
    np.testing.assert_allclose(x, expected, rtol=0, atol=8 * np.finfo(dtype).eps)
