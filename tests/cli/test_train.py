"""``regard train``: what it prints and writes, and how it ends."""

import csv
import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import regard
from regard.cli import main, watch
from regard.training import checkpoints

SMALL = ("--steps", "4", "--batch-size", "4")
WATCHED = ("--watch", "--port", "0", "--no-browser")


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("The cat sat on the mat, and the dog ran to the cat. " * 40)
    return path


@pytest.mark.parametrize("task", ["induction", "reverse", "sort", "brackets", "addition"])
def test_a_task(run, tmp_path, task):
    folder = tmp_path / "run"
    status, out, _ = run("train", task, *SMALL, "--folder", str(folder), "--log", str(tmp_path / "log.csv"))
    assert status == 0
    assert "step 4" in out
    assert list(checkpoints(folder)) == [1, 2, 3, 4]
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    model = regard.load(checkpoints(folder)[4])
    assert model(model.tokenizer.from_ids([1, 2])).logits.shape == (1, 2, model.tokenizer.vocab_size)


@pytest.mark.parametrize("options", [(), ("--bpe", "300"), ("--masked", "--dropout", "0.1"), ("--checkpoint",)])
def test_a_text(run, tmp_path, book, options):
    folder = tmp_path / "run"
    status, _, _ = run("train", "--file", str(book), "--context", "16", *SMALL, "--folder", str(folder), *options)
    assert status == 0
    model = regard.load(checkpoints(folder)[4])
    assert "".join(model.tokenizer("the cat").tokens).replace("Ġ", " ") == "the cat"


def test_a_loaded_model_is_trained_on(run, tmp_path, book):
    first, second = tmp_path / "first", tmp_path / "second"
    text = ("train", "--file", str(book), "--context", "16", *SMALL, "--masked")
    assert run(*text, "--folder", str(first))[0] == 0
    assert run(*text, "--folder", str(second), "--model", str(checkpoints(first)[4]))[0] == 0
    assert type(regard.load(checkpoints(second)[4])).__name__ == "Bert"


class Watching:
    """Stands for the page: what it was told while training went on."""

    def __init__(self, monkeypatch):
        self.pages = []
        monkeypatch.setattr(watch, "serving", self.serving)

    @contextmanager
    def serving(self, exploration, listening, *, browser, tell):
        page = SimpleNamespace(exploration=exploration, port=listening.getsockname()[1], browser=browser, is_open=True)
        page.first = exploration.manifest()["training"]
        self.pages.append(page)
        yield SimpleNamespace(is_alive=lambda: page.exploration.training()["training"]["is_live"])
        page.last = exploration.training()["training"]
        page.is_open = False


def test_a_run_is_watched(run, tmp_path, monkeypatch):
    watching = Watching(monkeypatch)
    folder = tmp_path / "run"
    words = ("train", "induction", *SMALL, "--folder", str(folder), *WATCHED)
    status, out, _ = run(*words)
    assert status == 0
    assert out.rstrip().endswith("the page stays until Ctrl-C")
    (page,) = watching.pages
    assert not page.is_open
    assert not page.browser
    assert [each["step"] for each in page.first["checkpoints"]] == [0]
    assert (page.first["end"], page.first["is_live"]) == (4, True)
    assert [each["step"] for each in page.last["checkpoints"]] == [0, 1, 2, 3, 4]
    assert not page.last["is_live"]
    status, _, _ = run(*words, "--resume", "--steps", "6")
    assert status == 0
    page = watching.pages[-1]
    assert (page.first["end"], page.first["is_live"]) == (6, True)
    assert [each["step"] for each in page.last["checkpoints"]] == [0, 1, 2, 3, 4, 5, 6]


def test_a_watched_run_has_about_thirty_checkpoints(run, tmp_path, monkeypatch):
    Watching(monkeypatch)
    words = ("train", "reverse", "--batch-size", "1", "--steps", "65", "--watch", "--port", "0")
    assert run(*words, "--folder", str(tmp_path / "run"))[0] == 0
    assert list(checkpoints(tmp_path / "run")) == [*range(0, 65, 2), 65]


def test_a_port_that_is_none_ends_before_training(run, tmp_path):
    folder = tmp_path / "run"
    status, _, error = run("train", "induction", *SMALL, "--folder", str(folder), "--watch", "--port", "70000")
    assert (status, "port is a number" in error, folder.exists()) == (2, True, False)


def test_a_run_is_resumed(run, tmp_path):
    folder = str(tmp_path / "run")
    assert run("train", "reverse", *SMALL, "--folder", folder)[0] == 0
    status, _, error = run("train", "reverse", *SMALL, "--folder", folder)
    assert (status, "--resume" in error) == (2, True)
    assert run("train", "reverse", "--steps", "6", "--batch-size", "4", "--folder", folder, "--resume")[0] == 0
    assert max(checkpoints(folder)) == 6
    assert "numbers, 1 step\n" in run("train", "reverse", "--steps", "1", "--folder", str(tmp_path / "one"))[1]


@pytest.mark.parametrize(("given", "expected"), [(("--warmup", "3"), 3), ((), 2)])
def test_a_given_warmup_is_not_shortened(run, tmp_path, given, expected):
    words = ("train", "reverse", "--steps", "4", "--batch-size", "2", *given, "--folder", str(tmp_path))
    assert run(*words)[0] == 0
    assert json.loads((checkpoints(tmp_path)[4] / "training.json").read_text())["options"]["warmup"] == expected


def test_a_run_is_resumed_with_its_options(run, tmp_path):
    folder = str(tmp_path / "run")
    options = "--learning-rate 1e-5 --dropout 0.1 --warmup 3 --checkpoint --save-every 1 --seed=3".split()
    assert run("train", "reverse", *SMALL, *options, "--folder", folder)[0] == 0
    before = json.loads((checkpoints(folder)[4] / "training.json").read_text())
    for step in (3, 4):
        shutil.rmtree(checkpoints(folder)[step])  # as if it had been cut
    status, out, error = run("train", "reverse", "--folder", folder, "--resume")
    assert (status, error) == (0, "")
    assert "4 steps" in out
    assert json.loads((checkpoints(folder)[4] / "training.json").read_text()) == before


def test_another_run_is_not_resumed(run, tmp_path, book):
    folder = tmp_path / "run"
    assert run("train", "reverse", *SMALL, "--folder", str(folder))[0] == 0
    for words, message in (
        (("sort",), "task='reverse', not 'sort'"),
        (("reverse", "--learning-rate", "1e-5"), "learning_rate=0.001, not 1e-05"),
        (("reverse", "--batch-size", "8"), "batch_size=4, not 8"),
        (("reverse", "--seed", "1"), "seed=0, not 1"),
        (("--file", str(book)), "task='reverse', not 'text'"),
    ):
        status, _, error = run("train", *words, "--folder", str(folder), "--resume")
        assert status == 2
        assert message in error
    assert max(checkpoints(folder)) == 4


def test_a_text_is_resumed_with_its_options_and_not_another_text(run, tmp_path, book):
    folder = str(tmp_path / "run")
    text = ("train", "--file", str(book), "--folder", folder)
    assert run(*text, "--bpe", "300", "--context", "16", *SMALL)[0] == 0
    assert run(*text, "--resume", "--steps", "5")[0] == 0
    assert max(checkpoints(folder)) == 5
    book.write_text(book.read_text().replace("dog", "cow"))
    status, _, error = run(*text, "--resume")
    assert status == 2
    assert "text_sha256=" in error


def test_a_text_that_the_model_cannot_read_is_refused(run, tmp_path, book):
    words = ("train", "--file", str(book), "--model", "induction", "--folder", str(tmp_path / "run"))
    for text, options, message in (
        (book.read_text(), (), "no token for"),
        ("thecatsat" * 1000, ("--context", "300"), "induction permits 128 tokens: give --context at most that"),
    ):
        book.write_text(text)
        status, _, error = run(*words, *options)
        assert status == 2
        assert message in error


@contextmanager
def training(*words):
    """Run `regard train` in a process of its own that Ctrl-C interrupts, as a shell's background job is not."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from regard.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    argv, pipe = [sys.executable, "-c", code, "train", "reverse", *words], subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        yield process
        process.kill()


def until(process, pattern):
    """Return the match of the first line that a process prints and a pattern fits."""
    while (found := re.search(pattern, process.stdout.readline())) is None:
        assert process.poll() is None
    return found


def test_ctrl_c_ends_after_the_step_and_saves(tmp_path):
    with training("--folder", str(tmp_path / "run"), "--evaluate-every", "1", "--save-every", "1000") as process:
        until(process, r"step\b")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    assert (process.returncode, "interrupted" in error) == (130, True)
    (last,) = checkpoints(tmp_path / "run")
    assert f"step-{last:06d}" in out


def test_ctrl_c_ends_the_page_after_the_training(tmp_path):
    with training(*SMALL, "--folder", str(tmp_path / "run"), *WATCHED) as process:
        until(process, "until Ctrl-C")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_ctrl_c_ends_a_watched_run_and_its_page(tmp_path):
    with training("--folder", str(tmp_path / "run"), *WATCHED) as process:
        address = until(process, r"^http://(127.0.0.1:\d+)(/\S+)")
        connection = http.client.HTTPConnection(address[1], timeout=60)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{address[2]}api/training", '{"known": 0}', headers)
        answer = json.loads(connection.getresponse().read())
        assert answer["training"]["is_live"]
        assert answer["training"]["checkpoints"][0] == {"step": 0, "run": 0, "message": "step 0 of 1,500"}
        connection.request("POST", "/wrong-token/api/training", '{"known": 0}', headers)
        assert connection.getresponse().status == 404
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, "interrupted" in error) == (130, True)
    assert f"step-{max(checkpoints(tmp_path / 'run')):06d}" in out


def test_a_folder_of_a_run_is_its_last_step(tmp_path, capsys):
    folder = tmp_path / "run"
    task = regard.training.make_task("reverse", batch_size=2)
    regard.train(task.new_model(), task.batches(), steps=12, save_every=2, folder=folder)
    for path in (folder, str(folder)):
        np.testing.assert_array_equal(
            regard.load(path).token_embedding.weight, regard.load(folder / "step-000012").token_embedding.weight
        )
    assert main(["heads", "abc", "--model", str(folder)]) == 0
