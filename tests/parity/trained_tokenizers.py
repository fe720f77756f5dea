"""Tiny tokenizers in the shape in which each family ships its own: files, classes, pre-tokenizers, special tokens.

Vocabularies are trained on the texts of `texts`; everything else is as in the checkpoints named beside each family.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from texts import TEXTS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [*TEXTS[:-2], *(text.lower() for text in TEXTS[:-2]), "user assistant system Hello there. How are you?"] * 3
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
CL100K = rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}"
QWEN = rf"{_WORDS}|\p{{N}}{_REST}"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INSTRUCT = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
PHI = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def byte_level(folder, config, special=(), *, split=None, nfc=False, template=None, spaces=(), json_file=True):
    """Write byte-level BPE: with GPT-2's expression, or with another that splits before bytes are mapped."""
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split is not None:
        steps = [pre_tokenizers.Split(Regex(split), behavior="isolated", invert=False), *steps]
    tokenizer.pre_tokenizer = steps[0] if split is None else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False
        ),
    )
    tokenizer.add_tokens([AddedToken(space, normalized=False) for space in spaces])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if template is not None:
        tokenizer.post_processor = _template(tokenizer, template)
    if json_file:
        tokenizer.save(str(folder / "tokenizer.json"))
    else:
        tokenizer.model.save(str(folder))
    _configure(folder, config)


def fallback_bpe(folder, config, *, template=None, added=(), prepend=True):
    """Write the BPE of SentencePiece, in which an unknown character is its bytes."""
    special = ["<unk>", "<s>", "</s>"] if prepend else ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokens = [*special, *(f"<0x{i:02X}>" for i in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replaced = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replaced]) if prepend else replaced
    if not prepend:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    # some characters only, so that others are bytes
    words = [word for text in CORPUS for word in text.split() if word.isascii()]
    tokenizer.train_from_iterator(
        [" ".join(words)], trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False)
    )
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [each for each in document["added_tokens"] if each["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_special_tokens([AddedToken(token, rstrip=rstrip, normalized=False) for token, rstrip in added])
    strip = [decoders.Strip(" ", 1, 0)] if prepend else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    if template is not None:
        tokenizer.post_processor = _template(tokenizer, template)
    tokenizer.save(str(folder / "tokenizer.json"))
    _configure(folder, config)


def word_pieces(folder, config, special, *, template, unknown="[UNK]"):
    """Write WordPiece of lower-cased text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = _template(tokenizer, template)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    _configure(folder, config)


def unigram(folder, config, special, *, normalizer=None, split_spaces, mask="[MASK]", ends=("[CLS]", "[SEP]"), last=()):
    """Write the unigram model of SentencePiece; without a normalizer, with the table of SentencePiece.

    `special` are the first pieces, `last` the last ones.
    """
    import sentencepiece

    (folder / "corpus").write_text("\n".join(CORPUS))
    unknown = next(token for token in special if token in ("<unk>", "[UNK]"))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus"), model_prefix=str(folder / "spm"), vocab_size=400, hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(3, processor.get_piece_size())]
    vocabulary = [(token, 0.0) for token in special] + pieces + [(token, 0.0) for token in last]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=list(special).index(unknown)))
    tokenizer.normalizer = normalizer or normalizers.Precompiled(character_map(folder / "spm.model"))
    metaspace = pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]) if split_spaces else metaspace
    )
    tokenizer.decoder = decoders.Metaspace()
    masks = [mask] if mask else []
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token == mask, normalized=False) for token in (*special, *last, *masks)]
    )
    tokenizer.post_processor = _template(tokenizer, ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    _configure(folder, config)


def character_map(path: Path) -> bytes:
    """Return the table of characters in a file of SentencePiece."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentencepiece import sentencepiece_model_pb2 as protobuf
    content = protobuf.ModelProto.FromString(path.read_bytes())
    table: bytes = content.normalizer_spec.precompiled_charsmap
    return table


def _template(tokenizer: Tokenizer, ends: tuple[str, str]) -> Any:
    """Return the post-processor that puts a token before a text and one after it; either may be empty."""
    first, last = ends
    named = [(token, tokenizer.token_to_id(token)) for token in ends if token]
    single = [*([first] if first else []), "$A", *([last] if last else [])]
    pair = [*single, *([first] if first and not last else []), "$B:1", *([f"{last}:1"] if last else [])]
    return processors.TemplateProcessing(single=" ".join(single), pair=" ".join(pair), special_tokens=named)


def _configure(folder: Path, config: dict[str, Any]) -> None:
    config = dict(config)
    (folder / "config.json").write_text(json.dumps({"model_type": config.pop("model_type")}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


_EOT = "<|endoftext|>"
_IM = ("<|im_start|>", "<|im_end|>")
_GPT2 = {"bos_token": _EOT, "eos_token": _EOT, "unk_token": _EOT, "add_prefix_space": False}
_LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_LLAMA |= {"legacy": False, "add_bos_token": True, "add_eos_token": False}


def _albert_normalizer() -> Any:
    """Return what the files of ALBERT do to a text first."""
    return normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " "),
    ])  # fmt: skip


def _deberta_normalizer() -> Any:
    """Return what the files of DeBERTa-v3 do to a text first."""
    spaces = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    return normalizers.Sequence([spaces, normalizers.NFC(), normalizers.Strip(left=False)])


# Options of what writes a tokenizer.
OF_BERT = {"special": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "template": ("[CLS]", "[SEP]")}
OF_MPNET = {"special": ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"), "template": ("<s>", "</s>")}
OF_ALBERT = {
    "special": ("<pad>", "<unk>", "[CLS]", "[SEP]"), "normalizer": _albert_normalizer(), "split_spaces": True,
}  # fmt: skip
OF_DEBERTA = {
    "special": ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), "normalizer": _deberta_normalizer(), "split_spaces": False,
}  # fmt: skip

# Of families whose shape `test_tokenizer_folders` does not have: what writes it, its tokenizer_config.json, and the
# options of what writes it. The published tokenizer is named above it.
FAMILIES: dict[str, tuple[Callable[..., None], dict[str, Any], dict[str, Any]]] = {
    # EleutherAI/pythia-70m
    "gpt_neox": (
        byte_level,
        {"tokenizer_class": "GPTNeoXTokenizer", **_GPT2},
        {"special": (_EOT, "<|padding|>"), "nfc": True, "spaces": [" " * n for n in range(8, 1, -1)]},
    ),
    # facebook/opt-125m: no tokenizer.json
    "opt": (
        byte_level,
        {"tokenizer_class": "GPT2Tokenizer", **dict.fromkeys(("bos_token", "eos_token", "unk_token"), "</s>")}
        | {"pad_token": "<pad>", "add_bos_token": True, "add_prefix_space": False, "errors": "replace"},
        {"special": ("<s>", "<pad>", "</s>", "<unk>"), "json_file": False},
    ),
    # microsoft/Phi-3-mini-4k-instruct
    "phi3": (
        fallback_bpe,
        _LLAMA | {"eos_token": _EOT, "pad_token": _EOT, "add_bos_token": False, "chat_template": PHI},
        {"added": [(_EOT, False), *((f"<|{role}|>", True) for role in ("assistant", "system", "end", "user"))]},
    ),
    # HuggingFaceTB/SmolLM3-3B
    "smollm3": (
        byte_level,
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _IM[1], "pad_token": _IM[1]}
        | {"chat_template": CHATML},
        {"special": ("<|begin_of_text|>", "<|end_of_text|>", *_IM), "split": CL100K},
    ),
    # allenai/OLMo-2-1124-7B-Instruct
    "olmo2": (
        byte_level,
        {"tokenizer_class": "GPT2Tokenizer", **_GPT2, "pad_token": "<|pad|>", "chat_template": CHATML},
        {"special": (_EOT, "<|pad|>", *_IM), "split": CL100K},
    ),
    # google/gemma-3-1b-it
    "gemma3_text": (
        fallback_bpe,
        {"tokenizer_class": "GemmaTokenizer", **{f"{x}_token": f"<{x}>" for x in ("bos", "eos", "unk", "pad")}}
        | {"add_bos_token": True, "add_eos_token": False, "chat_template": GEMMA},
        {"template": ("<bos>", ""), "added": [("<start_of_turn>", False), ("<end_of_turn>", False)], "prepend": False},
    ),
    # Qwen/Qwen3-30B-A3B
    "qwen3_moe": (
        byte_level,
        {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": _IM[1], "unk_token": None}
        | {"pad_token": _EOT, "add_prefix_space": False, "chat_template": CHATML},
        {"special": (_EOT, *_IM), "split": QWEN, "nfc": True},
    ),
    # mistralai/Mixtral-8x7B-Instruct-v0.1
    "mixtral": (fallback_bpe, {**_LLAMA, "chat_template": INSTRUCT}, {"template": ("<s>", "")}),
}
CHATS = ("phi3", "smollm3", "olmo2", "gemma3_text", "qwen3_moe", "mixtral")


def write_family(family: str, folder: Path) -> None:
    """Write the tokenizer of a family, in the shape in which it is published."""
    write, settings, options = FAMILIES[family]
    write(folder, {"model_type": family.partition(" of ")[0], **settings}, **options)
