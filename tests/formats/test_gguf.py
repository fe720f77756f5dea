"""The GGUF reader: what blocks mean, written out by hand, and files that are damaged or hostile."""

import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from gguf_files import SCALES, TOKENS, llama_tensors, quantised, write_gguf
from regard._utils.errors import RegardError
from regard.formats.gguf import _KINDS, GgufFile, _layout, is_gguf


@pytest.fixture
def file(tmp_path: Path):
    def opened(content: bytes) -> GgufFile:
        (tmp_path / "a.gguf").write_bytes(content)
        return GgufFile(tmp_path / "a.gguf")

    return opened


def text(value: str | bytes) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def header(
    values: bytes = b"", tensors: bytes = b"", num_values: int = 0, num_tensors: int = 0, version: int = 3
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_values) + values + tensors


def value(key: str, kind: int, content: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + content


def tensor(name: str = "x", shape: tuple[int, ...] = (2,), kind: int = 0, start: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, start)


# What a file holds.


def test_plain_numbers_are_views_on_the_map(tmp_path: Path) -> None:
    tensors = llama_tensors()
    opened = GgufFile(write_gguf(tmp_path / "a.gguf", tensors=tensors))
    assert {name: array.tolist() for name, array in opened.items()} == {n: t.tolist() for n, t in tensors.items()}
    assert np.shares_memory(opened["token_embd.weight"], opened["token_embd.weight"])
    assert not opened["token_embd.weight"].flags.writeable
    assert opened.shapes["blk.0.ffn_down.weight"] == (32, 64)


def test_every_way_to_store_reads_as_the_library_reads_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.formats.quantized._CHUNK", 4096)  # several parts, the last a short one
    array = np.random.default_rng(1).standard_normal((37, 256)).astype(np.float32)
    for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", *SCALES):
        opened = GgufFile(write_gguf(tmp_path / "a.gguf", tensors={"x.weight": array}, kind=kind))
        whole = gguf.dequantize(quantised(array, kind), gguf.GGMLQuantizationType[kind])
        np.testing.assert_array_equal(opened["x.weight"], whole, err_msg=kind)
        assert opened.kinds == {"x.weight": kind}


def test_the_blocks_of_q8_0_by_hand(file) -> None:
    numbers = np.arange(-16, 16, dtype=np.int8)
    data = np.float16(0.25).tobytes() + numbers.tobytes()
    content = header(tensors=tensor(shape=(32,), kind=8), num_tensors=1)
    opened = file(content.ljust(-(-len(content) // 32) * 32, b"\0") + data)
    np.testing.assert_array_equal(opened["x"], numbers * np.float32(0.25))


def test_the_blocks_of_q4_1_by_hand(file) -> None:
    """A scale, a minimum, and 32 numbers of 4 bits: the low halves of 16 bytes, then the high ones."""
    low, high = np.arange(16, dtype=np.uint8), np.arange(15, -1, -1, dtype=np.uint8)
    data = np.array([0.5, -3], np.float16).tobytes() + (low | high << 4).tobytes()
    content = header(tensors=tensor(shape=(32,), kind=3), num_tensors=1)
    opened = file(content.ljust(-(-len(content) // 32) * 32, b"\0") + data)
    np.testing.assert_array_equal(opened["x"], np.concatenate([low, high]) * np.float32(0.5) - 3)


def test_the_metadata_come_as_plain_values(file) -> None:
    values = value("a", 8, text("é")) + value("b", 6, struct.pack("<f", 1e-5)) + value("c", 7, b"\1")
    values += value("d", 9, struct.pack("<IQ", 8, 2) + text("x") + text("")) + value("e", 11, struct.pack("<q", -5))
    values += value("f", 9, struct.pack("<IQ3i", 5, 3, 1, 2, -3))
    found = file(header(values, num_values=6)).metadata
    assert found.pop("f").tolist() == [1, 2, -3]
    assert found == {"a": "é", "b": 1e-5, "c": True, "d": ["x", ""], "e": -5}


def test_version_2_is_read(file) -> None:
    assert len(file(header(version=2))) == 0


def test_dequantising_takes_little_more_than_the_result(tmp_path: Path) -> None:
    array = np.zeros((4096, 512), np.float32)
    opened = GgufFile(write_gguf(tmp_path / "a.gguf", tensors={"x.weight": array}, kind="Q4_0"))
    opened["x.weight"]
    tracemalloc.start()
    try:
        opened["x.weight"]
        assert tracemalloc.get_traced_memory()[1] < array.nbytes + 8_000_000
    finally:
        tracemalloc.stop()


# Models in parts, as the library writes them.


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Return the paths of a model in three parts."""
    write_gguf(tmp_path / "m.gguf", tensors_per_part=8)
    return sorted(tmp_path.glob("*.gguf"))


def test_any_part_opens_all(parts: list[Path]) -> None:
    assert [path.name for path in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for path in parts:
        opened = GgufFile(path)
        assert {name: array.tolist() for name, array in opened.items()} == {
            name: array.tolist() for name, array in llama_tensors().items()
        }
        assert opened.metadata["tokenizer.ggml.tokens"] == TOKENS


def test_parts_that_are_missing_are_named(parts: list[Path]) -> None:
    parts[0].unlink()
    parts[2].unlink()
    with pytest.raises(RegardError) as error:
        GgufFile(parts[1])
    assert str(error.value) == (
        f"cannot read {parts[1]}: it is one of 3 parts, and m-00001-of-00003.gguf, m-00003-of-00003.gguf are not in "
        f"{parts[1].parent}; fetch what is missing into that folder"
    )


def test_a_part_under_another_name_says_how_it_is_called(parts: list[Path]) -> None:
    other = parts[1].rename(parts[1].with_name("other.gguf"))
    with pytest.raises(RegardError, match=r"part 2 of 3, .* rename it to NAME-00002-of-00003\.gguf"):
        GgufFile(other)


def test_a_part_of_another_model_is_noticed(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[0].read_bytes())
    with pytest.raises(RegardError, match=r"m-00003-of-00003\.gguf is not part 3 of 3; fetch it again"):
        GgufFile(parts[0])


def test_tensors_that_two_parts_have_or_none_are_noticed(parts: list[Path]) -> None:
    first, second = (path.read_bytes() for path in parts[:2])
    parts[1].write_bytes(second.replace(b"blk.0.ffn_up.weight", b"blk.0.attn_q.weight"))
    with pytest.raises(RegardError, match=r"tensor 'blk\.0\.attn_q\.weight' is in two of its 3 parts"):
        GgufFile(parts[0])
    parts[1].write_bytes(second)
    key = text("split.tensors.count")
    at = first.index(key) + len(key) + 4
    parts[0].write_bytes(first[:at] + struct.pack("<i", 21) + first[at + 4 :])
    with pytest.raises(RegardError, match="its 3 parts have 20 tensors, not 21"):
        GgufFile(parts[0])


@pytest.mark.parametrize("places", [(3, 3), (0, 2**17), (0, 0)])
def test_numbers_of_parts_that_cannot_be_are_refused(tmp_path: Path, places: tuple[int, int]) -> None:
    values = {"split.no": places[0], "split.count": places[1]}
    with pytest.raises(RegardError, match=rf"it is part {places[0]}, from 0, of {places[1]}"):
        GgufFile(write_gguf(tmp_path / "m-00001-of-00002.gguf", metadata=values))


@pytest.mark.parametrize("wrong", ["2", [0, 2], 2.0, True])
@pytest.mark.parametrize(
    ("key", "part"), [(key, part) for key in ("no", "count", "tensors.count") for part in range(2)][:-1]
)
def test_numbers_of_parts_that_are_none_are_refused(tmp_path: Path, key: str, part: int, wrong: object) -> None:
    paths = [tmp_path / f"m-0000{i + 1}-of-00002.gguf" for i in range(2)]
    for i, path in enumerate(paths):
        values = {"split.no": i, "split.count": 2, "split.tensors.count": 2}
        values |= {f"split.{key}": wrong} if i == part else {}
        write_gguf(path, tensors={f"{i}.weight": np.zeros(3, np.float32)}, metadata=values)
    with pytest.raises(RegardError, match=r"it is part .* of .*; fetch|is not part \d of 2; fetch|have 2 tensors, not"):
        GgufFile(paths[0])


def test_a_part_of_a_tensor_is_read_alone(tmp_path: Path) -> None:
    array = np.random.default_rng(2).standard_normal((3, 4, 64)).astype(np.float32)
    for kind in ("F32", "F16", "Q8_0", "Q5_1"):
        opened = GgufFile(write_gguf(tmp_path / "a.gguf", tensors={"x.weight": array}, kind=kind))
        for i in range(3):
            np.testing.assert_array_equal(opened.read("x.weight", i), opened["x.weight"][i])
    blocks, _ = GgufFile(write_gguf(tmp_path / "a.gguf", tensors={"x.weight": array}, kind="Q8_0")).quantized(
        "x.weight", 1
    )
    np.testing.assert_array_equal(blocks, quantised(array[1], "Q8_0"))


# What is refused.

WEIGHT = tensor()
HUGE = 2**60
UNSOUND = {
    "nothing": (b"", "it is empty"),
    "another format": (b"PK\3\4" + bytes(40), "does not start with GGUF"),
    "cut after the magic": (b"GGUF", "truncated or damaged: at byte 4 it needs 4 more bytes, but has 0"),
    "version 1": (header(version=1), "version 1; regard reads versions 2 and 3"),
    "big-endian": (header(version=0x03000000), "it is big-endian; convert it"),
    "a count of values that fills any memory": (header(num_values=HUGE), "truncated or damaged"),
    "a count of tensors that fills any memory": (header(num_tensors=HUGE), "truncated or damaged"),
    "more metadata than any model has": (header(bytes(13 * 2**17), num_values=2**17), "131072 metadata and 0 "),
    "an array that fills any memory": (
        header(value("a", 9, struct.pack("<IQ", 4, HUGE)), num_values=1),
        "truncated or damaged: .* needs 4611686018427387904 more bytes",
    ),
    "texts that fill any memory": (header(value("a", 9, struct.pack("<IQ", 8, HUGE)), num_values=1), "truncated or d"),
    "a text beyond the file": (header(value("a", 8, struct.pack("<Q", 2**63)), num_values=1), "truncated or damaged"),
    "a text of a list beyond the file": (
        header(value("a", 9, struct.pack("<IQ", 8, 2) + text("x") + struct.pack("<Q", 9)), num_values=1),
        "truncated or damaged",
    ),
    "a text that is not UTF-8": (header(value("a", 8, text(b"\xff")), num_values=1), "is not UTF-8"),
    "a text of a list that is not UTF-8": (
        header(value("a", 9, struct.pack("<IQ", 8, 1) + text(b"\xff")), num_values=1),
        "is not UTF-8",
    ),
    "a value of no known type": (header(value("a", 13, bytes(8)), num_values=1), "'a' of its metadata has type 13"),
    "an array of arrays": (
        header(value("a", 9, struct.pack("<IQ", 9, 1) + bytes(12)), num_values=1),
        "'a' of its metadata has type 9",
    ),
    "neither true nor false": (header(value("a", 7, b"\2"), num_values=1), "neither true nor false"),
    "a key twice": (header(value("a", 7, b"\1") * 2, num_values=2), "'a' twice"),
    "a tensor twice": (header(tensors=WEIGHT * 2, num_tensors=2) + bytes(64), "tensor 'x' appears twice"),
    "too many axes": (header(tensors=tensor(shape=(1,) * 5), num_tensors=1) + bytes(99), "has 5 axes"),
    "a thousand million axes": (
        header(tensors=text("x") + struct.pack("<I", 10**9) + bytes(12), num_tensors=1),
        "has 1000000000 axes",
    ),
    "an axis of nothing": (header(tensors=tensor(shape=(2, 0)), num_tensors=1), r"shape \(0, 2\), which is empty"),
    "no memory can hold it": (header(tensors=tensor(shape=(2**62,) * 4), num_tensors=1), "it is truncated: .* missing"),
    "a type that nobody knows": (header(tensors=tensor(kind=99), num_tensors=1), "has type 99, which gguf .* not sup"),
    "rows that are no blocks": (header(tensors=tensor(shape=(33,), kind=8), num_tensors=1), "rows of 33 .*blocks of"),
    "no row at all, in blocks": (header(tensors=tensor(shape=(), kind=8), num_tensors=1), "rows of 1 .*blocks of 32"),
    "a tensor beyond the file": (header(tensors=tensor(start=2**62), num_tensors=1), "it is truncated"),
    "data truncated": (header(tensors=WEIGHT, num_tensors=1).ljust(64, b"\0") + bytes(7), "1 of 72 bytes are missing"),
    "out of line": (header(tensors=tensor(start=8), num_tensors=1) + bytes(99), "starts at byte 8 .* multiple of 32"),
    "an overlap": (
        header(tensors=tensor("x", (9,)) + tensor("y", start=32), num_tensors=2) + bytes(200),
        "tensor 'y' overlaps the tensor 'x'",
    ),
    "an alignment of 0": (header(value("general.alignment", 4, bytes(4)), num_values=1), "general.alignment is 0"),
    "an alignment of 48": (
        header(value("general.alignment", 4, struct.pack("<I", 48)), num_values=1),
        "not a power of two",
    ),
    "an alignment that is a text": (header(value("general.alignment", 8, text("32")), num_values=1), "is '32', not"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), UNSOUND.values(), ids=UNSOUND.keys())
def test_an_unsound_file_is_refused_on_one_line_without_the_memory_that_it_asks_for(
    file, content: bytes, message: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RegardError, match=rf"\Acannot read .*a\.gguf: .*{message}.{{,300}}\Z"):
            file(content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_header_longer_than_any_model_needs_is_refused(file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.formats.gguf._MAX_HEADER", 1000)
    with pytest.raises(RegardError, match="its header is longer than"):
        file(header(value("a", 8, text("x" * 2000)), num_values=1))


def test_a_type_that_the_library_cannot_dequantise_is_named_when_asked_for(file) -> None:
    content = header(tensors=tensor(shape=(32,), kind=9), num_tensors=1)  # Q8_1, for products inside llama.cpp
    opened = file(content.ljust(-(-len(content) // 32) * 32, b"\0") + bytes(40))
    with pytest.raises(RegardError, match=r"tensor 'x' of .* is Q8_1, which gguf [\d.]+ cannot dequantise"):
        opened["x"]


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(RegardError, match="needs the gguf library: pip install gguf"):
        GgufFile(path)


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"cannot read .*/no: No such file"):
        GgufFile(tmp_path / "no")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RegardError, match="not a regular file"):
        GgufFile(tmp_path / "pipe")


def test_what_is_gguf_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other").write_bytes(b"GGU")
    assert is_gguf(write_gguf(tmp_path / "blob-without-an-ending"))
    assert not any(map(is_gguf, (tmp_path, tmp_path / "pipe", tmp_path / "other", tmp_path / "no", "\0")))


def test_a_vocabulary_is_read_whole(tmp_path: Path) -> None:
    assert GgufFile(write_gguf(tmp_path / "a.gguf")).metadata["tokenizer.ggml.tokens"] == TOKENS


def test_common_kinds_have_the_layout_of_the_library() -> None:
    for number, name in _KINDS.items():
        kind = gguf.GGMLQuantizationType(number)
        assert _layout(number) == (name, *gguf.GGML_QUANT_SIZES[kind])
        assert name == kind.name


def test_common_kinds_are_read_without_importing_the_library(file) -> None:
    path = file(header(tensors=tensor(), num_tensors=1) + bytes(4096)).path
    code = (
        "import sys; from regard.formats.gguf import GgufFile; GgufFile(sys.argv[1])['x']; print('gguf' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
