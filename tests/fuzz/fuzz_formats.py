"""Damaged and hostile files: ``python tests/fuzz/fuzz_formats.py --cases 200000``.

A case takes one of a few tiny models, tokenizers, traces and files of word vectors, in every format that regard reads,
changes one of its files a little, and loads and uses what comes of it. Nothing but `RegardError` may come out, in one
line; no case may take long or much memory, or end the process, for which each runs in a child. A case is drawn from a
seed and its number, so that a failure can be repeated alone (``--first N --cases 1``).
"""

import argparse
import base64
import gzip
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
import gguf_files
import golden
import regard
import tiny_bert
from gguf_files import LLAMA, TOKENS, llama_tensors, write_gguf
from regard import RegardError, Trace, attention
from regard.explorer.launch import exploration_of
from regard.formats import gguf
from regard.formats.safetensors import write_safetensors
from regard.functional import ALiBi, Causal, KeyLengths, SlidingWindow
from regard.models import ImageModel
from regard.models.clip import CLIP
from regard.text import SubwordTokenizer, read_word_vectors

SECONDS = 10.0  # of processor time that no case may take; it takes milliseconds
MEMORY = 1 << 28  # bytes that no case may take beyond what the process has
TEXT = "the cat\n é 12  猫 <|im_end|>"
PICTURE = np.arange(3 * 20 * 30, dtype=np.uint8).reshape(20, 30, 3)

NUMBERS = [0, 1, 2, 3, 7, 8, 31, 32, 127, 128, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60]
NUMBERS += [2**63 - 1, 2**63, 2**64 - 1]
VALUES = [None, True, False, 0, -1, 1, 2, 3, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, -1e308, 1e-320, "", "x"]
PATTERNS = [
    "", "a", "e", " ", "[a-z]", r"\s*", r"\p{L}+", "(a+)+b", "(e|ee)*x", "e*e*e*(?<!e)", "(?=a)", "^", "(", "e{2,}",
    ".",
]  # fmt: skip
PADDING = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
PADDING |= {"pad_token": "a"}
TRUNCATION = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
SEQUENCES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
SEQUENCES |= {"post_processor": "processors"}
PIECES = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "a", "type_id": 0}}]
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
COMPONENTS: dict[str, list[dict[str, Any]]] = {
    "normalizer": [
        *({"type": kind} for kind in ("NFC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "Odd")),
        {"type": "Prepend", "prepend": "ee"},
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\0\4" + bytes(1026) + b"aaaaaa\0").decode()},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ],
    "pre_tokenizer": [
        *({"type": kind} for kind in ("BertPreTokenizer", "WhitespaceSplit", "UnicodeScripts", "Whitespace")),
        *(METASPACE, BYTES, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "FixedLength", "length": 2}),
        {"type": "Split", "pattern": {"String": "e"}, "behavior": "Isolated", "invert": False},
    ],
    "decoder": [
        *(METASPACE, BYTES, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "BPEDecoder", "suffix": ""}),
        {"type": "WordPiece", "prefix": "e", "cleanup": True},
        {"type": "CTC", "pad_token": "e", "word_delimiter_token": "", "cleanup": True},
        {"type": "Strip", "content": "e", "start": 1, "stop": 0},
    ],
    "post_processor": [
        *(BYTES, {"type": "BertProcessing", "sep": ["a", 1], "cls": ["a", 1]}),
        {
            "type": "TemplateProcessing",
            "single": PIECES,
            "pair": [*PIECES, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"a": {"id": "a", "ids": [1] * 3, "tokens": ["a"] * 3}},
        },
    ],
}
RULES: list[Any] = [
    {"kind": "Causal", "query_offset": None},
    {"kind": "SlidingWindow", "left": 2, "right": 1, "query_offset": 3},
    {"kind": "KeyLengths", "lengths": 3},
    {"kind": "DenseMask", "array": {"array": "map:blocks.0.attn.weights.q"}},
    {"kind": "DenseBias", "parameter": {"array": "map:blocks.0.attn.weights.q"}},
    {"kind": "ALiBi", "parameter": {"array": "map:blocks.0.attn.weights.sinks"}},
    {"kind": "DistanceBias", "parameter": {"array": "map:blocks.0.attn.weights.q"}, "min_distance": -4},
    {"array": "map:blocks.0.attn.weights.row_max"},
]
TOKENIZERS: dict[str, dict[str, Any]] = {
    "BPE": {},
    "words": {"model": {"type": "WordLevel", "vocab": {"a": 1, "the": 2, "cat": 3, "[UNK]": 0}, "unk_token": "[UNK]"}},
    "unigram": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["[UNK]", 0.0], ["a", -1.0], ["e", -2.0]]}},
    "pieces": {
        "model": {"type": "WordPiece", "vocab": {"a": 1, "##a": 2, "e": 3, "[UNK]": 0}, "unk_token": "[UNK]"}
        | {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    },
}  # fmt: skip
VALUES += ["../x", "a" * 300, "\u0000\n\ud800", [], {}, [0], [[]], {"a": 1}, float("nan"), float("inf"), [1] * 70]


@dataclass
class Seed:
    """A sound model: its files by name, and which of them are to be changed, each by one of these functions."""

    name: str
    files: dict[str, bytes]
    changes: dict[str, Callable[[np.random.Generator, bytes], bytes]]
    only: str | None = None
    places: list[tuple[int, int]] = field(default_factory=list)
    use: Callable[[Path], None] | None = None  # of a model, to load and run it


UNIGRAM = {
    "type": "Unigram", "unk_id": 2,
    "vocab": [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["[CLS]", 0.0], ["[SEP]", 0.0], ["▁a", -1.0]],
}  # fmt: skip
TOKENIZER_SETTINGS = {
    "add_prefix_space": True, "do_lower_case": False, "legacy": True, "extra_ids": 3,
    "extra_special_tokens": ["[x]", {"content": "[y]", "lstrip": True}], "image_token": "[z]",
    "split_special_tokens": False,
}  # fmt: skip


def seeds(folder: Path) -> list[Seed]:
    """Write the sound models, and return them."""
    bert = {
        "config.json": json.dumps(tiny_bert.CONFIG).encode(),
        "vocab.txt": "\n".join(tiny_bert.PIECES).encode(),
        "tokenizer_config.json": b'{"do_lower_case": true, "pad_token": "[PAD]", "chat_template": "{{ x }}"}',
    }
    tensors = tiny_bert.tensors()
    names = sorted(tensors)
    write_safetensors(folder / "whole", tensors)
    found = [Seed("safetensors", bert | {"model.safetensors": (folder / "whole").read_bytes()}, {})]
    sharded, where = dict(bert), {}
    for i in range(3):
        part = f"model-{i + 1:05}-of-00003.safetensors"
        write_safetensors(folder / part, {name: tensors[name] for name in names[i::3]})
        sharded[part] = (folder / part).read_bytes()
        where |= dict.fromkeys(names[i::3], part)
    index = {"metadata": {"total_size": 9}, "weight_map": where}
    found.append(Seed("sharded", sharded | {"model.safetensors.index.json": json.dumps(index).encode()}, {}))
    json_tokenizer = regard.load(write_gguf(folder / "llama.gguf")).tokenizer.backend.to_str().encode()
    found.append(Seed("tokenizer.json", found[0].files | {"tokenizer.json": json_tokenizer}, {}))
    for seed in found:
        for name in seed.files:
            seed.changes[name] = changed_tensors if name.endswith(".safetensors") else changed_text
    found[-1].changes = {"tokenizer.json": changed_text}
    for kept in sorted({Path(case).parts[0]: case for case in golden.KEPT}.values()):
        names = ("config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json")
        present = [golden.FOLDER / kept / name for name in names if (golden.FOLDER / kept / name).exists()]
        changes = {path.name: changed_text for path in present if path.name in (names[0], names[3])}
        found.append(Seed(kept.replace("/", " "), {path.name: path.read_bytes() for path in present}, changes))
    for name, written in gguf_seeds(folder):
        content = written.read_bytes()
        places = places_of_numbers(written)

        def change(rng: np.random.Generator, content: bytes, places: list[tuple[int, int]] = places) -> bytes:
            return changed_numbers(rng, content, places)

        found.append(Seed(name, {"m.gguf": content}, {"m.gguf": change}, only="m.gguf", places=places))
    for name, document in TOKENIZERS.items():
        content = json.dumps(json.loads(json_tokenizer) | document if name else json.loads(json_tokenizer)).encode()
        files = {"tokenizer.json": content}
        found.append(Seed(f"components {name}", files, {"tokenizer.json": changed_components}, use=used_tokenizer))
    for kind in (
        "LlamaTokenizer",
        "CLIPTokenizer",
        "Qwen2Tokenizer",
        "T5Tokenizer",
        "AlbertTokenizer",
        "BertTokenizer",
    ):
        unigram = json.dumps({"model": UNIGRAM}).encode()
        files = {
            "tokenizer.json": unigram if kind in ("T5Tokenizer", "AlbertTokenizer") else json_tokenizer,
            "tokenizer_config.json": json.dumps({"tokenizer_class": kind, **TOKENIZER_SETTINGS}).encode(),
            "added_tokens.json": b'{"[new]": 900}',
            "special_tokens_map.json": b'{"additional_special_tokens": ["[new]"], "pad_token": {"content": "<pad>"}}',
        }
        if kind == "BertTokenizer":
            files |= {name: bert[name] for name in ("config.json", "vocab.txt")}
            del files["tokenizer.json"]
        changes = dict.fromkeys(files, changed_text)
        found.append(Seed(f"class {kind}", files, changes, use=used_tokenizer))
    for name, trace in traces().items():
        trace.save(folder / "trace")
        files = {"trace": (folder / "trace").read_bytes()}
        found.append(Seed(f"trace {name}", files, {"trace": changed_trace}, only="trace", use=used_trace))
    rows = b"".join(b"w%d %d 2.5 -1e3\n" % (i, i) for i in range(50))
    for name, content in {"text": rows, "headed": b"50 3\n" + rows, "binary": b"9 3\n" + b"w \0\0\0@" * 27}.items():
        files = {"vectors": gzip.compress(content)}
        found.append(Seed(f"vectors {name}", files, {"vectors": changed_gzip}, only="vectors", use=used_vectors))
    return found


def traces() -> dict[str, Trace]:
    """Return traces with maps of several masks and biases, and one with arrays alone."""
    q, k, v = np.random.default_rng(3).standard_normal((3, 1, 2, 5, 4))
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"mask": Causal() & SlidingWindow(2, 0) | KeyLengths(3), "softcap": 2.0},
        "dense": {
            "mask": np.eye(5, dtype=bool),
            "bias": np.ones((5, 5)),
            "causal": True,
            "query_offset": np.array([1]),
        },
        "sinks": {"bias": ALiBi(np.ones(2)), "sinks": np.zeros(2), "key_lengths": np.array([4])},
    }
    made = {}
    for name, given in options.items():
        made[name] = Trace(maps=name != "plain")
        with made[name].scope("blocks.0.attn"):
            attention(q, k, v, trace=made[name], **given)
    return made


def gguf_seeds(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file of every way to store numbers, and one of every other kind of model and tokenizer."""
    for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        yield f"gguf {kind}", write_gguf(folder / f"{kind}.gguf", kind=kind)
    embeddings = np.zeros((len(TOKENS), 256), np.float32)
    for kind in gguf_files.SCALES:
        kinds = {"token_embd.weight": kind}
        narrow = {**llama_tensors(), "token_embd.weight": embeddings}
        yield f"gguf {kind}", write_gguf(folder / f"{kind}.gguf", tensors=narrow, kinds=kinds)
    yield "gguf sentencepiece", write_gguf(folder / "spm.gguf", metadata=gguf_files.SENTENCEPIECE)
    yield "gguf wordpiece", write_gguf(folder / "wordpiece.gguf", metadata=gguf_files.WORDPIECE)
    table = (4096).to_bytes(4, "little") + bytes(4096) + b"a\0"  # a trie without characters, and a replacement
    unigram = {**gguf_files.UNIGRAM, "tokenizer.ggml.precompiled_charsmap": table}
    yield "gguf unigram", write_gguf(folder / "unigram.gguf", metadata=unigram)
    scaled = {**LLAMA, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    scaled |= {"rope.scaling.original_context_length": 19, "attention.key_length": 8, "attention.value_length": 8}
    yield "gguf yarn", write_gguf(folder / "yarn.gguf", fields=scaled)
    yield "gguf qwen2", write_gguf(folder / "qwen2.gguf", "qwen2")
    for kept in (
        *("gpt_oss/plain", "gemma2/plain", "qwen3/plain", "mixtral/plain", "deepseek_v3/plain", "bert/gelu"),
        *("modernbert/plain", "t5/relu", "gpt2/plain"),
    ):
        name = f"gguf {kept.partition('/')[0]}"
        yield name, gguf_files.write_kept(golden.FOLDER / kept, folder / f"{name}.gguf")


def places_of_numbers(path: Path) -> list[tuple[int, int]]:
    """Return where each number of a header stands and how many bytes it has: counts, lengths, types, sizes, values."""
    places: list[tuple[int, int]] = []
    header = gguf._Header
    integer, numbers = header.integer, header._numbers

    def noted(self: Any, size: int) -> int:
        places.append((self.at, size))
        return integer(self, size)

    def noted_numbers(self: Any, kind: int, count: int, key: str) -> Any:
        start = self.at
        values = numbers(self, kind, count, key)
        places.extend((start + i * values.itemsize, values.itemsize) for i in range(min(count, 3)))
        return values

    header.integer, header._numbers = noted, noted_numbers  # type: ignore[method-assign]
    try:
        gguf.GgufFile(path)
    finally:
        header.integer, header._numbers = integer, numbers  # type: ignore[method-assign]
    return places


# Changes.


def chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def picked(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def changed_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Change bytes anywhere, most of them near the start, where headers are."""
    data = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4, 16]))):
        near = len(data) if chance(rng, 0.3) else min(len(data), 1500)
        at, kind = int(rng.integers(max(near, 1))), int(rng.integers(8))
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at : at + 1] = bytes([int(rng.integers(256))])
        elif kind == 2:
            size = int(rng.choice([1, 2, 4, 8]))
            data[at : at + size] = (picked(rng, NUMBERS) & (256**size - 1)).to_bytes(size, "little")
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data += bytes(int(rng.integers(64)))
        elif kind == 5:
            del data[at : at + int(rng.integers(40))]
        elif kind == 6:
            data[at:at] = data[at : at + int(rng.integers(200))]
        else:
            data[at:at] = rng.bytes(int(rng.integers(12)))
    return bytes(data)


def changed_numbers(rng: np.random.Generator, content: bytes, places: list[tuple[int, int]]) -> bytes:
    """Change numbers of a GGUF header, or bytes anywhere."""
    if chance(rng, 0.3):
        return changed_bytes(rng, content)
    data = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        at, size = picked(rng, places)
        if chance(rng, 0.3):
            number = int.from_bytes(data[at : at + size], "little") + int(rng.choice([-1, 1, 8, -8, 32]))
        elif chance(rng, 0.1):
            number = int.from_bytes(rng.bytes(size), "little")
        elif chance(rng, 0.1) and size == 4:
            number = struct.unpack("<I", struct.pack("<f", picked(rng, [0.0, -1.0, np.inf, np.nan, 1e38, 1e-45])))[0]
        else:
            number = picked(rng, NUMBERS)
        data[at : at + size] = (number & (256**size - 1)).to_bytes(size, "little")
    return bytes(data)


def changed_json(rng: np.random.Generator, tree: Any) -> Any:
    """Change one value somewhere in a tree, take it out, or add another."""
    if isinstance(tree, dict | list) and tree and chance(rng, 0.8):
        tree = tree.copy()
        key = picked(rng, list(tree) if isinstance(tree, dict) else list(range(len(tree))))
        how = rng.random()
        if how < 0.1:
            del tree[key]
        elif how < 0.2 and isinstance(tree, dict):
            tree[picked(rng, ["odd", "", "__metadata__", *tree])] = picked(rng, VALUES + list(tree.values())[:20])
        else:
            tree[key] = changed_json(rng, tree[key])
        return tree
    if isinstance(tree, int) and chance(rng, 0.4):
        return tree + int(rng.choice([-1, 1, 8, 1000]))
    return picked(rng, VALUES)


def changed_text(rng: np.random.Generator, content: bytes) -> bytes:
    """Change the values of a JSON file, or its bytes."""
    with suppress(ValueError):
        if chance(rng, 0.7):
            tree = changed_json(rng, json.loads(content))
            return json.dumps(tree, ensure_ascii=chance(rng, 0.5)).encode("utf-8", "surrogatepass")
    return changed_bytes(rng, content)


def changed_tensors(rng: np.random.Generator, content: bytes) -> bytes:
    """Change the header of a safetensors file, whose length is made to fit, or its bytes."""
    if chance(rng, 0.4):
        return changed_bytes(rng, content)
    size = int.from_bytes(content[:8], "little")
    header = changed_text(rng, content[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def replacement(rng: np.random.Generator) -> dict[str, Any]:
    kind = "Other" if chance(rng, 0.05) else picked(rng, ["String", "Regex"])
    content = picked(rng, ["", "x", "aa", "ee", "\ufdfa", "a" * 5000])
    return {"type": "Replace", "pattern": {kind: picked(rng, PATTERNS)}, "content": content}


def component(rng: np.random.Generator, name: str) -> Any:
    """Return a normalizer, pre-tokenizer, decoder or post-processor, most of them sound and in their place."""
    if chance(rng, 0.4) and name in ("normalizer", "decoder"):
        return replacement(rng)
    made = dict(picked(rng, COMPONENTS[picked(rng, list(COMPONENTS)) if chance(rng, 0.05) else name]))
    if "pattern" in made and chance(rng, 0.7):
        made["pattern"] = {picked(rng, ["String", "Regex"]): picked(rng, PATTERNS)}
    return changed_json(rng, made) if chance(rng, 0.2) else made


def changed_components(rng: np.random.Generator, content: bytes) -> bytes:
    """Put components where they belong and where they do not, once or many times, or change fields of any kind."""
    if chance(rng, 0.2):
        return changed_text(rng, content)
    document = json.loads(content)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        name, members = picked(rng, list(SEQUENCES.items()))
        how = rng.random()
        if how < 0.3:
            document[name] = component(rng, name)
        elif how < 0.7:
            each = [component(rng, name) for _ in range(int(rng.integers(1, 4)))]
            times = int(rng.choice([1, 1, 2, 5, 26, 200]))
            document[name] = {"type": "Sequence", members: each * times}
        elif how < 0.8:
            document["padding"] = changed_json(rng, PADDING | {"strategy": {"Fixed": picked(rng, NUMBERS)}})
        elif how < 0.9:
            document["truncation"] = changed_json(rng, TRUNCATION | {"stride": picked(rng, NUMBERS)})
        else:
            size, count = int(rng.choice([1, 30, 900, 2000, 100_000])), int(rng.choice([1, 5, 60]))
            sound = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
            sound |= {"normalized": chance(rng, 0.5), "special": chance(rng, 0.5)}
            document["added_tokens"] = [
                sound | {"id": picked(rng, NUMBERS) if chance(rng, 0.1) else 500 + i, "content": f"{i}e" * size}
                for i in range(count)
            ]
    return json.dumps(document).encode()


def changed_trace(rng: np.random.Generator, content: bytes) -> bytes:
    """Change the description of the maps, or what `changed_tensors` changes."""
    if chance(rng, 0.3):
        return changed_tensors(rng, content)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = header["__metadata__"]
    name = picked(rng, [name for name in ("axes", "maps", "maps", "maps", "encodings") if name in metadata])
    changed = json.loads(metadata[name])
    for _ in range(int(rng.integers(1, 3))):
        if name == "maps" and chance(rng, 0.8):
            fields = changed[picked(rng, list(changed))]
            key = picked(rng, list(fields))
            fields[key] = picked(rng, RULES) if chance(rng, 0.4) else changed_json(rng, fields[key])
        else:
            changed = changed_json(rng, changed)
            break
    metadata[name] = json.dumps(changed)
    if chance(rng, 0.2):  # axes without numbers, of any length
        name = picked(rng, [name for name in header if name != "__metadata__"])
        header[name]["shape"] = [picked(rng, [0, 1, 5, 10**8, 2**40]) for _ in header[name]["shape"]]
        header[name]["data_offsets"][1] = header[name]["data_offsets"][0]
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + content[8 + size :]


def changed_gzip(rng: np.random.Generator, content: bytes) -> bytes:
    """Change the rows in a compressed file, repeat a part of them many times, or change the compressed bytes."""
    if chance(rng, 0.2):
        return changed_bytes(rng, content)
    rows = changed_bytes(rng, gzip.decompress(content))
    if chance(rng, 0.5):
        start = int(rng.integers(len(rows) + 1))
        part = rows[start : start + int(rng.integers(1, 30))] if chance(rng, 0.6) else picked(rng, [b"\n", b" ", b"\0"])
        rows = rows[:start] + part * int(rng.choice([1000, 100_000, (1 << 23) // max(1, len(part))])) + rows[start:]
    return gzip.compress(rows, 1)


# Using.


def used_model(path: Path) -> None:
    model = regard.load(path)
    with np.errstate(all="ignore"):  # numbers that are damaged may overflow where they are computed with
        halves = [model] if not isinstance(model, CLIP) else [model.text, model.vision]
        for half in halves:
            if isinstance(half, ImageModel):
                half(PICTURE)
            else:
                half(list(half.tokenizer(TEXT).ids[:7]) or [0])


def used_tokenizer(path: Path) -> None:
    tokenizer = SubwordTokenizer.from_folder(path)
    for text in ("", "a", TEXT):
        tokenizer.decode(tokenizer(text).ids)


def used_trace(path: Path) -> None:
    trace = Trace.load(path)
    with np.errstate(all="ignore"):
        for name in trace:
            np.asarray(trace[name]).sum()
            scope, _, last = name.rpartition(".")
            if last == "weights" and trace.has_map(scope):
                found = trace.map(scope)
                found.pooled((2, 2)), found.entropy(), found.distance(), found.received(), found.top(2)
        exploration_of([trace], None).manifest()


def used_vectors(path: Path) -> None:
    read_word_vectors(path)
    read_word_vectors(path, ["w3", "none"])


# Running.


class _TooLongError(BaseException):
    """A case takes too long."""


def fault(seed: Seed, rng: np.random.Generator, folder: Path) -> str | None:
    """Change one file of a model and use the model; return what went wrong, None for nothing."""
    name = picked(rng, list(seed.changes))
    path = folder / name
    if chance(rng, 0.01):
        path.unlink()
    else:
        path.write_bytes(seed.changes[name](rng, seed.files[name]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (seed.use or used_model)(folder / seed.only if seed.only else folder)
    except RegardError as error:
        return None if str(error).isprintable() else f"{name}: a message of several lines: {error!r}"
    except _TooLongError:
        return f"{name}: longer than {SECONDS:g} s"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {ascii(str(error))[:200]}"
    finally:
        path.write_bytes(seed.files[name])
    return None


def run(cases: int, seed: int, first: int = 0, progress: float | None = None) -> list[str]:
    """Return what is wrong, one line for each case; say every `progress` seconds how far it is."""
    failures: list[str] = []
    start = said = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary, bounded():
        (Path(temporary) / "sound").mkdir()
        models = seeds(Path(temporary) / "sound")
        for model in models:
            (Path(temporary) / model.name).mkdir()
            for name, content in model.files.items():
                (Path(temporary) / model.name / name).write_bytes(content)
        at = os.open(progress_file(os.getpid()), os.O_CREAT | os.O_WRONLY)
        for number in range(first, first + cases):
            os.pwrite(at, f"{number:<20}".encode(), 0)  # tells where it was, should the process itself end
            rng = np.random.default_rng([seed, number])
            model_files = chance(rng, 0.5)  # or tokenizers, traces and word vectors alone
            model = picked(rng, [each for each in models if (each.use is None) == model_files])
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * SECONDS)  # ends the process where no Python runs
            try:
                wrong = fault(model, rng, Path(temporary) / model.name)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if wrong is not None:
                failures.append(f"--seed {seed} --first {number} --cases 1: {model.name}, {wrong}")
                if progress is not None:
                    print(failures[-1], flush=True)
            if progress is not None and time.monotonic() - said > progress:
                said = time.monotonic()
                print(f"{number + 1 - first:,} cases, {len(failures)} wrong, {said - start:.0f} s", flush=True)
        os.close(at)
        progress_file(os.getpid()).unlink()
    return failures


@contextmanager
def bounded() -> Iterator[None]:
    """Let a case that takes too long, or too much memory, fail."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, handler)


def supervised(cases: int, seed: int, first: int = 0, progress: float | None = None) -> list[str]:
    """Do what `run` does in a child, so that a case that ends the process is one failure, and the next go on."""
    failures: list[str] = []
    end = first + cases
    while first < end:
        options = ["--cases", str(end - first), "--seed", str(seed), "--first", str(first), "--alone"]
        options += ["--progress", str(progress)] if progress is not None else []
        with subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout or ():
                if line.startswith("--seed"):
                    failures.append(line.strip())
                if progress is not None:
                    print(line, end="", flush=True)
        place = progress_file(child.pid)
        if not place.exists():
            if child.returncode not in (0, 2):
                raise RuntimeError(f"the child ended with {child.returncode} before its first case")
            break
        number = int(place.read_text())
        place.unlink()
        failures.append(f"--seed {seed} --first {number} --cases 1: the process ended with {child.returncode}")
        print(failures[-1], flush=True)
        first = number + 1
    return failures


def progress_file(pid: int) -> Path:
    return Path(tempfile.gettempdir()) / f"fuzz_formats_{pid}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--progress", type=float, default=30, help="seconds between two lines")
    parser.add_argument("--alone", action="store_true", help="in this process, which a case may end")
    given = parser.parse_args()
    start = time.monotonic()
    if given.alone:
        failures = run(given.cases, given.seed, given.first, given.progress)
        sys.exit(2 * bool(failures))
    failures = supervised(given.cases, given.seed, given.first, given.progress)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{given.cases:,} cases, {len(failures)} wrong, {time.monotonic() - start:.0f} s, {used:.0f} MB at the most")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
