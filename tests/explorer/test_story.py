"""Stories: Markdown becomes plain data; those of the package are true of their models."""

import json
import re
from functools import cache
from inspect import getsource
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from decode_page import read_page

import regard
from regard import RegardError
from regard.cli import main
from regard.cli.commands import explore as command
from regard.explorer import share
from regard.explorer.classroom import Classroom
from regard.explorer.export_html import render_page
from regard.explorer.launch import exploration_of
from regard.explorer.story import MAX_CHARACTERS, load_story, opening_texts, parse_story, shipped

STORY = """\
# A title

## First
Look at [the head](#v=head&l=1&text=ab+c&model=m), *well* and **hard**, with `code`.

- one
- two
- [ ] wrong
- [X] right *so*

---

See [here](#v=cell&i=2).

## Second
Answer: −1.5 ± 0.25

---
So.

## Third
Answer: it → to:2

---
So.
"""


def shown(blocks):
    return ["".join(span["text"] for span in block["spans"]) for block in blocks]


def test_a_story_is_read():
    first, second, third = parse_story(STORY, "key")["steps"]
    assert shown(first["prose"]) == ["Look at the head, well and hard, with code.", "one", "two"]
    assert [block["is_item"] for block in first["prose"]] == [False, True, True]
    assert [span["kind"] for span in first["prose"][0]["spans"]] == [
        *("text", "view", "text", "em", "text", "strong", "text", "code", "text"),
    ]
    assert (first["view"], first["answer_view"]) == ("v=head&l=1&text=ab+c&model=m", "v=cell&i=2")
    choices = first["question"]["choices"]
    assert [choice["is_right"] for choice in choices] == [False, True]
    assert shown(choices) == ["wrong", "right so"]
    assert (second["question"]["number"], second["question"]["tolerance"]) == (-1.5, 0.25)
    assert third["question"]["words"] == ["it", "to:2"]
    assert opening_texts(parse_story(STORY, "key")) == (["ab c"], "m")


HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> [a](javascript:alert) ![b](http://c) </script> &lt;"


def test_what_is_no_form_of_a_story_is_text():
    (step,) = parse_story(f"# {HOSTILE}\n## {HOSTILE}\n{HOSTILE}\n\n[view](#v=head)", "key")["steps"]
    assert step["title"] == HOSTILE
    assert shown(step["prose"])[0] == HOSTILE
    assert {span["kind"] for span in step["prose"][0]["spans"]} == {"text"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no title", ", line 1: a story begins with '# Title' alone: write"),
        ("# T\nprose\n## S\n", ", line 1: a story begins with '# Title' alone: write"),
        ("# Only a title", ", line 1: there is no step: add one"),
        ("# T\n" + "## S\n[a](#v=head)\n" * 51, ", line 102: a story has at most 50 steps: join"),
        ("# T\n\n## S\nprose", ", line 3: the first step names no view: add"),
        ("# T\n## S\n[a](#v=head)\n- [ ] a\nb\n---\nb", ", line 4: none of the answers is right: write"),
        ("# T\n## S\n[a](#v=head)\n- [x] a\nAnswer: 1\n---\nb", ", line 5: the step asks more than one thing: make"),
        ("# T\n## R\n[a](#v=head)\n## S\nAnswer: 1", ", line 4: the step asks something: after a line '---' say"),
        ("# T\n## S\n" + "[" * 40_000, ", line 2: the first step names no view: add"),
        (
            "\ufeff# T\r\n## S\r\n[a](#v=head)\r\n---\r\na\r\n---\r\nb",
            ", line 6: the step has a line '---' already: leave",
        ),
        ("# T\n##  \n[a](#v=head)", ", line 2: the step has no title: write"),
        ("x" * (MAX_CHARACTERS + 1), " has more than 50,000 characters: shorten"),
    ],
)
def test_what_is_no_story_is_refused_by_its_line(tmp_path, text, message):
    path = tmp_path / "story.md"
    path.write_bytes(text.encode())
    with pytest.raises(RegardError, match=re.escape(f"{path}{message}")):
        load_story(path)


def test_a_file_that_is_not_there_names_the_stories_of_the_package():
    with pytest.raises(
        RegardError, match=r"cannot read the story none\.md: .*animal, indirect-object, induction, softmax"
    ):
        load_story("none.md")


def test_a_file_has_the_stories_whose_texts_it_has(tmp_path):
    path = tmp_path / "my story.md"
    path.write_text(f"# T\n## S\n[a](#v=head&text=aba&model=induction) {HOSTILE}", "utf-8")
    story = load_story(path)
    page = tmp_path / "page.html"
    regard.explore(story=path, html=page)
    manifest, _ = read_page(page.read_bytes())
    assert [one["key"] for one in manifest["stories"]] == ["my-story-file", "softmax"]
    assert manifest["story"] == "my-story-file"
    assert manifest["stories"][0] == json.loads(json.dumps(story))
    other = exploration_of(["abab"], "induction")
    assert json.loads(json.dumps(read_page(render_page(other))[0]["stories"])) == []
    other.story = story
    with pytest.raises(RegardError, match="the story needs more texts than are in it: 'aba'"):
        render_page(other)


def test_a_class_has_the_story_with_all_of_its_texts(monkeypatch):
    shared = []
    monkeypatch.setattr(share, "serve_with_class", lambda exploration, **_: shared.append(exploration))
    assert main(["explore", "--story", "indirect-object", "--share", "--model", "induction", "--no-browser"]) == 0
    (exploration,) = shared
    texts, _ = opening_texts(load_story("indirect-object"))
    assert [run["text"] for run in exploration.manifest()["runs"]] == texts


@pytest.mark.parametrize(
    ("told", "text", "said"),
    [
        (None, "aba", "A class runs no text, so stories of other texts are on your page alone (--story NAME): "),
        ("softmax", "aba", None),
        ("softmax", "ab", "The class does not have the story The softmax by hand: a class runs no text, and these are"
                          " not on the page, which has two at most: 'aba'."),
    ],
)  # fmt: skip
def test_the_teacher_reads_which_story_a_class_lacks_and_why(told, text, said):
    exploration = exploration_of([text], "induction")
    exploration.story = load_story(told) if told else None
    classroom = Classroom(exploration, "http://10.0.0.1:8766/")
    assert (said or "") in share.notice(classroom)
    assert ("stor" in share.notice(classroom)) == (said is not None)
    assert classroom.manifest()["story"] == (told if text == "aba" else None)


@cache
def runs_of(text, model):
    return exploration_of([text], model)


def at(address):
    """Return the exploration that an address is of, and its numbers."""
    fields = {name: values[0] for name, values in parse_qs(address).items()}
    return runs_of(fields["text"], fields["model"]), {name: int(fields[name]) for name in "lhij" if name in fields}


def words(exploration):
    return [token["text"].strip() for token in exploration.run(0).token_descriptions]


def weight(address, col=None):
    exploration, fields = at(address)
    cell = exploration.whole(0, fields["l"], fields["h"])[fields["i"]]
    return float(cell[fields["j"] if col is None else col])


def test_every_story_of_the_package_leads_to_heads_and_words_that_are_there():
    for name in ("softmax", "induction"):
        for step in load_story(name)["steps"]:
            for address in filter(None, (step["view"], step["answer_view"])):
                exploration, fields = at(address)
                run = exploration.run(0)
                assert fields["l"] < len(run.layers)
                assert fields["h"] < len(run.layers[fields["l"]].heads)
                assert max(fields.get("i", 0), fields.get("j", 0)) < run.length


def test_the_softmax_by_hand_has_the_numbers_of_the_model():
    *_, last = load_story("softmax")["steps"]
    exploration, _ = at(last["answer_view"])
    scores = [exploration.cell(0, 1, 0, 2, j)["scaled"] for j in range(3)]
    assert [round(score, 2) for score in scores] == [17.97, 19.24, 0.61]
    asked = [step["question"]["number"] for step in load_story("softmax")["steps"][1:]]
    row = exploration.cell(0, 1, 0, 2, 0)["row"]
    assert asked == pytest.approx([scores[0] - scores[1], row["sum"], weight(last["answer_view"])], abs=0.01)
    assert weight(last["answer_view"], 1) == pytest.approx(0.78, abs=0.005)


def test_induction_is_as_told():
    first, second, third, *_ = load_story("induction")["steps"]
    exploration, _ = at(first["view"])
    likeliest = exploration.next_tokens(0)["tokens"][0]
    assert (likeliest["text"], round(likeliest["probability"], 3)) == ("f", 0.999)
    assert min(exploration.whole(0, 1, head)[8, 3] for head in range(4)) > 0.9
    assert weight(second["answer_view"]) > 0.9
    row = at(third["view"])[0].whole(0, 0, 0)[3]
    assert words(exploration)[int(row.argmax())] == "k"
    before = exploration.whole(0, 0, 0)
    assert [int(row.argmax()) for row in before] == [0, *range(8)]


LEADS = {"animal": ("lesson", "12."), "softmax": ("lesson", "6."), "induction": ("training", "Watching")}


@pytest.mark.parametrize(("name", "page", "begin"), [(name, *at) for name, at in LEADS.items()])
def test_the_section_that_a_story_leads_to_is_there(name, page, begin):
    pages = Path(__file__).parents[2] / "docs"
    told = [span["text"] for block in load_story(name)["steps"][-1]["prose"] for span in block["spans"]]
    told += [span["text"] for block in load_story(name)["steps"][-1]["reveal"] for span in block["spans"]]
    (section,) = [text for text in told if text.startswith(begin)]
    assert f"\n## {section}\n" in (pages / f"{page}.md").read_text("utf-8")


@pytest.mark.minilm
def test_the_animal_is_as_told():
    _, second, third, last = load_story("animal")["steps"]
    assert round(weight(second["answer_view"]), 2) == 0.65
    assert round(weight(second["answer_view"], 7), 2) == 0.06
    assert round(weight(last["answer_view"]), 2) == 0.30
    assert round(weight(last["answer_view"], 7), 2) == 0.16
    assert weight(second["answer_view"], 0) / (1 - weight(second["answer_view"])) == pytest.approx(1 / 3, abs=0.03)
    row = {n: weight(last["answer_view"], n) for n in range(14)}
    assert sorted(row, key=row.get)[-2:] == [2, 0]  # [CLS] leads, and of the words *animal*
    assert "[CLS] has a little more, 0.32" in shown(last["reveal"])[0]
    assert round(row[0], 2) == 0.32
    assert words(at(second["answer_view"])[0])[9] == third["question"]["words"][0]


@pytest.mark.smollm2
def test_the_indirect_object_is_as_told():
    first, second, third, last = load_story("indirect-object")["steps"]
    exploration, _ = at(first["view"])
    ablated = exploration.ablate([(24, 4)])["run"]
    likeliest = [exploration.next_tokens(run)["tokens"][0] for run in (0, ablated)]
    assert [(one["text"], round(one["probability"], 2)) for one in likeliest] == [(" Mary", 0.92), (" Mary", 0.98)]
    to_mary = {
        (n, h): layer.tile(h, [13], [1])[0, 0] for n, layer in enumerate(exploration.run(0).layers) for h in range(9)
    }
    assert max(to_mary, key=to_mary.get) == (24, 4)
    assert round(weight(second["answer_view"]), 2) == 0.81
    assert round(weight(second["answer_view"], 9), 2) == 0.07
    assert round(weight(third["answer_view"]), 2) == 0.83
    assert round(weight(third["answer_view"], 1), 2) == 0.03
    adds = exploration.residual_stream(0, position=13)["layers"][24]["adds"]
    assert round(adds["heads"][4], 1) == -1.3
    assert "x=24.4" in last["answer_view"]


def test_the_help_names_the_stories_of_the_package():
    assert all(name in getsource(command) for name in shipped())
