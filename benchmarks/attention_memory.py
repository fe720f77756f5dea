"""Memory of attention over a long text, forward and backward, above the inputs and the outputs.

One head of 65,536 tokens: its weights would be 17 GB. A process of its own makes the inputs, notes the largest memory
it has had so far (its resident set), computes, and notes it again; the difference, less what the outputs take, is what
attention needed. The bound is 200 MB, and the script fails above it.

    python benchmarks/attention_memory.py            65,536 tokens, and the table in benchmarks/results
    python benchmarks/attention_memory.py --smoke    8,192 tokens, nothing written
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from _measure import machine, versions, write_results

from regard import attention_vjp, explain_plan

DIM = 64
BOUND_MB = 200
CALLS = {"all tokens": {}, "causal": {"causal": True}, "causal, window of 4,096": {"causal": True, "window": (4096, 0)}}


def measure(tokens: int, call: str) -> dict[str, float]:
    """Compute in this process; return megabytes beside inputs and outputs, and seconds."""
    rng = np.random.default_rng(0)
    q, k, v, d_output = (rng.standard_normal((tokens, DIM), dtype=np.float32) for _ in range(4))
    before = _peak_mb()
    start = time.perf_counter()
    output, pullback = attention_vjp(q, k, v, implementation="blockwise", **CALLS[call])  # type: ignore[arg-type]
    forward = time.perf_counter() - start
    gradients = pullback(d_output)
    both = time.perf_counter() - start
    outputs = (output.nbytes + sum(g.nbytes for g in gradients[:3])) / 1e6
    return {"megabytes": _peak_mb() - before - outputs, "forward": forward, "both": both}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--call", choices=CALLS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tokens = 8_192 if arguments.smoke else 65_536
    if arguments.call:
        print(json.dumps(measure(tokens, arguments.call)))
        return
    rows = []
    for call in CALLS:
        smoke = ["--smoke"] if arguments.smoke else []
        child = [sys.executable, __file__, "--call", call, *smoke]
        found = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
        q = np.broadcast_to(np.float32(0), (tokens, DIM))
        plan = explain_plan(q, q, q, implementation="blockwise", **CALLS[call])  # type: ignore[arg-type]
        read = plan.blocks["full"] + plan.blocks["partial"]
        rows.append(
            f"| {call} | {read:,} of {sum(plan.blocks.values()):,} | {found['megabytes']:.0f} MB "
            f"| {found['forward']:.0f} s | {found['both']:.0f} s |"
        )
        if found["megabytes"] > BOUND_MB:
            sys.exit(f"{call}: {found['megabytes']:.0f} MB, more than {BOUND_MB}")
    table = "\n".join(
        [
            f"# Attention over {tokens:,} tokens: memory",
            "",
            f'One head, D = {DIM}, float32, `implementation="blockwise"`: peak resident memory above the inputs and',
            f"the outputs. The bound is {BOUND_MB} MB; n² weights would be {4 * tokens**2 / 1e9:.1f} GB.",
            f"{machine()}; {versions('numpy')}.",
            "Made by `nox -s bench`.",
            "",
            "| | blocks read | memory | forward | forward and backward |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )
    print(table)
    if not arguments.smoke:
        write_results("attention_memory.md", table)


if __name__ == "__main__":
    main()
