"""DINOv2: an encoder of pictures, trained without labels (Oquab et al. 2023, arXiv:2304.07193).

A ViT whose sublayers are scaled feature by feature before they are added (layer scale), with positions that are
interpolated to the pictures that its preprocessing makes. The largest model has gated feed-forward layers.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard.models.build import feed_forward, fused_linears, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import TensorSource
from regard.models.images.model import ImageOutput
from regard.models.images.patches import ImageConfig
from regard.models.images.processor import ImageProcessor
from regard.models.images.read import MAX_PIXELS
from regard.models.vit import ViT, read_sizes
from regard.nn import EncoderBlock, FeedForward, GatedFeedForward, SelfAttention
from regard.text.encoding import Encoding

_ATTENTION = ("attention.query", "attention.key", "attention.value", "output.dense")


@dataclass(frozen=True)
class Dinov2Config(ImageConfig):
    """The sizes of a DINOv2, its feed-forward layers, and the names of its classes.

    Parameters
    ----------
    image_size : (int, int)
        Of the pictures that its preprocessing makes; without one `stored_size`.
    stored_size : (int, int)
        Of the pictures whose patches have the stored positions.
    """

    stored_size: tuple[int, int]
    is_gated: bool
    qkv_bias: bool
    labels: tuple[str, ...]

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="dinov2", is_encoder_decoder=False)
        reader.without_effect("layerscale_value", "drop_path_rate", "use_mask_token")  # of training
        reader.without_effect("out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states")
        sizes = read_sizes(reader, norm_eps=1e-6, patch_size=14)
        hidden_dim, is_gated = sizes["embed_dim"] * reader.count("mlp_ratio", 4), reader.flag("use_swiglu_ffn", False)
        rows, columns = map(operator.floordiv, sizes["image_size"], sizes["patch_size"])
        reader.require(rows == columns, f"image_size makes {rows} × {columns} patches, which are not a square")
        return cls(
            **sizes,
            hidden_dim=-(-(hidden_dim * 2 // 3) // 8) * 8 if is_gated else hidden_dim,
            stored_size=sizes["image_size"],
            is_gated=is_gated,
        )

    @property
    def stored_grid(self) -> tuple[int, int]:
        """The rows and columns of the patches that have a stored position."""
        return replace(self, image_size=self.stored_size).grid


@dataclass(frozen=True, eq=False, repr=False)
class Dinov2(ViT):
    """A DINOv2, with its classifier if it was saved with one; its forward pass is that of a ViT.

    Taps ``blocks.i.attn_scaled`` and ``blocks.i.mlp_scaled`` too: what is added.
    """

    config: Dinov2Config

    config_type: ClassVar[type[Any]] = Dinov2Config
    prefix: ClassVar[str] = "dinov2"
    processor_kind: ClassVar[str] = "Bit"
    classified_vectors: ClassVar[int] = 2  # that of [CLS], and the mean of those of the patches

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> ImageOutput:
        """Return the result: the vector of [CLS] stands for the picture; classes are read from the patches' too."""
        classifier = self.classifier

        def logits(hidden: np.ndarray) -> np.ndarray:
            assert classifier is not None
            return classifier(np.concatenate([hidden[:, 0], hidden[:, 1:].mean(1)], axis=-1))

        classes = None if classifier is None else logits
        return ImageOutput(hidden, encodings, classes, _of_class, labels=self.labels)

    @classmethod
    def sized(cls, config: Any, processor: ImageProcessor | None) -> Any:
        """Return the configuration for the pictures that its preprocessing makes."""
        made = None if processor is None else processor.output_size
        if made is None or math.prod(made) > MAX_PIXELS or any(map(operator.lt, made, config.patch_size)):
            return config
        return replace(config, image_size=made)

    @classmethod
    def block(cls, source: TensorSource, config: Any) -> EncoderBlock:
        """Return a block."""
        E, F, eps = config.embed_dim, config.hidden_dim, config.norm_eps
        attn, mlp = source.at("attention"), source.at("mlp")
        *qkv, out = _ATTENTION
        maps = [*(linear(attn, name, E, E, bias=config.qkv_bias) for name in qkv), linear(attn, out, E, E)]
        feed: FeedForward | GatedFeedForward
        if config.is_gated:
            gate, up = fused_linears(mlp, "weights_in", E, (F, F))
            feed = GatedFeedForward(gate, up, linear(mlp, "weights_out", F, E), activation="silu")
        else:
            feed = feed_forward(mlp, ("fc1", "fc2"), E, F, config.activation)
        return EncoderBlock(
            SelfAttention(*maps, num_heads=config.num_heads),
            layer_norm(source, "norm1", E, eps),
            feed,
            layer_norm(source, "norm2", E, eps),
            norm_first=True,
            attn_scale=source.array("layer_scale1.lambda1", (E,)),
            mlp_scale=source.array("layer_scale2.lambda1", (E,)),
        )


def _of_class(hidden: np.ndarray) -> np.ndarray:
    return hidden[:, 0]
