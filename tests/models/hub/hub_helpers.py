"""What the tests of models of the hub share: a tiny model, and where it is served and kept."""

from pathlib import Path

import pytest
from hub_server import COMMIT
from huggingface_hub import constants

import regard
from regard import RegardError

GOLDEN = Path(__file__).parents[1] / "golden"
LLAMA = {
    name: (GOLDEN / "llama" / "llama3" / name).read_bytes()
    for name in ("config.json", "tokenizer.json", "model.safetensors")
}
UNNEEDED = {
    "README.md": b"# tiny",
    ".gitattributes": b"",
    "pytorch_model.bin": b"a pickle",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
    "tf_model.h5": b"h5",
}
WATCHDOG = 120  # seconds that no passing test comes near


def point_to(address, monkeypatch):
    """Make this the hub, for the library that this process has imported too."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setenv("HF_ENDPOINT", address)


def snapshot(home, commit=COMMIT):
    return home / "hf" / "hub" / "models--org--tiny" / "snapshots" / commit


def names_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def error_of(call, *arguments, **options):
    with pytest.raises(RegardError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def sentence(hub, name="org/tiny", **options):
    return str(error_of(regard.load, name, **options)).replace(hub.address, "HUB")
