"""The HTML of results: a picture of the weights, sizes, and hostile tokens as text."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import regard
import tiny_decoder
from fake_traces import encoding_of, recorded
from regard import AttentionMap, Trace, metrics
from regard.metrics.registry import listed_metrics
from regard.trace.notebook_html import escaped, picture

HOSTILE = ("<script>alert(1)</script>", "' onerror='x", "\u202e", "\x1b[31m", "&amp;")


class Tags(HTMLParser):
    """Collects the tags and the attributes of a document."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


def read_png(text):
    """Return the pixels of the first picture as Pillow, which matplotlib needs, reads them."""
    from PIL import Image

    data = re.search("base64,([^']*)'", text)[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_a_picture_is_dark_where_values_are_large():
    pixels = read_png(picture([np.array([[0, 1], [0.5, np.nan]]), np.ones((1, 1))], "caption"))
    assert pixels.shape == (2, 5, 4)
    assert pixels[0, 1, :3].tolist() == pixels[0, 4, :3].tolist() == [8, 48, 107]
    assert pixels[0, 0, :3].tolist() == [247, 251, 255]
    assert 100 < pixels[1, 0, 0] < 150
    assert (pixels[:, 2:4, 3] == 0).all()
    assert pixels[1, 4, 3] == 0


@pytest.mark.parametrize("maps", [False, True])
def test_a_trace_shows_its_last_attention(write_bert, maps):
    trace = recorded(regard.load(write_bert()), "the cat sat", maps=maps, only="*")
    shown = trace._repr_html_()
    weights = trace["blocks.1.attn.weights"][0]
    pixels = read_png(shown)
    assert pixels.shape == (5, 3 * 5 + 2 * 2, 4)
    for head in range(3):
        tile = pixels[:, 7 * head : 7 * head + 5, 0]
        np.testing.assert_allclose(tile, 247 - weights[head] * 239, atol=0.6)
    assert "blocks.0.attn.q" in shown
    assert "more" in shown
    assert "1 × 3 × 5 × 4" in shown


def test_a_picture_is_no_wider_than_its_cell_of_the_notebook():
    assert "max-width:100%;height:auto" in picture([np.ones((3, 900))], "caption", cell=10)


def test_long_maps_are_small():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 20, 500, 4))
    shown = AttentionMap(q, q)._repr_html_()
    assert len(shown) < 200_000
    assert read_png(shown).shape == (48, 12 * 48 + 11 * 2, 4)
    trace = Trace()
    regard.attention(q[0, :2], q[0, :2], q[0, :2], trace=trace)
    assert read_png(trace._repr_html_()).shape[0] <= 48


def test_hostile_tokens_are_text():
    trace = Trace()
    x = np.ones((1, 1, len(HOSTILE) + 2, 2))
    regard.attention(x, x, x, trace=trace)
    trace.set_metadata("<b>model</b>", [encoding_of([[word] for word in HOSTILE])])
    found = Tags(trace._repr_html_())
    assert set(found.tags) <= {"div", "b", "code", "figure", "img", "figcaption", "table", "tr", "th", "td"}
    assert "onerror" not in found.attributes
    assert "<script>alert(1)</script>" in found.text
    assert "\u202e" not in found.text
    assert "⟨U+202E⟩" in found.text
    assert escaped("\x1b") == "⟨U+001B⟩"


def test_metrics_and_grids_show_layers_and_heads(induction):
    trace = recorded(induction, "qzkfqz", maps=True, only="*")
    for found in (metrics.head_metrics(trace), metrics.corpus_head_metrics(induction, ["qzkfqz", "abcab"])):
        shown = found._repr_html_()
        assert read_png(shown).shape == (2, 4, 4)
        assert "2 layers (down) of 4 heads (across)" in shown
        assert "Induction (share): L1H" in shown
    grid = metrics.patch_grid(induction, "qzkfqz", "qxkfqz", ("k", "f"))
    assert read_png(grid._repr_html_()).shape == (2, 6, 4)
    assert "recovered, layers down, most in blocks." in grid._repr_html_()


def test_a_metric_that_no_token_has_takes_no_place():
    trace = Trace(maps=True, only="*")
    regard.load("induction")("qzkf", trace=trace)  # in which nothing is repeated
    found = metrics.head_metrics(trace)
    assert np.isnan(found.induction).all()
    shown = found._repr_html_()
    assert "Induction" not in shown
    assert shown.count("<figure") == sum(np.isfinite(found.values[each.name]).any() for each in listed_metrics())


def test_tokens_are_shown_as_they_are_read(tmp_path):
    """A byte-level vocabulary spells a space Ġ, and letters of other alphabets as those of their bytes."""
    model, trace = regard.load(tiny_decoder.write(tmp_path / "tiny")), Trace()
    text, other = "ab \N{LATIN SMALL LETTER E WITH ACUTE}", "ac \N{LATIN SMALL LETTER E WITH ACUTE}"
    model(text, trace=trace)
    assert trace.encodings[0].tokens[2] == "Ġ"
    for found in (
        trace,
        metrics.logit_lens(model, trace, "a"),
        metrics.logit_attribution(model, trace, "a"),
        metrics.patch_grid(model, text, other, "a"),
        metrics.attribution_patching(model, text, other, "a"),
        metrics.attribute(model, text, "a"),
    ):
        shown = found._repr_html_()
        assert "<code>b</code>" in shown
        assert "<code> </code>" in shown
        assert "Ġ" not in shown
        assert r"\xc3" in shown


def test_what_is_empty_is_shown_too():
    assert "0 values" in Trace()._repr_html_()
    assert "AttentionMap" in AttentionMap(np.ones((2, 0, 4)), np.ones((2, 0, 4)))._repr_html_()
