"""A GGUF file as a checkpoint with the names and layouts of Hugging Face.

llama.cpp names things differently and stores some tensors in another layout: rotary weights with interleaved pairs,
norms of Gemma plus one, linear maps of GPT-2 transposed, those of all experts as one. All of that is undone here, so
that a family reads one kind of checkpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import short_name, truncate
from regard.formats.gguf import MAX_TENSORS, GgufFile
from regard.models.checkpoint.config import MAX_EXPERTS, ConfigReader
from regard.models.checkpoint.gguf_architectures import ARCHITECTURES
from regard.models.checkpoint.gguf_layout import ROPE_FREQS, Architecture, Conversion, Draft, Fields, transposed
from regard.models.checkpoint.tensors import ALL_ROWS
from regard.models.pooling import Pooling
from regard.models.sentence import SentenceSettings
from regard.text import SubwordTokenizer
from regard.text.gguf_tokenizer import special_id

_WITHOUT_ENDING = (".sinks", ".e_score_correction_bias", ".dt_bias")  # names of the checkpoint without .weight or .bias
_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}  # of llama.cpp; 4 ranks pairs of texts


class GgufCheckpoint:
    """The configuration, tensors and tokenizer in a GGUF file.

    An error if the file is malformed, a part of it is missing, or it holds an unsupported architecture.
    """

    def __init__(self, path: Path, ignore: Collection[str] = ()) -> None:
        self.path, self._ignore = path, ignore
        self._file = GgufFile(path)
        name = self._file.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            supported = ", ".join(sorted(ARCHITECTURES))
            raise RegardError(
                f"{path} holds a model of architecture {truncate(name)}; supported in GGUF: {supported}; "
                "regard.capture watches others where transformers runs them"
            )
        entry = ARCHITECTURES[name]
        self._name, self._architecture = name, entry if isinstance(entry, Architecture) else entry(self._file)

    def config(self) -> ConfigReader:
        """Return a new reader of the configuration, with the fields of a config.json."""
        keys = {name: f"{self._name}.{key}" for key, name in self._architecture.fields.items()}
        return ConfigReader(self._fields, self.path, self._ignore, keys=keys)

    def tensors(self) -> GgufTensors:
        """Return the tensors under their Hugging Face names."""
        return GgufTensors(self._file, self._architecture, self._fields)

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer that the metadata describes."""
        return SubwordTokenizer.from_gguf(self._file.metadata, self.path)

    def sentence_settings(self) -> SentenceSettings:
        """Return the pooling of an embedding model, whose vectors llama.cpp scales to length 1."""
        kind = self._file.metadata.get(f"{self._name}.pooling_type", 0)
        if type(kind) is int and kind == 0:
            return SentenceSettings()
        if type(kind) is not int or kind not in _POOLINGS:
            return SentenceSettings(
                problem=f"{self.path} has the pooling {truncate(kind)}, which makes no vectors of texts"
            )
        return SentenceSettings(pooling=Pooling((_POOLINGS[kind],)))

    @cached_property
    def _fields(self) -> Fields:
        """The configuration fields. An unknown key keeps its name, which the reader reports."""
        architecture, metadata, start = self._architecture, self._file.metadata, f"{self._name}."
        stored = {key.removeprefix(start): _as_json(x) for key, x in metadata.items() if key.startswith(start)}
        stored.pop("pooling_type", None)  # of `sentence_settings`
        fields = {name: stored.pop(key) for key, name in architecture.fields.items() if key in stored}
        fields = {"model_type": architecture.model_type, **architecture.constants, **fields}
        fields.setdefault("vocab_size", self._file.shapes.get("token_embd.weight", (0,))[0])
        fields["tie_word_embeddings"] = "output.weight" not in self._file
        fields |= _special_ids(metadata)
        for step in architecture.steps:
            step(Draft(fields, stored, self._file))
        return fields | {start + key: value for key, value in stored.items()}


@dataclass(frozen=True)
class _Source:
    """Where a tensor of the checkpoint stands in the file."""

    shape: tuple[int, ...]
    parts: tuple[str, ...]
    expert: int | None = None  # its place in the first axis, if the file has those of all experts as one
    convert: Conversion | None = None
    join: Callable[[Sequence[np.ndarray]], np.ndarray] | None = None
    of_rows: bool = False  # as in `Joined`


class GgufTensors:
    """The tensors of a GGUF file under their Hugging Face names, converted to float32 on access."""

    def __init__(self, file: GgufFile, architecture: Architecture, fields: Fields) -> None:
        self._file, self._architecture, self._fields = file, architecture, fields
        sources = list(self._joined())
        taken = {ROPE_FREQS, *(part for _, source in sources for part in source.parts)}
        for stored, shape in file.shapes.items():
            if stored not in taken:
                sources += self._sources_of(stored, shape)
            if len(sources) > MAX_TENSORS:
                raise RegardError(f"{file.path} has more than {MAX_TENSORS:,} tensors, with those of each expert")
        self._sources: dict[str, _Source] = {}
        for name, source in sources:
            if (other := self._sources.setdefault(name, source)) is not source:
                twice = " and as ".join(" with ".join(map(short_name, each.parts)) for each in (other, source))
                raise RegardError(f"{file.path} has {short_name(name)} twice: as {twice}")
        self._shapes = {name: source.shape for name, source in sources}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, from the header."""
        return MappingProxyType(self._shapes)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sources)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a tensor in the layout of the Hugging Face checkpoint."""
        source = self._sources[name]
        arrays = [self._file.read(part, source.expert) for part in source.parts]
        if source.join is not None:
            return source.join(arrays)
        return arrays[0] if source.convert is None else self._converted(source, arrays[0])

    def quantized(self, name: str, rows: slice | np.ndarray = ALL_ROWS) -> tuple[np.ndarray, str] | None:
        """Return the blocks of rows of a matrix and their kind; None where the layout of the checkpoint divides blocks.

        Or where the rows are of several tensors of the file.
        """
        source = self._sources.get(name)
        if source is None or source.convert is transposed or (source.join is not None and not source.of_rows):
            return None
        part, rows = self._rows_of(source, rows)
        blocks_and_kind = None if part is None else self._file.quantized(part, source.expert)
        if blocks_and_kind is None:
            return None
        blocks, kind = blocks_and_kind
        return (blocks if source.convert is None else self._converted(source, blocks))[rows], kind

    def _rows_of(self, source: _Source, rows: slice | np.ndarray) -> tuple[str | None, slice | np.ndarray]:
        """Return the tensor of the file that has some rows of another, and their numbers there; None for several."""
        if source.join is None:
            return source.parts[0], rows
        counts = [self._file.shapes[part][0] for part in source.parts]
        ranges = list(itertools.pairwise(itertools.accumulate(counts, initial=0)))
        stored = source.join([np.arange(*each) for each in ranges])[rows]
        for part, (start, stop) in zip(source.parts, ranges, strict=True):
            if len(stored) and start <= stored.min() and stored.max() < stop:
                first = int(stored[0] - start)
                is_run = bool((np.diff(stored) == 1).all())  # then a view of the file
                return part, slice(first, first + len(stored)) if is_run else stored - start
        return None, rows

    def _converted(self, source: _Source, array: np.ndarray) -> np.ndarray:
        assert source.convert is not None
        try:
            return source.convert(array, self._fields)
        except RegardError as error:
            raise RegardError(f"{short_name(source.parts[0])} of {self._file.path}: {error}") from error

    def _sources_of(self, stored: str, shape: tuple[int, ...]) -> list[tuple[str, _Source]]:
        """Return the tensors that a tensor of the file is, by name; one that does not fit keeps its own name."""
        number, inner = _inner(stored)
        name, _, ending = inner.rpartition(".")
        hf_name, convert = self._architecture.tensors.get(name), self._architecture.conversions.get(inner)
        if hf_name is None or ending not in ("weight", "bias"):
            return [(stored, _Source(shape, (stored,)))]  # which load_layers reports
        ending = "" if hf_name.endswith(_WITHOUT_ENDING) else f".{ending}"
        hf_name = ("" if number is None else self._architecture.layer) + hf_name + ending
        if "{x}" not in hf_name:
            shape = shape[::-1] if convert is transposed else shape
            return [(hf_name.format(i=number), _Source(shape, (stored,), convert=convert))]
        if len(shape) != 3 or shape[0] > MAX_EXPERTS:
            return [(stored, _Source(shape, (stored,)))]
        experts = range(shape[0])
        return [(hf_name.format(i=number, x=x), _Source(shape[1:], (stored,), expert=x)) for x in experts]

    def _joined(self) -> Iterator[tuple[str, _Source]]:
        """Yield the tensors that the file stores as several; those that do not fit are reported by load_layers."""
        shapes, firsts = self._file.shapes, {each.parts[0]: name for name, each in self._architecture.joined.items()}
        for stored in shapes:
            number, inner = _inner(stored)
            if number is None or inner not in firsts:
                continue
            joined = self._architecture.joined[firsts[inner]]
            parts = tuple(stored.removesuffix(inner) + part for part in joined.parts)
            shape = joined.shape([shapes[part] for part in parts]) if all(part in shapes for part in parts) else None
            if shape is not None:
                yield (
                    self._architecture.layer.format(i=number) + firsts[inner],
                    _Source(shape, parts, join=joined.join, of_rows=joined.of_rows),
                )


def _inner(stored: str) -> tuple[int | None, str]:
    """Return the index of the block that a name belongs to, if any, and the rest of the name: ``attn_q.weight``.

    A model with two stacks has names such as ``enc.blk.0.attn_q.weight``, of which the rest is ``enc.attn_q.weight``.
    """
    stack, blk, rest = stored.rpartition("blk.")
    number, _, rest = rest.partition(".")
    if (
        blk
        and stack in ("", "enc.", "dec.")
        and number.isascii()
        and number.isdigit()
        and str(int(number[:9])) == number
    ):
        return int(number), stack + rest
    return None, stored


def _as_json(value: Any) -> Any:
    """Return a value as in a config.json; a list of equal values, one for each block, becomes that value."""
    if isinstance(value, np.ndarray):
        same = value.size > 0 and bool((value == value[0]).all())
        return value[0].item() if same else value[:99].tolist()
    return value


def _special_ids(metadata: Mapping[str, Any]) -> Fields:
    """Return the ids that begin, end and pad a text. A turn of a chat may end with another token than a text."""
    ids = {}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if (value := special_id(metadata, key)) is not None:
            ids[name] = value
    ends = [special_id(metadata, key) for key in ("eos", "eot")]
    end_ids = list(dict.fromkeys(value for value in ends if isinstance(value, int)))
    if end_ids:
        ids["eos_token_id"] = end_ids if len(end_ids) > 1 else end_ids[0]
    return ids
