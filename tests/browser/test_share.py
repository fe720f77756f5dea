"""A class: a teacher's page, and pupils who follow it, look by themselves and come back."""

from __future__ import annotations

import re

import pytest
from acts import click, press, reach
from pages import TEXT, check_access, explored, plain, readout, served, settled

from regard.explorer.launch import exploration_of
from regard.explorer.share import sharing
from regard.explorer.story import load_story, opening_texts

REFUSED = "404 (Not Found)"  # of a code, which the page says


@pytest.fixture
def classroom(minilm):
    """Return a class, and the address of its teacher's page."""
    exploration = explored(minilm, TEXT)
    with sharing(exploration, "127.0.0.1", 0) as classroom, served(exploration) as address:
        yield classroom, address


def heading(page):
    return page.locator("h2").first


def heads(page, name):
    """Wait until a page shows a head."""
    page.wait_for_function("(name) => document.querySelector('h2').textContent === name", arg=name)
    settled(page)


def test_two_pupils_enter_follow_look_by_themselves_and_come_back(classroom, open_page):
    room, address = classroom
    teacher = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2")
    teacher.get_by_text("Class", exact=True).click()
    menu = teacher.locator(".rg-class")
    assert room.address in menu.inner_text()
    assert room.code in menu.inner_text()
    assert menu.get_by_role("img", name=re.compile("QR code")).bounding_box()["width"] > 250
    check_access(teacher, 420, note="the teacher's menu", themes=())
    teacher.set_viewport_size({"width": 1440, "height": 900})
    teacher.keyboard.press("Escape")

    one = open_page(f"{room.address}{room.code}/")  # as the QR code has it
    two = open_page(room.address, selector="#code", allow=REFUSED)
    button = two.get_by_role("button", name="Enter")
    width = button.bounding_box()["width"]
    for code in ("AAAAAA", f" {room.code[:3].lower()} {room.code[3:].lower()}"):
        assert button.bounding_box()["width"] == width  # beside a long message too
        check_access(two, 420, note="the door", themes=())
        with two.expect_navigation():
            two.locator("#code").fill(code)
            two.keyboard.press("Enter")
        assert code != "AAAAAA" or "not the code" in two.locator("#status").inner_text()
    two.wait_for_selector(".rg-map[data-drawn]")
    check_access(one, 420, note="a pupil's page")
    one.set_viewport_size({"width": 1440, "height": 900})
    for pupil in (one, two):
        heads(pupil, "Layer 2 · Head 3")
        for name in ("Whole model", "Paths", "What mattered", "Ablate this head", "Class", "Run", "Memory"):
            assert not pupil.get_by_text(name, exact=True).is_visible(), name

    teacher.keyboard.press("]")
    for page in (teacher, one, two):
        heads(page, "Layer 2 · Head 4")
    assert readout(one) == readout(two) == readout(teacher)
    teacher.keyboard.press("3")
    for pupil in (one, two):
        reach(pupil, re.compile("v=cell"))
        pupil.locator(".rg-step").first.wait_for()

    one.get_by_label("Follow the teacher").uncheck()
    one.keyboard.press("2")
    one.keyboard.press("}")
    heads(one, "Layer 3 · Head 4")
    teacher.get_by_role("textbox", name="Text", exact=True).fill("A dog slept")
    teacher.get_by_role("textbox", name="Text", exact=True).press("Enter")
    two.wait_for_function("() => document.querySelector('.rg-title').textContent.includes('A dog slept')")
    settled(two)
    assert {"dog", "slept"} <= set(two.locator("main .rg-word").all_inner_texts())
    assert "cat" in plain(one.locator(".rg-title"))
    assert heading(one).inner_text() == "Layer 3 · Head 4"
    one.get_by_label("Follow the teacher").check()
    one.wait_for_function("() => document.querySelector('.rg-title').textContent.includes('A dog slept')")
    settled(one)
    one.get_by_label("Follow the teacher").uncheck()
    for address in ("g=1", "v=paths", "v=model", "cells=0.1&cp=1", "x=2.3", "text=x&model=minilm"):  # more than it has
        one.evaluate("(address) => { location.hash = address; }", address)
        settled(one)
        assert not one.locator("[data-ref=errorBar]").is_visible(), address


@pytest.fixture
def story_classroom(minilm):
    """Return a class that is told the story of the animal, and the address of its teacher's page."""
    story = load_story("animal")
    exploration = exploration_of(opening_texts(story)[0], minilm)
    exploration.story = story
    with sharing(exploration, "127.0.0.1", 0) as classroom, served(exploration) as address:
        yield classroom, address


def test_a_pupil_who_follows_finds_the_cell_of_a_story_alone(story_classroom, open_page):
    room, address = story_classroom
    teacher = open_page(address, selector=".rg-story")
    pupil = open_page(f"{room.address}{room.code}/", selector=".rg-story")

    def answer(page, name):
        click(page.locator(".rg-story").get_by_role("button", name=name, exact=True))

    for name in ("Next", "animal", "Next"):
        answer(teacher, name)
    reach(pupil, re.compile("part=2"))
    teacher.locator(".rg-stage").focus()
    press(teacher, *["ArrowDown"] * 10, *["ArrowRight"] * 7)
    assert teacher.locator(".rg-verdict").inner_text() == "Yes."
    press(teacher, "]")
    heads(pupil, "Layer 3 · Head 2")
    assert "Right" not in pupil.locator(".rg-story").inner_text()
    assert not re.search("[&#][ij]=", pupil.url)
    pupil.locator(".rg-stage").focus()
    press(pupil, *["ArrowDown"] * 10, *["ArrowRight"] * 7)
    assert pupil.locator(".rg-verdict").inner_text() == "Yes."
    answer(teacher, "Next")
    reach(pupil, re.compile("part=3"))
    answer(teacher, "about half")
    reach(pupil, re.compile("s=B"))
    assert pupil.locator("main").is_hidden()  # until the pupil has answered too
    answer(pupil, "nothing")
    assert "it attends to animal: 0.300" in readout(pupil)


def test_words_and_map_are_large_for_a_projector(open_page, address):
    page = open_page(f"{address}#v=cell&l=2&h=3&i=8&j=2")
    page.set_viewport_size({"width": 800, "height": 600})
    page.keyboard.press("b")
    settled(page)
    assert page.locator(".rg-tabs").is_hidden()
    word = page.locator(".rg-text-panel .rg-word").nth(2)
    assert word.evaluate("(node) => parseFloat(getComputedStyle(node).fontSize)") >= 24
    for part in (".rg-map", ".rg-readout", ".rg-text-panel .rg-word >> nth=-1", "[data-ref=presentButton]"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 800
        assert box["y"] + box["height"] <= 600, part
    canvas = page.locator(".rg-map").bounding_box()
    assert min(canvas["width"], canvas["height"]) > 400
    check_access(page, 800, note="presenting", height=600, themes=())
    page.keyboard.press("ArrowDown")  # keys do what they do
    reach(page, re.compile("i=9"))
    page.keyboard.press("Escape")
    settled(page)
    assert page.locator(".rg-tabs").is_visible()
    page.locator("[data-ref=presentButton]").click()
    reach(page, re.compile("big=1"))
    page.locator("[data-ref=presentButton]").click()
    assert page.locator(".rg-tabs").is_visible()
