"""Calls of the kernel from several Python threads at once: what each returns is, bit for bit, what one thread returns.

    python tests/mixed_calls.py --calls 5000

On a free-threaded Python the threads run at the same time; that importing regard turned its lock on is an error.
"""

import argparse
import sys
import threading
from collections.abc import Callable

import numpy as np

import regard
from regard import functional as F

THREADS = 8

Call = Callable[[], list[np.ndarray]]


def calls() -> dict[str, Call]:
    """Return calls of each part of the kernel, with arrays that the threads share."""
    rng = np.random.default_rng(7)
    q, k, v = rng.standard_normal((3, 4, 300, 32)).astype(np.float32)
    x, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 64), (64, 96)))
    bias = F.ALiBi(np.float32([0.5, 0.25, 0.125, 0.0625]))

    def gradients() -> list[np.ndarray]:
        output, vjp = F.attention_vjp(q, k, v, causal=True, implementation="native")
        found = vjp(output)
        return [found.q, found.k, found.v]

    return {
        "attention": lambda: [regard.attention(q, k, v, bias=bias, causal=True, implementation="native")],
        "one query": lambda: [regard.attention(q[:, -1:], k, v, implementation="native")],
        "gradients": gradients,
        "map": lambda: [regard.AttentionMap(q, k, causal=True)[:, 100:140]],
        "float64": lambda: [
            regard.attention(*(a[:, :60].astype(np.float64) for a in (q, k, v)), implementation="native")
        ],
        "activation": lambda: [F.gelu(x), F.layer_norm(x)],
        "product": lambda: [F.linear(x, weights)],
    }


def run(number_of_calls: int) -> int:
    """Call so many times from each of `THREADS` threads; return how many calls that were. An error if one differs."""
    each = calls()
    expected = {name: call() for name, call in each.items()}
    counts, errors = [0] * THREADS, []
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        start.wait()
        while not errors and counts[number] < number_of_calls:
            name = str(rng.choice(list(each)))
            try:
                for found, wanted in zip(each[name](), expected[name], strict=True):
                    np.testing.assert_array_equal(found, wanted, err_msg=name)
            except BaseException as error:
                errors.append(error)
                raise
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts)


def free_threaded() -> bool:
    """Tell whether Python runs threads at the same time; an error if it could and does not."""
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    if "free-threading" in sys.version and enabled:
        raise AssertionError("a module turned the lock of the interpreter on")
    return not enabled


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000, help="of each thread")
    count = run(parser.parse_args().calls)
    print(f"{THREADS} threads, {count} calls equal to those of one; free-threaded: {free_threaded()}")
