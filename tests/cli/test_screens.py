"""What commands print is what was looked at: the screens in `tests/cli/screens`, which ``tests/screens.py`` writes."""

import pkgutil
import re

import pytest
from rich.cells import cell_len

from regard.cli import commands
from regard.plot.style import luminance
from screens import FOLDER, SCREENS, differs, screen

LIGHT, DARK = (255, 255, 255), (18, 18, 20)


def stored(name):
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCREENS)
def test_a_command_prints_what_was_looked_at(name):
    assert differs(stored(name), screen(name)) == "", "if this is better: python tests/screens.py, then look at it"


def test_no_screen_is_left_over_and_no_command_left_out():
    assert {path.stem for path in FOLDER.iterdir()} == set(SCREENS)
    names = {name for _, name, _ in pkgutil.iter_modules(commands.__path__)}
    drawn = {name.partition("-")[0] for name in SCREENS}
    assert names - drawn == {"completion", "train"}  # which prints a script, and which takes long


@pytest.mark.parametrize("name", [name for name in SCREENS if name not in ("generate", "models", "pull", "info")])
def test_every_line_fits_its_terminal(name):
    for part in re.split("════ (?=[0-9])", stored(name))[1:]:
        heading, *lines = part.splitlines()
        for line in lines:
            assert cell_len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= int(heading.split()[0])


def test_every_colour_can_be_read_on_a_light_and_on_a_dark_terminal():
    """Text of a colour has a contrast of 3 with the terminal, as its size and meaning ask; text on a colour, of 4.5."""
    found = {escape for name in SCREENS for escape in re.findall(r"\x1b\[([0-9;]+)m", stored(name))}
    for escape in found:
        codes = [int(code) for code in escape.split(";")]
        ink, ground = (codes[at + 2 : at + 5] if (at := place(codes, start)) >= 0 else None for start in (38, 48))
        assert {code for code in codes[:2] if code < 30} <= {0, 1, 2}  # bold and dim
        assert not any(30 <= code < 38 or 40 <= code < 48 or code >= 90 for code in codes[:1])  # a theme's own colours
        if ink and ground:
            assert contrast(ink, ground) >= 4.5
        elif ink:
            assert min(contrast(ink, LIGHT), contrast(ink, DARK)) >= 3
        if ground:
            assert min(contrast(ground, LIGHT), contrast(ground, DARK)) >= 3
    assert sum(";" in escape for escape in found) > 10


def place(codes, start):
    return next((at for at in range(len(codes) - 1) if codes[at : at + 2] == [start, 2]), -1)


def contrast(one, other):
    light, dark = sorted((luminance([c / 255 for c in color]) + 0.05 for color in (one, other)), reverse=True)
    return light / dark


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("the   0.43 animal", "the   0.44 animal", True),
        ("the   0.43 animal", "the   0.45 animal", False),
        ("the   0.43 animal", "the   0.43 animals", False),
        ("the   0.43 animal", "the  0.43 animal", False),
        ("    6   ▓  9", "    6   ▓ 10", True),
        ("    6   ▓ 19", "    6   ░ 20", True),
        ("L3H7  0.1", "L3H8  0.1", False),
        ("layer 0   0.870  ███████", "layer 0   0.871  ████████", True),
        ("6 layers", "5 layers", False),
        ("−1.10e−4", "−1.11e−4", True),
    ],
)
def test_a_screen_may_differ_by_rounding_only(old, new, same):
    assert (differs(old, new) == "") == same
