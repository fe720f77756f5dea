"""The checks of exercises tell what is wrong; that they accept the solutions is on the pages, which run."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
NAMES = {  # what is to be written, by page
    "exercises": ("softmax", "head", "causal", "many_heads", "layer_norm", "block", "layer_and_head", "changed"),
    "learning": ("softmax_backward", "two_before"),
    "gpt": ("top_k",),
    "writers": ("reads", "label"),
}
PAGE_OF = {name: page for page, names in NAMES.items() for name in names}
TRAINS = {  # what takes long and is not needed, by page
    "learning": r"^## 5\. .*?(?=^## 8\. )",
    "gpt": r"^## 1\. .*?(?=^\*\*2\. )|^\*\*3\. .*",
}


def code_of(page):
    """Return the blocks of a page that are run here."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    if page in TRAINS:
        text = re.sub(TRAINS[page], "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


BLOCKS = {page: code_of(page) for page in NAMES}

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
READS = """
def reads(weights, v, w_o, place):
    return {}
"""
TOP_K = """
def top_k(logits, temperature, k):
    kept = logits >= np.sort(logits)[-k]
    return {}
"""
BACKWARD = "softmax_backward = lambda weights, d_weights: {}"
TWO_BEFORE = "two_before = lambda model, ids: F.cross_entropy(queries_keys_logits(model, ids)[-1][:, {}], ids[:, {}])"
LATER = "np.triu(np.ones(scores.shape, dtype=bool), {})"

WRONG = [  # what is to be written, an answer that is not right, and a part of what the check says of it
    ("softmax", SOFTMAX.format("powers.sum()"), "add up to 1"),
    ("softmax", SOFTMAX.format("powers.sum(axis=0)"), "add up to 1"),
    ("softmax", "softmax = lambda scores: (scores / scores.sum(-1, keepdims=True)).sum(-1)", "as many rows"),
    ("softmax", "softmax = lambda scores: np.exp(scores) / np.exp(scores).sum(-1)", "keepdims=True"),
    ("softmax", "softmax = lambda scores: np.full(scores.shape, 1 / scores.shape[-1])", "raise e"),
    ("softmax", "softmax = lambda scores: np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)", "too large"),
    ("softmax", "softmax = lambda s: np.exp(np.minimum(s, 700)) / np.exp(np.minimum(s, 700)).sum(-1, keepdims=True)",
     "too large"),
    ("softmax", "softmax = lambda scores: None", "return a weight"),
    ("softmax", "softmax = lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(-1, keepdims=True)",
     "its own largest score"),
    ("head", HEAD.format("q @ k.T"), "√D"),
    ("head", HEAD.format("q @ k.T / np.sqrt(x.shape[1])"), "not that of x"),
    ("head", HEAD.format("k @ q.T / np.sqrt(q.shape[1])"), "not k · qᵀ"),
    ("head", HEAD.format("q @ k.T / q.shape[1]"), "softmax of each row"),
    ("head", "head = lambda x, w_q, w_k, w_v: x", "shape of the values"),
    ("causal", CAUSAL.format(LATER.format(1) + ", 0"), "e⁰ = 1"),
    ("causal", CAUSAL.format(LATER.format(1) + ".T, -np.inf"), "the other triangle"),
    ("causal", CAUSAL.format(LATER.format(0) + ", -np.inf"), "leave the diagonal"),
    ("causal", CAUSAL.format(LATER.format(2) + ", -np.inf"), "every later key must"),
    ("causal", "causal = lambda scores: None", "return the scores"),
    ("causal", "causal = lambda scores: np.where(np.triu(scores, 1) != 0, -np.inf, 1)", "stay as they are"),
    ("causal", "def causal(scores):\n    scores *= 2\n    scores[np.triu_indices(4, 1)] = -np.inf\n    return scores",
     "stay as"),
    ("many_heads", HEADS.format("contexts[0]"), "shape of x"),
    ("many_heads", HEADS.format("np.concatenate(contexts[::-1], axis=1) @ w_o"), "head 0 must come first"),
    ("many_heads", HEADS.format("np.stack(contexts, axis=2).reshape(len(x), -1) @ w_o"), "do not interleave"),
    ("many_heads", HEADS.format("contexts[0] @ w_o[:6]"), "concatenate"),
    ("layer_norm", NORM.format(0, "centred / np.sqrt(y.var(axis=-1, keepdims=True) + eps) * weight + bias"), "mean"),
    ("layer_norm", NORM.format(-1, "centred / (y.std(axis=-1, keepdims=True) + eps) * weight + bias"),
     "below the root"),
    ("layer_norm", NORM.format(-1, "centred / np.sqrt(y.var(axis=-1, keepdims=True, ddof=1) + eps) * weight + bias"),
     "a mean over E"),
    ("layer_norm", NORM.format(-1, "centred / np.sqrt(y.var(axis=-1, keepdims=True) + eps)"), "multiply by weight"),
    ("layer_norm", "layer_norm = lambda y, weight, bias, eps: y.mean(-1)", "keep the shape"),
    ("layer_norm", "layer_norm = lambda y, weight, bias, eps: None", "keep the shape"),
    ("block", BLOCK.format("attention_norm(attention(x))", "mlp_norm(mlp(y))"), "the residual"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "mlp_norm(mlp(y))"), "second sum is missing"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "mlp_norm(x + mlp(y))"), "not x"),
    ("block", BLOCK.format("attention_norm(x + attention(x))", "y + mlp(mlp_norm(y))"), "after its sum"),
    ("block", BLOCK.format("x + attention(attention_norm(x))", "y + mlp(mlp_norm(y))"), "sum, norm"),
    ("layer_and_head", "layer_and_head = (3, 1)", "the largest"),
    ("layer_and_head", "layer_and_head = (6, 0)", "the largest"),
    ("layer_and_head", 'layer_and_head = "L0H2"', "two numbers"),
    ("changed", 'changed = "mnozqmnop"', "keep the length"),
    ("changed", 'changed = "mnzzqmno"', "you changed 2"),
    ("changed", 'changed = "mnopqmnz"', "the model says"),
    ("softmax_backward", BACKWARD.format("None"), "return a gradient"),
    ("softmax_backward", BACKWARD.format("-weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))"),
     "the sign"),
    ("softmax_backward", BACKWARD.format("d_weights - (weights * d_weights).sum(-1, keepdims=True)"), "little say"),
    ("softmax_backward", BACKWARD.format("weights * (d_weights - d_weights.mean(-1, keepdims=True))"), "count each"),
    ("softmax_backward", BACKWARD.format("weights * (d_weights - (weights * d_weights).sum())"), "its own mean"),
    ("softmax_backward", BACKWARD.format("weights * (d_weights - d_weights.sum())"), "add up to 0"),
    ("softmax_backward", BACKWARD.format("0 * weights"), "minus their mean"),
    ("two_before", "two_before = lambda model, ids: None", "one number"),
    ("two_before", "two_before = the_symbol_before", "one place before"),
    ("two_before", TWO_BEFORE.format(":-2", "2:"), "later"),
    ("two_before", TWO_BEFORE.format("2:", "2:"), "the place itself"),
    ("two_before", TWO_BEFORE.format("3:", ":-3"), "from place 2 on"),
    ("top_k", TOP_K.format("F.softmax(logits[kept] / temperature)"), "not gone"),
    ("top_k", "top_k = lambda logits, temperature, k: None", "return a probability"),
    ("top_k", TOP_K.format("F.softmax(np.where(kept, logits, 0) / temperature)"), "use −∞"),
    ("top_k", TOP_K.format("np.where(kept, F.softmax(logits / temperature), 0)"), "add up to 1"),
    ("top_k", TOP_K.format("F.softmax(np.where(~kept, logits, -np.inf) / temperature)"), "largest logits"),
    ("top_k", TOP_K.format("np.where(kept, 1 / k, 0)"), "take the softmax"),
    ("top_k", TOP_K.format("F.softmax(np.where(kept, logits, -np.inf))"), "by the temperature"),
    ("reads", READS.format("(weights[place] @ v @ w_o)"), "do not add them up"),
    ("reads", READS.format("weights[place][:, None] * v"), "end with w_o"),
    ("reads", READS.format("v @ w_o"), "multiplied by its weight"),
    ("reads", READS.format("weights[:, place, None] * v @ w_o"), "a column says"),
    ("reads", READS.format("weights[place - 1][:, None] * v @ w_o"), "added up"),
    ("reads", READS.format("np.tile(weights[place] @ v @ w_o / len(v), (len(v), 1))"), "token by token"),
    ("label", 'label = "L0H1"', "the letter that it read"),
    ("label", "label = \"L0H1 reading 'n'\"", "before the p"),
    ("label", "label = \"L1H2 reading 'o'\"", "the second only reads"),
    ("label", "label = \"L0H0 reading 'o'\"", "another head"),
]  # fmt: skip


def blocks_of(name):
    """Return the block in which its page defines or sets a name, and the one after it, which checks it."""
    blocks = BLOCKS[PAGE_OF[name]]
    places = [i for i, code in enumerate(blocks) if re.search(rf"^(?:def {name}\(|{name} = )", code, re.MULTILINE)]
    (place,) = places
    assert "check(" in blocks[place + 1]
    return blocks[place], blocks[place + 1]


@pytest.fixture(scope="module")
def pages(minilm_dir, tmp_path_factory):
    """What each page has defined after all of its blocks; they save pictures in the current folder."""
    namespaces = {page: {} for page in BLOCKS}
    folder = tmp_path_factory.mktemp("pages")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder), np.printoptions():
        for page, blocks in BLOCKS.items():
            for code in blocks:
                exec(code, namespaces[page])
    return namespaces


@pytest.mark.parametrize(("name", "answer", "hint"), WRONG)
def test_a_wrong_answer_gets_its_hint(pages, name, answer, hint):
    namespace, said = {**pages[PAGE_OF[name]], "rng": np.random.default_rng(1)}, io.StringIO()
    exec(answer, namespace)
    with contextlib.redirect_stdout(said):
        exec(blocks_of(name)[1], namespace)
    assert said.getvalue().startswith("Not yet: ")
    assert hint in said.getvalue()


@pytest.mark.parametrize("name", PAGE_OF)
def test_the_solution_is_right(pages, name):
    namespace, said = {**pages[PAGE_OF[name]], "rng": np.random.default_rng(2)}, io.StringIO()
    solution, check = blocks_of(name)
    with contextlib.redirect_stdout(said):
        exec(solution, namespace)
        exec(check, namespace)
    assert said.getvalue().splitlines()[-1] == "Right."
