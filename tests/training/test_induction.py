"""The model `induction`, which is a part of the package: its heads, its loss, and that it needs no network."""

import subprocess
import sys

import numpy as np

import regard
from fake_traces import recorded
from regard.metrics import head_metrics
from regard.models.hub import resolve
from regard.training import make_task
from regard.training.tasks import repeated_sequences


def held_out():
    return repeated_sequences(np.random.default_rng([0, 1 << 40]), 32, 24)


def test_a_head_attends_to_what_followed_the_same_token():
    trace = recorded(regard.load("induction"), held_out(), maps=True, only="*attn.weights")
    metrics = head_metrics(trace)
    first, second = metrics.induction.mean(0).max(-1)
    assert second >= 0.95
    assert first < 0.2
    assert metrics.previous_token.mean(0)[0].max() > 0.4


def loss(logits, ids):
    logits = logits[:, 24:-1].astype(np.float64)
    lse = np.log(np.exp(logits).sum(-1))
    return float((lse - np.take_along_axis(logits, ids[:, 25:, None], -1)[..., 0]).mean())


def test_the_second_half_is_known_and_without_the_first_layer_it_is_not():
    model, ids = regard.load("induction"), held_out()
    assert loss(model(ids).logits, ids) < 0.05
    ablated = model(ids, edit={"blocks.0.attn.output": np.zeros_like})
    assert loss(ablated.logits, ids) > 1


def test_it_continues_a_repetition(induction):
    assert induction.generate("xK3bQz7xK3b", max_new_tokens=3).text == "Qz7"


def test_it_needs_no_network_and_no_cache(tmp_path):
    code = "import regard; print(regard.load('induction', download=False)('abcab').logits.shape)"
    environment = {"REGARD_MODELS": str(tmp_path / "none"), "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 5, 64)\n", done.stderr


def test_its_files_are_what_training_writes():
    folder = resolve.find("induction")
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in folder.iterdir()) < 700_000
    model, task = regard.load("induction"), make_task("induction")
    assert model.tokenizer.backend.to_str() == task.tokenizer.backend.to_str()
    assert resolve.pull("induction", force=True) == folder
