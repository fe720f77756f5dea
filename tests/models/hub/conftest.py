"""A stand-in for the hub, with caches of its own for each test."""

import hashlib
import os
import sys

import pytest
from hub_helpers import LLAMA, UNNEEDED, point_to
from hub_server import Hub, serving
from huggingface_hub import constants
from huggingface_hub.utils import _http

from regard.models.hub import fetch_snapshot, hub_models


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a folder with all caches and the working folder."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("REGARD_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))  # else that of the first test
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(os.path.abspath(path) for path in sys.path if path))  # noqa: PTH100
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def hub(home, monkeypatch):
    """Serve a tiny Llama; what a child process would fetch, this one fetches, without the start of a process.

    Whatever a test does, what it leaves in the cache is whole: a blob has the name of its hash.
    """

    def run(command, work, report, **_):
        assert command[1:4] == ["-P", "-m", fetch_snapshot.__name__]
        fetch_snapshot.main(*command[4:], wait=report)
        report()
        return 0, b""

    with serving(Hub({"main": LLAMA | UNNEEDED})) as hub:
        monkeypatch.setattr(hub_models, "run", run)
        for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):  # as in the child process
            monkeypatch.setattr(constants, name, True)
        monkeypatch.setattr(_http.time, "sleep", lambda _: None)  # between the tries of the library
        point_to(hub.address, monkeypatch)
        yield hub
        if not hub.headers:  # which give blobs other names
            blobs = {path.name: path.read_bytes() for path in home.glob("hf/hub/*/blobs/*")}
            assert {name for name, content in blobs.items() if hashlib.sha256(content).hexdigest() != name} == set()


@pytest.fixture
def other_program(hub, home):
    """Let another program fetch two of the files that are needed."""
    from huggingface_hub import hf_hub_download

    hub.revisions["main"] |= {"modules.json": b"[]"}
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("org/tiny", name, cache_dir=home / "hf" / "hub", endpoint=hub.address)
    hub.requests.clear()


@pytest.fixture
def served(monkeypatch):
    pytest.importorskip("huggingface_hub")
    with serving(Hub({"main": LLAMA | UNNEEDED})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub
