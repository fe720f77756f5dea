"""Folders of tokenizers in each shape in which they are published: the ids of transformers' AutoTokenizer."""

from __future__ import annotations

import json

import pytest
from texts import varied_strings
from tokenizers import Tokenizer
from trained_tokenizers import CORPUS, byte_level, word_pieces

from regard.text import SubwordTokenizer
from regard.text.subword_tokenizer import NoTokenizer

STRINGS = [
    *varied_strings(300),
    "The Café of [E1] Élan [/E1] 中文 mat",
    " [MASK] of <mask> [PAD]<pad>x",
    "</s>Ünïcode",
    "",
]
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MPNET = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
GPT2 = ("<|endoftext|>",)
KINDS = {  # class: model type and special tokens
    "BertTokenizer": ("bert", BERT),
    "BertTokenizerFast": ("bert", BERT),
    "DistilBertTokenizer": ("distilbert", BERT),
    "ElectraTokenizerFast": ("electra", BERT),
    "MPNetTokenizer": ("mpnet", MPNET),
    "RobertaTokenizer": ("roberta", ROBERTA),
    "BartTokenizerFast": ("bart", ROBERTA),
    "GPT2Tokenizer": ("gpt2", GPT2),
    "CLIPTokenizer": ("clip", ("<|startoftext|>", "<|endoftext|>")),
    "PreTrainedTokenizerFast": ("modernbert", BERT),
}
SETTINGS = {
    "none": {},
    "cased": {"do_lower_case": False},
    "uncased": {"do_lower_case": True},
    "accents": {"do_lower_case": True, "strip_accents": False},
    "stripped": {"do_lower_case": False, "strip_accents": True},
    "chinese": {"tokenize_chinese_chars": False},
    "space": {"add_prefix_space": True},
}
SHAPES = ("vocabulary", "vocabulary classless", "decoder", "added", "json", "json decoder", "json added")
E1, E2 = "[E1]", "[/E1]"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Return a function that gives the folder of a trained tokenizer of a kind, made once."""
    made = {}

    def folder(model_type, special):
        if model_type not in made:
            path = made[model_type] = tmp_path_factory.mktemp(model_type)
            if model_type == "clip":
                clip(path, special)
            elif special in (GPT2, ROBERTA):
                byte_level(path, {"model_type": model_type}, special)
                Tokenizer.from_file(str(path / "tokenizer.json")).model.save(str(path))
            else:
                ends = (special[0], special[2]) if special == MPNET else ("[CLS]", "[SEP]")
                word_pieces(path, {"model_type": model_type}, special, template=ends)
        return made[model_type]

    return folder


def clip(folder, special):
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=special[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=letters, special_tokens=[*special, *(f"{x}</w>" for x in letters)],
        end_of_word_suffix="</w>", show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([text.lower() for text in CORPUS], trainer)
    tokenizer.model.save(str(folder))


def publish(source, folder, model_type, kind, settings, shape, size):
    """Write a folder of a shape: which files have the vocabulary, the settings and the tokens that were added."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "vocab_size": size + 2}))
    names = ["tokenizer.json"] if shape.startswith("json") else ["vocab.txt", "vocab.json", "merges.txt"]
    for name in names:
        if (source / name).exists():
            (folder / name).write_bytes((source / name).read_bytes())
    config = {**settings, **({"tokenizer_class": kind} if "classless" not in shape else {})}
    plain = {"lstrip": False, "rstrip": False, "single_word": False}
    if "decoder" in shape:
        added = {
            i: {"content": x, "normalized": True, "special": False, **plain} for i, x in ((size, E1), (size + 1, E2))
        }
        config["added_tokens_decoder"] = added
    if "added" in shape:
        (folder / "added_tokens.json").write_text(json.dumps({E2: size + 1, E1: size}))
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": [E1]}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_transformers(transformers, vocabulary, tmp_path, kind, settings, shape):
    model_type, special = KINDS[kind]
    source = vocabulary(model_type, special)
    if shape.startswith("json") and not (source / "tokenizer.json").exists():
        pytest.skip("no tokenizer.json of this kind")
    if kind == "PreTrainedTokenizerFast" and not shape.startswith("json"):
        pytest.skip("its class reads tokenizer.json alone")
    vocab = source / "vocab.txt"
    size = (
        len(vocab.read_text().splitlines()) if vocab.exists() else len(json.loads((source / "vocab.json").read_text()))
    )
    publish(source, tmp_path / "model", model_type, kind, SETTINGS[settings], shape, size)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = SubwordTokenizer.from_folder(tmp_path / "model")
    for text in STRINGS:
        assert list(ours(text).ids) == theirs(text)["input_ids"], (text, ours(text).tokens)


@pytest.mark.parametrize("shape", ["vocabulary", "json"])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("BertTokenizer", {"cls_token": "[MASK]"}),
        ("BertTokenizer", {"sep_token": "[PAD]", "unk_token": "[MASK]"}),
        ("RobertaTokenizer", {"cls_token": "<mask>", "sep_token": "<pad>"}),
        ("GPT2Tokenizer", {"pad_token": "<|pad|>"}),
        ("CLIPTokenizer", {"bos_token": "<|endoftext|>"}),
    ],
)
@pytest.mark.parametrize("place", ["tokenizer_config.json", "special_tokens_map.json"])
def test_special_tokens_of_other_names(transformers, vocabulary, tmp_path, kind, settings, shape, place):
    model_type, special = KINDS[kind]
    source, folder = vocabulary(model_type, special), tmp_path / "model"
    if shape == "json" and kind == "CLIPTokenizer":
        pytest.skip("no tokenizer.json of this kind")
    publish(source, folder, model_type, kind, {}, shape, 900)
    path = folder / place
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **settings}))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), SubwordTokenizer.from_folder(folder)
    for text in STRINGS:
        assert list(ours(text).ids) == theirs(text)["input_ids"], (text, ours(text).tokens)
    if "pad_token" in settings:
        assert ours.pad_id == theirs.pad_token_id


@pytest.mark.parametrize("declared", [None, "GPT2Tokenizer"])
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "gpt_neox", "llama", "olmo2", "mistral", "phi3", "smollm3"])
def test_a_vocabulary_of_another_model_type_is_refused(vocabulary, tmp_path, model_type, declared):
    if declared and model_type in ("qwen3", "gpt_neox", "llama", "smollm3"):
        pytest.skip("transformers takes the class that is named")
    publish(vocabulary("gpt2", GPT2), tmp_path / "model", model_type, declared, {}, "vocabulary", 10)
    with pytest.raises(NoTokenizer, match="is not built from"):
        SubwordTokenizer.from_folder(tmp_path / "model")


@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "BertweetTokenizer", "FunnelTokenizer"])
def test_a_class_that_its_files_do_not_define_is_refused_by_name(vocabulary, tmp_path, kind):
    publish(vocabulary("bert", BERT), tmp_path / "model", "bert", kind, {}, "vocabulary", 10)
    with pytest.raises(NoTokenizer, match=f"a {kind} is not built from"):
        SubwordTokenizer.from_folder(tmp_path / "model")
