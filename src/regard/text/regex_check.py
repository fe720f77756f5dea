"""Check a regular expression before a library runs it: that it matches in bounded time, and how much at least.

Expressions are those of Oniguruma, in the part of its syntax that tokenizers use. What is refused is what can take
exponential time: a repetition inside a repetition, alternatives inside one, and long chains of either.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from regard._utils.errors import RegardError
from regard._utils.validation import truncate

_MAX_CHARACTERS = 20_000
_MAX_COUNT = 1000
_MAX_REPEATS = 2  # in a row: the tokenizers of GPT-4o and Llama 3 have two
_MAX_WAYS = 4096
_FEW = 4  # repetitions that count as alternatives

_GROUP = re.compile(r"\?(?:[ims]*-?[ims]*:|[=!>]|<[=!]|<[A-Za-z_]\w*>)|(?![?*])")
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?[\w ]+\}|x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^1-9kgKXRQEyYNOxucCMpP])", re.DOTALL
)
_COUNT = re.compile(r"\{(?=,?\d)(\d{1,9})?(,)?(\d{1,9})?\}")
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class _Cost(NamedTuple):
    """The fewest characters that a part matches, its repetitions in a row, and in how many ways it can match."""

    width: int
    repeats: int = 0
    ways: int = 1


def min_width(pattern: str) -> int:
    """Return the fewest characters that `pattern` matches.

    Raises
    ------
    RegardError
        The expression may take exponential time, or has a construct that is not known here.
    """
    try:
        if len(pattern) > _MAX_CHARACTERS:
            raise ValueError(f"it has {len(pattern):,} characters")
        parser = _Parser(pattern)
        cost = parser.alternatives()
        if parser.at < len(pattern):
            raise ValueError("a parenthesis is closed that was not opened")
    except (ValueError, RecursionError) as error:
        raise RegardError(f"the regular expression {truncate(pattern)} is refused: {error}") from None
    return cost.width


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        if flags := re.match(r"\(\?[ims]+\)", pattern):
            self.at = flags.end()

    def alternatives(self) -> _Cost:
        """Read up to the end of a group."""
        branches = [self.branch()]
        while self.next() == "|":
            self.at += 1
            branches.append(self.branch())
        return _checked(
            _Cost(
                min(branch.width for branch in branches),
                max(branch.repeats for branch in branches),
                sum(branch.ways for branch in branches),
            )
        )

    def branch(self) -> _Cost:
        cost = _Cost(0)
        while self.next() not in ("", "|", ")"):
            part = self.quantified(self.part())
            cost = _checked(_Cost(cost.width + part.width, cost.repeats + part.repeats, cost.ways * part.ways))
        return cost

    def next(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def part(self) -> _Cost:
        """Read a character, a class, a group or an anchor."""
        sign = self.next()
        if sign == "(":
            return self.group()
        if sign == "[":
            self.character_class()
            return _Cost(1)
        if sign == "\\":
            return _Cost(0 if self.escape() in "AbBGzZ" else 1)
        if sign in "*+?":
            raise ValueError(f"{sign} repeats nothing")
        self.at += 1
        return _Cost(0 if sign in "^$" else 1)

    def escape(self) -> str:
        match = _ESCAPE.match(self.pattern, self.at)
        if not match:
            raise ValueError(f"{self.pattern[self.at : self.at + 2]} is not known")
        self.at = match.end()
        return match[0][1]

    def group(self) -> _Cost:
        start = _GROUP.match(self.pattern, self.at + 1)
        if not start:
            raise ValueError(f"{self.pattern[self.at : self.at + 4]} is not known")
        self.at = start.end()
        cost = self.alternatives()
        if self.next() != ")":
            raise ValueError("a parenthesis is not closed")
        self.at += 1
        return cost._replace(width=0) if start[0].endswith(("=", "!")) else cost

    def character_class(self) -> None:
        self.at += 2 if self.pattern[self.at + 1 : self.at + 2] == "^" else 1
        if self.next() == "]":
            raise ValueError("a class of characters is empty")
        while (sign := self.next()) != "]":
            if not sign:
                raise ValueError("a bracket is not closed")
            if sign == "[":
                self.character_class()
            elif sign == "\\":
                self.escape()
            else:
                self.at += 1
        self.at += 1

    def quantified(self, part: _Cost) -> _Cost:
        """Read the quantifiers of a part."""
        while True:
            sign = self.next()
            if sign in _QUANTIFIERS:
                low, high = _QUANTIFIERS[sign]
                self.at += 1
            elif count := _COUNT.match(self.pattern, self.at):
                low = int(count[1] or 0)
                high = int(count[3]) if count[3] else None if count[2] else low
                self.at = count.end()
            else:
                return part
            part = _checked(_repeated(part, low, high))
            if sign != "{" and self.next() in ("?", "+"):  # lazy or possessive
                self.at += 1


def _repeated(part: _Cost, low: int, high: int | None) -> _Cost:
    if max(low, high or 0) > _MAX_COUNT:
        raise ValueError(f"it repeats more than {_MAX_COUNT} times")
    if high is not None and high <= 1:
        return _Cost(low * part.width, part.repeats * high, part.ways + 1 - low)
    if high == low:
        return _Cost(low * part.width, part.repeats * low, part.ways**low)
    if part.repeats or part.ways > 1:
        raise ValueError("it repeats a repetition or alternatives")
    if high is not None and high <= _FEW:
        return _Cost(low * part.width, 0, high - low + 1)
    return _Cost(low * part.width, 1)


def _checked(cost: _Cost) -> _Cost:
    if cost.width > _MAX_CHARACTERS or cost.repeats > _MAX_REPEATS or cost.ways > _MAX_WAYS:
        raise ValueError("it has too many repetitions or alternatives in a row")
    return cost
