"""A checkpoint on disk, in any format: configuration, tensors and tokenizer under their Hugging Face names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from regard._utils.errors import RegardError
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.gguf import GgufCheckpoint
from regard.models.checkpoint.safetensors import open_safetensors
from regard.models.checkpoint.tensors import Tensors
from regard.models.checkpoint.weight_files import is_adapter, why_no_weights
from regard.models.hub.hub_gguf import gguf_models, what_instead
from regard.models.sentence import SentenceSettings, read_sentence_settings, transformer_folder
from regard.text import SubwordTokenizer
from regard.text.id_tokenizer import IdTokenizer
from regard.text.subword_tokenizer import NoTokenizer
from regard.text.words import join_names


class FolderCheckpoint:
    """A folder with config.json, model.safetensors (or its shards) and tokenizer.json (or vocab.txt).

    For a sentence model it may hold the folder with these.
    """

    def __init__(self, folder: Path, ignore: Collection[str] = ()) -> None:
        self.path, self._ignore, self.outer = transformer_folder(folder), ignore, folder
        self.ignored: list[str] = []  # fields of config.json that change nothing, in the order in which they are found
        self.registered_type: str | None = None  # for which a family outside regard is registered

    def config(self) -> ConfigReader:
        """Return a new reader of config.json."""
        return ConfigReader.open(self.path / "config.json", self._ignore, self.registered_type, self.ignored)

    def tensors(self) -> Tensors:
        """Return the tensors, memory-mapped."""
        return open_safetensors(self.path)

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer of the folder."""
        return SubwordTokenizer.from_folder(self.path)

    def sentence_settings(self) -> SentenceSettings:
        """Return how it embeds texts."""
        return read_sentence_settings(self.outer)


Checkpoint: TypeAlias = FolderCheckpoint | GgufCheckpoint
"""A pretrained model on disk."""


def open_checkpoint(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Return the checkpoint at `path`: a GGUF file, a folder with one GGUF model and no config.json, or a folder.

    For the folder of a training run it is the last step. Its configuration may have the unknown fields `ignore`.

    An error if a GGUF file is malformed, or if the folder has several models.
    """
    if not path.is_dir():
        return GgufCheckpoint(path, ignore)
    names = [] if (path / "config.json").exists() else sorted(each.name for each in path.glob("*"))
    models = [each.files[0] for each in gguf_models(names)]
    if len(models) > 1:
        raise RegardError(f"{path} holds {len(models)} GGUF models; give one of {join_names(models)}")
    if models:
        return GgufCheckpoint(path / models[0], ignore)
    step = _last_step(path)
    if step is None and names and "modules.json" not in names:
        if is_adapter(names):
            raise RegardError(why_no_weights(path, names, path.joinpath))
        if others := what_instead(names):
            raise RegardError(f"{path} has no weights that regard reads: {others}; choose another model, or its file")
    return FolderCheckpoint(step or path, ignore)


def _last_step(folder: Path) -> Path | None:
    """Return the last checkpoint of the folder of a training run; None for another folder."""
    if (folder / "config.json").exists():
        return None
    steps = [path for path in folder.glob("step-*") if path.name[5:].isdecimal() and (path / "config.json").is_file()]
    return max(steps, key=lambda path: int(path.name[5:]), default=None)


def tokenizer_for(checkpoint: Checkpoint, vocab_size: int) -> SubwordTokenizer:
    """Return the tokenizer of a checkpoint whose embeddings have `vocab_size` rows; that of ids where it has none.

    Special tokens may lie beyond these rows, because text yields one only if it contains it literally: BART's
    summariser has a mask token without an embedding. One for padding, which text needs none of, is then not used. An
    ordinary token beyond them is an error.
    """
    try:
        tokenizer = checkpoint.tokenizer()
    except NoTokenizer as error:
        return IdTokenizer.of_size(vocab_size, str(error))
    has_more = tokenizer.vocab_size > vocab_size
    if has_more and not tokenizer.special_ids.issuperset(i for i in tokenizer.token_ids.tolist() if i >= vocab_size):
        raise RegardError(
            f"the tokenizer of {checkpoint.path} has {tokenizer.vocab_size} tokens, but its embeddings have "
            f"{vocab_size} rows; use the tokenizer that belongs to the model"
        )
    if tokenizer.pad_id is not None and tokenizer.pad_id >= vocab_size:
        return replace(tokenizer, pad_id=None)
    return tokenizer
