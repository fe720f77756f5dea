"""The scope in a trace of each module of a PyTorch model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any, NamedTuple

_CROSS = ("cross", "encdec", "encoder_attn", "multihead_attn")  # crossattention, EncDecAttention, encoder_attn, …


class _Place(NamedTuple):
    """A path split at its first number: the path of the stack (without its list), the number, and the rest."""

    stack: str
    number: int
    rest: str

    @property
    def kind(self) -> str:
        return "cross_attn" if any(word in self.rest.lower() for word in _CROSS) else "attn"


class ModuleScopes:
    """From a module to the scope of its steps, ``blocks.3.attn``.

    The block's number is the first number in the module's path. With several stacks of blocks the scope begins with the
    name of the stack, ``encoder.blocks.3.attn``. A module that a run calls again, as ALBERT does for all its layers, is
    in its next place in the list, or else in the block after all others; in a stack with lists inside its list, blocks
    are numbered by the order of calls.

    Attributes
    ----------
    stacks : dict
        From the path of each stack to what its scopes begin with, ``"encoder."``, "" where there is one stack.
    block_paths : tuple of str
        Of the blocks, each once.
    """

    def __init__(self, model: Any) -> None:
        self._paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
        self._places: dict[int, list[_Place]] = defaultdict(list)
        for path, module in model.named_modules(remove_duplicate=False):
            own, first = _split(path), _split(self._paths[id(module)])
            if own is not None and first is not None and (own.stack, own.rest) == (first.stack, first.rest):
                self._places[id(module)].append(own)
        named = [
            (place, type(module).__name__, path)
            for path, module in model.named_modules()
            if is_attention(module) and (place := _split(path)) is not None
        ]
        stacks = dict.fromkeys(place.stack for place, *_ in named)
        short = [stack.rpartition(".")[2] for stack in stacks]
        self.stacks = {
            stack: "" if len(stacks) == 1 else f"{last if short.count(last) == 1 else stack}."
            for stack, last in zip(stacks, short, strict=True)
        }
        inner = {(place.stack, re.sub(r"\b\d+\b", "*", place.rest), name, place.rest) for place, name, _ in named}
        similar = Counter(key[:-1] for key in inner)
        self._nested = {stack for (stack, pattern, _), count in similar.items() if "*" in pattern and count > 1}
        lists = {_list_of(path, innermost=place.stack in self._nested) for place, _, path in named}
        self.block_paths = tuple(
            path for path in self._paths.values() if path.rpartition(".")[0] in lists and path[-1:].isdecimal()
        )
        self._is_running = False
        self._clear()

    def start_run(self) -> None:
        """Count the calls of modules anew: a run of the whole model begins, in which a module may run again."""
        self._clear()
        self._is_running = True

    def end_run(self) -> None:
        """Give a module the scope that it had from now on: what runs again is another run, or a recomputation."""
        self._is_running = False

    def scope_of_attention(self, module: Any) -> str:
        """Return the scope of a call of an attention module; "" for the model itself."""
        return self._numbered_scope(id(module), "") or self._paths.get(id(module), type(module).__name__)

    def scope_of_block(self, module: Any) -> str:
        """Return the scope of a call of a block, ``blocks.3``."""
        scope = self._numbered_scope(id(module), "block")
        assert scope is not None  # a block has a number
        return scope

    def _numbered_scope(self, module: int, kind: str) -> str | None:
        key = module, kind
        if not self._is_running and key in self._first:
            return self._first[key]
        call = self._calls[key]
        self._calls[key] += 1
        scope = self._numbered(module, call, kind)
        self._first.setdefault(key, scope)
        return scope

    def _numbered(self, module: int, call: int, kind: str) -> str | None:
        """Return the scope of a module in a numbered layer; `kind` is "block" for the layer itself."""
        places = self._places.get(module, [])
        if not places or places[0].stack not in self.stacks:
            return None
        place = places[min(call, len(places) - 1)]
        blocks = place.stack, kind or place.kind
        if call >= len(places):  # from here on the places of this stack are not those of its modules
            self._counted.add(blocks)
        is_counted = blocks in self._counted
        number = self._next[blocks] if is_counted else place.number
        self._next[blocks] = max(self._next[blocks], number + 1)
        block = f"{self.stacks[place.stack]}blocks.{number}"
        if kind:
            return block
        scope = f"{block}.{place.kind}"
        if self._taken.setdefault(scope, module) != module:  # a second one in this block
            return f"{block}.{place.rest}"
        return scope

    def _clear(self) -> None:
        self._calls: Counter[tuple[int, str]] = Counter()
        self._first: dict[tuple[int, str], str | None] = {}
        self._taken: dict[str, int] = {}
        self._next: Counter[tuple[str, str]] = Counter()
        self._counted = {(stack, kind) for stack in self._nested for kind in ("attn", "cross_attn", "block")}


def is_attention(module: Any) -> bool:
    """Whether a module is an attention, or contains one and little else, by the name of its class."""
    return "attention" in type(module).__name__.lower()


def attention_kind(path: str) -> str:
    """Return ``attn`` or ``cross_attn`` for the path of an attention within its block."""
    return _Place("", 0, path).kind


def _split(path: str) -> _Place | None:
    """Split a path at its first number; None if it has none."""
    parts = path.split(".")
    for at, part in enumerate(parts):
        if part.isdecimal():
            return _Place(".".join(parts[: max(0, at - 1)]), int(part), ".".join(parts[at + 1 :]))
    return None


def _list_of(path: str, *, innermost: bool) -> str:
    """Return the path of the list of blocks in which a module is: of its outermost numbered list, or the innermost."""
    parts = path.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[: numbers[-1 if innermost else 0]])
