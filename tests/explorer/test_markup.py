"""The page's markup and the modules that fill it agree."""

from __future__ import annotations

import re
from pathlib import Path

from regard.explorer.bundle import frontend_file, page_markup

FRONTEND = Path(__file__).parents[2] / "src" / "regard" / "explorer" / "frontend"


def test_every_named_element_is_declared_once():
    declared = re.search(r"interface Refs \{\n(.*?)\n\}", (FRONTEND / "types.d.ts").read_text("utf-8"), re.DOTALL)
    named = re.findall(r'data-ref="(\w+)"', page_markup())
    assert len(named) == len(set(named))
    twice = re.search(r'<template data-ref="liveBox">(.*?)</template>', page_markup(), re.DOTALL)[1]
    named += [f"{name}B" for name in re.findall(r'data-ref="(\w+)"', twice)]
    assert sorted(named) == sorted(re.findall(r"^  (\w+):", declared[1], re.MULTILINE))


def test_every_field_has_a_name_of_its_own():
    fields = re.findall(r"<(?:input|select|textarea)[^>]*>", page_markup())
    names = [label[1] for field in fields if (label := re.search(r'aria-label="([^"]*)"', field))]
    assert len(names) == len(set(names)) > 0


def test_every_control_sets_a_field_of_the_state():
    fields = set(re.findall(r"^  (\w+): \[", frontend_file("state/fields.js"), re.MULTILINE))
    assert set(re.findall(r'data-field="(\w+)"', page_markup())) <= fields
