"""Tiny models of transformers whose captures are tested, their inputs, and comparisons."""

import numpy as np
import torch
from transformers_models import make_model

import golden
import make_golden
import regard
import regard.torch

TOLERANCE = 1e-5
THREE_LAYERS = {"num_hidden_layers": 3}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
ALBERT = {"num_hidden_layers": 4, "num_key_value_heads": None}
MODELS = {  # of a type, with other sizes
    "bert": THREE_LAYERS,
    "llama": THREE_LAYERS,
    "mistral": THREE_LAYERS,
    "gpt2": {},
    "gemma2": {**THREE_LAYERS, "layer_types": WINDOWS, "sliding_window": 4},
    "gpt_oss": {**THREE_LAYERS, "layer_types": WINDOWS, "sliding_window": 4},
}
SHARED = {
    "albert": ALBERT,
    "albert of two groups": {**ALBERT, "num_hidden_groups": 2},
    "albert of pairs": {**ALBERT, "num_hidden_layers": 2, "inner_group_num": 2},
}
SEQ2SEQ = ("bart", "t5")
ALONE_IN_EAGER = ("gemma2", "gpt_oss")  # transformers has no other attention on a processor with softcap or sinks
LENGTH = 13
_PICTURES = ("clip", "clip_vision_model", "dinov2", "vit", *make_golden.TEXT_PART_ONLY)  # the last: other names
TEXT_FAMILIES = [family for family in make_golden.CASES if family not in (*_PICTURES, *golden.WITHOUT_SUMS)]


def make_pair(transformers, kind, implementation=None):
    """Return a random model, and the same one that computes attention step by step."""
    regard.torch.register()
    implementation = implementation or ("eager" if kind in ALONE_IN_EAGER else "sdpa")
    sizes = (MODELS | SHARED).get(kind, {})
    return [make_model(transformers, kind.split()[0], name, **sizes) for name in (implementation, "eager")]


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
        arrays = make_golden.model_inputs(config, (6, 6), (5, 5))
        self._given = {name: torch.tensor(x) for name, x in arrays.items() if name.endswith("input_ids")}
        ids = self._given.get("decoder_input_ids")
        self._target = {} if ids is None else {"target": self._texts(ids)}

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
