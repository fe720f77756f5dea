"""The paths behind the next token: the graph and its tree, held against Python, and what is said meanwhile."""

from __future__ import annotations

import re
from functools import partial

from acts import choose, click, go, press, reach
from pages import SEQUENCE, check_access, expect, explored, hold, intercept, plain, saved, weight_text

from regard.explorer import write_page

VIEW = "v=paths&l=1&h=0&i=8"
OTHER = "qzxfbdqzk"
GRAPH, TREE = "[data-ref=pathsGraph]", "[data-ref=pathsTree]"
STATUS, SUMMARY = "[data-ref=pathsStatus]", "[data-ref=pathsSummary]"


def name(token):
    letter = SEQUENCE[token]
    return f"{letter}:{SEQUENCE[: token + 1].count(letter)}" if SEQUENCE.count(letter) > 1 else letter


def rows(answer):
    """Return the tree of an answer as the page writes it."""
    nodes, edges = answer["graph"]["nodes"], answer["graph"]["edges"]

    def row(edge, repeats):
        sign = "+" if edge["score"] > 0 else ""
        words = f"{nodes[edge['writer']]['label']} at {name(edge['token'])} → {edge['read_by']}"
        return f"{sign}{weight_text(edge['score'])} {words}{' …' * repeats}"

    return [row(edges[number], repeats) for _, number, repeats in answer["tree"]]


def shown(page):
    """Return the tree, and the names of the boxes of the graph, the words aside that name a column."""
    tree = [plain(row).replace("\n", " ") for row in page.locator(f"{TREE} li").all()]
    return tree, page.locator(f"{GRAPH} .rg-path-box:not(.rg-muted)").all_inner_texts()


def expected(answer):
    boxes = [
        name(node["token"]) if node["kind"] == "token_embeddings" else node["label"]
        for node in answer["graph"]["nodes"][::-1]
    ]
    return rows(answer), boxes


def test_a_token_is_chosen_its_graph_is_shown_and_a_head_opens(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8")
    likely = [each["token"] for each in sequence.next_tokens(0)["tokens"]]
    let_go = hold(page, "**/api/paths")
    click(page.get_by_role("button", name="Text", exact=True))
    page.get_by_role("button", name="Paths").click()
    expect(page.locator(STATUS)).to_have_text("Following the paths back to the words: some seconds …")
    assert shown(page) == ([], [])
    let_go()
    expect(page.locator(STATUS)).to_have_text("")
    answer = sequence.paths(0, position=8, token=likely[0])
    assert shown(page) == expected(answer)
    said = plain(page.locator(SUMMARY))
    assert said == f"{answer['summary'][0].upper()}{answer['summary'][1:]}."
    page.unroute_all()
    choose(page.get_by_label("Rather than the token"), str(likely[2]))
    reach(page, re.compile(f"pv={likely[2]}"))
    assert shown(page) == expected(sequence.paths(0, position=8, token=likely[0], versus=likely[2]))
    assert "minus that of" in page.locator(SUMMARY).inner_text()
    choose(page.get_by_label("Next token of the paths", exact=True), str(likely[1]))
    page.get_by_label("Compared with the text").fill(OTHER)
    press(page, "Tab")
    reach(page, re.compile(f"pt={likely[1]}&pv={likely[2]}&pc={OTHER}"))
    answer = sequence.paths(0, position=8, token=likely[1], versus=likely[2], corrupted=OTHER)
    assert shown(page) == expected(answer)
    picture, table = saved(page, "SVG").decode(), saved(page, "CSV").decode().splitlines()
    assert picture.count("<path") == len(answer["graph"]["edges"]) == len(table) - 1
    assert ">logits<" in picture
    assert table[0] == "writer,token,read by,effect"
    head = next(node for node in answer["graph"]["nodes"][::-1] if node["kind"] == "head")
    page.locator(f"{GRAPH} button").first.focus()
    assert page.evaluate("document.activeElement.textContent") == head["label"]
    marked = page.locator(f"{TREE} .rg-marked")
    at = answer["graph"]["nodes"].index(head)
    assert marked.count() == sum(at in (edge["writer"], edge["reader"]) for edge in answer["graph"]["edges"])
    press(page, "ArrowRight", "ArrowLeft", "Enter")
    reach(page, re.compile(f"v=head&l={head['layer']}&h={head['head']}&i={head['token']}&"))
    page.go_back()
    reach(page, re.compile("v=paths"))
    assert shown(page) == expected(answer)


def test_what_is_waited_for_ends_with_the_view_or_another_word(open_page, sequence_address, sequence):
    page = open_page(f"{sequence_address}#v=head&l=1&h=0&i=8")
    held = []
    intercept(page, "**/api/paths", lambda route: held.append(route))
    asks = partial(page.expect_request, "**/api/paths")
    ends = partial(page.expect_event, "requestfailed", lambda request: request.url.endswith("/api/paths"))
    with asks():
        page.keyboard.press("7")
    with asks(), ends():
        page.keyboard.press("ArrowLeft")
    with ends():
        page.keyboard.press("2")
    for route in held:
        route.continue_()
    page.unroute_all()
    press(page, "7")
    assert shown(page) == expected(sequence.paths(0, position=7))


def test_what_cannot_be_followed_is_said(open_page, sequence_address, serve, minilm):
    page = open_page(f"{sequence_address}#{VIEW}&pc=qz", selector=f"{SUMMARY}:not(:empty)", allow="400")
    assert plain(page.locator(SUMMARY)).startswith("Both texts must have the same number of tokens, got 9 and 2")
    assert shown(page) == ([], [])
    encoder = open_page(f"{serve(explored(minilm, 'a cat'))}#v=head&l=1&h=0&i=1")
    click(encoder.get_by_role("button", name="Text", exact=True))
    assert not encoder.get_by_role("button", name="Paths").is_visible()
    press(encoder, "7")
    assert "v=text" in encoder.url


def test_a_file_has_the_graphs_that_were_computed(open_page, induction, tmp_path):
    exploration, path = explored(induction, SEQUENCE, layer=1, head=0), tmp_path / "page.html"
    write_page(exploration, path)
    page = open_page(f"{path.as_uri()}#{VIEW}", selector=f"{SUMMARY}:not(:empty)")
    assert page.locator(SUMMARY).inner_text() == (
        "This file holds no paths: regard explore without -o follows any, and with --paths a file holds those of what "
        "it opens with."
    )
    press(page, "9", "7")
    assert "v=text&" in page.url
    assert not page.get_by_role("button", name="Paths").is_visible()
    other, answer = exploration.paths(0, corrupted=OTHER), exploration.paths(0)
    write_page(exploration, path)
    page = open_page(f"{path.as_uri()}#{VIEW}&pc={OTHER}", selector=f"{TREE} li")
    assert shown(page) == expected(other)
    page = open_page(f"{path.as_uri()}#{VIEW}", selector=f"{TREE} li")
    assert shown(page) == expected(answer) != expected(other)
    nodes, edges = answer["graph"]["nodes"], answer["graph"]["edges"]
    row, edge = next(
        (row, edges[number])
        for row, (_, number, _) in enumerate(answer["tree"])
        if nodes[edges[number]["writer"]]["kind"] == "head"
        and nodes[edges[number]["writer"]]["token"] != edges[number]["token"]
    )
    head = nodes[edge["writer"]]  # it writes at another word too, above which it stands
    page.locator(f"{TREE} li").nth(row).get_by_role("button").click()
    reach(page, re.compile(f"v=head&l={head['layer']}&h={head['head']}&i={edge['token']}(&|$)"))
    page.go_back()
    reach(page, re.compile("v=paths"))
    go(page, page.url.replace("i=8", "i=7"))
    assert page.locator(SUMMARY).inner_text().startswith("This file holds other paths than these: ")
    assert shown(page) == ([], [])


def test_it_is_of_a_and_of_b(open_page, serve, induction):
    exploration = explored(induction, SEQUENCE, OTHER, layer=1, head=0)
    page = open_page(f"{serve(exploration)}#{VIEW}", selector=f"{TREE} li")
    assert shown(page) == expected(exploration.paths(0))
    assert page.get_by_label("Compared with the text").get_attribute("placeholder") == OTHER
    click(page.locator(".rg-paths-view").get_by_role("button", name="B", exact=True))
    assert page.get_by_label("Compared with the text").get_attribute("placeholder") == SEQUENCE
    assert shown(page)[1].count("logits") == 1


def test_it_is_accessible(open_page, sequence_address):
    page = open_page(f"{sequence_address}#{VIEW}", selector=f"{TREE} li")
    check_access(page, 1440, 390, 320, themes=("dark", "forced"))
    go(page, f"{sequence_address}#{VIEW}&pc={OTHER}")
    assert page.locator(GRAPH).evaluate("node => node.getBoundingClientRect().left") < 0
    logits = page.locator(f"{GRAPH} .rg-path-box").first.bounding_box()
    assert 0 < logits["x"] < 320 - logits["width"]
