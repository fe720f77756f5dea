"""A file of named tensors that is mapped into memory: what does not depend on its format."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from regard._utils.errors import RegardError


class TensorFile(Mapping[str, NDArray[Any]]):
    """The tensors of a file by name; a format says how its header is read, and one tensor.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    RegardError
        It is missing, unreadable or empty, or `_parse` finds that it is not sound.
    """

    _tensors: Mapping[str, Any]  # each with its `shape`

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._bytes = self._mapped()
            self._parse()
        except OSError as error:
            raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise RegardError(f"cannot read {path}: {error}") from error

    def _parse(self) -> None:
        """Read the header into `_tensors`; ValueError says what is not sound."""
        raise NotImplementedError

    def _mapped(self) -> mmap.mmap:
        if not stat.S_ISREG(self.path.stat().st_mode):
            raise ValueError("it is not a regular file, so it cannot be mapped; copy it to one")
        with self.path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise ValueError("it is empty; fetch it again")
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} tensors)"

    # Mapping compares values, which arrays do not answer with one truth.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, read without its values."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}
