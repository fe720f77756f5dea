"""What an attention inside somebody's model is called in a trace."""

from __future__ import annotations

from typing import Any

_CROSS = ("cross", "encdec", "encoder_attn", "multihead_attn")  # crossattention, EncDecAttention, encoder_attn, …


class Names:
    """From a module to the scope of its steps: ``blocks.3.attn``.

    The number of a block is the first number on the way to the module. Where there are several stacks of blocks the
    name begins with the stack's, ``encoder.blocks.3.attn``.
    """

    def __init__(self, model: Any) -> None:
        self._paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
        stacks = dict.fromkeys(
            split[0]
            for path, module in model.named_modules()
            if "attention" in type(module).__name__.lower() and (split := _split(path)) is not None
        )
        short = [stack.rpartition(".")[2] for stack in stacks]
        self._stacks = {
            stack: "" if len(stacks) == 1 else f"{last if short.count(last) == 1 else stack}."
            for stack, last in zip(stacks, short, strict=True)
        }
        self._taken: dict[str, int] = {}

    def of(self, module: Any) -> str:
        """Return the scope of a module's steps; "" for the model itself."""
        path = self._paths.get(id(module), type(module).__name__)
        split = _split(path)
        if split is None or split[0] not in self._stacks:
            return path
        stack, number, rest = split
        block = f"{self._stacks[stack]}blocks.{number}"
        name = f"{block}.{'cross_attn' if any(word in rest.lower() for word in _CROSS) else 'attn'}"
        if self._taken.setdefault(name, id(module)) != id(module):  # two of a kind in one block
            return f"{block}.{rest}"
        return name


def _split(path: str) -> tuple[str, int, str] | None:
    """Return what stands before a path's first number (without the list's own name), the number, and what follows."""
    parts = path.split(".")
    for at, part in enumerate(parts):
        if part.isdecimal():
            return ".".join(parts[: max(0, at - 1)]), int(part), ".".join(parts[at + 1 :])
    return None
