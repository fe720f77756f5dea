"""Saving figures: kind by suffix, equal bytes, atomic writes, and markup in labels stays text."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from fake_traces import SENTENCE, encoding_of, trace_of
from regard import RegardError
from regard.plot import figure as draw, head_grid, heatmap, movement, save
from sweeps import sweep_after

BEGINNINGS = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-"}
HOSTILE = ["<script>alert(1)</script>", "--><x/>", "a\x00b", "\x1b[31m", "\ud800", "&amp;", "$x$", "]]>", "\uffff"]
HOSTILE += ['"/><image href="http://example.org/a"/>', "javascript:alert(1)", "url(http://example.org/a)"]


@pytest.fixture(scope="module")
def small():
    """Return a figure that takes little time to save."""
    return Figure(figsize=(1, 1))


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_suffix_is_the_kind(small, tmp_path, kind):
    for path in (tmp_path / f"a.{kind}", tmp_path / f"b.{kind.upper()}"):
        save(small, path)
        assert path.read_bytes().startswith(BEGINNINGS[kind])


def test_a_kind_can_be_given(small, tmp_path):
    save(small, tmp_path / "picture", "svg")
    assert (tmp_path / "picture").read_bytes().startswith(BEGINNINGS["svg"])


@pytest.mark.parametrize("name", ["picture", "picture.gif", ".png"])
def test_an_unknown_ending_is_an_error_that_lists_the_known(small, tmp_path, name):
    with pytest.raises(RegardError, match=r"the suffix must be .png, .svg, .pdf"):
        save(small, tmp_path / name)
    assert not list(tmp_path.iterdir())


DRAWINGS = [lambda t: draw(t, t, caption=True), lambda t: heatmap(t).figure, head_grid, lambda t: movement(t).figure]


@pytest.fixture(scope="module", params=sweep_after(1, DRAWINGS))
def drawn_twice(request):
    """Return two figures that were drawn of one trace."""
    trace = trace_of(np.random.default_rng(5), encoding_of(SENTENCE))
    return request.param(trace), request.param(trace)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_same_trace_gives_the_same_bytes(drawn_twice, tmp_path, kind):
    for name, figure in zip(("one", "two"), drawn_twice, strict=True):
        save(figure, tmp_path / name, kind)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_files_have_no_date(small, tmp_path):
    save(small, tmp_path / "a.pdf")
    assert b"CreationDate" not in (tmp_path / "a.pdf").read_bytes()
    save(small, tmp_path / "a.svg")
    assert b"date" not in (tmp_path / "a.svg").read_bytes()


class Undrawable(Artist):
    def draw(self, renderer):
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", ["svg", "pdf"])  # a PNG is written when all is drawn
def test_a_figure_that_cannot_be_drawn_to_its_end_leaves_the_old_file(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"old")
    figure = Figure()
    figure.text(0.5, 0.5, "drawn")
    figure.add_artist(Undrawable())
    with pytest.raises(ZeroDivisionError):
        save(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_an_error(small, tmp_path):
    with pytest.raises(RegardError, match="cannot write"):
        save(small, tmp_path / "nowhere" / "a.png")


def test_hostile_tokens_are_inert_in_svg(tmp_path):
    n = len(HOSTILE)
    vectors = np.random.default_rng(1).standard_normal((2, n, 4))
    for figure in (heatmap(np.eye(n), HOSTILE).figure, movement(*vectors, HOSTILE).figure):
        save(figure, tmp_path / "a.svg")
        root = ElementTree.parse(tmp_path / "a.svg").getroot()
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert "script" not in tags
        assert "x" not in tags
        assert "a" not in tags
        assert "text" not in tags  # letters are outlines
        for element in root.iter():
            for name, value in element.attrib.items():
                assert not name.startswith("on")
                assert value.startswith(("#", "data:image/png;base64,")) or not name.endswith(("href", "src"))
                assert "url(" not in value.replace("url(#", "")


def test_the_settings_of_the_caller_are_not_used_and_not_changed(trace, tmp_path):
    save(heatmap(trace).figure, tmp_path / "one.png")
    theirs = {
        "font.size": 30,
        "savefig.bbox": "tight",
        "savefig.dpi": 50,
        "axes.facecolor": "red",
        "text.color": "blue",
    }
    with matplotlib.rc_context(theirs):
        save(heatmap(trace).figure, tmp_path / "two.png")
        assert {name: matplotlib.rcParams[name] for name in theirs} == theirs
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_pyplot_is_never_imported(tmp_path):
    code = f"""
import sys
import numpy as np
import regard.plot as views
assert "matplotlib" not in sys.modules
trace = views.heatmap(np.eye(3)).figure
views.save(trace, {str(tmp_path / "a.png")!r})
views.movement(np.eye(3), np.ones((3, 3)))
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
