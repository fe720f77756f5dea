"""Faults of a real cluster of processes: the same files in the end, and nothing computed twice that was written."""

import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

import cloudpickle
import pandas
import psutil
import pytest
from corpora import Watcher, parts, sentences
from distributed import Client, Security

import dask
from regard import RegardError
from regard.dask import run as runs
from regard.dask.cluster import ThisProcess, start_workers, use_scheduler
from regard.dask.jobs import EmbedJob
from regard.dask.model_spec import describe_model
from regard.dask.source import open_corpus
from sweeps import sweep_after

pytestmark = [pytest.mark.minilm, pytest.mark.filterwarnings("ignore")]

TOKENS = 1500  # of a partition


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Return a function that runs the job into a folder, the files of an undisturbed run, and the corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    file = folder / "corpus.parquet"
    texts = sentences(1200)
    texts[7], texts[900] = None, ""
    pandas.DataFrame({"text": texts}).to_parquet(file, row_group_size=200)
    spec, corpus = describe_model("minilm"), open_corpus(str(file))

    def run(out, workers, **options):
        return runs.run(EmbedJob(**options), spec, corpus, str(out), workers, partition_tokens=TOKENS)

    run(folder / "whole", ThisProcess())
    return run, parts(folder / "whole"), file


def starting_processes(least=0):
    """Return the processes of workers that this one has started, also those that are no workers yet."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("spawn_main" in word for word in process.cmdline()) and process.memory_info().rss > least:
                found.append(process)
    return found


def worker_processes():
    """Return those that have imported what a worker needs."""
    return starting_processes(5e7)


def killed_after_partitions(case, tmp_path, kills, seed):
    """Kill a worker when some partitions more are written, as many as are drawn: runs go on."""
    run, whole, _ = case
    draw, end, killed = random.Random(seed), threading.Event(), []

    def written():
        return sum(1 for _ in tmp_path.glob("out*/part-*"))

    def kill():
        wanted = draw.randint(1, 4)
        while len(killed) < kills and not end.is_set():
            if written() >= wanted and (found := worker_processes()):
                process, wanted = draw.choice(found), written() + draw.randint(1, 4)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
            else:
                time.sleep(0.001)

    with start_workers(2) as workers:
        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        total = 0
        while total == 0 or len(killed) < kills:  # the corpus again, until all have been killed
            out = tmp_path / f"out{total}"
            out.mkdir()
            with Watcher(out):
                run(out, workers)
            assert parts(out) == whole
            assert not list(out.glob(".*"))
            total += 1
        end.set()
        thread.join()
    assert len(killed) == kills


@pytest.mark.parametrize("kills", sweep_after(1, [2, 4, 20]))
def test_a_worker_killed_some_times(case, tmp_path, kills):
    killed_after_partitions(case, tmp_path, kills, kills)


def test_a_worker_that_does_not_start_again_is_replaced(case, tmp_path, monkeypatch):
    """Dask gives one up that is not back in time, as on a busy machine; here its process is stopped while it starts."""
    run, whole, _ = case
    monkeypatch.setattr("regard.dask.cluster._LOST_AFTER", 1.0)
    with start_workers(1) as workers:
        (first,) = workers.client.run(os.getpid).values()
        os.kill(first, signal.SIGKILL)
        while not (again := [process for process in starting_processes() if process.pid != first]):
            time.sleep(0.01)
        again[0].suspend()
        run(tmp_path / "out", workers)
        again[0].kill()
    assert parts(tmp_path / "out") == whole


def test_results_that_are_lost_with_their_workers_are_computed_again():
    with start_workers(2) as workers:
        results = workers.map("square", lambda x: x * x, range(6))
        found = [next(results)]
        futures = workers.client.futures.values()
        while not all(future.status == "finished" for future in futures):
            time.sleep(0.01)
        for process in worker_processes():
            process.kill()
        for _ in range(6000):  # lost may have been computed again before this looks
            if any(future.status == "lost" for future in futures):
                break
            time.sleep(0.01)
        found += results
    assert sorted(found) == [(x, x * x) for x in range(6)]


@pytest.mark.parametrize("count", sweep_after(1, [3, 1, 2, 4]))
def test_any_number_of_workers_writes_the_same_files(case, tmp_path, count):
    run, whole, _ = case
    with start_workers(count) as workers:
        assert workers.count == count
        run(tmp_path / "out", workers)
    assert parts(tmp_path / "out") == whole


@pytest.mark.sweep  # it computes for a minute
def test_a_partition_that_takes_too_much_memory(tmp_path):
    """It is named with the limit; the others are written; with a smaller batch the same folder is completed."""
    file, spec = tmp_path / "corpus.parquet", describe_model("minilm")
    texts = ["the " * 600] * 110 + ["The cat sat on the mat and the dog ran."] * 2300
    pandas.DataFrame({"text": texts}).to_parquet(file)
    corpus = open_corpus(str(file))

    def run(out, workers, batch_size):
        job = EmbedJob(truncate=True, batch_size=batch_size)
        return runs.run(job, spec, corpus, str(tmp_path / out), workers, partition_tokens=57_000)

    run("whole", ThisProcess(), 8)
    fewer = dask.config.set({"distributed.scheduler.allowed-failures": 1})  # each takes the start of a process
    with fewer, start_workers(1, "600MB") as workers, pytest.raises(RegardError) as caught:
        run("out", workers, 400)
    message = str(caught.value)
    assert "ended every worker that computed it, 0.6 GB each: give workers more memory" in message
    assert f"are in {tmp_path / 'out'}: the same command continues" in message
    (tmp_path / "out").mkdir(exist_ok=True)
    with Watcher(tmp_path / "out"), start_workers(1, "600MB") as workers:
        run("out", workers, 4)
    assert parts(tmp_path / "out") == parts(tmp_path / "whole")


def free_port():
    """Return a port that is free, and is not given to others while no scheduler has it: below those of connections."""
    for port in random.Random().sample(range(10_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextlib.contextmanager
def scheduler(port):
    """Run a scheduler and a worker in processes of their own, which are there however long they take to start."""
    address = f"tcp://127.0.0.1:{port}"
    commands = (
        ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"],
        ["worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
    )
    started = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], stderr=subprocess.DEVNULL) for command in commands
    ]
    try:
        with Client(address, timeout=600) as client:
            client.wait_for_workers(1)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_scheduler_stopped_and_started(case, tmp_path):
    run, whole, _ = case
    port, out, stack = free_port(), tmp_path / "out", contextlib.ExitStack()
    out.mkdir()
    with stack:
        first = stack.enter_context(scheduler(port))

        def restart():
            for process in first:
                process.kill()
                process.wait()
            stack.enter_context(scheduler(port))

        with use_scheduler(f"tcp://127.0.0.1:{port}", wait=600) as workers, Watcher(out, 2, restart) as watcher:
            run(out, workers)
        assert watcher._action is None
    assert parts(out) == whole


@pytest.mark.parametrize("killed", [slice(None), slice(1, None)], ids=["scheduler", "workers"])
def test_a_scheduler_or_workers_that_do_not_come_back_are_one_sentence(case, tmp_path, killed):
    run, whole, _ = case
    port, out = free_port(), tmp_path / "out"
    out.mkdir()

    def stop():
        workers._wait = 5  # from now on: before, a slow answer is one
        for process in processes[killed]:
            process.kill()

    with (
        scheduler(port) as processes,
        use_scheduler(f"tcp://127.0.0.1:{port}", wait=600) as workers,
        Watcher(out, 2, stop),
        pytest.raises(RegardError, match=r"no worker of Dask answers within 5 s.*the same command continues"),
    ):
        run(out, workers)
    run(out, ThisProcess())
    assert parts(out) == whole


def test_ctrl_c_and_the_same_command_again(case, tmp_path):
    *_, file = case
    out = tmp_path / "out"
    out.mkdir()
    plain = [sys.executable, "-m", "regard", "embed", str(file), "--partition-tokens", "100", "--out"]  # in many
    subprocess.run([*plain, str(tmp_path / "whole")], stderr=subprocess.DEVNULL, check=True)
    whole, command = parts(tmp_path / "whole"), [*plain, str(out), "--workers", "2"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it in the background
    )
    with Watcher(out, 2, lambda: os.killpg(process.pid, signal.SIGINT)) as watcher:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 130, errors
        assert 2 <= len(watcher.seen) < len(whole)
        assert "Traceback" not in errors, errors
        assert f"of {len(whole)} partitions are in {out}: the same command continues" in errors
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert "of them there before" in done.stderr
    assert parts(out) == whole


def fill_disk(files):
    """Make the disk of this process full after some files; None makes it empty."""
    import errno
    import os

    left = [files]

    def sync(descriptor):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        real(descriptor)

    real = getattr(os, "real_fsync", os.fsync)
    os.real_fsync, os.fsync = real, real if files is None else sync


def test_a_full_disk(case, tmp_path):
    run, whole, _ = case
    out = tmp_path / "out"
    out.mkdir()
    with start_workers(2) as workers:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        workers.client.run(fill_disk, 2)
        with Watcher(out):
            with pytest.raises(RegardError, match=r"No space left on device; \d+ of \d+ partitions are in"):
                run(out, workers)
            assert 2 <= len(parts(out)) <= 4
            workers.client.run(fill_disk, None)
            run(out, workers)
    assert parts(out) == whole


def age():
    """Make the version of regard in this process another."""
    from regard import _version

    _version.__version__ = "0.0.1"


def test_other_versions_are_refused_by_name(tmp_path):
    with start_workers(1) as workers:
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        workers.client.run(age)
        with pytest.raises(
            RegardError, match=r"worker tls://\S+ has regard 0\.0\.1 \(here .*install the same versions"
        ):
            workers.reconnect()


def test_nobody_else_can_reach_the_workers():
    """They listen on this machine alone, and refuse whoever has not the certificate of the run."""
    with start_workers(2) as workers:
        address = workers.client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert workers.dashboard is None
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = [each for one in processes for each in one.net_connections("inet") if each.status == "LISTEN"]
        assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
        assert len(listening) >= 3
        host, port = address.removeprefix("tls://").split(":")
        with socket.create_connection((host, int(port))) as plain:
            plain.sendall(b"\0" * 64)
            with contextlib.suppress(ConnectionError):
                assert plain.recv(1) in (b"", b"\x15")  # the end, or an alert of TLS
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        own = Security.temporary().get_connection_args("client")["ssl_context"]  # of another run
        for stranger in (context, own):
            with pytest.raises((ssl.SSLError, ConnectionError)), socket.create_connection((host, int(port))) as raw:
                stranger.wrap_socket(raw).recv(1)
        for each in listening:  # the pages of Dask, which say addresses and keys of tasks
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{each.laddr.port}/json/identity.json", timeout=60),
            ):
                raise AssertionError("a page of Dask is there")
