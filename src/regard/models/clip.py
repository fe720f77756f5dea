"""CLIP: an encoder of texts and one of pictures, trained to agree (Radford et al. 2021, arXiv:2103.00020).

Both halves are encoders with a norm before each sublayer. A token of a text attends to itself and to earlier ones, and
the vector of the end token stands for the text; the patches of a picture attend to all, and [CLS] stands for it. A
projection each leads to one space, in which what belongs together is near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import PretrainedModel, TextModel
from regard.models.build import embedding, encoder_block, layer_norm, linear
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.checkpoint.tensors import TensorSource, load_layers
from regard.models.encoder import run_blocks, without_padding
from regard.models.images.model import ImageModel, ImageOutput, Pictures, check_processor
from regard.models.images.patches import ImageConfig, PatchEmbedding, read_image_sizes
from regard.models.images.processor import ImageProcessor, read_processor
from regard.models.output import PooledOutput
from regard.nn import Embedding, EncoderBlock, LayerNorm, Linear
from regard.nn.layers import traced_norm
from regard.text import SubwordTokenizer
from regard.text.encoding import Encoding

_OLD_END_ID = 2  # of configurations that name a wrong end token: the largest id of a text is its end


@dataclass(frozen=True)
class CLIPTextConfig(ModelConfig):
    """The sizes of the text half: ``V``, ``E``, ``L``, ``H``, feed-forward width, positions; and its end token."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    max_positions: int
    activation: str
    norm_eps: float
    projection_dim: int
    end_id: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="clip_text_model")
        return cls(
            vocab_size=reader.count("vocab_size", 49408),
            **_read_sizes(reader, width=512, heads=8),
            max_positions=reader.count("max_position_embeddings", 77),
            end_id=reader.index("eos_token_id", 49407, 1 << 31),
        )


@dataclass(frozen=True)
class CLIPVisionConfig(ImageConfig):
    """The sizes of the picture half, and of the space into which it projects."""

    projection_dim: int

    @classmethod
    def _read(cls, reader: ConfigReader) -> Self:
        reader.only(model_type="clip_vision_model")
        return cls(**_read_sizes(reader, width=768, heads=12), **read_image_sizes(reader, patch_size=32))


@dataclass(frozen=True)
class CLIPConfig(ModelConfig):
    """The configurations of both halves, and the width of the space that they share."""

    text: CLIPTextConfig
    vision: CLIPVisionConfig
    projection_dim: int

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="clip", is_encoder_decoder=False)
        reader.without_effect("initializer_factor", "logit_scale_init_value")
        halves = {}
        for half, kind in (("text", "clip_text_model"), ("vision", "clip_vision_model")):
            older, newer = reader.take(f"{half}_config_dict"), reader.take(f"{half}_config")
            fields = {} if newer is None and older is None else newer if older is None else older
            reader.require(isinstance(fields, dict), f"{half}_config must be an object, got {fields!r}")
            fields = {"model_type": kind} | (fields if isinstance(fields, dict) else {})
            halves[half] = reader.nested(f"{half}_config", fields)
        projection_dim = reader.count("projection_dim", 512)
        reader.finish()
        return cls(
            CLIPTextConfig.read(halves["text"]), CLIPVisionConfig.read(halves["vision"]), projection_dim=projection_dim
        )


@dataclass(frozen=True, eq=False, repr=False)
class CLIPText(TextModel):
    """The half of a CLIP that reads a text, with its tokenizer."""

    config: CLIPTextConfig
    tokenizer: SubwordTokenizer
    token_embedding: Embedding
    position_embedding: Embedding
    blocks: tuple[EncoderBlock, ...]
    final_norm: LayerNorm
    projection: Linear | None = field(default=None, kw_only=True)

    def forward(
        self, ids: np.ndarray, *, mask: np.ndarray | None = None, trace: Recorder = NULL_RECORDER
    ) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of ids ``B T``; `mask`, ``B 1 1 T``, is True where there is text.

        Vectors of padding are 0. Taps ``token_embeddings``, ``position_embeddings``, ``embeddings``, for each block
        ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and ``blocks.i.output``, and ``final_norm``.
        """
        x = trace("token_embeddings", self.token_embedding(ids), "B T E")
        positions = learned_positions(self.position_embedding.weight, ids.shape[1])
        x = trace("embeddings", x + trace("position_embeddings", positions, "T E"), "B T E")
        x = run_blocks(self.blocks, x, mask, trace, causal=True)
        return without_padding(trace("final_norm", traced_norm(self.final_norm, x, trace, "final_norm"), "B T E"), mask)

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> PooledOutput:
        """Return the result: the vector of the end token stands for the text."""
        ends = [self._end(encoding.ids) for encoding in encodings]
        return PooledOutput(
            hidden, encodings, pool=lambda hidden: hidden[np.arange(len(ends)), ends], project=self.projection
        )

    def _end(self, ids: Sequence[int]) -> int:
        """Return the position of the end token; as in transformers the first, where there is none."""
        end = max(ids) if self.config.end_id == _OLD_END_ID else self.config.end_id
        return ids.index(end) if end in ids else 0

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = CLIPTextConfig.read(checkpoint.config())
        names = "text_model", "embeddings.token_embedding.weight", "text_projection.weight"
        layers = _load_half(cls, checkpoint, config, dtype, *names)
        return cls(name, config, tokenizer_for(checkpoint, config.vocab_size), **layers)

    @classmethod
    def layers(cls, source: TensorSource, config: CLIPTextConfig, prefix: str, projection_dim: int) -> dict[str, Any]:
        """Return the fields that are layers; a projection, unless `projection_dim` is 0, is not under `prefix`."""
        half, E = source.at(prefix), config.embed_dim
        embeddings = half.at("embeddings")
        return {
            "token_embedding": embedding(embeddings, "token_embedding", config.vocab_size, E),
            "position_embedding": embedding(embeddings, "position_embedding", config.max_positions, E),
            "blocks": _blocks(half, config),
            "final_norm": layer_norm(half, "final_layer_norm", E, config.norm_eps),
            "projection": linear(source, "text_projection", E, projection_dim, bias=False) if projection_dim else None,
        }


@dataclass(frozen=True, eq=False, repr=False)
class CLIPVision(ImageModel):
    """The half of a CLIP that looks at a picture."""

    config: CLIPVisionConfig
    embedding_norm: LayerNorm
    pooled_norm: LayerNorm
    projection: Linear | None = field(default=None, kw_only=True)

    def embed_patches(self, pixels: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the vectors, ``B T E``, of the numbers of pictures, ``B C Y X``.

        Taps those of `PatchEmbedding` and ``normed_embeddings``.
        """
        embeddings = self.patches(pixels, self.config, trace=trace)
        x = traced_norm(self.embedding_norm, embeddings, trace, "embedding_norm")
        return trace("normed_embeddings", x, "B T E")

    def encode_patches(self, x: np.ndarray, *, trace: Recorder = NULL_RECORDER) -> np.ndarray:
        """Return the contextual vectors, ``B T E``, of the vectors of patches.

        Taps for each block ``blocks.i.attn.*``, ``blocks.i.attn_residual``, ``blocks.i.mlp.*`` and
        ``blocks.i.output``; there is no norm after the last.
        """
        return run_blocks(self.blocks, x, None, trace)

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> ImageOutput:
        """Return the result: the vector of [CLS], normed, stands for the picture."""
        return ImageOutput(
            hidden, encodings, pool=lambda hidden: self.pooled_norm(hidden[:, 0]), project=self.projection
        )

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = CLIPVisionConfig.read(checkpoint.config())
        names = "vision_model", "embeddings.class_embedding", "visual_projection.weight"
        layers = _load_half(cls, checkpoint, config, dtype, *names)
        return cls(name, config, **layers, processor=_processor(checkpoint, config))

    @classmethod
    def layers(cls, source: TensorSource, config: CLIPVisionConfig, prefix: str, projection_dim: int) -> dict[str, Any]:
        """Return the fields that are layers; a projection, unless `projection_dim` is 0, is not under `prefix`."""
        half, E, eps = source.at(prefix), config.embed_dim, config.norm_eps
        return {
            "patches": PatchEmbedding.build(half.at("embeddings"), _PATCHES, config, bias=False, batched=False),
            "embedding_norm": layer_norm(half, "pre_layrnorm", E, eps),
            "blocks": _blocks(half, config),
            "pooled_norm": layer_norm(half, "post_layernorm", E, eps),
            "projection": (
                linear(source, "visual_projection", E, projection_dim, bias=False) if projection_dim else None
            ),
        }


@dataclass(frozen=True, eq=False, repr=False)
class CLIP(PretrainedModel):
    """Both halves of a CLIP: `text` and `vision` are models of their own, each with traces, edits and gradients.

    Parameters
    ----------
    text : CLIPText
    vision : CLIPVision
    logit_scale : array, no axes
        The logarithm of the factor of cosines.
    """

    config: CLIPConfig
    text: CLIPText
    vision: CLIPVision
    logit_scale: np.ndarray

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, which says which half has what a model of one kind has."""
        halves = [half for half, kind in (("text", CLIPText), ("vision", CLIPVision)) if name in dir(kind)]
        hint = f": it has two halves, use {' or '.join(f'model.{half}.{name}' for half in halves)}" if halves else ""
        raise AttributeError(f"a CLIP has no {name!r}{hint}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise: a half is called, with a text or with a picture."""
        raise RegardError(
            f"{self.name} has two halves: call model.text(text) or model.vision(picture), or "
            "model.similarity(pictures, texts)"
        )

    def __repr__(self) -> str:
        """Return the reprs of both halves."""
        return f"<CLIP {self.text!r}, {self.vision!r}>"

    def similarity(self, pictures: Pictures, texts: str | Sequence[str] | Mapping[str, Any]) -> np.ndarray:
        """Return the logits of pictures and texts, ``N M``: cosines of their embeddings times exp(logit_scale).

        A softmax over the texts gives the probability of each as the caption of a picture.

        Parameters
        ----------
        pictures
            N of them, as `CLIPVision` takes them.
        texts
            M of them, as `CLIPText` takes them.
        """
        of_texts = self.text(texts)
        assert isinstance(of_texts, PooledOutput)
        cosines = _unit(self.vision(pictures).embedding) @ _unit(of_texts.embedding).T
        logits: np.ndarray = cosines * np.exp(self.logit_scale)
        return logits

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config = CLIPConfig.read(checkpoint.config())
        text, vision = config.text, config.vision

        def layers(source: TensorSource) -> dict[str, Any]:
            return {
                "text": CLIPText.layers(source, text, "text_model", config.projection_dim),
                "vision": CLIPVision.layers(source, vision, "vision_model", config.projection_dim),
                "logit_scale": source.array("logit_scale", ()),
            }

        loaded = load_layers(checkpoint, layers, num_layers=text.num_layers + vision.num_layers, dtype=dtype)
        return cls(
            name,
            config,
            CLIPText(name, text, tokenizer_for(checkpoint, text.vocab_size), **loaded["text"]),
            CLIPVision(name, vision, **loaded["vision"], processor=_processor(checkpoint, vision)),
            loaded["logit_scale"],
        )


def _unit(x: np.ndarray) -> np.ndarray:
    """Return vectors, ``N P``, scaled to length 1."""
    scaled: np.ndarray = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return scaled


def _read_sizes(reader: ConfigReader, *, width: int, heads: int) -> dict[str, Any]:
    """Read the fields that both halves have; `width` and `heads` are their defaults."""
    reader.only(is_decoder=False, add_cross_attention=False, is_encoder_decoder=False, pruned_heads={})
    reader.without_effect("initializer_factor", "dropout", "tie_encoder_decoder")
    sizes: dict[str, Any] = {
        "embed_dim": reader.count("hidden_size", width),
        "num_layers": reader.num_layers("num_hidden_layers", 12),
        "num_heads": reader.count("num_attention_heads", heads),
        "hidden_dim": reader.count("intermediate_size", 4 * width),
        "projection_dim": reader.count("projection_dim", 512),
        "activation": reader.activation("hidden_act", "quick_gelu"),
        "norm_eps": reader.positive("layer_norm_eps", 1e-5),
    }
    reader.splits("hidden_size", sizes["embed_dim"], sizes["num_heads"])
    return sizes


def _load_half(
    half: Any, checkpoint: Checkpoint, config: Any, dtype: Any, prefix: str, first: str, projection: str
) -> dict[str, Any]:
    """Load the layers of a half, whose names have the prefix inside a model with its projection."""
    shapes = checkpoint.tensors().shapes
    prefix = prefix if f"{prefix}.{first}" in shapes else ""
    width = config.projection_dim if projection in shapes else 0
    return load_layers(
        checkpoint,
        lambda source: half.layers(source, config, prefix, width),
        num_layers=config.num_layers,
        dtype=dtype,
    )


def _processor(checkpoint: Checkpoint, config: CLIPVisionConfig) -> ImageProcessor | None:
    return check_processor(read_processor(checkpoint.path, "CLIP"), config, checkpoint.path)


_PATCHES = ("class_embedding", "patch_embedding", "position_embedding.weight")
_BLOCK = {
    "attn_norm": "layer_norm1",
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.o_proj": "self_attn.out_proj",
    "mlp_norm": "layer_norm2",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
}


def _blocks(source: TensorSource, config: CLIPTextConfig | CLIPVisionConfig) -> tuple[EncoderBlock, ...]:
    sources = (source.at(f"encoder.layers.{i}") for i in range(config.num_layers))
    return tuple(encoder_block(at, _BLOCK, config, config.norm_eps, norm_first=True) for at in sources)
