"""Files of tokenizers as transformers and SentencePiece write them, whose components regard must admit."""

from __future__ import annotations

import base64
import warnings

import pytest
from texts import TEXTS
from trained_tokenizers import character_map

from regard.text import SubwordTokenizer
from regard.text.subword_tokenizer import NoTokenizer
from regard.text.tokenizer_class import has_other_rules
from regard.text.tokenizer_json import _character_map


def made(transformers, name):
    """Return a tokenizer with the few tokens that its class has by default; None if it needs more."""
    kind = getattr(transformers, name)
    if not issubclass(kind, transformers.PreTrainedTokenizerFast):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind()
    except (TypeError, ValueError, ImportError):  # needs a vocabulary, or a library
        return None


def test_every_class_of_transformers_is_read_or_refused_by_name(transformers, tmp_path):
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    read = set()
    for name in {name for name in TOKENIZER_MAPPING_NAMES.values() if isinstance(name, str)}:
        if (theirs := made(transformers, name)) is not None:
            theirs.save_pretrained(tmp_path / name)
            if has_other_rules(name):
                with pytest.raises(NoTokenizer, match=f"is a {name}"):
                    SubwordTokenizer.from_folder(tmp_path / name)
            else:
                SubwordTokenizer.from_folder(tmp_path / name)
                read.add(name.removesuffix("Tokenizer"))
    assert read >= {"Albert", "Bert", "CLIP", "Gemma", "GPT2", "Llama", "Qwen2", "Roberta", "T5"}
    assert len(read) > 20


def test_the_character_map_of_sentencepiece_makes_a_character_33_bytes_long(tmp_path):
    import sentencepiece

    (tmp_path / "text").write_text("\n".join(TEXTS))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=400, hard_vocab_limit=False
    )
    table = base64.b64encode(character_map(tmp_path / "m.model")).decode()
    assert _character_map({"type": "Precompiled", "precompiled_charsmap": table}) == 33
