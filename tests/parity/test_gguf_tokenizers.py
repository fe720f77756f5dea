"""Tokenizers in GGUF files, as llama.cpp's converter writes them, beside transformers' own of the same model."""

import json

import gguf
import pytest
import trained_tokenizers as trained
from texts import varied_strings
from tokenizers import Regex, pre_tokenizers

from gguf_files import as_read
from regard.text import SubwordTokenizer
from regard.text.gguf_pre_tokenizers import PRE_TOKENIZERS, component

STRINGS = [
    *varied_strings(300),
    "The Café of Élan 中文 mat",
    "a [MASK]  b <mask> c",
    "tab\tand\n\nline  ",
    " 'S it's 1234567",
    "",
]
BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
ROBERTA = {f"{name}_token": f"<{name}>" for name in ("unk", "pad", "mask")}
ROBERTA |= {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
OF_T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
EXTRA = tuple(f"<extra_id_{i}>" for i in reversed(range(100)))
ENDS, BEGIN = ("<s>", "</s>"), "<|begin_of_text|>"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
# Of each: the kind and the pre-tokenizer in the file, the class, its settings, what writes it, and how.
CASES = {
    "BERT": ("bert", "", "BertTokenizer", BERT, trained.word_pieces, trained.OF_BERT),
    "XLM-RoBERTa": (
        *("t5", "default", "XLMRobertaTokenizer", ROBERTA, trained.unigram),
        {"special": SPECIAL, "split_spaces": True, "mask": "<mask>", "ends": ENDS},
    ),
    "T5": (
        *("t5", "default", "T5Tokenizer", OF_T5, trained.unigram),
        {"special": ("<pad>", "</s>", "<unk>"), "last": EXTRA, "ends": ("", "</s>"), "split_spaces": True, "mask": ""},
    ),
    "RoBERTa": (
        *("gpt2", "roberta-bpe", "RobertaTokenizer", ROBERTA, trained.byte_level),
        {"special": (*SPECIAL, "<mask>"), "template": ENDS},
    ),
    "ModernBERT": (
        *("gpt2", "modern-bert", "PreTrainedTokenizerFast", BERT, trained.byte_level),
        {**trained.OF_BERT, "nfc": True},
    ),
    "Pythia": ("gpt2", "olmo", "GPTNeoXTokenizer", {}, trained.byte_level, trained.FAMILIES["gpt_neox"][2]),
    "Qwen3": ("gpt2", "qwen2", "Qwen2Tokenizer", {}, trained.byte_level, trained.FAMILIES["qwen3_moe"][2]),
    "Llama 3": (
        *("gpt2", "llama-bpe", "PreTrainedTokenizerFast", {"bos_token": BEGIN}, trained.byte_level),
        {"special": (BEGIN, "<|end_of_text|>"), "split": trained.CL100K, "template": (BEGIN, "")},
    ),
}


def metadata(folder, theirs, kind, pre):
    """Return what the converter writes of a tokenizer: its vocabulary, and special tokens as the library finds them."""
    size = max(theirs.get_vocab().values()) + 1
    by_id = {index: token for token, index in theirs.get_vocab().items()}
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    types = [1] * size
    for index, token in theirs.added_tokens_decoder.items():
        types[index] = 3 if token.special else 4
    if kind == "t5":
        types[model["unk_id"]] = 2
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(size)]
    if kind == "bert":
        tokens = [
            x if t == 3 else x.removeprefix("##") if x.startswith("##") else f"▁{x}"
            for x, t in zip(tokens, types, strict=True)
        ]
    values = {"model": kind, "pre": pre, "tokens": tokens, "token_type": types}
    if kind == "t5":
        scores = [score for _, score in model["vocab"]]
        values["scores"] = [*scores, *[-1000.0] * (size - len(scores))]
        values |= {"add_space_prefix": True, "remove_extra_whitespaces": False}  # as of a tokenizer.json
    special = gguf.SpecialVocab(folder, load_merges=kind == "gpt2", n_vocab=size)
    names = {"unk": "unknown", "pad": "padding", "sep": "seperator"}
    values |= {f"{names.get(name, name)}_token_id": i for name, i in special.special_token_ids.items()}
    values |= {f"add_{name}_token": value for name, value in special.add_special_token.items()}
    values |= {"merges": special.merges} if kind == "gpt2" else {}
    found = as_read({f"tokenizer.ggml.{key}": value for key, value in values.items()})
    if kind == "t5":
        table = trained.character_map(folder / "spm.model")
        found |= as_read({"tokenizer.ggml.precompiled_charsmap": list(table)})
        found["tokenizer.ggml.precompiled_charsmap"] = found["tokenizer.ggml.precompiled_charsmap"].astype("u1")
    return found


def take_spaces_before_masks(path):
    """Let the mask take the space before it, as those of RoBERTa and ModernBERT do."""
    document = json.loads(path.read_text())
    for token in document["added_tokens"]:
        token["lstrip"] = token["content"] in ("<mask>", "[MASK]")
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(("kind", "pre", "class_name", "settings", "write", "options"), CASES.values(), ids=CASES)
def test_ids_are_those_of_the_original(transformers, tmp_path, kind, pre, class_name, settings, write, options):
    write(tmp_path, {"model_type": "bert", "tokenizer_class": class_name, **settings}, **options)
    if kind == "gpt2":
        take_spaces_before_masks(tmp_path / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = SubwordTokenizer.from_gguf(metadata(tmp_path, theirs, kind, pre))
    for text in STRINGS:
        wanted = theirs(text)["input_ids"]
        assert list(ours(text).ids) == wanted, (text, ours(text).tokens, theirs.convert_ids_to_tokens(wanted))


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gpt-2", [byte_level()]),
        ("starcoder", [pre_tokenizers.Digits(individual_digits=True), byte_level()]),
        (
            "falcon",
            [
                pre_tokenizers.Punctuation(behavior="contiguous"),
                byte_level(),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
            ],
        ),
    ],
)
def test_texts_are_split_as_by_the_components_of_the_original(name, steps):
    """What these models have in their tokenizer.json: components in the place of expressions."""
    theirs = pre_tokenizers.Sequence(steps)
    ours = component(PRE_TOKENIZERS[name])
    for text in (each for each in STRINGS if "\u0a76" not in each):  # a mark since Unicode 11, later than the library's
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)
