"""What a person sees who types the name of a result: shapes and beginnings, never a page of numbers."""

import numpy as np
import pytest

import golden
import regard
from regard import Trace, metrics, views
from regard._utils.frames import Tabular
from regard.models import CLIP
from regard.nn import parameters
from regard.text import Vocabulary, WordVectors
from regard.training import make_task
from regard.views.vectors import vectors_from_trace

TEXT = "qzkfabcd" * 8


@pytest.fixture(scope="module")
def results():
    model, trace = regard.load("induction"), Trace()
    output = model(TEXT, trace=trace)
    words = tuple(f"word{i}" for i in range(2000))
    return {
        "model": model,
        "tokenizer": model.tokenizer,
        "block": model.blocks[0],
        "output": output,
        "encoding": output.encodings[0],
        "trace": trace,
        "step": trace.steps()[0],
        "metrics": metrics.head_metrics(trace),
        "corpus": metrics.corpus_head_metrics(model, [TEXT, "qzkf"]),
        "generated": model.generate(TEXT[:40], max_new_tokens=3),
        "attribution": metrics.attribute(model, TEXT, to="k"),
        "generation": metrics.attribute_generation(model, TEXT[:8], max_new_tokens=2),
        "grid": metrics.patch_grid(model, TEXT, "x" + TEXT[1:], "k"),
        "path": metrics.path_patching(model, TEXT, "x" + TEXT[1:], "k", sender=(0, 0), receiver=(1, 0)),
        "effects": metrics.attribution_patching(model, TEXT, "x" + TEXT[1:], "k"),
        "lens": metrics.logit_lens(model, trace),
        "strongest": metrics.strongest_rows(model, [TEXT, "qzkf"], 1, 0),
        "logits": metrics.logit_attribution(model, trace, "k"),
        "score": trace.why(1, 0, 13, 3),
        "value": trace.carried(1, 0, 13, 3),
        "paths": model.paths(TEXT, "k", corrupted="x" + TEXT[1:]),
        "picture": regard.load(golden.FOLDER / "vit" / "long")({"pixel_values": np.zeros((1, 3, 16, 16), np.float32)}),
        "view": views.select(trace, layer=0, head=0),
        "movement": vectors_from_trace(trace),
        "batch": make_task("induction").held_out(1)[0],
        "vocabulary": Vocabulary(words),
        "vectors": WordVectors(Vocabulary(words), np.ones((2000, 50))),
    }


_NO_TABLES = ("Metric", "AttributionMethod", "StrongRow", "ScorePair", "Writer", "Reader", "PathEdge")
NAMES = (
    "model tokenizer block output encoding trace step metrics corpus generated attribution generation grid path "
    "effects lens strongest logits score value paths picture view movement batch vocabulary vectors"
)
RESULTS = "metrics corpus strongest attribution generation grid path effects lens logits score value paths"


@pytest.mark.parametrize("name", NAMES.split())
def test_a_repr_is_short(results, name):
    assert len(repr(results[name])) < 1500


@pytest.mark.parametrize("name", RESULTS.split())
def test_a_result_is_a_table_and_a_small_block_of_html(results, name):
    pytest.importorskip("pandas")
    found = results[name]
    columns = found.to_columns()
    assert list(found.to_frame("pandas").columns) == list(columns)
    assert len({len(values) for values in columns.values()}) == 1
    assert len(columns[next(iter(columns))]) > 0
    shown = found._repr_html_()
    assert ".to_frame()</code>" in shown
    assert len(shown) < 30_000


@pytest.mark.parametrize("name", ["metrics", "grid", "lens", "logits", "attribution"])
def test_results_that_are_arrays_have_labels(results, name):
    pytest.importorskip("xarray")
    data = results[name].to_xarray()
    assert data.sizes
    assert set(data.dims) <= set("N B L H T k".split())
    for variable in data.data_vars:
        source = results[name]
        np.testing.assert_array_equal(data[variable], getattr(source, variable))


def test_means_over_a_corpus_have_labels_and_intervals(results):
    pytest.importorskip("xarray")
    found = results["corpus"]
    data = found.to_xarray()
    assert data.sizes == {"L": 2, "H": 4}
    assert data.layer.values.tolist() == list(found.layers)
    for name, mean in found.means.items():
        low, high = found.interval(name)
        for suffix, values in (("", mean), ("_low", low), ("_high", high), ("_texts", found.counts[name])):
            np.testing.assert_array_equal(data[name + suffix], values)
    assert len(data.data_vars) == 4 * len(found.means)


def test_effects_of_patches_have_labels(results):
    pytest.importorskip("xarray")
    effects = results["effects"].effects
    data = results["effects"].to_xarray()
    assert list(data.data_vars) == list(effects.names())
    assert data.token.values.tolist() == list(TEXT)
    assert data["blocks.1.attn.context"].dims == ("B", "H", "T")
    for name in effects.names():
        np.testing.assert_array_equal(data[name], effects[name])


def test_metrics_of_heads_say_of_how_many_texts_and_heads(results):
    names = ", ".join(metrics.METRICS)
    assert repr(results["metrics"]) == f"<HeadMetrics of 1 text, 2 × 4 heads: {names}>"
    assert repr(results["corpus"]) == f"<CorpusHeadMetrics over 2 texts, 2 × 4 heads: {names}>"


def test_each_result_of_metrics_is_a_table():
    """A new class of results has a table, a short repr and HTML too."""
    for name in metrics.__all__:
        found = getattr(metrics, name)
        if isinstance(found, type) and name not in _NO_TABLES:
            assert issubclass(found, Tabular)
            assert found.to_columns is not Tabular.to_columns
            assert hasattr(found, "_repr_html_")
            assert found.__repr__ is not object.__repr__


def test_effects_are_those_of_each_step(results):
    found, columns = results["effects"], results["effects"].to_columns()
    assert sum(columns["effect"]) == pytest.approx(sum(values.sum() for _, values in found.effects.items()))
    at = (columns["step"] == "blocks.1.attn.context") & (columns["head"] == 2)
    np.testing.assert_array_equal(columns["effect"][at], found.effects["blocks.1.attn.context"][0, 2])
    assert columns["token"][at].tolist() == list(TEXT)


def test_a_path_says_its_heads(results):
    assert repr(results["path"]).startswith("<PathEffect L0H0 → L1H0 (q): logit of 'k'; corrupted ")


def test_it_shows_shapes_and_beginnings(results):
    assert repr(results["output"]).startswith("Output(hidden=float32[1 64 128], encodings=(Encoding(text='qzkfabcd")
    assert "ids=(16, 25, 10, 5, … 64 in all)" in repr(results["encoding"])
    assert repr(results["vocabulary"]) == "Vocabulary(words=('word0', 'word1', 'word2', 'word3', … 2000 in all))"
    assert "scores=float64[64]" in repr(results["attribution"])


def test_one_item_of_a_tuple_is_a_tuple():
    assert repr(Vocabulary(("a",))) == "Vocabulary(words=('a',))"


@pytest.mark.parametrize("family", sorted({case.split("/")[0] for case in golden.KEPT}))
def test_the_repr_of_a_model_is_a_line(family):
    model = regard.load(golden.FOLDER / next(case for case in golden.KEPT if case.startswith(f"{family}/")))
    halves = [model] if not isinstance(model, CLIP) else [model.text, model.vision]
    assert len(repr(model)) <= 200 * len(halves)
    for half in halves:
        assert len(repr(half)) <= 200
        assert f"{half.config.num_layers} layers, {half.config.num_heads} heads, " in repr(half)
        assert type(half).__name__ in repr(half)
        assert f"{sum(x.size for x in {id(x): x for x in parameters(half).values()}.values()):,} parameters" in repr(
            half
        )


def test_a_context_of_capture_says_what_it_is():
    module = type("TinyModel", (), {})()
    assert repr(regard.capture(module)) == (
        "<capture of a TinyModel, a context: with regard.capture(model) as trace: model(...)>"
    )
