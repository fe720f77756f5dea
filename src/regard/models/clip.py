"""CLIP: an encoder of texts and one of pictures, trained to agree (Radford et al. 2021, arXiv:2103.00020).

Both halves are encoders with a norm before each sublayer. A token of a text attends to itself and to earlier ones, and
the vector of the end token stands for the text; the patches of a picture attend to all, and [CLS] stands for it. A
projection each leads to one space, in which what belongs together is near.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import learned_positions
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.models.base import PretrainedModel, TextModel
from regard.models.bert import run_blocks, without_padding
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.listed_tensors import TensorSpec, linear_tensors, load_tensors, norm_tensors
from regard.models.checkpoint.model_config import ModelConfig
from regard.models.checkpoint.open import Checkpoint, tokenizer_for
from regard.models.images.model import ImageModel, ImageOutput, Pictures, check_processor
from regard.models.images.patches import ImageConfig, PatchEmbedding, patch_tensors, read_image_sizes
from regard.models.images.processor import read_processor
from regard.models.listed_build import encoder_blocks, layer_norm, linear
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
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="clip_text_model")
        config = cls(
            vocab_size=reader.count("vocab_size", 49408),
            **_read_sizes(reader, width=512, heads=8),
            max_positions=reader.count("max_position_embeddings", 77),
            end_id=reader.index("eos_token_id", 49407, 1 << 31),
        )
        reader.finish()
        return config


@dataclass(frozen=True)
class CLIPVisionConfig(ImageConfig):
    """The sizes of the picture half, and of the space into which it projects."""

    projection_dim: int

    @classmethod
    def read(cls, reader: ConfigReader) -> Self:
        """Read a Hugging Face config.json; an unknown field or value is an error."""
        reader.only(model_type="clip_vision_model")
        config = cls(**_read_sizes(reader, width=768, heads=12), **read_image_sizes(reader, patch_size=32))
        reader.finish()
        return config


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
        reader.ignore("initializer_factor", "logit_scale_init_value")
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

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.config.max_positions

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
        x = run_blocks(self.blocks, x, mask, trace, [{"causal": True}] * len(self.blocks))
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
        config, shapes = CLIPTextConfig.read(checkpoint.config()), checkpoint.tensors().shapes
        prefix = _prefix(shapes, "text_model.", "embeddings.token_embedding.weight")
        weights = load_tensors(
            checkpoint,
            _text_tensors(config, prefix, config.projection_dim if "text_projection.weight" in shapes else 0),
            num_layers=config.num_layers,
            dtype=dtype,
        )
        return cls.from_weights(weights, config, name, tokenizer_for(checkpoint, config.vocab_size))

    @classmethod
    def from_weights(
        cls, weights: dict[str, np.ndarray], config: CLIPTextConfig, name: str, tokenizer: SubwordTokenizer
    ) -> Self:
        """Make the half of its tensors, whose names begin with ``text.``."""
        return cls(
            name,
            config,
            tokenizer,
            Embedding(weights["text.token_embedding.weight"]),
            Embedding(weights["text.position_embedding.weight"]),
            encoder_blocks(weights, "text.", config, config.norm_eps, norm_first=True),
            layer_norm(weights, "text.final_norm", config.norm_eps),
            projection=linear(weights, "text.projection") if "text.projection.weight" in weights else None,
        )


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
        return run_blocks(self.blocks, x, None, trace, [{}] * len(self.blocks))

    def output(self, hidden: np.ndarray, encodings: tuple[Encoding, ...]) -> ImageOutput:
        """Return the result: the vector of [CLS], normed, stands for the picture."""
        return ImageOutput(
            hidden, encodings, pool=lambda hidden: self.pooled_norm(hidden[:, 0]), project=self.projection
        )

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, name: str, dtype: Any = np.float32) -> Self:
        """Build the model from its checkpoint."""
        config, shapes = CLIPVisionConfig.read(checkpoint.config()), checkpoint.tensors().shapes
        prefix = _prefix(shapes, "vision_model.", "embeddings.class_embedding")
        weights = load_tensors(
            checkpoint,
            _vision_tensors(config, prefix, config.projection_dim if "visual_projection.weight" in shapes else 0),
            num_layers=config.num_layers,
            dtype=dtype,
        )
        return cls.from_weights(weights, config, name, checkpoint)

    @classmethod
    def from_weights(
        cls, weights: dict[str, np.ndarray], config: CLIPVisionConfig, name: str, checkpoint: Checkpoint
    ) -> Self:
        """Make the half of its tensors, whose names begin with ``vision.``."""
        return cls(
            name,
            config,
            PatchEmbedding.from_weights(weights, "vision."),
            encoder_blocks(weights, "vision.", config, config.norm_eps, norm_first=True),
            layer_norm(weights, "vision.embedding_norm", config.norm_eps),
            layer_norm(weights, "vision.pooled_norm", config.norm_eps),
            projection=linear(weights, "vision.projection") if "vision.projection.weight" in weights else None,
            processor=check_processor(read_processor(checkpoint.path, "CLIP"), config, checkpoint.path),
        )


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

        def tensors() -> Iterator[TensorSpec]:
            yield from _text_tensors(text, "text_model.", config.projection_dim)
            yield from _vision_tensors(vision, "vision_model.", config.projection_dim)
            yield TensorSpec("logit_scale", "logit_scale", ())

        weights = load_tensors(
            checkpoint,
            tensors(),
            num_layers=text.num_layers + vision.num_layers,
            dtype=dtype,
        )
        return cls(
            name,
            config,
            CLIPText.from_weights(weights, text, name, tokenizer_for(checkpoint, text.vocab_size)),
            CLIPVision.from_weights(weights, vision, name, checkpoint),
            weights["logit_scale"],
        )


def _unit(x: np.ndarray) -> np.ndarray:
    """Return vectors, ``N P``, scaled to length 1."""
    scaled: np.ndarray = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return scaled


def _read_sizes(reader: ConfigReader, *, width: int, heads: int) -> dict[str, Any]:
    """Read the fields that both halves have; `width` and `heads` are their defaults."""
    reader.only(is_decoder=False, add_cross_attention=False, is_encoder_decoder=False, pruned_heads={})
    reader.ignore("initializer_factor", "dropout", "tie_encoder_decoder")
    sizes: dict[str, Any] = {
        "embed_dim": reader.count("hidden_size", width),
        "num_layers": reader.count("num_hidden_layers", 12),
        "num_heads": reader.count("num_attention_heads", heads),
        "hidden_dim": reader.count("intermediate_size", 4 * width),
        "projection_dim": reader.count("projection_dim", 512),
        "activation": reader.activation("hidden_act", "quick_gelu"),
        "norm_eps": reader.positive("layer_norm_eps", 1e-5),
    }
    reader.splits("hidden_size", sizes["embed_dim"], sizes["num_heads"])
    return sizes


def _prefix(shapes: Mapping[str, Any], prefix: str, name: str) -> str:
    """Return the prefix of all names, which a half has inside a model with its projection."""
    return prefix if prefix + name in shapes else ""


def _text_tensors(config: CLIPTextConfig, prefix: str, projection_dim: int) -> Iterator[TensorSpec]:
    E = config.embed_dim
    at = f"{prefix}embeddings"
    yield TensorSpec("text.token_embedding.weight", f"{at}.token_embedding.weight", (config.vocab_size, E))
    yield TensorSpec("text.position_embedding.weight", f"{at}.position_embedding.weight", (config.max_positions, E))
    yield from _block_tensors(config, "text.", prefix)
    yield from norm_tensors("text.final_norm", f"{prefix}final_layer_norm", E)
    if projection_dim:
        yield from linear_tensors("text.projection", "text_projection", E, projection_dim, bias=False)


_PATCHES = {
    "class_embedding": "class_embedding",
    "projection.weight": "patch_embedding.weight",
    "position_embedding.weight": "position_embedding.weight",
}


def _vision_tensors(config: CLIPVisionConfig, prefix: str, projection_dim: int) -> Iterator[TensorSpec]:
    E = config.embed_dim
    names = {part: f"{prefix}embeddings.{hf_part}" for part, hf_part in _PATCHES.items()}
    yield from patch_tensors(config, names, "vision.", batched=False)
    yield from norm_tensors("vision.embedding_norm", f"{prefix}pre_layrnorm", E)
    yield from _block_tensors(config, "vision.", prefix)
    yield from norm_tensors("vision.pooled_norm", f"{prefix}post_layernorm", E)
    if projection_dim:
        yield from linear_tensors("vision.projection", "visual_projection", E, projection_dim, bias=False)


def _block_tensors(config: CLIPTextConfig | CLIPVisionConfig, half: str, prefix: str) -> Iterator[TensorSpec]:
    E, F = config.embed_dim, config.hidden_dim
    for i in range(config.num_layers):
        at, hf = f"{half}blocks.{i}", f"{prefix}encoder.layers.{i}"
        yield from norm_tensors(f"{at}.attn_norm", f"{hf}.layer_norm1", E)
        for part, hf_part in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
            yield from linear_tensors(f"{at}.attn.{part}_proj", f"{hf}.self_attn.{hf_part}", E, E)
        yield from norm_tensors(f"{at}.mlp_norm", f"{hf}.layer_norm2", E)
        yield from linear_tensors(f"{at}.mlp.up_proj", f"{hf}.mlp.fc1", E, F)
        yield from linear_tensors(f"{at}.mlp.down_proj", f"{hf}.mlp.fc2", F, E)
