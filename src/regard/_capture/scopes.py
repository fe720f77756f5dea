"""The scope in a trace of each module of a PyTorch model."""

from __future__ import annotations

from typing import Any

_CROSS = ("cross", "encdec", "encoder_attn", "multihead_attn")  # crossattention, EncDecAttention, encoder_attn, …


class ModuleScopes:
    """From a module to the scope of its steps, ``blocks.3.attn``.

    The block's number is the first number in the module's path. With several stacks of blocks the scope begins with the
    name of the stack, ``encoder.blocks.3.attn``.
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
        """Return the scope of a module; "" for the model itself."""
        path = self._paths.get(id(module), type(module).__name__)
        split = _split(path)
        if split is None or split[0] not in self._stacks:
            return path
        stack, number, rest = split
        block = f"{self._stacks[stack]}blocks.{number}"
        name = f"{block}.{'cross_attn' if any(word in rest.lower() for word in _CROSS) else 'attn'}"
        if self._taken.setdefault(name, id(module)) != id(module):  # a second one in this block
            return f"{block}.{rest}"
        return name


def _split(path: str) -> tuple[str, int, str] | None:
    """Split a path at its first number: the path of the stack (without its list), the number, and the rest."""
    parts = path.split(".")
    for at, part in enumerate(parts):
        if part.isdecimal():
            return ".".join(parts[: max(0, at - 1)]), int(part), ".".join(parts[at + 1 :])
    return None
