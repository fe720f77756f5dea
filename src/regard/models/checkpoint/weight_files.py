"""What a folder or a repository holds that has no weights in a form that regard reads, by the names of its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import short_name, truncate
from regard.text.words import join_names

INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
_ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin")
_SHOWN = 3  # names of files in a message
_PICKLE = re.compile(r".*\.(?:bin|pt|pth|ckpt)|pytorch_model\.bin\.index\.json")
# Files that end as pickles of weights do: what a trainer writes beside them, and formats of other programs.
_NOT_WEIGHTS = re.compile(
    r"(?:training_args|optimizer|scheduler|scaler|rng_state|random_states|openvino|ggml).*|.*optim_states.*"
)
_SHARD = re.compile(r"[\w-][\w. -]{0,200}\.safetensors", re.ASCII)  # a plain name: no folder, not hidden
_AUTHORS = re.compile(r"consolidated.*\.(?:safetensors|pth|pt)")  # of Mistral, and of Meta
_VARIANT = re.compile(
    r"model(?:-\d{5}-of-\d{5})?\.([A-Za-z]\w*)(?:-\d{5}-of-\d{5})?\.safetensors"
    r"|model\.safetensors\.index\.(\w+)\.json",
    re.ASCII,
)
_SAVED = "save both with save_pretrained(NEW_FOLDER), and give that folder"


def is_shard(name: str) -> bool:
    """Tell whether the index may name a file so: it is a safetensors file in the same folder."""
    return _SHARD.fullmatch(name) is not None


def weight_map(path: Path, index: Mapping[str, object]) -> dict[str, str]:
    """Return the file of each tensor; an error if the index at `path` has none, or names what is no such file."""
    file_of = index.get("weight_map")
    if not isinstance(file_of, dict) or not file_of or not all(isinstance(name, str) for name in file_of.values()):
        raise RegardError(f"{path} must have a weight_map from each tensor to its file; fetch the file again")
    if invalid := [name for name in dict.fromkeys(file_of.values()) if not is_shard(name)]:
        raise RegardError(f"{path} names {join_names(map(truncate, invalid))}: not a safetensors file in its folder")
    return file_of


def is_pickle(path: str) -> bool:
    """Tell whether a file, by its name, is a pickle with weights."""
    name = path.rpartition("/")[2]
    return _PICKLE.fullmatch(name) is not None and _NOT_WEIGHTS.fullmatch(name) is None


def is_adapter(names: Collection[str]) -> bool:
    """Tell whether files are those of an adapter, such as a LoRA, and not of a whole model."""
    return any(name in names for name in _ADAPTERS)


def why_no_weights(source: object, names: Collection[str], local: Callable[[str], Path]) -> str | None:
    """Return what a source without weights that regard reads has in their place, and what to do; None for nothing.

    Parameters
    ----------
    source
        The name of a repository, or a folder.
    names
        Of its files.
    local
        Returns where one of them is on this machine. The configuration of an adapter is read.
    """
    if is_adapter(names):
        return (
            f"{source} is an adapter{_base(names, local)}, not a whole model: load its base model, then "
            "model.with_adapter(its folder)"
        )
    if variants := {name: match for name in sorted(names) if (match := _VARIANT.fullmatch(name))}:
        variant = next(iter(variants.values()))
        return (
            f"{source} has a variant of its weights alone ({_listed(variants)}): load the model and its tokenizer with "
            f"transformers, as variant={truncate(variant[1] or variant[2])}, {_SAVED}"
        )
    if files := [name for name in names if _AUTHORS.fullmatch(name.rpartition("/")[2])]:
        return (
            f"{source} has its weights in the layout of their authors ({_listed(files)}), not in that of transformers: "
            "choose a model with model.safetensors"
        )
    if files := [name for name in names if is_pickle(name)]:
        return (
            f"the weights of {source} are pickles ({_listed(files)}), which can run any code when they are read: "
            f"where you trust them, load the model and its tokenizer with transformers, {_SAVED}"
        )
    if files := [name for name in names if name.endswith(".safetensors")]:
        return (
            f"{source} has its weights in {_listed(files)}, and regard reads model.safetensors, or the shards that "
            "model.safetensors.index.json lists: choose a model that has these"
        )
    return None


def _base(names: Collection[str], local: Callable[[str], Path]) -> str:
    """Return of which model an adapter is one, if its configuration is there and says it."""
    try:
        fields: dict[str, Any] = (read_json_object(local(ADAPTER)) if ADAPTER in names else None) or {}
    except (FileNotFoundError, RegardError):
        return ""
    base = fields.get("base_model_name_or_path")
    return f" of {short_name(base)}" if isinstance(base, str) and base else ""


def _listed(names: Collection[str]) -> str:
    return join_names((short_name(name) for name in sorted(names)), most=_SHOWN)
