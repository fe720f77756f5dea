"""The GGUF models of a repository on the Hugging Face hub, or of a folder, told apart by the names of their files.

A name ends with its quantisation by convention (``tiny-Q4_K_M.gguf``,
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#gguf-naming-convention), but not always: it may also begin
with it, or have more after it. As on the hub, the last quantisation in a name counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from regard._utils.errors import RegardError
from regard._utils.validation import short_name
from regard.formats.gguf_parts import model_of, part_of, whole_name
from regard.models.hub.hub_name import HubName
from regard.text.words import join_names

_QUANTIZATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d|TQ\d|MXFP\d|NVFP\d|BF16|FP?16|FP?32)(?:_(?:\d{1,2}|[A-Z]{1,3}\d?)){0,4})(?=$|[-._])",
    re.ASCII | re.IGNORECASE,
)
_TYPEABLE = re.compile(r"[\w.-]{1,80}", re.ASCII)
_PREFERRED = ("Q4_K_M", "Q8_0")  # for an example
_MAX_LISTED = 40  # quantisations in a message; the largest repositories have some 30
# GGUF files that are not models, by their names, as llama.cpp and the naming convention have them.
_AUXILIARY = (
    (re.compile("mmproj", re.IGNORECASE), "the image part of a model"),
    (re.compile("imatrix", re.IGNORECASE), "statistics for quantisation"),
    (re.compile(r"^ggml-vocab|[-._]vocab$", re.IGNORECASE), "a vocabulary without weights"),
    (re.compile(r"[-._]lora$", re.IGNORECASE), "an adapter"),
    (re.compile(r"(?:^|[-._])(?:mtp|eagle3|dflash|dspark)-"), "a draft model for speculative decoding"),
)


@dataclass(frozen=True)
class GgufModel:
    """A model in one GGUF file, or split into several."""

    key: str  # after the colon of its name: its quantisation, or the name of its file if others have the same
    quantization: str | None  # as its name has it, in capitals
    files: tuple[str, ...]  # its path in the repository, or those of its parts that are there
    num_parts: int

    @property
    def stem(self) -> str:
        """The name of its file without the number of a part and without ``.gguf``."""
        return _stem(self.files[0])


def gguf_models(names: Iterable[str]) -> list[GgufModel]:
    """Return the models in the GGUF files of a repository or a folder; other files are left out."""
    groups: dict[tuple[str, int], list[str]] = {}
    for name in sorted(set(names)):
        if is_gguf_name(name) and what_it_is(name) is None:
            groups.setdefault(model_of(name), []).append(name)
    models = [
        GgufModel("", _quantization(_stem(files[0])), tuple(files), max(num_parts, 1))
        for (_, num_parts), files in groups.items()
    ]
    counts = Counter(each.quantization for each in models), Counter(each.stem for each in models)
    return [replace(each, key=_key(each, *counts)) for each in models]


def gguf_files(name: HubName, names: Collection[str]) -> tuple[str, ...]:
    """Return the GGUF files of the model that a name means; none if it has none and the name does not ask for one.

    Raises
    ------
    RegardError
        There are several models to choose from, none has the quantisation, or parts of the model are missing.
    """
    models = gguf_models(names)
    if name.quantization is not None:
        candidates = _named(name.quantization, models)
        if not candidates:
            there = f"choose from {_listed(models)}" if models else "it holds no GGUF model"
            kind = "file" if is_gguf_name(name.quantization) else "quantisation"
            raise RegardError(f"{name.repository} has no {kind} {short_name(name.quantization)}: {there}")
        if len(candidates) > 1:
            raise RegardError(
                f"{name.repository} has {len(candidates)} GGUF models that {short_name(name.quantization)} may mean: "
                f"choose from {_listed(candidates)}"
            )
    elif len(models) > 1:
        raise RegardError(
            f"{name} holds {len(models)} GGUF models: name the quantisation of one, as in {name}:{_example(models)}; "
            f"there are {_listed(models)}"
        )
    else:
        candidates = models
    if not candidates:
        return ()
    model = candidates[0]
    if len(model.files) < model.num_parts:
        raise RegardError(
            f"{name} has {len(model.files)} of the {model.num_parts} GGUF files into which it is split: choose another "
            "quantisation or revision"
        )
    return model.files


def is_gguf_name(name: str) -> bool:
    """Tell whether a file is GGUF, by its name."""
    return name.lower().endswith(".gguf")


def what_it_is(name: str) -> str | None:
    """Return what a GGUF file is, by its name, if not a model."""
    stem = _stem(name)
    return next((what for pattern, what in _AUXILIARY if pattern.search(stem)), None)


def what_instead(names: Iterable[str]) -> str:
    """Return what the GGUF files are that are not models."""
    others = {name: what_it_is(name) for name in sorted(names) if is_gguf_name(name)}
    return join_names((f"{short_name(name)} is {what}" for name, what in others.items() if what), most=3)


def _named(key: str, models: Sequence[GgufModel]) -> list[GgufModel]:
    """Return the models that a key means: the one with it, or else all of its quantisation or stem.

    One in parts is not meant if another is whole.
    """
    exact = [each for each in models if key == each.key or key in each.files]
    if exact:
        return exact
    standard = _standard(key)
    alike = [each for each in models if standard in (each.quantization, each.key.upper(), each.stem.upper())]
    return [each for each in alike if part_of(each.files[0]) is None] or alike


def _key(model: GgufModel, quantizations: Mapping[str | None, int], stems: Mapping[str, int]) -> str:
    """Return what is typed for a model: the first of its quantisation, its stem and its path that no other has.

    The mappings count the models with each.
    """
    if model.quantization is not None and quantizations[model.quantization] == 1:
        return model.quantization
    return model.stem if stems[model.stem] == 1 and _TYPEABLE.fullmatch(model.stem) else model.files[0]


def _stem(name: str) -> str:
    return PurePosixPath(whole_name(name)).stem


def _quantization(stem: str) -> str | None:
    matches = [_standard(match[1]) for match in _QUANTIZATION.finditer(stem)]
    return matches[-1] if matches else None


def _standard(quantization: str) -> str:
    """Return a quantisation as ggml spells it: Q4_K_M, F16."""
    return re.sub(r"\bFP(16|32)$", r"F\1", quantization.upper())


def _listed(models: Sequence[GgufModel]) -> str:
    return join_names((short_name(each.key) for each in models), most=_MAX_LISTED)


def _example(models: Sequence[GgufModel]) -> str:
    keys = [each.key for each in models]
    return short_name(next((each for each in _PREFERRED if each in keys), min(keys)))
