"""The numbers of MiniLM in docs/explorer.md are those of the page."""

import re
from pathlib import Path

import numpy as np
import pytest
from explorations import explored

pytestmark = pytest.mark.minilm

PAGE = Path(__file__).parents[2] / "docs" / "explorer.md"
TIRED = "The animal did not cross the street because it was too tired"
WIDE = "The animal did not cross the street because it was too wide"
IT, ANIMAL, STREET, LAST = 9, 2, 7, 13


@pytest.fixture(scope="module")
def both(minilm):
    return explored(minilm, TIRED, WIDE)


@pytest.fixture(scope="module")
def page():
    return " ".join(PAGE.read_text(encoding="utf-8").split())


def test_both_texts_are_in_the_page_and_comparable(both, page):
    assert TIRED in page
    assert WIDE in page
    manifest = both.manifest()
    assert manifest["difference_blocked_by"] is None
    tokens = [token["text"] for token in manifest["runs"][0]["tokens"]]
    assert [tokens[i] for i in (IT, ANIMAL, STREET, LAST)] == ["it", "animal", "street", "[SEP]"]


def test_layer_3_head_1_finds_what_it_is(both, page):
    tired, wide = (both.row(run, 3, 1, IT) for run in range(2))
    assert tired.argmax() == ANIMAL
    shares = r"\*\*([\d.]+)\*\* to animal and \*\*([\d.]+)\*\* to street"
    told = re.search(f"{shares}.*{shares}", page).groups()
    shown = (tired[ANIMAL], tired[STREET], wide[ANIMAL], wide[STREET])
    assert told == tuple(f"{x:.2f}" for x in shown)


def test_of_all_72_heads_it_is_the_one_that_looks_at_the_animal_most(both):
    found = np.array([[both.row(0, layer, head, IT)[ANIMAL] for head in range(12)] for layer in range(6)])
    assert np.unravel_index(found.argmax(), found.shape) == (3, 1)


def test_where_attention_rests(both, page):
    words = slice(1, LAST)
    shares = [
        [np.mean([both.column(0, layer, head, special)[words].mean() for head in range(12)]) for special in (0, LAST)]
        for layer in range(6)
    ]
    told = re.findall(r"\| (\d) \| ([\d.]+) \| ([\d.]+) \|", page)
    assert told == [(str(n), f"{a:.2f}", f"{b:.2f}") for n, (a, b) in enumerate(shares)]
    given = np.array([[both.column(0, layer, head, 0)[words].mean() for head in range(12)] for layer in range(6)])
    assert f"head 7 of layer 2 gives it **{given[2, 7]:.2f}**" in page
    assert f"only **{(given > given[2, 7]).sum()}** of the 72 heads give it more" in page
    lengths = both.value_norms(0, 2)[7]
    assert f"**{lengths[0]:.1f}** long, those of the words **{lengths[words].mean():.1f}**" in page


def test_with_values_the_column_of_cls_is_gone(both):
    handed = both.whole(0, 2, 7, "norms")[1:LAST]
    assert handed[:, 0].mean() < handed[:, 1:].mean()


def test_without_that_head_the_last_vectors_hardly_change(both, page):
    cosines = both.ablate([[3, 1]])["changes"]["cosines"]
    assert f"a cosine of **{cosines[IT]:.3f}**" in page
