"""Tokenizers small enough to be made in a test, as the files that a model would bring."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "un", "##believ", "##ably", "É", "e", ",", "字")
SPECIAL = PIECES[:5]


def write_vocab(folder: Path, pieces: tuple[str, ...] = PIECES, config: dict[str, object] | None = None) -> Path:
    """Write a WordPiece ``vocab.txt`` and, if given, its ``tokenizer_config.json``."""
    path = folder / "vocab.txt"
    path.write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def wordpiece_json() -> dict[str, object]:
    """Return the ``tokenizer.json`` of `PIECES`, written out by hand, that cuts at 3 tokens and pads to 7."""
    return {
        "version": "1.0",
        "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 7},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            {"id": i, "content": token, "special": True, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for i, token in enumerate(SPECIAL)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("[CLS]", 0), _sequence("A", 0), _special("[SEP]", 0)],
            "pair": [
                *(_special("[CLS]", 0), _sequence("A", 0), _special("[SEP]", 0)),
                *(_sequence("B", 1), _special("[SEP]", 1)),
            ],
            "special_tokens": {
                token: {"id": token, "ids": [PIECES.index(token)], "tokens": [token]} for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: i for i, piece in enumerate(PIECES)},
        },
    }


def _special(token: str, type_id: int) -> dict[str, object]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _sequence(name: str, type_id: int) -> dict[str, object]:
    return {"Sequence": {"id": name, "type_id": type_id}}


def byte_level() -> Tokenizer:
    """Return a byte-level BPE tokenizer that spells any text, with ``<|end|>`` as its only special token."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=307,
        initial_alphabet=ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat", "the other cat"] * 3, trainer)
    return tokenizer
