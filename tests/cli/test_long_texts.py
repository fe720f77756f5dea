"""Long texts: a command takes memory linear in the text and the layers, or says before the run that it cannot."""

import json
import re
import subprocess
import sys

import pytest

import tiny_decoder
from regard.cli import main
from regard.models import TextModel
from regard.views import similarity
from sweeps import sweep_after

LAYERS = 16
SHORT, LONG = 100, 1200  # tokens
GROWTH = (
    160_000_000  # bytes; the weights of all layers are 6 · 16 · 1200² · 4 = 553 MB, those of one head in float64 12 MB
)
JSON_GROWTH = 276_000_000  # bytes, half of the 553 MB; each of the 1200² numbers of one head takes 130 until it is text
MEASURE = """
import json, resource, sys
from regard.cli import main
for argv in json.loads(sys.argv[1]):
    assert main(argv) == 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if sys.platform == "linux":  # where that counts what the process that started this one takes
        with open("/proc/self/status") as status:
            peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    print(f"peak {peak}", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a decoder of many layers, one token for each letter."""
    sizes = {"num_hidden_layers": LAYERS}
    config = {**sizes, "max_position_embeddings": 8192}
    return str(tiny_decoder.write(tmp_path_factory.mktemp("long") / "model", config, tiny_decoder.tensors(**sizes)))


def text(length):
    return ("abcdefg hi" * length)[: length - 1] + "z"


def peaks(*commands):
    """Return the peak resident bytes of a process after each of some commands."""
    measure = [sys.executable, "-c", MEASURE, json.dumps(commands)]
    done = subprocess.run(measure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(found) for found in re.findall(r"^peak (\d+)$", done.stderr, re.MULTILINE)]


COMMANDS = {
    "show": ["show", "TEXT"],
    "json": ["show", "TEXT", "--json"],
    "picture": ["show", "TEXT", "-o", "map.png"],
    "movement": ["compare", "TEXT", "TEXT", "--word", "abcdefg", "--json"],
    "ablate": ["ablate", "TEXT", "--head", "L3H1", "--json"],
    "generate": ["generate", "TEXT", "--max-new-tokens", "2", "-o", "run.safetensors"],
    "heads": ["heads", "TEXT", "--json"],
}


@pytest.mark.skipif(sys.platform == "win32", reason="ru_maxrss is of POSIX")
@pytest.mark.parametrize("argv", sweep_after(1, COMMANDS.values()), ids=COMMANDS)
def test_memory_does_not_grow_with_the_weights_of_all_layers(model, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    small, large = peaks(
        *([*(text(n) if word == "TEXT" else word for word in argv), "--model", model] for n in (SHORT, LONG))
    )
    assert large - small < (JSON_GROWTH if argv == COMMANDS["json"] else GROWTH)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--json"], "--json prints every weight of at most 2,048 tokens, this text has 3,000: --word WORD prints"),
        (["--head-grid", "x.png"], "--head-grid, a grid of the maps of all heads: at most 2,048 tokens, this"),
        (["--movement", "x.png"], "at most 2,048 tokens, this text has 3,000"),
        (["explain"], "explain prints every number: at most 1,024 tokens, this text has 3,000"),
        (["explore", "-o", "x.html"], "at most 2,048 tokens, this text has 3,000"),
        (["--word", "nowhere"], "the text has no word 'nowhere'"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_said_before_the_run(model, capsys, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.models.decoder.Decoder.forward", lambda *_, **__: pytest.fail("the model ran"))
    monkeypatch.setattr("regard.cli.input.estimate_memory", lambda *_, **__: pytest.fail("the run was planned"))
    command = argv if argv[0][0] != "-" else ["show", *argv]
    assert main([command[0], text(3000), *command[1:], "--model", model]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_every_step_of_a_long_run_is_refused_before_it(model, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.output_files._MAX_STEPS_BYTES", 1_000_000)
    monkeypatch.setattr(TextModel, "__call__", lambda *_, **__: pytest.fail("the model ran"))
    for command in ("show", "explain"):
        assert main([command, text(1000), "--model", model, "-o", str(tmp_path / "run.safetensors")]) == 2
        assert "-o, every step of the run: at most 0.0 GB, those of 1,000 tokens take" in capsys.readouterr().err


COMMANDS_THAT_RUN = [argv for name, argv in COMMANDS.items() if name != "json"]


@pytest.mark.parametrize("argv", COMMANDS_THAT_RUN, ids=lambda argv: argv[0])
def test_a_run_that_does_not_fit_is_one_line_before_it(model, capsys, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.models.memory.available_memory", lambda: 1000)
    monkeypatch.setattr(TextModel, "__call__", lambda *_, **__: pytest.fail("the model ran"))
    assert main([*(text(LONG) if word == "TEXT" else word for word in argv), "--model", model]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "but 0.0 GB are available: give a shorter text" in err


def test_a_large_run_is_announced(model, capsys, monkeypatch):
    monkeypatch.setattr("regard.cli.input._LARGE", 1)
    assert main([text(400), "--model", model]) == 0
    assert capsys.readouterr().err == "regard: 400 tokens take about 0.0 GB of memory in addition to the model\n"
    assert main(["short", "--model", model]) == 0
    assert capsys.readouterr().err == ""


def test_compare_records_the_outputs_of_blocks_and_no_others(model, monkeypatch):
    recorded = []

    def word_vectors(trace, word):
        recorded.append(trace.names())
        return similarity.word_vectors(trace, word)

    monkeypatch.setattr("regard.cli.commands.compare.word_vectors", word_vectors)
    assert main(["compare", "abc d", "abc e", "--word", "abc", "--model", model]) == 0
    assert recorded == [("token_embeddings", *(f"blocks.{i}.output" for i in range(LAYERS)))] * 2


def test_a_long_table_is_cut_and_says_how_to_see_all(model, capsys):
    """One token for each letter: 300 rows, of which the heat map makes squares."""
    assert main(["show", text(300), "--model", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    more = lines.index("the first 40 of 300 rows; --all-rows prints all, --word WORD those of a word")
    assert more - next(i for i, line in enumerate(lines) if line.startswith("word")) == 41
    assert main(["show", text(300), "--model", model, "--all-rows"]) == 0
    every = capsys.readouterr().out.splitlines()
    assert len(every) == len(lines) + 300 - 40 - 1
    assert not any("of 300 rows" in line for line in every)
    assert main(["show", text(40), "--model", model]) == 0
    assert "rows;" not in capsys.readouterr().out
