"""`regard models` lists the models of the hub on this machine."""

import re

import pytest
from hub_helpers import LLAMA, snapshot
from hub_server import COMMIT, LATER

from regard.cli import main
from regard.models.hub import resolve
from regard.models.hub.hub_cache import remember_listing

pytestmark = pytest.mark.usefixtures("home")


def put(home, name, files, revision="main", commit=LATER):
    """Put files into the cache as another program does; return their folder."""
    storage = home / "hf" / "hub" / f"models--{name.replace('/', '--')}"
    folder = storage / "snapshots" / commit
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    if revision is not None:
        (storage / "refs").mkdir(exist_ok=True)
        (storage / "refs" / revision).write_text(commit)
    return folder


def shown(capsys):
    """Return what `regard models` prints after the named models, with one space for each run of white space."""
    capsys.readouterr()
    assert main(["models"]) == 0
    return " ".join(capsys.readouterr().out.split()).partition("induction ")[2]


def test_models_shows_what_is_in_the_cache(hub, home, capsys):
    resolve.find("org/tiny")
    index = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    put(home, "other/whisper", {"config.json": b'{"model_type": "whisper"}', "model.safetensors": b"12"})
    put(home, "half/fetched", {"config.json": b'{"model_type": "bert"}', "model.safetensors.index.json": index})
    quantised = put(home, "some/quantised", {"x-q4_0.gguf": b"GGUF", "x-Q8_0.gguf": b"GGUFGGUF"})
    put(home, "org/config", {"config.json": b'{"model_type": "bert"}'})
    put(home, "org/pickled", {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": b"p"})
    put(home, "org/long", {"config.json": b'{"model_type": "%s"}' % (b"x" * 5000), "model.safetensors": b"12"})
    (home / "hf" / "hub" / "datasets--a--b").mkdir()
    (snapshot(home) / "model.safetensors").unlink()
    text = shown(capsys)
    assert "org/tiny llama, incomplete; run regard pull org/tiny" in text
    assert "other/whisper whisper, 0.0 MB, a type that regard does not run" in text
    assert f"some/quantised:Q4_0 GGUF, 0.0 MB {quantised}/x-q4_0.gguf" in text
    for name in ("half/fetched", "org/config", "org/pickled"):  # what another program did not fetch may be there
        assert f"{name} bert, incomplete; run regard pull {name}" in text
    assert re.search("org/long x{77}[.]{3}, ", text)
    assert "a/b" not in text


def test_what_is_known_to_have_no_weights_says_why(hub, home, capsys):
    resolve.find("org/tiny")
    folder = put(home, "org/tiny", {"pytorch_model.bin": b"p"}, commit=COMMIT)
    (folder / "model.safetensors").unlink()
    remember_listing("org/tiny", COMMIT, ["config.json", "pytorch_model.bin"])
    assert "org/tiny llama, the weights of org/tiny are pickles (pytorch_model.bin), which" in shown(capsys)


def test_a_revision_alone_is_shown_as_one(hub, home, capsys):
    hub.revisions["v1"] = hub.revisions.pop("main")
    hub.commits = {"v1": COMMIT}
    resolve.find("org/tiny", revision="v1")
    assert re.search(rf"org/tiny, revision v1 llama, \d\.\d MB {re.escape(str(snapshot(home)))}$", shown(capsys))
    (snapshot(home) / "model.safetensors").unlink()
    assert "org/tiny, revision v1 llama, incomplete; run regard pull org/tiny --revision v1" in shown(capsys)
    (snapshot(home).parents[1] / "refs" / "v1").unlink()
    resolve.find("org/tiny", revision=COMMIT)
    assert f"org/tiny, revision {COMMIT} llama, " in shown(capsys)
    assert resolve.find("org/tiny", revision=COMMIT, download=False) == snapshot(home)


def test_other_revisions_follow_the_main_one(hub, home, capsys):
    hub.revisions["v1"] = LLAMA | {"config.json": LLAMA["config.json"] + b" "}
    hub.commits["v1"] = LATER
    resolve.find("org/tiny", revision="v1")
    resolve.find("org/tiny")
    text = shown(capsys)
    assert 0 < text.index("org/tiny llama, ") < text.index("org/tiny, revision v1 llama, ")


def test_both_formats_of_a_repository_are_shown(hub, home, capsys):
    hub.revisions["main"] |= {"a-Q4_0.gguf": b"GGUF", "b-Q4_0.gguf": b"GGUF", "mmproj-F16.gguf": b"GGUF"}
    resolve.find("org/tiny:a-Q4_0")
    assert "org/tiny:a-Q4_0 GGUF, 0.0 MB" in shown(capsys)
    assert "org/tiny llama" not in shown(capsys)
    resolve.find("org/tiny")
    text = shown(capsys)
    assert "org/tiny:a-Q4_0 GGUF, 0.0 MB" in text
    assert "org/tiny llama, " in text
    assert "b-Q4_0" not in text
    for name in ("org/tiny:a-Q4_0", "org/tiny"):
        assert resolve.find(name, download=False)


def test_a_model_that_lacks_parts_says_what_to_do(home, capsys):
    put(home, "org/split", {"x-F16-00001-of-00002.gguf": b"GGUF"})  # the other is not there
    assert "org/split:F16 GGUF, 0.0 MB, incomplete, 1 of 2 files; run regard pull org/split:F16" in shown(capsys)
    put(home, "org/split", {f"x-F16-0000{i}-of-00002.gguf": b"GGUF" for i in (1, 2)})
    assert "incomplete" not in shown(capsys)
