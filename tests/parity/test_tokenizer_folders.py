"""Folders of tokenizers in each shape in which they are published: the ids of transformers' AutoTokenizer."""

import base64
import itertools
import json
import warnings

import pytest
import trained_tokenizers as trained
from texts import TEXTS, varied_strings
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from trained_tokenizers import CHATML, CORPUS, QWEN

from regard._utils.errors import RegardError
from regard.text import SubwordTokenizer
from regard.text.subword_tokenizer import NoTokenizer
from regard.text.tokenizer_class import has_other_rules
from regard.text.tokenizer_json import _character_map
from regard.text.tokenizer_rules import _RULES
from sweeps import pairwise_cover

STRINGS = [
    *varied_strings(300),
    "The Café of [E1] Élan [/E1] 中文 mat",
    " [MASK] of <mask> [PAD]<pad>x",
    "</s>Ünïcode",
    "",
]
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
GPT2 = ("<|endoftext|>",)
CLIP = ("<|startoftext|>", "<|endoftext|>")
MODEL_TYPES = {
    "BertTokenizer": "bert",
    "BertTokenizerFast": "bert",
    "DistilBertTokenizer": "distilbert",
    "ElectraTokenizerFast": "electra",
    "MPNetTokenizer": "mpnet",
    "RobertaTokenizer": "roberta",
    "BartTokenizerFast": "bart",
    "LongformerTokenizer": "roberta",
    "GPT2Tokenizer": "gpt2",
    "CodeGenTokenizer": "gpt2",
    "CohereTokenizerFast": "gpt2",
    "DebertaTokenizer": "gpt2",
    "GPTNeoXTokenizer": "gpt_neox",
    "Qwen2Tokenizer": "qwen2",
    "Qwen2TokenizerFast": "qwen3",
    "Qwen3_5Tokenizer": "qwen3",
    "CLIPTokenizer": "clip",
    "PreTrainedTokenizerFast": "modernbert",
    "TokenizersBackend": "smollm3",
    "LlamaTokenizer": "llama",
    "LlamaTokenizerFast": "mistral",
    "CodeLlamaTokenizer": "llama",
    "GemmaTokenizer": "gemma2",
    "AlbertTokenizer": "albert",
    "DebertaV2TokenizerFast": "deberta-v2",
    "XLMRobertaTokenizer": "xlm-roberta",
    "CamembertTokenizerFast": "camembert",
    "T5TokenizerFast": "t5",
}
LETTERS = {
    "cased": {"do_lower_case": False},
    "uncased": {"do_lower_case": True},
    "accents": {"do_lower_case": True, "strip_accents": False},
    "stripped": {"do_lower_case": False, "strip_accents": True},
    "chinese": {"tokenize_chinese_chars": False},
}
SPACES = {"space": {"add_prefix_space": True}, "no space": {"add_prefix_space": False}}
OFFSETS = {"offsets": {"trim_offsets": False, "add_prefix_space": True}, "errors": {"errors": "ignore"}}
ENDS = {
    "ends": {"add_bos_token": True, "add_eos_token": True},
    "no ends": {"add_bos_token": False, "add_eos_token": False},
}
LEGACY = {"legacy": {"legacy": True}, "not legacy": {"legacy": False}, "null": {"legacy": None}}
SETTINGS = {  # of each kind of files, beside none
    "bert": LETTERS,
    "byte level": {
        **{**SPACES, **OFFSETS, **ENDS, "cased": LETTERS["cased"]},
        "named start": {"add_bos_token": True, "bos_token": "<|endoftext|>"},  # also where the class has none
    },
    "clip": {**LETTERS, **SPACES},
    "llama": {**SPACES, **LEGACY, **ENDS, "legacy no space": {"legacy": True, "add_prefix_space": False}},
    "gemma": {**SPACES, **ENDS},
    "albert": {**SPACES, **LETTERS, "keep accents": {"keep_accents": True}},
    "deberta-v2": {**SPACES, **LETTERS, "marks": {"split_by_punct": True}},
    "unigram": {**SPACES, **ENDS, "cased": LETTERS["cased"]},
    "t5": {**SPACES, **ENDS, "ids": {"extra_ids": 10}},
}
FILES = {
    **dict.fromkeys(("bert", "distilbert", "electra", "mpnet"), "bert"),
    **dict.fromkeys(("roberta", "bart", "gpt2", "gpt_neox", "qwen2", "qwen3", "modernbert", "smollm3"), "byte level"),
    **{"clip": "clip", "llama": "llama", "mistral": "llama", "gemma2": "gemma", "albert": "albert"},
    **{"deberta-v2": "deberta-v2", "xlm-roberta": "unigram", "camembert": "unigram", "t5": "t5"},
}
# Classes for whose files the model type of BERT stands, and what writes their vocabulary.
SOURCES = {"HerbertTokenizerFast": "herbert", "FunnelTokenizer": "funnel", "ConvBertTokenizer": "bert"}
VOCABULARY_SHAPES = ("vocabulary", "vocabulary classless", "vocabulary decoder", "vocabulary added")
JSON_SHAPES = ("json", "json classless", "json decoder", "json added")
E1, E2 = "[E1]", "[/E1]"


def clip(folder, _, special):
    """Write byte-level BPE with a suffix at the end of words."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=special[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=letters, special_tokens=[*special, *(f"{x}</w>" for x in letters)],
        end_of_word_suffix="</w>", show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([text.lower() for text in CORPUS], trainer)
    end, begin = ((token, tokenizer.token_to_id(token)) for token in reversed(special))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.post_processor = processors.RobertaProcessing(end, begin, trim_offsets=False, add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))


def herbert(folder, config, special):
    """Write BPE of BERT's words with a suffix at their end."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[*special], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))


ENDS_OF_TEXT = ("<s>", "</s>")
PIECES = {"split_spaces": True, "mask": ""}
MASKED = {**PIECES, "mask": "<mask>", "ends": ENDS_OF_TEXT}
CAMEMBERT = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>")
EXTRA = tuple(f"<extra_id_{i}>" for i in reversed(range(100)))
WRITERS = {  # of each model type: what writes its files, and how
    **dict.fromkeys(("bert", "distilbert", "electra"), (trained.word_pieces, trained.OF_BERT)),
    "mpnet": (trained.word_pieces, trained.OF_MPNET),
    **dict.fromkeys(("roberta", "bart"), (trained.byte_level, {"special": ROBERTA, "template": ENDS_OF_TEXT})),
    **dict.fromkeys(("gpt2", "gpt_neox", "smollm3"), (trained.byte_level, {"special": GPT2})),
    **dict.fromkeys(("qwen2", "qwen3"), (trained.byte_level, {"special": GPT2, "split": QWEN, "nfc": True})),
    "modernbert": (trained.byte_level, trained.OF_BERT),
    "clip": (clip, {"special": CLIP}),
    **dict.fromkeys(("llama", "mistral"), (trained.fallback_bpe, {"template": ("<s>", "")})),
    "gemma2": (trained.fallback_bpe, {"template": ("<bos>", ""), "prepend": False}),
    "albert": (trained.unigram, trained.OF_ALBERT),
    "deberta-v2": (trained.unigram, trained.OF_DEBERTA),
    "xlm-roberta": (trained.unigram, {"special": ("<s>", "<pad>", "</s>", "<unk>"), **MASKED}),
    "camembert": (trained.unigram, {"special": CAMEMBERT, "last": ("<mask>",), **MASKED}),
    "t5": (trained.unigram, {"special": ("<pad>", "</s>", "<unk>"), "last": EXTRA, "ends": ("", "</s>"), **PIECES}),
    "herbert": (herbert, {"special": ("<s>", "<pad>", "</s>", "<unk>", "<mask>")}),
    "funnel": (
        trained.word_pieces,
        {"special": ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"), "template": ("<cls>", "<sep>"), "unknown": "<unk>"},
    ),
}


def cases():
    """Return each class in each shape in which it is published, with the settings that its files may have."""
    found = []
    for kind, model_type in MODEL_TYPES.items():
        files = FILES[model_type]
        only_json = files not in ("bert", "byte level", "clip") or model_type in ("modernbert", "smollm3")
        only_json |= kind == "Qwen3_5Tokenizer"
        shapes = JSON_SHAPES if only_json else VOCABULARY_SHAPES + JSON_SHAPES
        found += [(kind, settings, shape) for settings in ("none", *SETTINGS[files]) for shape in shapes]
    shapes = ("vocabulary", "vocabulary added", "json", "json decoder", "json added")
    found += [(kind, settings, shape) for kind in SOURCES for settings in ("none", *LETTERS) for shape in shapes]
    return covered([dict(zip(("kind", "settings", "shape"), case, strict=True)) for case in found])


def covered(found, always=()):
    """Return cases as parameters: `always` and the few in which each pair occurs run, the others are the sweep."""
    cover = pairwise_cover(found) | {i for i, case in enumerate(found) if tuple(case.values()) in always}
    return [
        pytest.param(*case.values(), id="-".join(case.values()), marks=[pytest.mark.sweep] * (i not in cover))
        for i, case in enumerate(found)
    ]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Return a function that gives the folder of a trained tokenizer of a model type, made once."""
    made = {}

    def folder(model_type):
        if model_type not in made:
            made[model_type] = tmp_path_factory.mktemp(model_type)
            make(model_type, made[model_type])
        return made[model_type]

    return folder


def make(model_type, folder):
    """Write the tokenizer.json of a model type, and the vocabulary that its class can be built from."""
    write, options = WRITERS[model_type]
    write(folder, {"model_type": model_type}, **options)
    if write is trained.byte_level:
        Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))


def publish(source, folder, model_type, kind, settings, shape):
    """Write a folder of a shape: which files have the vocabulary, the settings and the tokens that were added."""
    folder.mkdir()
    size = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size()
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
        stored = Tokenizer.from_file(str(source / "tokenizer.json")).get_added_tokens_decoder()
        flags = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
        listed = {i: {flag: getattr(token, flag) for flag in flags} for i, token in stored.items()}
        config["added_tokens_decoder"] = (listed if shape.startswith("json") else {}) | added
    if "added" in shape:
        (folder / "added_tokens.json").write_text(json.dumps({E2: size + 1, E1: size}))
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": [E1]}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def change(path, **fields):
    """Give a file of JSON other values."""
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **fields}))


@pytest.fixture
def published(vocabulary, tmp_path):
    """Return a function that writes a folder of a class, by the vocabulary of its model type, and returns the folder.

    `source` has another vocabulary, and `model_type` is another than that of the class.
    """

    def write(kind, settings=None, shape="json", *, model_type=None, source=None):
        model_type = model_type or MODEL_TYPES.get(kind, "bert")
        folder = tmp_path / f"{kind} of {model_type}"
        publish(vocabulary(source or SOURCES.get(kind, model_type)), folder, model_type, kind, settings or {}, shape)
        return folder

    return write


def assert_same(transformers, folder, texts=STRINGS, kind="AutoTokenizer"):
    """Assert that a folder gives the ids and the spans of transformers."""
    theirs, ours = getattr(transformers, kind).from_pretrained(folder), SubwordTokenizer.from_folder(folder)
    for text in texts:
        wanted, found = theirs(text, return_offsets_mapping=True), ours(text)
        assert list(found.ids) == wanted["input_ids"], (text, found.tokens)
        assert list(found.offsets) == wanted["offset_mapping"], (text, found.tokens)
    return theirs, ours


def assert_same_tokens(transformers, folder, tokens):
    """Assert that texts of `tokens` have the ids, spans and decoded texts of transformers."""
    texts = [text for x in tokens for text in (f"a {x} b{x}c", f"{x}  {x}.", f"É {x.upper()}{x}")]
    theirs, ours = assert_same(transformers, folder, texts)
    for ids in (theirs(text)["input_ids"] for text in texts):
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    return theirs, ours


@pytest.mark.parametrize(("kind", "settings", "shape"), cases())
def test_the_ids_of_transformers(transformers, published, kind, settings, shape):
    chosen = {"none": {}, **SETTINGS[FILES[MODEL_TYPES.get(kind, "bert")]]}[settings]
    assert_same(transformers, published(kind, chosen, shape))


@pytest.mark.parametrize("kind", ["WhisperTokenizer", "NllbTokenizerFast", "BertweetTokenizer", "MBartTokenizer"])
def test_a_class_of_other_rules_is_refused(transformers, published, kind):
    """The tokens of transformers are others than those of tokenizer.json, which is read if the class says so."""
    folder = published(kind, model_type="gpt2")
    with pytest.raises(NoTokenizer, match=f"is a {kind.removesuffix('Fast')}, which .* set tokenizer_class to Tok"):
        SubwordTokenizer.from_folder(folder)
    change(folder / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    assert_same(transformers, folder)


def test_every_class_of_transformers_is_known(transformers):
    """It is made here, refused, or reads tokenizer.json as it is."""
    from transformers.models.auto import tokenization_auto

    named = {name for name in dir(transformers) if name.endswith("Tokenizer")}
    named |= {name for name in tokenization_auto.TOKENIZER_MAPPING_NAMES.values() if name}
    as_it_is = set()
    for name in {name.removesuffix("Fast") for name in named}:
        kind = tokenization_auto.tokenizer_class_from_name(name)
        if not issubclass(kind, transformers.PreTrainedTokenizerBase) or kind is transformers.PreTrainedTokenizer:
            continue
        if issubclass(kind, transformers.TokenizersBackend) and "__init__" not in vars(kind):
            as_it_is.add(name)
        elif kind is not transformers.TokenizersBackend:
            assert has_other_rules(name) != (name in _RULES), name
    assert not any(has_other_rules(name) for name in as_it_is)
    assert as_it_is == {"ConvBertTokenizer", "FNetTokenizer", "ParakeetTokenizer"}


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
    table = base64.b64encode(trained.character_map(tmp_path / "m.model")).decode()
    assert _character_map({"type": "Precompiled", "precompiled_charsmap": table}) == 33


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
def test_special_tokens_of_other_names(transformers, published, kind, settings, shape, place):
    folder = published(kind, shape=shape)
    change(folder / place, **settings)
    theirs, ours = assert_same(transformers, folder)
    if "pad_token" in settings:
        assert ours.pad_id == theirs.pad_token_id


@pytest.mark.parametrize(
    ("source", "model_type", "declared"),
    [
        *(("gpt2", model_type, None) for model_type in ("llama", "olmo2", "mistral", "phi3", "smollm3")),
        *(("gpt2", model_type, "GPT2Tokenizer") for model_type in ("olmo2", "mistral", "phi3")),
        *(("bert", "bert", kind) for kind in ("BertJapaneseTokenizer", "BertweetTokenizer", "SplinterTokenizer")),
    ],
)
def test_a_vocabulary_of_another_model_type_or_class_is_refused(published, source, model_type, declared):
    """Where the model type decides, and not the class that is named; of a class that its files do not define."""
    folder = published(declared, shape="vocabulary", source=source, model_type=model_type)
    message = f"a {declared} is not built from" if source == "bert" else "is not built from"
    with pytest.raises(NoTokenizer, match=message):
        SubwordTokenizer.from_folder(folder)


def test_a_file_of_bytes_under_the_class_of_llama_is_read_as_it_is(transformers, published):
    """As those of Llama 3 and DeepSeek."""
    theirs, _ = assert_same(transformers, published("LlamaTokenizerFast", {"legacy": True}, source="smollm3"))
    assert type(theirs).__name__ == "TokenizersBackend"


@pytest.mark.parametrize("kind", ["PreTrainedTokenizer", "TokenizersBackend", "MadeUpTokenizer", None])
@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama", "qwen2", "t5", "deberta-v2"])
def test_a_class_of_no_rules_reads_the_file_as_it_is(transformers, published, kind, model_type):
    assert_same(transformers, published(kind, {"do_lower_case": False}, model_type=model_type))


@pytest.mark.parametrize("space", [False, True])
def test_a_sequence_with_bytes_keeps_its_other_steps(vocabulary, published, space):
    """transformers leaves them out, though SmolLM2's vocabulary, under GPT-2's class, was made with them."""
    settings = {"add_prefix_space": space}
    ours = SubwordTokenizer.from_folder(published("GPT2Tokenizer", settings, model_type="llama", source="qwen3"))
    stored, plain = (SubwordTokenizer.from_file(vocabulary("qwen3") / "tokenizer.json") for _ in range(2))
    plain.backend.normalizer = None
    plain.backend.pre_tokenizer[1].add_prefix_space = space
    assert any(space != (ours(text).ids == stored(text).ids) for text in STRINGS)
    for text in STRINGS:
        assert ours(text).ids == plain(text).ids


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_a_tokenizer_that_is_saved_is_the_same(transformers, published, kind):
    """A trained model is saved with its tokenizer as it is, of no class, beside the settings that it had."""
    folder = published(kind, {"do_lower_case": False, "add_prefix_space": True, "legacy": True}, "json decoder")
    before = SubwordTokenizer.from_folder(folder)
    (folder / "tokenizer.json").write_text(before.backend.to_str())
    change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    _, after = assert_same(transformers, folder)
    assert [after(text).ids for text in STRINGS] == [before(text).ids for text in STRINGS]


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize(
    "kind", ["BertTokenizer", "T5TokenizerFast", "XLMRobertaTokenizer", "GPT2Tokenizer", "LlamaTokenizer"]
)
def test_decoded_texts_are_cleaned_up(transformers, published, kind, forced):
    """Of a vocabulary of words; those of BPE say where a space is, unless it is forced."""
    settings = {"clean_up_tokenization_spaces": True}
    if forced:
        settings["clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"] = True
    theirs, ours = assert_same(transformers, published(kind, settings))
    cleaned = 0
    for text in ["It is n't , you 've said . So ' we ' re ?", *STRINGS]:
        ids = theirs(text)["input_ids"]
        found = ours.decode(ids)
        assert found == theirs.decode(ids, skip_special_tokens=True)
        cleaned += found != ours.decode(ids, clean_up_spaces=False)
    assert bool(cleaned) == (forced or kind not in ("GPT2Tokenizer", "LlamaTokenizer"))


def test_ids_without_a_text_are_decoded(published):
    for kind in MODEL_TYPES:
        ours = SubwordTokenizer.from_folder(published(kind))
        assert ours.decode([]) == ours.decode(sorted(ours.special_ids)) == ""


TYPED = {"lstrip": True, "rstrip": True, "normalized": False, "single_word": False, "__type": "AddedToken"}
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")
ODD = {
    "named": {"extra_special_tokens": {"image_token": E1, "boi": E2}},
    "listed": {"extra_special_tokens": [E1, E2]},
    "of old": {"additional_special_tokens": [E1, E2]},
    "both": {"extra_special_tokens": [E1], "additional_special_tokens": [E2]},
    "none": {"extra_special_tokens": None, "additional_special_tokens": []},
    "typed": {"eos_token": {"content": "</s>", **TYPED}, "boi_token": {"content": E2, **TYPED}, "image_token": E1},
    "long": {"model_max_length": 1000000000000000019884624838656},
    "short": {"model_max_length": 4},
    "float": {"model_max_length": 1e30},
    "null": dict.fromkeys(("bos_token", "pad_token", "chat_template", "model_max_length", "legacy")),
    "split": {"split_special_tokens": True},
    "tokenizer class": {"tokenizer_class": None},
}


@pytest.mark.parametrize(
    "kind", ["BertTokenizer", "GPT2Tokenizer", "LlamaTokenizer", "TokenizersBackend", "T5TokenizerFast"]
)
@pytest.mark.parametrize("settings", ODD)
def test_odd_settings(transformers, published, kind, settings):
    folder = published(kind)
    change(folder / "tokenizer_config.json", **ODD[settings])
    theirs, ours = assert_same(transformers, folder)
    assert {i for i in theirs.all_special_ids if i < ours.vocab_size} <= ours.special_ids


STORED = ("<|endoftext|>", "<BOS_TOKEN>", E1, E2)
NAMED = {
    "nothing": {},
    "a name of every class": {"pad_token": E1, "bos_token": "<BOS_TOKEN>"},
    "a name of its own": {"image_token": E1},
    "two names": {"pad_token": E1, "image_token": E1, "sep_token": E2, "extra_special_tokens": [E2]},
    "a list": {"extra_special_tokens": [E1, E2]},
    "an older list": {"additional_special_tokens": [E1]},
    "objects": {"image_token": {"content": E1, **TYPED, "lstrip": False}, "pad_token": {"content": E2, **TYPED}},
    "null": {"bos_token": None, "image_token": E1},
}


def store(folder, tokens, **flags):
    """List tokens as added ones in tokenizer.json, with these flags, and return the entries."""
    file = json.loads((folder / "tokenizer.json").read_text())
    ids, listed = file["model"]["vocab"], {token["content"] for token in file["added_tokens"]}
    size = len({*ids, *listed})
    entries = [
        {"id": ids.get(token, size + i), "content": token, **dict.fromkeys(FLAGS, False), **flags}
        for i, token in enumerate(tokens)
    ]
    others = [token for token in file["added_tokens"] if token["content"] not in tokens]
    change(folder / "tokenizer.json", added_tokens=others + entries)
    return entries


@pytest.mark.parametrize("place", ["tokenizer.json", "added_tokens_decoder"])
@pytest.mark.parametrize("settings", NAMED)
@pytest.mark.parametrize("kind", ["CohereTokenizer", "Qwen2Tokenizer", "GPT2Tokenizer"])
def test_the_properties_of_a_token_that_is_both_stored_and_named(transformers, published, kind, settings, place):
    folder = published(kind, NAMED[settings], model_type="gpt2")
    entries = store(folder, STORED, lstrip=True)
    if place == "added_tokens_decoder":
        listed = {token.pop("id"): token | {"lstrip": False, "rstrip": True} for token in entries}
        change(folder / "tokenizer_config.json", added_tokens_decoder=listed)
    assert_same_tokens(transformers, folder, STORED)


AS_IT_IS = {"PreTrainedTokenizerFast": "modernbert", "TokenizersBackend": "smollm3", "LlamaTokenizerFast": "mistral"}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("kind", [*AS_IT_IS, "BertTokenizer", "GPT2Tokenizer", "T5TokenizerFast"])
def test_flags_of_the_settings_hold_over_those_of_the_file(transformers, published, kind, flag):
    """Of every token that the file has; one is listed twice, of which the last counts."""
    folder = published(kind, shape="json decoder")
    listed = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    twice = max(map(int, listed))
    listed[str(twice + 1)] = listed[str(twice)] | {"content": E1}
    for token in listed.values():
        token[flag] = not token[flag]
    change(folder / "tokenizer_config.json", added_tokens_decoder=listed)
    stored = Tokenizer.from_file(str(folder / "tokenizer.json")).get_added_tokens_decoder().values()
    assert_same_tokens(transformers, folder, [token.content for token in stored] + [E1, E2])


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("kind", ["RobertaTokenizer", "BartTokenizer", "GPT2Tokenizer"])
def test_a_vocabulary_without_a_configuration(transformers, vocabulary, tmp_path, kind, add_prefix_space):
    """Without config.json; the settings name no class."""
    special = GPT2 if kind.startswith("GPT2") else ROBERTA
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((vocabulary("gpt2" if special == GPT2 else "roberta") / name).read_bytes())
    mask = {"__type": "AddedToken", "content": "<mask>", **dict.fromkeys(FLAGS[:-1], False), "lstrip": True}
    masked = {"mask_token": mask} if "<mask>" in special else {}
    change(tmp_path / "tokenizer_config.json", add_prefix_space=add_prefix_space, **masked)
    texts = [*TEXTS, *varied_strings(500), *(f"a {token} b{token}c" for token in special)]
    theirs, ours = assert_same(transformers, tmp_path, texts, kind)
    assert ours.pad_id == theirs.pad_token_id


@pytest.mark.parametrize("kind", AS_IT_IS)
def test_a_token_that_the_settings_name_is_special(transformers, published, kind):
    folder = published(kind, {"pad_token": "the", "x_token": "mat"})
    store(folder, ("the", "mat"))
    _, ours = assert_same_tokens(transformers, folder, ["the", "mat"])
    assert {ours.token_to_id("the"), ours.token_to_id("mat")} <= ours.special_ids


EXTRA_SETTINGS = {
    "nothing": {},
    "old list": {"additional_special_tokens": [E1]},
    "old empty list": {"additional_special_tokens": []},
    "old null": {"additional_special_tokens": None},
    "list": {"extra_special_tokens": [E1]},
    "empty list": {"extra_special_tokens": []},
    "null": {"extra_special_tokens": None},
    "empty mapping": {"extra_special_tokens": {}},
    "mapping": {"extra_special_tokens": {"image": E1}},
    "mapping and old list": {"extra_special_tokens": {"image": E1}, "additional_special_tokens": ["<c>"]},
    "empty mapping and old list": {"extra_special_tokens": {}, "additional_special_tokens": ["<c>"]},
}
EXTRA_MAPS = {
    "old list": {"additional_special_tokens": [E2]},
    "list": {"extra_special_tokens": [E2]},
    "mapping": {"extra_special_tokens": {"boi": E2}},
    "both": {"extra_special_tokens": ["<d>"], "additional_special_tokens": [E2]},
    "mapping and old list": {"extra_special_tokens": {"boi": "<d>"}, "additional_special_tokens": [E2]},
}


def extra_cases():
    """Always, of BERT: each kind of list in a file of its own, beside an older list in the settings or none."""
    factors = [("TokenizersBackend", "BertTokenizer", "T5TokenizerFast"), EXTRA_SETTINGS, EXTRA_MAPS]
    shapes = ("json", "json decoder")
    maps = itertools.product(("nothing", "old list"), ("old list", "list", "mapping"))
    always = [("BertTokenizer", *each, "json") for each in maps]
    return covered([dict(zip("abcd", case, strict=True)) for case in itertools.product(*factors, shapes)], always)


@pytest.mark.parametrize(("kind", "settings", "special", "shape"), extra_cases())
def test_special_tokens_of_two_files(transformers, published, kind, settings, special, shape):
    folder = published(kind, EXTRA_SETTINGS[settings], shape)
    change(folder / "special_tokens_map.json", **EXTRA_MAPS[special])
    assert_same_tokens(transformers, folder, [E1, E2, "<c>", "<d>", "<extra_id_0>"])


def test_special_tokens_that_are_objects_in_a_list_are_added(transformers, published):
    """transformers 5 loads no such folder."""
    folder = published("BertTokenizer")
    token = {"content": E1, **dict.fromkeys(FLAGS[:-1], False)}
    change(folder / "special_tokens_map.json", additional_special_tokens=[token])
    with pytest.raises(TypeError, match="List\\[Union\\[str, AddedToken"):
        transformers.AutoTokenizer.from_pretrained(folder)
    ours = SubwordTokenizer.from_folder(folder)
    assert ours.token_to_id(E1) in ours.special_ids
    assert ours.token_to_id(E1) in ours("a [E1] b").ids


def test_a_byte_order_mark_before_the_settings(published):
    """With it transformers reads no settings."""
    folder = published("BertTokenizer", {"do_lower_case": False})
    wanted = SubwordTokenizer.from_folder(folder)
    path = folder / "tokenizer_config.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = SubwordTokenizer.from_folder(folder)
    assert [found(text).ids for text in STRINGS] == [wanted(text).ids for text in STRINGS]


TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
WITH_TOOLS = "{{ tools | tojson }} {{ messages[0].content }}"
CHATS = {
    "file": ({}, {"chat_template.jinja": CHATML}),
    "file and settings": ({"chat_template": "no"}, {"chat_template.jinja": CHATML}),
    "list": ({"chat_template": [{"name": "default", "template": CHATML}, {"name": "rag", "template": "no"}]}, {}),
    "with tools": (
        {"chat_template": [{"name": "tool_use", "template": WITH_TOOLS}, {"name": "default", "template": CHATML}]}, {}
    ),
    "mapping": ({"chat_template": {"default": CHATML, "tool_use": WITH_TOOLS}}, {}),
    "files": ({}, {"chat_template.jinja": CHATML, "additional_chat_templates/tool_use.jinja": WITH_TOOLS}),
}  # fmt: skip


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("place", CHATS)
def test_chats_of_templates_in_each_place(transformers, published, place, tools):
    settings, files = CHATS[place]
    folder = published("Qwen2TokenizerFast", settings)
    (folder / "additional_chat_templates").mkdir()
    for name, template in files.items():
        (folder / name).write_text(template)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), SubwordTokenizer.from_folder(folder)
    chat = [{"role": "user", "content": "How are you?"}]
    wanted = theirs.apply_chat_template(chat, tools=tools, add_generation_prompt=True, return_dict=False)
    assert list(ours.apply_chat_template(chat, tools=tools).ids) == wanted


def test_templates_of_which_none_is_for_every_chat(published):
    settings = {"chat_template": [{"name": "rag", "template": CHATML}, {"name": "tool_use", "template": CHATML}]}
    ours = SubwordTokenizer.from_folder(published("Qwen2TokenizerFast", settings))
    with pytest.raises(RegardError, match=r"templates by name \(rag, tool_use\) and none for every chat"):
        ours.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert ours.apply_chat_template([{"role": "user", "content": "Hi"}], tools=TOOLS).text.startswith("<|im_start|>")
