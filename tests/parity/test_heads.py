"""Models with heads of other kinds than their own, without one, and with one that differs, as transformers has them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import make_golden
import regard
from regard.formats.safetensors import SafetensorsFile, write_safetensors

IDS = np.array([[5, 7, 11, 19, 6], [9, 13, 17, 8, 22]])
HEADS = {
    "bart": ("BartModel", "BartForSequenceClassification", "BartForQuestionAnswering"),
    "gpt2": ("GPT2Model", "GPT2ForSequenceClassification"),
    "llama": ("LlamaModel", "LlamaForSequenceClassification"),
    "mistral": ("MistralModel",),
    "qwen2": ("Qwen2Model", "Qwen2ForSequenceClassification"),
    "bert": ("BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForQuestionAnswering"),
    "roberta": ("RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaForQuestionAnswering"),
    "t5": ("T5Model", "T5ForQuestionAnswering"),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaForTokenClassification", "XLMRobertaForMultipleChoice"),
}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family, kinds in HEADS.items() for kind in kinds])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_vectors_that_the_head_is_given(transformers, tmp_path, family, kind, dtype):
    case = make_golden.CASES[family]
    config = getattr(transformers, case.config)(**case.sizes)
    with make_golden.doubles_throughout():
        model = make_golden.drawn(getattr(transformers, kind)(config).eval(), 3).double()
        stored = copy.deepcopy(model).to(getattr(torch, dtype))  # a copy, for what is not stored keeps its precision
        stored.save_pretrained(tmp_path)
        model.load_state_dict(stored.state_dict())
        make_golden.write_tokenizer(tmp_path, config)
        base = getattr(model, model.base_model_prefix, model)
        ids = torch.tensor(IDS)
        given = {"decoder_input_ids": ids.flip(0)} if config.is_encoder_decoder else {}
        with torch.no_grad():
            out = base(ids, output_hidden_states=True, **given)
    theirs = out.decoder_hidden_states[-1] if config.is_encoder_decoder else out.last_hidden_state
    ours = regard.load(tmp_path, dtype=np.float64)(IDS, *([IDS[::-1]] if config.is_encoder_decoder else []))
    np.testing.assert_allclose(ours.hidden, theirs.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("family", "case"),
    [
        ("gpt2", "plain"), ("llama", "tied"), ("mistral", "tied"), ("qwen2", "types"), ("qwen3", "types"),
        ("gemma2", "plain"), ("gpt_oss", "types"), ("bart", "tied"), ("t5", "relu"),
        ("gemma3_text", "plain"), ("phi3", "partial"), ("gpt_neo", "plain"), ("opt", "plain"),
    ],
)  # fmt: skip
def test_a_head_that_differs_though_the_configuration_ties_it(transformers, tmp_path, family, case):
    make_golden.write(family, case, tmp_path, dtype="float32")
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
