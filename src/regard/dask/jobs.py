"""What is computed of the rows of a partition. A job is one frozen dataclass here: its fields are its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard.dask.model_spec import ModelSpec, load_model
from regard.dask.rows import Reader
from regard.metrics import METRICS, Attribution, attribute, head_metrics
from regard.metrics.attribution_target import Score, compares_texts
from regard.metrics.running_sums import RunningMean, Sums
from regard.models.base import TextModel
from regard.models.sentence import sentence_reader
from regard.text.encoding import Encoding


@dataclass(frozen=True)
class Rows:
    """Rows of a corpus: their places, the tokens of those that are texts, by index, and the errors of the others."""

    files: Sequence[str]
    numbers: Sequence[int]  # in their files, from 1
    encodings: Mapping[int, Encoding]
    errors: Sequence[str | None]

    def label(self, index: int) -> str:
        """Return the place of a row in words."""
        return f"{self.files[index]} row {self.numbers[index]}"


class Job(Protocol):
    """A table from the texts of some rows."""

    name: ClassVar[str]

    @property
    def truncate(self) -> bool:
        """Whether texts are truncated that are too long."""

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bits of the result: not the size of a batch."""

    def reader(self, model: TextModel) -> Reader:
        """Return what makes tokens of the texts."""

    def check(self, spec: ModelSpec) -> None:
        """Raise `RegardError` if the model cannot do it."""

    def table(self, model: TextModel, rows: Rows) -> Any:
        """Return the table of arrow that is written."""


@dataclass(frozen=True)
class EmbedJob:
    """One vector for each row."""

    truncate: bool = False
    pooling: str | None = None
    max_length: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    batch_size: int = 32

    name: ClassVar[str] = "embed"

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bits of the vectors."""
        return {name: value for name, value in asdict(self).items() if name != "batch_size"}

    def reader(self, model: TextModel) -> Reader:
        """Return what makes tokens of the texts as the model embeds them."""
        return sentence_reader(model, self.max_length, self.prompt, self.prompt_name)

    def check(self, spec: ModelSpec) -> None:
        """Raise `RegardError` if the model has no pooling and none is given, or not what else is asked for."""
        model = load_model(spec)
        self.reader(model)
        embedding_width(model, self.pooling)

    def table(self, model: TextModel, rows: Rows) -> Any:
        """Return the columns file, row, vector and error."""
        import pyarrow

        return pyarrow.table(
            {
                "file": pyarrow.array(rows.files, pyarrow.string()),
                "row": pyarrow.array(rows.numbers, pyarrow.int64()),
                "vector": self.vectors(model, rows.encodings, len(rows.files), rows.label),
                "error": pyarrow.array(rows.errors, pyarrow.string()),
            }
        )

    def vectors(
        self, model: TextModel, encodings: Mapping[int, Encoding], count: int, label: Callable[[int], str]
    ) -> Any:
        """Return an arrow array of `count` vectors, null in rows that are not among `encodings`."""
        indices = list(encodings)
        if indices:
            options = asdict(self) | {"truncate": False}  # which `encodings` are already
            vectors = model.embed(list(encodings.values()), **options, label=lambda i: label(indices[i]))
        else:
            vectors = np.zeros((0, embedding_width(model, self.pooling)), np.float32)
        return fixed_lists(vectors, indices, count)


@dataclass(frozen=True)
class HeadsJob:
    """Sums of the metrics of every head over the texts."""

    truncate: bool = False
    batch_size: int = 32

    name: ClassVar[str] = "heads"

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bits of the sums."""
        return {"truncate": self.truncate}

    def reader(self, model: TextModel) -> Reader:
        """Return the model."""
        return model

    def check(self, spec: ModelSpec) -> None:
        """Do nothing: every model of texts has heads."""

    def table(self, model: TextModel, rows: Rows) -> Any:
        """Return a row for each head; of each metric how many texts have it, their sum and that of the squares."""
        return table_of_sums(self.sums(model, rows.encodings))

    def sums(self, model: TextModel, encodings: Mapping[int, Encoding]) -> Sums:
        """Return the sums over texts, of which there may be none."""
        sums = Sums()
        traces = model.iter_traces(list(encodings.values()), only="*attn.weights", batch_size=self.batch_size)
        for _, trace in traces:
            sums = sums.add(head_metrics(trace))
        return sums


@dataclass(frozen=True)
class AttributeJob:
    """A row for each token: what it contributed to a number, `regard.metrics.attribute` of each text."""

    to: str | int
    versus: str | int | None = None
    method: str | None = None
    score: Score | None = None
    baseline: Literal["zero", "pad", "mask"] | None = None
    steps: int | None = None
    truncate: bool = False

    name: ClassVar[str] = "attribute"
    sampled_tokens: ClassVar[int] = 1 << 9  # which take as long as many more of the other jobs
    columns: ClassVar[tuple[str, ...]] = ("position", "token", "score", "attended", "value", "baseline_value", "error")

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bits of the contributions."""
        return asdict(self)

    def reader(self, model: TextModel) -> Reader:
        """Return the model, or what makes tokens of the texts as it embeds them, where they are compared with one."""
        return sentence_reader(model) if compares_texts(model, self.to) else model

    def check(self, spec: ModelSpec) -> None:
        """Raise `RegardError` if the model has no such number or method, by a short text."""
        self._attribution(load_model(spec), _SHORT if self.to != _SHORT else _OTHER)

    def table(self, model: TextModel, rows: Rows) -> Any:
        """Return the columns file and row, and those of `contributions`."""
        places, columns = self.contributions(model, rows.encodings, rows.errors)
        import pyarrow

        files, numbers = pyarrow.array(rows.files, pyarrow.string()), pyarrow.array(rows.numbers, pyarrow.int64())
        return pyarrow.table({"file": files.take(places), "row": numbers.take(places), **columns})

    def contributions(
        self, model: TextModel, encodings: Mapping[int, Encoding], errors: Sequence[str | None]
    ) -> tuple[Any, dict[str, Any]]:
        """Return arrow arrays with an entry for each token, or for the error of a text: its index, and the columns."""
        import pyarrow

        types = (pyarrow.int64(), pyarrow.string(), *([pyarrow.float64()] * 4), pyarrow.string())
        parts: dict[str, list[Any]] = {name: [] for name in self.columns}
        places: list[int] = []
        for index, reason in enumerate(errors):
            columns = self._row_columns(model, encodings[index]) if reason is None else _error_columns(reason)
            count = len(columns["error"])
            places += [index] * count
            for name, kind in zip(self.columns, types, strict=True):
                parts[name].append(pyarrow.array(columns.get(name, [None] * count), kind))
        arrays = {
            name: pyarrow.chunked_array(chunks, kind).combine_chunks()
            for (name, chunks), kind in zip(parts.items(), types, strict=True)
        }
        return pyarrow.array(places, pyarrow.int64()), arrays

    def _row_columns(self, model: TextModel, encoding: Encoding) -> dict[str, Any]:
        try:
            attribution = self._attribution(model, encoding)
        except RegardError as error:  # of this text: it is the one to compare with, or too long for the memory
            return _error_columns(str(error))
        count = len(attribution.scores)
        columns = {name: column.tolist() for name, column in attribution.to_columns().items()}
        return columns | {
            "value": [attribution.value] * count,
            "baseline_value": [attribution.baseline_value] * count,
            "error": [None] * count,
        }

    def _attribution(self, model: TextModel, text: str | Encoding) -> Attribution:
        options = {name: value for name, value in asdict(self).items() if name != "truncate"}
        return attribute(model, text, **options)


def _error_columns(reason: str) -> dict[str, Any]:
    return {"error": [reason]}


def table_of_sums(sums: Sums) -> Any:
    """Return sums as a table of arrow, which `sums_of_table` reads."""
    import pyarrow

    heads = next(iter(sums.means.values())).count.shape[1] if sums.done else 0
    columns = {
        "layer": pyarrow.array([name for name in sums.layers for _ in range(heads)], pyarrow.string()),
        "head": pyarrow.array([head for _ in sums.layers for head in range(heads)], pyarrow.int64()),
        "texts": pyarrow.array([sums.done] * (len(sums.layers) * heads), pyarrow.int64()),
    }
    for name, each in sums.means.items():
        columns[f"{name}_count"] = pyarrow.array(each.count.reshape(-1)[: len(columns["head"])])
        for kind, limbs in (("total", each.total), ("squares", each.squares)):
            flat = limbs.reshape(-1, limbs.shape[-1])[: len(columns["head"])]
            columns[f"{name}_{kind}"] = fixed_lists(flat, range(len(flat)), len(flat))
    return pyarrow.table(columns)


def sums_of_table(table: Any) -> Sums:
    """Return the sums in a table of `table_of_sums`."""
    if not len(table):
        return Sums()
    layers = tuple(dict.fromkeys(table["layer"].to_pylist()))
    shape = (len(layers), len(table) // len(layers))

    def array(name: str, *last: int) -> np.ndarray:
        return np.array(table[name].to_pylist(), np.int64).reshape(*shape, *last)

    means = {
        name: RunningMean(array(f"{name}_count"), array(f"{name}_total", 3), array(f"{name}_squares", 3))
        for name in METRICS
    }
    return Sums(int(table["texts"][0].as_py()), layers, means)


def embedding_width(model: TextModel, pooling: str | None) -> int:
    """Return the number of features of a vector; an error if the model has no pooling and none is given."""
    return int(model.embed([_SHORT], pooling=pooling, truncate=True).shape[1])


_SHORT, _OTHER = "a", "b"  # texts that every vocabulary has


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
