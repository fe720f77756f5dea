"""A memory-mapped file of named tensors: the part that does not depend on the format."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from regard._utils.errors import RegardError
from regard._utils.files import open_regular


class TensorFile(Mapping[str, NDArray[Any]]):
    """The tensors of a file by name; a format adds the reading of the header and of one tensor.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    RegardError
        The file is missing, unreadable, empty or malformed.
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
        """Read the header into `_tensors`; raise ValueError if it is malformed."""
        raise NotImplementedError

    def _mapped(self) -> mmap.mmap:
        with open_regular(self.path) as stream:
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

    # Mapping.__eq__ compares values, which is ambiguous for arrays.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, from the header."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}
