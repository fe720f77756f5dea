"""The examples run from anywhere, say what their lesson says, and leave nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs an example in an empty folder, which stays empty, and returns what it prints."""

    def run(name, *arguments):
        here = tmp_path / "here"
        here.mkdir()
        environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-W", "error", EXAMPLES / name, *arguments]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, encoding="utf-8", timeout=300)
        assert done.returncode == 0, done.stderr
        assert list(here.iterdir()) == []
        return done.stdout

    return run


def numbers(text):
    return np.array([float(number) for number in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)])


def test_lesson_000_prints_the_output_worked_by_hand(run):
    output = run("lesson_000_step_by_step.py").split("output: ")[1]
    np.testing.assert_allclose(
        numbers(output)[:9], [9 / 7, 19 / 7, 12 / 7, 1.2, 2.2, 1.8, 1.1, 1.4, 1.9], rtol=0, atol=5e-5
    )


def test_lesson_001_prints_the_notebooks_output_digit_by_digit(run):
    printed = run("lesson_001_two_heads.py")
    assert "[[ 0.34494302 -0.16594008 -0.49273973 -0.51357179]" in printed
    assert " [ 0.33840776 -0.14368761 -0.47391596 -0.49318787]]" in printed


def test_lesson_002_prints_scores_of_1_6_6_and_a_text_that_a_second_one_does_not_change(run):
    printed = run("lesson_002_batch.py")
    assert "scores: (1, 6, 6)" in printed
    assert numbers(printed.split("second one:")[1]) <= 1e-15


@pytest.mark.minilm
def test_lesson_003_prints_a_bank_on_the_right_side_for_each_sentence_and_draws_two_pictures(run, minilm_dir, tmp_path):
    pictures = tmp_path / "pictures"
    printed = run("lesson_003_words_in_context.py", pictures)
    river, money = numbers(printed.split("in town\n")[1]).reshape(6, 2).T
    assert (river > money).tolist() == [True] * 3 + [False] * 3
    assert sorted(path.name for path in pictures.iterdir()) == ["bank.svg", "cat.svg"]


def test_lesson_004_prints_the_lessons_weights(run):
    weights = run("lesson_004_one_equation.py").split("weights:\n")[1]
    np.testing.assert_allclose(
        numbers(weights)[:4], [0.23477085, 0.26403109, 0.2461006, 0.25509746], rtol=0, atol=0.6e-8
    )


def test_serve_batch_gives_each_text_the_tokens_that_it_has_alone(run):
    printed = run("serve_batch.py")
    texts = {line[0]: line.split()[1:] for line in printed.splitlines() if line[:1].isupper()}
    assert [len(tokens) for tokens in texts.values()] == [9, 4, 12, 6, 3, 7, 5]
    assert "7 of them as they are alone" in printed
    steps = [line.split() for line in printed.splitlines() if line.startswith("step")]
    assert max(len(words) for words in steps) == len(["step", "1:", *"ABC", "7", "of", "12", "pages"])
    assert steps[-1][-4] == "0"  # all pages are free again


def test_the_table_in_the_readme_has_every_example_and_no_other():
    listed = re.findall(r"\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))
