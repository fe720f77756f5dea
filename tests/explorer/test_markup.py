"""The page's markup and the modules that fill it agree."""

import re

from regard.explorer.bundle import frontend_file, page_markup


def test_every_named_element_has_a_name_of_its_own():
    named = re.findall(r'data-ref="(\w+)"', page_markup())
    assert len(named) == len(set(named)) > 0


def test_every_field_has_a_name_of_its_own():
    fields = re.findall(r"<(?:input|select|textarea)[^>]*>", page_markup())
    names = [label[1] for field in fields if (label := re.search(r'aria-label="([^"]*)"', field))]
    assert len(names) == len(set(names)) > 0


def test_every_control_sets_a_field_of_the_state():
    fields = set(re.findall(r"^  (\w+): field\(", frontend_file("state/fields.js"), re.MULTILINE))
    assert set(re.findall(r'data-field="(\w+)"', page_markup())) <= fields
