"""The step-by-step pages, and the similarity of a word in two texts."""

import json
import re

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, Trace
from regard.models import toy
from regard.terminal import explain, explain_row
from regard.views import cosine, select, to_json, word_similarities


def traced(text="The cat sat", model=None, **options):
    trace = Trace()
    (model or toy(text, **options))(text, trace=trace)
    return trace


def test_every_heading_has_the_shape_of_its_numbers():
    page = explain(traced(embed_dim=6, num_heads=3), head=2).plain
    for heading in (
        "blocks.0.attn.q, head 2  x · W_q (+ b_q): the query of each token  3 × 2",
        "blocks.0.attn.weights",
        "(· W_o (+ b_o))  3 × 6",
    ):
        assert heading in page


def test_long_vectors_and_texts_are_cut_and_say_so():
    page = explain(traced(" ".join(f"w{i}" for i in range(50)), embed_dim=64)).plain
    assert "… 64 numbers" in page
    assert "… 50 rows" in page


def test_a_later_layer_starts_with_the_output_of_the_previous_one(write_bert):
    page = explain(traced("the cats sat", regard.load(write_bert())), layer=1).plain
    assert "\nblocks.0.output  the output of the block  6 × 12" in page


def test_of_a_batch_one_text_is_explained_without_its_padding():
    model = toy(["a b c", "c"])
    trace = Trace()
    model(["a b c", "c"], trace=trace)
    page = explain(trace, batch=1).plain
    assert "embeddings  sum of the embeddings above  1 × 8" in page
    assert "blocks.0.attn.weights  softmax(scores): each row sums to 1  1 × 1" in page


def decoder(case, text="w7 w12 w5 w9 w20"):
    return traced(text, regard.load(golden.FOLDER / case))


@pytest.mark.parametrize("case", ["llama/biased", "qwen3/biased", "gpt2/plain", "olmo2/biased", "bert/gelu"])
def test_each_formula_holds_for_the_numbers_above_it(case):
    model = regard.load(golden.FOLDER / case)
    trace = Trace(only="*", optional=["*.attn_norm", "*.projected_q", "*.projected_k"])
    model("w7 w12 w5", trace=trace)
    blocks = [block.splitlines() for block in explain(trace, head=1).plain.split("\n\n")]
    names = [block[0].partition("  ")[0].partition(",")[0] for block in blocks]
    step = "blocks.0.attn.projected_q" if "blocks.0.attn.projected_q" in names else "blocks.0.attn.q"
    read = names[names.index(step) - 1]
    attn, rows = model.blocks[0].attn, blocks[names.index(step)][1:]
    queries = attn.q_proj(trace[read][0])[:, attn.head_dim : 2 * attn.head_dim]
    for row, query in zip(rows, queries, strict=True):
        numbers = [float(x) for x in re.findall(r" (-?[\d.]+)(?= |$)", row.replace("−", "-")) if "." in x]
        np.testing.assert_allclose(numbers, query[: len(numbers)], atol=6e-4)
    assert ("projected" in step) == (not np.array_equal(queries, trace["blocks.0.attn.q"][0, 1]))


def test_a_rotation_that_was_not_recorded_is_named():
    page = explain(decoder("llama/plain")).plain
    assert "blocks.0.attn.q, head 0  x · W_q (+ b_q) after norm or rotation: the query of each token" in page


def test_masked_keys_are_left_out_of_the_arithmetic():
    trace = decoder("mistral/window")
    page = explain_row(trace, 3, head=2).plain
    weights = trace["blocks.0.attn.weights"][0, 2, 3]
    shares = [line for line in page.splitlines() if "e^" in line][1:]
    assert "Score of each key that the mask allows: q · k, divided by √D" in page
    assert [line.split()[0] for line in shares] == ["w12", "w5", "w9"]  # a window of 3, and nothing behind
    for line, weight in zip(shares, weights[1:4], strict=True):
        power, total, share = (float(part.split()[0]) for part in line.replace("÷", "=").split(" = ")[1:])
        assert power / total == pytest.approx(share, abs=2e-3)
        assert share == pytest.approx(weight, abs=6e-4)


def test_a_sink_takes_its_share_of_the_total():
    trace = decoder("gpt_oss/types")
    page = explain_row(trace, 1, head=3).plain
    scores, weights = (trace[f"blocks.0.attn.{name}"][0, 3, 1, :2].astype(float) for name in ("scores", "weights"))
    powers = np.exp(scores - scores.max())
    total = powers.max() / weights.max()
    assert f"/ {total:.3f}, of which {total - powers.sum():.3f} for the sink" in page
    assert f"sum  {weights.sum():.3f}" in page.replace("   ", "  ")
    assert "each row sums to 1, minus the weight of the sink  5 × 5" in explain(trace).plain


def test_a_softcap_and_a_scale_of_the_model_are_shown():
    trace = decoder("gemma2/capped")
    page = explain_row(trace, 0).plain
    score, capped = (float(trace[f"blocks.0.attn.{name}"][0, 0, 0, 0]) for name in ("scores", "capped"))
    assert f"× 0.062 = {score:.3f}, which becomes {capped:.3f}".replace("-", "−") in page
    whole = explain(trace).plain
    assert "blocks.0.attn.capped  softcap · tanh(scores / softcap)  5 × 5" in whole
    assert "blocks.0.attn.biased  scores + bias, −∞ where masked  5 × 5" in whole
    assert "softmax(biased): each row sums to 1  5 × 5" in whole


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: explain(t, layer=1), "no layer 1: choose from 0"),
        (lambda t: explain(t, layer=-2), "no layer -2"),
        (lambda t: explain(t, head=1), "no head 1: choose from 0"),
        (lambda t: explain(t, batch=1), "no text 1: choose from 0"),
        (lambda t: explain_row(t, 3), "no token 3: choose from 0 to 2"),
        (lambda t: explain(Trace()), "holds no blocks"),
        (lambda t: word_similarities(t, traced("a b"), "cat"), "no word 'cat'.* a, b"),
        (lambda t: word_similarities(t, traced("a cat", embed_dim=4), "cat"), "different models"),
        (lambda t: word_similarities(t, t, "cat", batch=1), "no batch entry 1"),
    ],
)
def test_errors_list_what_is_available(call, message):
    with pytest.raises(RegardError, match=message):
        call(traced())


def test_similarity_is_the_cosine_of_mean_vectors():
    model = toy(["a cat", "cat b cat"], embed_dim=6)
    one, other = traced("a cat", model), traced("cat b cat", model)
    found = dict(word_similarities(one, other, "CAT"))
    assert found["original"] == pytest.approx(1)
    a, b = one["blocks.0.output"][0, 1], other["blocks.0.output"][0, [0, 2]].mean(0)
    assert found["layer 0"] == pytest.approx(float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)), abs=1e-6)


def test_the_cosine_with_a_zero_vector_is_zero():
    assert cosine(np.zeros(3), np.ones(3)) == 0
    assert cosine(np.array([1.0, 0.0]), np.array([-2.0, 0.0])) == -1


def test_json_is_plain_data():
    data = to_json(select(traced()), top=2)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [len(row) for row in data["top_keys"]] == [2, 2, 2]
