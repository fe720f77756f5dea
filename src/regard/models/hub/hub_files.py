"""Which files of a repository on the Hugging Face hub a model is read from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard.models.checkpoint.weight_files import INDEX, weight_map, why_no_weights
from regard.models.hub.hub_gguf import gguf_files, what_instead
from regard.models.hub.hub_name import HubName
from regard.models.sentence import SETTINGS_FILES
from regard.text.tokenizer_config import CHAT_TEMPLATES

WEIGHTS = "model.safetensors"
MODULES = "modules.json"
SENTENCE_TEXTS = "config_sentence_transformers.json"
TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")
NAMES = (
    "config.json",
    MODULES,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
    *SETTINGS_FILES,
    SENTENCE_TEXTS,
    *TOKENIZER,
)
"""The files beside the weights that are read: a model's folder, or one of a sentence model's modules, has some."""


def needed_files(name: HubName, names: Iterable[str], local: Callable[[str], Path]) -> list[str]:
    """Return the files to read of those that a repository has, or its index names: tokenizer and weights last.

    Parameters
    ----------
    name
        With a quantisation, the GGUF file of it alone is needed, or its parts.
    names
        Of all files in the repository.
    local
        Returns where one of them is on this machine. The index of shards, the list of a sentence model's modules and
        the configuration of an adapter are read.

    Raises
    ------
    RegardError
        There are no such weights, in which case it says what there is, or several GGUF files to choose from.
    """
    listed = {each for each in names if _is_inside(each)}
    folders = [] if name.quantization else module_folders(listed, local)
    if not folders or not any(_weights(folders[0], listed, local)):
        if not (gguf := gguf_files(name, listed)):
            raise _no_weights(name, listed, local)
        return list(gguf)
    files = [folder + each for folder in ["", *folders] for each in NAMES if folder + each in listed]
    files += sorted(each for each in listed if re.fullmatch(rf"{CHAT_TEMPLATES}/[^/]+\.jinja", each))
    files += [each for folder in folders for each in _weights(folder, listed, local)]
    return sorted(dict.fromkeys(files), key=lambda each: not is_configuration(each))


def is_configuration(name: str) -> bool:
    """Tell whether one of the files to read is small, and what it says may refuse the model."""
    return name.endswith((".json", ".jinja")) and name.rpartition("/")[2] not in TOKENIZER


def module_folders(names: Collection[str], local: Callable[[str], Path]) -> list[str]:
    """Return the folder of each module of a sentence model, with a slash; "" alone for another model.

    The first is that of the Transformer. What is wrong with the list is not reported here.
    """
    if MODULES not in names:
        return ["", *(["1_Pooling/"] if "1_Pooling/config.json" in names else [])]
    try:
        modules = json.loads((read_file(local(MODULES)) or b"[]").decode())
        paths = [module["path"] for module in modules]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [""]
    folders = [f"{path}/" if isinstance(path, str) and "/" not in path and _is_inside(path) else "" for path in paths]
    return [*folders[:1], *filter(None, folders[1:])] or [""]


def _weights(folder: str, names: Collection[str], local: Callable[[str], Path]) -> Iterator[str]:
    """Yield the files with the tensors of a folder: one, or the index and its shards."""
    if folder + WEIGHTS in names:
        yield folder + WEIGHTS
    elif folder + INDEX in names:
        yield folder + INDEX
        path = local(folder + INDEX)
        shards = weight_map(path, read_json_object(path) or {})
        yield from (folder + each for each in sorted(set(shards.values())))


def _no_weights(name: HubName, names: Collection[str], local: Callable[[str], Path]) -> RegardError:
    if reason := why_no_weights(name, names, local):
        return RegardError(reason)
    if others := what_instead(names):
        return RegardError(f"{name} has no weights that regard reads: {others}; choose another model")
    return RegardError(f"{name} has no weights that regard reads, safetensors or GGUF: choose another model")


def _is_inside(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/")) and not re.search(r"[\\:\0]", name)
