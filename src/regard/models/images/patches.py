"""Patches as tokens: a picture cut into squares, each of which is a token, after one for the whole picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.tensors import TensorSource
from regard.nn import Embedding, Layer, Linear
from regard.text.encoding import Encoding

CLASS_TOKEN = "[CLS]"
_CHANNELS = 3


@dataclass(frozen=True)
class ImageConfig(ModelConfig):
    """The sizes of a model of pictures: ``E``, ``L``, ``H``, feed-forward width; of picture and patch, height × width.

    Parameters
    ----------
    embed_dim, num_layers, num_heads, hidden_dim : int
    activation : str
    norm_eps : float
    image_size, patch_size : (int, int)
    """

    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    activation: str
    norm_eps: float
    image_size: tuple[int, int]
    patch_size: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """The rows and columns of patches."""
        (height, width), (patch_height, patch_width) = self.image_size, self.patch_size
        return height // patch_height, width // patch_width

    @property
    def stored_grid(self) -> tuple[int, int]:
        """The rows and columns of the patches that have a stored position."""
        return self.grid

    @property
    def num_tokens(self) -> int:
        """``T``: the patches and the token of the whole picture."""
        return 1 + self.grid[0] * self.grid[1]


def read_image_sizes(reader: ConfigReader, *, patch_size: int) -> dict[str, Any]:
    """Read the sizes of picture and patch; `patch_size` is the default of the family."""
    reader.only(num_channels=_CHANNELS)
    defaults = {"image_size": 224, "patch_size": patch_size}
    sizes = {name: _read_pair(reader, name, default) for name, default in defaults.items()}
    fits = all(0 < patch <= side for side, patch in zip(sizes["image_size"], sizes["patch_size"], strict=True))
    reader.require(fits, "patch_size must be from 1 to image_size")
    return sizes


@dataclass(frozen=True, eq=False, repr=False)
class PatchEmbedding(Layer):
    """The vectors of the patches of a picture, after one that is learned, with a vector of each position added.

    Parameters
    ----------
    class_embedding : array, ``E``
    projection : Linear, ``(C P Q) E``
        Of the numbers of a patch: channel by channel, row by row.
    position_embedding : Embedding, ``T E``
        For another grid of patches than the stored one they are interpolated.
    """

    class_embedding: np.ndarray
    projection: Linear
    position_embedding: Embedding

    @classmethod
    def build(
        cls, source: TensorSource, names: tuple[str, str, str], config: ImageConfig, *, bias: bool, batched: bool
    ) -> Self:
        """Build the layer; `names` are those of the vector of the class, the projection and the positions.

        Those of positions and of the class are stored as a batch of one, if `batched`.
        """
        class_name, projection, positions = names
        E, numbers = config.embed_dim, _CHANNELS * math.prod(config.patch_size)
        first, tokens = (1,) if batched else (), (1 + math.prod(config.stored_grid), E)
        class_embedding = source.array(class_name, (*first, *first, E), (E,))
        # Of a convolution whose stride is a patch.
        kernel = source.array(f"{projection}.weight", (E, _CHANNELS, *config.patch_size), (E, numbers))
        return cls(
            class_embedding,
            Linear(kernel.T, source.array(f"{projection}.bias", (E,)) if bias else None),
            Embedding(source.array(positions, (*first, *tokens), tokens)),
        )

    def __call__(self, pixels: np.ndarray, config: ImageConfig, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return ``B T E`` for the numbers of pictures, ``B C Y X``.

        Taps ``token_embeddings``, ``position_embeddings`` and their sum ``embeddings``.
        """
        patches = self.projection(cut(pixels, config))
        first = np.broadcast_to(self.class_embedding, (len(pixels), 1, config.embed_dim))
        tokens = trace("token_embeddings", np.concatenate([first, patches], axis=1), "B T E")
        positions = self.position_embedding(np.arange(1 + math.prod(config.stored_grid)))
        if config.grid != config.stored_grid:
            positions = _interpolated(positions, config.stored_grid, config.grid)
        positions = trace("position_embeddings", positions, "T E")
        return trace("embeddings", tokens + positions, "B T E")


def _interpolated(positions: np.ndarray, stored: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """Return the vectors of [CLS] and of a grid of patches, ``T E``, from those of the stored grid, bicubically."""
    rows, columns = (_cubic(*sizes).astype(positions.dtype) for sizes in zip(stored, grid, strict=True))
    table = np.reshape(positions[1:], (stored[0], -1))  # rows, (columns E)
    table = np.reshape(rows @ table, (grid[0], stored[1], -1))
    return np.concatenate([positions[:1], np.reshape(columns @ table, (grid[0] * grid[1], -1))])


def _cubic(stored: int, wanted: int) -> np.ndarray:
    """Return the weights of stored samples in each wanted one, ``wanted stored``, as PyTorch interpolates.

    Keys (1981), "Cubic convolution interpolation for digital image processing", with a = −0.75; what lies beyond the
    edge is the sample at the edge.
    """
    a, at = -0.75, (np.arange(wanted) + 0.5) * stored / wanted - 0.5
    weights = np.zeros((wanted, stored))
    for offset in (-1, 0, 1, 2):
        sample = np.floor(at).astype(int) + offset
        x = np.abs(at - sample)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * (x**3 - 5 * x**2 + 8 * x - 4)
        np.add.at(weights, (np.arange(wanted), sample.clip(0, stored - 1)), np.where(x <= 1, near, far))
    return weights


def cut(pixels: np.ndarray, config: ImageConfig) -> np.ndarray:
    """Return the patches of pictures ``B C Y X``, row by row, ``B N (C P Q)``; what is left at the edges is dropped."""
    (rows, columns), (height, width) = config.grid, config.patch_size
    whole = pixels[:, :, : rows * height, : columns * width]
    split = np.reshape(whole, (len(pixels), _CHANNELS, rows, height, columns, width))
    patches = np.transpose(split, (0, 2, 4, 1, 3, 5))  # B rows columns C P Q
    return np.reshape(patches, (len(pixels), rows * columns, _CHANNELS * height * width))


def patch_encoding(label: str, grid: tuple[int, int]) -> Encoding:
    """Return a picture as tokens, each patch named by its row and its column from 0: ``r2c5``."""
    rows, columns = grid
    count = rows * columns
    return Encoding(
        text=label,
        ids=tuple(range(count + 1)),
        tokens=(CLASS_TOKEN, *(f"r{row}c{column}" for row in range(rows) for column in range(columns))),
        special_tokens_mask=(True, *[False] * count),
        word_ids=(None, *range(count)),
        offsets=((0, 0),) * (count + 1),
        grid=grid,
    )


def check_pixels(pixels: Any, config: ImageConfig) -> np.ndarray:
    """Return numbers of pictures that a processor of transformers made, ``B C Y X``; an error if they do not fit."""
    array = np.asarray(pixels)
    if array.dtype.kind != "f" or array.ndim != 4 or array.shape[1:] != (_CHANNELS, *config.image_size):
        height, width = config.image_size
        raise RegardError(
            f"pixel_values must be floating-point numbers of shape (B, {_CHANNELS}, {height}, {width}), got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array


def _read_pair(reader: ConfigReader, name: str, default: int) -> tuple[int, int]:
    """Read a height and a width, or one number for both."""
    value = reader.take(name, default)
    pair = (value, value) if type(value) is int else tuple(value) if isinstance(value, list) else ()
    if len(pair) != 2 or not all(type(n) is int and n > 0 for n in pair):
        reader.require(False, f"{name} must be a whole number of at least 1, or two of them, got {value!r}")
        return (1, 1)
    return pair
