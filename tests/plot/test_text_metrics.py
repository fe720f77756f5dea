"""Wrapped text stays inside its width, whatever its words."""

import pytest
from hypothesis import given, strategies as st

from regard.plot.text_metrics import TextMetrics

METRICS = TextMetrics(("DejaVu Sans",))
WORDS = st.text(st.sampled_from("ilW/_é"), min_size=1, max_size=70)


@given(st.lists(WORDS, min_size=1, max_size=8), st.floats(0.3, 6))
def test_every_line_fits_and_nothing_is_lost(words, width):
    lines = METRICS.wrap(" ".join(words), 10, width)
    assert METRICS.max_width(lines, 10) <= width
    assert "".join(lines).replace(" ", "") == "".join(words)


def test_a_word_that_fits_is_not_broken():
    assert METRICS.wrap("the cat sat\non the mat", 10, METRICS.width("the cat", 10)) == (
        "the cat",
        "sat",
        "on the",
        "mat",
    )


@pytest.mark.parametrize("text", ["W", "WWW"])
def test_a_character_is_not_broken(text):
    assert METRICS.wrap(text, 10, 0.01) == tuple(text)
