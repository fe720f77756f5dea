"""``org/name``: a model of the Hugging Face hub, from the cache of its library or by a download into that."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from hub_server import COMMIT, LATER, TOKEN, Handler, Hub, cut_once, serving, status, stuck
from huggingface_hub import constants

import regard
from regard import RegardError
from regard._utils.files import read_json_object
from regard.cli import main
from regard.models.hub import fetch_snapshot, hub_models, resolve
from regard.models.hub.hub_name import HubName, parse_hub_name
from regard.models.hub.redact import redact
from regard.training import Trainable

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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def point_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the hub, for the library that this process has imported too."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setenv("HF_ENDPOINT", address)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve a tiny Llama; what a child process would fetch, this one fetches, without the start of a process."""

    def run(command: Sequence[str], work: Path, report, **_: object) -> tuple[int, bytes]:
        assert command[1:4] == ["-P", "-m", fetch_snapshot.__name__]
        fetch_snapshot.main(*command[4:])
        report()
        return 0, b""

    with serving(Hub({"main": LLAMA | UNNEEDED})) as hub:
        monkeypatch.setattr(hub_models, "run", run)
        for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"):  # as in the child process
            monkeypatch.setattr(constants, name, True)
        point_to(hub.address, monkeypatch)
        yield hub


def snapshot(home: Path, commit: str = COMMIT) -> Path:
    return home / "hf" / "hub" / "models--org--tiny" / "snapshots" / commit


def names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def error_of(call, *arguments, **options) -> RegardError:
    with pytest.raises(RegardError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


# What is a name.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/tiny", HubName("org/tiny")),
        ("org/tiny:Q4_K_M", HubName("org/tiny", "Q4_K_M")),
        ("a-b.c/D_e.f-1", HubName("a-b.c/D_e.f-1")),
    ],
)
def test_names_of_the_hub(text: str, expected: HubName) -> None:
    assert parse_hub_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "tiny",
            "./tiny",
            "../tiny",
            "/org/tiny",
            "a/b/c",
            "org/",
            "/tiny",
            "org/tiny/",
            "org/a..b",
            "a--b/c",
            "org/ä",
        ),
        *("org/m.gguf", "org/model.safetensors", "org/ti ny", "org/tiny:", "org/tiny:a/b", "org/" + "x" * 96, ""),
    ],
)
def test_other_texts_are_not(text: str) -> None:
    assert parse_hub_name(text) is None


@pytest.mark.parametrize("revision", ["", "../x", "a/../b", "/x", "-x", "a b", "x\n", "~x"])
def test_a_revision_that_cannot_be_one_is_refused(revision: str) -> None:
    assert "is not a revision: give a branch, a tag or a commit of org/tiny" in str(
        error_of(regard.load, "org/tiny", revision=revision)
    )


@pytest.mark.parametrize("name", ["minilm", "induction", "a/b/c", Path("org/tiny")])
def test_only_names_of_the_hub_have_revisions(name: str | Path) -> None:
    assert "revision is for a model of the Hugging Face hub, org/name, not for" in str(
        error_of(regard.load, name, revision="main")
    )


# What is fetched, and where it is.


def test_a_model_is_what_its_folder_is(hub: Hub) -> None:
    ids, folder = [5, 3, 8], regard.load(str(GOLDEN / "llama" / "llama3"))
    model = regard.load("org/tiny")
    assert model.name == "org/tiny"
    np.testing.assert_array_equal(model(ids).logits, folder(ids).logits)
    assert model.tokenizer("w5 w6").ids == folder.tokenizer("w5 w6").ids


def test_the_files_that_are_read_are_fetched_weights_last(hub: Hub, home: Path) -> None:
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.downloaded == ["config.json", "tokenizer.json", "model.safetensors"]
    assert names_in(snapshot(home)) == sorted(LLAMA)


def test_what_was_fetched_is_loaded_without_a_request(hub: Hub, home: Path) -> None:
    resolve.find("org/tiny")
    hub.requests.clear()
    assert resolve.find("org/tiny") == resolve.find("org/tiny", revision=COMMIT) == snapshot(home)
    assert hub.requests == []


def test_the_library_finds_what_was_fetched(hub: Hub, home: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    resolve.find("org/tiny")
    path = try_to_load_from_cache("org/tiny", "model.safetensors", cache_dir=home / "hf" / "hub")
    assert path == str(snapshot(home) / "model.safetensors")


def test_large_files_come_from_another_address(hub: Hub, home: Path) -> None:
    hub.far = True
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]
    assert "GET /far/model.safetensors" in hub.requests


def test_progress_counts_the_bytes_that_are_missing(hub: Hub) -> None:
    told: list[tuple[int, int]] = []
    resolve.find("org/tiny", progress=lambda done, total: told.append((done, total)))
    total = len(LLAMA["tokenizer.json"]) + len(LLAMA["model.safetensors"])
    assert {each for _, each in told} == {total}
    assert told[-1] == (total, total)
    assert all(0 <= done <= total for done, _ in told)
    told.clear()
    resolve.pull("org/tiny", progress=lambda done, total: told.append((done, total)))
    assert told == []  # nothing is missing


def test_shards_are_those_of_the_index(hub: Hub, home: Path) -> None:
    shards = {f"model-0000{i}-of-00002.safetensors": b"x" for i in (1, 2)}
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", '
    index += b'"c": "../../secret.safetensors"}}'
    hub.revisions["main"] = {
        **{name: LLAMA[name] for name in ("config.json", "tokenizer.json")},
        **{"model.safetensors.index.json": index, "other-00001.safetensors": b"y"},
        **shards,
    }
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted(
        ["config.json", "tokenizer.json", "model.safetensors.index.json", *shards]
    )


def test_an_index_that_names_what_is_not_there_is_an_error(hub: Hub) -> None:
    index = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    hub.revisions["main"] = {"config.json": b"{}", "model.safetensors.index.json": index}
    assert str(error_of(resolve.find, "org/tiny")) == (
        "org/tiny lacks files that its index names (model-00001-of-00001.safetensors): choose another revision or model"
    )


def test_the_modules_of_a_sentence_model_come_with_their_folders(hub: Hub, home: Path) -> None:
    modules = b"""[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
        {"idx": 3, "path": "../3", "type": "sentence_transformers.models.Normalize"}]"""
    beside = {
        **{"modules.json": modules, "1_Pooling/config.json": b"{}", "sentence_bert_config.json": b"{}"},
        **{"2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"w", "config_sentence_transformers.json": b"{}"},
    }
    hub.revisions["main"] |= beside | {"2_Dense/pytorch_model.bin": b"p", "4_Other/config.json": b"{}"}
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted([*LLAMA, *beside])


def test_what_says_how_images_and_chats_are_read_comes_too(hub: Hub, home: Path) -> None:
    beside = {
        **{"preprocessor_config.json": b"{}", "generation_config.json": b"{}", "chat_template.jinja": b"x"},
        **{"additional_chat_templates/tool.jinja": b"y", "special_tokens_map.json": b"{}", "vocab.txt": b"z"},
    }
    hub.revisions["main"] |= beside | {"additional_chat_templates/deep/er.jinja": b"", "training_args.bin": b""}
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted([*LLAMA, *beside])


def test_every_file_that_a_loader_names_is_fetched() -> None:
    """A file that a loader begins to read is one that the hub is asked for."""
    from regard.models.hub.hub_files import NAMES

    package = Path(regard.__file__).parent
    sources = [path for part in ("models", "text") for path in (package / part).rglob("*.py")]
    literal = re.compile(r'"((?!pytorch_model)[a-z_]+(?:\.safetensors\.index)?\.(?:json|txt|jinja))"')
    read = {name for path in sources if "shipped" not in path.parts for name in literal.findall(path.read_text())}
    read -= {"verified.json", "plan.json", "result.json", "model.safetensors.index.json"}
    assert {"config.json", "vocab.txt", "merges.txt", "chat_template.jinja"} <= read <= set(NAMES)


def test_a_repository_cannot_write_elsewhere(hub: Hub, home: Path) -> None:
    hub.revisions["main"] = {"config.json": b"{}", "../../../../evil.gguf": b"GGUF", "C:\\x.gguf": b"GGUF"}
    assert "holds neither safetensors nor GGUF" in str(error_of(resolve.find, "org/tiny"))
    assert not list(home.rglob("*evil*"))


# GGUF.

QUANTIZED = {
    "tiny-Q4_K_M.gguf": b"GGUF4",
    "tiny.q8_0.gguf": b"GGUF8",
    "UD/tiny-UD-Q4_K_XL.gguf": b"GGUFU",
    "mmproj-F16.gguf": b"GGUFP",
    "tiny-F16-00001-of-00002.gguf": b"GGUF",
    "tiny-F16-00002-of-00002.gguf": b"GGUF",
}


@pytest.mark.parametrize(
    ("quantization", "file"),
    [
        ("Q4_K_M", "tiny-Q4_K_M.gguf"),
        ("q4_k_m", "tiny-Q4_K_M.gguf"),
        ("Q8_0", "tiny.q8_0.gguf"),
        ("UD-Q4_K_XL", "UD/tiny-UD-Q4_K_XL.gguf"),
    ],
)
def test_a_quantisation_is_one_file(hub: Hub, home: Path, quantization: str, file: str) -> None:
    hub.revisions["main"] |= QUANTIZED  # beside safetensors
    assert resolve.find(f"org/tiny:{quantization}") == snapshot(home) / file
    assert hub.downloaded == [file]
    hub.requests.clear()
    assert resolve.find(f"org/tiny:{quantization}") == snapshot(home) / file
    assert hub.requests == []


def test_the_only_gguf_file_needs_no_quantisation(hub: Hub, home: Path) -> None:
    hub.revisions["main"] = {"tiny-Q4_K_M.gguf": b"GGUF", "config.json": b"{}", "README.md": b""}
    assert resolve.find("org/tiny") == snapshot(home) / "tiny-Q4_K_M.gguf"


def test_of_several_gguf_files_the_error_lists_the_quantisations(hub: Hub) -> None:
    hub.revisions["main"] = QUANTIZED
    assert str(error_of(resolve.find, "org/tiny")) == (
        "org/tiny holds 4 GGUF files: name the quantisation of one, as in org/tiny:Q4_K_M; "
        "there are UD-Q4_K_XL, F16, Q4_K_M, q8_0"
    )


def test_a_quantisation_that_is_not_there_lists_those_that_are(hub: Hub) -> None:
    hub.revisions["main"] = QUANTIZED
    assert str(error_of(resolve.find, "org/tiny:Q2_K")) == (
        "org/tiny has no quantisation Q2_K: choose from UD-Q4_K_XL, F16, Q4_K_M, q8_0"
    )


def test_a_quantisation_of_a_repository_without_gguf(hub: Hub) -> None:
    assert str(error_of(resolve.find, "org/tiny:Q4_0")) == ("org/tiny has no quantisation Q4_0: it holds no GGUF file")


def test_a_quantisation_in_parts_is_refused(hub: Hub) -> None:
    hub.revisions["main"] = QUANTIZED
    assert str(error_of(resolve.find, "org/tiny:F16")) == (
        "org/tiny:F16 is split into 2 GGUF files, of which regard reads none alone: choose another quantisation, or "
        "join them with `llama-gguf-split --merge` and give the file"
    )


# Revisions.


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub, home: Path) -> None:
    hub.revisions["refs/pr/1"] = LLAMA | {"config.json": LLAMA["config.json"] + b" "}
    hub.commits["refs/pr/1"] = LATER
    for revision in ("refs/pr/1", LATER):
        assert resolve.find("org/tiny", revision=revision) == snapshot(home, LATER)
    model = regard.load("org/tiny", revision="refs/pr/1")
    assert Path(model.name) == snapshot(home, LATER)
    stored = read_json_object(snapshot(home, LATER) / "config.json")
    assert Trainable.of(model).config == {**stored, "dtype": "float32"}
    assert resolve.find("org/tiny") == snapshot(home)


def test_pull_follows_a_branch_and_load_does_not(hub: Hub, home: Path) -> None:
    resolve.find("org/tiny")
    hub.revisions["main"] = LLAMA | {"config.json": LLAMA["config.json"] + b" "}
    hub.commits["main"] = LATER
    assert resolve.find("org/tiny") == snapshot(home)
    hub.requests.clear()
    assert resolve.pull("org/tiny") == resolve.find("org/tiny") == snapshot(home, LATER)
    assert hub.downloaded == ["config.json"]  # the others have not changed


def test_a_branch_stays_what_it_was_until_all_files_of_the_new_commit_are_there(hub: Hub, home: Path) -> None:
    resolve.find("org/tiny")
    hub.revisions["main"] = {name: content + b" " for name, content in LLAMA.items()}
    hub.commits["main"] = LATER
    hub.fail = status(404, "model.safetensors", X_Error_Code="EntryNotFound")
    error_of(resolve.pull, "org/tiny")
    assert resolve.find("org/tiny") == snapshot(home)


def test_a_branch_that_moves_during_the_download_stays_at_what_was_downloaded(hub: Hub, home: Path) -> None:
    def move(handler: Handler, path: str) -> bool:
        if path.endswith("/model.safetensors"):
            hub.commits = {"old": COMMIT, "main": LATER}
            hub.revisions = {"old": LLAMA, "main": {name: content + b" " for name, content in LLAMA.items()}}
            hub.fail = None
        return False

    hub.fail = move
    assert resolve.find("org/tiny") == snapshot(home)
    assert resolve.find("org/tiny", download=False) == snapshot(home)
    assert not [each for each in hub.requests if "/resolve/main/" in each]
    assert (snapshot(home).parents[1] / "refs" / "main").read_text() == COMMIT
    assert resolve.pull("org/tiny") == snapshot(home, LATER)


def test_force_fetches_again_what_is_there(hub: Hub, home: Path) -> None:
    resolve.find("org/tiny")
    blob = (snapshot(home) / "model.safetensors").resolve()
    blob.write_bytes(b"damaged")
    hub.requests.clear()
    assert resolve.pull("org/tiny", force=True) == snapshot(home)
    assert sorted(hub.downloaded) == sorted(LLAMA)
    assert blob.read_bytes() == LLAMA["model.safetensors"]


# What is on this machine already.


def test_a_folder_of_the_name_comes_first(hub: Hub, home: Path) -> None:
    folder = Path("org/tiny")
    folder.mkdir(parents=True)
    for name, content in LLAMA.items():
        (folder / name).write_bytes(content)
    assert regard.load("org/tiny").name == "org/tiny"
    assert hub.requests == []
    assert "not for org/tiny, which is here" in str(error_of(regard.load, "org/tiny", revision="main"))


def test_a_mistyped_path_is_not_requested(hub: Hub, home: Path) -> None:
    Path("org").mkdir()
    assert str(error_of(regard.load, "org/tiny")) == (
        "there is no folder org/tiny, and as org is a folder here, the Hugging Face hub is not asked: "
        "run `regard pull org/tiny` first if its model is meant"
    )
    assert hub.requests == []
    assert resolve.pull("org/tiny") == resolve.find("org/tiny") == snapshot(home)


def test_a_file_is_not_the_name_of_a_repository(hub: Hub) -> None:
    Path("org").mkdir()
    Path("org/tiny").touch()
    assert "org/tiny is a file, but not GGUF" in str(error_of(regard.load, "org/tiny"))
    assert hub.requests == []


@pytest.fixture
def other_program(hub: Hub, home: Path) -> None:
    """Let another program fetch two of the files that are needed."""
    from huggingface_hub import hf_hub_download

    hub.revisions["main"] |= {"modules.json": b"[]"}
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("org/tiny", name, cache_dir=home / "hf" / "hub", endpoint=hub.address)
    hub.requests.clear()


@pytest.mark.usefixtures("other_program")
class TestWhatAnotherProgramFetched:
    def test_is_completed(self, hub: Hub, home: Path) -> None:
        assert resolve.find("org/tiny") == snapshot(home)
        assert hub.downloaded == ["modules.json", "tokenizer.json"]

    @pytest.mark.parametrize("variable", ["REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
    def test_serves_offline(self, hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, "1")
        assert resolve.find("org/tiny") == resolve.pull("org/tiny") == snapshot(home)
        assert hub.requests == []

    def test_serves_where_the_hub_does_not_answer(self, hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        point_to("http://127.0.0.1:9", monkeypatch)
        assert resolve.find("org/tiny") == snapshot(home)

    def test_serves_if_no_download_is_wanted(self, hub: Hub, home: Path) -> None:
        assert resolve.find("org/tiny", download=False) == snapshot(home)
        assert hub.requests == []


def test_pull_says_that_a_model_may_be_old_if_the_hub_does_not_answer(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve.find("org/tiny")
    point_to("http://127.0.0.1:9", monkeypatch)
    capsys.readouterr()
    assert resolve.pull("org/tiny") == snapshot(home)
    assert capsys.readouterr().err.startswith("org/tiny may not be the newest: ConnectError: ")
    assert "does not answer" in str(error_of(resolve.pull, "org/tiny", force=True))


# One sentence for each failure.


def sentence(hub: Hub, name: str = "org/tiny", **options: str) -> str:
    return str(error_of(regard.load, name, **options)).replace(hub.address, "HUB")


def test_gated(hub: Hub) -> None:
    hub.gated = True
    assert sentence(hub) == (
        "org/tiny is gated: ask for access at HUB/org/tiny, then log in with `hf auth login`, or set HF_TOKEN"
    )


@pytest.mark.parametrize("attribute", ["gated", "private"])
def test_a_token_gives_access(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    setattr(hub, attribute, True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.tokens == {TOKEN}


@pytest.mark.parametrize("token", ["", TOKEN])
def test_no_such_repository(hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    hub.kind = "nothing"
    assert sentence(hub) == (
        "HUB has no model org/tiny, or none for this account: check the name, or log in with `hf auth login` "
        "if it is private"
    )


@pytest.mark.parametrize("kind", ["dataset", "space"])
def test_another_type_of_repository(hub: Hub, kind: str) -> None:
    hub.kind = f"{kind}s"
    assert sentence(hub) == f"org/tiny is a {kind}, not a model: give the name of a model"


def test_no_such_revision(hub: Hub) -> None:
    assert sentence(hub, revision="v9") == (
        "org/tiny has no revision v9: give a branch, a tag or a commit that HUB/org/tiny lists"
    )


def test_pickles_alone(hub: Hub, home: Path) -> None:
    hub.revisions["main"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle", "tokenizer.json": b"{}"}
    assert sentence(hub) == (
        "org/tiny holds its weights as a pickle alone (pytorch_model.bin), which can run any code when it is read: "
        "convert it where you trust it, with transformers' "
        'AutoModel.from_pretrained("org/tiny").save_pretrained(NEW_FOLDER), and give that folder'
    )
    assert hub.downloaded == []


def test_no_weights(hub: Hub) -> None:
    hub.revisions["main"] = {"README.md": b"", "flax_model.msgpack": b""}
    assert sentence(hub) == (
        "org/tiny holds neither safetensors nor GGUF, which are what regard reads: choose another model"
    )


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to("http://me:secret@127.0.0.1:9", monkeypatch)
    error = error_of(regard.load, "org/tiny", revision="v1")
    assert str(error) == (
        "org/tiny is not on this machine and http://127.0.0.1:9 does not answer: "
        "run `regard pull org/tiny --revision v1` with a network"
    )
    assert "Connection refused" in error.__notes__[0]
    assert "secret" not in error.__notes__[0]


@pytest.mark.parametrize("variable", ["REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert sentence(hub) == (
        f"org/tiny is not on this machine and {variable} forbids downloads: run `regard pull org/tiny` with a network"
    )
    assert hub.requests == []
    assert str(error_of(resolve.pull, "org/tiny", force=True)) == (
        f"org/tiny cannot be fetched, as {variable} forbids downloads: unset it"
    )


def test_no_download_is_wanted(hub: Hub) -> None:
    assert sentence(hub, download=False) == "org/tiny is not on this machine: run `regard pull org/tiny` with a network"
    assert hub.requests == []


def test_without_the_library(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_models, "importable", lambda name: False)
    assert sentence(hub) == (
        "org/tiny is fetched by huggingface_hub, which is not installed: pip install 'regard[hub]'"
    )


@pytest.mark.parametrize("on", ["/api/", "/resolve/"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (429, "HUB is limiting requests: wait a few minutes, or log in with `hf auth login`"),
        (500, "HUB failed to send org/tiny (HTTP 500): try again later"),
        (403, "HUB does not let this account read org/tiny: see HUB/org/tiny"),
        (401, "HUB refuses the token: log in again with `hf auth login`, or set HF_TOKEN"),
        (200, "HUB does not answer as the Hugging Face hub does: check HF_ENDPOINT, and the proxy if there is one"),
    ],
)
def test_answers_that_are_no_answer(hub: Hub, code: int, message: str, on: str) -> None:
    hub.fail = status(code, on, X_Error_Message="Invalid credentials in Authorization header")
    assert sentence(hub) == message


def test_what_another_program_left_does_not_hide_an_answer(hub: Hub, other_program: None) -> None:
    hub.fail = status(503, "/resolve/")
    assert sentence(hub) == "HUB failed to send org/tiny (HTTP 503): try again later"


@pytest.mark.parametrize("token", ["hf_a\x0bb", "hf_a\xe9b"])
def test_a_token_that_cannot_be_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    error = error_of(resolve.find, "org/tiny")
    assert str(error) == (
        f"the token for {hub.address} has characters that HTTP does not allow: log in again with `hf auth login`, "
        "or set HF_TOKEN"
    )
    assert "hf_a" not in "".join(error.__notes__)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_only_a_place_that_cannot_be_written_is_said_to_be_one(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), place)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    place = str(home / "elsewhere")
    assert sentence(hub) == "org/tiny could not be fetched: run `regard pull org/tiny` again"
    place = str(home / "hf" / "hub" / "x")
    assert f"cannot put org/tiny into {home}/hf/hub/models--org--tiny: {os.strerror(number)}" in sentence(hub)


def test_each_request_has_a_limit(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, api = [], huggingface_hub.HfApi
    calls = {method: getattr(api, method) for method in ("model_info", "repo_info")}
    for method, call in calls.items():

        def noted(self, *arguments, timeout=None, call=call, **options):
            limits.append(timeout)
            return call(self, *arguments, timeout=timeout, **options)

        monkeypatch.setattr(api, method, noted)
    hub.kind = "nothing"
    assert "has no model org/tiny" in sentence(hub)
    assert len(limits) > 1
    assert all(limits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("header value b'Bearer hf_a\x0bb c'\nend", "header value b'Bearer *** end"),
        ("the token hf_abc is old", "the token *** is old"),
        ("in hf_hub_download", "in hf_hub_download"),
        ("at https://me:p@ss@host/x?sig=1 ", "at https://host/x"),
        ("\x1b[31mred\t", "[31mred"),
    ],
)
def test_secrets_are_not_shown(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_a_place_that_cannot_be_written(hub: Hub, home: Path) -> None:
    (home / "hf").write_text("a file")
    assert sentence(hub) == (
        f"cannot put org/tiny into {home}/hf/hub/models--org--tiny: Not a directory; set HF_HUB_CACHE to a folder that "
        "can be written and has room"
    )


# What breaks on the way.


def test_a_broken_download_continues_where_it_broke(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "DOWNLOAD_CHUNK_SIZE", 500)  # bytes; 10 MB outside
    hub.fail = cut_once("model.safetensors", 1000)
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]
    asked = [each for each in hub.requests if "GET" in each and "model.safetensors" in each]
    assert [each.partition(".safetensors")[2] for each in asked] == ["", " bytes=1000-"]


def test_what_does_not_come_whole_does_not_appear_and_the_rest_is_kept(hub: Hub, home: Path) -> None:
    hub.fail = status(404, "model.safetensors", X_Error_Code="EntryNotFound")
    assert "failed to send org/tiny (HTTP 404)" in str(error_of(resolve.find, "org/tiny"))
    assert names_in(snapshot(home)) == ["config.json", "tokenizer.json"]
    assert "is not on this machine" in str(error_of(resolve.find, "org/tiny", download=False))
    hub.fail = None
    hub.requests.clear()
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.downloaded == ["model.safetensors"]


def test_a_child_that_ends_without_a_result_is_an_error(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_models, "run", lambda *_, **__: (1, b"Traceback\nBearer hf_x\nMemoryError"))
    error = error_of(resolve.find, "org/tiny")
    assert str(error) == "org/tiny could not be fetched: run `regard pull org/tiny` again"
    assert error.__notes__ == ["Traceback\nBearer ***\nMemoryError"]


def test_a_repository_that_was_renamed_is_found(hub: Hub, home: Path) -> None:
    def moved(handler: Handler, path: str) -> bool:
        if "/org/old" not in path:
            return False
        return status(307, Location=handler.path.replace("/org/old", "/org/tiny"))(handler, path)

    hub.fail = moved
    path = resolve.find("org/old")
    assert path == home / "hf" / "hub" / "models--org--old" / "snapshots" / COMMIT
    assert names_in(path) == sorted(LLAMA)


# By a child process, as it is outside tests.


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    with serving(Hub({"main": LLAMA | UNNEEDED})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_the_command_says_what_is_downloaded_from_where(
    served: Hub, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["w5 w6 w7", "--model", "org/tiny"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("org/tiny")
    storage = home / "hf" / "hub" / "models--org--tiny"
    assert err.splitlines()[0] == f"downloading org/tiny (2 files, 0 MB) from {served.address} to {storage}"
    served.requests.clear()
    assert main(["w5 w6 w7", "--model", "org/tiny"]) == 0
    assert capsys.readouterr().err == ""
    assert served.requests == []


def test_pull_and_models(served: Hub, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "org/tiny"]) == 0
    assert capsys.readouterr().out == f"{snapshot(home)}\n"
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"\norg/tiny\n +llama, \d\.\d MB\n +{re.escape(str(snapshot(home)))}\n\Z", shown)


def test_an_error_of_the_child_is_one_line(served: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    served.gated = True
    assert main(["pull", "org/tiny"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"regard: org/tiny is gated: .*\n", err)


@pytest.mark.parametrize("argv", [["pull", "org/tiny"], ["hi", "--model", "org/tiny"]])
def test_weights_of_a_type_that_regard_does_not_run_are_not_downloaded(
    served: Hub, home: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    served.revisions["main"]["config.json"] = b'{"model_type": "whisper"}'
    served.fail = lambda handler, path: path.endswith("/tokenizer.json") and stuck(handler, path)
    assert main(argv) == 2
    assert "regard: org/tiny holds a model of type 'whisper'; regard can run: albert, " in capsys.readouterr().err
    assert "model.safetensors" not in served.downloaded


def test_a_hub_that_does_not_answer_is_given_up(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
    served.fail = stuck
    assert "does not answer: run `regard pull org/tiny` with a network" in str(error_of(resolve.find, "org/tiny"))


def test_an_interrupt_leaves_no_partial_file(served: Hub, home: Path) -> None:
    hanging = threading.Event()

    def hang(handler: Handler, path: str) -> bool:
        if handler.command != "GET" or not path.endswith("/model.safetensors"):
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(LLAMA["model.safetensors"])))
        handler.end_headers()
        handler.wfile.write(LLAMA["model.safetensors"][:1000])
        handler.wfile.flush()
        hanging.set()
        return stuck(handler, path)

    served.fail = hang
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from regard.models.hub import resolve; resolve.find('org/tiny')"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as run:
        assert hanging.wait(WATCHDOG)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=WATCHDOG)
    assert run.returncode == -signal.SIGINT
    assert not list((home / "hf").rglob("*.incomplete"))
    served.fail = None
    served.requests.clear()
    assert resolve.find("org/tiny") == snapshot(home)
    assert served.downloaded == ["model.safetensors"]  # whole files are kept


# The list.


def test_models_shows_what_is_in_the_cache(hub: Hub, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resolve.find("org/tiny")
    cache, index = home / "hf" / "hub", b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    for name, files in {
        "other/whisper": {"config.json": b'{"model_type": "whisper"}', "model.safetensors": b"12"},
        "some/quantised": {"x-Q4_0.gguf": b"GGUF", "x-Q8_0.gguf": b"GGUFGGUF"},
        "old/pickled": {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": b"p"},
        "half/fetched": {"config.json": b'{"model_type": "bert"}', "model.safetensors.index.json": index},
    }.items():
        folder = cache / f"models--{name.replace('/', '--')}" / "snapshots" / LATER
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    (cache / "datasets--a--b").mkdir()
    (cache / "models--org--tiny" / "snapshots" / COMMIT / "model.safetensors").unlink()
    assert main(["models"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "org/tiny llama, incomplete; run regard pull org/tiny" in shown
    assert "other/whisper whisper, 0.0 MB, a type that regard does not run" in shown
    assert f"some/quantised:Q4_0 GGUF, 0.0 MB {cache}/models--some--quantised/snapshots/{LATER}/x-Q4_0.gguf" in shown
    assert "old/pickled bert, old/pickled holds its weights as a pickle alone (pytorch_model.bin)" in shown
    assert "half/fetched bert, incomplete; run regard pull half/fetched" in shown
    assert "a/b" not in shown
