"""Models with the head of any task, without one, and with one that differs, as transformers has them."""

import json

import numpy as np
import pytest
import torch
from transformers.models.auto import modeling_auto
from transformers_models import T5
from written_models import FIELDS, IDS as LONG_IDS, written

import make_golden
import regard
from regard import RegardError
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.models import FAMILIES
from regard.models.encoder_decoder import EncoderDecoder

TASKS = (
    "CAUSAL_LM", "MASKED_LM", "MULTIPLE_CHOICE", "NEXT_SENTENCE_PREDICTION", "PRETRAINING", "QUESTION_ANSWERING",
    "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION",
)  # fmt: skip
MORE = {"pad_token_id": 0}  # which classifiers need
OF_TYPE = {
    **{name: {"type_vocab_size": 2} for name in ("albert", "bert", "electra", "nomic_bert")},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p"]},
    "bart": {**FIELDS["bart"], "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 4},
    "mt5": T5,
    "t5": T5,
}
WITHOUT = ("bart-CAUSAL_LM", "clip", "dinov2", "llama4-", "vit")  # a decoder of its own, and models of pictures


def cases():
    for model_type in FAMILIES:
        for task in TASKS:
            names = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
            if model_type in names and not f"{model_type}-{task}".startswith(WITHOUT):
                yield pytest.param(model_type, names[model_type], id=f"{model_type}-{task.lower()}")


@pytest.mark.parametrize(("model_type", "kind"), [*cases()])
def test_the_hidden_states_of_transformers(transformers, tmp_path, model_type, kind):
    kind = getattr(transformers, kind)
    model = written(transformers, tmp_path, model_type, kind=kind, **(MORE | OF_TYPE.get(model_type, {})))
    ours = regard.load(tmp_path)
    target = [LONG_IDS] if isinstance(ours, EncoderDecoder) else []
    with torch.no_grad():
        inner = getattr(model, model.base_model_prefix, model)
        more = {"decoder_input_ids": torch.tensor(LONG_IDS)} if target else {}
        expected = inner(torch.tensor(LONG_IDS), output_hidden_states=True, **more)
    steps = next(name for name in ("decoder_hidden_states", "hidden_states") if name in expected)
    hidden = expected.last_hidden_state if "last_hidden_state" in expected else expected[steps][-1]
    scale = np.abs(hidden.numpy()).max()
    np.testing.assert_allclose(ours(np.array(LONG_IDS), *target).hidden, hidden.numpy(), rtol=1e-4, atol=2e-5 * scale)


IDS = np.array([[5, 7, 11, 19, 6], [9, 13, 17, 8, 22]])


@pytest.mark.parametrize(
    ("family", "case"),
    [
        ("gpt2", "plain"), ("llama", "tied"), ("mistral", "tied"), ("qwen2", "types"), ("qwen3", "types"),
        ("gemma2", "plain"), ("gpt_oss", "types"), ("bart", "tied"), ("t5", "relu"), ("mt5", "plain"),
        ("gemma3_text", "plain"), ("phi3", "partial"), ("gpt_neo", "plain"), ("opt", "plain"),
    ],
)  # fmt: skip
def test_a_head_that_differs_though_the_configuration_ties_it(transformers, tmp_path, family, case):
    make_golden.write_checkpoint(make_golden.make_model(family, case, 0, "float32"), tmp_path)
    file = SafetensorsFile(tmp_path / "model.safetensors")
    tensors = {name: np.array(file[name]) for name in file}
    (table,) = (tensors[n] for n in tensors if n.endswith(("embed_tokens.weight", "wte.weight", "shared.weight")))
    head = np.random.default_rng(0).standard_normal(table.shape).astype(table.dtype)
    write_safetensors(tmp_path / "model.safetensors", {**tensors, "lm_head.weight": head}, {"format": "pt"})
    theirs = getattr(transformers, make_golden.CASES[family].model).from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    ids = torch.tensor(IDS)
    given = {"decoder_input_ids": ids.flip(0)} if theirs.config.is_encoder_decoder else {}
    with torch.no_grad():
        expected = theirs.eval()(ids, **given).logits.numpy()
    ours = regard.load(tmp_path)(IDS, *([IDS[::-1]] if given else []))
    np.testing.assert_allclose(ours.logits, expected, rtol=0, atol=1e-4)  # a dozen features, each within 1e-5


def test_forced_tokens(transformers, tmp_path):
    make_golden.write("bart", "tied", tmp_path, dtype="float32")
    forced = {"forced_bos_token_id": 7, "forced_eos_token_id": 9, "decoder_start_token_id": 5}
    theirs = transformers.BartForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    theirs.generation_config = transformers.GenerationConfig(
        **forced, eos_token_id=9, pad_token_id=1, max_new_tokens=8, do_sample=False
    )
    theirs.generation_config.save_pretrained(tmp_path)
    (out,) = theirs.generate(torch.tensor(IDS[:1])).tolist()
    ours = regard.load(tmp_path)
    assert (ours.start_id, *ours.generate(list(IDS[0]), max_new_tokens=8).ids) == tuple(out)


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token_id": 9, "eos_token_id": 1},
        {"eos_token_id": 1},
        {"decoder_start_token_id": [3]},
        {"decoder_start_token_id": 6, "bos_token_id": 9},
        {"decoder_start_token_id": None, "bos_token_id": [4]},
    ],
)
@pytest.mark.parametrize(("family", "case"), [("t5", "relu"), ("bart", "tied")])
def test_the_token_to_generate_from(transformers, tmp_path, family, case, settings):
    """That of generation_config.json where there is one; config.json's is for targets that are given."""
    make_golden.write(family, case, tmp_path, dtype="float32")
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    model = getattr(transformers, make_golden.CASES[family].model)
    theirs, ours = model.from_pretrained(tmp_path, dtype=torch.float32).eval(), regard.load(tmp_path)

    def expected():
        return theirs.generate(torch.tensor(IDS[:1]), max_new_tokens=6, do_sample=False)[0].tolist()

    if not {"decoder_start_token_id", "bos_token_id"} & {*settings}:
        with pytest.raises(ValueError, match="`decoder_start_token_id` or `bos_token_id` has to be defined"):
            expected()
        with pytest.raises(RegardError, match="names no token to generate from: write decoder_start_token_id or bos"):
            ours.generate(list(IDS[0]), max_new_tokens=6)
        assert np.isfinite(ours(list(IDS[0]), list(IDS[1])).logits).all()
    else:
        assert [ours.start_id, *ours.generate(list(IDS[0]), max_new_tokens=6).ids] == expected()
