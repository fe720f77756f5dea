"""ViT: an encoder whose tokens are the patches of a picture (Dosovitskiy et al. 2020, arXiv:2010.11929).

Each patch is projected to a vector; a learned vector for the whole picture, [CLS], comes first, and every position has
a vector of its own. The blocks are an encoder's, with a norm before each sublayer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.bert import run_blocks
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.listed_tensors import TensorSpec, linear_tensors, load_tensors, norm_tensors
from regard.models.checkpoint.open import Checkpoint
from regard.models.images.model import ImageModel, ImageOutput, Pictures, check_processor
from regard.models.images.patches import ImageConfig, PatchEmbedding, patch_tensors, read_image_sizes
from regard.models.images.processor import read_processor
from regard.models.language import Prediction
from regard.models.listed_build import encoder_blocks, layer_norm, linear
from regard.nn import LayerNorm, Linear
from regard.nn.layers import traced_norm
from regard.text.encoding import Encoding


@dataclass(frozen=True)
class ViTConfig(ImageConfig):
    """The sizes of a ViT, the width of its pooler, whether q, k and v have biases, and the names of its classes."""

    pooler_dim: int
    qkv_bias: bool
    labels: tuple[str, ...] = field(repr=False)

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="vit", pooler_act="tanh", is_encoder_decoder=False)
        reader.ignore("encoder_stride")  # of the decoder that fills in masked patches
        embed_dim, num_heads = reader.count("hidden_size", 768), reader.count("num_attention_heads", 12)
        reader.splits("hidden_size", embed_dim, num_heads)
        config = cls(
            embed_dim=embed_dim,
            num_layers=reader.count("num_hidden_layers", 12),
            num_heads=num_heads,
            hidden_dim=reader.count("intermediate_size", 3072),
            activation=reader.activation("hidden_act", "gelu"),
            norm_eps=reader.positive("layer_norm_eps", 1e-12),
            **read_image_sizes(reader, patch_size=16),
            pooler_dim=reader.optional_count("pooler_output_size") or embed_dim,
            qkv_bias=reader.flag("qkv_bias", True),
            labels=_read_labels(reader),
        )
        reader.finish()
        return config


@dataclass(frozen=True, eq=False, repr=False)
class ViT(ImageModel):
    """A ViT, with its pooler or its classifier if it was saved with one."""

    config: ViTConfig
    final_norm: LayerNorm
    pooler: Linear | None = field(default=None, kw_only=True)
    classifier: Linear | None = field(default=None, kw_only=True)

    def embed_patches(self, pixels: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the vectors, ``B T E``, of the numbers of pictures, ``B C Y X``; taps those of `PatchEmbedding`."""
        return self.patches(pixels, self.config, trace=trace)

    def encode_patches(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of the vectors of patches.

        Taps for each block ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and
        ``blocks.i.output``, and ``final_norm``, the result.
        """
        x = run_blocks(self.blocks, x, None, trace, [{}] * len(self.blocks))
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
        count = self.classifier.weight.shape[1]
        return self.config.labels if len(self.config.labels) == count else tuple(f"LABEL_{i}" for i in range(count))

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
        probabilities = F.softmax(np.asarray(output.logits[0], np.float64))
        likeliest = np.argsort(-probabilities, kind="stable")[: whole_number("k", k, 1)].tolist()
        return tuple(Prediction(self.labels[i], i, float(probabilities[i])) for i in likeliest)

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = ViTConfig.read(checkpoint.config())
        processor = check_processor(read_processor(checkpoint.path, "ViT"), config, checkpoint.path)
        shapes = checkpoint.tensors().shapes
        classes = (*shapes.get("classifier.weight", ()), 0)[0]
        weights = load_tensors(
            checkpoint,
            _tensors(config, shapes, classes),
            num_layers=config.num_layers,
            unused=("embeddings.mask_token", "vit.embeddings.mask_token", "decoder."),
            dtype=dtype,
        )
        return cls(
            name=name,
            config=config,
            patches=PatchEmbedding.from_weights(weights),
            blocks=encoder_blocks(weights, "", config, config.norm_eps, norm_first=True),
            final_norm=layer_norm(weights, "final_norm", config.norm_eps),
            pooler=linear(weights, "pooler") if "pooler.weight" in weights else None,
            classifier=linear(weights, "classifier") if classes else None,
            processor=processor,
        )


_PATCHES = {
    "class_embedding": "cls_token",
    "projection.weight": "patch_embeddings.projection.weight",
    "projection.bias": "patch_embeddings.projection.bias",
    "position_embedding.weight": "position_embeddings",
}


def _tensors(config: ViTConfig, shapes: Any, classes: int) -> Iterator[TensorSpec]:
    """Yield every tensor; inside a model with a task head their names begin with ``vit.``."""
    E, F = config.embed_dim, config.hidden_dim
    prefix = "vit." if "vit.embeddings.cls_token" in shapes else ""
    names = {part: f"{prefix}embeddings.{hf_part}" for part, hf_part in _PATCHES.items()}
    yield from patch_tensors(config, names, batched=True)
    for i in range(config.num_layers):
        at, hf = f"blocks.{i}", f"{prefix}encoder.layer.{i}"
        yield from norm_tensors(f"{at}.attn_norm", f"{hf}.layernorm_before", E)
        for part, hf_part in (("q", "query"), ("k", "key"), ("v", "value")):
            yield from linear_tensors(
                f"{at}.attn.{part}_proj", f"{hf}.attention.attention.{hf_part}", E, E, bias=config.qkv_bias
            )
        yield from linear_tensors(f"{at}.attn.o_proj", f"{hf}.attention.output.dense", E, E)
        yield from norm_tensors(f"{at}.mlp_norm", f"{hf}.layernorm_after", E)
        yield from linear_tensors(f"{at}.mlp.up_proj", f"{hf}.intermediate.dense", E, F)
        yield from linear_tensors(f"{at}.mlp.down_proj", f"{hf}.output.dense", F, E)
    yield from norm_tensors("final_norm", f"{prefix}layernorm", E)
    if f"{prefix}pooler.dense.weight" in shapes:
        yield from linear_tensors("pooler", f"{prefix}pooler.dense", E, config.pooler_dim)
    if classes:
        yield from linear_tensors("classifier", "classifier", E, classes)


def _read_labels(reader: ConfigReader) -> tuple[str, ...]:
    """Read the names of the classes, by their numbers from 0."""
    labels = reader.take("id2label", {0: "LABEL_0", 1: "LABEL_1"})
    fits = isinstance(labels, dict) and all(isinstance(label, str) for label in labels.values())
    names = {str(number): label for number, label in labels.items()} if fits else {}
    reader.require(fits and set(names) == {str(i) for i in range(len(names))}, "id2label must name classes 0, 1, 2, …")
    return tuple(names.get(str(i), "") for i in range(len(names)))
