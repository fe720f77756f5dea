"""A corpus beside the page: the rows in which a head attends most strongly, with progress, and what is refused."""

import pytest
from explorations import Left, explored

from regard.explorer.queries.corpus import Corpus, describe_row
from regard.explorer.query import dispatch
from regard.metrics import PAIR_KINDS, StrongRow, strongest_rows

LINES = ["the cat sat the cat", "the cat", "on the mat the on", "sat on the sat"]


@pytest.fixture
def searched(bert, tmp_path):
    exploration = explored(bert, "the cat sat")
    (tmp_path / "lines.txt").write_text("\n\n".join(LINES) + "\n \n", encoding="utf-8")
    exploration.corpus = Corpus(tmp_path / "lines.txt")
    return exploration


def test_rows_are_those_of_the_metric_with_the_words_in_their_text(searched, bert):
    found = dispatch(searched, "strongest_rows", {"run": 0, "layer": 1, "head": 2, "pair": "repeated"})
    expected = strongest_rows(bert, LINES, 1, 2, 20, pair="repeated")
    assert found["texts"] == 4
    assert len(found["rows"]) == len(expected) > 3
    for row, each in zip(found["rows"], expected, strict=True):
        assert (row["text"], row["row"], row["col"]) == (each.text, each.row, each.col)
        assert row["weight"] == pytest.approx(each.weight, rel=1e-5)
        assert "".join(text for text, _ in row["parts"]).strip("…") in each.text
        assert {kind: text for text, kind in row["parts"] if kind} == {"query": each.query, "key": each.key}


def test_a_long_text_is_shown_around_its_words():
    text = "one two " * 30 + "cat " + "three four " * 30 + "dog " + "five six " * 30
    spans = [(at, at + 3) for at in (text.index("dog"), text.index("cat"))]
    parts = describe_row(StrongRow(0.5, 0, 9, 2, "dog", "cat", *spans, text))["parts"]
    before, key, between, query, after = parts
    assert (key, query) == (("cat", "key"), ("dog", "query"))
    assert (before[0][0], after[0][-1]) == ("…", "…")
    assert text.split("cat")[0].endswith(f" {before[0][1:]}")
    assert text.split("dog")[1].startswith(f"{after[0][:-1]} ")
    first, _, last = between[0].partition("…")
    assert f"cat{first} " in text
    assert f" {last}dog" in text
    assert all(len(part) < 110 for part, _ in parts)


def test_how_far_a_search_is_can_be_asked_and_it_can_be_given_up(searched):
    shares, left = [], Left(2)

    def check():
        shares.append(searched.progress()["strongest_rows"]["share"])
        left()

    with pytest.raises(InterruptedError):
        searched.strongest_rows(0, 0, 0, check=check)
    assert 0 < shares[0] < shares[1] <= 1
    assert searched.progress() == {}


def test_a_page_offers_the_pairs_only_with_a_corpus(searched, short):
    assert [pair["key"] for pair in searched.manifest()["pairs"]] == list(PAIR_KINDS)
    assert short.manifest()["pairs"] == []


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\r\n\r\nthe mat", encoding="utf-8-sig", newline="")
    assert [*Corpus(tmp_path / "lines.txt")] == ["the cat", "the mat"]
