"""From a file, a Pillow image or an array to a picture in RGB; Pillow is imported here, when a picture is read."""

from __future__ import annotations

import io
import os
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_file
from regard._utils.packages import needed
from regard._utils.validation import escape, truncate

if TYPE_CHECKING:
    from PIL.Image import Image

Picture: TypeAlias = "str | os.PathLike[str] | Image | np.ndarray"
"""A file, an image of Pillow, or an array of whole numbers from 0 to 255, ``Y X 3``: rows, columns, and red, green and
blue."""

MAX_PIXELS = 1 << 26
"""For a picture: 67 million, 8,192 × 8,192. A few bytes of a file can claim many more."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")  # whose readers run no other program
_GREY_16 = ("PNG", "PPM")  # whose grey of 16 bits Pillow gives as 32 bits, with 65,535 for white
_PHOTOMETRIC, _BITS_PER_SAMPLE, _SAMPLE_FORMAT = 262, 258, 339  # tags of TIFF 6.0
_WHITE_IS_ZERO, _UNSIGNED = 0, frozenset({1, 4})  # 4: not said
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, TypeError, LookupError, ArithmeticError, struct.error)


def pillow() -> Any:
    """Return the module ``PIL.Image``; an error if Pillow is not installed."""
    with needed("a picture", "'regard[images]'"):
        from PIL import Image
    return Image


def pictures_of(pictures: Any) -> list[Any]:
    """Return one picture, or several, as a list; an error if there is none."""
    if isinstance(pictures, np.ndarray) and pictures.ndim == 4:
        pictures = list(pictures)
    images = list(pictures) if isinstance(pictures, Sequence) and not isinstance(pictures, str) else [pictures]
    if not images:
        raise RegardError("there is no picture; give at least one")
    return images


def read_picture(picture: Any) -> Image:
    """Return a picture in RGB, as transformers reads it.

    For a file the orientation that its EXIF data name is applied, and transparency is dropped; a Pillow image is taken
    as it is, over white where it is transparent. For an animation the first frame is read.

    Raises
    ------
    RegardError
        It is not a picture, damaged, or has more than `MAX_PIXELS` pixels; or Pillow is not installed.
    """
    module = pillow()
    if isinstance(picture, np.ndarray):
        made: Image = module.fromarray(_checked(picture))
        return made
    if isinstance(picture, module.Image):
        _check_size(picture.size, "the picture")
        image = _loaded(picture, "the picture")
        try:
            return _over_white(module, _eight_bits(module, image, "the picture", image))
        except ValueError as error:  # Pillow converts not every mode
            raise RegardError(f"a picture of mode {image.mode} cannot be converted to RGB: {error}") from error
    if isinstance(picture, str | os.PathLike):
        return _from_file(module, Path(picture))
    raise RegardError(
        f"a picture is a file, a Pillow image, or an array of whole numbers, Y X 3, got {type(picture).__name__}"
    )


def label_of(picture: Any, index: int) -> str:
    """Return the name of a picture: that of its file, or its place in the batch."""
    if isinstance(picture, str | os.PathLike):
        return Path(picture).name
    return f"picture {index}"


def _from_file(module: Any, path: Path) -> Image:
    from PIL import ImageOps, UnidentifiedImageError

    name = escape(path.name)
    content = read_file(path)
    if content is None:
        raise RegardError(f"there is no picture {escape(str(path))}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own limit of pixels, and of damaged metadata
            image = module.open(io.BytesIO(content), formats=_FORMATS)
            _check_size(image.size, name)
            image.load()
            upright: Image = _eight_bits(module, ImageOps.exif_transpose(image), name, image).convert("RGB")
            return upright
    except (UnidentifiedImageError, KeyError) as error:
        raise RegardError(
            f"{name} is not a picture: give one in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
        ) from error
    except module.DecompressionBombError as error:
        raise RegardError(f"{name} has more than {MAX_PIXELS:,} pixels; give a smaller copy") from error
    except _DAMAGE as error:
        raise _damaged(name, error) from error


def _loaded(image: Image, name: str) -> Image:
    """Return an image whose pixels are read."""
    try:
        image.load()
    except _DAMAGE as error:
        raise _damaged(name, error) from error
    return image


def _eight_bits(module: Any, image: Image, name: str, opened: Any) -> Image:
    """Return an image of 8 bits a channel: grey of 16 bits is scaled, which Pillow alone would cut off at 255.

    `opened` is the image as Pillow opened it, which has the format of its file. An error for numbers whose white is
    not known.
    """
    tags = getattr(opened, "tag_v2", {})  # of TIFF
    is_signed = not _UNSIGNED.issuperset(tags.get(_SAMPLE_FORMAT, ()))
    if not is_signed and (image.mode.startswith("I;16") or (image.mode == "I" and opened.format in _GREY_16)):
        white = 2 ** tags.get(_BITS_PER_SAMPLE, (16,))[0] - 1
        grey = np.asarray(image) * (255 / white)
        grey = 255 - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey
        scaled: Image = module.fromarray(np.round(grey).astype(np.uint8))
        return scaled
    if image.mode in ("I", "F") or is_signed:
        numbers = {"I": "whole numbers of 32 bits", "F": "floats"}.get(image.mode, "signed")
        raise RegardError(
            f"the pixels of {name} are {numbers}, in which no value is white: scale them to 0 to 255 (uint8)"
        )
    return image


def _over_white(module: Any, image: Image) -> Image:
    if image.mode in ("La", "RGBa"):  # multiplied by their opacity
        image = image.convert(image.mode.upper())
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = module.new("RGBA", image.size, (255, 255, 255, 255))
    rgb: Image = module.alpha_composite(white, image).convert("RGB")
    return rgb


def _checked(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise RegardError(
            f"a picture as an array has whole numbers from 0 to 255 (uint8) and the axes Y X 3, got {array.dtype} of "
            f"shape {array.shape}; Pillow converts others: PIL.Image.fromarray(array)"
        )
    _check_size(array.shape[1::-1], "the picture")
    return np.ascontiguousarray(array)


def _check_size(size: Sequence[int], name: str) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise RegardError(
            f"{name} has {width:,} × {height:,} pixels, more than {MAX_PIXELS:,} in all; give a smaller copy"
        )


def _damaged(name: str, error: Exception) -> RegardError:
    return RegardError(f"{name} is a damaged picture, {truncate(str(error))}; fetch it again")
