"""Revisions, and what is on this machine already."""

import json
from pathlib import Path

import pytest
from hub_helpers import GOLDEN, LLAMA, error_of, point_to, snapshot
from hub_server import COMMIT, LATER, status

import regard
from regard._utils.files import read_json_object
from regard.models.hub import hub_models, resolve
from regard.models.hub.hub_cache import identity
from regard.models.hub.hub_files import NAMES
from regard.training import Trainable

pytestmark = pytest.mark.usefixtures("home")


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, home):
    hub.revisions["refs/pr/1"] = LLAMA | {"config.json": LLAMA["config.json"] + b" "}
    hub.commits["refs/pr/1"] = LATER
    for revision in ("refs/pr/1", LATER):
        assert resolve.find("org/tiny", revision=revision) == snapshot(home, LATER)
    model = regard.load("org/tiny", revision="refs/pr/1")
    assert Path(model.name) == snapshot(home, LATER)
    stored = read_json_object(snapshot(home, LATER) / "config.json")
    assert Trainable.from_model(model).config == {**stored, "dtype": "float32"}
    assert resolve.find("org/tiny") == snapshot(home)


def move_on(hub, *changed):
    """Let the branch be at a later commit, with other files; the configuration alone if none is named."""
    hub.revisions["main"] = LLAMA | {name: LLAMA[name] + b" " for name in changed or ["config.json"]}
    hub.commits["main"] = LATER


def test_pull_follows_a_branch_and_load_does_not(hub, home):
    resolve.find("org/tiny")
    move_on(hub)
    assert resolve.find("org/tiny") == snapshot(home)
    hub.requests.clear()
    assert resolve.pull("org/tiny") == resolve.find("org/tiny") == snapshot(home, LATER)
    assert hub.downloaded == ["config.json"]  # the others have not changed


def test_a_branch_stays_what_it_was_until_all_files_of_the_new_commit_are_there(hub, home):
    resolve.find("org/tiny")
    move_on(hub, *LLAMA)
    hub.fail = status(404, "model.safetensors", X_Error_Code="EntryNotFound")
    error_of(resolve.pull, "org/tiny")
    assert resolve.find("org/tiny") == snapshot(home)


def test_a_branch_that_moves_during_the_download_stays_at_what_was_downloaded(hub, home):
    def move(handler, path):
        if path.endswith("/model.safetensors"):
            hub.commits["old"] = COMMIT
            hub.revisions["old"] = LLAMA
            move_on(hub, *LLAMA)
            hub.fail = None
        return False

    hub.fail = move
    assert resolve.find("org/tiny") == snapshot(home)
    assert resolve.find("org/tiny", download=False) == snapshot(home)
    assert not [each for each in hub.requests if "/resolve/main/" in each]
    assert (snapshot(home).parents[1] / "refs" / "main").read_text() == COMMIT
    assert resolve.pull("org/tiny") == snapshot(home, LATER)


def test_force_fetches_again_what_is_there(hub, home):
    resolve.find("org/tiny")
    blob = (snapshot(home) / "model.safetensors").resolve()
    blob.write_bytes(b"damaged")
    hub.requests.clear()
    assert resolve.pull("org/tiny", force=True) == snapshot(home)
    assert sorted(hub.downloaded) == sorted(LLAMA)
    assert blob.read_bytes() == LLAMA["model.safetensors"]


# What is on this machine already.


def test_a_folder_of_the_name_comes_first(hub, home):
    folder = Path("org/tiny")
    folder.mkdir(parents=True)
    for name, content in LLAMA.items():
        (folder / name).write_bytes(content)
    assert regard.load("org/tiny").name == "org/tiny"
    assert hub.requests == []
    assert "not for org/tiny, which is here" in str(error_of(regard.load, "org/tiny", revision="main"))


def test_a_mistyped_path_is_not_requested(hub, home):
    Path("org").mkdir()
    assert str(error_of(regard.load, "org/tiny")) == (
        "there is no folder org/tiny, and as org is a folder here, the Hugging Face hub is not asked: "
        "run `regard pull org/tiny` first if its model is meant"
    )
    assert hub.requests == []
    assert resolve.pull("org/tiny") == resolve.find("org/tiny") == snapshot(home)


def test_a_file_is_not_the_name_of_a_repository(hub):
    Path("org").mkdir()
    Path("org/tiny").touch()
    assert "org/tiny is a file, but not GGUF" in str(error_of(regard.load, "org/tiny"))
    assert hub.requests == []


MAY_LACK = "; it may lack modules.json, tokenizer.json, generation_config.json and 6 more"


@pytest.mark.usefixtures("other_program")
class TestWhatAnotherProgramFetched:
    def test_is_completed(self, hub, home):
        assert resolve.find("org/tiny") == snapshot(home)
        assert hub.downloaded == ["modules.json", "tokenizer.json"]

    @pytest.mark.parametrize("variable", ["REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
    def test_serves_offline_and_what_it_may_lack_is_said(self, hub, home, monkeypatch, capsys, variable):
        monkeypatch.setenv(variable, "1")
        for find in (resolve.find, resolve.pull):
            assert find("org/tiny") == snapshot(home)
            assert capsys.readouterr().err == (
                f"org/tiny is on this machine as another program left it{MAY_LACK}, and {variable} forbids downloads: "
                "run `regard pull org/tiny` with a network\n"
            )
        assert hub.requests == []

    @pytest.mark.parametrize(
        ("lacks", "reason"),
        [("hub", ", and http://127.0.0.1:9 does not answer"), ("library", ", and huggingface_hub is not installed"),
         ("wish", "")],
    )  # fmt: skip
    def test_serves_where_nothing_is_downloaded(self, hub, home, monkeypatch, capsys, lacks, reason):
        if lacks == "hub":
            point_to("http://127.0.0.1:9", monkeypatch)
        elif lacks == "library":
            monkeypatch.setattr(hub_models, "importable", lambda name: False)
        assert resolve.find("org/tiny", download=lacks != "wish") == snapshot(home)
        assert hub.requests == []
        assert f"{MAY_LACK}{reason}: run `regard pull org/tiny` with a network" in capsys.readouterr().err

    def test_is_not_said_to_be_pulled_where_the_hub_does_not_answer(self, hub, monkeypatch):
        point_to("http://127.0.0.1:9", monkeypatch)
        assert str(error_of(resolve.pull, "org/tiny")) == (
            f"org/tiny is on this machine as another program left it{MAY_LACK}, and http://127.0.0.1:9 does not "
            "answer: run `regard pull org/tiny` with a network"
        )

    def test_may_not_lack_what_the_program_found_to_be_absent(self, home, capsys):
        absent = snapshot(home).parents[1] / ".no_exist" / COMMIT
        absent.mkdir(parents=True)
        for name in {*NAMES} - {"chat_template.jinja"}:
            (absent / name).touch()
        resolve.find("org/tiny", download=False)
        assert "it may lack chat_template.jinja: run" in capsys.readouterr().err
        (absent / "chat_template.jinja").touch()
        resolve.find("org/tiny", download=False)
        assert capsys.readouterr().err == ""

    def test_may_lack_the_configuration_of_a_module(self, home, capsys):
        modules = [{"path": "", "type": "x"}, {"path": "1_Pooling", "type": "y"}]
        (snapshot(home) / "modules.json").write_text(json.dumps(modules))
        resolve.find("org/tiny", download=False)
        assert (
            "it may lack 1_Pooling/config.json, tokenizer.json, sentence_bert_config.json and "
            in capsys.readouterr().err
        )

    def test_is_known_to_be_whole_from_the_list_of_the_library(self, hub, home, capsys):
        listing = snapshot(home).parents[1] / "trees" / f"{COMMIT}.json"
        listing.parent.mkdir()
        files = {name: {"size": 1} for name in ("config.json", "model.safetensors", "README.md")}
        listing.write_text(json.dumps({"format_version": 1, "files": files}))
        assert resolve.find("org/tiny") == snapshot(home)
        assert hub.requests == []
        assert capsys.readouterr().err == ""
        listing.write_text(json.dumps({"format_version": 2, "files": files}))
        assert resolve.find("org/tiny") == snapshot(home)
        assert hub.downloaded == ["modules.json", "tokenizer.json"]


SHARDS = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'


@pytest.mark.parametrize(
    ("files", "lacks"),
    [
        (["config.json"], "without weights"),
        (["config.json", "pytorch_model.bin"], "without weights"),
        (["config.json", "x-Q4_0.gguf", "y-Q8_0.gguf"], "GGUF alone, such as org/tiny:Q4_0"),
        (
            ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"],
            "model-00002-of-00002.safetensors is missing",
        ),
    ],
)
def test_what_another_program_left_in_part_is_said_to_be(hub, home, monkeypatch, files, lacks):
    storage = snapshot(home).parents[1]
    for name in files:
        path = snapshot(home) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SHARDS if name.endswith("index.json") else b"{}")
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(COMMIT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert str(error_of(resolve.find, "org/tiny")) == (
        f"org/tiny is on this machine only in part ({lacks}), and HF_HUB_OFFLINE forbids downloads: "
        "run `regard pull org/tiny` with a network"
    )
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for path in snapshot(home).iterdir():
        path.unlink()  # as the library replaces no file that is there
    assert resolve.find("org/tiny") == snapshot(home)


def test_what_was_fetched_and_lost_a_file_says_so(hub, home):
    resolve.find("org/tiny")
    (snapshot(home) / "tokenizer.json").unlink()
    assert str(error_of(resolve.find, "org/tiny", download=False)) == (
        "org/tiny is on this machine only in part (tokenizer.json is missing): run `regard pull org/tiny` with a "
        "network"
    )


def test_the_only_gguf_file_of_another_program_may_not_be_the_only_one(home, capsys):
    snapshot(home).mkdir(parents=True)
    (snapshot(home) / "x-Q4_0.gguf").write_bytes(b"GGUF")
    (snapshot(home).parents[1] / "refs").mkdir()
    (snapshot(home).parents[1] / "refs" / "main").write_text(COMMIT)
    assert resolve.find("org/tiny", download=False) == snapshot(home) / "x-Q4_0.gguf"
    assert "; it may lack model.safetensors: run" in capsys.readouterr().err
    assert resolve.find("org/tiny:Q4_0", download=False) == snapshot(home) / "x-Q4_0.gguf"
    assert capsys.readouterr().err == ""
    assert "org/tiny:Q8_0 is not on this machine: run" in str(error_of(resolve.find, "org/tiny:Q8_0", download=False))


def test_pull_says_that_a_model_may_be_old_if_the_hub_does_not_answer(hub, home, monkeypatch, capsys):
    resolve.find("org/tiny")
    point_to("http://127.0.0.1:9", monkeypatch)
    capsys.readouterr()
    assert resolve.pull("org/tiny") == snapshot(home)
    assert capsys.readouterr().err.startswith("org/tiny may not be the newest: ConnectError: ")
    assert str(error_of(resolve.pull, "org/tiny", force=True)) == (
        "org/tiny is on this machine, and http://127.0.0.1:9 does not answer: run `regard pull org/tiny` with a network"
    )


# What says which content a model has.


def test_the_identity_of_a_model_is_its_commit_and_the_files_that_are_read(hub, home):
    hub.revisions["main"] |= {"UD/x-Q4_0.gguf": b"GGUF"}
    assert identity(resolve.find("org/tiny")) == [COMMIT, *sorted(LLAMA)]
    assert identity(resolve.find("org/tiny:Q4_0")) == [COMMIT, "UD/x-Q4_0.gguf"]
    (snapshot(home) / "README.md").write_text("not read")
    assert identity(snapshot(home)) == [COMMIT, *sorted(LLAMA)]


def test_the_identity_of_a_model_in_parts_is_that_of_all(hub, home):
    parts = [f"x-Q4_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.revisions["main"] |= dict.fromkeys(parts, b"GGUF")
    path = resolve.find("org/tiny:Q4_0")
    assert identity(path) == [COMMIT, *parts]
    (snapshot(home) / parts[1]).unlink()
    (snapshot(home) / parts[1]).write_bytes(b"changed")
    assert identity(path) is None


def test_workers_compare_all_parts_of_a_model(tmp_path):
    pytest.importorskip("dask")
    from regard.dask.model_spec import _sha256

    parts = [tmp_path / f"x-0000{i}-of-00002.gguf" for i in (1, 2)]
    for path in parts:
        path.write_bytes(b"GGUF")
    before = [_sha256(str(path)) for path in parts]
    assert before[0] == before[1]
    parts[1].write_bytes(b"GGUF, another")
    assert _sha256(str(parts[0])) != before[0]


def test_what_is_not_the_cache_s_own_has_no_identity(hub, home):
    resolve.find("org/tiny")
    assert identity(GOLDEN / "llama" / "llama3") is None
    assert identity(snapshot(home).parent) is None
    content = (snapshot(home) / "config.json").read_bytes()
    (snapshot(home) / "config.json").unlink()
    (snapshot(home) / "config.json").write_bytes(content)
    assert identity(snapshot(home)) is None


def test_a_run_on_many_machines_does_not_read_the_files_of_the_cache_to_compare_them(hub, home, monkeypatch):
    pytest.importorskip("dask")
    from regard.dask import model_spec

    digest = model_spec._sha256
    resolve.find("org/tiny")
    read = []
    open_regular = model_spec.open_regular
    monkeypatch.setattr(model_spec, "open_regular", lambda path: read.append(path) or open_regular(path))
    first = digest("org/tiny")
    assert first == digest(str(snapshot(home)))
    assert read == []
    move_on(hub)
    resolve.pull("org/tiny")
    assert digest("org/tiny") != first
    assert read == []
    (snapshot(home, LATER) / "config.json").unlink()
    (snapshot(home, LATER) / "config.json").write_text("{}")
    digest("org/tiny")
    assert sorted(path.name for path in read) == sorted(LLAMA)
