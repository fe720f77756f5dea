"""Tiny models of transformers whose captures are tested, their inputs, and comparisons."""

from __future__ import annotations

import copy

import numpy as np
import torch
from transformers_models import T5, TWO_STACKS

import make_golden
import regard

TOLERANCE = 1e-5
SMALL = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20}
GROUPED = {**SMALL, "num_key_value_heads": 2}
MODELS = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralModel", "MistralConfig", {**GROUPED, "sliding_window": 5}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 3}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**GROUPED, "head_dim": 6, "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 7},
    ),
    "gpt_oss": (
        "GptOssModel",
        "GptOssConfig",
        {
            **GROUPED,
            "head_dim": 6,
            "sliding_window": 4,
            "num_local_experts": 3,
            "num_experts_per_tok": 2,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}
ALBERT = {**SMALL, "embedding_size": 8, "num_hidden_layers": 4}
SHARED = {
    "albert": ("AlbertModel", "AlbertConfig", ALBERT),
    "albert of two groups": ("AlbertForMaskedLM", "AlbertConfig", {**ALBERT, "num_hidden_groups": 2}),
    "albert of pairs": ("AlbertModel", "AlbertConfig", {**ALBERT, "num_hidden_layers": 2, "inner_group_num": 2}),
}
SEQ2SEQ = {"bart": ("BartModel", "BartConfig", TWO_STACKS), "t5": ("T5Model", "T5Config", T5)}
WRITERS = {"bart with a head": ("BartForConditionalGeneration", "BartConfig", TWO_STACKS)}
ALONE_IN_EAGER = ("gemma2", "gpt_oss")  # transformers has no other attention on a processor with softcap or sinks
LENGTH = 13
_PICTURES = (
    "clip",
    "clip_vision_model",
    "dinov2",
    "vit",
    *make_golden.TEXT_PART_ONLY,
)  # the last: other names of steps
TEXT_FAMILIES = [family for family in make_golden.CASES if family not in _PICTURES]


def make_pair(transformers, kind, implementation=None):
    """Return a random model, and the same one that computes attention step by step."""
    model_kind, config_kind, sizes = (MODELS | SEQ2SEQ | WRITERS | SHARED)[kind]
    torch.manual_seed(3)
    config = getattr(transformers, config_kind)(**sizes)
    implementation = implementation or ("eager" if kind in ALONE_IN_EAGER else "sdpa")
    made = [
        getattr(transformers, model_kind)._from_config(copy.deepcopy(config), attn_implementation=name).eval()
        for name in (implementation, "eager")
    ]
    with torch.no_grad():
        for parameter in made[0].parameters():
            parameter.normal_(0, 0.4)
    made[1].load_state_dict(made[0].state_dict())
    return made


class FamilyPair:
    """A tiny model of transformers of a family of regard, and regard's own of the same weights, with inputs for both.

    Parameters
    ----------
    transformers : module
    family, case : str
        Those of `make_golden.CASES`.
    folder : Path
        Where the checkpoint is written.
    """

    def __init__(self, transformers, family, case, folder):
        kind = make_golden.CASES[family]
        sizes = {**kind.sizes, **kind.cases[case]}
        sizes.pop("chunk_size_feed_forward", None)
        config = getattr(transformers, kind.config)(**sizes)
        config._experts_implementation = "eager"
        self.theirs = make_golden.drawn(getattr(transformers, kind.model)(config).eval(), 0)
        self.theirs.save_pretrained(folder)
        make_golden.write_tokenizer(folder, config)
        self.ours = regard.load(folder)
        self._given = {"input_ids": self._ids(config, 6)}
        self._target = {}
        if config.is_encoder_decoder:
            ids = self._ids(config, 5)
            ids[:, 0] = make_golden._start(config)
            self._given["decoder_input_ids"] = ids
            self._target["target"] = self._texts(ids)

    def run_theirs(self, **capture):
        """Return the trace and the vectors, or logits, of a run inside a capture."""
        with regard.capture(self.theirs, **capture) as trace:
            output = self.theirs(**self._given)
        return trace, output.logits if "logits" in output else output.last_hidden_state

    def run_ours(self, **options):
        """Return the trace and the vectors, or logits, of regard's own model."""
        trace = regard.Trace(**options)
        output = self.ours(self._texts(self._given["input_ids"]), trace=trace, **self._target)
        return trace, getattr(output, "logits", None) if hasattr(self.theirs, "lm_head") else output.hidden

    def gradients(self, compute, at):
        """Return the gradients of a number at steps of regard's own model."""
        return self.ours.gradients(self._texts(self._given["input_ids"]), compute, at=at, **self._target).gradients

    def _ids(self, config, length):

        return torch.tensor(make_golden._batch(config, (length, length))[0])

    def _texts(self, ids):
        return [self.ours.tokenizer.from_ids(row) for row in ids.tolist()]


def inputs(padding="none", length=LENGTH):
    ids = torch.randint(3, 50, (2, length), generator=torch.Generator().manual_seed(5))
    if padding == "none":
        return {"input_ids": ids}
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    mask = {"right": mask, "left": mask.flip(1), "hole": mask.roll(-3, 1)}[padding]
    return {"input_ids": ids, "attention_mask": mask}


def run(model, given, **options):
    with torch.no_grad():
        return model(**given, **options)


def captured(model, given=None, *tokenizer, **options):
    """Return what a capture of a run records."""
    with regard.capture(model, *tokenizer, **options) as trace:
        run(model, inputs() if given is None else given)
    return trace


def close(ours, theirs, rows=None):
    """Compare ``B H T S``, where `rows`, ``B T``, are not padding: what those look at means nothing."""
    theirs = theirs.numpy()
    assert ours.shape == theirs.shape
    keep = np.ones(theirs.shape[:1] + theirs.shape[2:3], bool) if rows is None else rows
    np.testing.assert_allclose(ours.swapaxes(1, 2)[keep], theirs.swapaxes(1, 2)[keep], rtol=0, atol=TOLERANCE)
