"""The mapping that a tokenizer of transformers returns, in regard and in transformers."""

import numpy as np
import pytest
import torch

import golden
import make_golden
import regard

PICTURES = {"clip", "clip_vision_model", "dinov2", "llama4", "vit"}  # which need more than ids
FAMILIES = [(family, next(iter(kind.cases))) for family, kind in make_golden.CASES.items() if family not in PICTURES]
TEXTS = ["The cat sat on the mat", "A dog"]


def padded(side, dtype=np.int64):
    """Return ids of three texts with padding at a side, 0 where the tokenizer has its padding token."""
    rng = np.random.default_rng(5)
    mask = np.arange(6) < np.array([6, 2, 4])[:, None]
    mask = mask[:, ::-1] if side == "left" else mask
    return np.where(mask, rng.integers(5, 23, mask.shape), 0), mask.astype(dtype)


@pytest.mark.parametrize(("family", "case"), FAMILIES)
def test_padding_means_what_it_means_in_transformers(transformers, tmp_path, family, case):
    theirs = make_golden.make_model(family, case, 0, "float32")
    make_golden.write_checkpoint(theirs, tmp_path)
    model = regard.load(tmp_path)
    for side in ("right", "left"):
        ids, mask = padded(side)
        ids = np.where(mask, ids, make_golden.text_config(theirs.config).pad_token_id or 0)
        given, target = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}, {}
        if theirs.config.is_encoder_decoder:
            decoder = {"decoder_input_ids": given["input_ids"], "decoder_attention_mask": given["attention_mask"]}
            target = {"target": given}
        with torch.no_grad():
            out = theirs(**given, **(decoder if target else {}), output_hidden_states=True)
        expected = (out.decoder_hidden_states if target else out.hidden_states)[-1].numpy()
        if family == "clip_text_model":  # whose last state is given without its norm
            expected = out.last_hidden_state.numpy()
        ours = model(given, **target).hidden
        assert ours.shape == expected.shape
        rtol = 1e-3 if family == "gemma4" else 1e-4  # theirs is 1.4e-4 from float64, ours 3e-6
        np.testing.assert_allclose(ours[mask > 0], expected[mask > 0], rtol=rtol, atol=2e-5, err_msg=side)


@pytest.mark.parametrize("kind", ["np", "pt", None])
def test_the_first_thing_that_a_user_of_transformers_types(peer, minilm, kind):
    tokenizer, theirs = peer
    one = tokenizer(TEXTS[0], return_tensors=kind)
    both = tokenizer(TEXTS, return_tensors=kind, padding=kind is not None)
    np.testing.assert_array_equal(minilm(one).hidden.reshape(8, -1), minilm(TEXTS[0]).hidden[0])
    np.testing.assert_array_equal(minilm(both).hidden, minilm(TEXTS).hidden)
    np.testing.assert_array_equal(minilm.embed(both), minilm.embed(TEXTS))
    with torch.no_grad():
        expected = theirs(**tokenizer(TEXTS, return_tensors="pt", padding=True)).last_hidden_state.numpy()
    np.testing.assert_allclose(minilm(both).hidden[0], expected[0], rtol=1e-4, atol=1e-5)
    pair = tokenizer(*TEXTS, return_tensors=kind)
    with pytest.raises(regard.RegardError, match="token_type_ids must be 0"):
        minilm(pair)


@pytest.mark.parametrize("case", ["gpt2/plain", "llama/plain", "llama/dynamic", "qwen3/windows", "qwen3_next/plain"])
def test_padding_on_the_left_of_prompts(transformers, tmp_path, case):
    """transformers counts positions of a prompt from its first token, by its attention_mask."""
    family, name = case.split("/")
    make_golden.write(family, name, tmp_path, dtype="float32")
    theirs = getattr(transformers, make_golden.CASES[family].model).from_pretrained(tmp_path, dtype=torch.float32)
    theirs.config._experts_implementation = "eager"
    theirs.generation_config = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, pad_token_id=0)
    ids, mask = padded("left")
    given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    expected = theirs.eval().generate(**given)[:, 6:].numpy()
    for one, row in zip(regard.load(tmp_path).generate(given, max_new_tokens=8), expected, strict=True):
        assert list(one.ids) == row[: len(one.ids)].tolist()
        assert len(one.ids) == 8 or one.finish_reason == "eos"


def test_the_golden_cases_cover_every_family():
    assert {family for family, _ in FAMILIES} | PICTURES == {case.split("/")[0] for case in golden.KEPT}


@pytest.mark.parametrize("case", ["bert/gelu", "llama/plain", "t5/relu"])
def test_tensors_are_the_ids_that_they_hold(case):
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    ids, mask = padded("right")
    tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    arrays = {"input_ids": ids, "attention_mask": mask}
    np.testing.assert_array_equal(model(tensors).hidden, model(arrays).hidden)
    np.testing.assert_array_equal(model({"input_ids": torch.tensor(ids[0])}).hidden, model(ids[0]).hidden)
