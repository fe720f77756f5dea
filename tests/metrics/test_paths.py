"""The paths behind a prediction: runs with cut edges beside edits of real runs, estimates, and the graph."""

import json
from dataclasses import replace

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import RegardError, Trace, edits
from regard.metrics import Reader
from regard.metrics.attribution_target import attributed_metric
from regard.metrics.edge_gradients import edge_gradients
from regard.metrics.edge_runs import INPUTS, EdgeRun
from regard.metrics.path_search import PathSearch
from regard.models.decoder import Decoder
from sweeps import sweep_except

TEXT, CORRUPTED = "qzkfqz", "qxkfqz"
CASES = [case for case in golden.cases(Decoder) if not case.startswith(golden.WITHOUT_SUMS)]
SHORT = [case for case in CASES if not case.endswith("long")]
TOGETHER = [case for case in SHORT if case.startswith("olmo2/")]  # a norm of all heads: a gradient is of one alone
SCALED_BIAS = ["gemma2/uncapped", "gemma3_text/pattern"]  # biases of heads, which a norm after them scales by the run
LATENTS = [case for case in SHORT if case.startswith("deepseek_v3/")]


class Pair:
    """A model, a text and another, their runs, and runs between."""

    def __init__(self, case):
        self.model = regard.load(golden.FOLDER / case, dtype=np.float64)
        ids = np.random.default_rng(0).integers(3, self.model.config.vocab_size, (2, 7))
        self.text, self.other = golden._texts(self.model, ids, np.array([7, 7]))
        self.runs = [Trace(), Trace()]
        self.clean, self.corrupted = (
            self.model([each], trace=trace).hidden
            for each, trace in zip((self.text, self.other), self.runs, strict=True)
        )
        self.start = EdgeRun(self.runs[1])
        stream = self.start.stream(self.model)[0]
        self.written, self.writers = stream.values, stream.writers
        layers, heads = range(len(self.model.blocks)), range(self.model.config.num_heads)
        self.readers = [Reader(kind, layer, head) for layer in layers for kind in INPUTS for head in heads]
        self.readers += [*(Reader("mlp", layer) for layer in layers), Reader("logits")]

    def hidden(self, share):
        """Return the vectors of a run in which edges carry a share of the change, from their reader and writer."""
        kept = {reader: np.array([share(reader, writer) for writer in self.writers], float) for reader in self.readers}
        return self.start.with_edges(self.runs[0], kept).vectors(self.model)


def close(values, expected):
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(CASES), CASES))
def test_with_all_edges_it_is_the_run_of_the_text_and_with_none_that_of_the_other(case):
    pair = Pair(case)
    close(pair.hidden(lambda *_: 1), pair.clean)
    close(pair.hidden(lambda *_: 0), pair.corrupted)


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(SHORT), sorted(set(SHORT) - set(SCALED_BIAS))))
def test_cut_edges_are_edits_of_a_real_run(case):
    """All edges from a node: its output is patched; all into the query of a head: the query is."""
    pair = Pair(case)
    layer, last = 0, len(pair.model.blocks) - 1
    has_post_norm = pair.model.blocks[0].attn_post_norm is not None  # whose scale is of all heads together
    cuts = {
        (reader.kind, reader.layer, reader.head): edits.patch(pair.runs[1], f"blocks.{last}.attn.q", heads=reader.head)
        for reader in pair.readers
        if reader.kind == "q" and reader.layer == last
    }
    if case not in TOGETHER:
        for (kind, at, head), edit in cuts.items():
            hidden = pair.hidden(lambda reader, _, cut=(kind, at, head): tuple(reader) != cut)
            close(hidden, pair.model([pair.text], edit=edit).hidden)
    if not has_post_norm:
        for kind, site in (("head", (layer, 1)), ("mlp", f"blocks.{layer}.mlp.output")):
            index = 1 if kind == "head" else -1
            hidden = pair.hidden(
                lambda _, writer, cut=(kind, layer, index): (writer.kind, writer.layer, writer.index) != cut
            )
            close(hidden, pair.model([pair.text], edit=edits.patch(pair.runs[1], site)).hidden)


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(SHORT), sorted(set(SHORT) - {*TOGETHER, *LATENTS})))
def test_an_estimate_at_the_text_is_the_slope_of_the_run_with_edges(case):
    pair, rng = Pair(case), np.random.default_rng(1)
    metric = attributed_metric(pair.model, pair.text, 3, 4)
    embeddings = pair.runs[0]["token_embeddings"]
    gradients = edge_gradients(pair.model, pair.text, metric.compute, embeddings, np.ones(1))
    assert set(gradients) == set(pair.readers)
    changes = EdgeRun(pair.runs[0]).stream(pair.model)[0].values - pair.written
    for reader in (pair.readers[i] for i in rng.permutation(len(pair.readers))[:6]):
        count = pair.start.counts.get((reader.kind, reader.layer), len(pair.writers))
        index = int(rng.choice([i for i in range(count) if pair.writers[i].is_node]))

        def number(step, cut=(reader, pair.writers[index])):
            hidden = pair.hidden(lambda *edge: 1 + step * (edge == cut))
            return float(metric.compute(pair.model.output(hidden, (pair.text,))))

        slope = (number(1e-6) - number(-1e-6)) / 2e-6  # rounding leaves 1e-9, the third derivative 1e-12 of itself
        assert abs((gradients[reader] * changes[index]).sum() - slope) < 1e-6 * max(1, abs(slope))


def test_gradients_of_edges_end_when_nobody_waits():
    pair = Pair(SHORT[0])
    metric, embeddings = attributed_metric(pair.model, pair.text, 3, 4), pair.runs[0]["token_embeddings"]
    calls = []
    edge_gradients(pair.model, pair.text, metric.compute, embeddings, np.ones(1), lambda: calls.append(0))
    assert len(calls) >= 4 * len(pair.model.blocks)  # attention and a feed-forward layer, there and back

    def leave():
        calls.pop()
        if len(calls) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        edge_gradients(pair.model, pair.text, metric.compute, embeddings, np.ones(1), leave)
    assert len(calls) == 2


@pytest.fixture(scope="module")
def graph(induction):
    return induction.paths(TEXT, "k", "f", corrupted=CORRUPTED, edges=12)


def test_the_graph_of_induction_is_the_known_circuit(graph):
    assert 0.9 < graph.faithfulness < 1.1
    assert graph.lost > 0.9
    first = graph.into(None)[0]
    assert (first.writer.layer, first.reader.label, first.token) == (1, "logits", "z:2")
    key = graph.into(first.writer)[0]
    assert (key.writer.label, key.reader.kind, key.token) == ("L0H1", "k", "k")  # the previous-token head, at the k
    assert graph.into(key.writer)[0].token == "z:1"


@pytest.mark.parametrize("edges", [1, 2, 7, 30])
@pytest.mark.parametrize("options", [{"corrupted": CORRUPTED}, {}, {"baseline": "zero"}])
def test_every_node_lies_on_a_path(induction, edges, options):
    graph = induction.paths(TEXT, "k", "f", edges=edges, **options)
    assert 0 <= len(graph.edges) <= edges
    read = {edge.reader.node for edge in graph.edges}
    written = {edge.writer for edge in graph.edges}
    assert all(writer.kind == "token_embeddings" or writer in read for writer in written)
    assert read - {None} <= written
    shown = [edge for _, edge, _ in graph.tree()]
    assert sorted(map(str, shown)) == sorted(map(str, graph.edges))


@pytest.mark.parametrize("baseline", ["mean", "zero"])
def test_the_baselines_are_edits_of_a_real_run(induction, baseline):
    graph = induction.paths(TEXT, "k", "f", baseline=baseline, edges=3)
    replaced = {"mean": lambda x: x.mean(-2, keepdims=True) + 0 * x, "zero": lambda x: 0 * x}[baseline]
    run = recorded(induction, TEXT)
    names = [name for name in run.names() if name.endswith(("token_embeddings", "attn.context", "mlp.output"))]
    values = {name: replaced(run[name]) for name in names}
    logits = induction(TEXT, edit={name: lambda _, name=name: values[name] for name in names}).logits[0, -1]
    k, f = (induction.tokenizer(letter).ids[0] for letter in "kf")
    assert abs(graph.baseline_value - float(logits[k] - logits[f])) < 1e-4
    assert abs(graph.value - float(np.diff(induction(TEXT).logits[0, -1, [f, k]]).item())) < 1e-4


def test_a_function_is_a_number_too_and_lowers_or_raises(induction, graph):
    k, f = (induction.tokenizer(letter).ids[0] for letter in "kf")
    number = induction.paths(
        TEXT, lambda output: output.logits[0, -1, f] - output.logits[0, -1, k], corrupted=CORRUPTED, edges=12
    )
    assert abs(number.value + graph.value) < 1e-4
    assert {str(edge.reader) + str(edge.writer) for edge in number.edges} == {
        str(edge.reader) + str(edge.writer) for edge in graph.edges
    }


def test_the_numbers_are_those_of_the_runs(graph):
    total = graph.value - graph.baseline_value
    assert graph.faithfulness == (graph.graph_value - graph.baseline_value) / total
    assert abs(graph.lost - (graph.value - graph.rest_value) / total) < 1e-12
    told = json.loads(json.dumps(graph.to_dict()))
    assert told["faithfulness"] == graph.faithfulness
    assert (told["baseline"], told["corrupted"], told["tokens"]) == ("corrupted", CORRUPTED, list(TEXT))
    assert [edge["writer"] for edge in told["edges"]] == [edge.writer.label for edge in graph.edges]
    assert told["nodes"][0] == "token embedding"
    assert graph.to_columns()["reader"].tolist() == [edge.reader.label for edge in graph.edges]
    assert " at 'z:2' → " in repr(graph).splitlines()[1]
    assert "L0H1" in graph._repr_html_()
    assert "z:2" in graph._repr_html_()


@pytest.mark.parametrize("word", ["zero", "mean"])
def test_a_corrupted_text_may_be_the_name_of_a_baseline(induction, word):
    graph = induction.paths("qzkq", "z", "k", corrupted=word, edges=2)
    assert (graph.baseline, graph.corrupted.text) == ("corrupted", word)
    assert "replaced by those of the corrupted text" in graph.summary()
    without = induction.paths("qzkq", "z", "k", baseline="zero", edges=1)
    assert (without.baseline, without.corrupted, without.to_dict()["corrupted"]) == ("zero", None, None)
    assert "replaced by zeros" in without.summary()
    assert "The edge alone keeps " in without.summary()


def test_rounding_is_not_an_edge(induction):
    graph = induction.paths(TEXT, "k", "f", corrupted=CORRUPTED, edges=1000)
    assert len(graph.edges) < 1000
    assert min(abs(edge.score) for edge in graph.edges) > 1e-5 * abs(graph.value - graph.baseline_value)


def test_paths_are_taken_by_their_weakest_edge():
    #  writers: 0 the tokens, 1, 2, 3; readers: 0 of 1, 1 of 2, 2 of 3, 3 the logits
    scores = np.array([[5.0, 0, 0, 0], [0.5, 4, 0, 0], [-3, 0, 0, 0], [0, 2, 3, -9]])
    search = PathSearch(scores, np.array([1, 2, 3, -1]), {0})
    asked = []

    def share(edges):
        asked.append(len(edges))
        return 2.0 if (3, 2) in edges else 0.5

    assert search.grow(3, share) == 2.0
    assert search.edges == {(3, 2), (1, 1), (0, 0)}  # 3, 4 and 5, before 2 and 5
    search.grow(5, share)
    assert search.edges == {(3, 2), (1, 1), (0, 0), (3, 3), (2, 0)}  # then what lowers it
    assert asked == [3, 5]
    assert search.grow(100, share) == 2.0
    assert search.edges == {(reader, writer) for reader, writer in np.argwhere(scores).tolist()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": 0}, "edges must be a whole number of at least 1"),
        ({"baseline": "pad"}, "baseline must be one of mean, zero, got 'pad'"),
        ({"corrupted": CORRUPTED, "baseline": "zero"}, "corrupted and baseline both say"),
        ({"corrupted": "qzkfq"}, "both texts must have the same number of tokens, got 6 and 5"),
        ({"corrupted": TEXT}, "there is nothing to explain"),
        ({"to": lambda _: 3.0}, "the metric must be one number that depends on .* got 3.0"),
        ({"to": lambda output: output.logits[0, -1]}, r"the metric must be one number .* got an array \(\d+,\)"),
        (
            {"text": "q", "to": "z"},
            "a text of one token is its own mean: give a corrupted text, or zero as the baseline",
        ),
        ({"text": "", "versus": None}, "the text is empty; give at least one token"),
        ({"versus": "k"}, "to and versus are the same token, 'k'"),
    ],
)
def test_a_wrong_argument_is_a_sentence(induction, arguments, message):
    given = {"text": TEXT, "to": "k", "versus": None if callable(arguments.get("to")) else "f"} | arguments
    with pytest.raises(RegardError, match=message):
        induction.paths(given.pop("text"), given.pop("to"), given.pop("versus"), **given)


def test_a_text_of_one_token_has_paths_from_zeros(induction):
    assert induction.paths("q", "z", "k", baseline="zero", edges=3).edges


def test_numbers_side_by_side_have_as_many_digits(graph):
    said = replace(graph, value=6.12, baseline_value=-5.4854).summary()
    assert "is +6.120; with all values replaced by those of the corrupted text -5.485. The" in said
    assert "is +1234; with" in replace(graph, value=1234.4).summary()


def test_other_models_are_refused():
    with pytest.raises(AttributeError, match="has no paths: load a decoder"):
        regard.load(golden.FOLDER / "bert" / "gelu").paths  # noqa: B018
    latents = regard.load(golden.FOLDER / "deepseek_v3" / "plain")
    with pytest.raises(RegardError, match="its heads read latents"):
        latents.paths([5, 6, 7], 3)
