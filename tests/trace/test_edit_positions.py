"""Positions of edits are those of each text, under padding and while it is generated.

The oracles are runs of each text alone, and of the whole text without a cache, with edits that index arrays.
"""

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from fake_traces import recorded
from regard import RegardError, Trace
from regard.trace.edits import ablate, add, freeze, mean_ablate, patch, resample_ablate, scale

PROMPTS = ["The cat", "A", "sat on it"]
STEPS = ["blocks.0.output", "blocks.1.attn.v", "blocks.1.attn.context", "blocks.0.mlp.hidden"]
MAPS = ["blocks.1.attn.weights", "blocks.0.attn.scores"]


@pytest.fixture
def tiny(tmp_path):
    return regard.load(tiny_decoder.write(tmp_path / "tiny"), dtype=np.float64)


def at(positions, change):
    """Return a function of a value ``1 … T E`` that changes some of its absolute positions."""

    def edit(value):
        for position in positions:
            if position < value.shape[-2]:
                value[..., position, :] = change(value[..., position, :], position)
        return value

    return edit


def generated_without_cache(model, prompt, name, function, count):
    """Return the greedy tokens after a prompt, and the last final vectors, each token from a run of the whole text."""
    ids = list(model.tokenizer(prompt).ids)
    for _ in range(count):
        output = model(ids, edit={name: function})
        ids.append(int(output.logits[0, -1].argmax()))
    return ids[-count:], output.hidden[0, -1]


def check_generation(model, prompt, edit, name, function, count=9):
    """Assert that `generate` with an edit chooses what runs of the whole text choose with a function."""
    wanted, last = generated_without_cache(model, prompt, name, function, count)
    trace = Trace(only="final_norm", edit=edit)
    found = model.generate(prompt, max_new_tokens=count, trace=trace)
    size = len(found.ids)  # an end-of-sequence token ends it
    assert list(found.ids) == wanted[:size]
    if size == count:
        np.testing.assert_allclose(trace["final_norm"][0, -2], last, rtol=1e-9, atol=1e-12)
    return found.ids


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("positions", [[0], [1, 4], [7, 8, 10], [-1], [-7, -2], [3, 90]])
def test_positions_while_a_text_is_generated_are_those_of_the_whole_text(tiny, rng, name, positions):
    prompt = "The cat"
    size = recorded(tiny, prompt)[name].shape[-1]
    vector = 3 * rng.standard_normal(size)
    absolute = [p % 7 if p < 0 else p for p in positions]
    found = check_generation(
        tiny, prompt, add(vector, name, positions=positions), name, at(absolute, lambda x, _: x + vector)
    )
    assert found != tiny.generate(prompt, max_new_tokens=9).ids or name == "blocks.1.attn.context"


@pytest.mark.parametrize("name", [*STEPS, *MAPS])
@pytest.mark.parametrize("positions", [None, [2, -1], 0])
def test_a_prompt_is_patched_while_it_is_continued(tiny, name, positions):
    other = recorded(tiny, "A dog s")
    absolute = range(7) if positions is None else [p % 7 for p in np.atleast_1d(positions)]

    def change(value, position):
        given = other[name][..., position, :]
        if name not in MAPS:
            return given
        return np.concatenate([given, value[..., 7:]], -1)[..., : value.shape[-1]]

    check_generation(tiny, "The cat", patch(other, name, positions=positions), name, at(absolute, change))


def test_a_longer_text_is_patched_position_by_position(tiny):
    other = recorded(tiny, "A dog sits there")
    name = "blocks.0.output"
    edit = patch(other, name, positions=[3, 9])
    check_generation(tiny, "The cat", edit, name, at([3, 9], lambda _, p: other[name][..., p, :]))
    check_generation(tiny, "The cat", freeze(other, name), name, at(range(16), lambda _, p: other[name][..., p, :]))


def test_the_other_ready_made_edits_in_a_generated_text(tiny):
    reference = recorded(tiny, "A dog sits there")
    name, prompt = "blocks.0.output", "The cat"
    mean = reference[name].mean(-2)
    for positions, absolute in (([2, 8], [2, 8]), (None, range(40)), (-1, [6])):
        edit = mean_ablate(reference, name, positions=positions)
        check_generation(tiny, prompt, edit, name, at(absolute, lambda *_: mean))
        check_generation(
            tiny, prompt, scale(-2, name, positions=positions), name, at(absolute, lambda x, _: -2 * x), count=5
        )
        absolute = [p for p in absolute if p < 16]  # those of the reference
        edit = resample_ablate(reference, name, positions=positions)
        check_generation(tiny, prompt, edit, name, at(absolute, lambda _, p: reference[name][..., p, :]))
        edit = mean_ablate(reference, name, positions=positions, by_position=True)
        check_generation(tiny, prompt, edit, name, at(absolute, lambda _, p: reference[name][..., p, :]))
    with pytest.raises(RegardError, match="no text of the reference has 20 tokens"):
        tiny.generate("a" * 20, edit=resample_ablate(reference, name), max_new_tokens=2)
    with pytest.raises(RegardError, match="the other run has no position 16"):
        tiny.generate(prompt, edit=patch(reference, name, positions=16), max_new_tokens=12)


@pytest.mark.parametrize("positions", [[-1], [0], [1, 3], None])
def test_each_text_of_a_batch_is_generated_as_alone(tiny, rng, positions):
    vector = 3 * rng.standard_normal(12)
    heads = scale(-1, (0, 2), (1, 0), positions=positions)
    for edit in (add(vector, "blocks.0.output", positions=positions), heads):
        together = tiny.generate(PROMPTS, max_new_tokens=8, edit=edit)
        for prompt, found in zip(PROMPTS, together, strict=True):
            assert found.ids == tiny.generate(prompt, max_new_tokens=8, edit=edit).ids


def test_a_text_keeps_its_values_when_others_of_the_batch_end(tiny):
    reference = recorded(tiny, ["A dog sits there", "Nobody sits ther", "xyzxyzxyzxyzxyzx"])
    edit = resample_ablate(reference, "blocks.0.output", positions=range(16), seed=1)
    stop = tiny.generate(PROMPTS, max_new_tokens=6, edit=edit)[0].ids[1]  # the first text ends here
    whole = tiny.generate(PROMPTS, max_new_tokens=6, edit=edit)
    ended = tiny.generate(PROMPTS, max_new_tokens=6, edit=edit, stop=stop)
    for one, other in zip(ended, whole, strict=True):
        assert one.ids == other.ids[: len(one.ids)]
    assert len(ended[0].ids) < 6


def test_positions_of_an_encoder_decoder():
    model = regard.load(golden.FOLDER / next(c for c in golden.KEPT if c.startswith("t5/")), dtype=np.float64)
    text = model.tokenizer("the cat sat on the mat")
    for name, positions in (("encoder.blocks.0.output", [1, -1]), ("decoder.blocks.0.output", [0, 2])):
        ids = [model.start_id]
        absolute = [p % len(text) if p < 0 else p for p in positions]
        for _ in range(5):
            output = model(text, [ids], edit={name: at(absolute, lambda x, _: x * -3)})
            ids.append(int(output.logits[0, -1].argmax()))
        found = model.generate(text, max_new_tokens=5, edit=scale(-3, name, positions=positions))
        assert list(found.ids) == ids[1 : len(found.ids) + 1]
        if name.startswith("encoder"):
            assert found.ids != model.generate(text, max_new_tokens=5).ids


# Padding

WORDS = ["the cat sat", "a cat", "cat sat the a"]


def edits_of(rng, reference, width, heads):
    vector = rng.standard_normal(width)
    for positions in (-1, [0, -2], [1], None):
        yield add(vector, "blocks.0.output", positions=positions)
        yield scale(2, "blocks.0.attn.v", positions=positions, heads=heads)
        yield mean_ablate(reference, (1, 1), positions=positions)
    yield add(rng.standard_normal((2, width)), "blocks.0.output", positions=[1, -1])
    yield ablate((0, 1), by="mean")


def check_batch(model, texts, batch, starts, edit, tolerance):
    """Assert that texts of a batch that begin at some columns have the values of each text alone."""
    together = recorded(model, batch, edit=edit)
    for i, (text, start) in enumerate(zip(texts, starts, strict=True)):
        alone = recorded(model, text, edit=edit)
        for name in ("blocks.0.output", "blocks.0.attn.v", "blocks.1.attn.context", "blocks.1.output"):
            wanted = alone[name][0]
            found = together[name][i][..., start : start + wanted.shape[-2], :]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def test_an_edit_of_a_padded_batch_is_that_of_each_text_alone(write_bert, rng):
    model = regard.load(write_bert(), dtype=np.float64)
    for edit in edits_of(rng, recorded(model, WORDS), 12, [0, 2]):
        check_batch(model, WORDS, WORDS, [0, 0, 0], edit, 1e-12)


@pytest.mark.parametrize("left", [False, True])
def test_an_edit_counts_no_padding_at_either_side(tiny, rng, left):
    texts = ["The cat", "And", "sat on it"]
    ids, longest = [tiny.tokenizer(text).ids for text in texts], 9
    pads = [longest - len(row) for row in ids]
    rows = [[5] * pad + [*row] if left else [*row] + [5] * pad for row, pad in zip(ids, pads, strict=True)]
    mask = [[0] * p + [1] * (9 - p) if left else [1] * (9 - p) + [0] * p for p in pads]
    batch = {"input_ids": np.array(rows), "attention_mask": np.array(mask)}
    for edit in edits_of(rng, recorded(tiny, batch), 12, [0, 2]):
        check_batch(tiny, texts, batch, pads if left else [0, 0, 0], edit, 1e-10)


@pytest.mark.parametrize("positions", [None, [0, -1]])
def test_a_padded_batch_is_patched_text_by_text(tiny, positions):
    texts, others = ["The cat", "And", "sat on it"], ["A dog s", "Not", "sits here"]
    for name in ("blocks.0.output", "blocks.1.attn.k", "blocks.0.attn.weights"):
        edit = patch(recorded(tiny, others), name, positions=positions)
        together = recorded(tiny, texts, edit=edit)
        for i, (text, other) in enumerate(zip(texts, others, strict=True)):
            alone = recorded(tiny, text, edit=patch(recorded(tiny, other), name, positions=positions))
            size = len(text)
            np.testing.assert_allclose(
                together["blocks.1.output"][i, :size], alone["blocks.1.output"][0], rtol=0, atol=1e-10
            )


def test_one_text_is_patched_into_texts_of_its_length_alone(tiny):
    other = recorded(tiny, "A dog s")
    with pytest.raises(RegardError, match="7 tokens of text 1 and this one 3: texts of the same number"):
        recorded(tiny, ["The cat", "And"], edit=patch(other, "blocks.0.output"))


def test_positions_that_are_not_there(tiny):
    texts = ["The cat", "And"]
    with pytest.raises(RegardError, match=r"position 3 of blocks.0.output is out of range: it has 3 in text 1"):
        tiny(texts, edit=scale(0, "blocks.0.output", positions=3))
    with pytest.raises(RegardError, match=r"position -4 of blocks.0.output is out of range: it has 3 in text 1"):
        tiny.generate(texts, max_new_tokens=2, edit=scale(0, "blocks.0.output", positions=-4))
    with pytest.raises(RegardError, match="a text that is generated has no mean yet"):
        tiny.generate(texts, max_new_tokens=2, edit=ablate((0, 0), by="mean"))


def test_the_scale_of_a_norm_has_positions(induction):
    """It has one number for each, ``B T``, and no features."""
    before = np.asarray(induction("qzkfqz").logits, np.float64)
    after = np.asarray(induction("qzkfqz", edit=scale(2.0, "final_norm.scale", positions=-1)).logits, np.float64)
    np.testing.assert_allclose(after[:, :-1], before[:, :-1], atol=1e-5)
    np.testing.assert_allclose(after[:, -1], before[:, -1] / 2, atol=1e-5)
    trace = recorded(induction, "qzkfqz", only="final_norm.scale")
    doubled = scale(2.0, "final_norm.scale")
    patched = induction("qzkfqz", edit=doubled | patch(trace, "final_norm.scale", positions=[0, -1])).logits
    np.testing.assert_allclose(patched[:, [0, -1]], before[:, [0, -1]], atol=1e-5)
    np.testing.assert_allclose(patched[:, 1:-1], before[:, 1:-1] / 2, atol=1e-5)


def test_edits_are_printed_by_their_steps():
    every = scale(2, *(f"blocks.{i}.output" for i in range(30)))
    assert repr(every) == "<Edits of blocks.0.output, blocks.1.output, blocks.2.output and 27 more steps>"
