"""From the tensors of a checkpoint to the layers of a family, whose building code states each name and shape once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import short_name, truncate
from regard.formats.quantized import are_finite
from regard.nn import parameters
from regard.nn.fast_paths import is_mapped
from regard.nn.quantized import QuantizedWeight
from regard.text.words import join_names

if TYPE_CHECKING:
    from regard.models.checkpoint.open import Checkpoint

OLD_NORM_SUFFIXES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Suffixes of names in the oldest checkpoints, and what they are called now."""

ALL_ROWS = slice(None)
"""Of a matrix that is stored in blocks."""

_MAX_NAMES = 50  # in a message
_MAX_SIZE = 1 << 62  # numbers in half precision that NumPy can address

Rows: TypeAlias = slice | Callable[[], np.ndarray]
"""The rows of an array in its tensor, or a function that returns their indices."""

Layers = TypeVar("Layers")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a family needs: its Hugging Face name, its shape in the checkpoint, and that of the array here.

    A `transposed` tensor is the weight of a linear map, which the checkpoint stores as (outputs, inputs); a `table` is
    read by rows alone. Both stay in the blocks in which they are stored. With `rows` it is a part of a tensor that the
    checkpoint stores as one: a slice of the first axis, which is a view, or a function that returns their indices.
    It is called only after the shape has been checked, because their number comes from the configuration. The
    checkpoint stores it minus `offset`. A `buffer` is stored and never trained.
    """

    hf_name: str
    shape: tuple[int, ...]
    array_shape: tuple[int, ...]
    transposed: bool = False
    table: bool = False
    rows: Rows | None = None
    offset: float = 0.0
    buffer: bool = False

    @property
    def index(self) -> slice | np.ndarray:
        """The rows of the stored tensor; of one whose shape was checked."""
        return self.rows() if callable(self.rows) else self.rows or slice(None)


class TensorSource:
    """Where the code that builds the layers of a family gets each array, by the name and shape of its tensor.

    `load_layers` runs that code twice: with arrays without numbers, to find which tensors the checkpoint must have, and
    with those of the checkpoint.

    Parameters
    ----------
    get : function
        From a `TensorSpec` to an array.
    prefix : str
        Of all names.
    """

    def __init__(self, get: Callable[[TensorSpec], Any], prefix: str = "") -> None:
        self._get, self._prefix = get, prefix

    def at(self, name: str) -> TensorSource:
        """Return the source of the tensors whose names begin with `name` and a dot; this one, if it is empty."""
        return TensorSource(self._get, f"{self._prefix}{name}.") if name else self

    def array(
        self,
        name: str,
        shape: tuple[int, ...],
        array_shape: tuple[int, ...] | None = None,
        *,
        transposed: bool = False,
        table: bool = False,
        rows: Rows | None = None,
        offset: float = 0.0,
        buffer: bool = False,
    ) -> Any:
        """Return the array of a tensor of this shape; `array_shape` is that of the array if it is another.

        The other arguments are those of `TensorSpec`.
        """
        array_shape = shape if array_shape is None else array_shape
        return self._get(TensorSpec(self._prefix + name, shape, array_shape, transposed, table, rows, offset, buffer))


class ExpectedTensors:
    """The tensors that the building of layers asks for, in the order in which it does.

    Parameters
    ----------
    build : function
        From a `TensorSource` to layers, as `load_layers` takes it.
    """

    def __init__(self, build: Callable[[TensorSource], Any]) -> None:
        self.specs: list[TensorSpec] = []
        self._arrays: list[np.ndarray] = []
        self._layers = build(TensorSource(self._expect))

    def _expect(self, spec: TensorSpec) -> np.ndarray:
        self.specs.append(spec)
        self._arrays.append(_without_memory(spec.array_shape))
        return self._arrays[-1]

    def names(self) -> list[str]:
        """Return the name of each array in the layers, empty for one of which they have parts."""
        names = {id(x): name for name, x in parameters(self._layers).items()}
        return [names.get(id(x), "") for x in self._arrays]


def _without_memory(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of any shape that takes no memory, of floating-point numbers where NumPy can address them."""
    if math.prod(shape) < _MAX_SIZE:
        return np.ndarray(shape, np.float16, np.float16(0), strides=(0,) * len(shape))
    return np.empty([min(size, _MAX_SIZE) for size in shape], "V0")


class Tensors(Protocol):
    """The tensors of a checkpoint by their Hugging Face names, each read on access."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, from the header."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """Return a tensor, memory-mapped where its dtype is one of NumPy's."""

    def quantized(self, name: str, rows: slice | np.ndarray = ALL_ROWS, /) -> tuple[np.ndarray, str] | None:
        """Return the blocks of rows of a matrix, by default of all, and their kind, if they are stored in blocks."""

    def __len__(self) -> int:
        """Return how many there are."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where the numbers of an array of a model stand in its checkpoint.

    Parameters
    ----------
    name, stored : str
        Of the tensor, as it is called now and in the file.
    spec : TensorSpec
    columns : slice, optional
        Which of the last axis of the tensor the layer holds, if it took apart what it asked for.
    is_flipped : bool
        Whether the layer holds the transpose of that.
    """

    name: str
    stored: str
    spec: TensorSpec
    columns: slice | None
    is_flipped: bool

    @property
    def index(self) -> Any:
        """Which part of the tensor the array is."""
        return self.spec.index if self.columns is None else (..., self.columns)

    @property
    def part(self) -> Hashable:
        """The same for arrays of one part of the tensor, and another for each part; None for the whole."""
        if self.spec.rows is None and self.columns is None:
            return None
        rows: Any = self.spec.index if self.columns is None else self.columns
        return rows.tobytes() if isinstance(rows, np.ndarray) else (self.columns is None, rows.start, rows.stop)

    def as_stored(self, array: Any) -> Any:
        """Return the array in the layout of the tensor, of which it is the part `index`; offset not taken off."""
        array, shape = array.T if self.spec.transposed != self.is_flipped else array, self.spec.shape
        return array if array.ndim == len(shape) else array.reshape(-1, *shape[1:])

    def as_array(self, tensor: np.ndarray) -> np.ndarray:
        """Return from a tensor what the array has of it; offset not added."""
        array = tensor[self.index] if tensor.ndim else tensor
        array = array.T if self.spec.transposed else array
        array = array.reshape(self.spec.array_shape) if self.columns is None else array
        return array.T if self.is_flipped else array


class TensorPlaces:
    """The tensors of a checkpoint, of which a family makes a model without numbers, to see where each array stands.

    Parameters
    ----------
    source : Tensors, or mapping of str to array
    """

    def __init__(self, source: Tensors | Mapping[str, np.ndarray]) -> None:
        self._source = source
        shapes = {name: x.shape for name, x in source.items()} if isinstance(source, Mapping) else source.shapes
        self.shapes: Mapping[str, tuple[int, ...]] = shapes
        self.placed: dict[str, str] = {}  # names of tensors that were asked for, and what they are called in the file
        self._places: dict[int, tuple[np.ndarray, np.ndarray, str, TensorSpec]] = {}

    def place(self, name: str, stored: str, spec: TensorSpec) -> np.ndarray:
        """Return an array for the tensor `name` that is called `stored` in the file, with memory for one row alone."""
        shape = spec.array_shape
        row = np.zeros(max(1, math.prod(shape[-1:])), np.float16)
        array = np.ndarray(shape, np.float16, row, strides=(0,) * len(shape[:-1]) + (row.itemsize,) * len(shape[-1:]))
        self.placed[name] = stored
        self._places[id(row)] = row, array, name, spec
        return array

    def places(self, model: Any) -> dict[str, Place | None]:
        """Return where the arrays of a model stand that was made of these; None for one that is computed from them."""
        return {name: self._place_of(x) for name, x in parameters(model).items()}

    def _place_of(self, x: Any) -> Place | None:
        entry = self._places.get(id(getattr(x, "base", None)))
        if entry is None:
            return None
        row, array, name, spec = entry
        is_flipped = x.ndim == 2 and x.strides != array.strides
        view = x.T if is_flipped else x
        columns = None
        if view.shape != array.shape:
            start = (view.__array_interface__["data"][0] - row.__array_interface__["data"][0]) // row.itemsize
            columns = slice(start, start + view.shape[-1])
            if view.shape[:-1] != array.shape[:-1] or spec.transposed or spec.rows is not None or spec.offset:
                return None
        return Place(name, self.placed[name], spec, columns, is_flipped) if view.strides == array.strides else None

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor of the checkpoint."""
        return self._source[name]

    def quantized(self, name: str, rows: slice | np.ndarray = ALL_ROWS) -> tuple[np.ndarray, str] | None:
        """Return the blocks of a matrix, if it is stored in blocks."""
        return None if isinstance(self._source, Mapping) else self._source.quantized(name, rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._source)


class NewTensors:
    """The tensors of a model that is stored nowhere: each is made when a family asks for it.

    Parameters
    ----------
    make : function
        From a `TensorSpec` and the name of its array in the layers to a tensor of its shape.
    """

    def __init__(self, make: Callable[[TensorSpec, str], np.ndarray]) -> None:
        self._make = make
        self.arrays: dict[str, np.ndarray] = {}

    def create(self, expected: ExpectedTensors, prefix: str) -> None:
        """Make tensors, whose Hugging Face names have the prefix of a model that was saved with its head."""
        named = zip(expected.specs, expected.names(), strict=True)
        self.arrays |= {prefix + spec.hf_name: self._make(spec, name) for spec, name in named}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor so far."""
        return {name: x.shape for name, x in self.arrays.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor."""
        return self.arrays[name]

    def quantized(self, name: str, rows: slice | np.ndarray = ALL_ROWS) -> tuple[np.ndarray, str] | None:  # noqa: ARG002
        """Return None: none is stored in blocks."""
        return None

    def __len__(self) -> int:
        """Return more than any model has."""
        return sys.maxsize


def load_layers(
    checkpoint: Checkpoint,
    build: Callable[[TensorSource], Layers],
    *,
    num_layers: int,
    prefixes: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    renamed_suffixes: Mapping[str, str] | None = None,
    shared: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> Layers:
    """Return layers of the tensors of a checkpoint, in `dtype`; without a copy where stored in it.

    In float32, matrices that are stored in blocks or in half precision become a `regard.nn.QuantizedWeight`.

    Parameters
    ----------
    checkpoint
    build
        The code that builds the layers, or a dict of them, from a `TensorSource`. It is not run when there are fewer
        tensors than layers, and otherwise twice.
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
    if num_layers > len(tensors):  # before `build` makes each layer
        raise RegardError(f"{path} has {len(tensors)} tensors, too few for {num_layers} layers; fetch it again")
    prefix, stored_names = _match(
        path,
        tensors,
        ExpectedTensors(build),
        prefixes=prefixes,
        unused=unused,
        renamed_suffixes=renamed_suffixes or {},
        shared=shared or {},
    )

    def read(spec: TensorSpec) -> Any:
        name = prefix + spec.hf_name
        if isinstance(tensors, TensorPlaces):
            return tensors.place(name, stored_names[name], spec)
        return _read(tensors, stored_names[name], spec, np.dtype(dtype), name=name, path=path)

    return build(TensorSource(read))


def _match(
    path: Path,
    tensors: Tensors,
    expected: ExpectedTensors,
    *,
    prefixes: tuple[str, ...],
    unused: tuple[str, ...],
    renamed_suffixes: Mapping[str, str],
    shared: Mapping[str, str],
) -> tuple[str, dict[str, str]]:
    """Return the prefix of the names of tensors, and for each current name that in the file.

    An error if a tensor is missing, unexpected or of another shape.
    """
    if isinstance(tensors, NewTensors):
        tensors.create(expected, prefixes[-1])
    all_shapes = tensors.shapes
    stored_names = current_names(all_shapes, renamed_suffixes)
    for name, other in shared.items():
        if name not in stored_names and other in stored_names:
            stored_names[name] = stored_names[other]
    shapes = {name: all_shapes[stored] for name, stored in stored_names.items()}
    prefix = max(prefixes, key=lambda p: sum(p + spec.hf_name in shapes for spec in expected.specs))
    needed = {prefix + spec.hf_name: spec.shape for spec in expected.specs}  # one of each tensor
    problems = []
    if missing := [name for name in needed if name not in shapes]:
        problems.append(f"missing {join_names(missing, _MAX_NAMES)}")
    unexpected = [
        name
        for name, shape in shapes.items()
        if name not in needed and not name.removeprefix(prefix).startswith(unused) and not _is_constant(name, shape)
    ]
    if unexpected:
        problems.append(f"unexpected {join_names(map(short_name, unexpected), _MAX_NAMES)}")
    misshapen = [name for name in needed if name in shapes and tuple(shapes[name]) != needed[name]]
    problems += [
        f"{name} has shape {truncate(tuple(shapes[name]))}, the configuration requires {needed[name]}"
        for name in misshapen[:_MAX_NAMES]
    ]
    if problems:
        raise RegardError(f"the tensors of {path} do not fit its configuration: {'; '.join(problems)}")
    return prefix, stored_names


def _read(tensors: Tensors, stored: str, spec: TensorSpec, dtype: np.dtype[Any], *, name: str, path: Path) -> Any:
    """Return the array of the tensor `stored`, which is called `name` now."""
    quantized = tensors.quantized(stored, spec.index) if spec.transposed or spec.table else None
    if quantized is not None and dtype == np.float32:
        if not are_finite(*quantized):
            raise RegardError(f"{name} of {path} has numbers that are not finite; fetch it again")
        weight = QuantizedWeight(*quantized)
        return weight.T if spec.transposed else weight
    array, rows = as_finite(tensors[stored], dtype, name, path), spec.index
    array = array[rows] if array.ndim else array
    if spec.offset:
        array = array + array.dtype.type(spec.offset)
    widened = array.ndim == 1 and dtype == np.float32 and not is_mapped(array)  # such as a bias in half precision
    if widened or not isinstance(rows, slice):  # read-only, so that it can be packed as those of a file
        array = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    array = array.T if spec.transposed else array
    return array if array.shape == spec.array_shape else array.reshape(spec.array_shape)


def as_finite(tensor: np.ndarray, dtype: np.dtype[Any], name: str, path: Path) -> np.ndarray:
    """Return the tensor `name` of the checkpoint at `path` in a dtype; an error if it is not of finite numbers."""
    if tensor.dtype.kind != "f":
        raise RegardError(f"{name} of {path} is stored as {tensor.dtype}, not as floating-point numbers")
    with np.errstate(all="ignore"):
        array = tensor.astype(dtype, copy=False)
        if not np.isfinite(array.sum()) and not np.isfinite(array).all():  # the sum is fast, but may overflow
            raise RegardError(f"{name} of {path} has numbers that are not finite in {array.dtype}; fetch it again")
    return array


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
