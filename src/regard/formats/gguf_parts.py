"""The names of the files that a split GGUF model has: ``NAME-00002-of-00003.gguf`` is the second of three."""

from __future__ import annotations

import re
from pathlib import Path

_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.ASCII | re.IGNORECASE)
_MAX_SHOWN = 10  # names of missing files in a message


def part_of(name: str) -> tuple[int, int] | None:
    """Return which part a file is by its name, from 1, and of how many; None for a whole model."""
    match = _PART.search(name)
    return (int(match[1]), int(match[2])) if match and 1 <= int(match[1]) <= int(match[2]) else None


def whole_name(name: str) -> str:
    """Return the name of a file without its number, if it is a part."""
    return _PART.sub("", name) if part_of(name) else name


def model_of(name: str) -> tuple[str, int]:
    """Return what the parts of one model have in common: their name without number, and how many they are.

    That is 0 for a whole model.
    """
    part = part_of(name)
    return whole_name(name), part[1] if part else 0


def files_of_model(path: Path) -> list[Path]:
    """Return the file of a model, or of one in parts all that are in the folder, by their names."""
    if part_of(path.name) is None:
        return [path]
    return sorted(each for each in path.parent.glob("*") if model_of(each.name) == model_of(path.name))


def paths_of_parts(path: Path, part: int, count: int) -> list[Path]:
    """Return the files of a model of which `path` is the given part, from 1.

    Raises
    ------
    ValueError
        Its name says otherwise, or others are missing; they are named.
    """
    if part_of(path.name) != (part, count):
        raise ValueError(
            f"it is part {part} of {count}, and its name does not say so, by which the others are found: rename it to "
            f"NAME-{part:05}-of-{count:05}.gguf, as the others are called"
        )
    paths = [path.with_name(_PART.sub(f"-{i + 1:05}-of-{count:05}", path.name)) for i in range(count)]
    if missing := [each.name for each in paths if not each.is_file()]:
        more = f" and {len(missing) - _MAX_SHOWN} more" if len(missing) > _MAX_SHOWN else ""
        are = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"it is one of {count} parts, and {', '.join(missing[:_MAX_SHOWN])}{more} {are} not in {path.parent}; "
            "fetch what is missing into that folder"
        )
    return paths
