"""Gradients of every family with respect to all of its arrays and steps, against PyTorch's autograd of transformers."""

import copy
import sys
from contextlib import ExitStack

import numpy as np
import pytest
import torch

import make_golden
import regard
from regard import functional as F
from regard.nn import parameters, value_and_gradients
from sweeps import sweep_except

KINDS = {family: kind for family, kind in make_golden.CASES.items() if not kind.nested}
WIDE = [(family, case, "float64") for family, kind in KINDS.items() for case in kind.cases]
NARROW = [(family, case, "float32") for family, case, _ in WIDE]
FIRST = [(family, next(iter(kind.cases)), "float32") for family, kind in KINDS.items()]
TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
STEPS = ("*.output", "*.q", "*.k", "*.v", "*.context")


@pytest.mark.parametrize("case", sweep_except(WIDE + FIRST, WIDE + NARROW), ids="-".join)
def test_gradients_are_those_of_autograd(transformers, tmp_path, case):
    family, case, dtype = case
    tolerance = TOLERANCES[dtype]
    with make_golden.doubles_throughout() if dtype == "float64" else ExitStack():
        peer = Peer(transformers, family, case, tmp_path, dtype)
    model = regard.load(tmp_path, dtype=np.dtype(dtype))
    texts, target = peer.inputs(model)

    for metric in peer.metrics:
        with make_golden.doubles_throughout() if dtype == "float64" else ExitStack():
            value, of_arrays, of_steps, of_weights = peer.gradients(metric)

        def compute(output, metric=metric):
            return metric(output, np, F.cross_entropy)

        found = model.gradients(texts, compute, at=STEPS, **target)
        close_to_value = pytest.approx(value, rel=tolerance, abs=tolerance)  # of logits and features, about 1 large
        assert found.value == close_to_value
        ours = steps_of(found.gradients)
        scopes = [name.removesuffix(".q") for name in ours if name.endswith(".q") and peer.is_probed]
        scopes = [scope for scope in scopes if not scope.endswith("linear_attn")]  # whose steps are not probed
        named = {
            f"{scope}.{step}": x for scope, steps in zip(scopes, of_steps, strict=True) for step, x in steps.items()
        }
        for i, source in enumerate(getattr(model.config, "kv_layers", ())):  # theirs is of all layers that read them
            for name in "kv" if source != i else ():
                named.pop(f"blocks.{i}.attn.{name}", None)
        blocks = [name for name in ours if name.endswith(".output") and name.split(".")[-2].isdigit()]
        named |= dict(zip((name for name in blocks if name not in peer.last(blocks)), peer.states(), strict=True))
        assert_close({name: ours[name] for name in named}, named, tolerance)

        if peer.is_probed:
            maps = model.gradients(texts, compute, at="*.weights", **target)
            named = dict(zip((f"{scope}.weights" for scope in scopes), of_weights, strict=True))
            named = {name: x * (maps.values[name] > 0) for name, x in named.items()}  # a masked one has any gradient
            ours = {name: x * (maps.values[name] > 0) for name, x in steps_of(maps.gradients).items()}
            assert_close(ours, named, tolerance)

        number, gradients = value_and_gradients(model, lambda m, compute=compute: compute(m(texts, **target)))
        assert number == close_to_value
        assert_close(gradients, peer.as_parameters(of_arrays, tmp_path), tolerance)


def steps_of(trace):
    return {name: trace[name] for name in trace.names()}


def assert_close(ours, expected, tolerance):
    assert ours.keys() == expected.keys()
    largest = max(np.abs(x).max() for x in expected.values())
    assert largest > 0
    for name, x in expected.items():
        np.testing.assert_allclose(ours[name], x, rtol=0, atol=tolerance * largest, err_msg=name)


class Peer:
    """A tiny model of transformers with random numbers, whose checkpoint is in a folder."""

    def __init__(self, transformers, family, case, folder, dtype):
        self.dtype = dtype
        model = make_golden.make_model(family, case, 0, dtype)
        make_golden.write_checkpoint(model, folder)
        self.config = model.config
        self.looks = make_golden.reads_pictures(self.config)
        self.model, self.transformers = model, transformers
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                module.padding_idx = None  # else PyTorch leaves out the gradient of that row
        for tensor in model.state_dict(keep_vars=True).values():
            if tensor.is_floating_point():
                tensor.requires_grad_()
        self.calls = []
        self.is_probed = hasattr(sys.modules[type(model).__module__], "eager_attention_forward")
        if self.is_probed:  # others compute attention in code of their own
            transformers.AttentionInterface.register("probe", self.probe)
            transformers.AttentionMaskInterface.register(
                "probe", transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"]
            )
            model.set_attn_implementation("probe")
        long = (make_golden.LONG,), (make_golden.LONG - 7,)
        lengths = long if case == "long" else (make_golden.LENGTHS, make_golden.TARGET_LENGTHS)
        self.arrays = make_golden.model_inputs(self.config, *lengths)
        if self.looks:
            self.arrays["pixel_values"] = self.arrays["pixel_values"].astype(dtype)

    def probe(self, module, query, key, value, attention_mask, **options):
        """Compute attention as the model does, and keep its arrays."""
        eager = sys.modules[type(module).__module__].eager_attention_forward
        output, weights = eager(module, query, key, value, attention_mask, **options)
        kept = {"q": query, "k": key, "v": value, "context": output}
        for x in (*kept.values(), weights):
            x.retain_grad()
        self.calls.append((kept, weights))
        return output, weights

    @property
    def metrics(self):
        """Functions of an output, whatever the library: the loss and a logit, or a sum with weights for an encoder."""
        if self.looks:
            projected = "embedding" if self.config.model_type == "clip_vision_model" else "pooled"
            return [lambda o, *_: (o.hidden[0] * o.hidden[-1]).sum(), lambda o, *_: getattr(o, projected)[-1, 4]]
        side = "decoder_" if self.config.is_encoder_decoder else ""
        ids, mask = self.arrays[f"{side}input_ids"], self.arrays[f"{side}attention_mask"]
        targets = np.where(mask[:, 1:], ids[:, 1:], -100)
        if self.model.can_generate():
            return [
                lambda o, _, cross_entropy: cross_entropy(o.logits[:, :-1], targets),
                lambda o, *_: o.logits[0, 2, 7] - o.logits[0, 2, 3],
            ]
        shape = (*ids.shape, getattr(self.config, "hidden_size", None) or self.config.dim)
        weights = np.random.default_rng(5).standard_normal(shape).astype(self.dtype) * mask[..., None]
        return [lambda o, xp, _: (o.hidden * xp.asarray(weights)).sum()]

    def inputs(self, model):
        """Return the texts of regard's model, and its target if it has one."""

        def texts(side):
            ids, mask = self.arrays[f"{side}input_ids"], self.arrays[f"{side}attention_mask"]
            return [model.tokenizer.from_ids(row[: m.sum()]) for row, m in zip(ids.tolist(), mask, strict=True)]

        if self.looks:
            return self.arrays, {}
        return texts(""), {"target": texts("decoder_")} if self.config.is_encoder_decoder else {}

    def gradients(self, metric):
        """Return the value, and the gradients of all arrays, of q, k, v and context and of the weights."""
        self.calls.clear()
        self.model.zero_grad()
        for tensor in self.model.buffers():
            tensor.grad = None
        output = self.model(**{name: torch.tensor(x) for name, x in self.arrays.items()}, output_hidden_states=True)
        if self.config.is_encoder_decoder:
            hidden = output.encoder_hidden_states[1:-1] + output.decoder_hidden_states[1:-1]
        else:
            hidden = output.hidden_states[1:-1]
        self.hidden = [x for x in hidden if x.requires_grad]
        for x in self.hidden:
            x.retain_grad()
        if not self.model.can_generate():
            output.hidden = output.last_hidden_state
            output.pooled, output.embedding = output.get("pooler_output"), output.get("image_embeds")
        value = metric(
            output,
            torch,
            lambda logits, targets: torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), torch.tensor(targets).flatten()
            ),
        )
        value.backward()
        arrays = {
            name: np.zeros(x.shape, self.dtype) if x.grad is None else x.grad.numpy()
            for name, x in self.model.state_dict(keep_vars=True).items()
        }
        steps = [{name: _gradient(x, name) for name, x in kept.items()} for kept, _ in self.calls]
        if self.config.model_type == "opt":  # which scales its queries, in place of the scores
            for kept in steps:
                kept["q"] = kept["q"] * kept["q"].shape[-1] ** -0.5
        return float(value.detach()), arrays, steps, [_gradient(x, "weights") for _, x in self.calls]

    def states(self):
        """Return the gradients of the outputs of the blocks, but the last of each stack."""
        return [_gradient(x, "output") for x in self.hidden]

    def last(self, blocks):
        """Return the names of the last block of each stack, whose output transformers gives with a norm after it."""
        return {
            [name for name in blocks if name.startswith(stack)][-1] for stack in {b.split("blocks.")[0] for b in blocks}
        }

    def as_parameters(self, arrays, folder):
        """Return arrays of transformers under the names of regard: loaded as if they were the weights."""
        other, twin = folder / "gradients", copy.deepcopy(self.model)
        twin.load_state_dict({name: torch.tensor(x) for name, x in arrays.items()})
        twin.save_pretrained(other)  # whose names and shapes may be others than those in memory
        for name in ("config.json", *([] if self.looks else ["tokenizer.json"])):
            (other / name).write_bytes((folder / name).read_bytes())
        (other / "generation_config.json").unlink(missing_ok=True)
        found = dict(parameters(regard.load(other, dtype=np.dtype(self.dtype))))
        if self.config.model_type.startswith(("gemma2", "gemma3", "qwen3_next")):  # whose norms are stored less 1
            whole = "linear_attn.norm.weight"
            found = {name: x - ("norm" in name and not name.endswith(whole)) for name, x in found.items()}
        return found


def _gradient(x, name):
    found = torch.zeros_like(x) if x.grad is None else x.grad
    return (found.transpose(1, 2) if name == "context" else found).numpy()
