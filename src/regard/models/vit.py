"""ViT: an encoder whose tokens are the patches of a picture (Dosovitskiy et al. 2020, arXiv:2010.11929).

Each patch is projected to a vector; a learned vector for the whole picture, [CLS], comes first, and every position has
a vector of its own. The blocks are an encoder's, with a norm before each sublayer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.build import encoder_block, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import Checkpoint
from regard.models.checkpoint.tensors import TensorSource, load_layers
from regard.models.encoder import run_blocks
from regard.models.images.model import ImageModel, ImageOutput, Pictures, check_processor
from regard.models.images.patches import ImageConfig, PatchEmbedding, read_image_sizes
from regard.models.images.processor import ImageProcessor, read_processor
from regard.models.predictions import Prediction, likeliest
from regard.models.task_heads import class_names
from regard.nn import EncoderBlock, LayerNorm, Linear
from regard.nn.layers import traced_norm
from regard.text.encoding import Encoding


@dataclass(frozen=True)
class ViTConfig(ImageConfig):
    """The sizes of a ViT, the width of its pooler, whether q, k and v have biases, and the names of its classes."""

    pooler_dim: int
    qkv_bias: bool
    labels: tuple[str, ...] = field(repr=False)

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="vit", pooler_act="tanh", is_encoder_decoder=False)
        reader.without_effect("encoder_stride")  # of the decoder that fills in masked patches
        sizes = read_sizes(reader, norm_eps=1e-12, patch_size=16)
        return cls(
            **sizes,
            hidden_dim=reader.count("intermediate_size", 3072),
            pooler_dim=reader.optional_count("pooler_output_size") or sizes["embed_dim"],
        )


@dataclass(frozen=True, eq=False, repr=False)
class ViT(ImageModel):
    """A ViT, with its pooler or its classifier if it was saved with one."""

    config: Any  # `ViTConfig`, or that of a relative
    final_norm: LayerNorm
    pooler: Linear | None = field(default=None, kw_only=True)
    classifier: Linear | None = field(default=None, kw_only=True)

    config_type: ClassVar[type[Any]] = ViTConfig
    prefix: ClassVar[str] = "vit"  # of all names, inside a model with a task head
    processor_kind: ClassVar[str] = "ViT"
    classified_vectors: ClassVar[int] = 1  # how many its classifier reads

    def embed_patches(self, pixels: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the vectors, ``B T E``, of the numbers of pictures, ``B C Y X``; taps those of `PatchEmbedding`."""
        return self.patches(pixels, self.config, trace=trace)

    def encode_patches(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of the vectors of patches.

        Taps for each block ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and
        ``blocks.i.output``, and ``final_norm``, the result.
        """
        x = run_blocks(self.blocks, x, None, trace)
        return trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E")

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> ImageOutput:
        """Return the result: the pooler's vector and the logits of the classes are computed from that of [CLS]."""
        pooler, classifier = self.pooler, self.classifier
        return ImageOutput(
            hidden,
            encodings,
            None if classifier is None else lambda hidden: classifier(hidden[:, 0]),
            None if pooler is None else lambda hidden: np.tanh(pooler(hidden[:, 0])),
            labels=self.labels,
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; none without a classifier."""
        if self.classifier is None:
            return ()
        return class_names(dict(enumerate(self.config.labels)), self.classifier.weight.shape[1], self.name)

    def predictions(self, picture: Pictures, k: int = 5) -> tuple[Prediction, ...]:
        """Return the likeliest classes of one picture, the likeliest first.

        Raises
        ------
        RegardError
            The model has no classifier, or there are several pictures.
        """
        output = self(picture)
        if len(output.encodings) != 1:
            raise RegardError("predictions takes one picture")
        if self.classifier is None:
            raise RegardError(f"{self.name} was saved without a classifier; use its contextual vectors (.hidden)")
        return likeliest(output.logits[0], k, self.labels.__getitem__)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        processor = read_processor(checkpoint.path, cls.processor_kind)
        config = cls.sized(cls.config_type.read(checkpoint.config()), processor)
        processor = check_processor(processor, config, checkpoint.path)
        shapes = checkpoint.tensors().shapes
        prefix = cls.prefix if f"{cls.prefix}.embeddings.cls_token" in shapes else ""
        has_pooler = f"{prefix}.pooler.dense.weight".removeprefix(".") in shapes
        classes = (*shapes.get("classifier.weight", ()), 0)[0]

        def layers(root: TensorSource) -> dict[str, Any]:
            source, E = root.at(prefix), config.embed_dim
            blocks = (source.at(f"encoder.layer.{i}") for i in range(config.num_layers))
            return {
                "patches": PatchEmbedding.build(source.at("embeddings"), _PATCHES, config, bias=True, batched=True),
                "blocks": tuple(cls.block(block, config) for block in blocks),
                "final_norm": layer_norm(source, "layernorm", E, config.norm_eps),
                "pooler": linear(source, "pooler.dense", E, config.pooler_dim) if has_pooler else None,
                "classifier": linear(root, "classifier", cls.classified_vectors * E, classes) if classes else None,
            }

        loaded = load_layers(
            checkpoint,
            layers,
            num_layers=config.num_layers,
            unused=("embeddings.mask_token", f"{cls.prefix}.embeddings.mask_token", "decoder."),
            dtype=dtype,
        )
        model = cls(name=name, config=config, **loaded, processor=processor)
        _ = model.labels  # an error if they are those of other classes
        return model

    @classmethod
    def sized(cls, config: Any, processor: ImageProcessor | None) -> Any:  # noqa: ARG003
        """Return the configuration for the pictures that its preprocessing makes."""
        return config

    @classmethod
    def block(cls, source: TensorSource, config: Any) -> EncoderBlock:
        """Return a block."""
        return encoder_block(source, _BLOCK, config, config.norm_eps, norm_first=True, qkv_bias=config.qkv_bias)


_PATCHES = ("cls_token", "patch_embeddings.projection", "position_embeddings")
_BLOCK = {
    "attn_norm": "layernorm_before",
    "attn.q_proj": "attention.attention.query",
    "attn.k_proj": "attention.attention.key",
    "attn.v_proj": "attention.attention.value",
    "attn.o_proj": "attention.output.dense",
    "mlp_norm": "layernorm_after",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
}


def read_sizes(reader: ConfigReader, *, norm_eps: float, patch_size: int) -> dict[str, Any]:
    """Read the fields that ViT and its relatives have in common; the numbers given are the defaults."""
    sizes: dict[str, Any] = {
        "embed_dim": reader.count("hidden_size", 768),
        "num_layers": reader.num_layers("num_hidden_layers", 12),
        "num_heads": reader.count("num_attention_heads", 12),
        "activation": reader.activation("hidden_act", "gelu"),
        "norm_eps": reader.positive("layer_norm_eps", norm_eps),
        "qkv_bias": reader.flag("qkv_bias", True),
        "labels": _read_labels(reader),
        **read_image_sizes(reader, patch_size=patch_size),
    }
    reader.splits("hidden_size", sizes["embed_dim"], sizes["num_heads"])
    return sizes


def _read_labels(reader: ConfigReader) -> tuple[str, ...]:
    """Read the names of the classes, by their numbers from 0."""
    labels = reader.take("id2label", {0: "LABEL_0", 1: "LABEL_1"})
    fits = isinstance(labels, dict) and all(isinstance(label, str) for label in labels.values())
    names = {str(number): label for number, label in labels.items()} if fits else {}
    reader.require(fits and set(names) == {str(i) for i in range(len(names))}, "id2label must name classes 0, 1, 2, …")
    return tuple(names.get(str(i), "") for i in range(len(names)))
