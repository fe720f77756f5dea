"""Links out of the repository have the form of addresses at their hosts, and those into it name its files."""

import pytest

from scripts import ROOT, script

addresses = script("docs/addresses.py")

_SOURCES = (
    *("*.md", "docs/**/*.md", "docs/notebooks/*.ipynb", "src/regard/**/*.py"),
    *("CITATION.cff", ".zenodo.json", "pyproject.toml"),
)
_FILES = sorted({path for pattern in _SOURCES for path in ROOT.glob(pattern)})
_HERE = ("http://127.0.0.1", "http://192.168.1.5:8766/")  # addresses of the explorer, here and for a class


def test_links_out_of_the_repository_have_the_form_of_their_hosts():
    named = {
        (str(path.relative_to(ROOT)), address)
        for path in _FILES
        for address in addresses.addresses(path.read_text(encoding="utf-8"))
        if not address.startswith(_HERE)
    }
    faults = {each: fault for each in named if (fault := addresses.fault(each[1]))}
    assert len(named) > 150
    assert faults == {}


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("http://arxiv.org/abs/1706.03762", "is not https"),
        ("https://localhost/page", "has no public host"),
        ("https://example.org//page", "//"),
        ("https://arxiv.org/abs/1706.3762", "form"),
        ("https://arxiv.org/abs/1713.03762", "form"),
        ("https://arxiv.org/abs/1706.03762.", "form"),
        ("https://doi.org/1038/323533a0", "form"),
        (f"https://github.com{addresses.OWN}/blob/main/docs/gone.md", "names docs/gone.md"),
        (f"https://colab.research.google.com/github{addresses.OWN}/blob/main/docs/notebooks/gone.ipynb", "names docs/"),
        (f"https://mybinder.org/v2/gh{addresses.OWN}/HEAD?labpath=docs/gone.ipynb", "names docs/gone.ipynb"),
    ],
)
def test_a_fault_is_named(link, says):
    assert says in addresses.fault(link)


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("(see https://example.org/a_(b)).", "https://example.org/a_(b)"),
        ("`Name <https://example.org/a>`_", "https://example.org/a"),
        ("[x](https://example.org/a).", "https://example.org/a"),
    ],
)
def test_an_address_ends_before_the_marks_of_its_sentence(text, link):
    assert addresses.addresses(text) == {link}
