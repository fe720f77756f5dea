"""The figure of an attribution: labels inside and apart, bars in proportion, both themes."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from fake_traces import encoding_of
from figure_geometry import assert_apart_and_inside
from regard import RegardError
from regard.metrics import Attribution
from regard.plot import attribution

WORDS = "the quick brown foxes jumped over a lazy dog because it was tired".split()


def found_of(words, scores=None):
    encoding = encoding_of([[word] for word in words]).select(range(1, len(words) + 1))
    scores = np.linspace(-1, 2, len(words)) if scores is None else np.array(scores, float)
    return Attribution("gradient", "logit of ' Paris'", 3.5, encoding, scores, np.full(len(words), 1 / len(words)))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("words", [WORDS[:1], WORDS, ["$x_1^2$", "猫は", "W" * 90, "\x1b[31m", "שלום"], WORDS * 8])
def test_nothing_covers_another(words, theme):
    texts = assert_apart_and_inside(attribution(found_of(words), theme=theme))
    assert "contribution" in [text.get_text() for text in texts]


@pytest.mark.parametrize("scores", [[2.0, -1.0, 0.0], [2.0, 1.0, 0.0], [-2.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
def test_bars_are_in_proportion(scores):
    figure = attribution(found_of(WORDS[:3], scores))
    widths = [patch.get_width() for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    bars = np.array(widths[1::3])  # of each row: the label, the score, the weight
    np.testing.assert_allclose(bars * (max(map(abs, scores)) or 1), np.array(scores) * np.abs(bars).max(), atol=1e-9)
    assert_apart_and_inside(figure)


def test_a_long_text_is_an_error():
    with pytest.raises(RegardError, match="at most 200 tokens, this text has 208"):
        attribution(found_of(WORDS * 16))
