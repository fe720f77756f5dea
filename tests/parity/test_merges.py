"""The tokenizers of RoBERTa, BART and GPT-2 from vocab.json and merges.txt, against those of transformers."""

from __future__ import annotations

import json

import pytest
from texts import TEXTS, varied_strings

from regard.text import SubwordTokenizer

MASK = {
    "__type": "AddedToken",
    "content": "<mask>",
    "lstrip": True,
    "rstrip": False,
    "single_word": False,
    "normalized": False,
}


@pytest.fixture
def write(tmp_path):
    """Return a function that learns merges from a few texts and writes them as files."""

    def write(special, config):
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        learned = Tokenizer(models.BPE())
        learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
        learned.train_from_iterator(TEXTS, trainer)
        rules = json.loads(learned.to_str())["model"]
        tokens = [*special, *rules["vocab"]]
        (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, rules["merges"]), ""]))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path

    return write


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize(
    ("kind", "special"),
    [
        ("RobertaTokenizer", ("<s>", "<pad>", "</s>", "<unk>", "<mask>")),
        ("BartTokenizer", ("<s>", "<pad>", "</s>", "<unk>", "<mask>")),
        ("GPT2Tokenizer", ("<|endoftext|>",)),
    ],
)
def test_the_tokens_of_transformers(transformers, write, kind, special, add_prefix_space):
    config = {"add_prefix_space": add_prefix_space} | ({"mask_token": MASK} if "<mask>" in special else {})
    folder = write(special, config)
    ours = SubwordTokenizer.from_folder(folder)
    theirs = getattr(transformers, kind).from_pretrained(folder)
    assert ours.pad_id == theirs.pad_token_id
    for text in [*TEXTS, *varied_strings(500), *(f"a {token} b{token}c" for token in special)]:
        expected = theirs(text, return_offsets_mapping=True)
        encoding = ours(text)
        assert list(encoding.ids) == expected["input_ids"], text
        assert list(encoding.offsets) == [tuple(span) for span in expected["offset_mapping"]], text
