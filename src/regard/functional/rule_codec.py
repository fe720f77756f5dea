"""The arguments of attention as what an operator of PyTorch takes: tensors, integers and a string.

The string says how the rules are made of the tensors and integers, in prefix notation: ``LogicalAnd Causal n KeyLengths
t3`` is ``Causal() & KeyLengths(lengths)``. It depends on no table of this process, so that an exported program can be
loaded in another one, and on no number, so that a compiler can leave those open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from regard.functional.arrays import Array, is_of_own_class
from regard.functional.biases import ALiBi, Bias, DenseBias, DistanceBias, RelativePositionBias
from regard.functional.inputs import Options
from regard.functional.mask_rules import Causal, KeyLengths, KeyRangeMask, PrefixLM, SegmentMask, SlidingWindow
from regard.functional.masks import DenseMask, LogicalAnd, LogicalOr, Mask

# How many of the axes ... H T S an array lacks at the end.
SCORES, RANGES, IDS, PER_SEQUENCE = range(4)
_RULES: dict[Any, tuple[tuple[str, int], ...]] = {
    DenseMask: (("array", SCORES),),
    Causal: (("query_offset", PER_SEQUENCE),),
    SlidingWindow: (("left", PER_SEQUENCE), ("right", PER_SEQUENCE), ("query_offset", PER_SEQUENCE)),
    KeyLengths: (("lengths", PER_SEQUENCE),),
    PrefixLM: (("lengths", PER_SEQUENCE),),
    SegmentMask: (("queries", IDS), ("keys", IDS)),
    KeyRangeMask: (("first", RANGES), ("last", RANGES)),
    LogicalAnd: (("one", SCORES), ("other", SCORES)),
    LogicalOr: (("one", SCORES), ("other", SCORES)),
    DenseBias: (),
    ALiBi: (),
    DistanceBias: (("min_distance", PER_SEQUENCE),),
    RelativePositionBias: (("bidirectional", PER_SEQUENCE), ("max_distance", PER_SEQUENCE)),
}
_BY_NAME = {rule.__name__: rule for rule in _RULES}
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
        import torch

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

    def add(self, value: Any, kind: int) -> bool:
        """Add None, a boolean, an integer, a tensor or a rule."""
        import torch

        if value is None or value is False:
            self.words.append("n" if value is None else "F")
        elif value is True:
            self.words.append("T")
        elif isinstance(value, int | torch.SymInt):
            self.words.append("i")
            self.ints.append(value)
        elif isinstance(value, torch.Tensor) and not is_of_own_class(value):
            self.words.append(f"t{kind}")
            self.arrays.append(value)
        elif type(value) in _RULES:
            return self._add_rule(value)
        else:
            return False
        return True

    def _add_rule(self, rule: Mask | Bias) -> bool:
        import torch

        self.words.append(type(rule).__name__)
        if isinstance(rule, Bias):
            if not isinstance(rule.parameter, torch.Tensor):
                return False
            self.bias = rule.parameter
        return all([self.add(getattr(rule, name), kind) for name, kind in _RULES[type(rule)]])  # noqa: C419


def array_kinds(rules: str) -> list[int]:
    """Return how many of the axes ... H T S each array lacks at the end."""
    return [int(word[1]) for word in rules.split() if word[0] == "t"]


def bias_rule(rules: str) -> type[Bias] | None:
    """Return the class of the bias."""
    found = [_BY_NAME[word] for word in rules.split() if word in _BY_NAME]
    return found[-1] if found and issubclass(found[-1], Bias) else None


def decode(rules: str, arrays: Sequence[Array], ints: Sequence[int], bias: Array | None) -> Options:
    """Return the options that an `Encoder` was given."""
    words, values = iter(rules.split()), {"t": iter(arrays), "i": iter(ints)}
    found: dict[str, Any] = {name: _decode(words, values, bias) for name, *_ in _OPTIONS}
    has_window = next(words) == "w"
    sides = _decode(words, values, bias), _decode(words, values, bias)
    options: Options = {**found, "window": sides if has_window else None, "bias": _decode(words, values, bias)}  # type: ignore[typeddict-item]
    return options


def _decode(words: Iterator[str], values: dict[str, Iterator[Any]], bias: Array | None) -> Any:
    word = next(words)
    if word in ("n", "F", "T"):
        return {"n": None, "F": False, "T": True}[word]
    if word not in _BY_NAME:
        return next(values[word[0]])
    rule = _BY_NAME[word]
    fields = [_decode(words, values, bias) for _ in _RULES[rule]]
    return rule(bias, *fields) if issubclass(rule, Bias) else rule(*fields)
