"""From the tensors of a checkpoint to the arrays that a family names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import escape
from regard.formats.quantized import are_finite
from regard.nn.quantized import QuantizedWeight
from regard.text.words import join_names

if TYPE_CHECKING:
    from regard.models.checkpoint.open import Checkpoint

OLD_NORM_SUFFIXES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Suffixes of names in the oldest checkpoints, and what they are called now."""

_MAX_NAMES = 50  # in a message


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
    def index(self) -> slice | np.ndarray:
        """The rows of the stored tensor; of one whose shape was checked."""
        return self.rows() if callable(self.rows) else self.rows or slice(None)


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


class Tensors(Protocol):
    """The tensors of a checkpoint by their Hugging Face names, each read on access."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, from the header."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """Return a tensor, memory-mapped where its dtype is one of NumPy's."""

    def quantized(self, name: str, /) -> tuple[np.ndarray, str] | None:
        """Return the blocks of a matrix and their kind, if it is stored in blocks."""

    def __len__(self) -> int:
        """Return how many there are."""


@dataclass(frozen=True, eq=False)
class ComputedArray:
    """An array of a model that is not a view of its tensor: other rows of it, or more by an offset.

    Parameters
    ----------
    array, tensor : array
        In the layout of the checkpoint both.
    name : str
        Of the tensor, as Hugging Face has it.
    rows : slice or integer array
        Of the tensor.
    offset : float
    """

    array: np.ndarray
    tensor: np.ndarray
    name: str
    rows: slice | np.ndarray
    offset: float

    def update(self) -> None:
        """Compute the array from its tensor."""
        np.add(self.tensor[self.rows], self.offset, out=self.array, dtype=self.array.dtype)

    def update_tensor(self) -> None:
        """Change the tensor where the array is not what is computed from it."""
        rows = self.tensor[self.rows]
        self.tensor[self.rows] = np.where(
            rows + rows.dtype.type(self.offset) == self.array, rows, self.array - self.offset
        )


class RecordedTensors:
    """Tensors of a checkpoint or of a mapping, never quantized, with a record of how a family reads them.

    Attributes
    ----------
    read : dict of str to array
        The tensors that were read, by their current names.
    computed : list of ComputedArray
        The arrays that are not views of them.
    buffers : set of str
        Those that are not trained.
    """

    def __init__(self, source: Tensors | Mapping[str, np.ndarray]) -> None:
        self._source = source
        shapes = {name: x.shape for name, x in source.items()} if isinstance(source, Mapping) else source.shapes
        self.shapes: Mapping[str, tuple[int, ...]] = shapes
        self.read: dict[str, np.ndarray] = {}
        self.computed: list[ComputedArray] = []
        self.buffers: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor."""
        return self._source[name]

    def quantized(self, name: str) -> tuple[np.ndarray, str] | None:  # noqa: ARG002
        """Return None: none is stored in blocks."""
        return None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.shapes)


class NewTensors:
    """The tensors of a model that is stored nowhere: each is made when a family asks for it.

    Parameters
    ----------
    make : function
        From a `TensorSpec` to an array of its shape.
    """

    def __init__(self, make: Callable[[TensorSpec], np.ndarray]) -> None:
        self._make = make
        self.arrays: dict[str, np.ndarray] = {}

    def create(self, specs: Iterable[TensorSpec], prefix: str) -> None:
        """Make tensors, whose Hugging Face names have the prefix of a model that was saved with its head."""
        self.arrays |= {prefix + spec.hf_name: self._make(spec) for spec in specs}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor so far."""
        return {name: x.shape for name, x in self.arrays.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor."""
        return self.arrays[name]

    def quantized(self, name: str) -> tuple[np.ndarray, str] | None:  # noqa: ARG002
        """Return None: none is stored in blocks."""
        return None

    def __len__(self) -> int:
        """Return more than any model has."""
        return sys.maxsize


def load_tensors(
    checkpoint: Checkpoint,
    specs: Iterable[TensorSpec],
    *,
    num_layers: int,
    prefixes: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    renamed_suffixes: Mapping[str, str] | None = None,
    shared: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> dict[str, Any]:
    """Return the tensors of a checkpoint by their names here, in `dtype`; without a copy where stored in it.

    In float32, matrices that are stored in blocks or in half precision become a `regard.nn.QuantizedWeight`.

    Parameters
    ----------
    checkpoint
    specs
        The tensors that the family needs, not evaluated when there are fewer tensors than layers.
    num_layers
        The blocks of the model.
    prefixes
        Possible prefixes of all names: an encoder is ``encoder.…`` alone and ``bert.encoder.…`` inside a model with a
        task head. The one that matches most names is taken.
    unused
        Prefixes of tensors that may be present and do not affect the hidden states.
    renamed_suffixes
        Old suffixes of names, and what they are called now.
    shared
        Names of tensors that a file may have under another name alone, and that: a tied embedding table as the head.

    Raises
    ------
    RegardError
        There are fewer tensors than layers; or tensors are missing, unexpected or of another shape (all named at once,
        50 at most); or one has non-finite numbers (the first is named).
    """
    tensors, path = checkpoint.tensors(), checkpoint.path
    if num_layers > len(tensors):  # before `specs` makes a list for each layer
        raise RegardError(f"{path} has {len(tensors)} tensors, too few for {num_layers} layers; fetch it again")
    specs = list(specs)
    if isinstance(tensors, NewTensors):
        tensors.create(specs, prefixes[-1])
    all_shapes = tensors.shapes
    stored_names = current_names(all_shapes, renamed_suffixes or {})
    for name, other in (shared or {}).items():
        if name not in stored_names and other in stored_names:
            stored_names[name] = stored_names[other]
    shapes = {name: all_shapes[stored] for name, stored in stored_names.items()}
    prefix = max(prefixes, key=lambda p: sum(p + spec.hf_name in shapes for spec in specs))
    wanted = {prefix + spec.hf_name: spec for spec in specs}  # one of each tensor
    problems = []
    if missing := [name for name in wanted if name not in shapes]:
        problems.append(f"missing {join_names(missing, _MAX_NAMES)}")
    unexpected = [
        name
        for name, shape in shapes.items()
        if name not in wanted and not name.removeprefix(prefix).startswith(unused) and not _is_constant(name, shape)
    ]
    if unexpected:
        problems.append(f"unexpected {join_names(map(escape, unexpected), _MAX_NAMES)}")
    misshapen = [name for name in wanted if name in shapes and tuple(shapes[name]) != wanted[name].shape]
    problems += [
        f"{name} has shape {tuple(shapes[name])}, the configuration requires {wanted[name].shape}"
        for name in misshapen[:_MAX_NAMES]
    ]
    if problems:
        raise RegardError(f"the tensors of {path} do not fit its configuration: {'; '.join(problems)}")

    weights: dict[str, Any] = {}
    for spec in specs:
        name = prefix + spec.hf_name
        quantized = tensors.quantized(stored_names[name]) if spec.transposed or spec.table else None
        if quantized is not None and np.dtype(dtype) == np.float32:
            if not are_finite(*quantized):
                raise RegardError(f"{name} of {path} has numbers that are not finite; fetch it again")
            weight = QuantizedWeight(*(quantized if spec.rows is None else (quantized[0][spec.index], quantized[1])))
            weights[spec.name] = weight.T if spec.transposed else weight
            continue
        array = tensors[stored_names[name]]
        if isinstance(tensors, RecordedTensors):
            tensors.read[name] = array
        if array.dtype.kind != "f":
            raise RegardError(f"{name} of {path} is stored as {array.dtype}, not as floating-point numbers")
        with np.errstate(all="ignore"):
            array = array.astype(dtype, copy=False)
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():  # the sum is fast, but may overflow
                raise RegardError(f"{name} of {path} has numbers that are not finite in {array.dtype}; fetch it again")
        rows = spec.index
        tensor, array = array, array[rows] if array.ndim else array
        if isinstance(tensors, RecordedTensors) and spec.buffer:
            tensors.buffers.add(name)
        if spec.offset:
            array = array + array.dtype.type(spec.offset)
        if isinstance(tensors, RecordedTensors) and array.size and not np.may_share_memory(array, tensor):
            tensors.computed.append(ComputedArray(array, tensor, name, rows, spec.offset))
        elif not isinstance(rows, slice):  # read-only, so that it can be packed as those of a file
            array = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        weights[spec.name] = array.T if spec.transposed else array
    return weights


def _is_constant(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor is one that older versions stored and that follows from the configuration.

    Positions, rotary frequencies, versions, and causal masks, 1 1 n n.
    """
    last = name.rpartition(".")[2]
    return last in ("position_ids", "inv_freq", "masked_bias", "version") or (last == "bias" and len(shape) == 4)


def current_names(names: Iterable[str], suffixes: Mapping[str, str]) -> dict[str, str]:
    """Return each of `names`, with its current suffix, and its name in the file."""
    stored = {name: name for name in names}
    for name in list(stored):
        for old, new in suffixes.items():
            if name.endswith(old) and (renamed := name.removesuffix(old) + new) not in stored:
                stored[renamed] = stored.pop(name)
    return stored
