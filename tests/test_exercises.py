"""The checks of ``docs/exercises.md`` tell what is wrong; that they accept the solutions is on the page, which runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs/exercises.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("softmax", "head", "causal", "many_heads", "layer_norm", "block", "layer_and_head", "changed")

SOFTMAX = """
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / {}
"""
HEAD = """
def head(x, w_q, w_k, w_v):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    return softmax({}) @ v
"""
CAUSAL = """
def causal(scores):
    return np.where({}, scores)
"""
HEADS = """
def many_heads(x, w_q, w_k, w_v, w_o):
    contexts = [head(x, *matrices) for matrices in zip(w_q, w_k, w_v)]
    return {}
"""
NORM = """
def layer_norm(y, weight, bias, eps):
    centred = y - y.mean(axis={}, keepdims=True)
    return {}
"""
BLOCK = """
def block(x, attention, attention_norm, mlp, mlp_norm):
    y = {}
    return {}
"""
LATER = "np.triu(np.ones(scores.shape, dtype=bool), {})"

WRONG = [  # what is to be written, an answer that is not right, and a part of what the check says of it
    ("softmax", SOFTMAX.format("powers.sum()"), "adds up to 1"),
    ("softmax", SOFTMAX.format("powers.sum(axis=0)"), "adds up to 1"),
    ("softmax", "softmax = lambda scores: (scores / scores.sum(-1, keepdims=True)).sum(-1)", "keepdims"),
    ("softmax", "softmax = lambda scores: np.full(scores.shape, 1 / scores.shape[-1])", "raise e"),
    ("softmax", "softmax = lambda scores: np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)", "too large"),
    (
        "softmax",
        "softmax = lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(-1, keepdims=True)",
        "its own largest score",
    ),
    ("head", HEAD.format("q @ k.T"), "√D"),
    ("head", HEAD.format("q @ k.T / np.sqrt(x.shape[1])"), "not that of x"),
    ("head", HEAD.format("k @ q.T / np.sqrt(q.shape[1])"), "not k · qᵀ"),
    ("head", HEAD.format("q @ k.T / q.shape[1]"), "softmax of each row"),
    ("head", "head = lambda x, w_q, w_k, w_v: x", "shape of the values"),
    ("causal", CAUSAL.format(LATER.format(1) + ", 0"), "e⁰ = 1"),
    ("causal", CAUSAL.format(LATER.format(1) + ".T, -np.inf"), "the other triangle"),
    ("causal", CAUSAL.format(LATER.format(0) + ", -np.inf"), "leave the diagonal"),
    ("causal", CAUSAL.format(LATER.format(2) + ", -np.inf"), "every later key"),
    ("causal", "causal = lambda scores: np.where(np.triu(scores, 1) != 0, -np.inf, 1)", "stay as they are"),
    ("many_heads", HEADS.format("contexts[0]"), "shape of x"),
    ("many_heads", HEADS.format("np.concatenate(contexts[::-1], axis=1) @ w_o"), "head 0 comes first"),
    ("many_heads", HEADS.format("np.stack(contexts, axis=2).reshape(len(x), -1) @ w_o"), "do not interleave"),
    ("many_heads", HEADS.format("contexts[0] @ w_o[:6]"), "concatenate"),
    ("layer_norm", NORM.format(0, "centred / np.sqrt(y.var(axis=-1, keepdims=True) + eps) * weight + bias"), "mean"),
    (
        "layer_norm",
        NORM.format(-1, "centred / (y.std(axis=-1, keepdims=True) + eps) * weight + bias"),
        "below the root",
    ),
    (
        "layer_norm",
        NORM.format(-1, "centred / np.sqrt(y.var(axis=-1, keepdims=True, ddof=1) + eps) * weight + bias"),
        "a mean over E",
    ),
    ("layer_norm", NORM.format(-1, "centred / np.sqrt(y.var(axis=-1, keepdims=True) + eps)"), "times weight"),
    ("layer_norm", "layer_norm = lambda y, weight, bias, eps: y.mean(-1)", "keeps the shape"),
    ("block", BLOCK.format("attention_norm(attention(x))", "mlp_norm(mlp(y))"), "the residual"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "mlp_norm(mlp(y))"), "second sum is missing"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "mlp_norm(x + mlp(y))"), "not x"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "y + mlp(mlp_norm(y))"), "after its sum"),
    ("block", BLOCK.format("x + attention(attention_norm(x))", "y + mlp(mlp_norm(y))"), "sum, norm"),
    ("layer_and_head", "layer_and_head = (3, 1)", "the largest"),
    ("changed", 'changed = "mnozqmnop"', "keep the length"),
    ("changed", 'changed = "mnzzqmno"', "you changed 2"),
    ("changed", 'changed = "mnopqmnz"', "the model says"),
]


def blocks_of(name):
    """Return the block in which the page defines or sets a name, and the one after it, which checks it."""
    places = [i for i, code in enumerate(BLOCKS) if re.search(rf"^(?:def {name}\(|{name} = )", code, re.MULTILINE)]
    (place,) = places
    assert "check(" in BLOCKS[place + 1]
    return BLOCKS[place], BLOCKS[place + 1]


@pytest.fixture(scope="module")
def page(minilm_dir):
    """What the page has defined after all of its blocks."""
    namespace = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in BLOCKS:
            exec(code, namespace)
    return namespace


@pytest.mark.parametrize(("name", "answer", "hint"), WRONG)
def test_a_wrong_answer_gets_its_hint(page, name, answer, hint):
    namespace, said = {**page, "rng": np.random.default_rng(1)}, io.StringIO()
    exec(answer, namespace)
    with contextlib.redirect_stdout(said):
        exec(blocks_of(name)[1], namespace)
    assert said.getvalue().startswith("Not yet: ")
    assert hint in said.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right(page, name):
    namespace, said = {**page, "rng": np.random.default_rng(2)}, io.StringIO()
    solution, check = blocks_of(name)
    with contextlib.redirect_stdout(said):
        exec(solution, namespace)
        exec(check, namespace)
    assert said.getvalue().splitlines()[-1] == "Right."
