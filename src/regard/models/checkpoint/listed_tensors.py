"""Tensors of a family that lists them by the names of arrays, apart from the code that builds its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSource, load_layers


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a family needs: its name here, its Hugging Face name, and its shape in the checkpoint.

    A `transposed` tensor is the weight of a linear map, which the checkpoint stores as (outputs, inputs); a `table` is
    read by rows alone. Both stay in the blocks in which they are stored. With `rows` it is a part of a tensor that the
    checkpoint stores as one: a slice of the first axis, which is a view, or a function that returns their indices, as
    many as the configuration says, and so called for a tensor that has them. The checkpoint stores it minus `offset`. A
    `buffer` is stored and never trained.
    """

    name: str
    hf_name: str
    shape: tuple[int, ...]
    transposed: bool = False
    table: bool = False
    rows: slice | Callable[[], np.ndarray] | None = field(default=None, compare=False)
    offset: float = 0.0
    buffer: bool = False

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        shape = self.shape
        if isinstance(self.rows, slice):
            shape = (len(range(shape[0])[self.rows]), *shape[1:])
        return shape[::-1] if self.transposed else shape


def linear_tensors(name: str, hf_name: str, inputs: int, outputs: int, *, bias: bool = True) -> Iterator[TensorSpec]:
    """Yield the tensors of a linear map from `inputs` to `outputs` features."""
    yield TensorSpec(f"{name}.weight", f"{hf_name}.weight", (outputs, inputs), transposed=True)
    if bias:
        yield TensorSpec(f"{name}.bias", f"{hf_name}.bias", (outputs,))


def fused_tensors(
    names: Mapping[str, int], hf_name: str, inputs: int, *, bias: bool = True, interleaved: int | None = None
) -> Iterator[TensorSpec]:
    """Yield the tensors of linear maps of the same x that the checkpoint stores as one.

    `names` has the outputs of each map. Its rows follow each other, or alternate in groups of `interleaved` rows: those
    of the first head of each map, then those of the second.
    """
    total, start = sum(names.values()), 0
    for i, (name, outputs) in enumerate(names.items()):
        rows: slice | Callable[[], np.ndarray] = slice(start, start + outputs)
        if interleaved is not None:
            rows = partial(_interleaved_rows, total, len(names), interleaved, i)
        yield TensorSpec(f"{name}.weight", f"{hf_name}.weight", (total, inputs), transposed=True, rows=rows)
        if bias:
            yield TensorSpec(f"{name}.bias", f"{hf_name}.bias", (total,), rows=rows)
        start += outputs


def _interleaved_rows(total: int, parts: int, group: int, part: int) -> np.ndarray:
    return np.arange(total).reshape(-1, parts, group)[:, part].ravel()


def norm_tensors(name: str, hf_name: str, features: int) -> Iterator[TensorSpec]:
    """Yield the tensors of a layer norm."""
    yield TensorSpec(f"{name}.weight", f"{hf_name}.weight", (features,))
    yield TensorSpec(f"{name}.bias", f"{hf_name}.bias", (features,))


def load_tensors(checkpoint: Checkpoint, specs: Iterable[TensorSpec], **options: Any) -> dict[str, Any]:
    """Return the tensors of a checkpoint by their names here, as `load_layers` does."""
    listed: list[TensorSpec] = []

    def build(source: TensorSource) -> dict[str, Any]:
        listed.extend([] if listed else specs)
        return {
            spec.name: source.array(
                spec.hf_name,
                spec.shape,
                spec.array_shape,
                transposed=spec.transposed,
                table=spec.table,
                rows=spec.rows,
                offset=spec.offset,
                buffer=spec.buffer,
            )
            for spec in listed
        }

    return load_layers(checkpoint, build, **options)
