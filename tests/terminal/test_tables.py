"""The table and the heat map in the terminal: aligned lines of the right width for any text."""

from __future__ import annotations

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


@pytest.mark.parametrize("count", [1, 2, 7, 13, 14, 15, 16, 31, 60, 79, 200, 500])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_the_heat_map_never_exceeds_its_width(count, width, colour):
    lines = terminal_heatmap(view_of(count), width=width, color=colour).plain.splitlines()
    assert max(map(cell_len, lines[:-1])) <= width


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
    assert dark == [123 // side]
    margin = len(str(199)) + 1
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
