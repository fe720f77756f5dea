"""Stories: steps of prose beside the views, read from Markdown.

A story is data: the few forms below become plain lists and strings, and everything else, HTML too, stays text.

* ``# Title`` once, then ``## Title`` for each step, and paragraphs with ``*emphasis*``, ``**strength**`` and ``code``;
  lines that begin with ``-`` are items.
* ``[words](#ADDRESS)`` leads to a view: an address of the explorer, from its ``#`` on. The first of a step is its own.
* ``- [ ] words`` and ``- [x] words`` are answers to choose from; ``Answer: 0.65 ± 0.02`` is a number, ``Answer: it`` or
  ``Answer: it → animal`` a word or a cell that the reader chooses on the page.
* ``---`` begins what is shown after the answer. If an address stands there alone, the views are covered until then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from regard._utils.errors import RegardError
from regard._utils.files import open_regular
from regard.explorer import answers

MAX_CHARACTERS = 50_000
MAX_STEPS = 50
_MAX_KEY = 40
_FOLDER = "stories"

_SPAN = re.compile(
    r"`(?P<code>[^`\n]+)`|\*\*(?P<strong>[^*\n]+)\*\*|\*(?P<em>[^*\n]+)\*|\[(?P<view>[^\[\]\n]{1,500})\]\(#(?P<address>[^()\s]{1,2000})\)"
)
_CHOICE = re.compile(r"- \[([ xX])\] +(.+)")
_ANSWER = re.compile(r"Answer: +(.+)")
_NUMBER = re.compile(r"([-−]?\d{1,15}(?:\.\d{1,15})?)(?: *± *(\d{1,15}(?:\.\d{1,15})?))?")


def shipped() -> tuple[str, ...]:
    """Return the names of the stories of the package."""
    names = (entry.name for entry in (files("regard.explorer") / _FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


def load_story(source: str | Path) -> answers.Story:
    """Return a story of the package by its name, or one in a Markdown file.

    Raises
    ------
    RegardError
        There is no such story or file, it is too long, or it is not as the docstring of this module says.
    """
    if str(source) in shipped():
        text = (files("regard.explorer") / _FOLDER / f"{source}.md").read_text(encoding="utf-8")
        return parse_story(text, str(source), f"the story {source}")
    path = Path(source)
    try:
        with open_regular(path, "utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RegardError(f"cannot read the story {path}: {reason}; the package has {', '.join(shipped())}") from error
    key = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:_MAX_KEY]
    return parse_story(text, f"{key or 'own'}-file", str(path))  # no name of the package


def parse_story(text: str, key: str, source: str = "the story") -> answers.Story:
    """Return the story that a text is; errors name its `source` and a line in it."""
    if len(text) > MAX_CHARACTERS:
        raise RegardError(f"{source} has more than {MAX_CHARACTERS:,} characters: shorten it, or make two of it")
    head, *parts = re.split(r"^## +", text.lstrip("\ufeff").replace("\r\n", "\n"), flags=re.MULTILINE)
    title = re.fullmatch(r"\s*# +([^\n]+)\n\s*", f"{head}\n")
    if title is None:
        raise RegardError(f"{source}, line 1: a story begins with '# Title' alone: write one before the first step")
    lines = list(accumulate((part.count("\n") for part in parts), initial=head.count("\n") + 1))  # of each '## '
    if not parts:
        raise RegardError(f"{source}, line {lines[0]}: there is no step: add one, '## Title', with prose below")
    if len(parts) > MAX_STEPS:
        raise RegardError(
            f"{source}, line {lines[MAX_STEPS]}: a story has at most {MAX_STEPS} steps: join some of them"
        )
    steps = [_step(_Part(part, source, line)) for part, line in zip(parts, lines, strict=False)]
    if steps[0]["view"] is None:
        raise RegardError(
            f"{source}, line {lines[0]}: the first step names no view: add [words](#ADDRESS), copied from the page"
        )
    return {"key": key, "title": title[1].strip(), "steps": steps}


def texts_of(story: answers.Story) -> list[tuple[str, str | None]]:
    """Return the texts that a story shows, each with its model, if it names one."""
    texts: dict[tuple[str, str | None], None] = {}
    for address in _addresses(story):
        fields = parse_qs(address)
        if "text" in fields:
            texts[fields["text"][0], fields.get("model", [None])[0]] = None
    return list(texts)


def opening_texts(story: answers.Story) -> tuple[list[str], str | None]:
    """Return the texts of the model that a story begins with, and that model, if it is named."""
    texts = texts_of(story)
    if not texts:
        raise RegardError("the addresses of the story name no text: give the text too")
    model = texts[0][1]
    return [text for text, of in texts if of == model], model


def lacking_texts(story: answers.Story, runs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the texts of a story that a page without a model does not have; `runs` are text and model of each."""
    return [text for text, model in texts_of(story) if not any(text == has and model in (None, of) for has, of in runs)]


class _Part(NamedTuple):
    """The text of a step, and where it begins."""

    text: str
    source: str
    line: int

    def error(self, problem: str, at: int = 0) -> RegardError:
        """Return an error at a line of the step."""
        return RegardError(f"{self.source}, line {self.line + at}: {problem}")


def _step(part: _Part) -> answers.StoryStep:
    title, _, body = part.text.partition("\n")
    before, *after = re.split(r"^---+[ \t]*$", body, flags=re.MULTILINE)
    if not title.strip():
        raise part.error("the step has no title: write one after '##'")
    if len(after) > 1:
        at = 1 + before.count("\n") + after[0].count("\n")
        raise part.error("the step has a line '---' already: leave one out, or begin another step before it", at)
    question, prose = _question(before, part)
    step: answers.StoryStep = {
        "title": title.strip(),
        "prose": _blocks(prose),
        "question": question,
        "reveal": _blocks(after[0]) if after else [],
        "view": _first_address(prose),
        "answer_view": _first_address(after[0]) if after else None,
    }
    if question is not None and not step["reveal"]:
        raise part.error("the step asks something: after a line '---' say what is so")
    return step


def _question(text: str, part: _Part) -> tuple[answers.StoryQuestion | None, str]:
    """Return what a step asks, and the lines that are its prose."""
    prose: list[str] = []
    choices: list[answers.StoryChoice] = []
    expected: list[str] = []
    last = 0  # line of an answer
    for at, line in enumerate(text.split("\n"), 1):
        is_answer = True
        if match := _CHOICE.fullmatch(line.strip()):
            choices.append({"spans": _spans(match[2]), "is_right": match[1] != " "})
        elif match := _ANSWER.fullmatch(line.strip()):
            expected.append(match[1].strip())
        else:
            prose.append(line)
            is_answer = False
        last = at if is_answer else last
        if is_answer and len(expected) + bool(choices) > 1:
            raise part.error("the step asks more than one thing: make two steps of it", at)
    if choices and not any(choice["is_right"] for choice in choices):
        raise part.error("none of the answers is right: write - [x] before one", last)
    question: answers.StoryQuestion = {"choices": choices, "number": None, "tolerance": 0.0, "words": []}
    if expected and (number := _NUMBER.fullmatch(expected[0])):
        question["number"] = float(number[1].replace("−", "-"))
        question["tolerance"] = float(number[2] or 0)
    elif expected:
        question["words"] = [word.strip() for word in expected[0].split("→")][:2]
    return (question if choices or expected else None), "\n".join(prose)


def _blocks(text: str) -> list[answers.StoryBlock]:
    """Return paragraphs and items, between empty lines."""
    blocks: list[answers.StoryBlock] = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        for piece in re.split(r"^- +", paragraph, flags=re.MULTILINE):
            if piece.strip():
                is_item = f"- {piece}" in paragraph
                blocks.append({"is_item": is_item, "spans": _spans(" ".join(piece.split()))})
    return blocks


def _spans(text: str) -> list[answers.StorySpan]:
    spans: list[answers.StorySpan] = []
    end = 0
    for match in _SPAN.finditer(text):
        if match.start() > end:
            spans.append({"kind": "text", "text": text[end : match.start()], "address": ""})
        kind = next(name for name in ("code", "strong", "em", "view") if match[name] is not None)
        spans.append({"kind": kind, "text": match[kind], "address": match["address"] or ""})
        end = match.end()
    if text[end:]:
        spans.append({"kind": "text", "text": text[end:], "address": ""})
    return spans


def _first_address(text: str) -> str | None:
    return next((match["address"] for match in _SPAN.finditer(text) if match["address"]), None)


def _addresses(story: answers.Story) -> list[str]:
    blocks = [block for step in story["steps"] for block in (*step["prose"], *step["reveal"])]
    return [span["address"] for block in blocks for span in block["spans"] if span["address"]]
