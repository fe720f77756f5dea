"""The calculation of a cell in models of every kind: what the page shows is what NumPy computes from q, k and v."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from acts import press
from pages import GOLDEN, exact, explored, number

import regard
from regard.explorer import Exploration, write_page
from regard.explorer.run import recorded
from regard.functional import ALiBi, alibi_slopes
from regard.text.encoding import Encoding

TEXT = "some text that is not short"
HEADS = 4
SLOPES = alibi_slopes(HEADS)


def with_alibi():
    """Return a trace of one causal layer with ALiBi, and its values."""
    words = TEXT.split()
    q, k, v = 2 * np.random.default_rng(5).standard_normal((3, 1, HEADS, len(words), 8), dtype=np.float32)
    trace = regard.Trace(maps=True, only="*")
    with trace.scope("blocks.0.attn"):
        trace("v", v, "B G S Dv")
        regard.attention(q, k, v, causal=True, bias=ALiBi(SLOPES.astype(np.float32)), trace=trace)
    spans = tuple(pairwise(np.cumsum([0, *map(len, words)]).tolist()))
    numbers = tuple(range(len(words)))
    trace.encodings = (Encoding("".join(words), numbers, tuple(words), (False,) * len(words), numbers, spans),)
    return trace


def oracle(case):
    """Return an exploration, its layer, head, query and key, and the row of scores after each step, from q and k."""
    if case == "alibi":
        trace = with_alibi()
        exploration, model, layer, head = Exploration(trace), None, 0, 1
    else:
        model = regard.load(GOLDEN / case)
        trace = recorded(model, f"{TEXT} → some" if case.startswith("t5") else TEXT)
        exploration, layer, head = Exploration(trace, models=[model]), 1, 1
    name = ("encoder." if case.startswith("t5") else "") + f"blocks.{layer}.attn"
    source = trace.map(name)
    q, k = (np.asarray(x, np.float64)[0] for x in (source.q, source.k))
    group = len(q) // len(k)
    n = len(trace.encodings[0])
    i, j = n - 1, n - 2
    scores = k[head // group][:n] @ q[head][i]
    attn = None if model is None or case.startswith("t5") else model.blocks[layer].attn
    scale = 1.0 if case.startswith("t5") else getattr(attn, "scale", None) or q.shape[-1] ** -0.5
    steps = {"score": scores, "scaled": scores * scale}
    row, cap = steps["scaled"], getattr(attn, "softcap", None)
    if cap is not None:
        row = steps["capped"] = cap * np.tanh(row / cap)
    back = i - np.arange(n)
    if case == "alibi":
        row = steps["bias"] = row - SLOPES[head] * back
    if case.startswith(("t5", "mpnet")):
        table = (model.encoder if case.startswith("t5") else model).position_bias.parameter
        assert back.max() < 8  # each near distance has a bucket of its own
        row = steps["bias"] = row + table[back, head]
    sinks = getattr(attn, "sinks", None)
    sink = np.exp(float(sinks[head])) if sinks is not None else 0.0
    window = (getattr(attn, "window", None) or [None])[0]
    if case.startswith("modernbert"):
        window = model.config.windows[layer]
    exponentials = np.where(back <= (n if window is None else window), np.exp(row), 0)  # i is the last token
    total = exponentials.sum() + sink
    steps["weight"] = exponentials / total
    return exploration, (layer, head, i, j), steps, sink / total, np.log(total)


CASES = ["llama/plain", "gemma2/capped", "gpt_oss/plain", "mpnet/plain", "t5/relu", "alibi", "modernbert/plain",
         "gpt_neox/half", "smollm3/plain"]  # fmt: skip


def shown(page, name):
    """Return the number of a step."""
    return value_of(page.locator(f"[data-value={name}]").inner_text())


def value_of(text):
    return number(text) if "." in text else float(text.replace("−", "-").replace(" %", "e-2"))


def derived(page, step):
    """Press the number of a step, and return the numbers of where it comes from."""
    page.locator(f"[data-value={step}]").click()
    return [value_of(text) for text in page.locator(f"[data-step={step}] .rg-derivation b").all_inner_texts()]


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_what_its_numbers_make(open_page, serve, case):
    exploration, (layer, head, i, j), steps, sink, lse = oracle(case)
    page = open_page(f"{serve(exploration)}#v=cell&l={layer}&h={head}&i={i}&j={j}", selector="[data-step=row]")
    assert steps["weight"][j] > 0
    for name, row in steps.items():
        assert shown(page, name) == pytest.approx(row[j], rel=5e-3, abs=1e-6), name  # a weight has three digits
        numbers = derived(page, name)
        assert numbers[-1] == pytest.approx(row[j], rel=6e-3, abs=1e-6), name
        made = {
            "score": lambda n: n[0] + n[1],
            "scaled": lambda n: n[0] * n[1],
            "capped": lambda n: n[0] * np.tanh(n[1] / n[2]),
            "bias": lambda n: n[0] + n[1],
            "weight": lambda n: np.exp(n[0] - n[1]),
        }[name](numbers)
        assert made == pytest.approx(numbers[-1], rel=6e-3, abs=2e-3), name  # of numbers of four digits
    assert exact(page) == pytest.approx(steps["weight"][j], rel=1e-4, abs=1e-6)  # on the map
    assert page.locator("[data-value=sink]").count() == (1 if sink else 0)
    if sink:
        assert shown(page, "sink") == pytest.approx(sink, rel=2e-3)
    said = page.locator("[data-step=row] > p").inner_text()
    assert value_of(said.rsplit("= ", 1)[1].rstrip(".")) == pytest.approx(lse, rel=1e-3)
    rows = page.locator("[data-step=row] tbody tr")
    weights = np.sort(steps["weight"])[::-1][: rows.count()]
    assert [value_of(x) for x in rows.locator("td:last-child").all_inner_texts()] == pytest.approx(weights, rel=6e-3)


@pytest.mark.parametrize(("case", "said"), [
    ("llama/plain", "Key/value head 0 serves query heads 0 to 1."),
    ("alibi", "ALiBi: −0.0625 for each token of distance; these are 4 tokens apart."),
    ("t5/relu", "A learned number of this head for the bucket of j − i: bucket 4 of 32, j − i = −4."),
])  # fmt: skip
def test_what_a_step_stands_for_is_said(open_page, serve, case, said):
    exploration, (layer, head, i, _), *_ = oracle(case)
    j = i - 4
    page = open_page(f"{serve(exploration)}#v=cell&l={layer}&h={head}&i={i}&j={j}", selector="[data-step=row]")
    assert said in page.locator(".rg-cell").inner_text()


@pytest.mark.parametrize(("case", "layer", "pairs"), [
    ("llama/plain", 1, 2), ("gpt_neox/half", 1, 1), ("modernbert/plain", 1, 2), ("smollm3/plain", 3, 0),
    ("mpnet/plain", 1, 0),
])  # fmt: skip
def test_a_rotation_is_shown_as_rotation(open_page, serve, case, layer, pairs):
    exploration, (_, head, i, j), *_ = oracle(case)
    page = open_page(f"{serve(exploration)}#v=cell&l={layer}&h={head}&i={i}&j={j}", selector="[data-step=row]")
    dials = page.locator("[data-step=rotation] svg")
    assert dials.count() == pairs
    assert ("after the rotation below" in page.locator("[data-step=qk] p").inner_text()) == (pairs > 0)
    rotation = exploration.cell(0, layer, head, i, j)["rotation"]
    for dial, pair in zip(dials.all(), rotation["pairs"] if rotation else [], strict=True):
        for name, position in (("q", i), ("k", j)):
            lines = dial.locator(f".rg-dial-{name}")
            ends = [[float(line.get_attribute(at)) for at in ("x2", "y2")] for line in lines.all()]
            before, after = (complex(x, -y) for x, y in ends)
            turned = np.exp(1j * pair["angle"] * position)
            assert after / abs(after) == pytest.approx(before / abs(before) * turned, abs=1e-6)


@pytest.mark.parametrize("mode", ["raw", "rollout", "norms"])
@pytest.mark.parametrize("head", [1, "mean"])
def test_the_last_step_is_what_the_map_shows(open_page, serve, mode, head):
    exploration = explored(regard.load(GOLDEN / "llama" / "plain"), TEXT, layer=1, head=1)
    page = open_page(f"{serve(exploration)}#v=cell&l=1&h={head}&i=5&j=1&w={mode}", selector=".rg-step")
    on_map = exploration.whole(0, 1, head, mode)[5, 1]
    last = {
        "raw": "weight" if head == 1 else "mean",
        "norms": "norm" if head == 1 else "mean",
        "rollout": "rollout",
    }
    assert shown(page, last[mode]) == pytest.approx(on_map, rel=5e-3)
    assert exact(page) == pytest.approx(on_map, rel=1e-4, abs=1e-6)
    steps = [step.get_attribute("data-step") for step in page.locator(".rg-step").all()]
    after = steps[steps.index(last[mode]) + 1 :]
    assert after == (["weighted_value", "output", "projected", "residual"] if (mode, head) == ("raw", 1) else [])
    if last[mode] != "weight":
        numbers = derived(page, last[mode])
        made = numbers[0] * numbers[1] if last[mode] == "norm" else sum(numbers[:-2]) / numbers[-2]
        assert made == pytest.approx(numbers[-1], rel=6e-3)


def test_what_the_head_writes_is_added_to_the_stream(open_page, serve):
    model = regard.load(GOLDEN / "llama" / "plain")
    residual = regard.Trace(only="*attn_residual")
    model(TEXT, trace=residual)
    after = np.linalg.norm(residual["blocks.1.attn_residual"][0, 5])
    address = serve(explored(model, TEXT, layer=1, head=1))
    page = open_page(f"{address}#v=cell&l=1&h=1&i=5&j=1", selector="[data-step=residual]")
    assert derived(page, "residual")[-1] == pytest.approx(after, rel=1e-3)
    written, output = derived(page, "projected")
    assert written == shown(page, "projected")
    assert output == pytest.approx(np.linalg.norm(_output(model)), rel=1e-3)
    assert page.locator("[data-step=residual] svg").count() == 3


def _output(model):
    trace = regard.Trace(only="blocks.1.attn.context")
    model(TEXT, trace=trace)
    return trace["blocks.1.attn.context"][0, 1, 5]


def test_a_file_ends_at_its_map_too_or_says_so(open_page, tmp_path):
    exploration = explored(regard.load(GOLDEN / "llama" / "plain"), TEXT, layer=1, head=1)
    write_page(exploration, tmp_path / "page.html")
    address = (tmp_path / "page.html").as_uri()
    page = open_page(f"{address}#v=cell&l=1&h=1&i=5&j=1&w=norms", selector="[data-step=norm]")
    assert shown(page, "norm") == pytest.approx(exploration.whole(0, 1, 1, "norms")[5, 1], rel=6e-3)
    page = open_page(f"{address}#v=cell&l=1&h=1&i=5&j=1&w=rollout", selector="[data-step=row]")
    assert "those of rollout too" in page.locator(".rg-cell").inner_text()
    press(page, "m")
    assert "A file holds no steps of the mean of heads" in page.locator(".rg-cell").inner_text()


def test_whole_words_are_said_to_have_the_steps_of_their_first_tokens(open_page, address):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2&words=1", selector="[data-step=output]")
    assert (
        "The map shows whole words; these are the steps of their first tokens." in page.locator(".rg-cell").inner_text()
    )
