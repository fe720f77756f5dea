"""An exported page is small, complete and inert, and has the numbers of the API."""

import base64
import hashlib
import json
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from decode_page import decode_blob, read_page, unpack_weights
from explorations import bare, explored, recorded, whole

import regard
from regard import RegardError
from regard._utils.files import atomic_write
from regard.explorer import Exploration, export_html, write_page
from regard.explorer.export_html import render_page
from regard.explorer.queries.attribution import default_attributions
from regard.explorer.queries.cell import cell_inputs
from regard.explorer.story import MAX_CHARACTERS, parse_story

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "@data@@manifest@",
    "\u202egnp.exe",
    "a\x00b",
    "x" * 10_000,
    "&lt;b&gt;",
]


class Parts(HTMLParser):
    """The scripts and styles of a page as a browser takes them, and every address in it."""

    def __init__(self, page):
        super().__init__(convert_charrefs=False)
        self.scripts, self.styles, self.addresses, self.metas = [], [], [], []
        self._inside = None
        self.feed(page.decode("utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [value for name, value in attrs.items() if name in ("src", "href", "action")]
        assert not [name for name in attrs if name.startswith("on")]
        if tag == "meta" and "http-equiv" in attrs:
            self.metas.append(attrs["content"])
        if tag in ("script", "style"):
            self._inside = (self.scripts if tag == "script" else self.styles, attrs)
            self._inside[0].append((attrs, ""))

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            before = self._inside[0].pop()
            self._inside[0].append((before[0], before[1] + data))


@pytest.fixture(scope="module")
def shown(bert):
    return explored(bert, "the cat sat", "the cat on")


@pytest.fixture(scope="module")
def page(shown):
    return render_page(shown)


def test_the_file_has_the_numbers_of_the_exploration(shown, page):
    manifest, blob = read_page(page)
    assert manifest["decimals"] == 4
    for run in range(2):
        for layer in range(2):
            for head in range(3):
                found = unpack_weights(blob(f"weights/{run}/{layer}/{head}"), (5, 5), 4)
                np.testing.assert_allclose(found, whole(shown, run, layer, head), atol=0.5001e-4)
            rolled = unpack_weights(blob(f"rollout/{run}/{layer}"), (5, 5), 4)
            np.testing.assert_allclose(rolled, whole(shown, run, layer, 0, mode="rollout"), atol=0.5001e-4)
            norms = np.frombuffer(blob(f"norms/{run}/{layer}"), "<f4").reshape(3, 5)
            found = whole(shown, run, layer, 2) * norms[2]
            np.testing.assert_allclose(found, whole(shown, run, layer, 2, mode="norms"), rtol=2**-13)
        assert json.loads(blob(f"heads/{run}")) == shown.heads(run)
        assert json.loads(blob(f"attributions/{run}")) == default_attributions(shown, run)
        moved = shown.movement([0, 1])
        for name in ("points", "left_out"):
            moved[name] = moved[name][run : run + 1]
        assert json.loads(blob(f"movement/{run}")) == moved
        assert blob(f"thumbnails/{run}") == shown.thumbnails(run)
    assert json.loads(blob("differences")) == shown.differences([0, 1])


def steps(page, name, length):
    """Return weights and contexts as the page computes them."""
    manifest, blob = read_page(page)
    fields = manifest["cell_inputs"][name]
    d, dv = fields["head_dim"], fields["value_dim"]
    numbers = np.frombuffer(blob(name), "<f4").astype(np.float64)
    q, k, v, lse, first, behind = np.split(numbers, np.cumsum([length * d, length * d, length * dv, length, length]))
    scores = q.reshape(length, d) @ k.reshape(length, d).T * fields["scale"]
    at = np.arange(length)
    scores[(at < first[:, None]) | (at >= behind[:, None])] = -np.inf
    weights = np.exp(scores - lse[:, None])
    return weights, weights @ v.reshape(length, dv)


def test_a_cell_can_be_computed_from_the_file(shown, page):
    weights, context = steps(page, "cell_inputs/1/1/2", 5)
    np.testing.assert_allclose(weights, whole(shown, 1, 1, 2), atol=1e-6)
    np.testing.assert_allclose(context[3], shown.cell(1, 1, 2, 3, 0)["output"], atol=1e-5)


def test_masked_heads_are_computed_with_their_masks(rng, causal):
    windowed = bare(*rng.standard_normal((3, 1, 2, 7, 4), dtype=np.float32), keep="v", causal=True, window=(2, 0))
    for exploration, layer, head in ((explored(causal, "some text that is not short"), 1, 2), (windowed, 0, 1)):
        page, name = render_page(exploration), f"cell_inputs/0/{layer}/{head}"
        weights, _ = steps(page, name, exploration.runs[0].length)
        np.testing.assert_allclose(weights, whole(exploration, 0, layer, head), atol=1e-6)
        assert read_page(page)[0]["cell_inputs"][name]["rotated"] is (True if layer else None)
    assert weights[5, 2] == 0


def test_a_bias_and_a_mask_with_holes_cannot_be_computed_from_vectors_alone(rng):
    q, k, v = rng.standard_normal((3, 1, 2, 5, 4))
    for rule in ({"bias": rng.standard_normal((5, 5))}, {"mask": np.arange(5) != 2}):
        assert cell_inputs(bare(q, k, v, keep="v", **rule).run(0), 0, 0) is None


def test_nothing_is_asked_of_anyone_and_only_what_was_written_runs(page):
    found = Parts(page)
    assert all(address.startswith("data:") for address in found.addresses)
    (policy,) = found.metas
    for part in ("default-src 'none'", "connect-src 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    markup = decode_blob(next(text for attrs, text in found.scripts if attrs.get("id") == "regard-markup"))
    for kind, texts in (("script-src", found.scripts), ("style-src", Parts(markup).styles)):
        (text,) = [text for attrs, text in texts if attrs.get("type") in (None, "module")]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


@pytest.fixture(scope="module")
def plain():
    """Return the parts of the page of a text that nobody would suspect."""
    return Parts(render_page(explored(regard.models.toy(["a b"]), "a b")))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_data_and_nothing_else(plain, text):
    page = render_page(explored(regard.models.toy([text]), text))
    found = Parts(page)
    blobs = {attrs["id"]: text for attrs, text in found.scripts if "id" in attrs}
    assert json.loads(blobs["regard-manifest"])["runs"][0]["text"] == text
    assert [attrs for attrs, _ in found.scripts] == [attrs for attrs, _ in plain.scripts]
    code, known = ([text for attrs, text in one.scripts if attrs.get("type") == "module"] for one in (found, plain))
    assert code == known


def test_the_file_is_there_whole_or_not_at_all(bert, tmp_path):
    exploration = explored(bert, "the cat sat")
    target = tmp_path / "page.html"
    target.write_text("before")
    write_page(exploration, target)
    assert target.read_bytes() == render_page(exploration)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".html", ".part")] == ["page.html"]
    with pytest.raises(RegardError, match="there is no folder"):
        write_page(exploration, tmp_path / "no" / "page.html")


@pytest.mark.parametrize("was_there", [True, False])
def test_a_page_that_is_interrupted_leaves_what_was_there(bert, tmp_path, monkeypatch, was_there):
    target = tmp_path / "page.html"
    if was_there:
        target.write_text("before")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    written = []

    @contextmanager
    def interrupted(path):
        with atomic_write(path) as file:

            def write(content):
                written.append(file.write(content[: len(content) // 2]))
                raise KeyboardInterrupt

            yield SimpleNamespace(write=write)

    monkeypatch.setattr(export_html, "atomic_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_page(explored(bert, "the cat sat"), target)
    assert written[0] > 10_000
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_text_too_long_for_a_file_is_refused_before_the_model_runs(monkeypatch, tmp_path):
    model = regard.models.toy(["word"])
    monkeypatch.setattr(type(model), "__call__", lambda *_, **__: pytest.fail("the model ran"))
    for texts in (["word " * 3000], ["word", "word " * 3000]):
        with pytest.raises(RegardError, match="at most 2,048 tokens, this one has 3,000"):
            regard.explore(*texts, model=model, html=tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_long_words_are_no_weights(bert):
    trace = recorded(bert, "the cat")
    (encoding,) = trace.encodings
    for size, fits in ((1_200_000, True), (9_000_000, False)):
        # Of a text, its tokens are written once more.
        trace.encodings = (replace(encoding, text="x" * size, tokens=("x" * size, *encoding.tokens[1:])),)
        if fits:
            assert 2_000_000 < len(render_page(Exploration(trace))) < 16_000_000
        else:
            with pytest.raises(RegardError, match="4 tokens and its weights exceed a file of 16 MB"):
                render_page(Exploration(trace))


def large(tokens, layers=12, heads=12, **options):
    """Return an exploration of 12 × 12 heads of random vectors, whose weights are harder to pack than a text's."""
    rng = np.random.default_rng(3)
    trace = regard.Trace(maps=True, only="*")
    for layer in range(layers):
        q, k, v = rng.standard_normal((3, 1, heads, tokens, 64), dtype=np.float32)
        with trace.scope(f"blocks.{layer}.attn"):
            trace("v", v, "... G S Dv")
            regard.attention(q, k, v, trace=trace)
    return Exploration(trace, **options)


def test_a_file_has_the_steps_of_as_many_heads_as_fit(monkeypatch):
    exploration = large(20, layers=6, layer=3, head=1)
    assert len(read_page(render_page(exploration))[0]["cell_inputs"]) == 72
    monkeypatch.setattr(export_html, "_LIMITS", (1_000_000, 1_000_000))
    page = render_page(exploration)
    known = list(read_page(page)[0]["cell_inputs"])
    assert 950_000 < len(page) <= 1_000_000
    assert known[0] == "cell_inputs/0/3/1"
    assert 12 < len(known) < 72
    assert {f"cell_inputs/0/3/{head}" for head in range(12)} < set(known)


def test_the_steps_of_the_opening_head_come_before_a_fourth_digit_and_after_a_third(monkeypatch):
    exploration = large(64, layers=6)

    def kept(room):
        monkeypatch.setattr(export_html, "_LIMITS", (room, room))
        manifest, _ = read_page(render_page(exploration))
        return manifest["decimals"], bool(manifest["cell_inputs"])

    sizes = {}
    with monkeypatch.context() as without:
        without.setattr(export_html, "cell_inputs", lambda *_: None)
        for digits in (3, 4):
            without.setattr(export_html, "MAX_DECIMALS", digits)
            sizes[digits] = len(render_page(exploration))
    assert kept(sizes[4] + 5_000) == (3, True)
    assert kept(sizes[3] + 5_000) == (3, False)
    assert kept(sizes[3] - 5_000) == (2, True)


@pytest.mark.parametrize("has_story", [False, True])
def test_a_page_of_144_heads_and_128_tokens_has_at_most_2_mb(has_story):
    exploration = large(128)
    if has_story:
        steps = "# Long\n\n## Step\n\n" + "It attends, `w`, to [that](#v=head&l=1). " * MAX_CHARACTERS
        exploration.story = parse_story(steps[:MAX_CHARACTERS], "long-file")
    page = render_page(exploration)
    assert len(page) <= 2_000_000
    manifest, blob = read_page(page)
    assert len(manifest["stories"]) == has_story
    decimals = manifest["decimals"]
    assert decimals >= 2  # a text's are easier to pack: it keeps three, as is tested below
    found = unpack_weights(blob("weights/0/11/11"), (128, 128), decimals)
    np.testing.assert_array_equal(found, np.round(whole(exploration, 0, 11, 11).astype(np.float64), decimals))


def test_a_twelfth_of_144_heads_and_512_tokens_has_at_most_its_share_of_16_mb(monkeypatch):
    fixed = sum(map(len, export_html._template()))  # what is in the file whatever it shows
    share = fixed + (16_000_000 - fixed) // 12
    monkeypatch.setattr(export_html, "_LIMITS", (share, share))
    assert len(render_page(large(512, layers=1))) <= share


@pytest.mark.sweep
def test_a_page_of_144_heads_and_512_tokens_has_at_most_16_mb():
    assert len(render_page(large(512))) <= 16_000_000


@pytest.mark.minilm
@pytest.mark.parametrize(
    ("tokens", "limit", "runs"),
    [(128, 2_000_000, 2), *(pytest.param(512, 16_000_000, runs, marks=pytest.mark.sweep) for runs in (1, 2))],
)
def test_a_text_keeps_three_digits_of_144_heads(minilm, monkeypatch, tokens, limit, runs):
    """2 × 72 heads are as many as 12 × 12, and 72 may take half of what is not the same in every file."""
    fixed = sum(map(len, export_html._template()))
    limit = fixed + (limit - fixed) * runs // 2
    monkeypatch.setattr(export_html, "_LIMITS", (limit, limit))
    encoding = minilm.tokenizer((Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")[:6000])
    trace = recorded(minilm, np.array([*encoding.ids[: tokens - 1], encoding.ids[-1]]))
    page = render_page(Exploration(*[trace] * runs, models=[minilm] * runs))
    assert len(page) <= limit
    manifest, _ = read_page(page)
    assert manifest["decimals"] >= 3
    assert len(manifest["runs"][0]["tokens"]) == tokens
    assert manifest["cell_inputs"]


def test_nothing_in_the_manifest_opens_an_element():
    """Python's parser of HTML does not know that this opens a script within a script."""
    assert b"<" not in export_html._json_for_script({"text": "<!--<script>"})
