"""The interface of a model that looks at pictures: a picture in, the vectors of its patches out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.reprs import fields_repr
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.variable import Variable
from regard.models.base import PretrainedModel
from regard.models.gradients import ModelGradients, gradients_of_run
from regard.models.images.patches import ImageConfig, PatchEmbedding, check_pixels, patch_encoding
from regard.models.images.processor import ImageProcessor
from regard.models.images.read import Picture, label_of, pictures_of, read_picture
from regard.models.memory import check_memory
from regard.models.output import Leave, PooledOutput, until_stop, with_edits
from regard.nn import EncoderBlock
from regard.text.encoding import Encoding
from regard.trace import Edit, Trace
from regard.trace.text_layout import TextLayout

Pictures: TypeAlias = "Picture | list[Picture] | Mapping[str, Any]"
"""One picture or several (as an array ``B Y X 3`` too), or the mapping that a processor of transformers returns, with
``pixel_values``."""


@dataclass(frozen=True, eq=False)
class ImageOutput(PooledOutput):
    """The result of a model of pictures.

    ``hidden`` has one vector for the whole picture and then one for each patch, row by row; ``logits``, ``B V``, are
    those of the classes, if the model has a classifier.

    Parameters
    ----------
    labels : tuple of str
        The names of the classes.
    """

    labels: tuple[str, ...] = field(default=(), kw_only=True)

    __repr__ = fields_repr

    def loss(self) -> Any:
        """Raise: a picture has no next token."""
        raise RegardError("a picture has no next token: compute the loss of a class, F.cross_entropy(output.logits, …)")

    def token_losses(self) -> np.ndarray:
        """Raise: a picture has no next token."""
        return np.asarray(self.loss())


@dataclass(frozen=True, eq=False, repr=False)
class ImageModel(PretrainedModel):
    """A pretrained model whose tokens are the patches of a picture.

    Parameters
    ----------
    name : str
    config : ImageConfig
    patches : PatchEmbedding
    blocks : tuple of EncoderBlock
    processor : ImageProcessor, optional
        What is done to a picture first; None where the folder does not say it.
    """

    name: str
    config: ImageConfig
    patches: PatchEmbedding
    blocks: tuple[EncoderBlock, ...]
    processor: ImageProcessor | None = field(default=None, kw_only=True, repr=False)

    def embed_patches(self, pixels: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the vectors, ``B T E``, with which the first block begins, of the numbers of pictures, ``B C Y X``."""
        raise NotImplementedError

    def encode_patches(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, from those with which the first block begins."""
        raise NotImplementedError

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> ImageOutput:
        """Return the result of a run from its contextual vectors, ``B T E``."""
        raise NotImplementedError

    def forward(self, pixels: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of the numbers of pictures, ``B C Y X``.

        Taps ``pixel_values`` and those of `embed_patches` and `encode_patches`.
        """
        pixels = trace("pixel_values", pixels, "B C Y X")
        return self.encode_patches(self.embed_patches(pixels, trace=trace), trace=trace)

    def __call__(
        self, pictures: Pictures, *, trace: Recorder = NULL_RECORDER, edit: Mapping[str, Edit] | None = None
    ) -> ImageOutput:
        """Return the contextual vectors of every patch.

        Parameters
        ----------
        pictures
            One picture or a list of them: files, Pillow images, or arrays of whole numbers, ``Y X 3``; or the mapping
            of a processor of transformers, with ``pixel_values``.
        trace : Trace, optional
            Records the steps under the names that `forward` taps, and ``picture``, what the model sees: the picture
            after resizing and cropping, ``B Y X C``, from 0 to 255.
        edit : mapping of str to function, optional
            As in `TextModel`.

        Raises
        ------
        RegardError
            A picture cannot be read, or does not fit the model; both `trace` and `edit` are given; or a name of `edit`
            matches no step.
        """
        trace = with_edits(trace, edit)
        if isinstance(pictures, Mapping):
            pixels, seen = self._pixels(pictures), None
            labels = [label_of(None, i) for i in range(len(pixels))]
        else:
            images = pictures_of(pictures)
            pixels, seen = None, self.see(images)
            labels = [label_of(picture, i) for i, picture in enumerate(images)]
        encodings = tuple(patch_encoding(label, self.config.grid) for label in labels)
        check_memory(self, (len(encodings), self.config.num_tokens), trace)
        trace.set_layout(TextLayout.from_shape((len(encodings), self.config.num_tokens)))

        def compute(_: Leave) -> ImageOutput:
            x = pixels if seen is None else self._normalized(trace("picture", seen, "B Y X C"))
            return self.output(self.forward(x, trace=trace), encodings)  # type: ignore[arg-type]

        return until_stop(compute, trace.run(self.name, encodings, source=self), encodings)

    def see(self, pictures: Pictures) -> np.ndarray:
        """Return what the model sees of pictures: whole numbers from 0 to 255, ``B Y X 3``, resized and cropped.

        Raises
        ------
        RegardError
            A picture cannot be read, or has another size than the model takes.
        """
        processor, size = self._processor(), self.config.image_size
        seen = [processor.crop(read_picture(picture)) for picture in pictures_of(pictures)]
        for array in seen:
            if array.shape[:2] != size:
                raise RegardError(
                    f"{self.name} takes pictures of {size[0]} × {size[1]} pixels (height × width), and its "
                    f"preprocessing makes {array.shape[0]} × {array.shape[1]} of this one; crop or resize it first"
                )
        return np.stack(seen)

    def pixel_values(self, pictures: Pictures) -> np.ndarray:
        """Return the numbers that the model reads of pictures, ``B C Y X``."""
        return self._pixels(pictures) if isinstance(pictures, Mapping) else self._normalized(self.see(pictures))

    def iter_traces(
        self,
        pictures: Iterable[Picture],
        *,
        batch_size: int = 32,
        only: str | Iterable[str] | None = None,
        keep: Literal["maps", "arrays"] = "maps",
        edit: Mapping[str, Edit] | None = None,
        skip: int = 0,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Iterator[tuple[int, Trace]]:
        """Yield the trace of each of many pictures with the index of the picture, ``(i, trace)``, in their order.

        One batch is read and held at a time, whose arrays its traces share. The arguments are those of
        `TextModel.iter_traces`.

        Raises
        ------
        RegardError
            A file cannot be read, or is not a picture.
        """
        from regard.models.corpus import iter_picture_traces

        return iter_picture_traces(self, pictures, batch_size, only, keep, edit, skip, progress)

    def gradients(
        self,
        pictures: Pictures,
        metric: Callable[[Any], Any],
        *,
        at: str | Iterable[str] = "*.output",
        only: str | Iterable[str] | None = None,
        parameters: str | Iterable[str] = (),
        checkpoint: bool = False,
    ) -> ModelGradients:
        """Return a number computed from the output, and its gradients, as `TextModel.gradients` does.

        ``at="pixel_values"`` takes them with respect to the numbers that the model reads.
        """
        if not callable(metric):
            raise RegardError(
                f"metric must be a function of the output, such as lambda o: o.logits[0, 3], got {metric!r}"
            )
        return gradients_of_run(
            self, lambda model, trace: model(pictures, trace=trace), metric, at, only, parameters, checkpoint
        )

    def _pixels(self, fields: Mapping[str, Any]) -> np.ndarray:
        if unknown := sorted(map(str, fields.keys() - {"pixel_values"})):
            raise RegardError(f"a mapping of pictures has pixel_values alone, got {', '.join(unknown)} too")
        if "pixel_values" not in fields:
            raise RegardError("a mapping of pictures needs pixel_values, B C Y X")
        return check_pixels(fields["pixel_values"], self.config).astype(self._dtype, copy=False)

    def _normalized(self, seen: Any) -> np.ndarray:
        if type(seen) is Variable:
            raise RegardError("there is no gradient at picture, of whole numbers: take it at pixel_values")
        return self._processor().normalize(seen).astype(self._dtype, copy=False)

    def _processor(self) -> ImageProcessor:
        if self.processor is None:
            raise RegardError(
                f"{self.name} has no preprocessor_config.json, which says how a picture is prepared: fetch it from "
                "where the model comes from, or give pixel_values"
            )
        return self.processor

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.patches.class_embedding.dtype


def check_processor(processor: ImageProcessor | None, config: ImageConfig, path: Any) -> ImageProcessor | None:
    """Return the processor of a model; an error if what it makes is not of the size that the model takes."""
    made = None if processor is None else processor.output_size
    if made not in (None, config.image_size):
        raise RegardError(
            f"the preprocessing of {path} makes pictures of {made[0]} × {made[1]} pixels, but its model takes "
            f"{config.image_size[0]} × {config.image_size[1]}; position embeddings are not interpolated to "
            "that: set size (and crop_size) in preprocessor_config.json"
        )
    return processor
