"""What breaks on the way, and the child process that downloads."""

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hub_helpers import LLAMA, WATCHDOG, error_of, names_in, snapshot
from hub_server import COMMIT, cut, status, stuck

import regard
from regard import RegardError
from regard.cli import main
from regard.models import families
from regard.models.families import check_config
from regard.models.hub import hub_models, resolve

pytestmark = pytest.mark.usefixtures("home")


def test_a_broken_download_continues_where_it_broke(hub, home, monkeypatch):
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "DOWNLOAD_CHUNK_SIZE", 500)  # bytes; 10 MB outside
    hub.fail = cut("model.safetensors", 1000)
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]
    asked = [each for each in hub.requests if "GET" in each and "model.safetensors" in each]
    assert [each.partition(".safetensors")[2] for each in asked] == ["", " bytes=1000-"]


def test_a_download_that_always_breaks_leaves_nothing_of_the_file(hub, home):
    hub.fail = cut("model.safetensors", 1000, times=100)
    error = error_of(resolve.find, "org/tiny")
    assert str(error) == (
        f"the download of org/tiny from {hub.address} broke off: run `regard pull org/tiny` again, which keeps the "
        "files that are here"
    )
    assert "received 1000 bytes, expected 11536" in error.__notes__[0]
    assert names_in(snapshot(home)) == ["config.json", "tokenizer.json"]


def test_a_server_that_knows_no_ranges_sends_the_file_again(hub, home, monkeypatch):
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "DOWNLOAD_CHUNK_SIZE", 500)  # bytes; 10 MB outside
    broken = cut("model.safetensors", 1000)

    def fail(handler, path):
        del handler.headers["Range"]
        return broken(handler, path)

    hub.fail = fail
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]


def test_what_does_not_come_whole_does_not_appear_and_the_rest_is_kept(hub, home):
    hub.fail = status(404, "model.safetensors", X_Error_Code="EntryNotFound")
    assert "lacks org/tiny, or a file of it (HTTP 404)" in str(error_of(resolve.find, "org/tiny"))
    assert names_in(snapshot(home)) == ["config.json", "tokenizer.json"]
    assert "is not on this machine" in str(error_of(resolve.find, "org/tiny", download=False))
    hub.fail = None
    hub.requests.clear()
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.downloaded == ["model.safetensors"]


def test_a_child_that_ends_without_a_result_is_an_error(hub, monkeypatch):
    monkeypatch.setattr(hub_models, "run", lambda *_, **__: (1, b"Traceback\nBearer hf_x\nMemoryError"))
    error = error_of(resolve.find, "org/tiny")
    assert str(error) == "org/tiny could not be fetched: run `regard pull org/tiny` again"
    assert error.__notes__ == ["Traceback\nBearer ***\nMemoryError"]


def test_a_repository_that_was_renamed_is_found(hub, home):
    def moved(handler, path):
        if "/org/old" not in path:
            return False
        return status(307, Location=handler.path.replace("/org/old", "/org/tiny"))(handler, path)

    hub.fail = moved
    path = resolve.find("org/old")
    assert path == home / "hf" / "hub" / "models--org--old" / "snapshots" / COMMIT
    assert names_in(path) == sorted(LLAMA)


def test_the_command_says_what_is_downloaded_from_where(served, home, capsys):
    assert main(["w5 w6 w7", "--model", "org/tiny"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("org/tiny")
    storage = home / "hf" / "hub" / "models--org--tiny"
    assert err.splitlines()[0] == f"downloading org/tiny (2 files, 0 MB) from {served.address} to {storage}"
    served.requests.clear()
    assert main(["w5 w6 w7", "--model", "org/tiny"]) == 0
    assert capsys.readouterr().err == ""
    assert served.requests == []


def test_an_error_of_the_child_is_one_line(served, capsys):
    served.gated = True
    assert main(["pull", "org/tiny"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"regard: org/tiny is gated: .*\n", err)


@pytest.mark.parametrize("argv", [["pull", "org/tiny"], ["hi", "--model", "org/tiny"]])
def test_weights_of_a_type_that_regard_does_not_run_are_not_downloaded(served, home, capsys, argv):
    served.revisions["main"]["config.json"] = b'{"model_type": "whisper"}'
    assert main(argv) == 2
    assert "regard: org/tiny holds a model of type 'whisper'; regard can run: albert, " in capsys.readouterr().err
    assert served.downloaded == ["config.json"]


def with_fields(**fields):
    """Return the configuration with some fields changed."""
    return json.dumps(json.loads(LLAMA["config.json"]) | fields).encode()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (with_fields(model_type="x" * 5000), r"holds a model of type 'x{70,80}\.\.\.; regard can run: albert, "),
        (with_fields(model_type=None), "holds a model of type None; regard can run: albert, "),
        (with_fields(quantization_config={"quant_method": "awq"}), "unknown field quantization_config=.*'awq'"),
        (with_fields(hidden_act="mish"), "hidden_act='mish' is not supported"),
        (with_fields(num_attention_heads=0), "num_attention_heads must be a whole number of at least 1, got 0"),
        (b"{", "config.json is not valid JSON"),
        (None, "there is no config.json in "),
    ],
)
def test_a_configuration_is_refused_before_tokenizer_and_weights(hub, config, message):
    hub.revisions["main"] = {**LLAMA, "generation_config.json": b"{}", "config.json": config or b""}
    if config is None:
        del hub.revisions["main"]["config.json"]
    for call in (regard.load, lambda name: resolve.pull(name, check_config=check_config)):
        hub.requests.clear()
        assert re.search(message, str(error_of(call, "org/tiny")))
        assert set(hub.downloaded) <= {"config.json", "generation_config.json"}


def test_fields_to_ignore_count_before_the_download_too(served, home, capsys):
    served.revisions["main"]["config.json"] = with_fields(quantization_config={"quant_method": "none"})
    assert main(["pull", "org/tiny"]) == 2
    assert "or --ignore quantization_config, if this field changes nothing" in capsys.readouterr().err
    assert main(["pull", "org/tiny", "--ignore", "quantization_config"]) == 0
    assert capsys.readouterr().out == f"{snapshot(home)}\n"
    assert main(["w5", "--model", "org/tiny", "--ignore", "quantization_config"]) == 0


def test_of_a_family_outside_regard_the_type_alone_counts_before_the_download(hub, home, monkeypatch):
    class Own(regard.models.Llama):
        @classmethod
        def load(cls, checkpoint, **options):
            assert (checkpoint.path / "model.safetensors").is_file()
            raise RegardError("it was loaded")

    monkeypatch.setitem(families._FAMILIES, "own", Own)
    hub.revisions["main"]["config.json"] = with_fields(model_type="own")
    assert str(error_of(regard.load, "org/tiny")) == "it was loaded"


def test_a_hub_that_does_not_answer_is_given_up(served, monkeypatch):
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
    served.fail = stuck
    assert "does not answer: run `regard pull org/tiny` with a network" in str(error_of(resolve.find, "org/tiny"))


@dataclass
class Hanging:
    """A process whose download hangs in the middle of the weights."""

    run: subprocess.Popen[str]
    gone: threading.Event  # set once the connection is closed by the other side


@pytest.fixture
def hanging(served, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "3600")  # seconds: no other reason to leave
    monkeypatch.setenv("TMPDIR", str(home))  # what a killed process leaves
    begun, gone = threading.Event(), threading.Event()

    def hang(handler, path):
        if handler.command != "GET" or not path.endswith("/model.safetensors"):
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(LLAMA["model.safetensors"])))
        handler.end_headers()
        handler.wfile.write(LLAMA["model.safetensors"][:1000])
        handler.wfile.flush()
        begun.set()
        with suppress(ConnectionResetError):  # what an end with unread bytes looks like from here
            stuck(handler, path)
        gone.set()
        return True

    served.fail = hang
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from regard.models.hub import resolve; resolve.find('org/tiny')"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as run:
        assert begun.wait(WATCHDOG)
        yield Hanging(run, gone)


def test_an_interrupt_leaves_no_partial_file(served, home, hanging):
    hanging.run.send_signal(signal.SIGINT)
    hanging.run.communicate(timeout=WATCHDOG)
    assert hanging.run.returncode == -signal.SIGINT
    assert not list((home / "hf").rglob("*.incomplete"))
    served.fail = None
    served.requests.clear()
    assert resolve.find("org/tiny") == snapshot(home)
    assert served.downloaded == ["model.safetensors"]  # whole files are kept


def test_a_download_ends_with_the_process_that_wants_it(hanging):
    hanging.run.kill()
    assert hanging.gone.wait(WATCHDOG)


def test_fields_of_a_named_model_are_not_ignored(capsys):
    assert main(["pull", "minilm", "--ignore", "x"]) == 2
    assert "--ignore is for a model of the Hugging Face hub, org/name, not for minilm" in capsys.readouterr().err
