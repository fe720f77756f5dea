"""A step of training of a GPT: forward pass, backward pass, clipping and AdamW, beside PyTorch.

Each contestant is a process of its own with as many threads; they take turns, and the result is the ratio of a round.
All begin with the same weights and train on the same batch; their losses after three steps must agree. A longer run of
a smaller GPT, on the pages in docs/, shows that the losses stay together.

    python benchmarks/training.py            all sizes, and the tables in benchmarks/results/training.md
    python benchmarks/training.py --size 65  one vocabulary, and the row of it alone
    python benchmarks/training.py --smoke    one round of a small shape, without torch.compile, nothing written
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _measure import alternate_processes, answer, faster, kernel_in_words, machine, markdown, versions, write_results

from regard.functional import native

THREADS = len(os.sched_getaffinity(0))
LEARNING_RATE = 1e-4
CHECKED_STEPS = 3
LONG_RUN = (200, 400, 600)  # steps after which the evaluation loss is taken
LONG_LEARNING_RATE = 1e-3
STEP = "step"
NAMES = {"regard": "regard", "eager": "PyTorch", "compiled": "PyTorch, torch.compile"}


class Size(NamedTuple):
    """Of a GPT-2 and its batch; width / 64 heads."""

    vocabulary: int
    layers: int
    width: int
    context: int
    batch: int

    @property
    def heads(self) -> int:
        """How many heads of 64 numbers."""
        return self.width // 64

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.context

    @property
    def ids(self) -> np.ndarray:
        """A batch, with one token more than the context."""
        return np.random.default_rng(0).integers(0, self.vocabulary, (self.batch, self.context + 1))


class Run(NamedTuple):
    """A model in training; both functions take ids, ``B (T + 1)``, and return their loss."""

    step: Callable[[np.ndarray], float]
    evaluate: Callable[[np.ndarray], float]


SMALL = Size(65, 1, 64, 32, 2)
SIZES = {"65": Size(65, 6, 384, 256, 16), "8192": Size(8192, 6, 384, 256, 16), "smoke": SMALL}
BYTES = Size(256, 2, 128, 64, 16)


def new_gpt(size: Size) -> Any:
    """Draw a GPT-2, in training."""
    from regard.training.tokenizers import word_tokenizer
    from regard.training.trainable import new_model

    config = {
        "model_type": "gpt2", "n_layer": size.layers, "n_embd": size.width, "n_head": size.heads,
        "n_positions": size.context, "vocab_size": size.vocabulary, "activation_function": "gelu_new",
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    return new_model(config, word_tokenizer([f"w{i}" for i in range(size.vocabulary - 1)]))


def with_regard(size: Size, learning_rate: float) -> Run:
    """Return the run of regard."""
    from regard.functional import cross_entropy
    from regard.nn import value_and_gradients
    from regard.training.batches import Batch
    from regard.training.optimizer import AdamW, clip_scale, global_norm

    trained = new_gpt(size)
    optimizer = AdamW(trained.values.size, trained.decayed, trained.values.dtype)

    def batch_of(ids: np.ndarray) -> Batch:
        return Batch(ids[:, :-1].copy(), ids[:, 1:].copy())

    def step(ids: np.ndarray) -> float:
        batch = batch_of(ids)
        trained.zero_gradient()
        loss, gradients = value_and_gradients(trained.objective, lambda objective: cross_entropy(*objective(batch)))
        trained.add_gradients(gradients)
        del gradients
        scale = clip_scale(global_norm(trained.gradient), 1.0)
        optimizer.step(trained.values, trained.gradient, learning_rate, scale=scale)
        return loss

    return Run(step, lambda ids: float(cross_entropy(*trained.objective(batch_of(ids)))))


def with_torch(size: Size, learning_rate: float, *, compiled: bool) -> Run:
    """Return the run of PyTorch."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(THREADS)
    trained = new_gpt(size)
    x = {name.removeprefix("transformer."): torch.from_numpy(a.copy()) for name, a in trained.tensors.items()}
    del trained
    for a in x.values():
        a.requires_grad_()

    def norm(h: Any, name: str) -> Any:
        return F.layer_norm(h, (size.width,), x[f"{name}.weight"], x[f"{name}.bias"])

    def linear(h: Any, name: str) -> Any:
        bias, weight = x[f"{name}.bias"], x[f"{name}.weight"]
        return torch.addmm(bias, h.reshape(-1, h.shape[-1]), weight).reshape(*h.shape[:-1], weight.shape[1])

    def loss_of(ids: Any, targets: Any) -> Any:
        h = x["wte.weight"][ids] + x["wpe.weight"][: ids.shape[1]]
        for i in range(size.layers):
            block = f"h.{i}"
            qkv = linear(norm(h, f"{block}.ln_1"), f"{block}.attn.c_attn")
            q, k, v = qkv.unflatten(-1, (3, size.heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            h = h + linear(mixed, f"{block}.attn.c_proj")
            up = F.gelu(linear(norm(h, f"{block}.ln_2"), f"{block}.mlp.c_fc"), approximate="tanh")
            h = h + linear(up, f"{block}.mlp.c_proj")
        return F.cross_entropy((norm(h, "ln_f") @ x["wte.weight"].T).flatten(0, 1), targets.flatten())

    optimizer = torch.optim.AdamW(
        [
            {"params": [a for a in x.values() if a.ndim > 1], "weight_decay": 0.01},
            {"params": [a for a in x.values() if a.ndim == 1], "weight_decay": 0.0},
        ],
        lr=learning_rate, fused=True,
    )  # fmt: skip
    function = torch.compile(loss_of) if compiled else loss_of

    def step(ids: np.ndarray) -> float:
        text = torch.from_numpy(ids)
        optimizer.zero_grad()
        loss = function(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(x.values(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def evaluate(ids: np.ndarray) -> float:
        text = torch.from_numpy(ids)
        with torch.no_grad():
            return float(loss_of(text[:, :-1], text[:, 1:]))

    return Run(step, evaluate)


def make(contestant: str, size: Size, learning_rate: float = LEARNING_RATE) -> Run:
    if contestant == "regard":
        return with_regard(size, learning_rate)
    return with_torch(size, learning_rate, compiled=contestant == "compiled")


def report_memory(contestant: str, size: Size) -> None:
    """Print the loss after some steps, and the largest resident memory of the last of them, in kilobytes."""
    step = make(contestant, size).step
    losses = [step(size.ids) for _ in range(CHECKED_STEPS - 1)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: compiling is not counted
    losses.append(step(size.ids))
    print(losses[-1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if sys.platform != "linux" else _peak_kb())


def report_long_run(contestant: str) -> None:
    """Print the evaluation losses of a run on the bytes of this project's documentation, its last tenth held out."""
    pages = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
    text = np.frombuffer(b"".join(page.read_bytes() for page in pages), np.uint8).astype(np.int64)
    rng, end = np.random.default_rng(0), len(text) * 9 // 10

    def windows(first: int, stop: int, count: int) -> np.ndarray:
        starts = rng.integers(first, stop - BYTES.context, count)
        found: np.ndarray = text[starts[:, None] + np.arange(BYTES.context + 1)]
        return found

    held_out = windows(end, len(text), 256)
    run = make(contestant, BYTES, LONG_LEARNING_RATE)
    for step in range(1, LONG_RUN[-1] + 1):
        run.step(windows(0, end, BYTES.batch))
        if step in LONG_RUN:
            print(run.evaluate(held_out), end=" ")


def _peak_kb() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def ask(*options: str) -> list[float]:
    """Return the numbers that a process of its own prints."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    command = [sys.executable, __file__, *options]
    found = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
    return [float(number) for number in found.stdout.split()]


def measure(key: str, contestants: list[str], rounds: int) -> list[str]:
    """Return the rows of a size."""
    size = SIZES[key]
    found = {name: ask("--memory", name, "--size", key) for name in contestants}
    losses = [loss for loss, _ in found.values()]
    if max(losses) - min(losses) > 1e-4 * max(losses):
        sys.exit(f"the contestants do not compute the same: {dict(zip(contestants, losses, strict=True))}")
    times = alternate_processes(
        __file__, contestants, [STEP], rounds=rounds, threads=THREADS, rest=0.2, options=["--size", key]
    )  # fmt: skip
    rows = []
    for name in contestants:
        took = times[name][STEP]
        ratio = "" if name == "regard" else str(faster(times["regard"][STEP], took))
        row = [f"{size.vocabulary:,}", NAMES[name], f"{took.median:.2f} s", f"{size.tokens / took.median:,.0f}"]
        rows.append([*row, ratio, f"{found[name][1] / 1024:,.0f} MB"])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return [f"| {' | '.join(row)} |" for row in rows]


def long_run() -> str:
    """Return the section about the longer run."""
    ours, theirs = (ask("--long-run", name) for name in ("regard", "eager"))
    rows = [
        [f"{step}", f"{a:.4f}", f"{b:.4f}", f"{abs(a / b - 1):.2%}"]
        for step, a, b in zip(LONG_RUN, ours, theirs, strict=True)
    ]
    return (
        f"\n## A longer run\n\nA GPT-2 of {BYTES.layers} layers, width {BYTES.width}, context {BYTES.context}, batch "
        f"{BYTES.batch}, learns the bytes of the pages in docs/ at a learning rate of {LONG_LEARNING_RATE:g},\n"
        "from the same start, on the same batches. The mean loss of held-out text, in nats a byte:\n\n"
        + markdown(["steps", "regard", "PyTorch", "difference"], rows)
        + "\n"
    )


def compete(arguments: argparse.Namespace) -> None:
    """Run the process of a contestant."""
    if arguments.work:
        size = SIZES[arguments.size]
        run = make(arguments.work, size)
        run.step(size.ids), run.step(size.ids)  # compiles, and fills the caches
        answer({STEP: lambda: run.step(size.ids)}, 0.0, warm_up=False)
    elif arguments.memory:
        report_memory(arguments.memory, SIZES[arguments.size])
    else:
        report_long_run(arguments.long_run)


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of training beside PyTorch.")
    parser.add_argument("--smoke", action="store_true", help="one round of a small shape, nothing written")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=SIZES, help="only this")
    parser.add_argument("--work", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--memory", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--long-run", choices=NAMES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work or arguments.memory or arguments.long_run:
        with native.kept_buffers():  # as `regard.train` does; PyTorch has buffers of its own
            compete(arguments)
        return
    contestants = ["regard", "eager"] if arguments.smoke else list(NAMES)
    keys = ["smoke"] if arguments.smoke else [arguments.size] if arguments.size else ["65", "8192"]
    rounds = 1 if arguments.smoke else arguments.rounds
    rows = [row for key in keys for row in measure(key, contestants, rounds)]
    size = SIZES[keys[0]]
    command = " ".join(["python benchmarks/training.py", *sys.argv[1:]])
    header = markdown(["vocabulary", "", "a step", "tokens a second", "regard times as fast", "peak memory"], [])
    text = (
        f"# Training a GPT\n\n{machine()}; {THREADS} threads each. {versions('torch')}.\n{kernel_in_words()}.\n"
        f"A GPT-2 of {size.layers} layers, width {size.width}, {size.heads} heads, context {size.context}, batch "
        f"{size.batch}, float32:\nforward pass, backward pass, clipping and AdamW (fused in PyTorch). "
        f"Medians of {rounds} rounds that\nalternate between processes, in brackets the middle half of the rounds. "
        f"Peak memory is that of the process in a step,\nlibraries included, and compilation not. Made by "
        f"`{command}` on {datetime.datetime.now(datetime.UTC).date()}.\n\n{header}\n" + "\n".join(rows) + "\n"
    )
    text += "" if arguments.smoke else long_run()
    print(text)
    if not arguments.smoke:
        write_results("training.md", text)


if __name__ == "__main__":
    main()
