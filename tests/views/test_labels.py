"""Labels: visible, without control characters, and unchanged for letters of every script."""

import unicodedata

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from regard.views import escape

AS_THEY_ARE = [
    "the",
    "##ing",
    "[CLS]",
    "שלום",
    "שָׁלוֹם",
    "مرحبا",
    "می‌خواهم",
    "猫は",
    "한국어",
    "नमस्ते",
    "क्‍ष",
    "🍕",
    "👩‍👩‍👧",
    "❤️",
    "naïve",
    "$x$",
    "a b",
]


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_words_of_every_script_stay_as_they_are(text):
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n", "␊"),
        ("a\tb", "a␉b"),
        ("\x00", "␀"),
        ("\x1b[31mred", "␛[31mred"),
        ("\x7f", "␡"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("pass\u200bword", "pass⟨U+200B⟩word"),
        ("a\u200db", "a⟨U+200D⟩b"),
        ("\ufeff", "⟨U+FEFF⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\u3164", "⟨U+3164⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\ue000", "⟨U+E000⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("\uffff", "⟨U+FFFF⟩"),
        (" ", "␣"),
        ("  ", "␣␣"),
        ("\xa0", "⟨U+00A0⟩"),
        ("\u0301", "◌\u0301"),
        (" \u0301", " ◌\u0301"),
        ("e" + "\u0301" * 10 + "x", "e\u0301\u0301\u0301⟨+7 marks⟩x"),
        ("", ""),
    ],
)
def test_invisible_characters_are_shown(text, shown):
    assert escape(text) == shown


@given(st.text(st.characters(), max_size=30))
def test_no_invisible_or_control_character_remains(text):
    label = escape(text)
    assert len(label.splitlines()) <= 1
    label.encode("utf-8")
    for at, character in enumerate(label):
        joins = character in "\u200c\u200d" and 0 < at < len(label) - 1
        assert joins or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


@given(st.text(st.characters(), max_size=60), st.integers(1, 40))
def test_a_label_is_never_wider_than_asked_for(text, width):
    label = escape(text, width)
    assert cell_len(label) <= width
    assert label == escape(text) or "…" in label


def test_a_long_label_loses_its_middle():
    assert escape("Donaudampfschifffahrt", 9) == "Dona…ahrt"
    assert escape("猫" * 9, 8) == "猫猫…猫"


def test_a_letter_keeps_its_marks_when_a_label_is_cut():
    assert escape("e\u0301" * 9, 5) == "e\u0301e\u0301…e\u0301e\u0301"


def test_a_code_point_is_cut_whole():
    assert escape("\u202e" * 4, 20) == "⟨U+202E⟩…⟨U+202E⟩"


def test_characters_that_cannot_be_drawn_become_code_points():
    assert escape("a猫", missing={"猫"}) == "a⟨U+732B⟩"
    assert escape("\x1b", missing={"␛"}) == "⟨U+001B⟩"
