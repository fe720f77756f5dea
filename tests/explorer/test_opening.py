"""What the page opens with: the head and the word whose attention tells something of the text."""

from types import SimpleNamespace

import numpy as np
import pytest

import regard
from regard.explorer.exploration import Exploration
from regard.explorer.opening import MIN_EXCESS, Opening, distinctive_cells, opening_of, strongest_cell, telling_weight
from regard.trace import Trace

WORDS = "[CLS] she told him that her brother had lost his wallet . [SEP]".split()
N = len(WORDS)


def run_of(*heads, layers=1):
    """Return what stands for a run with these weights, ``T T`` each, in every layer."""

    def tile(head, rows, cols):
        return heads[head][np.ix_(*(range(N) if tokens is None else tokens for tokens in (rows, cols)))]

    layer = SimpleNamespace(tile=tile, heads=heads)
    special = [word[0] == "[" for word in WORDS]
    words = {"text": "", "tokens": WORDS, "offsets": [(0, 0)] * N, "word_ids": [None, *range(N - 2), None]}
    encoding = SimpleNamespace(**words, special_tokens_mask=special)
    shown = {"telling_layers": lambda: list(range(layers)), "telling_tokens": lambda most: np.arange(N)[:most]}
    return SimpleNamespace(
        length=N, encoding=encoding, layers=[layer] * layers, is_long=False, number=lambda n: n, model=None, **shown
    )


def even(*cells):
    """Return even weights, but for some (row, col, weight)."""
    weights = np.full((N, N), 1 / N)
    for row, col, weight in cells:
        weights[row] = (1 - weight) / (N - 1)
        weights[row, col] = weight
    return weights


BY_POSITION = np.roll(np.eye(N), -2, axis=1)  # to the word two after
TO_ONE = np.eye(N)[[5] * N]  # all to one word
LOST, WALLET = WORDS.index("lost"), WORDS.index("wallet")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_a_weight_that_others_do_not_share_is_telling(order):
    heads = [BY_POSITION, TO_ONE, even((LOST, WALLET, 0.9)), even((2, 5, 0.7))]
    excess, found = telling_weight(run_of(*(heads[n] for n in order)), [(0, n) for n in range(4)])
    assert found == Opening(0, order.index(2), LOST, WALLET)
    assert excess == pytest.approx(0.9 - 2 / N, abs=0.03)


@pytest.mark.parametrize(
    ("row", "col"), [(LOST, LOST + 1), (LOST, LOST), (LOST, 0), (0, LOST), (LOST, WORDS.index(".")), (LOST, N - 1)]
)
def test_neighbours_punctuation_and_special_tokens_are_not(row, col):
    excess, _ = telling_weight(run_of(even((row, col, 0.95))), [(0, 0)])
    assert excess < MIN_EXCESS


def test_a_head_that_is_asked_for_is_opened():
    run = run_of(even((LOST, WALLET, 0.9)), even((2, 5, 0.8)), BY_POSITION, layers=2)
    assert opening_of(run, None, None)[:4] == (0, 0, LOST, WALLET)
    assert opening_of(run, 1, 1)[:4] == (1, 1, 2, 5)
    assert opening_of(run, 1, None)[:4] == (1, 0, LOST, WALLET)
    assert opening_of(run, None, 2)[:4] == (1, 2, None, None)


def test_without_words_no_token_is_chosen():
    run = run_of(even())
    assert opening_of(run, None, None)[2:4] == (None, None)
    run.encoding = None
    assert opening_of(run, None, None)[:4] == (0, 0, None, None)


def test_without_a_telling_weight_a_head_of_other_words_opens():
    assert opening_of(run_of(np.eye(N), np.eye(N)[[0] * N], even()), None, None)[:4] == (0, 2, None, None)


def test_the_strongest_cell_is_of_two_words_if_there_is_one():
    strong = even((LOST, WALLET, 0.6), (LOST - 1, LOST - 1, 0.9), (WALLET, 0, 0.9), (3, N - 1, 0.8))
    assert strongest_cell(run_of(strong, np.eye(N)), 0, 0) == (LOST, WALLET)
    assert strongest_cell(run_of(strong, np.eye(N)), 0, 1) == (0, 0)


def test_a_shorter_text_does_not_get_a_token_that_it_lacks():
    opening, run = Opening(3, 5, 7, 2), run_of(even())
    assert opening.describe(run) == {"layer": 0, "head": 0, "row": 7, "col": 2}
    run.length = 7
    assert opening.describe(run) == {"layer": 0, "head": 0}


@pytest.mark.minilm
@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("She told him that her brother had lost his wallet.", ("lost", "wallet")),
        ("The animal did not cross the street because it was too tired", ("cross", "street")),
        ("When Mary and John went to the store, John gave a drink to Mary", ("john", "john")),
    ],
)
def test_the_page_opens_with_words_that_belong_together(minilm, text, pair):
    trace = Trace(maps=True, only="*")
    minilm(text, trace=trace)
    exploration = Exploration(trace, models=[minilm])
    initial = exploration.manifest()["runs"][0]["initial"]
    tokens = trace.encodings[0].tokens
    assert (tokens[initial["row"]], tokens[initial["col"]]) == pair
    assert trace[f"blocks.{initial['layer']}.attn.weights"][0, initial["head"], initial["row"], initial["col"]] > 0.5


def test_one_token_opens():
    trace = Trace(maps=True, only="*")
    model = regard.models.toy(["cat"])
    model("cat", trace=trace)
    assert Exploration(trace, models=[model]).opening[:4] == (0, 0, None, None)


def test_the_distinctive_cells_are_of_different_keys_and_heads_asked_for_do_not_change_them():
    run = run_of(even((LOST, WALLET, 0.9)), even((2, WALLET, 0.95)), even((2, 5, 0.8)), BY_POSITION)
    cells = distinctive_cells(run)
    assert [tuple(cell.values()) for cell in cells] == [
        (0, 1, 2, WALLET, pytest.approx(0.95)),
        (0, 2, 2, 5, pytest.approx(0.8)),
    ]
    assert opening_of(run, 0, 3).cells == cells
    run.is_long = True
    assert distinctive_cells(run) == ()
