"""A few steps of training of every family and configuration, against transformers with PyTorch's AdamW."""

import copy
import json

import numpy as np
import pytest
import torch

import make_golden
import regard
from regard import training

UNTRAINED = ("vit", "dinov2", *make_golden.TEXT_PART_ONLY)  # or trained as the type of the part is
TRAINED = [family for family in make_golden.CASES if family not in UNTRAINED and not family.startswith("clip")]
UNTIED = {"tie_word_embeddings": False}
CASES = [
    *((family, case, {}) for family in TRAINED for case in make_golden.CASES[family].cases),
    ("modernbert", "biased", {"classifier_activation": "relu", "classifier_bias": True, "decoder_bias": False}),
    *((family, "gelu", UNTIED) for family in ("bert", "roberta", "distilbert")),
    ("electra", "narrow", UNTIED),
    ("albert", "shared", UNTIED),
    ("deberta-v2", "plain", {"legacy": False}),
]
STEPS = 4
RATES = {"learning_rate": 3e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)}


@pytest.mark.parametrize(("family", "case", "options"), CASES)
def test_training_is_that_of_transformers(transformers, tmp_path, family, case, options):
    with make_golden.doubles_throughout():
        peer = make_peer(transformers, family, case, **options)
        copy.deepcopy(peer).half().save_pretrained(tmp_path)
        make_golden.write_tokenizer(tmp_path, peer.config)
        batches = [make_batch(peer, seed) for seed in range(STEPS)]
        expected = trained(peer, batches)

    trainable = training.Trainable.from_model(tmp_path, dtype=np.float64)
    run = regard.train(trainable, batches, steps=STEPS, schedule="constant", folder=tmp_path / "run", **RATES)
    np.testing.assert_allclose([step.loss for step in run.steps], expected, rtol=1e-10)
    assert expected[-1] != pytest.approx(expected[0], rel=1e-5)
    if options:
        return  # a head that transformers saves in another way

    with make_golden.doubles_throughout():
        saved, problems = type(peer).from_pretrained(run.checkpoint, dtype=torch.float64, output_loading_info=True)
    problems["missing_keys"] -= {"model.shared.weight"}  # which an untied BART has, and does not use
    assert not any(problems.values())
    theirs = dict(peer.named_parameters())
    for name, x in saved.named_parameters():
        if name == "model.shared.weight" and not peer.config.tie_word_embeddings:
            continue
        difference = (x - theirs[name]).abs().max().item()
        assert difference < 1e-9, name


@pytest.mark.parametrize("family", TRAINED)
def test_a_new_model_is_loaded_by_transformers(transformers, tmp_path, family):
    peer = make_peer(transformers, family, next(iter(make_golden.CASES[family].cases)))
    peer.config.save_pretrained(tmp_path)
    make_golden.write_tokenizer(tmp_path, peer.config)
    tokenizer = regard.text.SubwordTokenizer.from_file(tmp_path / "tokenizer.json")
    config = json.loads((tmp_path / "config.json").read_text())
    new = training.new_model(config, tokenizer, dtype=np.float64)
    batch = make_batch(peer, 0)
    run = regard.train(new, [batch], steps=1, learning_rate=1e-12, folder=tmp_path / "run")
    saved, problems = type(peer).from_pretrained(run.checkpoint, dtype=torch.float64, output_loading_info=True)
    assert not any(problems.values())
    saved.config._experts_implementation = "eager"
    assert run.steps[0].loss == pytest.approx(trained(saved, [batch])[0], rel=1e-5)  # whose rotations are float32


def make_peer(transformers, family, case, **options):
    """Return a model with the head that it is trained with."""
    kind = make_golden.CASES[family]
    config = getattr(transformers, kind.config)(**kind.sizes | kind.cases[case] | options)
    config._attn_implementation = config._experts_implementation = "eager"
    if config.is_encoder_decoder:
        config.decoder_start_token_id = make_golden._start(config)
    auto = "Seq2SeqLM" if config.is_encoder_decoder else "CausalLM" if is_decoder(kind) else "MaskedLM"
    model = getattr(transformers, f"AutoModelFor{auto}").from_config(config, attn_implementation="eager")
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # else PyTorch leaves out the gradient of that row, which is a token here too
    return make_golden.drawn(model.eval(), 0).double()  # without dropout


def is_decoder(kind):
    return kind.model.endswith(("ForCausalLM", "LMHeadModel"))


def make_batch(peer, seed):
    """Return a batch of regard's; texts of an encoder are padded, and so are targets."""
    rng, size = np.random.default_rng(seed), peer.config.vocab_size
    ids = rng.integers(5, size, (3, 6))
    mask = np.arange(6) < np.array([[6], [4], [5]])
    if peer.config.is_encoder_decoder:
        targets = np.where(np.arange(5) < np.array([[4], [5], [3]]), rng.integers(5, size, (3, 5)), -100)
        return training.Batch(ids, targets, mask)
    if is_decoder(make_golden.CASES[peer.config.model_type]):
        return training.Batch(ids[:, :-1], ids[:, 1:])
    batch = training.mask_words(ids, rng, mask_id=4, vocab_size=size, rate=0.3)
    return training.Batch(batch.ids, np.where(mask, batch.targets, -100), mask)


def trained(peer, batches):
    """Return the loss of each step."""
    named = dict(peer.named_parameters())
    decays = {name: p for name, p in named.items() if p.ndim > 1 and not name.endswith("bias")}
    others = [p for name, p in named.items() if name not in decays]
    groups = [{"params": list(decays.values()), "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for batch in batches:
        given = {"input_ids": torch.from_numpy(batch.ids), "labels": torch.from_numpy(batch.targets)}
        if is_decoder(make_golden.CASES[peer.config.model_type]):
            given["labels"] = torch.from_numpy(np.concatenate([batch.ids[:, :1], batch.targets], 1))
            given["input_ids"] = torch.from_numpy(np.concatenate([batch.ids, batch.targets[:, -1:]], 1))
        if batch.mask is not None:
            given["attention_mask"] = torch.from_numpy(batch.mask.astype(np.int64))
        loss = peer(**given).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
