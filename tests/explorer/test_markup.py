"""The page's markup and the modules that fill it agree, and its JavaScript stays small."""

from __future__ import annotations

import re
from pathlib import Path

from regard.explorer.bundle import frontend_file, page_markup

FRONTEND = Path(__file__).parents[2] / "src" / "regard" / "explorer" / "frontend"
MAX_LINES = 7500  # issue 20: a page that one person can read


def test_the_javascript_does_not_grow_past_its_limit():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FRONTEND.rglob("*.js"))
    assert lines <= MAX_LINES


def test_every_named_element_is_declared_once():
    declared = re.search(r"interface Refs \{\n(.*?)\n\}", (FRONTEND / "types.d.ts").read_text("utf-8"), re.DOTALL)
    named = re.findall(r'data-ref="(\w+)"', page_markup())
    assert len(named) == len(set(named))
    assert sorted(named) == sorted(re.findall(r"^  (\w+):", declared[1], re.MULTILINE))


def test_every_control_sets_a_field_of_the_state():
    fields = set(re.findall(r"^  (\w+): \[", frontend_file("state/fields.js"), re.MULTILINE))
    assert set(re.findall(r'data-field="(\w+)"', page_markup())) <= fields
