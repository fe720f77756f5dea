"""From a checkpoint's tensors to the arrays that a family names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard._errors import RegardError
from regard._safetensors import SafetensorsFile


@dataclass(frozen=True)
class Tensor:
    """One tensor that a family needs: our name for it, the checkpoint's, and the shape in the checkpoint.

    A `transposed` one is a linear map that the checkpoint stores as (outputs, inputs), the other way round.
    """

    name: str
    stored: str
    shape: tuple[int, ...]
    transposed: bool = False


def linear_tensors(name: str, stored: str, inputs: int, outputs: int, *, bias: bool = True) -> Iterator[Tensor]:
    """Yield what a checkpoint holds of a linear map from `inputs` to `outputs` features."""
    yield Tensor(f"{name}.weight", f"{stored}.weight", (outputs, inputs), transposed=True)
    if bias:
        yield Tensor(f"{name}.bias", f"{stored}.bias", (outputs,))


def norm_tensors(name: str, stored: str, features: int) -> Iterator[Tensor]:
    """Yield what a checkpoint holds of a layer norm."""
    yield Tensor(f"{name}.weight", f"{stored}.weight", (features,))
    yield Tensor(f"{name}.bias", f"{stored}.bias", (features,))


class Tensors(Protocol):
    """The tensors of a checkpoint by the names that they have there; each is read when it is asked for."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, known without reading it."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """Return a tensor, memory-mapped where its numbers are stored as NumPy holds them."""

    def __len__(self) -> int:
        """Return how many there are."""


def open_weights(folder: Path) -> SafetensorsFile:
    """Return the tensors of the checkpoint in `folder`, memory-mapped.

    Raises
    ------
    RegardError
        There is no model.safetensors, or it is damaged. A pickle is refused, with the way to convert it.
    """
    path = folder / "model.safetensors"
    if path.exists():
        return SafetensorsFile(path)
    pickles = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt"))
    if pickles:
        raise RegardError(
            f"{folder} holds its weights as a pickle ({', '.join(pickles)}), which could run any code when it is "
            f"read; convert it where you trust it: transformers' "
            f'AutoModel.from_pretrained("{folder}").save_pretrained(NEW_FOLDER) writes model.safetensors'
        )
    raise RegardError(f"there is no model.safetensors in {folder}: not the folder of a model")


def take_weights(
    file: Tensors,
    wanted: Iterable[Tensor],
    *,
    prefixes: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    endings: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
    path: str | Path = "",
) -> dict[str, np.ndarray]:
    """Return the wanted tensors by our names, in `dtype`; without a copy where they are stored so.

    Parameters
    ----------
    file
        The checkpoint's tensors.
    wanted
        What the family needs.
    prefixes
        What may stand before all names: the same encoder is ``encoder.…`` alone and ``bert.encoder.…`` inside a
        model with a task head. The first that fits is taken.
    unused
        Beginnings of names that may be there and have no part in the hidden states.
    endings
        Old endings of names and what they are called now.
    path
        For messages.

    Raises
    ------
    RegardError
        Names all tensors that are missing, unexpected or of another shape, at once; or the first with numbers
        that are not finite.
    """
    wanted = list(wanted)
    spelled = _spelled(file.shapes, endings or {})
    shapes = {name: file.shapes[old] for name, old in spelled.items()}
    prefix = max(prefixes, key=lambda p: sum(p + tensor.stored in shapes for tensor in wanted))
    stored = {prefix + tensor.stored: tensor for tensor in wanted}
    problems = []
    missing = [name for name in stored if name not in shapes]
    if missing:
        problems.append(f"missing {', '.join(missing)}")
    unexpected = [name for name in shapes if name not in stored and not name.removeprefix(prefix).startswith(unused)]
    if unexpected:
        problems.append(f"unexpected {', '.join(unexpected)}")
    for name, tensor in stored.items():
        if name in shapes and tuple(shapes[name]) != tensor.shape:
            problems.append(f"{name} has shape {tuple(shapes[name])}, the configuration asks for {tensor.shape}")
    if problems:
        raise RegardError(f"the tensors of {path} do not fit its configuration: {'; '.join(problems)}")

    weights = {}
    for name, tensor in stored.items():
        array = file[spelled[name]]
        if array.dtype.kind != "f":
            raise RegardError(f"{name} of {path} is stored as {array.dtype}, not as floating-point numbers")
        with np.errstate(all="ignore"):
            array = array.astype(dtype, copy=False)
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():  # the sum is quick, but may overflow
                raise RegardError(f"{name} of {path} has numbers that are not finite in {array.dtype}; fetch it again")
        weights[tensor.name] = array.T if tensor.transposed else array
    return weights


def _spelled(names: Iterable[str], endings: Mapping[str, str]) -> dict[str, str]:
    """Return for each of `names`, with its ending renewed, how the file spells it."""
    spelled = {name: name for name in names}
    for old in list(spelled):
        for ending, renewed in endings.items():
            if old.endswith(ending) and (new := old.removesuffix(ending) + renewed) not in spelled:
                spelled[new] = spelled.pop(old)
    return spelled
