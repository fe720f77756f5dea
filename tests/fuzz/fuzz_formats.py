"""Damaged and hostile files of models: ``python tests/fuzz/fuzz_formats.py --cases 200000``.

A case takes one of a few tiny models, in every format that regard reads, changes one of its files a little, and loads
and runs what comes of it. Nothing but `RegardError` may come out, in one line; no case may take long or much memory. A
case is drawn from a seed and its number, so that a failure can be repeated alone (``--first N --cases 1``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import struct
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
from regard import RegardError
from regard.formats import gguf
from regard.formats.safetensors import write_safetensors

SECONDS = 10.0  # of processor time that no case may take; it takes milliseconds
MEMORY = 1 << 28  # bytes that no case may take beyond what the process has
TEXT = "the cat\n é 12  猫 <|im_end|>"

NUMBERS = [0, 1, 2, 3, 7, 8, 31, 32, 127, 128, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60]
NUMBERS += [2**63 - 1, 2**63, 2**64 - 1]
VALUES = [None, True, False, 0, -1, 1, 2, 3, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, -1e308, 1e-320, "", "x"]
VALUES += ["../x", "a" * 300, "\u0000\n\ud800", [], {}, [0], [[]], {"a": 1}, float("nan"), float("inf"), [1] * 70]


@dataclass
class Seed:
    """A sound model: its files by name, and which of them are to be changed, each by one of these functions."""

    name: str
    files: dict[str, bytes]
    changes: dict[str, Callable[[np.random.Generator, bytes], bytes]]
    only: str | None = None
    places: list[tuple[int, int]] = field(default_factory=list)


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
        names = ("config.json", "model.safetensors", "tokenizer.json")
        files = {name: (golden.FOLDER / kept / name).read_bytes() for name in names}
        found.append(Seed(kept.replace("/", " "), files, {"config.json": changed_text}))
    for name, written in gguf_seeds(folder):
        content = written.read_bytes()
        places = places_of_numbers(written)

        def change(rng: np.random.Generator, content: bytes, places: list[tuple[int, int]] = places) -> bytes:
            return changed_numbers(rng, content, places)

        found.append(Seed(name, {"m.gguf": content}, {"m.gguf": change}, only="m.gguf", places=places))
    return found


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
    scaled = {**LLAMA, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    scaled |= {"rope.scaling.original_context_length": 19, "attention.key_length": 8, "attention.value_length": 8}
    yield "gguf yarn", write_gguf(folder / "yarn.gguf", fields=scaled)
    yield "gguf qwen2", write_gguf(folder / "qwen2.gguf", "qwen2")
    gpt2 = {key: LLAMA[key] for key in ("block_count", "context_length", "embedding_length", "feed_forward_length")}
    gpt2 |= {"attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5}
    for kept in ("gpt_oss/plain", "gemma2/plain", "qwen3/plain"):
        name = f"gguf {kept.partition('/')[0]}"
        yield name, gguf_files.write_kept(golden.FOLDER / kept, folder / f"{name}.gguf")
    yield "gguf gpt2", write_gguf(folder / "gpt2.gguf", "gpt2", gpt2, gguf_files.gpt2_tensors())


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
            model = regard.load(folder / seed.only if seed.only else folder)
            encoding = model.tokenizer(TEXT)
            with np.errstate(all="ignore"):  # numbers that are damaged may overflow where they are computed with
                model(list(encoding.ids[:7]) or [0])
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
        at = os.open(Path(tempfile.gettempdir()) / f"fuzz_formats_{os.getpid()}", os.O_CREAT | os.O_WRONLY)
        for number in range(first, first + cases):
            os.pwrite(at, f"{number:<20}".encode(), 0)  # tells where it was, should the process itself end
            rng = np.random.default_rng([seed, number])
            model = picked(rng, models)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                wrong = fault(model, rng, Path(temporary) / model.name)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if wrong is not None:
                failures.append(f"--seed {seed} --first {number} --cases 1: {model.name}, {wrong}")
                if progress is not None:
                    print(failures[-1], flush=True)
            if progress is not None and time.monotonic() - said > progress:
                said = time.monotonic()
                print(f"{number + 1 - first:,} cases, {len(failures)} wrong, {said - start:.0f} s", flush=True)
        os.close(at)
        Path(tempfile.gettempdir(), f"fuzz_formats_{os.getpid()}").unlink()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    given = parser.parse_args()
    start = time.monotonic()
    failures = run(given.cases, given.seed, given.first, progress=30)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{given.cases:,} cases, {len(failures)} wrong, {time.monotonic() - start:.0f} s, {used:.0f} MB at the most")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
