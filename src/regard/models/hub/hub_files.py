"""Which files of a repository on the Hugging Face hub a model is read from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard.models.checkpoint.safetensors import INDEX, is_pickle, is_shard
from regard.models.hub.hub_name import HubName
from regard.models.sentence import SETTINGS_FILES
from regard.text.tokenizer_config import CHAT_TEMPLATES
from regard.text.words import join_names

WEIGHTS = "model.safetensors"
MODULES = "modules.json"
NAMES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
    MODULES,
    *SETTINGS_FILES,
    "config_sentence_transformers.json",
)
"""The files beside the weights that are read: a model's folder, or one of a sentence model's modules, has some."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANTIZATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|BF16|F16|F32))$", re.ASCII | re.IGNORECASE
)
_PROJECTOR = "mmproj"  # how the name of the image part of a model begins


def needed_files(name: HubName, names: Iterable[str], local: Callable[[str], Path]) -> list[str]:
    """Return the files to read of those that a repository has, or its index names, weights last.

    Parameters
    ----------
    name
        With a quantisation, the GGUF file of it alone is needed.
    names
        Of all files in the repository.
    local
        Returns where one of them is on this machine. The index of shards and the list of a sentence model's modules
        are read.

    Raises
    ------
    RegardError
        There are no such weights, only pickles, or several GGUF files to choose from.
    """
    listed = {each for each in names if _is_inside(each)}
    folders = [] if name.quantization else ["", *_module_folders(listed, local)]
    weights = [each for folder in folders for each in _weights(folder, listed, local)]
    if not weights:
        return [_gguf_file(name, listed)]
    found = [folder + each for folder in folders for each in NAMES if folder + each in listed]
    found += sorted(each for each in listed if re.fullmatch(rf"{CHAT_TEMPLATES}/[^/]+\.jinja", each))
    return [*dict.fromkeys([*found, *weights])]


def quantizations(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the GGUF files of a repository by quantisation; several if it is split into parts."""
    found: dict[str, list[str]] = {}
    for each in sorted(names):
        path = Path(each)
        if path.suffix.lower() == ".gguf" and not path.name.lower().startswith(_PROJECTOR):
            stem = _PART.sub("", path.stem)
            match = _QUANTIZATION.search(stem)
            found.setdefault(match[1] if match else stem, []).append(each)
    return found


def _gguf_file(name: HubName, names: Collection[str]) -> str:
    """Return the GGUF file that is meant; an error if there is none, or several, or it is split into parts."""
    found = quantizations(names)
    listed = join_names(found, most=len(found))
    if name.quantization is not None:
        wanted = name.quantization.lower()
        files = next((files for key, files in found.items() if key.lower() == wanted), [])
        if not files:
            there = f"choose from {listed}" if found else "it holds no GGUF file"
            raise RegardError(f"{name.repository} has no quantisation {name.quantization}: {there}")
    elif len(found) > 1:
        raise RegardError(
            f"{name} holds {len(found)} GGUF files: name the quantisation of one, as in {name}:{_preferred(found)}; "
            f"there are {listed}"
        )
    else:
        files = next(iter(found.values()), [])
    if not files:
        raise _no_weights(name, names)
    if len(files) > 1:
        raise RegardError(
            f"{name} is split into {len(files)} GGUF files, of which regard reads none alone: choose another "
            "quantisation, or join them with `llama-gguf-split --merge` and give the file"
        )
    return files[0]


def _preferred(found: Collection[str]) -> str:
    return next((each for each in ("Q4_K_M", "q4_k_m", "Q8_0", "q8_0") if each in found), min(found))


def _module_folders(names: Collection[str], local: Callable[[str], Path]) -> Iterator[str]:
    """Yield the folders of a sentence model's modules, with a slash; another file is not reported here."""
    if MODULES not in names:
        if "1_Pooling/config.json" in names:
            yield "1_Pooling/"
        return
    try:
        modules = json.loads((read_file(local(MODULES)) or b"[]").decode())
        paths = [module["path"] for module in modules]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    for path in paths:
        if isinstance(path, str) and path and _is_inside(path) and "/" not in path:
            yield f"{path}/"


def _weights(folder: str, names: Collection[str], local: Callable[[str], Path]) -> Iterator[str]:
    """Yield the files with the tensors of a folder: one, or the index and its shards."""
    if folder + WEIGHTS in names:
        yield folder + WEIGHTS
    elif folder + INDEX in names:
        yield folder + INDEX
        shards = (read_json_object(local(folder + INDEX)) or {}).get("weight_map")
        files = {str(each) for each in shards.values()} if isinstance(shards, dict) else set()
        yield from (folder + each for each in sorted(files) if is_shard(each))


def _no_weights(name: HubName, names: Collection[str]) -> RegardError:
    if pickles := sorted(each for each in names if is_pickle(each)):
        return RegardError(
            f"{name} holds its weights as a pickle alone ({join_names(pickles)}), which can run any code when it is "
            "read: convert it where you trust it, with transformers' "
            f'AutoModel.from_pretrained("{name}").save_pretrained(NEW_FOLDER), and give that folder'
        )
    return RegardError(f"{name} holds neither safetensors nor GGUF, which are what regard reads: choose another model")


def _is_inside(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/")) and not re.search(r"[\\:\0]", name)
