"""A class: how long 30 pupils wait for an answer while all of them look and follow, and the memory of the server.

The server is `regard explore --share` with MiniLM, bound to two cores. Each pupil is a client with an address and
connections of its own, in processes apart from the server: it loads the page, asks what the teacher shows twice a
second, and about once a second opens another head, row or cell, with the queries that the page sends for it. Half of
them come late, so that pages are loaded in the lesson too. Clients have the addresses 127.0.1.2 and on, as Linux lets
them.

    python benchmarks/classroom.py                  5 minutes, and the table in benchmarks/results
    python benchmarks/classroom.py --seconds 60     another length, nothing written
    python benchmarks/classroom.py --smoke          3 pupils for 5 seconds, nothing written
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from _measure import machine, markdown, versions, write_results

TEXT = "The animal did not cross the street because it was too tired"
PUPILS, SECONDS, PROCESSES = 30, 300.0, 3
LAYERS, HEADS = 6, 12  # of MiniLM
FOLLOW_SECONDS = 0.5
MODES = ("raw", "raw", "raw", "norms", "rollout")


class Pupil:
    """One client, which measures how long it waits."""

    def __init__(self, number: int, port: int, code: str, end: float) -> None:
        self.draw = random.Random(number)
        self.source = f"127.0.{1 + number // 250}.{2 + number % 250}"
        self.port, self.code, self.end = port, code, end
        self.waits: list[tuple[str, float]] = []

    def ask(self, connection: http.client.HTTPConnection, kind: str, path: str, params: Any = None) -> Any:
        """Return an answer; the time until its last byte is kept as one of this kind."""
        started = time.perf_counter()
        if params is None:
            connection.request("GET", f"/{self.code}/{path}")
        else:
            connection.request("POST", f"/{self.code}/api/{path}", json.dumps(params))
        response = connection.getresponse()
        content = response.read()
        self.waits.append((kind, time.perf_counter() - started))
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {content[:200]!r}")
        return content

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection from the address of this pupil."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(self.source, 0))

    def follow(self) -> None:
        """Ask what the teacher shows, as long as the lesson lasts."""
        connection, known = self.connection(), 0
        while time.monotonic() < self.end:
            news = json.loads(self.ask(connection, "what the teacher shows", "follow", {"known": known}))
            known = news["version"] if news else known
            time.sleep(FOLLOW_SECONDS)

    def open_page(self, connection: http.client.HTTPConnection) -> int:
        """Load what a page loads; return the number of tokens."""
        for path in ("", "static/style.css", "static/app/main.js"):
            self.ask(connection, "the page", path)
        manifest = json.loads(self.ask(connection, "the page", "manifest", {}))
        for name in ("thumbnails", "heads"):
            self.ask(connection, "the page", name, {"run": 0})
        return len(manifest["runs"][0]["tokens"])

    def look(self, connection: http.client.HTTPConnection, tokens: int) -> None:
        """Open a head with a row, or a cell, as the page does."""
        draw = self.draw
        at = {"run": 0, "layer": draw.randrange(LAYERS), "head": draw.choice([*range(HEADS), "mean"])}
        at["mode"] = draw.choice(MODES)
        whole = {"row0": 0, "row1": tokens, "col0": 0, "col1": tokens, "bin_size": 1, "pool": "max"}
        what = draw.random()
        if what < 0.6:
            self.ask(connection, "a map", "tile", {**at, **whole})
            self.ask(connection, "a row", "row", {**at, "i": draw.randrange(tokens)})
        elif what < 0.95:
            self.ask(connection, "a cell", "cell", {**at, "i": draw.randrange(tokens), "j": draw.randrange(tokens)})
        else:
            self.ask(connection, "representations", "movement", {"runs": [0]})

    def run(self, start: float) -> None:
        """Come in, follow, and look by oneself."""
        time.sleep(max(0.0, start - time.monotonic()))
        threading.Thread(target=self.follow, daemon=True).start()
        connection = self.connection()
        tokens = self.open_page(connection)
        while time.monotonic() < self.end:
            self.look(connection, tokens)
            time.sleep(self.draw.uniform(0.5, 1.5))


def sit(numbers: list[int], port: int, code: str, start: float, seconds: float, results: Any) -> None:
    """Be some of the pupils; half of them come at once, the others within the first half of the time."""
    end = start + seconds
    pupils = [Pupil(number, port, code, end) for number in numbers]
    failed: list[str] = []

    def run(pupil: Pupil, number: int) -> None:
        late = 0.0 if number % 2 else random.Random(-number).uniform(0, seconds / 2)
        try:
            pupil.run(start + late)
        except Exception as error:  # any is reported, and counts as no answer
            failed.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=each) for each in zip(pupils, numbers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(([wait for pupil in pupils for wait in pupil.waits], failed))


def resident(pid: int) -> float:
    """Return the megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1e3


def serve(cores: int) -> tuple[subprocess.Popen[str], int, str, str]:
    """Start the server on some cores; return it with the port, the code and the address of the teacher's page."""
    argv = [sys.executable, "-m", "regard", "explore", TEXT, "--port", "0", "--no-browser"]
    server = subprocess.Popen([*argv, "--share", "--address", "127.0.0.1"], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(server.pid, sorted(os.sched_getaffinity(0))[:cores])
    told, line = "", "-"
    while line and "Ctrl-C" not in told:
        line = server.stdout.readline() if server.stdout else ""
        told += line
    port, code = re.findall(r"127\.0\.0\.1:(\d+)/\n\s+code (\w+)", told)[0]
    return server, int(port), code, re.findall(r"127\.0\.0\.1:\d+/[\w-]{32}/", told)[0]


def teach(address: str, end: float) -> None:
    """Show the class another head every three seconds."""
    host, _, path = address.partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    for number in range(10**6):
        if time.monotonic() >= end:
            return
        shown = {"address": f"v=head&l={number % LAYERS}&h={number % HEADS}"}
        connection.request("POST", f"/{path}api/publish", json.dumps(shown))
        connection.getresponse().read()
        time.sleep(3)


def measure(pupils: int, seconds: float) -> str:
    """Return the report of one lesson."""
    server, port, code, address = serve(cores=2)
    try:
        before = resident(server.pid)
        results: Any = multiprocessing.Queue()
        start = time.monotonic() + 2
        groups = [[n for n in range(pupils) if n % PROCESSES == each] for each in range(PROCESSES)]
        arguments = [(group, port, code, start, seconds, results) for group in groups if group]
        processes = [multiprocessing.Process(target=sit, args=each) for each in arguments]
        for process in processes:
            process.start()
        threading.Thread(target=teach, args=(address, start + seconds), daemon=True).start()
        memory = []
        while time.monotonic() < start + seconds:
            memory.append(resident(server.pid))
            time.sleep(1)
        found = [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)
    waits = [wait for group, _ in found for wait in group]
    failed = [error for _, errors in found for error in errors]
    kinds = sorted({kind for kind, _ in waits})
    rows = [row(kind, [wait for name, wait in waits if name == kind]) for kind in kinds]
    rows.append(row("all", [wait for _, wait in waits]))
    half = memory[len(memory) // 2]
    return "\n".join(
        [
            "# A class",
            "",
            f"{machine()}; {versions('numpy', 'starlette', 'uvicorn')}. The server is bound to two cores.",
            f"{pupils} pupils for {seconds:.0f} s: `regard explore --share` with MiniLM; until the last byte, in ms.",
            "",
            markdown(["", "answers", "median", "95 %", "99 %", "longest"], rows),
            "",
            f"The server had {before:,.0f} MB before the class, {half:,.0f} MB after half of the time and "
            f"{memory[-1]:,.0f} MB at the end, {max(memory):,.0f} MB at its largest. Clients that failed: "
            f"{'; '.join(failed) or 'none'}.",
        ]
    )


def row(name: str, waits: list[float]) -> list[str]:
    ordered = sorted(waits)
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95, 0.99, 1)]
    return [name, f"{len(ordered):,}", *(f"{1e3 * each:,.0f}" for each in at)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--seconds", type=float, help="another length; nothing is written")
    options = parser.parse_args()
    seconds = options.seconds or (5.0 if options.smoke else SECONDS)
    report = measure(3 if options.smoke else PUPILS, seconds)
    print(report)
    if not options.smoke and options.seconds is None:
        write_results("classroom.md", report)


if __name__ == "__main__":
    main()
