"""A wheel with a kernel is the one of pure Python, with that file, its own tag and a true list of its files."""

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from scripts import script

wheels = script(".ci/wheels.py")

PURE = {
    "regard/__init__.py": b"",
    "regard-1.dist-info/METADATA": b"Name: regard\n",
    "regard-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n",
    "regard-1.dist-info/RECORD": b"",
}
_NATIVE = "regard/functional/native/_kernel"


@pytest.mark.parametrize(
    ("system", "version", "tag", "kernel"),
    [
        ("musllinux_1_2_aarch64", "13", "cp312-abi3", f"{_NATIVE}.abi3.so"),
        ("macosx_11_0_arm64", "14t", "cp314-cp314t", f"{_NATIVE}.so"),
    ],
)
def test_a_kernel_makes_another_wheel_of_that_of_pure_python(tmp_path, system, version, tag, kernel):
    pure = tmp_path / "regard-1-py3-none-any.whl"
    wheels.write_wheel(pure, PURE)
    compiled = tmp_path / f"_kernel.any{Path(kernel).suffix}"  # as CMake names it
    compiled.write_bytes(b"\x7fELF")
    builder = wheels.Builder.__new__(wheels.Builder)  # without a compiler
    builder.kernel = lambda *_: compiled
    made = builder.wheel(pure, system, wheels.Python("python", tmp_path, version))
    assert made.name == f"regard-1-{tag}-{system}.whl"
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files[kernel] == b"\x7fELF"
    about = files["regard-1.dist-info/WHEEL"].decode()
    assert f"\nTag: {tag}-{system}\n" in about
    assert "\nRoot-Is-Purelib: false\n" in about
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files["regard-1.dist-info/RECORD"].decode()))}
    assert set(rows) == set(files)
    for name, (digest, size) in rows.items():
        if not name.endswith("RECORD"):
            found = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={found}", str(len(files[name])))


def test_an_interpreter_that_is_not_there_is_none():
    assert wheels.Python.read("python-that-is-not-there") is None
