"""``regard why``: the pairs of parts that made one token attend to another."""

import json

import numpy as np
import pytest

import regard
from regard import Trace

TEXT = "the cat the mat"


@pytest.fixture
def score(tiny):
    trace = Trace()
    regard.load(tiny)(TEXT, trace=trace)
    return trace.why(1, 1, 2, 4)  # [CLS] the cat the mat [SEP]


def test_json_has_the_pairs_and_what_each_part_adds(run, tiny, score):
    arguments = ("--head", "L1H1", "--word", "cat", "--to", "mat", "--json")
    status, out, _ = run("why", TEXT, "--model", tiny, *arguments)
    assert status == 0
    told = json.loads(out)
    assert (told["head"], told["query"]) == ("L1H1", {"position": 2, "token": "cat"})
    np.testing.assert_allclose(told["score"], score.score, rtol=1e-4)
    assert [pair["key_writer"] for pair in told["pairs"]] == [pair.key.label for pair in score.top(10)]
    for name in ("query_writers", "key_writers"):
        np.testing.assert_allclose(sum(row["contribution"] for row in told[name]), score.score, rtol=1e-4)
    _, out, _ = run("why", TEXT, "--model", tiny, *arguments, "--versus", "the:1", "--by", "token")
    told = json.loads(out)
    assert told["versus"] == {"position": 1, "token": "the"}
    assert any("reading 'cat'" in row["writer"] for row in told["key_writers"])


def test_what_the_model_does_not_see_is_told(run):
    status, _, err = run("why", "qzøqz", "--model", "induction", "--head", "L1H0", "--word", "z:2", "--to", "q:2")
    assert (status, "1 character has no token in induction, which does not see 'ø'" in err) == (0, True)


def test_a_layer_with_random_weights(run):
    status, out, _ = run("why", TEXT, "--toy", "--head", "L0H0", "--word", "cat", "--to", "mat")
    assert status == 0
    assert "token embedding at 'cat' meets position embedding at 'mat'" in out
