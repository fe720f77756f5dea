"""Font fallback: missing characters come from other fonts or become code points, never an empty box."""

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from regard.plot import fonts, heatmap
from regard.plot.fonts import find_fonts

TEXTS = [
    "猫は", "한국어", "नमस्ते", "🍕", "👩‍👩‍👧", "❤️", "שָׁלוֹם", "می‌خواهم", "𓀀", "葛\U000e0100", "a\u2003b", "\x1b",
    "\ud800",
]  # fmt: skip


@pytest.fixture
def only_dejavu(monkeypatch):
    """Pretend that nothing but matplotlib's own fonts is installed."""
    own = [font for font in font_manager.fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])


@pytest.mark.parametrize("fonts", [(), ("only_dejavu",)], ids=["of this machine", "of matplotlib"])
@pytest.mark.parametrize("text", TEXTS)
def test_no_glyph_is_missing(request, text, fonts):
    """A missing glyph is a warning, and a warning is an error."""
    for name in fonts:
        request.getfixturevalue(name)
    heatmap(np.eye(1), [text]).figure.draw_without_rendering()


@pytest.mark.usefixtures("only_dejavu")
def test_characters_without_a_font_become_code_points():
    letters = find_fonts(["猫", "the", "שלום", "\x1b"])
    assert letters.families == ("DejaVu Sans",)
    assert letters.missing == {"猫", "␛"}
    assert letters.label("a猫") == "a⟨U+732B⟩"
    assert letters.label("\x1b") == "⟨U+001B⟩"
    assert letters.label("שלום") == "שלום"


def test_other_fonts_are_not_looked_for_when_the_first_is_enough(monkeypatch):
    monkeypatch.setattr(fonts, "_installed", lambda: pytest.fail("looked for other fonts"))
    assert find_fonts(["the", "שלום", "مرحبا"]).families == ("DejaVu Sans",)


def test_a_font_that_has_the_character_is_used(monkeypatch):
    """Nothing is known of this machine's fonts, so STIX stands in for one that is installed."""
    character = "\U0001d79e"  # in STIX, not in DejaVu Sans
    monkeypatch.setattr(fonts, "_installed", lambda: ["DejaVu Serif", "STIXGeneral"])
    letters = find_fonts([character])
    assert letters.families == ("DejaVu Sans", "STIXGeneral")
    assert letters.label(character) == character
    figure = Figure()
    figure.text(0, 0, character, family=list(letters.families))
    figure.draw_without_rendering()


class Pictures:
    """A font of bitmaps: FreeType refuses to set a size, or its glyphs have no outlines."""

    def __init__(self, *, refuses):
        self.refuses = refuses

    def get_char_index(self, code):
        return 1

    def set_size(self, size, dpi):
        if self.refuses:
            raise RuntimeError("Could not set the fontsize (invalid pixel size; error code 0x17)")

    def load_char(self, code):
        pass

    def get_path(self):
        return [], []


@pytest.mark.parametrize("refuses", [True, False])
def test_a_font_of_pictures_does_not_count(monkeypatch, refuses):
    first = fonts._font("DejaVu Sans")
    monkeypatch.setattr(fonts, "_installed", lambda: ["Colour Emoji"])
    monkeypatch.setattr(fonts, "_font", lambda name: first if name == "DejaVu Sans" else Pictures(refuses=refuses))
    assert find_fonts(["🍕"]).missing == {"🍕"}


def test_a_font_installed_after_the_first_run_is_found(monkeypatch):
    """matplotlib keeps a list of fonts from its first run; what the system has gained since is looked for anew."""

    def add(path):
        manager.ttflist.append(font_manager.FontEntry(fname=path, name="New", style="normal", weight=400))

    manager = font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [])
    monkeypatch.setattr(manager, "addfont", add)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/new/font.ttf"])
    monkeypatch.setattr(fonts, "_font", lambda name: name)
    monkeypatch.setattr(fonts, "_drawn", lambda font, characters: set(characters) if font == "New" else set())
    found = find_fonts(["猫"])
    assert (found.families, found.missing) == (("DejaVu Sans", "New"), frozenset())
