"""What the signature of a query says, and the types that the page has of all of them."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

import make_query_types
from regard import RegardError
from regard.explorer.queries.head_search import find_heads
from regard.explorer.query import QUERIES, Query, dispatch


class Answers:
    """Something with a query of each type."""

    def ask(self, number: int, part: float = 0.5, *, kind: Literal["a", "b"] | int = "a", flag: bool = False) -> list:
        return [number, part, kind, flag]

    def cells(self, pairs: Sequence[tuple[int, str]], name: str | None = None, *, check=lambda: None) -> np.ndarray:
        check()
        return np.arange(len(pairs), dtype=np.float64)


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    for name in ("ask", "cells"):
        monkeypatch.setitem(QUERIES, name, Query(getattr(Answers, name), slow=False))


@pytest.mark.parametrize(
    ("params", "answer"),
    [
        ({"number": 3}, [3, 0.5, "a", False]),
        ({"number": -3, "part": 2, "kind": "b", "flag": True}, [-3, 2, "b", True]),
        ({"number": 0, "kind": 7}, [0, 0.5, 7, False]),
    ],
)
def test_parameters_are_passed(params, answer):
    assert dispatch(Answers(), "ask", params) == answer


def test_arrays_are_float32_and_a_query_can_be_cancelled():
    asked = {"pairs": [[1, "x"], [2, ""]], "name": None}
    assert dispatch(Answers(), "cells", asked).dtype == np.dtype("<f4")
    with pytest.raises(ZeroDivisionError):
        dispatch(Answers(), "cells", asked, lambda: 1 / 0)


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("ask", {}, "ask needs number"),
        ("ask", {"number": 1, "x": 1, "self": 1}, "ask takes number, part, kind, flag; not self, x"),
        ("ask", {"number": "1"}, "number is a whole number, not '1'"),
        ("ask", {"number": True}, "number is a whole number, not True"),
        ("ask", {"number": 1.0}, "number is a whole number"),
        ("ask", {"number": 2**53}, "number is a whole number"),
        ("ask", {"number": None}, "number is a whole number, not None"),
        ("ask", {"number": 1, "part": float("inf")}, "part is a finite number, not inf"),
        ("ask", {"number": 1, "part": 10**400}, "part is a finite number, not 1000"),
        ("ask", {"number": 1, "part": float("nan")}, "part is a finite number, not nan"),
        ("ask", {"number": 1, "part": False}, "part is a finite number"),
        ("ask", {"number": 1, "kind": "c"}, 'kind is "a" or "b" or a whole number, not \'c\''),
        ("ask", {"number": 1, "flag": 1}, "flag is true or false, not 1"),
        ("cells", {"pairs": "ab"}, "pairs is a list of [a whole number, a text], not 'ab'"),
        ("cells", {"pairs": [[1]]}, "pairs is a list of [a whole number, a text]"),
        ("cells", {"pairs": [], "name": 3}, "name is a text, not 3"),
        ("cells", {"pairs": [], "check": 3}, "cells takes pairs, name; not check"),
        ("run", {}, "there is no method 'run'"),
        ("__init__", {}, "there is no method '__init__'"),
    ],
)
def test_other_parameters_are_an_error(name, params, says):
    with pytest.raises(RegardError) as error:
        dispatch(Answers(), name, params)
    assert says in str(error.value)


def test_a_query_of_a_module_is_a_method_of_an_exploration(short):
    cells = [(1, 2), (3, 3)]
    expected = find_heads(short.run(0), cells)
    assert short.find_heads(0, cells) == short.find_heads(run=0, cells=cells) == expected
    assert dispatch(short, "find_heads", {"run": 0, "cells": [[1, 2], [3, 3]]}) == expected
    assert QUERIES["find_heads"].types["run"] is int
    assert list(QUERIES["paths"].parameters) == ["run", "position", "token", "versus", "corrupted"]
    with pytest.raises(AttributeError, match="Exploration has no find_cells"):
        _ = short.find_cells


def test_the_page_has_the_types_of_python(monkeypatch):
    monkeypatch.undo()
    assert make_query_types.PATH.read_text(encoding="utf-8") == make_query_types.render(), (
        "write them with: python tests/make_query_types.py"
    )
