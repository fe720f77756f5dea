"""Texts that are run in the page, what comes next, and the address that carries both."""

from __future__ import annotations

import re
import shlex
from urllib.parse import parse_qs

import numpy as np
import pytest
from acts import appear, choose, click, reach
from pages import SEQUENCE, TEXT, check_access, expect, explored, hold, intercept, settled

import regard
from regard.explorer.address import read_address
from regard.functional import softmax


def box(page):
    return page.get_by_role("textbox", name="Text", exact=True)


def run(page, text):
    box(page).fill(text)
    box(page).press("Enter")
    page.wait_for_function("(text) => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=text)
    page.wait_for_function("() => !document.querySelector('.rg-live button').disabled")
    settled(page)


def last_runs(page):
    return page.locator(".rg-live .rg-item")


def predicted(page):
    """Return the tokens that come next, and their percentages."""
    appear(page, ".rg-next-token")
    rows = [row.inner_text().split("\n") for row in page.locator(".rg-next-token").all()]
    return {row[0]: row[-1] for row in rows}


def test_a_reader_runs_texts_returns_to_them_and_hands_on_the_address(open_page, address):
    page = open_page(address)
    before, opened = page.locator("h2").first.inner_text(), page.url
    assert not page.get_by_text("What comes next").is_visible()  # for an encoder nothing does
    box(page).fill("  ")
    box(page).press("Enter")
    assert "Write a text" in page.locator(".rg-live").inner_text()
    assert page.url == opened
    run(page, "A dog slept")
    assert parse_qs(page.url.partition("#")[2])["text"] == ["A dog slept"]
    assert {"a", "dog", "slept"} <= set(page.locator("main .rg-word").all_inner_texts())
    page.go_back()
    page.wait_for_function("(text) => document.querySelector('.rg-live textarea').value === text", arg=TEXT)
    page.go_forward()
    page.wait_for_function("() => document.querySelector('.rg-live textarea').value === 'A dog slept'")
    run(page, "A cat slept")
    page.get_by_text("Last runs", exact=True).click()
    assert last_runs(page).count() == 2
    last_runs(page).get_by_text("A dog slept").click()
    reach(page, re.compile(r"text=A\+dog\+slept"))
    assert box(page).input_value() == "A dog slept"
    assert last_runs(page).count() == 2
    page.get_by_role("button", name="Ablate this head").click()
    page.get_by_role("region", name="Effect of the ablation").wait_for()
    settled(page)
    assert "dog" in page.get_by_role("region", name="Effect of the ablation").inner_text()
    page.get_by_label("Layer", exact=True).select_option("1")
    choose(page.get_by_label("Head", exact=True), "7")
    page.wait_for_url(re.compile("l=1&h=7"))
    there = open_page(page.url)  # elsewhere, the address opens the same
    there.wait_for_url(re.compile("l=1&h=7"))
    there.wait_for_function("() => document.querySelector('.rg-live textarea').value === 'A dog slept'")
    assert there.locator("h2").first.inner_text() == "Layer 1 · Head 7"
    page = open_page(address)
    run(page, "A dog slept")
    run(page, TEXT)  # the given text is run again by its own run
    assert page.locator("h2").first.inner_text() == before


def test_back_shows_a_text_at_once_while_another_one_runs(open_page, address):
    page = open_page(address)
    status = page.locator("[data-ref=liveStatus]")
    run(page, "A dog slept")
    hold(page, "**/api/run_text")
    for text in ("A dog slept", TEXT):
        box(page).fill("A cat slept")
        box(page).press("Enter")
        expect(status).to_have_text("Running the model …")
        page.go_back()
        expect(status).to_have_text("")
        expect(box(page)).to_have_value(text)
        assert page.title().startswith(text[:50])
        if text != TEXT:
            page.go_back()
            expect(box(page)).to_have_value(TEXT)


def test_a_text_that_cannot_be_run_says_why_and_keeps_what_is_shown(open_page, address):
    page = open_page(address, allow="400")
    box(page).fill("word " * 600)
    box(page).press("Enter")
    page.wait_for_selector(".rg-live .rg-refused")
    assert "512" in page.locator(".rg-live .rg-refused").inner_text()
    assert page.locator(".rg-map[data-drawn]").is_visible()
    run(page, "A dog slept")
    assert page.locator(".rg-live .rg-refused").count() == 0


def test_the_text_box_wraps_and_is_left_and_the_title_follows(open_page, address):
    page = open_page(address)
    assert page.title() == f"{TEXT[:59]}… · regard"
    low = box(page).bounding_box()["height"]
    box(page).fill("word " * 80)
    assert box(page).bounding_box()["height"] > 1.8 * low
    box(page).fill("שלום עולם")
    assert box(page).evaluate("(node) => getComputedStyle(node).direction") == "rtl"
    box(page).press("Escape")
    assert box(page).input_value() == TEXT
    assert page.evaluate("document.activeElement === document.body")
    run(page, "A dog slept")
    assert page.title() == "A dog slept · regard"


def test_hostile_text_is_text(open_page, address):
    page = open_page(address)
    run(page, "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \u202eback")
    assert page.locator(".rg-live script, .rg-live img").count() == 0
    run(page, "A dog slept")
    assert last_runs(page).count() == 2


def test_another_model_reads_the_text(open_page, address):
    page = open_page(address)
    page.get_by_label("Model", exact=True).select_option("induction")
    settled(page)
    run(page, "qzkfqz")
    page.get_by_label("Model", exact=True).select_option("induction")
    reach(page, re.compile("model=induction"))
    assert page.get_by_label("Layer", exact=True).locator("option").count() == 2


def test_the_command_that_is_shown_opens_the_same(open_page, address):
    page = open_page(address)
    run(page, "It's a dog & a cat")
    page.get_by_text("Save", exact=True).click()
    command = page.get_by_label("The command that opens this view again")
    page.wait_for_function("(node) => node.value", arg=command.element_handle())
    words = shlex.split(command.input_value())
    assert words[:3] == ["regard", "explore", "--open"]
    found = read_address(words[3])
    assert (found.text, found.text_b, found.models) == ("It's a dog & a cat", None, ("minilm",))


def test_the_command_of_a_long_text_takes_it_from_a_file(open_page, serve, minilm):
    page = open_page(serve(explored(minilm, f"a cat {'x' * 4000}")))
    page.get_by_text("Save", exact=True).click()
    command = page.get_by_label("The command that opens this view again")
    page.wait_for_function("(node) => node.value", arg=command.element_handle())
    words = shlex.split(command.input_value())
    assert words[:5] == ["regard", "explore", "--file", "FILE", "--open"]
    found = read_address(words[5])
    assert (found.text, found.text_b, found.models) == (None, None, ("minilm",))


@pytest.mark.parametrize(("position", "temperature"), [(8, 1), (4, 1), (8, 2)])
def test_what_comes_next_has_the_probabilities_of_the_model(
    open_page, sequence_address, induction, position, temperature
):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i={position}&j=0&nt=1&temp={temperature}")
    found = predicted(page)
    shares = softmax(np.asarray(induction(SEQUENCE).logits[0, position], np.float64) / temperature)
    token = induction.tokenizer.decode([int(shares.argmax())]).strip()
    assert float(found[token].split()[0]) == pytest.approx(100 * shares.max(), abs=0.5)


def test_a_decoder_opens_on_what_follows_its_last_word(open_page, sequence_address):
    page = open_page(sequence_address)
    assert "i=8" in page.url
    click(page.get_by_role("button", name="What comes next"))
    assert page.locator("[data-ref=nextHeading]").inner_text().startswith("After k:2")


def test_a_sampled_token_is_of_its_word_or_says_what_went_wrong(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=4&nt=1", allow="Failed to load resource")
    sample = page.get_by_role("button", name="Sample one and continue")
    let_go = hold(page, "**/api/next_tokens")
    sample.click()
    page.keyboard.press("ArrowUp")
    let_go()
    page.unroute_all()
    settled(page)
    assert box(page).input_value() == SEQUENCE
    intercept(page, "**/api/next_tokens", lambda route: route.fulfill(status=400, body='{"error": "no model"}'))
    sample.click()
    expect(page.locator(".rg-error-bar")).to_contain_text("no model")


def test_each_sampled_token_follows_the_last(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=2&i=8&j=3&nt=1")
    for count in (10, 11, 12):
        before = box(page).input_value()
        page.get_by_role("button", name="Sample one and continue").click()
        page.wait_for_function(
            "(n) => document.querySelector('.rg-live textarea').value.replaceAll(' ', '').length === n", arg=count
        )
        settled(page)
        assert box(page).input_value().startswith(before)
        address = parse_qs(page.url.partition("#")[2])
        assert {name: address[name] for name in "vlhij"} == {
            "v": ["head"],
            "l": ["1"],
            "h": ["2"],
            "i": [str(count - 1)],
            "j": ["3"],
        }


def test_a_token_is_taken_and_the_text_goes_on(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&nt=1")
    predicted(page)
    page.locator(".rg-next-token").first.click()
    page.wait_for_function("() => document.querySelector('.rg-live textarea').value.replaceAll(' ', '').length === 10")
    assert box(page).input_value().replace(" ", "") == f"{SEQUENCE}f"


def test_the_lens_says_the_prediction_after_each_layer(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=0&nt=1")
    predicted(page)
    page.get_by_text("Layer by layer").click()
    trace = regard.Trace()
    induction(SEQUENCE, trace=trace)
    lens = regard.metrics.logit_lens(induction, trace)
    ranks = [int(row.inner_text()) for row in page.locator(".rg-lens-body td:last-child").all()]
    assert ranks == [int(rank) + 1 for rank in lens.target_rank[:, 0, 8]]


def test_an_ablation_shows_what_it_changes_of_what_comes_next(open_page, sequence_address, induction):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=0&nt=1&x=1.0_1.1_1.2_1.3")
    page.wait_for_function("() => document.querySelector('.rg-next-token .rg-number')?.textContent.includes('(')")
    before = softmax(np.asarray(induction(SEQUENCE).logits[0, 8], np.float64))
    edit = regard.edits.ablate(*((1, head) for head in range(4)))
    after = softmax(np.asarray(induction(SEQUENCE, edit=edit).logits[0, 8], np.float64))
    likeliest = int(after.argmax())
    now, was = re.findall(r"([\d.]+) %", predicted(page)[induction.tokenizer.decode([likeliest]).strip()])
    assert float(now) == pytest.approx(100 * after[likeliest], abs=0.5)
    assert float(was) == pytest.approx(100 * before[likeliest], abs=0.5)


def test_what_comes_next_is_never_said_of_another_word(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=0&nt=1")
    heading, tokens = page.locator("[data-ref=nextHeading]"), page.locator("[data-ref=nextList]")
    before = tokens.inner_text()
    assert heading.inner_text().startswith("After k")
    let_go = hold(page, "**/api/next_tokens*")
    page.locator(".rg-text-panel .rg-word").nth(4).click()
    page.wait_for_selector("[data-ref=nextList].rg-stale")
    assert heading.inner_text().startswith("After k")  # the word whose numbers are seen
    assert tokens.inner_text() == before
    let_go()
    settled(page)
    assert heading.inner_text().startswith("After b")
    assert tokens.inner_text() != before


def test_a_file_has_what_comes_next_and_runs_no_text(open_page, sequence_file, induction):
    page = open_page(f"{sequence_file}#v=head&l=1&h=0&i=8&j=0&nt=1")
    assert page.locator(".rg-live").count() == 0
    found = predicted(page)
    shares = softmax(np.asarray(induction(SEQUENCE).logits[0, 8], np.float64))
    assert float(found["f"].split()[0]) == pytest.approx(100 * shares.max(), abs=0.5)
    assert page.locator(".rg-next-token").first.is_disabled()


def test_it_is_accessible(open_page, sequence_address):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8&j=0&nt=1")
    predicted(page)
    page.get_by_text("Layer by layer").click()
    run(page, "qzkfqz")
    check_access(page, 1440, 320)
