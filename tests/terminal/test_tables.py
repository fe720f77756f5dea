"""The table and the heat map in the terminal: aligned lines of the right width for any text."""

import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.functional import softmax
from regard.terminal import terminal_heatmap, terminal_table
from regard.views import select

ODD = ["a", "猫猫猫猫猫猫猫猫", "הביתה", "😀", "e\u0301" * 30, "\x1b[31m", "\u202eevil", "x" * 300, " ", "\x00"]


def view_of(count, tokens=None, seed=0):
    weights = softmax(np.random.default_rng(seed).standard_normal((count, count)) * 2)
    return select(weights, tokens or [f"w{i}" for i in range(count)])


def printed(renderable, width=80):
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(renderable, soft_wrap=True)
    return capture.get()


@pytest.mark.parametrize("colour", [False, True])
def test_columns_stand_below_each_other_in_any_script(colour):
    text = terminal_heatmap(view_of(len(ODD), ODD), width=120, color=colour).plain
    lines = text.splitlines()[:-1]
    assert len(lines) == 1 + len(ODD)
    assert len(set(map(cell_len, lines))) == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_every_number_is_the_weight_in_hundredths():
    view = view_of(5)
    rows = terminal_heatmap(view, width=80).plain.splitlines()[1:6]
    for line, row in zip(rows, view.weights, strict=True):
        assert [0 if n == "·" else int(n) for n in re.findall(r"\d+|·", line)[1:]] == [round(100 * w) for w in row]


def test_the_darkest_shade_is_the_strongest_weight():
    view = select(np.array([[0.9, 0.1], [0.45, 0.55]]), ["a", "b"])
    rows = terminal_heatmap(view, width=80).plain.splitlines()[1:3]
    assert "█ 90" in rows[0]
    assert "▒ 45" in rows[1]
    assert "▓ 55" not in rows[0]


def test_a_cell_of_a_long_text_is_the_largest_of_its_square():
    weights = np.zeros((200, 200))
    weights[:, 0] = 0.01
    weights[123, 57] = 0.9
    text = terminal_heatmap(select(weights, [str(i) for i in range(200)]), width=60).plain
    side = int(re.search(r"(\d+)×", text)[1])
    rows = text.splitlines()
    dark = [i for i, row in enumerate(rows) if "█" in row]
    assert dark == [1 + 123 // side]
    assert rows[dark[0]].startswith(f"{123 // side * side} ")
    margin = 2 * (len(str(199)) + 1)
    assert (rows[dark[0]].index("█") - margin) == 57 // side


def test_a_map_of_zeros_is_drawn():
    assert "·" in terminal_heatmap(select(np.zeros((2, 2)), ["a", "b"])).plain


def test_the_table_names_as_many_as_there_are():
    text = printed(terminal_table(view_of(2), top=5))
    assert text.splitlines()[0].split() == ["word", "attends", "most", "to", "then", "to"]


def test_the_table_of_some_rows():
    text = printed(terminal_table(view_of(5).rows([3]), top=1))
    assert [line.split()[0] for line in text.splitlines()] == ["word", "w3"]


def test_the_table_is_inert():
    text = printed(terminal_table(view_of(len(ODD), ODD)), width=200)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert len(text.splitlines()) == 1 + len(ODD)


WORDS = [
    "unquestionably extraordinary strawberries notwithstanding counterproductive internationalization overwhelmingly",
    "characteristically misunderstood electromagnetic responsibilities incomprehensibility disproportionately",
    "straightforward compartmentalization",
]
LONG_WORDS = " ".join(WORDS).split()


def causal_view(count, tokens=None):
    weights = np.tril(softmax(np.random.default_rng(0).standard_normal((count, count))))
    return select(weights / weights.sum(-1, keepdims=True), tokens or [f"w{i}" for i in range(count)])


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize(
    "tokens",
    [
        *(LONG_WORDS, ODD, LONG_WORDS[:2], ["strawberry"] * 9),
        *([f"w{i}" for i in range(count)] for count in (1, 2, 7, 13, 14, 15, 16, 31, 60, 79, 200, 500)),
    ],
    ids=len,
)
def test_every_line_fits_the_terminal(width, tokens):
    view = view_of(len(tokens), tokens)
    for text in (terminal_table(view, width=width), *(terminal_heatmap(view, width=width, color=c) for c in (0, 1))):
        assert max(map(cell_len, text.plain.splitlines())) <= width
        assert all(line == line.rstrip() for line in text.plain.splitlines())


@pytest.mark.parametrize("width", [80, 100, 120])
def test_words_are_not_cut_while_keys_can_continue_on_the_next_line(width):
    text = terminal_table(view_of(15, LONG_WORDS), width=width).plain
    assert "…" not in text
    assert sum(map(text.count, LONG_WORDS)) == 15 * 4


def test_a_long_word_is_cut_only_where_it_does_not_fit():
    word = "Donaudampfschifffahrtsgesellschaft"
    view = view_of(2, [word, "a"])
    assert "…" not in terminal_table(view, width=120).plain + terminal_heatmap(view, width=120).plain
    assert "…" in terminal_table(view, width=60).plain


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [80, 100, 120, 400])
@pytest.mark.parametrize("tokens", [LONG_WORDS, ["strawberry", "a", "b"] * 3])
def test_every_column_of_a_short_text_has_its_name_or_its_number(tokens, width, color):
    heading, *rows = terminal_heatmap(view_of(len(tokens), tokens), width=width, color=color).plain.splitlines()
    if heading.split() != tokens:
        assert heading.split() == [str(number) for number in range(len(tokens))]
        for number, token in enumerate(tokens):
            assert rows[number].split()[:2] == [str(number), token]


def test_the_columns_of_a_longer_text_are_numbered_like_its_rows():
    heading, *rows = terminal_heatmap(view_of(31), width=80).plain.splitlines()
    first = rows[0].index("w0") + len(" w0 ") - 1
    for number in heading.split():
        assert rows[int(number)].split()[:2] == [number, f"w{number}"]
        assert (heading.index(f" {number}") + 1 - first) % int(number or 1) == 0 if int(number) else True


def test_numbered_columns_are_listed_where_no_row_names_them():
    view = view_of(15, LONG_WORDS).rows([3])
    text = terminal_heatmap(view, width=80).plain
    assert text.splitlines()[1].split()[:2] == ["3", "notwithstanding"]
    listed = text[text.index("columns: ") :].split()[1:]
    assert listed == [part for number, word in enumerate(LONG_WORDS) for part in (str(number), word)]


@pytest.mark.parametrize("width", [20, 80])
def test_masked_cells_are_blank_and_the_others_are_not(width):
    view = causal_view(9)
    _, *rows = terminal_heatmap(view, width=width).plain.splitlines()
    assert "blank: masked" in " ".join(" ".join(rows).split())
    for number, row in enumerate(rows[:9]):
        cells = row.split(f"w{number} ")[1]
        shown = re.findall(r"[░▒▓█ ]+\d+|·", cells) if width == 80 else re.findall("[·░▒▓█]", cells)
        assert len(shown) == number + 1
    assert "masked" not in terminal_heatmap(view_of(9), width=width).plain


def test_the_table_names_only_keys_that_can_be_attended_to():
    lines = terminal_table(causal_view(4)).plain.splitlines()[1:]
    assert [line.count("0.") + line.count("1.00") for line in lines] == [1, 2, 3, 3]


def test_the_dot_is_explained_where_there_is_one():
    assert "·: rounds to 0" in terminal_heatmap(select(np.eye(2), ["a", "b"])).plain
    assert "·" not in terminal_heatmap(select(np.full((2, 2), 0.5), ["a", "b"])).plain
