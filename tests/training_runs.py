"""A training run of a few steps in a folder, as figures and the explorer show it."""

from pathlib import Path

import regard
from regard.models import LanguageModel
from regard.training import Task, make_task, new_model


def small_model(task: Task, layers: int = 2) -> LanguageModel:
    """Return a model of a few thousand numbers for a task."""
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": layers, "n_head": 2, "n_positions": 64}
    return new_model({**config, "vocab_size": task.tokenizer.vocab_size}, task.tokenizer, seed=1)


def write_run(folder: Path) -> Path:
    """Train such a model for 12 steps, with a checkpoint before the first and after each third."""
    task = make_task("induction", batch_size=4)
    regard.train(
        small_model(task), task.batches(), steps=12, learning_rate=0.01, folder=folder, save_every=3, save_start=True,
        evaluation=task.held_out(1), evaluate_every=6,
    )  # fmt: skip
    return folder
