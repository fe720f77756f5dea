"""What mattered: the words have the numbers of `regard.metrics.attribute`, for every method and target."""

from __future__ import annotations

import re

import numpy as np
import pytest
from acts import ablate, appear
from pages import HOSTILE, OTHER, SEQUENCE, TEXT, check_access, explored, notebook, number, plain, settled, show_in

import regard
from regard.explorer import Exploration
from regard.metrics import ATTRIBUTION_METHODS, attribute
from regard.trace import Trace

OPEN = "v=head&l=1&h=0&i=8&j=3&g=1"
PANEL = "section[aria-label='What mattered']"
READY = ".rg-attribution-result:not([hidden]):not(.rg-stale)"


def _value(text):
    return number(text) if "." in text else float(text)


def strips(page):
    """Return the numbers of the words by name: what mattered, and what was attended to."""
    names = [
        [word.get_attribute("aria-label") for word in strip.locator(".rg-word").all()]
        for strip in page.locator(".rg-strip").all()
    ]
    return [np.array([_value(name.rsplit(" ", 1)[1]) for name in strip]) for strip in names]


def ready(page):
    appear(page, READY)


def said(page):
    return plain(page.locator(PANEL))


def check_scores(page, found):
    """Assert that the words have the scores of an attribution."""
    scores, _ = strips(page)
    np.testing.assert_allclose(scores, found.scores, rtol=0, atol=0.006 * np.abs(found.scores).max())


def background(word):
    return word.evaluate("(node) => getComputedStyle(node).backgroundColor")


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_words_have_the_numbers_of_the_method(open_page, sequence_address, sequence, induction, method):
    page = open_page(f"{sequence_address}#{OPEN}")
    ready(page)
    page.get_by_label("Method", exact=True).select_option(method)
    page.wait_for_url(f"**gm={method}*")
    ready(page)
    found = attribute(induction, SEQUENCE, "f", method=method)
    check_scores(page, found)
    np.testing.assert_allclose(strips(page)[1], sequence.row(0, 1, 0, 8), atol=0.00051)
    assert f"For the logit of 'f': {found.value:.2f}" in said(page)
    assert ATTRIBUTION_METHODS[method].caveat in said(page)
    assert ("Not exact" in said(page)) == (found.is_complete is False)


def test_the_panel_opens_on_demand_and_is_kept_in_the_address(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=3")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    button = page.get_by_role("button", name="What mattered")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.locator(".rg-strip").first.is_hidden()
    button.click()
    ready(page)
    assert sum("api/attribution" in address for address in asked) == 1
    assert button.get_attribute("aria-expanded") == "true"
    page.wait_for_url("**g=1*")
    page.reload()
    ready(page)
    page.locator(".rg-stage").focus()
    page.keyboard.press("g")
    assert page.locator(".rg-strip").first.is_hidden()


def test_a_target_is_a_suggestion_or_a_text(open_page, sequence_address, sequence, induction):
    page = open_page(f"{sequence_address}#{OPEN}", allow="Failed to load resource")
    ready(page)
    likely = sequence.attribution(0)["likely"]
    chips, field = page.locator(".rg-likely-token"), page.get_by_role("textbox", name="Next token")
    assert [chip.locator("bdi").inner_text() for chip in chips.all()] == [each["text"] for each in likely]
    assert [chip.get_attribute("aria-pressed") for chip in chips.all()] == ["true", *["false"] * 7]
    chips.nth(1).click()
    page.wait_for_url(f"**gi={likely[1]['token']}*")
    ready(page)
    second = attribute(induction, SEQUENCE, likely[1]["token"])
    assert f"For the {second.metric}" in said(page)
    check_scores(page, second)
    assert chips.nth(1).get_attribute("aria-pressed") == "true"
    assert chips.nth(1).evaluate("(node) => node === document.activeElement")
    field.fill("d")
    page.keyboard.press("Enter")
    page.wait_for_url("**gt=d*")
    ready(page)
    assert "For the logit of 'd'" in said(page)
    field.fill("")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "gt=" not in url)
    ready(page)
    assert "For the logit of 'f'" in said(page)
    field.fill("two words")
    page.keyboard.press("Enter")
    page.wait_for_selector(".rg-refused")
    assert "choose one token" in said(page)
    chips.first.click()
    ready(page)


def test_the_next_token_may_be_that_after_the_chosen_word(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#{OPEN}&gt=f")
    ready(page)
    page.get_by_label("After the chosen word").check()
    ready(page)
    assert "after" not in said(page).split("For the")[1].split(":")[0]  # the last word is the default
    page.locator(".rg-strip .rg-word").nth(2).click()
    page.wait_for_url("**i=2*")
    ready(page)
    check_scores(page, attribute(induction, SEQUENCE, "f", position=2))
    assert "For the logit of 'f' after k:" in said(page)
    assert "k:1 attends to, Layer 1 · Head 0" in said(page)
    assert not strips(page)[1][3:].any()
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&g=1")  # no word is chosen
    ready(page)
    np.testing.assert_allclose(strips(page)[1], attribute(induction, SEQUENCE, "f").attended, atol=0.00051)
    assert "mean of all layers and heads" in said(page)


def test_signs_show_as_colours_and_lines_and_a_word_says_its_numbers(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#{OPEN}")
    ready(page)
    found = attribute(induction, SEQUENCE, "f")
    mattered, attended = page.locator(".rg-strip").all()
    positive, negative = mattered.locator(".rg-word").nth(3), mattered.locator(".rg-word").nth(8)
    assert found.scores[3] > 0.1
    assert found.scores[8] < -0.05
    blue, brown = ([int(n) for n in re.findall(r"\d+", background(word))] for word in (positive, negative))
    assert blue[2] > blue[0]
    assert brown[0] > brown[2]
    assert "underline" in negative.evaluate("(node) => getComputedStyle(node).textDecorationLine")
    assert "underline" not in positive.evaluate("(node) => getComputedStyle(node).textDecorationLine")
    assert "f mattered most, and was attended to most." in said(page)
    negative.hover()
    name = negative.get_attribute("aria-label")  # its number too
    assert number(name) == pytest.approx(found.scores[8], rel=0.01)
    assert f"{name.replace(' ', ' contributed ')}; attended to: " in said(page)
    assert negative.get_attribute("title") == name.replace(" ", ": ")
    assert "rg-pointed" in attended.locator(".rg-word").nth(8).get_attribute("class")
    page.mouse.move(5, 5)
    assert "mattered most" in said(page)


def test_the_words_are_reached_by_keys(open_page, sequence_address):
    page = open_page(f"{sequence_address}#{OPEN}")
    ready(page)
    page.get_by_label("After the chosen word").focus()
    page.keyboard.press("Tab")  # to the chosen word, the last
    page.keyboard.press("ArrowLeft")
    assert "z:2 contributed" in said(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**i=7*")
    ready(page)
    assert "z:2 attends to, Layer 1 · Head 0" in said(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.rg-strip').ariaLabel").startswith("What was attended to")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("z:2 ")


@pytest.mark.parametrize("method", ATTRIBUTION_METHODS)
def test_words_of_an_encoder_have_the_numbers_of_the_method(open_page, address, minilm, method):
    target = "A tired animal rested"
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2&g=1&gm={method}&gt={target}")
    ready(page)
    found = attribute(minilm, TEXT, target, method=method)
    check_scores(page, found)
    assert f"For the similarity to '{target}': {found.value:.4f}" in said(page)
    assert page.locator(".rg-likely").is_hidden()
    assert page.get_by_label("After the chosen word").is_hidden()


def test_a_text_is_compared_with_the_other_and_in_a_file_with_itself(open_page, address_of_two, file_address, minilm):
    page = open_page(f"{address_of_two}#v=head&l=2&h=3&i=8&j=2&g=1&s=B")
    ready(page)
    check_scores(page, attribute(minilm, OTHER, TEXT))
    assert "dog" in page.locator(".rg-strip").first.inner_text().split()[1:3]
    page = open_page(f"{file_address}#v=head&l=2&h=3&i=8&j=2&g=1")
    ready(page)
    check_scores(page, attribute(minilm, TEXT, TEXT))


def test_words_of_several_tokens_have_their_sum(open_page, address, minilm):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2&g=1&gm=gradient&gt=a+dog&words=1&special=0")
    ready(page)
    found = attribute(minilm, TEXT, "a dog", method="gradient")
    words = [at for _, at in found.encoding.word_groups()][1:-1]  # without [CLS] and [SEP]
    expected = [found.scores[at].sum() for at in words]
    assert max(len(at) for at in words) > 1
    np.testing.assert_allclose(strips(page)[0], expected, rtol=0, atol=0.006 * np.abs(expected).max())


def test_what_is_refused_is_a_sentence_and_the_choice_stays(open_page, address, one):
    page = open_page(f"{address}#v=head&l=2&h=3&i=8&j=2&g=1&gm=gradient", allow="Failed to load resource")
    page.wait_for_selector(".rg-refused")
    assert "A text is as similar to itself as can be" in said(page)
    assert page.locator(".rg-strip").first.is_hidden()
    page.get_by_label("Method", exact=True).select_option("integrated")
    ready(page)
    assert "For the similarity to the text itself: 1.000" in said(page)


def test_a_saved_trace_and_an_ablation_say_why_nothing_mattered(open_page, serve, sequence_address, induction):
    trace = Trace(maps=True, only="*")
    induction(SEQUENCE, trace=trace)
    saved = serve(Exploration(trace))
    page = open_page(f"{saved}#{OPEN}")
    assert "explore a text with a model, not a saved trace" in said(page)
    assert page.get_by_label("Method", exact=True).is_hidden()
    page = open_page(f"{sequence_address}#v=head&l=0&h=0&i=8&j=3&g=1")
    ablate(page)
    ready(page)
    page.locator(".rg-head-panel .rg-side-switch").get_by_role("button", name="B", exact=True).click()
    settled(page)
    assert "computed of the model with all its heads: choose A" in said(page)


def test_a_file_has_the_default_target_and_names_the_server_for_others(open_page, sequence_file, induction):
    page = open_page(f"{sequence_file}#{OPEN}")
    ready(page)
    for method in ("gradient", "relevance", "attnlrp"):
        page.get_by_label("Method", exact=True).select_option(method)
        page.wait_for_url(f"**gm={method}*")
        ready(page)
        check_scores(page, attribute(induction, SEQUENCE, "f", method=method))
    page.get_by_label("Method", exact=True).select_option("integrated")
    page.wait_for_selector(".rg-refused")
    assert "This file holds Gradient × input, Attention relevance, AttnLRP, not Integrated gradients" in said(page)
    page.get_by_label("Method", exact=True).select_option("gradient")
    ready(page)
    page.locator(".rg-likely-token").nth(1).click()
    page.wait_for_selector(".rg-refused")
    assert "its default target alone: regard explore without -o has all" in said(page)
    page.locator(".rg-likely-token").first.click()
    ready(page)


def test_a_notebook_has_the_panel(open_page, sequence, tmp_path):
    page = notebook(open_page, sequence, tmp_path)
    assert "#" not in page.url
    page.get_by_role("button", name="What mattered").click()
    ready(page)
    assert "For the logit of 'f'" in said(page)


def test_hostile_words_and_targets_are_inert(open_page, serve):
    text = " ".join(word for word in HOSTILE if len(word) < 100)
    model = regard.models.toy([text])
    target = "<img src=x onerror=alert(1)>"
    page = open_page(f"{serve(explored(model, text, layer=0, head=0))}#v=head&g=1", allow="Failed to load resource")
    page.wait_for_selector(f"{READY}, .rg-refused")
    page.get_by_label("Similar to", exact=True).fill(target)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{READY}, .rg-refused")
    settled(page)
    assert page.locator(f"{PANEL} :is(img, script)").count() == 0
    assert page.locator(".rg-strip .rg-word").count() > 0


def test_both_copies_of_a_long_text_scroll_together(open_page, serve, induction):
    address = serve(explored(induction, "qzkfbd" * 20, layer=1, head=0))
    page = open_page(f"{address}#{OPEN}")
    page.set_viewport_size({"width": 800, "height": 500})
    ready(page)
    mattered, attended = page.locator(".rg-strip").all()
    mattered.evaluate("(node) => (node.scrollTop = 60)")
    settled(page)
    assert attended.evaluate("(node) => node.scrollTop") == mattered.evaluate("(node) => node.scrollTop") > 20


def test_axe_finds_nothing_serious_and_forced_colours_keep_the_shades(open_page, sequence_address):
    page = open_page(f"{sequence_address}#{OPEN}")
    ready(page)
    check_access(page, 1440, 375)
    box = page.locator(PANEL).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    show_in(page, "forced")
    words = page.locator(".rg-strip").first.locator(".rg-word")
    assert background(words.nth(3)) != background(words.nth(8))
    outline = page.locator(".rg-likely-token").first.evaluate("(node) => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
