"""AttnLRP of every family, against a gradient of PyTorch through the code of transformers with the rules of the paper.

What depends on the embeddings needs a gradient there, and parameters do not, so that the rules follow from the
operations: in a product of two such tensors half of each is detached; so are a divisor, the scale of a norm, and the
factor of an activation.
"""

import numpy as np
import pytest
import torch
from attribution_pairs import arguments, make_pair, number
from torch import Tensor
from torch.overrides import TorchFunctionMode

import golden
import make_golden
from regard.functional.attnlrp import ATTNLRP
from regard.functional.variable import gradients
from regard.metrics import attribute
from regard.trace.gradient_trace import GradientTrace
from sweeps import sweep_except

TOLERANCE = 1e-9  # of the largest, float64
FAMILIES = {name: [case for case in kind.cases if case != "long"] for name, kind in make_golden.CASES.items()}
LEFT_OUT = ("clip", *golden.WITHOUT_MAPS)  # a whole of two halves; refused
CASES = [(family, case) for family, cases in FAMILIES.items() if family not in LEFT_OUT for case in cases]
FIRST = [(family, FAMILIES[family][0]) for family, _ in CASES]
F = torch.nn.functional
PRODUCTS = {torch.matmul, torch.bmm, torch.einsum, torch.mul}
PRODUCTS |= {Tensor.matmul, Tensor.__matmul__, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}
QUOTIENTS = {torch.div, Tensor.div, Tensor.__truediv__, Tensor.div_}
ACTIVATIONS = {F.gelu, F.relu, F.silu, torch.tanh, Tensor.tanh, Tensor.clamp}
SCALES = {torch.rsqrt, torch.pow}  # of a norm; Gemma 4 writes a power
GATES = {torch.sigmoid}  # of gpt-oss, which writes its activation as a product with one
SOFTMAX_ROUTERS = ("gemma4_text", "mixtral", "qwen3_moe")  # in which a quotient makes a softmax of the largest logits


def depends(x):
    return isinstance(x, Tensor) and x.requires_grad


def half(x):
    return x / 2 + (x / 2).detach() if depends(x) else x


def through(x, y):
    """Return the result of an activation, of which all that reaches it passes: the ratio is held."""
    return x * torch.where(x == 0, 0, y / x).detach()  # 0: of an expert that is not chosen, in Llama 4


class Rules(TorchFunctionMode):
    """Replaces what has a rule; elsewhere the gradient is that of PyTorch."""

    def __init__(self, family):
        super().__init__()
        self.quotients = set() if family in SOFTMAX_ROUTERS else QUOTIENTS
        self.held = SCALES | GATES if family == "gpt_oss" else SCALES

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in PRODUCTS and sum(map(depends, args)) == 2:
            args = tuple(map(half, args))
        elif function in self.quotients and sum(map(depends, args)) == 2:
            args = (args[0], args[1].detach())
        elif function in ACTIVATIONS and depends(args[0]):
            return through(args[0], function(*args, **kwargs))
        elif function in self.held:
            return function(*args, **kwargs).detach()
        elif function is F.layer_norm and depends(args[0]):
            return layer_norm(*args, **kwargs)
        return function(*args, **kwargs)


def layer_norm(x, _, weight=None, bias=None, eps=1e-5):
    x = x - x.mean(-1, keepdim=True)
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt().detach()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def relevance_in_torch(peer, family, given):
    """Return the number of a run, and gradient × input of each vector of the embeddings."""
    leaves = []

    def leaf(_, __, output):
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    def whole(module, inputs, output):
        return through(inputs[0], output.detach()) if depends(inputs[0]) else output

    peer.requires_grad_(False)
    for module in peer.modules():
        if type(module).__module__ == "transformers.activations":  # some are written as several operations
            module.register_forward_hook(whole)
    if "pixel_values" in given:
        embeddings = next(module for name, module in peer.named_modules() if name.endswith("embeddings"))
    else:
        embeddings = (peer.get_encoder() if peer.config.is_encoder_decoder else peer).get_input_embeddings()
    embeddings.register_forward_hook(leaf)
    with make_golden.doubles_throughout(), Rules(family):
        value = number(peer(**given))
    (slope,) = torch.autograd.grad(value, leaves[0])
    return value.item(), (slope * leaves[0])[0].sum(-1).detach().numpy()


@pytest.mark.parametrize("case", sweep_except([*FIRST, ("t5", "gated"), ("gemma2", "capped")], CASES), ids="-".join)
def test_relevance_is_a_gradient_with_the_rules_of_the_paper(transformers, tmp_path, case):
    peer, model = make_pair(*case, tmp_path)
    peer = peer.language_model if case[0] == "llama4" else peer  # as a whole it fails without a picture
    config = peer.config if make_golden.reads_pictures(peer.config) else make_golden.text_config(peer.config)
    arrays = make_golden.model_inputs(config, (6,), (3,))
    given = {name: torch.tensor(x) for name, x in arrays.items() if not name.endswith("mask")}
    if "decoder_input_ids" in given:  # the first token of a target alone
        given["decoder_input_ids"] = given["decoder_input_ids"][:, :1]
    if "input_ids" in arrays:
        encoding = model.tokenizer.from_ids(arrays["input_ids"][0].tolist())
        found = attribute(model, encoding, method="attnlrp", **arguments(peer))
        value, scores = found.value, found.scores
    else:
        trace = GradientTrace("embeddings", rules=ATTNLRP)
        hidden = model(arrays, trace=trace).hidden[0, 1, 4]
        (slope,) = gradients(hidden, trace.leaves)
        value, scores = hidden.value, (slope * trace["embeddings"])[0].sum(-1)
    expected_value, expected = relevance_in_torch(peer, case[0], given)
    assert value == pytest.approx(expected_value, rel=TOLERANCE)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
