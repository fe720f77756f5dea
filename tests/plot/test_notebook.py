"""Figures and axes that end a cell of a notebook are shown as pictures, whether pyplot is in use or not."""

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from tiny_images import picture as make_picture

import golden
import regard
from fake_traces import SENTENCE, encoding_of, recorded, trace_of
from regard import Trace, plot
from regard.metrics import Attribution
from regard.plot.save import encode


def patches() -> Trace:
    return recorded(regard.load(golden.FOLDER / "vit/oblong"), make_picture(30, 50))


def attributed() -> Attribution:
    encoding = encoding_of([["cats"], ["sat"]]).select([1, 2])
    return Attribution("gradient", "logit of ' Paris'", 3.5, encoding, np.array([1.0, 2.0]), np.array([0.5, 0.5]))


DRAWN = {
    "heatmap": lambda rng: plot.heatmap(trace_of(rng, encoding_of(SENTENCE))),
    "head_grid": lambda rng: plot.head_grid(trace_of(rng, encoding_of(SENTENCE))),
    "figure": lambda rng: plot.figure(trace_of(rng, encoding_of(SENTENCE)), layer=0, head=0),
    "movement": lambda rng: plot.movement(trace_of(rng, encoding_of(SENTENCE))),
    "attribution": lambda rng: plot.attribution(attributed()),
    "picture": lambda rng: plot.picture(patches()),
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_a_notebook_shows_a_figure(rng, drawn):
    result = DRAWN[drawn](rng)
    figure = result if isinstance(result, Figure) else result.figure
    data, metadata = DisplayFormatter().format(result)
    assert data["image/png"] == encode(figure, "png")
    size = metadata["image/png"]
    assert (size["width"], size["height"]) == tuple(np.rint(96 * figure.get_size_inches()).astype(int))
