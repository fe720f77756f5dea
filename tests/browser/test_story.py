"""A story beside the views: steps with addresses, prediction first, checked answers, with keys alone and in a file."""

from __future__ import annotations

import pytest
from acts import click, press
from pages import check_access, expect, plain, settled

import regard
from regard.explorer.launch import exploration_of
from regard.explorer.story import load_story, opening_texts

HOSTILE = """\
# <img src=x onerror=alert(1)>
## <script>alert(1)</script>
[<b>bold</b>](#v=head&text=aba&model=induction&l=99&i=%3Cscript%3E&q=%22%3E%3Cimg) [a](javascript:alert(1)) \u202eback
- [x] <img src=x onerror=alert(1)>
---
</script><!-- [there](#v=cell&l=1&i=2&j=0)
"""


def story_of(page):
    return page.locator(".rg-story")


def answer(page, name):
    click(story_of(page).get_by_role("button", name=name, exact=True))


@pytest.fixture(scope="module")
def animal():
    story = load_story("animal")
    texts, model = opening_texts(story)
    exploration = exploration_of(texts[:1], model)
    exploration.story = story
    return exploration


def test_a_reader_predicts_finds_and_goes_back(open_page, serve, animal):
    page = open_page(serve(animal), selector=".rg-story")
    story, main = story_of(page), page.locator("main")
    assert "1 of 4" in story.inner_text()
    check_access(page, 1280, 1024, 390)
    page.set_viewport_size({"width": 1280, "height": 800})
    answer(page, "Next")
    assert story.get_by_role("heading").evaluate("(node) => node === document.activeElement")
    expect(main).not_to_be_visible()
    assert "0.65" not in story.inner_text()
    address = page.url
    press(page, "Tab")
    press(page, "Enter")  # the first answer is wrong
    assert page.locator(".rg-verdict").inner_text() == "You chose street. The model has it otherwise."
    assert page.locator(".rg-choice").all_inner_texts() == ["street ✗ your choice", "animal ✓", "tired"]
    assert "0.65" in story.inner_text()
    expect(main).to_be_visible()
    assert "it attends to animal: 0.653" in plain(page.locator(".rg-readout"))
    answer(page, "Next")
    assert page.locator(".rg-verdict").inner_text() == ""
    for cell in ("[data-index='5']", "[data-index='9']"):
        click(page.locator(f".rg-text {cell}"))
    page.locator(".rg-stage").focus()
    press(page, *["ArrowRight"] * 8)
    assert page.locator(".rg-verdict").inner_text() == "Yes."
    check_access(page, 390)
    page.set_viewport_size({"width": 1280, "height": 800})
    answer(page, "Next")
    answer(page, "about half")
    expect(page.locator(".rg-live textarea")).to_have_value(opening_texts(load_story("animal"))[0][1])
    assert "it attends to animal: 0.300" in plain(page.locator(".rg-readout"))
    answer(page, "End")
    assert not story.is_visible()
    page.goto(address)
    page.reload()
    settled(page)
    assert "2 of 4" in story.inner_text()
    expect(main).not_to_be_visible()


def test_only_a_cell_that_is_chosen_in_the_step_answers_and_a_wrong_one_is_said(open_page, serve, animal):
    view = load_story("animal")["steps"][2]["view"]
    page = open_page(f"{serve(animal)}#{view}&i=9&j=7&story=animal&part=2", selector=".rg-story")  # as after a reload
    verdict, reveal = page.locator(".rg-verdict"), page.locator("[data-ref=storyReveal]")
    assert (verdict.inner_text(), reveal.inner_text()) == ("", "")
    page.locator(".rg-stage").focus()
    press(page, "ArrowRight")
    assert plain(verdict) == "Not it → because: try again, or show the answer."
    assert verdict.get_attribute("role") == "status"
    assert reveal.inner_text() == ""
    page.go_back()
    settled(page)
    assert verdict.inner_text() == ""  # what it was said of is chosen no more
    page.locator(".rg-stage").focus()
    press(page, "ArrowRight", "ArrowLeft")
    assert verdict.inner_text() == "Yes."
    assert "Right" in reveal.inner_text()


@pytest.mark.parametrize("has_both", [True, False])
def test_a_step_whose_text_is_b_shows_b_and_a_stays(open_page, serve, animal, minilm, has_both):
    texts, _ = opening_texts(load_story("animal"))
    both = exploration_of(texts, minilm)
    both.story = animal.story
    address = serve(both if has_both else animal)
    here = "" if has_both else f"&text_b={texts[1]}"
    page = open_page(f"{address}#v=head&l=3&h=1&story=animal&part=3{here}", selector=".rg-story")
    asked = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    answer(page, "about half")
    assert "it attends to animal: 0.300" in plain(page.locator(".rg-readout"))
    fields = [page.get_by_role("textbox", name=name, exact=True) for name in ("Text", "Text of B")]
    assert [field.input_value() for field in fields] == texts
    answer(page, "Back")
    answer(page, "Show the answer")
    click(story_of(page).get_by_role("button", name="Here is the map"))
    press(page, "Escape")
    assert [field.input_value() for field in fields] == texts
    assert "run_text" not in asked


def test_a_file_tells_a_story_of_numbers_which_begins_again_at_its_first_step(open_page, tmp_path):
    regard.explore(story="softmax", html=tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri(), selector=".rg-story", offline=True)
    story, verdict = story_of(page), page.locator(".rg-verdict")
    first = story.inner_text()
    answer(page, "the first a")
    assert story.inner_text() != first
    click(page.locator("[data-ref=stories] summary"))
    click(page.locator("[data-ref=storyList]").get_by_text("The softmax by hand"))
    assert story.inner_text() == first
    answer(page, "b")
    assert verdict.inner_text().startswith("Yes")
    answer(page, "Next")
    box = page.get_by_role("textbox", name="Your number")
    box.fill("1")
    box.press("Enter")
    assert "try again" in verdict.inner_text()
    box.fill("−1,27")
    box.press("Enter")
    assert verdict.inner_text() == "Yes."
    check_access(page, 390, 1280)
    for _ in range(2):
        answer(page, "Next")
        answer(page, "Show the answer")
    assert page.locator(".rg-cell [data-step=row]").is_visible()
    click(page.get_by_role("button", name="End the story"))
    click(page.get_by_text("Stories", exact=True))
    click(page.locator(".rg-menu[open]").get_by_role("button", name="The softmax by hand"))
    assert "1 of 4" in story.inner_text()


@pytest.mark.parametrize("where", ["server", "file"])
def test_a_hostile_story_is_inert(open_page, serve, tmp_path, where):
    path = tmp_path / "story.md"
    path.write_text(HOSTILE, "utf-8")
    if where == "file":
        regard.explore(story=path, html=tmp_path / "page.html")
        address = (tmp_path / "page.html").as_uri()
    else:
        exploration = exploration_of(["aba"], "induction")
        exploration.story = load_story(path)
        address = serve(exploration)
    page = open_page(address, selector=".rg-story")
    story = story_of(page)
    answer(page, "<img src=x onerror=alert(1)>")
    assert story.locator("img, script, a, b, iframe").count() == 0
    assert "[a](javascript:alert(1))" in story.inner_text()
    assert "\u202e" not in story.inner_text()
    assert "</script><!--" in story.inner_text()
