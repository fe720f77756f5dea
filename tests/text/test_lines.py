"""Lines of a file of texts, the same for every command."""

import io

import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.text.lines import decode_text, split_lines

MIXED = "The cat sat.\u2028It slept.\nA dog ran.\u0085It barked.\r\n\nEnd\x0cpage two.\rlast"


def test_only_line_feeds_and_carriage_returns_end_a_line():
    lines = ["The cat sat.\u2028It slept.", "A dog ran.\u0085It barked.", "", "End\x0cpage two.", "last"]
    assert split_lines(MIXED) == lines
    assert split_lines(MIXED.encode()) == [line.encode() for line in lines]


@given(st.text("ab\r\n\u2028\u0085\x0c\x1c", max_size=12))
def test_they_are_those_of_an_open_file(text):
    stream = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    assert split_lines(text) == [line.removesuffix("\n") for line in stream]


@pytest.mark.parametrize("content", ["the cat".encode("utf-16"), "the cat".encode("utf-16-le"), b"caf\xe9", b"a\0b"])
def test_another_encoding_is_refused(content):
    with pytest.raises(RegardError, match=r"notes is not UTF-8 text.*convert it first"):
        decode_text(content, "notes")


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert decode_text(b"\xef\xbb\xbfcat", "notes") == "cat"
