"""The tests that transformers has for every model, ``tests/test_modeling_common.py``, on tiny models of some types.

Its source distribution carries those tests, not the models they run on, nor the mixins of two other folders that they
import. Those of exports are left out, those of generation are ours. ``$REGARD_COMMON_TESTS`` is their folder. The
plugin puts regard in the place of ``"sdpa"``, the default.
"""

import os
import sys
import types
import unittest
from copy import deepcopy

import torch
import transformers

B, T, U = 4, 7, 5  # U: the target of an encoder-decoder
SIZES = {
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
SHARED_KEYS = {**SIZES, "num_key_value_heads": 2}
T5 = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
TWO_STACKS = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
TYPES = {  # the classes of each type, and its sizes
    "bart": ("BartModel BartForConditionalGeneration", TWO_STACKS),
    "bert": ("BertModel BertForMaskedLM BertForSequenceClassification BertForTokenClassification", SIZES),
    "gemma": ("GemmaModel GemmaForCausalLM", {**SHARED_KEYS, "head_dim": 8}),
    "gemma3_text": ("Gemma3TextModel Gemma3ForCausalLM", {**SHARED_KEYS, "head_dim": 8, "sliding_window": 5}),
    "gpt2": ("GPT2Model GPT2LMHeadModel", SIZES),
    "gpt_neox": ("GPTNeoXModel GPTNeoXForCausalLM", {**SIZES, **ROTARY}),
    "llama": ("LlamaModel LlamaForCausalLM", SHARED_KEYS),
    "mistral": ("MistralModel MistralForCausalLM", {**SHARED_KEYS, "sliding_window": 5}),
    "modernbert": (
        "ModernBertModel ModernBertForMaskedLM",
        {**SIZES, "local_attention": 4, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "qwen2": ("Qwen2Model Qwen2ForCausalLM", SHARED_KEYS),
    "roberta": ("RobertaModel RobertaForMaskedLM", {**SIZES, "pad_token_id": 1, "bos_token_id": 0}),
    "t5": ("T5Model T5ForConditionalGeneration", T5),
    "vit": ("ViTModel ViTForImageClassification", {**SIZES, "image_size": 12, "patch_size": 4}),
}
TWO_INPUTS = ("bart", "t5")  # encoder-decoders


class GenerationTests:
    """What ``generate`` writes with ``"eager"``, written with ``"sdpa"``; in the place of the mixin that is missing."""

    def assert_written_as_eager(self, padded, **options):
        for model_class in self.all_generative_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            torch.manual_seed(0)
            model = model_class(config).eval()
            for x in model.parameters():  # so that the two largest logits are not rounding apart
                x.data += torch.randn_like(x) / 4
            ids, mask = inputs["input_ids"], torch.ones_like(inputs["input_ids"])
            mask[0, :padded] = 0
            written = []
            for implementation in ("eager", "sdpa"):
                model.set_attn_implementation(implementation)
                options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, **options}
                written.append(model.generate(ids, attention_mask=mask, **options))
            assert torch.equal(*written), model_class.__name__

    def test_generate(self):
        self.assert_written_as_eager(padded=0)

    def test_generate_of_a_padded_batch(self):
        self.assert_written_as_eager(padded=3)

    def test_generate_with_beams(self):
        self.assert_written_as_eager(padded=3, num_beams=3)

    def test_generate_without_a_cache(self):
        self.assert_written_as_eager(padded=3, use_cache=False)

    def test_generate_with_a_static_cache(self):
        self.assert_written_as_eager(padded=3, cache_implementation="static", disable_compile=True)


def common_tests():
    """Return the mixin of the tests that all models share, out of the folder."""

    def module(name, **contents):
        made = sys.modules[name] = types.ModuleType(name)
        made.__path__ = []
        vars(made).update(contents)
        return made

    module("peer_tests").__path__ = [os.environ["REGARD_COMMON_TESTS"]]
    module("peer_tests.exporters")
    module("peer_tests.exporters.test_export", ExportTesterMixin=type("ExportTesterMixin", (), {}))
    module("peer_tests.generation")
    module("peer_tests.generation.test_utils", GenerationTesterMixin=GenerationTests)
    from peer_tests.test_modeling_common import ModelTesterMixin

    return ModelTesterMixin


class ModelTester:
    """Configurations and inputs of a type, under the names by which the common tests ask for them."""

    batch_size, seq_length, is_training, num_choices = B, T, True, 4
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4
    image_size, patch_size, num_masks = 12, 4, 3

    def __init__(self, parent, name):
        self.parent, self._name = parent, name
        if name in TWO_INPUTS:
            self.encoder_seq_length, self.decoder_seq_length = T, U
            self.seq_length = U
        if name == "vit":
            self.mask_length = (12 // 4) ** 2
            self.seq_length = self.mask_length + 1

    def get_config(self):
        return transformers.AutoConfig.for_model(self._name, **deepcopy(TYPES[self._name][1]))

    def prepare_config_and_inputs_for_common(self):
        generator = torch.Generator().manual_seed(3)
        config = self.get_config()
        if self._name == "vit":
            return config, {"pixel_values": torch.rand(B, 3, 12, 12, generator=generator)}
        ids = torch.randint(3, 99, (B, T), generator=generator)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._name in TWO_INPUTS:
            inputs["decoder_input_ids"] = ids[:, :U]
            inputs["decoder_attention_mask"] = torch.ones_like(ids[:, :U])
        return config, inputs


def make_tests(name, mixin):
    """Return the common tests of a type."""
    classes = tuple(getattr(transformers, class_name) for class_name in TYPES[name][0].split())
    generates = any(model_class.can_generate() for model_class in classes)
    bases = (mixin, *([GenerationTests] if generates else []), unittest.TestCase)

    def set_up(self):
        self.model_tester = ModelTester(self, name)

    contents = {"all_model_classes": classes, "is_encoder_decoder": name in TWO_INPUTS, "setUp": set_up}
    contents |= {"__module__": __name__, "test_resize_embeddings": name != "vit"}
    return type(classes[0].__name__ + "Test", bases, contents)


_MIXIN = common_tests()
globals().update({f"{name}_tests": make_tests(name, _MIXIN) for name in TYPES})
