"""regard inside PyTorch, transformers and JAX, beside what they compute attention with themselves.

Each contestant is a process of its own with as many threads; they take turns, and the result is the ratio of a round.

    python benchmarks/frameworks.py            everything, and the tables in benchmarks/results/frameworks.md
    python benchmarks/frameworks.py --smoke    one round of small shapes, nothing written
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _measure import (
    ROUND,
    Ratio,
    alternate_processes,
    answer,
    faster,
    kernel_in_words,
    machine,
    markdown,
    versions,
    write_results,
)

THREADS = len(os.sched_getaffinity(0))
HEADS, DIM = 12, 64
RNG = np.random.default_rng(0)

Calls = dict[str, Callable[[], object]]


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def through_autograd(ours: bool, smoke: bool) -> Calls:
    """Return forward and backward passes through PyTorch's autograd."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import regard

    def call(length: int, causal: bool) -> Callable[[], object]:
        q, k, v = (torch.from_numpy(draw(1, HEADS, length, DIM)).requires_grad_() for _ in range(3))
        d_output = torch.from_numpy(draw(1, HEADS, length, DIM))

        def run() -> object:
            if ours:
                output = regard.attention(q, k, v, causal=causal)
            else:
                output = scaled_dot_product_attention(q, k, v, is_causal=causal)
            return torch.autograd.grad(output, (q, k, v), d_output)

        return run

    lengths = (128,) if smoke else (128, 256, 512, 1024, 2048, 4096)
    return {f"{n:,} {kind}": call(n, kind == "causal") for n in lengths for kind in ("full", "causal")}


def gpt_step(ours: bool, smoke: bool) -> Calls:
    """Return a step of training of a GPT: forward pass, backward pass and AdamW."""
    import torch
    from torch.nn.functional import cross_entropy, scaled_dot_product_attention

    import regard

    layers, width, context, batch, heads, vocabulary = (1, 64, 32, 2, 2, 64) if smoke else (6, 384, 256, 8, 6, 256)
    torch.manual_seed(0)

    class Block(torch.nn.Module):  # type: ignore[misc]
        """Attention and a perceptron."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            """Return the next embeddings."""
            q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            if ours:
                mixed = regard.attention(q, k, v, causal=True)
            else:
                mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))

    embedding = torch.nn.Embedding(vocabulary, width)
    blocks, head = torch.nn.Sequential(*(Block() for _ in range(layers))), torch.nn.Linear(width, vocabulary)
    model = torch.nn.Sequential(embedding, blocks, torch.nn.LayerNorm(width), head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.from_numpy(RNG.integers(0, vocabulary, (batch, context + 1)))

    def step() -> None:
        loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return {f"{layers} layers, width {width}, context {context}, batch {batch}": step}


def of_transformers(ours: bool, smoke: bool) -> Calls:
    """Return a prompt and a generation of a model of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    width, layers, prompt, new = (64, 1, 16, 4) if smoke else (768, 4, 1024, 64)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256), intermediate_size=8 * width // 3, max_position_embeddings=4096,
        bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    if ours:
        import regard.torch

        regard.torch.register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="regard" if ours else "sdpa").eval()
    ids = torch.from_numpy(RNG.integers(2, 1000, (1, prompt)))
    start = ids[:, : prompt // 8]

    def prefill() -> object:
        with torch.inference_mode():
            return model(ids, use_cache=True).logits

    def generate() -> object:
        mask = torch.ones_like(start)
        return model.generate(start, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)

    return {f"a prompt of {prompt:,}": prefill, f"{new} new tokens": generate}


def of_jax(ours: bool, smoke: bool) -> Calls:
    """Return forward passes and gradients in compiled programs of JAX."""
    import jax

    import regard.jax

    def theirs(q: Any, k: Any, v: Any, causal: bool) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    def call(length: int, causal: bool, gradients: bool) -> Callable[[], object]:
        q, k, v = (jax.numpy.asarray(draw(*((1, HEADS, length) if ours else (1, length, HEADS)), DIM)) for _ in "qkv")
        function = regard.jax.attention if ours else theirs

        def attend(q: Any, k: Any, v: Any) -> Any:
            return function(q, k, v, causal=causal)

        compiled = jax.jit(attend)
        if gradients:
            compiled = jax.jit(jax.grad(lambda *x: (attend(*x) ** 2).sum(), (0, 1, 2)))
        return lambda: jax.block_until_ready(compiled(q, k, v))

    lengths = (64,) if smoke else (256, 1024, 2048)
    return {
        f"{n:,} {kind}, {what}": call(n, kind == "causal", what == "gradients")
        for what in ("forward", "gradients")
        for n in lengths
        for kind in ("full", "causal")
    }


def varlen(ours: bool, smoke: bool) -> Calls:
    """Return a batch of texts of different lengths: one after the other, or padded."""
    import torch

    import regard

    lengths = np.linspace(10, 40, 4, dtype=int) if smoke else np.linspace(100, 2000, 8, dtype=int)
    calls: Calls = {}
    for kind in ("full", "causal"):
        causal, name = kind == "causal", f"{len(lengths)} texts of {lengths[0]} to {lengths[-1]:,}, {kind}"
        if ours:
            ends = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
            q, k, v = (torch.from_numpy(draw(int(lengths.sum()), HEADS, DIM)) for _ in range(3))

            def packed(q: Any = q, k: Any = k, v: Any = v, ends: Any = ends, causal: bool = causal) -> object:
                return regard.attention_varlen(q, k, v, ends, ends, causal=causal)

            calls[name] = packed
        else:
            most = int(lengths.max())
            arrays = [torch.from_numpy(draw(len(lengths), HEADS, most, DIM)) for _ in range(3)]
            allowed = torch.from_numpy(np.arange(most) < lengths[:, None])[:, None, None]
            mask = allowed & torch.ones(most, most, dtype=torch.bool).tril() if causal else allowed

            def padded(arrays: Any = arrays, mask: Any = mask) -> object:
                return torch.nn.functional.scaled_dot_product_attention(*arrays, attn_mask=mask)

            calls[name] = padded
    return calls


def paged(ours: bool, smoke: bool) -> Calls:
    """Return one query for each of a batch of caches: of pages in any order, or contiguous."""
    import torch

    import regard

    lengths = np.linspace(10, 40, 4, dtype=int) if smoke else np.linspace(100, 2000, 8, dtype=int)
    groups = 4
    q = torch.from_numpy(draw(len(lengths), HEADS, DIM))
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32)
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))

    def call(page: int) -> Callable[[], object]:
        if not ours:
            k, v = (torch.from_numpy(draw(int(lengths.sum()), groups, DIM)) for _ in range(2))
            return lambda: regard.attention_varlen(q, k, v, starts, ends)
        counts = -(-lengths // page)
        k, v = (torch.from_numpy(draw(int(counts.sum()), page, groups, DIM)) for _ in range(2))
        order, table = RNG.permutation(int(counts.sum())), np.zeros((len(lengths), int(counts.max())), np.int32)
        for row, (count, end) in enumerate(zip(counts, np.cumsum(counts), strict=True)):
            table[row, :count] = order[end - count : end]
        blocks = torch.from_numpy(table)
        return lambda: regard.attention_varlen(q, k, v, starts, ends, block_table=blocks)

    return {f"{len(lengths)} caches, pages of {page}": call(page) for page in (16, 64, 256)}


# The name of each part, its calls, what it stands beside, and what the table is of.
PARTS: dict[str, tuple[Callable[[bool, bool], Calls], str, str]] = {
    "PyTorch's autograd": (
        through_autograd, "SDPA", f"`regard.attention`, forward and backward, {HEADS} heads, D = {DIM}, float32.",
    ),
    "A step of training": (gpt_step, "SDPA", "A GPT of plain PyTorch: forward, backward and AdamW."),
    "transformers": (
        of_transformers, "sdpa", 'A Llama of 4 layers, width 768, `attn_implementation="regard"`, random weights.',
    ),
    "JAX": (
        of_jax, "jax.nn.dot_product_attention", f"`regard.jax.attention`, {HEADS} heads, D = {DIM}, `jit`.",
    ),
    "Texts of different lengths": (varlen, "SDPA, padded", f"`regard.attention_varlen`, {HEADS} heads, D = {DIM}."),
    "A paged cache": (
        paged, "contiguous keys", f"One query a cache, with a `block_table` and without, {HEADS} heads on 4.",
    ),
}  # fmt: skip


def measure(part: str, rounds: int, smoke: bool) -> tuple[str, str]:
    """Return the table of a part, and its line in the summary."""
    make, peer, what = PARTS[part]
    calls = list(make(True, smoke))
    options = ["--part", part, *(["--smoke"] if smoke else [])]
    times = alternate_processes(
        __file__, ("regard", "peer"), calls, rounds=rounds, threads=THREADS, options=options
    )  # fmt: skip
    ratios = {call: faster(times["regard"][call], times["peer"][call]) for call in calls}
    rows = [[call, str(times["regard"][call]), str(times["peer"][call]), str(ratios[call])] for call in calls]
    table = markdown(["", "regard", peer, "times as fast"], rows)
    return (
        f"## {part}\n\n{what} {summary(list(ratios.values()))}\n\n{table}",
        f"{part}: {summary(list(ratios.values()))}",
    )


def summary(ratios: Sequence[Ratio]) -> str:
    if len(ratios) == 1:
        return f"**{ratios[0].median:.2f}** times as fast."
    mean = math.exp(sum(math.log(ratio.median) for ratio in ratios) / len(ratios))
    return f"Geometric mean **{mean:.2f}**, the least {min(ratio.median for ratio in ratios):.2f}."


def main() -> None:
    parser = argparse.ArgumentParser(description="regard inside other frameworks.")
    parser.add_argument("--smoke", action="store_true", help="one round of small shapes, nothing written")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=PARTS, help="only this")
    parser.add_argument("--work", choices=("regard", "peer"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        import torch

        torch.set_num_threads(THREADS)
        answer(PARTS[arguments.part][0](arguments.work == "regard", arguments.smoke), ROUND)
        return
    tables = []
    for part in [arguments.part] if arguments.part else PARTS:
        table, line = measure(part, 1 if arguments.smoke else arguments.rounds, arguments.smoke)
        tables.append(table)
        print(line, file=sys.stderr, flush=True)
    head = (
        f"# In other frameworks\n\n{machine()}; {THREADS} threads each. {versions('torch', 'transformers', 'jax')}.\n"
        f"{kernel_in_words()}. Medians of {arguments.rounds} rounds that alternate between processes, in brackets the\n"
        f"middle half of the rounds. Made by `nox -s bench` on {datetime.datetime.now(datetime.UTC).date()}.\n\n"
    )
    text = head + "\n\n".join(tables) + "\n"
    print(text)
    if not arguments.smoke and not arguments.part:
        write_results("frameworks.md", text)


if __name__ == "__main__":
    main()
