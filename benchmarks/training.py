"""A step of training of a GPT: forward pass, backward pass, clipping and AdamW, beside PyTorch.

Each contestant is a process of its own with as many threads; they take turns, and the result is the ratio of a round.
All begin with the same weights and train on the same batch; their losses after three steps must agree.

    python benchmarks/training.py            all sizes, and the table in benchmarks/results/training.md
    python benchmarks/training.py --size 65  one vocabulary, and the table of it alone
    python benchmarks/training.py --smoke    one round of a small shape, without torch.compile, nothing written
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _measure import alternate_processes, answer, faster, kernel_in_words, machine, markdown, versions

THREADS = len(os.sched_getaffinity(0))
RESULTS = Path(__file__).parent / "results" / "training.md"
LEARNING_RATE = 1e-4
CHECKED_STEPS = 3
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


SMALL = Size(65, 1, 64, 32, 2)
SIZES = {"65": Size(65, 6, 384, 256, 16), "8192": Size(8192, 6, 384, 256, 16), "smoke": SMALL}


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


def with_regard(size: Size) -> Callable[[], float]:
    """Return a step, which returns the loss before it."""
    from regard.functional import cross_entropy, native
    from regard.nn import value_and_gradients
    from regard.training.batches import Batch
    from regard.training.optimizer import AdamW, clip_scale, global_norm

    trained = new_gpt(size)
    optimizer = AdamW(trained.values.size, trained.decayed, trained.values.dtype)
    batch = Batch(size.ids[:, :-1].copy(), size.ids[:, 1:].copy())

    def loss_of(objective: Any) -> Any:
        return cross_entropy(*objective(batch))

    def steps() -> Iterator[float]:
        with native.kept_buffers():
            while True:
                trained.zero_gradient()
                loss, gradients = value_and_gradients(
                    trained.objective, lambda objective: cross_entropy(*objective(batch))
                )
                trained.add_gradients(gradients)
                del gradients
                scale = clip_scale(global_norm(trained.gradient), 1.0)
                optimizer.step(trained.values, trained.gradient, LEARNING_RATE, scale=scale)
                yield loss

    return steps().__next__


def with_torch(size: Size, compiled: bool) -> Callable[[], float]:
    """Return a step, which returns the loss before it."""
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
        lr=LEARNING_RATE, fused=True,
    )  # fmt: skip
    ids = torch.from_numpy(size.ids)
    function = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        loss = function(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(x.values(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def make(contestant: str, size: Size) -> Callable[[], float]:
    return with_regard(size) if contestant == "regard" else with_torch(size, contestant == "compiled")


def report_memory(contestant: str, size: Size) -> None:
    """Print the loss after some steps, and the largest resident memory of the last of them, in megabytes."""
    step = make(contestant, size)
    losses = [step() for _ in range(CHECKED_STEPS - 1)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: compiling is not counted
    losses.append(step())
    print(losses[-1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if sys.platform != "linux" else _peak_kb())


def _peak_kb() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def memory_and_loss(contestant: str, key: str) -> tuple[float, float]:
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    command = [sys.executable, __file__, "--memory", contestant, "--size", key]
    found = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
    loss, kilobytes = found.stdout.split()[-2:]
    return float(loss), int(kilobytes) / 1024


def measure(key: str, contestants: list[str], rounds: int) -> list[str]:
    """Return the rows of a size."""
    size = SIZES[key]
    found = {name: memory_and_loss(name, key) for name in contestants}
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
        rows.append([*row, ratio, f"{found[name][1]:,.0f} MB"])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of training beside PyTorch.")
    parser.add_argument("--smoke", action="store_true", help="one round of a small shape, nothing written")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=SIZES, help="only this")
    parser.add_argument("--work", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--memory", choices=NAMES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        step = make(arguments.work, SIZES[arguments.size])
        step(), step()  # compiles, and fills the caches
        answer({STEP: step}, 0.0, warm_up=False)
        return
    if arguments.memory:
        report_memory(arguments.memory, SIZES[arguments.size])
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
    print(text)
    if not arguments.smoke:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
