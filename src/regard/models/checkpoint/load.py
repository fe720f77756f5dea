"""What a model is built from, whatever the format of its files: a configuration, tensors and a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard._utils.errors import RegardError
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.gguf import GgufCheckpoint
from regard.models.checkpoint.tensors import Tensor, Tensors, map_tensors, open_weights
from regard.text import SubwordTokenizer
from regard.text.words import join_names


class Checkpoint(Protocol):
    """A pretrained model on the disk, under the names of Hugging Face checkpoints."""

    @property
    def path(self) -> Path:
        """The folder or file, for messages."""

    def config(self) -> ConfigReader:
        """Return a fresh reader of the fields of its configuration, as a config.json has them."""

    def tensors(self) -> Tensors:
        """Return its tensors."""

    def tokenizer(self) -> SubwordTokenizer:
        """Return its tokenizer."""


class FolderCheckpoint:
    """A folder with config.json, model.safetensors (or its parts) and tokenizer.json (or vocab.txt)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def config(self) -> ConfigReader:
        """Return a fresh reader of config.json."""
        return ConfigReader.open(self.path / "config.json")

    def tensors(self) -> Tensors:
        """Return the tensors, memory-mapped."""
        return open_weights(self.path)

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer that lies beside the weights."""
        return SubwordTokenizer.from_folder(self.path)


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`: a GGUF file, a folder that holds one and nothing else of a model, or a folder.

    Raises
    ------
    RegardError
        A GGUF file is not sound, or there are several.
    """
    if not path.is_dir():
        return GgufCheckpoint(path)
    files = [] if (path / "config.json").exists() else sorted(path.glob("*.gguf"))
    if len(files) > 1:
        raise RegardError(
            f"{path} holds {len(files)} GGUF files; give one of them: {join_names(f.name for f in files)}"
        )
    return GgufCheckpoint(files[0]) if files else FolderCheckpoint(path)


def take(
    checkpoint: Checkpoint,
    wanted: Iterable[Tensor],
    *,
    num_layers: int,
    prefixes: tuple[str, ...] = ("",),
    unused: tuple[str, ...] = (),
    endings: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Return the wanted tensors of a checkpoint by our names; the rest is as `map_tensors` says.

    Raises
    ------
    RegardError
        There are fewer tensors than layers, or one of the reasons of `map_tensors`.
    """
    tensors = checkpoint.tensors()
    if num_layers > len(tensors):  # told before a tensor is listed for each of them
        raise RegardError(
            f"{checkpoint.path} has {len(tensors)} tensors, too few for {num_layers} layers; fetch it again"
        )
    return map_tensors(
        tensors,
        wanted,
        prefixes=prefixes,
        unused=unused,
        endings=endings,
        dtype=dtype,
        path=checkpoint.path,
    )


def tokenizer_for(checkpoint: Checkpoint, vocab_size: int) -> SubwordTokenizer:
    """Return the tokenizer of a checkpoint whose embeddings have `vocab_size` rows.

    Special tokens may lie beyond them, for no text becomes one unless it spells it out: that of BART's summariser has a
    mask which the model was never given.

    Raises
    ------
    RegardError
        It has other tokens beyond them.
    """
    tokenizer = checkpoint.tokenizer()
    if not tokenizer.special_ids.issuperset(range(vocab_size, tokenizer.vocab_size)):
        raise RegardError(
            f"the tokenizer of {checkpoint.path} has {tokenizer.vocab_size} tokens, but its embeddings only "
            f"{vocab_size}; give it the tokenizer that belongs to it"
        )
    return tokenizer
