"""What is computed of the rows of a partition. A job is one frozen dataclass here: its fields are its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from regard.dask.model_spec import ModelSpec, load_model
from regard.models.base import TextModel
from regard.text.encoding import Encoding


class Job(Protocol):
    """Columns of a table from the texts of some rows."""

    name: ClassVar[str]
    truncate: bool

    @property
    def options(self) -> dict[str, Any]:
        """What decides the result."""

    def check(self, spec: ModelSpec) -> None:
        """Raise `RegardError` if the model cannot do it."""

    def columns(
        self, model: TextModel, encodings: Mapping[int, Encoding], rows: int, label: Callable[[int], str]
    ) -> dict[str, Any]:
        """Return arrow arrays of `rows` values, null in rows that are not among `encodings`."""


@dataclass(frozen=True)
class EmbedJob:
    """One vector for each row."""

    truncate: bool = False
    pooling: str | None = None
    batch_size: int = 32

    name: ClassVar[str] = "embed"

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bits of the vectors: not the size of a batch."""
        return {"truncate": self.truncate, "pooling": self.pooling}

    def check(self, spec: ModelSpec) -> None:
        """Raise `RegardError` if the model has no pooling and none is given."""
        embedding_width(load_model(spec), self.pooling)

    def columns(
        self, model: TextModel, encodings: Mapping[int, Encoding], rows: int, label: Callable[[int], str]
    ) -> dict[str, Any]:
        """Return the column ``vector``."""
        indices = list(encodings)
        vectors = np.zeros((0, embedding_width(model, self.pooling)), np.float32)
        if indices:
            vectors = model.embed(
                list(encodings.values()),
                batch_size=self.batch_size,
                pooling=self.pooling,
                label=lambda i: label(indices[i]),
            )
        return {"vector": fixed_lists(vectors, indices, rows)}


def embedding_width(model: TextModel, pooling: str | None) -> int:
    """Return the number of features of a vector; an error if the model has no pooling and none is given."""
    return int(model.embed([_SHORT], pooling=pooling, truncate=True).shape[1])


_SHORT = "a"  # a text that every vocabulary has


def fixed_lists(values: np.ndarray, indices: Sequence[int], rows: int) -> Any:
    """Return an arrow array of `rows` lists: `values`, ``N E``, at `indices`, null elsewhere."""
    import pyarrow

    mask = np.ones(rows, bool)
    mask[list(indices)] = False
    whole = np.zeros((rows, values.shape[1]), values.dtype)
    whole[list(indices)] = values
    flat = pyarrow.array(whole.reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, whole.shape[1], mask=pyarrow.array(mask))


def identity(job: Job) -> dict[str, Any]:
    """Return the name and options of a job."""
    return {"job": job.name, **job.options}
