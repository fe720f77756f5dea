"""What one token attends to, over the patches of a picture."""

import numpy as np
import pytest
from tiny_images import picture

import golden
import regard
from regard import RegardError, Trace
from regard.metrics import rollout
from regard.views import select_patches


@pytest.fixture(scope="module")
def seen():
    """The trace of two pictures of 3 × 3 patches, 2 layers and 3 heads."""
    trace = Trace()
    regard.load(golden.FOLDER / "vit/plain")([picture(), picture(seed=4)], trace=trace)
    return trace


def test_the_default_is_the_token_of_the_picture_in_the_last_layer(seen):
    view = select_patches(seen)
    row = seen["blocks.1.attn.weights"][0].astype(np.float64).mean(0)[0]
    np.testing.assert_allclose(view.values, row[1:].reshape(3, 3))
    assert view.values.sum() + view.rest == pytest.approx(1)
    assert (view.query, view.place, view.others) == ("[CLS]", None, ("[CLS]",))
    np.testing.assert_array_equal(view.picture, seen["picture"][0])


def test_a_patch_a_head_and_a_picture_of_a_batch_are_chosen(seen):
    view = select_patches(seen, query="R2C1", layer=0, head=2, batch=1)
    np.testing.assert_allclose(view.values.ravel(), seen["blocks.0.attn.weights"][1, 2, 1 + 7, 1:])
    assert (view.query, view.place) == ("r2c1", (2, 1))
    np.testing.assert_array_equal(view.picture, seen["picture"][1])


def test_other_numbers_of_tokens_or_patches(seen):
    found = rollout(seen, rows=0)[0]
    for values in (found, found[1:], found[1:].reshape(3, 3)):
        np.testing.assert_array_equal(select_patches(seen, values).values.ravel(), found[1:])


def test_maps_give_what_arrays_give(seen):
    trace = Trace(maps=True, only="*.weights")
    regard.load(golden.FOLDER / "vit/plain")(picture(), trace=trace)
    view = select_patches(trace, layer=0)
    np.testing.assert_allclose(view.values, select_patches(seen, layer=0).values, atol=1e-6)
    assert view.picture is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"query": "r3c0"},
            r"no patch 'r3c0': give \[CLS\], or a row and a column from r0c0 to r2c2 \(3 × 3 patch",
        ),
        ({"layer": 2}, "there is no layer 2"),
        ({"batch": 2}, "there is no batch entry 2"),
        ({"values": np.zeros(4)}, r"one for each of 10 tokens or 3 × 3 patches, got shape \(4,\)"),
        ({"values": np.full(9, -1.0)}, "values must be numbers of at least 0"),
        ({"values": np.zeros(9), "head": 1}, "values are of no layer, head or query"),
    ],
    ids=str,
)
def test_what_is_not_there_is_refused(seen, arguments, message):
    with pytest.raises(RegardError, match=message):
        select_patches(seen, **arguments)


def test_a_trace_of_a_text_is_refused(trace):
    with pytest.raises(RegardError, match="the trace is not of a picture"):
        select_patches(trace)
    with pytest.raises(RegardError, match="patches are those of a trace of a picture, got ndarray"):
        select_patches(np.zeros((3, 3)))
