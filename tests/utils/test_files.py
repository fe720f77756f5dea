"""Files are read within limits, and written whole whatever goes wrong."""

import io
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from regard._utils.errors import RegardError
from regard._utils.files import atomic_folder, atomic_write, open_regular, read_file, read_json_object, read_limited
from regard.cli.tables import read_column
from regard.explorer.address import _read as _read_address
from regard.explorer.queries.corpus import Corpus
from regard.formats.gguf import GgufFile
from regard.formats.safetensors import SafetensorsFile
from regard.models.images.read import read_picture
from regard.text import read_word_vectors
from regard.training import TrainingRun


def write(path: Path | str, content: bytes = b"new") -> None:
    with atomic_write(path) as stream:
        stream.write(content)


def write_until(interruption: type[BaseException], path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write(b"new")
        raise interruption


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", r"cannot write '.*a\\x00b': not a valid file name"),
        ("a" * 256, r"cannot write .*too long"),
        ("", "it is a folder; give a file name"),
        ("no/a", "there is no folder HERE/no; create it first"),
        ("file/a", "there is no folder"),
    ],
    ids=["a zero", "too long", "a folder", "no folder", "a file for a folder"],
)
def test_a_name_under_which_no_file_can_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match=message.replace("HERE", str(tmp_path))):
        write(f"{tmp_path}/{name}")


def test_the_file_appears_whole_at_the_end_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_write("a") as stream:  # in the folder of the call
        monkeypatch.chdir("/")
        stream.write(b"new")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_interrupted_write_leaves_nothing_and_keeps_the_old_file(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    for there in ([], ["a"]):
        for name in there:
            (tmp_path / name).write_bytes(b"old")
        with pytest.raises(interruption):
            write_until(interruption, tmp_path / "a")
        assert names_in(tmp_path) == there
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        write(tmp_path / "a")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_private_file_is_private_while_it_is_written_and_afterwards(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)
    with atomic_write(tmp_path / "a") as stream:
        assert stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_link_keeps_pointing(tmp_path: Path, is_relative: bool) -> None:
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "near" / "link").symlink_to("../far/a" if is_relative else tmp_path / "far" / "a")
    write(tmp_path / "near" / "link")
    assert (tmp_path / "near" / "link").is_symlink()
    assert (tmp_path / "far" / "a").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "字" * 85, "𝛑" * 63])
def test_the_longest_names_can_be_written(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"new"


def test_a_removed_current_folder_is_no_matter_of_a_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with atomic_folder(tmp_path / "new") as folder:
        (folder / "file").touch()
    assert names_in(tmp_path / "new") == ["file"]
    for context in (atomic_folder("new"), atomic_write("new")):
        with pytest.raises(RegardError, match="the current folder was removed; go to another"), context:
            pass


def test_a_folder_without_permission_is_a_regard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RegardError, match=r"^cannot write .*/a: Permission denied$"):
        write(tmp_path / "a")


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RegardError, match="cannot write /dev/full: No space left on device"):
        write("/dev/full")
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RegardError, match="No space left on device"):
        write(tmp_path / "a")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_a_pipe_receives_everything_and_a_device_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe", bytes(1_000_000))
    reader.join()
    assert received == [bytes(1_000_000)]
    write("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_standard_output_may_be_a_pipe() -> None:
    program = "from regard._utils.files import *\nwith atomic_write('/dev/stdout') as stream: stream.write(b'new')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout == b"new"


def test_a_reader_that_went_away_stays_a_broken_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = threading.Thread(target=lambda: (tmp_path / "pipe").open("rb").close())
    reader.start()
    with pytest.raises(BrokenPipeError):
        write(tmp_path / "pipe", bytes(1_000_000))
    reader.join()


def test_a_file_that_the_caller_cannot_read_is_not_blamed_on_the_written_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "a"):
        (tmp_path / "other").read_bytes()


def test_a_file_larger_than_any_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no place on the disk
    with pytest.raises(RegardError, match="it has 1099511627776 bytes, more than the limit of 134217728"):
        read_file(tmp_path / "a")


def test_a_file_whose_size_says_nothing_is_read_up_to_the_limit() -> None:
    assert Path("/proc/self/maps").stat().st_size == 0
    with pytest.raises(RegardError, match="it has more than the limit of 100 bytes"):
        read_file("/proc/self/maps", 100)


@pytest.mark.parametrize("size", [99, 100, 101])
def test_a_stream_that_gives_little_at_a_time_is_read_up_to_the_limit(size: int) -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(1 if size else size)

    if size <= 100:
        assert read_limited(Trickle(bytes(size)), "x", 100) == bytes(size)
    else:
        with pytest.raises(RegardError, match=r"^cannot read x: it has more than the limit of 100 bytes$"):
            read_limited(Trickle(bytes(size)), "x", 100)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": ' * 100_000, "[]", "{"])
def test_what_is_no_json_object_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(RegardError, match="fetch the file again"):
        read_json_object(tmp_path / "a")


def _losses(path: Path) -> object:
    run = object.__new__(TrainingRun)
    run.folder = path.parent
    run._offset, run._identity = 0, (0, 0)
    return run.losses()


READERS: dict[str, Callable[[Path], object]] = {
    "a": read_file,
    "a.json": read_json_object,
    "a.safetensors": SafetensorsFile,
    "a.gguf": GgufFile,
    "vectors.txt": read_word_vectors,
    "sentences.txt": Corpus,
    "address.txt": _read_address,
    "losses.csv": _losses,
    "table.parquet": lambda path: read_column(str(path), "text"),
    "picture.png": read_picture,
}


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("name", READERS)
def test_what_reads_a_file_reads_a_regular_one(tmp_path: Path, name: str, target: str) -> None:
    if target == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(target)
    with pytest.raises(RegardError, match=f"{tmp_path}/{name}: .*it is not a regular file; copy it to one"):
        READERS[name](tmp_path / name)
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular(tmp_path / name)
