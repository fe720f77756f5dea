"""A run over a corpus that was interrupted or killed continues, and ends with the bits of one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import regard
from regard import RegardError
from regard.cli import main
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.metrics import corpus_head_metrics, running_sums
from regard.metrics.corpus import measure_corpus
from regard.models import corpus
from regard.training import make_task

LETTERS = np.array(list("abcdefghijk"))


def texts_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(LETTERS, rng.integers(1, 12))) for _ in range(count)]


def bits(found):
    return {name: column.tobytes() for name, column in found.to_columns().items()}


@pytest.fixture
def always(monkeypatch):
    """Write the file after every text."""
    monkeypatch.setattr(running_sums, "_SECONDS", 0)


class Interrupter:
    """A progress function that raises KeyboardInterrupt at a batch."""

    def __init__(self, batches):
        self.batches = batches

    def __call__(self, *_):
        self.batches -= 1
        if self.batches < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("window", [4096, 7])
def test_interrupted_again_and_again_it_has_the_bits_of_one_run(induction, tmp_path, monkeypatch, window):
    monkeypatch.setattr(corpus, "_WINDOW", window)
    texts, path, runs = texts_of(40), tmp_path / "sums", 0
    whole = corpus_head_metrics(induction, texts, batch_size=3)
    while True:
        runs += 1
        try:
            found = corpus_head_metrics(induction, texts, batch_size=3, resume=path, progress=Interrupter(4))
        except KeyboardInterrupt:
            assert path.exists()
        else:
            break
    assert runs > 3
    assert bits(found) == bits(whole)
    assert found.layers == whole.layers
    assert list(tmp_path.iterdir()) == []


def test_it_continues_in_the_middle_of_a_batch(induction, tmp_path, monkeypatch):
    texts = ["abcab"] * 3 + ["abcba", "cabca"]
    calls = iter(range(99))

    def failing(trace, own, measured=running_sums.head_metrics):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return measured(trace, own=own)

    with monkeypatch.context() as patched:
        patched.setattr("regard.metrics.corpus.head_metrics", failing)
        with pytest.raises(KeyboardInterrupt):
            corpus_head_metrics(induction, texts, resume=tmp_path / "sums")
    assert SafetensorsFile(tmp_path / "sums").metadata["done"] == "2"
    assert bits(corpus_head_metrics(induction, texts, resume=tmp_path / "sums")) == bits(
        corpus_head_metrics(induction, texts)
    )


def test_what_was_done_is_not_run_again(induction, tmp_path, monkeypatch):
    texts, path = texts_of(50), tmp_path / "sums"
    with pytest.raises(KeyboardInterrupt):
        corpus_head_metrics(induction, texts, batch_size=1, resume=path, progress=Interrupter(30))
    ran = []
    corpus_head_metrics(induction, texts, batch_size=1, resume=path, progress=lambda done, _: ran.append(done))
    assert ran[-1] == 50
    measured = []
    monkeypatch.setattr(corpus, "run_traced", lambda *_: measured.append(1))
    assert list(induction.iter_traces(texts, skip=50)) == []
    assert measured == []


def test_a_run_that_has_ended_but_is_not_stored_runs_nothing(induction, tmp_path, monkeypatch):
    texts, path = texts_of(9), tmp_path / "sums"
    first = measure_corpus(induction, texts, resume=path)
    assert path.exists()
    monkeypatch.setattr(corpus, "run_traced", None)
    assert bits(measure_corpus(induction, texts, resume=path)) == bits(first)


@pytest.mark.parametrize("skip", range(7))
def test_skipped_texts_are_left_out_and_the_others_keep_their_bits(induction, skip):
    texts = ["abca", "bc", "abcb", "k", "aaaa", "ccba"]
    whole = [(i, trace["blocks.1.output"]) for i, trace in induction.iter_traces(texts, batch_size=4)]
    rest = list(induction.iter_traces(texts, batch_size=4, skip=skip))
    assert [i for i, _ in rest] == [i for i, _ in whole[skip:]]
    for (_, trace), (_, value) in zip(rest, whole[skip:], strict=True):
        np.testing.assert_array_equal(trace["blocks.1.output"], value)


def test_another_run_is_refused_and_says_what_differs(induction, tmp_path):
    texts, path = texts_of(20), tmp_path / "sums"
    measure_corpus(induction, texts, resume=path)
    before = path.read_bytes()
    for other, arguments in (
        ("texts", {"texts": [*texts, "abc"]}),
        ("texts", {"texts": [*texts[:-1], "abc"]}),
        ("texts", {"texts": texts[::-1]}),
        ("options", {"batch_size": 31}),
        ("options", {"truncate": True}),
    ):
        given = {"texts": texts, **arguments}
        with pytest.raises(RegardError, match=f"^.*sums is of an interrupted run with other {other}: repeat .* remove"):
            measure_corpus(induction, resume=path, **given)
    untrained = make_task("induction").new_model(seed=0).model
    with pytest.raises(RegardError, match="with other model: "):
        measure_corpus(untrained, texts, resume=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["sums", "sums.pt", "sums.bin", "table.parquet.resume"])
@pytest.mark.parametrize(
    "content", [b"", b"a, b\n1, 2\n", b"PK\x03\x04", b"\x80\x04", b"GGUF", b"\x09" + bytes(7) + b"{garbage}", None]
)
def test_a_file_of_anything_else_is_called_that(induction, tmp_path, name, content):
    path = tmp_path / name
    if content is None:
        write_safetensors(path, {"x": np.zeros(3)})
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    for given in (path, tmp_path):  # nor is a folder
        with pytest.raises(RegardError) as caught:
            corpus_head_metrics(induction, ["abc"], resume=given)
        assert str(caught.value) == f"{given} is not a file of running sums: move it away, or resume from another"
    assert path.read_bytes() == before


def test_texts_that_are_read_once_cannot_be_resumed(induction, tmp_path):
    with pytest.raises(RegardError, match="resume= needs texts that can be read twice"):
        corpus_head_metrics(induction, iter(["abc"]), resume=tmp_path / "sums")
    with pytest.raises(RegardError, match="texts are an iterable"):
        corpus_head_metrics(induction, "abc", resume=tmp_path / "sums")
    with pytest.raises(RegardError, match="there is no text"):
        corpus_head_metrics(induction, [], resume=tmp_path / "sums")
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_written_every_few_seconds(induction, tmp_path, always, monkeypatch):
    written = []
    monkeypatch.setattr(running_sums.SumsFile, "write", lambda _, sums: written.append(sums.done))
    corpus_head_metrics(induction, texts_of(5), resume=tmp_path / "sums")
    assert written == [1, 2, 3, 4, 5, 5]
    monkeypatch.setattr(running_sums, "_SECONDS", 60)
    written.clear()
    corpus_head_metrics(induction, texts_of(5), resume=tmp_path / "sums")
    assert written == [5]


COMMAND = """
import sys
from regard.cli.main import main
from regard.metrics import running_sums
running_sums._SECONDS = 0
print("starts", flush=True)
sys.exit(main(sys.argv[1:]))
"""

# It ends at once, as if killed, before it opens or renames a file in the folder of the sums for the n-th time.
KILLED = COMMAND.replace(
    "print(",
    """import os
left = int(sys.argv.pop())
def count(event, arguments, folder=os.path.dirname(sys.argv[-1])):
    global left
    if event in ("open", "os.rename") and str(arguments[0]).startswith(folder):
        left -= 1
        if left < 0:
            os._exit(9)
sys.addaudithook(count)
print(""",
)

# With its sums written it waits until it is interrupted, or until its standard input ends.
WAITING = COMMAND.replace(
    "print(",
    """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits SIG_IGN
write = running_sums.SumsFile.write
running_sums.SumsFile.write = lambda self, sums: (write(self, sums), sys.stdin.read())
print(""",
)


def arguments_of(corpus_file, out):
    return ["heads", "--corpus", str(corpus_file), "--model", "induction", "-o", str(out)]


def start(corpus_file, out, command, *more):
    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments_of(corpus_file, out), *map(str, more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout.readline() == "starts\n"
    return process


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.sweep)])
def test_the_command_killed_at_random_moments_ends_with_the_same_file(tmp_path, kills):
    moments = random.Random(kills)
    lines = tmp_path / "corpus.txt"
    lines.write_text("\n".join(texts_of(30 * kills)) + "\n")
    out, state, reached = tmp_path / "heads.csv", tmp_path / "heads.csv.resume", []
    for _ in range(kills):
        process = start(lines, out, KILLED, moments.randint(8, 40))  # of the files of at most 20 texts
        process.communicate()
        assert process.returncode == 9
        reached.append(int(SafetensorsFile(state).metadata["done"]))  # never half-written
    assert not out.exists()
    assert reached == sorted(reached)
    assert 0 < reached[0] < reached[-1] < 30 * kills
    for path in (out, tmp_path / "whole.csv"):
        assert main(arguments_of(lines, path)) == 0
    assert not state.exists()
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT for one process")
def test_ctrl_c_keeps_the_sums_and_says_so(tmp_path, capsys):
    lines = tmp_path / "corpus.txt"
    lines.write_text("\n".join(texts_of(200)) + "\n")
    out, state = tmp_path / "heads.csv", tmp_path / "heads.csv.resume"
    process = start(lines, out, WAITING)
    while not state.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"regard: the sums so far are in {state}: the same command continues\nregard: interrupted\n"
    done = int(SafetensorsFile(state).metadata["done"])
    assert 0 < done < 200
    assert not out.exists()
    assert main(arguments_of(lines, out)) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"regard: continuing the interrupted run of {state}\n")
    assert not state.exists()
