"""The encoders and encoder-decoders inside models with a head, as transformers writes each of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import make_golden
import regard

IDS = np.array([[5, 7, 11, 19, 6], [9, 13, 17, 8, 22]])
HEADS = {
    "bart": ("BartModel", "BartForSequenceClassification", "BartForQuestionAnswering"),
    "bert": ("BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForQuestionAnswering"),
    "roberta": ("RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaForQuestionAnswering"),
    "t5": ("T5Model", "T5ForQuestionAnswering"),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaForTokenClassification", "XLMRobertaForMultipleChoice"),
}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family, kinds in HEADS.items() for kind in kinds])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_vectors_that_the_head_is_given(transformers, tmp_path, family, kind, dtype):
    import torch

    case = make_golden.CASES[family]
    config = getattr(transformers, case.config)(**case.sizes)
    with make_golden.doubles_throughout():
        model = make_golden.drawn(getattr(transformers, kind)(config).eval(), 3).to(getattr(torch, dtype))
        copy.deepcopy(model).save_pretrained(tmp_path)
        make_golden.write_tokenizer(tmp_path, config)
        base = getattr(model.double(), model.base_model_prefix, model)
        ids = torch.tensor(IDS)
        given = {"decoder_input_ids": ids.flip(0)} if config.is_encoder_decoder else {}
        with torch.no_grad():
            out = base(ids, output_hidden_states=True, **given)
    theirs = out.decoder_hidden_states[-1] if config.is_encoder_decoder else out.last_hidden_state
    ours = regard.load(tmp_path, dtype=np.float64)(IDS, *([IDS[::-1]] if config.is_encoder_decoder else []))
    np.testing.assert_allclose(ours.hidden, theirs.numpy(), rtol=0, atol=1e-10)
