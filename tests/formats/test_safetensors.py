"""The safetensors reader and writer: beside the reference package, and before hostile files."""

import gc
import json
import os
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy as reference
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from regard._utils.errors import RegardError
from regard.formats import safetensors
from regard.formats.safetensors import SafetensorsFile, write_safetensors

DTYPES = ["?", "u1", "i1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<f8", "<i8", "<u8"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
ARRAYS = st.dictionaries(
    st.text(st.characters(codec="utf-8")).filter(lambda name: name != "__metadata__"),
    st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES)),
    max_size=4,
)


def bits(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return what must be equal, NaN and signed zeros included."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def laid_out(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture
def file(tmp_path: Path):
    def opened(content: bytes, name: str = "a.safetensors") -> SafetensorsFile:
        (tmp_path / name).write_bytes(content)
        return SafetensorsFile(tmp_path / name)

    return opened


# Beside the reference package.


@given(arrays=ARRAYS)
def test_reads_what_the_reference_writes(tmp_path_factory: pytest.TempPathFactory, arrays: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "theirs.safetensors"
    reference.save_file(arrays, path)
    assert bits(SafetensorsFile(path)) == bits(arrays)


@given(arrays=ARRAYS)
def test_writes_the_bytes_that_the_reference_writes(tmp_path_factory: pytest.TempPathFactory, arrays: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "ours.safetensors"
    write_safetensors(path, arrays)
    assert path.read_bytes() == reference.save(arrays)


def test_metadata_is_written_as_the_reference_does_and_comes_back(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a", {"x": np.ones(3)}, {"text": 'é "𝛑"\n'})
    assert (tmp_path / "a").read_bytes() == reference.save({"x": np.ones(3)}, {"text": 'é "𝛑"\n'})
    write_safetensors(tmp_path / "a", {}, {"b": "2", "a": "1"})
    assert SafetensorsFile(tmp_path / "a").metadata == {"a": "1", "b": "2"}


@given(values=hnp.arrays("<u2", (7,)))
def test_bfloat16_is_widened_exactly(tmp_path_factory: pytest.TempPathFactory, values: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "bf16.safetensors"
    path.write_bytes(laid_out({"x": tensor("BF16", [7], [0, 14])}, values.tobytes()))
    expected = values.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(SafetensorsFile(path)["x"], expected)


@pytest.mark.minilm
def test_a_real_checkpoint_reads_as_the_reference_reads_it(minilm_dir: Path) -> None:
    path = minilm_dir / "model.safetensors"
    assert bits(SafetensorsFile(path)) == bits(reference.load_file(path))


# A plain value.


def test_what_is_known_of_a_file(file) -> None:
    header = {"a": tensor("BF16", [1, 1], [0, 2]), "b": tensor("U8", [1], [2, 3]), "c": tensor("F64", [1], [3, 11])}
    content = laid_out(
        header | {"d": tensor("F8_E4M3", [2], [11, 13])}, b"\0\0\7" + np.array([1.5]).tobytes() + b"\1\2"
    )
    opened = file(content)
    assert opened.shapes == {"a": (1, 1), "b": (1,), "c": (1,), "d": (2,)}
    assert opened.dtypes == {"a": "BF16", "b": "U8", "c": "F64", "d": "F8_E4M3"}
    assert "d" in opened  # without reading it
    assert (opened["b"], opened["c"]) == (7, 1.5)  # which is not aligned
    assert np.shares_memory(opened["b"], opened["b"])
    assert opened != file(content)
    for name in "ab":
        with pytest.raises(ValueError, match="read-only"):
            opened[name][0] = 1
    with pytest.raises(KeyError, match="weight"):
        opened["weight"]
    with pytest.raises(RegardError, match=r"tensor 'd' of .* is 'F8_E4M3', which NumPy cannot hold"):
        opened["d"]
    with pytest.raises(RegardError, match=r"tensor 'x' .* BOOL but has bytes other than 0 and 1"):
        file(laid_out({"x": tensor("BOOL", [2], [0, 2])}, b"\1\2"))["x"]


def test_what_looks_like_a_pickle_and_is_none(file) -> None:
    assert file(laid_out({"x": tensor()}, bytes(8)), "model.bin").shapes == {"x": (2,)}
    assert len(file(laid_out(b"{}".ljust(0x280)))) == 0  # a length like the first bytes of one
    for suffix in ("bin", "pt", "pth", "ckpt", "PKL"):
        with pytest.raises(RegardError, match="it is a pickle"):
            file(bytes(100), f"pytorch_model.{suffix}")


def test_an_array_outlives_its_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a", {"x": np.arange(3)})
    array = SafetensorsFile(tmp_path / "a")["x"]
    gc.collect()
    write_safetensors(tmp_path / "a", {"x": array + 10})
    assert array.tolist() == [0, 1, 2]


# What is refused.

LONG = "9" * 5000
UNSOUND = {
    "no JSON": (laid_out(b"{nonsense"), "its header is not valid JSON"),
    "no UTF-8": (laid_out(b'{"\xff": 1}'), "its header is not valid JSON .*utf-8"),
    "half a surrogate pair": (laid_out(rb'{"\ud800": {}}'), "not valid JSON .*surrogates"),
    "not a number": (laid_out(b'{"a": NaN}'), "it has NaN, which is not valid JSON"),
    "two values": (laid_out(b"{} {}"), "not valid JSON .*Extra data"),
    "nested deeply": (laid_out(b'{"a":' + b"[" * 100_000), "not valid JSON .*recursion"),
    **{f"{n} lists": (laid_out(b'{"x":' + b"[" * n + b"]" * n + b"}"), "cannot read") for n in range(900, 1000, 33)},
    "a giant number": (laid_out(b'{"a": %s}' % LONG.encode()), "not valid JSON .*4300 digits"),
    "a hostile name": (laid_out({"\x1b[31m\n" + "x" * 10_000: tensor(shape=[3])}, bytes(8)), "x"),
    "a name twice": (
        laid_out(b'{"x": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}, "x": {}}'),
        "it has 'x' twice",
    ),
    "a field twice": (laid_out(b'{"x": {"dtype":"U8","dtype":"I8"}}'), "it has 'dtype' twice"),
    "metadata of numbers": (laid_out({"__metadata__": {"a": 1}}), "__metadata__ must map strings to strings"),
    "metadata in a list": (laid_out({"__metadata__": []}), "__metadata__ must map strings to strings"),
    "a tensor that is a number": (laid_out({"x": 5}), "tensor 'x' must have dtype, shape and data_offsets"),
    "no offsets": (laid_out({"x": {"dtype": "U8", "shape": []}}), "must have dtype, shape and data_offsets"),
    "a field too many": (laid_out({"x": tensor() | {"y": 1}}, bytes(8)), "must have dtype, shape and data_of"),
    "dtype 5": (laid_out({"x": tensor(5)}, bytes(8)), "dtype 5, which is not a string"),  # type: ignore[arg-type]
    "shape 5": (laid_out({"x": tensor(shape=5)}, bytes(8)), "shape 5, which is not a list"),
    "a negative size": (laid_out({"x": tensor(shape=[-1, -2])}, bytes(8)), "shape .-1, -2., which is not"),
    "a size that is true": (laid_out({"x": tensor(shape=[True, 2])}, bytes(8)), "shape .True, 2., which is"),
    "a size that is a fraction": (laid_out({"x": tensor(shape=[2.0])}, bytes(8)), "shape .2.0., which is not"),
    "too many axes": (laid_out({"x": tensor(shape=[1] * 65)}, bytes(8)), "not a list of at most 64 sizes"),
    "overflow": (laid_out({"x": tensor(shape=[2**62, 4])}, bytes(8)), "which is too large for any memory"),
    "overflow besides zero": (laid_out({"x": tensor(shape=[0, 2**62, 4], offsets=(0, 0))}), "too large for any memory"),
    "a giant offset": (laid_out({"x": tensor(offsets=[0, 2**63])}, bytes(8)), "are not a start and an end"),
    "one offset": (laid_out({"x": tensor(offsets=[0])}, bytes(8)), "which are not a start and an end"),
    "offsets backwards": (laid_out({"x": tensor(offsets=[8, 0])}, bytes(8)), "not a start and an end"),
    "a negative offset": (laid_out({"x": tensor(offsets=[-8, 0])}, bytes(8)), "not a start and an end"),
    "too few bytes": (laid_out({"x": tensor(shape=[3])}, bytes(8)), "needs 12 bytes, but has 8"),
    "too many bytes": (laid_out({"x": tensor(shape=[1])}, bytes(8)), "needs 4 bytes, but has 8"),
    "an overlap": (laid_out({"x": tensor(), "y": tensor(offsets=(4, 12))}, bytes(12)), "'y' overlaps"),
    "the same place": (laid_out({"x": tensor(), "y": tensor()}, bytes(8)), "'y' overlaps"),
    "a gap": (laid_out({"x": tensor(), "y": tensor(offsets=(9, 17))}, bytes(17)), "'y' leaves a gap"),
    "a gap at the start": (laid_out({"x": tensor(offsets=(1, 9))}, bytes(9)), "'x' leaves a gap"),
    "bytes at the end": (laid_out({"x": tensor()}, bytes(11)), "its last 3 bytes belong to no tensor"),
    "data truncated": (laid_out({"x": tensor()}, bytes(5)), "truncated: 3 of 7. bytes are missing; fetch it again"),
    "header truncated": ((500).to_bytes(8, "little") + b"{}", "498 of 508 bytes are missing; fetch it again"),
    "length truncated": (b"\1\0\0", "6 of 9 bytes are missing; fetch it again"),
    "an absurd header": ((2**63).to_bytes(8, "little") + b"{}", "no header at its start"),
    "a header of over 100 MB": ((100_000_001).to_bytes(8, "little") + b"{}", "no header at its start"),
    "a list": (laid_out(b"[]"), "no header at its start"),
    "no header": (laid_out(b"", bytes(8)), "no header at its start"),
    "nothing": (b"", "it is empty; fetch it again"),
    "GGUF": (b"GGUF\3\0\0\0\0\0\0\0", "it is a GGUF file"),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a zip of pickles": (b"PK\3\4" + bytes(30), "it is a pickle.*safetensors.torch.save_file"),
    "a pickle": (b"\x80\2}q\0.        ", "it is a pickle.*safetensors.torch.save_file"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), UNSOUND.values(), ids=UNSOUND.keys())
def test_an_unsound_file_is_refused_on_one_line_that_names_it(file, content: bytes, message: str) -> None:
    with pytest.raises(RegardError, match=message) as caught:
        file(content)
    assert re.fullmatch(r"cannot read .*a\.safetensors: [ -~]{,400}", str(caught.value))


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(laid_out(b"{" + content))
    try:
        opened = SafetensorsFile(path)
    except RegardError:
        return
    assert json.loads(b"{" + content).keys() - {"__metadata__"} == set(opened)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "BOOL", "F8_E4M3", "?"]) | JSON,
        "shape": st.lists(st.integers(-1, 3) | st.sampled_from([2**31, 2**63, 2**64]), max_size=4) | JSON,
        "data_offsets": st.tuples(st.integers(-1, 20), st.integers(0, 2**65)) | JSON,
    }
)


@given(header=st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), FIELDS | JSON), size=st.integers(0, 40))
def test_any_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, header: dict, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(laid_out(header, bytes(size)))
    try:
        shapes = {name: array.shape for name, array in SafetensorsFile(path).items()}
    except RegardError:
        return
    assert shapes.keys() == header.keys() - {"__metadata__"}


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # which is not waited for
    for path, message in (
        (tmp_path / "no", r"cannot read .*/no: No such file or directory"),
        (tmp_path, r"it is a folder; give a .safetensors file in it"),
        (tmp_path / "pipe", "not a regular file"),
    ):
        with pytest.raises(RegardError, match=message):
            SafetensorsFile(path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> None:
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "a").write_bytes(laid_out({}))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RegardError, match="/a: Permission denied"):
        SafetensorsFile(tmp_path / "a")


# Writing.


@given(names=st.permutations(list(string.ascii_lowercase[:5])))
def test_the_order_of_the_arrays_does_not_matter(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "order.safetensors"
    write_safetensors(path, {name: np.full(3, ord(name)) for name in names}, dict.fromkeys(names, "m"))
    first = path.read_bytes()
    names = sorted(names)
    write_safetensors(path, {name: np.full(3, ord(name)) for name in names}, dict.fromkeys(names, "m"))
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.arange(12.0).reshape(3, 4)[::2, ::-1],
        np.arange(7.0)[::-3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.float64(2.5),
        [[1, 2], [3, 4]],
        np.array([1, 2], np.longlong),
    ],
    ids=["big-endian", "strided", "strided 1-d", "Fortran", "0-d", "list", "longlong"],
)
def test_any_layout_comes_back_with_the_same_values(tmp_path: Path, array: Any) -> None:
    write_safetensors(tmp_path / "a", {"x": array})
    read = SafetensorsFile(tmp_path / "a")["x"]
    assert (read.shape, read.tolist()) == (np.shape(array), np.asarray(array).tolist())


@pytest.mark.parametrize(
    "array",
    [
        np.ones(2, complex),
        np.ones(2, np.longdouble),
        np.array([None]),
        np.array(["text"]),
        np.array(["text"], np.dtypes.StringDType()),
        np.ones(2, ml_dtypes.bfloat16),
        np.ones(2, ml_dtypes.float8_e4m3),
        np.array(["2017-06-12"], "datetime64[D]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_dtype_that_cannot_be_stored_is_named(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(RegardError, match=f"array 'x' has dtype {str(array.dtype)[:6]}.*; convert it"):
        write_safetensors(tmp_path / "a", {"x": array})


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"x": np.ones(2), "y": np.ones(2, complex)}, {}, "array 'y' has dtype complex128"),
        ({"x": [[1], [2, 3]]}, {}, r"array 'x' is not an array: .*inhomogeneous"),
        ({"__metadata__": np.ones(2)}, {}, "cannot have the name '?__metadata__"),
        ({5: np.ones(2)}, {}, "cannot have the name '?5"),
        ({"\ud800": np.ones(2)}, {}, "not valid text"),
        ({}, {"layers": 6}, r"metadata of a safetensors file must map strings to strings, got {'layers': 6}"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_no_file(
    tmp_path: Path, arrays: Any, metadata: Any, message: str
) -> None:
    with pytest.raises(RegardError, match=message):
        write_safetensors(tmp_path / "a", arrays, metadata)
    assert list(tmp_path.iterdir()) == []


def test_a_repeated_name_is_found_in_one_pass():
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    pairs = [(Name(number), 0) for number in [*range(500), 499]]
    with pytest.raises(ValueError, match="'499' twice"):
        safetensors._ObjectHook("")(pairs)
    assert compared < 10 * len(pairs)


@pytest.mark.parametrize("number", [3, 4])
def test_a_file_has_a_limited_number_of_tensors(file, tmp_path: Path, monkeypatch, number: int) -> None:
    """Reading stops there: millions without numbers would fit into a header, and take minutes."""
    monkeypatch.setattr(safetensors, "_MAX_TENSORS", 3)
    arrays = {str(i): np.zeros(0, np.float32) for i in range(number)}
    content = laid_out({"__metadata__": {"a": "b"}} | {name: tensor(shape=[0], offsets=[0, 0]) for name in arrays})
    if number == 3:
        assert len(file(content)) == 3
        write_safetensors(tmp_path / "b", arrays)
        return
    with pytest.raises(RegardError, match="has more than 3 tensors; split it"):
        file(content)
    with pytest.raises(RegardError, match="4 arrays are more than the 3 "):
        write_safetensors(tmp_path / "b", arrays)
