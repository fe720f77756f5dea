"""Streams that are closed or full, files that cannot be written, and signals: what the process says, and its status."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.cli import main

REGARD = [sys.executable, "-m", "regard"]
FILES = [("-o", ".safetensors"), ("-o", ".png"), ("-o", ".svg"), ("--head-grid", ".png"), ("--movement", ".png")]


def test_a_closed_pipe_is_quiet():
    text = "many words " * 500
    process = subprocess.Popen(
        [*REGARD, "-", "--toy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdout.close()
        process.stdin.write(text.encode())
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


FULL = """
import contextlib, io, json, resource, signal, sys, traceback
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import matplotlib.font_manager  # which writes its list of fonts
from regard.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
answers = []
for argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            status = main(argv)
        except Exception:
            status = traceback.format_exc()
    answers.append([status, said.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    """Return the targets of commands on a disk that fills up, each with the status and standard error of its command.

    A limit of 512 bytes on any file stands in for a full disk.
    """
    home = tmp_path_factory.mktemp("full")
    targets = [home / option.strip("-") / f"x{suffix}" for option, suffix in FILES]
    for target in targets:
        target.parent.mkdir(exist_ok=True)
    commands = [["a b c d", "--toy", option, str(target)] for (option, _), target in zip(FILES, targets, strict=True)]
    environment = {**os.environ, "MPLCONFIGDIR": str(home / "mpl")}
    done = subprocess.run(
        [sys.executable, "-c", FULL, json.dumps(commands)], stdout=subprocess.PIPE, check=True, env=environment
    )
    return dict(zip(FILES, zip(targets, json.loads(done.stdout), strict=True), strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
@pytest.mark.parametrize(("option", "suffix"), FILES)
def test_a_disk_that_fills_up_leaves_nothing(full_disk, option, suffix):
    target, (status, said) = full_disk[option, suffix]
    assert status == 2, said
    assert f"cannot write {target}" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert list(target.parent.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
@pytest.mark.parametrize(
    ("argv", "unbuffered"),
    [
        (["--help"], ""),
        (["a", "--toy", "--json"], "1"),
        *(pytest.param(argv, "", marks=pytest.mark.sweep) for argv in (["--version"], ["a", "--toy", "--json"])),
        *(pytest.param(argv, "1", marks=pytest.mark.sweep) for argv in (["--help"], ["a b", "--toy"])),
    ],
)
def test_at_the_exit_too_a_failed_write_is_one_error(argv, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*REGARD, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (2, "regard: cannot write the output: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "argv", [["--help"], ["show", "--help"], ["--version"], ["models"], ["a", "--toy", "--json"], ["a b", "--toy"]]
)
def test_a_failed_write_is_an_error(capsys, monkeypatch, argv, buffered):
    raw = io.FileIO("/dev/full", "w")
    with io.TextIOWrapper(io.BufferedWriter(raw) if buffered else raw, write_through=not buffered) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(argv) == 2
    assert capsys.readouterr().err == "regard: cannot write the output: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    ("closed", "argv", "message"),
    [
        ("<&-", ["-", "--toy"], "regard: cannot read standard input: it is closed; give a text or --file FILE\n"),
        (">&-", ["a", "--toy"], "regard: cannot write the output: standard output is closed\n"),
        (">&- 2>&-", ["a", "--toy"], ""),
        ("2>&-", ["a", "--sing"], ""),
    ],
)
def test_a_standard_stream_may_be_closed(closed, argv, message):
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *REGARD, *argv], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("le café −", {"PYTHONIOENCODING": "ascii"}),
        ("hi there", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    ],
)
def test_an_output_that_is_not_utf_8(text, settings):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    done = subprocess.run(
        [*REGARD, text, "--toy"], capture_output=True, text=True, check=False, env={**environment, **settings}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ". 1 layer x 1 head ." in done.stdout
    assert ("caf?" in done.stdout) == ("café" in text)  # what has no sign like it


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_may_come_at_any_moment(capsys, monkeypatch):
    """NumPy's C modules, interrupted while they are imported, say ImportError."""

    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGINT)

    def interrupted_import(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("PyCapsule_Import could not import module")

    for what in (interrupted, interrupted_import):
        monkeypatch.setattr("regard.cli.input.toy", what)
        assert main(["a", "--toy"]) == 130
        assert capsys.readouterr().err == "regard: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_callback_is_not_lost(capsys, monkeypatch):
    """Python would print its traceback and go on: nobody can catch what a callback of an import raises."""

    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def interrupted(*_):
        dying = Dying()
        del dying
        while True:
            time.sleep(0.01)

    before = sys.unraisablehook
    for what in ("parser.parse", "commands.show.run"):
        with monkeypatch.context() as patched:
            patched.setattr(f"regard.cli.{what}", interrupted)
            assert main(["a", "--toy"]) == 130
        assert capsys.readouterr().err == "regard: interrupted\n"
        assert sys.unraisablehook is before


def test_a_module_that_is_missing_is_no_interrupt(monkeypatch):
    def missing(*_, **__):
        raise ImportError("no such module")

    monkeypatch.setattr("regard.cli.input.toy", missing)
    with pytest.raises(ImportError, match="no such module"):
        main(["a", "--toy"])


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 128 + signal.SIGINT, "regard: interrupted\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
)
def test_a_signal_ends_it_with_its_own_status(sent, status, said):
    escape, writable = os.pipe()
    os.write(writable, b"a")
    with subprocess.Popen([*REGARD, "-", "--toy"], stdin=escape, stderr=subprocess.PIPE, text=True) as process:
        while unread(escape) or not sleeps(process.pid):  # until it waits for the rest of its text
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(sent)
        assert process.stderr.read() == said
        assert process.wait() == status
    os.close(escape)
    os.close(writable)


def sleeps(pid):
    """Tell whether a process waits for something, where that can be read."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "S"


def unread(pipe):
    """Return how many bytes of a pipe nobody has read."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc on this system")  # noqa: PTH112
@pytest.mark.parametrize(("option", "suffix"), FILES)
def test_a_file_system_that_takes_no_files(run, option, suffix):
    """Nothing can be created in /proc, not even by root."""
    target = f"/proc/regard{suffix}"
    status, out, err = run("a b c", "--toy", option, target)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"regard: cannot write {target}: ")
