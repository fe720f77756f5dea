"""The arguments of attention as what an operator of PyTorch takes: tensors, integers and a string.

The string says how the rules are made of the tensors and integers, in prefix notation: ``LogicalAnd Causal n KeyLengths
t3`` is ``Causal() & KeyLengths(lengths)``. It depends on no table of this process, so that an exported program can be
loaded in another one, and on no number, so that a compiler can leave those open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from regard.functional.arrays import Array
from regard.functional.biases.base import Bias, DenseBias
from regard.functional.inputs import Options
from regard.functional.rules import RULE_NAMES, RULES, Rule, RuleField
from regard.torch.classes import is_of_own_class
from regard.torch.extra import torch

# How many of the axes ... H T S an array lacks at the end.
SCORES, RANGES, PER_SEQUENCE = 0, 1, 3
_OPTIONS = (
    ("mask", SCORES, None), ("query_offset", PER_SEQUENCE, None), ("key_lengths", PER_SEQUENCE, None),
    ("causal", PER_SEQUENCE, False),
)  # fmt: skip


class Encoder:
    """Options of a call as a string, tensors and integers; `add` returns False for what they cannot say."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.arrays: list[Array] = []
        self.ints: list[int] = []
        self.bias: Array | None = None

    def add_options(self, options: Options) -> bool:
        """Add the options that are rules or numbers of positions."""
        bias, window = options.get("bias"), options.get("window")
        if isinstance(bias, torch.Tensor):
            bias = DenseBias(bias)
        if not all([self.add(options.get(name, default), kind) for name, kind, default in _OPTIONS]):  # noqa: C419
            return False
        sides = (None, None) if window is None else window
        if not isinstance(sides, tuple | list) or len(sides) != 2:
            return False
        self.words.append("n" if window is None else "w")
        return all([self.add(x, PER_SEQUENCE) for x in (*sides, bias)])  # noqa: C419

    def add(self, value: Any, lacking: int | None) -> bool:
        """Add None, a boolean, an integer, a tensor or a rule; what a tensor lacks of the axes ... H T S at the end.

        None: it has no axes of a batch.
        """
        if value is None or value is False:
            self.words.append("n" if value is None else "F")
        elif value is True:
            self.words.append("T")
        elif isinstance(value, int | torch.SymInt):
            self.words.append("i")
            self.ints.append(value)
        elif isinstance(value, torch.Tensor) and not is_of_own_class(value):
            self.words.append("t" if lacking is None else f"t{lacking}")
            self.arrays.append(value)
        elif type(value) in RULES:
            return self._add_rule(value)
        else:
            return False
        return True

    def _add_rule(self, rule: Rule) -> bool:
        self.words.append(type(rule).__name__)
        if isinstance(rule, Bias):
            has_other, self.bias = self.bias is not None, getattr(rule, "parameter", None)
            if has_other or not isinstance(self.bias, torch.Tensor):
                return False
        return all([self._add_field(rule, field) for field in RULES[type(rule)] if field.name != "parameter"])  # noqa: C419

    def _add_field(self, rule: Rule, field: RuleField) -> bool:
        value = getattr(rule, field.name)
        return not (isinstance(value, torch.Tensor) and field.axes is None) and self.add(value, field.lacking)


def array_axes(rules: str) -> list[int | None]:
    """Return how many of the axes ... H T S each array lacks at the end; None: it has no axes of a batch."""
    return [int(word[1:]) if word[1:] else None for word in rules.split() if word[0] == "t"]


def bias_axes(rules: str) -> int | None:
    """Return the same for the parameter of the bias, 0 if there is none."""
    kinds = [RULE_NAMES[word] for word in rules.split() if word in RULE_NAMES]
    fields = (field for kind in kinds if issubclass(kind, Bias) for field in RULES[kind])
    return next((field.lacking for field in fields if field.name == "parameter"), SCORES)


def decode(rules: str, arrays: Sequence[Array], ints: Sequence[int], bias: Array | None) -> Options:
    """Return the options that an `Encoder` was given."""
    words, values = iter(rules.split()), {"t": iter(arrays), "i": iter(ints)}
    decoded: dict[str, Any] = {name: _decode(words, values, bias) for name, *_ in _OPTIONS}
    has_window = next(words) == "w"
    sides = _decode(words, values, bias), _decode(words, values, bias)
    options: Options = {**decoded, "window": sides if has_window else None, "bias": _decode(words, values, bias)}  # type: ignore[typeddict-item]
    return options


def _decode(words: Iterator[str], values: dict[str, Iterator[Any]], bias: Array | None) -> Any:
    word = next(words)
    if word in ("n", "F", "T"):
        return {"n": None, "F": False, "T": True}[word]
    if word not in RULE_NAMES:
        return next(values[word[0]])
    kind: Any = RULE_NAMES[word]
    names = [field.name for field in RULES[kind]]
    return kind(**{name: bias if name == "parameter" else _decode(words, values, bias) for name in names})
