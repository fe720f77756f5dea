"""Shared by the benchmarks: alternating measurements, ratios with their spread, a description of the machine."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROUND = 0.05  # seconds that one contestant takes at a time
REST = 0.03  # seconds between two, in which the threads of the one stop spinning
BLAS_REST = 0.2  # the same where one is NumPy's BLAS, whose threads spin for a tenth
RESULTS = Path(__file__).parent / "results"
if _machine := os.environ.get("REGARD_BENCH_MACHINE"):  # a folder for it, beside the pages of another
    RESULTS /= re.sub(r"[^\w-]", "-", _machine)


class Times(NamedTuple):
    """Seconds of a call, one number for each round."""

    rounds: list[float]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{1e3 * self.median:,.3f} ms"


class Ratio(NamedTuple):
    """How many times as fast one is as another: round by round, because the speed of a machine drifts slowly."""

    rounds: list[float]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        low, high = quartiles(self.rounds)
        return f"{self.median:.2f} ({low:.2f} to {high:.2f})"


def alternate(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Return the seconds of a call of each, measured in turn.

    A turn begins with a rest, and, where calls are short, with one call that is discarded: the caches and the other
    cores then hold this contestant's data and threads.
    """
    calls = {}
    for name, call in contestants.items():
        call()
        start = time.perf_counter()
        call()
        calls[name] = max(1, min(1000, round(ROUND / max(1e-7, time.perf_counter() - start))))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            time.sleep(REST)
            if calls[name] > 1:
                call()
            start = time.perf_counter()
            for _ in range(calls[name]):
                call()
            times[name].append((time.perf_counter() - start) / calls[name])
    return {name: Times(rounds) for name, rounds in times.items()}


def answer(calls: Mapping[str, Callable[[], object]], seconds: float, *, warm_up: bool = True) -> None:
    """Run the process of one contestant: read names of calls, write the seconds that each takes.

    Parameters
    ----------
    calls
        What is measured, by name.
    seconds : float
        How long a call is repeated; at least one call.
    warm_up : bool
        Whether calls that are not measured come before; a long call needs none.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print to stderr
    for call in calls.values() if warm_up else ():
        call(), call()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        call, times = calls[line.strip()], list[float]()
        if warm_up:
            call()  # not measured: fills the caches
        until = time.perf_counter() + seconds
        while not times or time.perf_counter() < until:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(statistics.median(times), file=answers, flush=True)


def alternate_processes(
    script: str,
    contestants: Iterable[str],
    calls: Sequence[str],
    *,
    rounds: int,
    threads: int,
    rest: float = REST,
    options: Sequence[str] = (),
) -> dict[str, dict[str, Times]]:
    """Return the seconds of each call of each contestant, measured in turn, each contestant in a process of its own.

    A turn begins with a rest, as those of `alternate` do.

    ``script --work NAME``, with the options, must be the process of a contestant, which runs `answer`.
    """
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    workers: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in contestants:  # one after the other: threads that wait for each other are slow on busy cores
            command = [sys.executable, script, "--work", name, *options]
            pipe, environment = subprocess.PIPE, os.environ | limits
            workers[name] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
            answers = workers[name].stdout
            if not answers or answers.readline().strip() != "ready":
                sys.exit(f"{name} does not run here")
        pipes = {name: (worker.stdin, worker.stdout) for name, worker in workers.items()}
        times = {name: {call: Times([]) for call in calls} for name in workers}
        for _ in range(rounds):
            for call in calls:
                for name, (questions, answers) in pipes.items():
                    time.sleep(rest)
                    print(call, file=questions, flush=True)
                    times[name][call].rounds.append(float(answers.readline() if answers else "nan"))
        return times
    finally:
        for worker in workers.values():
            worker.terminate()


def kernel_in_words() -> str:
    """Return what the compiled kernel runs on, as a sentence without its full stop."""
    from regard.functional import native

    kernel = native.kernel()
    return f"The kernel runs on {kernel.instruction_set()}" if kernel else "There is no kernel"


def multiply_add_peak(threads: int) -> float:
    """Return the most multiply-adds a second that all threads do together in registers."""
    from regard import set_num_threads
    from regard.functional import native

    set_num_threads(threads)
    kernel = native.kernel()
    return max(kernel.fma_peak() for _ in range(9)) if kernel else float("inf")


def least_seconds(call: Callable[[], object], seconds: float = 0.5) -> float:
    """Return the seconds of the quickest of many calls."""
    found, until = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found


class Rates(NamedTuple):
    """The most that all threads do together of each part of a model alone."""

    products: float  # multiply-adds a second with packed weights that stay in the cores' own caches
    exponentials: float  # a second, in these caches
    activations: float  # SwiGLU a second, in these caches

    @classmethod
    def measure(cls, threads: int) -> Rates:
        """Measure them with the kernel."""
        from regard import set_num_threads
        from regard.functional import native
        from regard.functional.native import ops

        set_num_threads(threads)
        kernel, x, weight = native.kernel(), np.ones((2048, 384), np.float32), np.ones((384, 384), np.float32)
        packed, out, some, one = ops.pack([weight]), np.empty_like(x), x[:512], np.ones((512, 1), np.float32)
        if kernel is None or packed is None:
            return cls(*[math.inf] * 3)
        return cls(
            x.size * len(weight) / least_seconds(lambda: kernel.linear(out, x, packed, None)),
            some.size / least_seconds(lambda: kernel.scaled_softmax(out[:512], some, one, one)),
            some.size / least_seconds(lambda: kernel.swiglu(out[:512], some, some, None, None)),
        )


def faster(ours: Times, theirs: Times) -> Ratio:
    """Return how many times as fast `ours` is."""
    return Ratio([b / a for a, b in zip(ours.rounds, theirs.rounds, strict=True)])


def quartiles(numbers: list[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile."""
    if len(numbers) < 2:
        return numbers[0], numbers[0]
    low, _, high = statistics.quantiles(numbers, n=4)
    return low, high


def interval(samples: np.ndarray) -> str:
    """Return a mean and its 95% interval by the bootstrap."""
    draws = np.random.default_rng(0).integers(0, len(samples), (2000, len(samples)))
    low, high = np.quantile(samples[draws].mean(1), [0.025, 0.975])
    return f"{samples.mean():.3f} ({low:.3f} to {high:.3f})"


def machine() -> str:
    """Return a description of the machine: processor, cores, system."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        fields = dict(re.findall(r"^(.+?)\s*: (.*)$", info.read_text(encoding="utf-8"), re.MULTILINE))
        processor = fields.get("model name", processor)
        numbers = {"cpu family": "family", "model": "model"}  # several models share a name
        processor += "".join(f", {word} {fields[key]}" for key, word in numbers.items() if key in fields)
    return f"{processor}, {len(os.sched_getaffinity(0))} cores, {platform.system()}, Python {platform.python_version()}"


def write_results(page: str, text: str) -> None:
    """Write a page, which names its machine, into the folder of results."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / page).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def priority() -> str:
    """Return in words the priority of this process, if it is that of real time: ", with real-time priority"."""
    real_time = {getattr(os, name, None) for name in ("SCHED_RR", "SCHED_FIFO")}
    is_real_time = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in real_time
    return ", each process with real-time priority" if is_real_time else ""


def versions(*packages: str) -> str:
    """Return names and versions of packages; one that is missing as such."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} is missing")
    return ", ".join(found)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table, the first column to the left and the others to the right."""
    line = "|".join(["---", *["---:"] * (len(header) - 1)])
    return "\n".join([f"| {' | '.join(header)} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in rows)])
