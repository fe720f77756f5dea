"""Spaces before punctuation, removed from a text at once and as it comes."""

import pytest
from hypothesis import given, strategies as st

from regard.text.clean_up import StreamingCleanUp, clean_up


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("A cat , a dog . Why ? No !", "A cat, a dog. Why? No!"),
        ("I do n't , I 'm , it 's , we 've , we 're", "I don't, I'm, it's, we've, we're"),
        ("they ' re", "they're"),
        ("do n ' t", "don't"),  # one turns the other into what is joined
        ("a  . b", "a . b"),
        ("never seen", "never seen"),
    ],
)
def test_what_is_joined(text, cleaned):
    assert clean_up(text) == cleaned


@given(st.lists(st.text(" .?!,'nmstverax", max_size=4), max_size=12))
def test_pieces_give_the_text_of_the_whole(pieces):
    stream = StreamingCleanUp()
    assert "".join([*map(stream.add, pieces), stream.flush()]) == clean_up("".join(pieces))


def test_only_a_space_and_what_may_belong_to_it_is_held_back():
    stream = StreamingCleanUp()
    assert [stream.add(piece) for piece in ("The", " cat", " never", " sat", " .", " So")] == [
        "The", " cat", "", " never sat", "", ". So",
    ]  # fmt: skip
