"""From pictures to the numbers that a model reads, as preprocessor_config.json says.

The steps are those of transformers' processors on Pillow and NumPy, bit for bit; its faster ones, on PyTorch, resize a
little differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.models.checkpoint.config import ConfigReader
from regard.models.images.read import MAX_PIXELS, pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_FILTERS = 6  # of Pillow
_MAX_EDGE = 2**63  # more than any picture has; a float holds it
_MAX_NUMBER = 1e30  # of a mean or a deviation; no NaN is below it

# What a processor does where its file does not say it, by the model's name in its type: ViTImageProcessorFast.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {
        "size": {"height": 224, "width": 224},
        "do_center_crop": False,
        "resample": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
    "CLIP": {
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "resample": 3,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}
_DEFAULTS["Bit"] = _DEFAULTS["CLIP"]  # of DINOv2
_TYPES = {
    f"{kind}{suffix}": kind
    for kind in _DEFAULTS
    for suffix in ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
}


@dataclass(frozen=True)
class ImageProcessor:
    """What is done to a picture before a model reads it: resize, crop, rescale and normalize; None leaves a step out.

    Parameters
    ----------
    size : (int, int) or int, optional
        Height and width after resizing; or the length of the shorter edge alone, which keeps the proportions.
    resample : int
        The filter of Pillow, ``PIL.Image.Resampling``.
    crop_size : (int, int), optional
        Height and width of what is kept, from the middle; black is added where there is less.
    rescale_factor : float, optional
    mean, std : tuple of float, optional
        For each channel.
    """

    size: tuple[int, int] | int | None
    resample: int
    crop_size: tuple[int, int] | None
    rescale_factor: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None

    @classmethod
    def read(cls, reader: ConfigReader, kind: str) -> ImageProcessor:
        """Read a preprocessor_config.json; `kind` is ``"ViT"``, ``"CLIP"`` or ``"Bit"``, where it names no type.

        An unknown field or value is an error.
        """
        for name in ("image_processor_type", "feature_extractor_type"):
            if reader.peek(name) is not None:
                kind = _TYPES[str(reader.choice(name, f"{kind}ImageProcessor", list(_TYPES)))]
        defaults = _DEFAULTS[kind]
        reader.without_effect("processor_class", "data_format", "input_data_format", "device", "return_tensors")
        reader.without_effect("disable_grouping", "do_convert_rgb", "_valid_processor_keys")
        reader.only(do_pad=False)
        size = _read_size(reader, "size", defaults["size"], edge=not reader.flag("default_to_square", kind == "ViT"))
        crop = _read_size(reader, "crop_size", {"height": 224, "width": 224}, edge=False)
        factor = reader.positive("rescale_factor", 1 / 255)
        mean, std = (_read_channels(reader, name, defaults[name]) for name in ("image_mean", "image_std"))
        reader.require(0 not in std, "image_std has a 0")
        does_normalize = reader.flag("do_normalize", True)
        processor = cls(
            size=size if reader.flag("do_resize", True) else None,
            resample=reader.index("resample", defaults["resample"], _FILTERS),
            crop_size=crop if reader.flag("do_center_crop", defaults["do_center_crop"]) else None,  # type: ignore[arg-type]
            rescale_factor=factor if reader.flag("do_rescale", True) else None,
            mean=mean if does_normalize else None,
            std=std if does_normalize else None,
        )
        reader.finish()
        return processor

    @property
    def output_size(self) -> tuple[int, int] | None:
        """The height and width of every result; None where they depend on the picture."""
        return self.crop_size or (self.size if isinstance(self.size, tuple) else None)

    def crop(self, picture: Image) -> np.ndarray:
        """Return what the model sees of a picture in RGB, after resizing and cropping: uint8, ``Y X 3``."""
        if self.size is not None:
            height, width = _resized(picture.size, self.size)
            if height * width > MAX_PIXELS:
                raise RegardError(f"a picture of {picture.width} × {picture.height} pixels is too narrow to be resized")
            picture = picture.resize((width, height), resample=pillow().Resampling(self.resample))
        array = np.asarray(picture)
        return array if self.crop_size is None else _center(array, self.crop_size)

    def normalize(self, pictures: np.ndarray) -> np.ndarray:
        """Return the numbers that a model reads, float32, ``B C Y X``, of uint8 pictures ``B Y X C``."""
        x: np.ndarray = pictures.astype(np.float32)
        if self.rescale_factor is not None:
            x = (pictures.astype(np.float64) * self.rescale_factor).astype(np.float32)
        if self.mean is not None:
            x = (x - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def read_processor(folder: Path, kind: str) -> ImageProcessor | None:
    """Return the processor of the model in `folder`, from a file of its own or processor_config.json; None if none."""
    path = folder / "preprocessor_config.json"
    if (fields := read_json_object(path)) is None:
        path = folder / "processor_config.json"
        fields = (read_json_object(path) or {}).get("image_processor")
    if not isinstance(fields, dict):
        return None
    values = {name: value for name, value in fields.items() if value is not None}  # null is not a value
    return ImageProcessor.read(ConfigReader(values, path), kind)


def _resized(size: Sequence[int], target: tuple[int, int] | int) -> tuple[int, int]:
    """Return the height and width of a picture, of this width and height, after resizing."""
    if isinstance(target, tuple):
        return target
    width, height = size
    longer = int(target * max(size) / min(size))
    return (longer, target) if width <= height else (target, longer)


def _center(array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the middle of an array ``Y X C``, with zeros around it where it is smaller."""
    for axis, length in enumerate(size):
        lacking = max(length - array.shape[axis], 0)
        before = -(-lacking // 2)
        padding = [(before, lacking - before) if i == axis else (0, 0) for i in range(array.ndim)]
        array = np.pad(array, padding)
        start = (array.shape[axis] - length) // 2
        array = array[(slice(None),) * axis + (slice(start, start + length),)]
    return array


def _read_size(reader: ConfigReader, name: str, default: dict[str, int], *, edge: bool) -> tuple[int, int] | int | None:
    """Read ``{height, width}``, ``{shortest_edge}`` or a number: that of the shorter edge with `edge`, else of both."""
    value = reader.take(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"shortest_edge": value} if edge else {"height": value, "width": value}
    numbers = list(value.values()) if isinstance(value, dict) else []
    is_valid = isinstance(value, dict) and set(value) in ({"height", "width"}, {"shortest_edge"})
    if (
        not is_valid
        or not all(type(n) is int and 0 < n < _MAX_EDGE for n in numbers)
        or (name == "crop_size" and len(numbers) == 1)
    ):
        reader.require(
            False, f"{name} must be a whole number, {{height, width}} or {{shortest_edge}}, got {truncate(value)}"
        )
        return None
    return value["shortest_edge"] if len(numbers) == 1 else (value["height"], value["width"])


def _read_channels(reader: ConfigReader, name: str, default: list[float]) -> tuple[float, ...]:
    value = reader.take(name, default)
    value = [value] * 3 if isinstance(value, int | float) else value
    fits = isinstance(value, list) and len(value) == 3
    if not fits or not all(isinstance(x, int | float) and -_MAX_NUMBER < x < _MAX_NUMBER for x in value):
        reader.require(False, f"{name} must be three numbers, got {value!r}")
        return tuple(default)
    return tuple(map(float, value))
