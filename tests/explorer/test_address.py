"""An address says what a page shows; of an address nothing but the part after # is read."""

from contextlib import suppress
from html import unescape
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, strategies as st

from regard import RegardError
from regard.cli import main
from regard.explorer import server
from regard.explorer.address import read_address
from regard.explorer.server import redirect_file

ADDRESS = "http://127.0.0.1:8765/abc/#v=head&l=3&h=1&text=The+bat+%26+the+ball&model=smollm2&x=1.0_2.3"
CELL = "#v=cell&l=1&h=2&i=3&model=induction"


def test_an_address_names_text_model_and_view_and_a_file_may_hold_it(tmp_path):
    saved = tmp_path / "view.txt"
    saved.write_text(f"{ADDRESS}\n", encoding="utf-8")
    found = read_address(ADDRESS)
    assert read_address(str(saved)) == found
    assert (found.text, found.text_b) == ("The bat & the ball", None)
    assert found.models == ("smollm2",)
    assert parse_qsl(found.view) == [("v", "head"), ("l", "3"), ("h", "1"), ("x", "1.0_2.3")]


def test_two_texts_and_two_models_are_told_apart():
    found = read_address("#v=head&text=a&text_b=b&model=minilm&model_b=smollm2")
    assert (found.text, found.text_b, found.models) == ("a", "b", ("minilm", "smollm2"))
    found = read_address("#v=head&text_b=b&s=B")  # of A, which is too long for it, only the view
    assert (found.text, found.text_b, found.view) == (None, "b", "v=head&s=B")


@given(st.text(min_size=1, max_size=200))
def test_whatever_follows_is_read_or_refused(text):
    with suppress(RegardError):
        assert "#" not in read_address(f"#{text}").view


@pytest.fixture
def served(monkeypatch):
    asked = {}
    monkeypatch.setattr(server, "serve", lambda exploration, **options: asked.update(options, x=exploration))
    return asked


@pytest.mark.parametrize("given", [["--open", f"{CELL}&text=qzkfqz"], ["--file", "text.txt", "--open", CELL]])
def test_explore_opens_what_an_address_shows_and_a_text_too_long_for_it_is_in_a_file(
    served, tmp_path, monkeypatch, given
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("qzkfqz", encoding="utf-8")
    assert main(["explore", *given, "--no-browser"]) == 0
    (run,) = served["x"].manifest()["runs"]
    assert (texts_of(served), run["model"], served["view"]) == (["qzkfqz"], "induction", "v=cell&l=1&h=2&i=3")


def test_a_text_and_a_model_that_are_given_come_first(served, write_bert):
    folder = str(write_bert())
    assert main(["explore", "the cat", "--model", folder, "--open", "#v=head&text=other&model=minilm"]) == 0
    (run,) = served["x"].manifest()["runs"]
    assert (run["text"], run["model"]) == ("the cat", folder)


def texts_of(served):
    return [run["text"].replace(" ", "") for run in served["x"].manifest()["runs"]]


def test_text_b_of_an_address_stays_b(served, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("qzkfqz", encoding="utf-8")
    b = "#v=head&text_b=bdb&model=induction&s=B"
    for text in (["--file", str(tmp_path / "text.txt")], ["qzkfqz"]):
        assert main(["explore", *text, "--open", b, "--no-browser"]) == 0
        assert texts_of(served) == ["qzkfqz", "bdb"]
    assert main(["explore", "--open", f"{b}&text=zkz", "--no-browser"]) == 0
    assert texts_of(served) == ["zkz", "bdb"]
    assert main(["explore", "qzkfqz", "zkz", "--open", b, "--no-browser"]) == 0
    assert texts_of(served) == ["qzkfqz", "zkz"]
    assert main(["explore", "--open", b, "--no-browser"]) == 2
    assert "the address names no text" in capsys.readouterr().err
    assert main(["explore", "qzkfqz", "--open", "#v=head&text_b=+&model=induction", "--no-browser"]) == 2
    assert "the second text of the address is empty" in capsys.readouterr().err


def test_an_address_is_no_markup_in_the_page_that_leads_there():
    with redirect_file('http://127.0.0.1:1/t/#v=head&q="><script>') as path:
        page = path.read_text()
    assert "<script>" not in page
    assert unescape(page).count('#v=head&q="><script>') == 2


def test_a_choice_of_nothing_is_a_part_of_the_view():
    assert parse_qsl(read_address("#v=lines&lh=&text=a").view, keep_blank_values=True) == [("v", "lines"), ("lh", "")]
