"""Threads: their number, concurrent Python threads, fork, and Ctrl-C."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

import mixed_calls
from regard import RegardError, attention, num_threads, set_num_threads

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.fixture
def qkv(rng):
    return [rng.standard_normal((4, 700, 32)).astype(np.float32) for _ in range(3)]


def in_a_process(code, **variables):
    """Run code in a new process after START; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code)],
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | variables,
        capture_output=True,
        text=True,
        timeout=300,  # far more than any passing test takes
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


START = """
import os, signal, sys, threading, time
import numpy as np
import regard
from regard.functional import native

rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((4, 700, 32)).astype(np.float32) for _ in range(3))

def attend():
    return regard.attention(q, k, v, causal=True, implementation="native")

# Of the kernel's forward pass, once it is watched: whether it is computing, and its latest output, NaN before.
computing, output, begun = False, None, threading.Semaphore(0)

def watch():
    kernel = native.kernel()
    forward = kernel.forward
    def watched(call, out, *rest):
        global computing, output
        before, computing, output = computing, True, out
        out.fill(np.nan)
        begun.release()
        try:
            return forward(call, out, *rest)
        finally:
            computing = before
    kernel.forward = watched

def of_others():
    "Return the processor time of all threads but this one."
    return time.process_time() - time.thread_time()

def while_computing(act):
    "Let another thread `act` when the kernel has computed for a while."
    def wait():
        while True:
            begun.acquire()
            start = of_others()
            while computing:
                if of_others() - start > 0.02:
                    return act()
                os.sched_yield()
    threading.Thread(target=wait, daemon=True).start()
"""


def test_the_number_is_what_was_set(qkv):
    for count in (3, 1, 2, np.int64(5)):
        set_num_threads(count)
        assert num_threads() == count


def test_the_number_is_capped(qkv):
    set_num_threads(10**9)
    assert num_threads() == 1024


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", None, True, np.ones(2)], ids=str)
def test_an_invalid_number_of_threads_is_an_error_of_one_line(wrong):
    before = num_threads()
    with pytest.raises(RegardError, match="the number of threads") as caught:
        set_num_threads(wrong)
    assert "\n" not in str(caught.value)
    assert num_threads() == before


@pytest.mark.parametrize(("said", "count"), [("3", 3), ("1", 1), (" 2 ", 2), ("4,2", 4), ("99999", 1024)])
def test_omp_num_threads_sets_the_default(said, count):
    assert in_a_process("print(regard.num_threads())", OMP_NUM_THREADS=said) == f"{count}\n"


@pytest.mark.parametrize("said", ["", " "])
def test_the_default_is_the_number_of_processors(said):
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert in_a_process("print(regard.num_threads())", OMP_NUM_THREADS=said) == f"{processors}\n"


@pytest.mark.parametrize("said", ["0", "-2", "many", "0,4"])
def test_an_invalid_omp_num_threads_is_an_error_of_one_line(said):
    code = """
        try: attend()
        except regard.RegardError as error: print(error)
    """
    out = in_a_process(code, OMP_NUM_THREADS=said)
    assert out == f"OMP_NUM_THREADS is {said!r}; it must begin with a number of at least 1\n"


def test_concurrent_python_threads_get_correct_results(qkv):
    set_num_threads(3)
    calls = [[x[:, : 700 - 37 * i] for x in qkv] for i in range(6)]
    expected = [attention(*call, implementation="native").tobytes() for call in calls]
    right = []

    def ask(i):
        right.extend(attention(*calls[i], implementation="native").tobytes() == expected[i] for _ in range(15))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 90


def test_mixed_calls_of_many_threads_are_those_of_one():
    assert mixed_calls.run(30) == 30 * mixed_calls.THREADS
    mixed_calls.free_threaded()


def test_the_gil_is_released():
    """A thread that waits for the GIL gets it when the kernel releases it, and at no other time."""
    code = """
        sys.setswitchinterval(1000)
        watch()
        seen = []
        def look():
            while not any(seen):
                begun.acquire()
                seen.append(computing)
        threading.Thread(target=look, daemon=True).start()
        x = np.ones((4000, 64), np.float32)
        for _ in range(100):
            regard.attention(x, x, x, implementation="native")
            if any(seen): break
        print(any(seen))
    """
    assert in_a_process(code) == "True\n"


def test_no_more_threads_are_created_than_requested():
    code = """
        regard.set_num_threads(3)
        before = len(os.listdir("/proc/self/task"))
        workers = [threading.Thread(target=lambda: [attend() for _ in range(10)]) for _ in range(8)]
        [w.start() for w in workers]; [w.join() for w in workers]
        regard.set_num_threads(2); attend()
        while len(os.listdir("/proc/self/task")) - before > 2:  # an ended thread is listed for a moment
            os.sched_yield()
        print(len(os.listdir("/proc/self/task")) - before)
    """
    if not Path("/proc/self/task").is_dir():
        pytest.skip("this system does not list its threads")
    assert in_a_process(code) == "2\n"


def test_idle_threads_sleep():
    """Soon after a call all processors are free for a BLAS or another process."""
    code = """
        regard.set_num_threads(4)
        attend()
        start = of_others()
        def state(thread):
            with open(f"/proc/self/task/{thread}/stat") as file: return file.read().rpartition(")")[2].split()[0]
        while any(state(thread) == "R" for thread in os.listdir("/proc/self/task") if int(thread) != os.getpid()):
            os.sched_yield()
        print(of_others() - start)
    """
    if not Path("/proc/self/task").is_dir():
        pytest.skip("this system does not list its threads")
    assert float(in_a_process(code)) < 0.05


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads run where the system likes")
def test_workers_avoid_the_processor_of_the_caller():
    code = """
        def others(): return set(map(int, os.listdir("/proc/self/task"))) - before
        def allowed_to(threads): return [os.sched_getaffinity(thread) for thread in sorted(threads)]
        regard.set_num_threads(3)
        allowed, before = os.sched_getaffinity(0), set(map(int, os.listdir("/proc/self/task")))
        attend()
        for here in sorted(allowed)[:4] * 2:
            were = allowed_to(others())
            os.sched_setaffinity(0, {here})  # the caller has no other: affinities stay as they are
            attend()
            print(allowed_to(others()) == were)
            os.sched_setaffinity(0, allowed)
            attend()
            found = allowed_to(others())
            print(len(found) == 2 and all(len(allowed - its) == (len(allowed) > 1) for its in found))
        if len(allowed) > 2:
            os.sched_setaffinity(0, sorted(allowed)[:2])  # workers follow the caller's affinity
            attend()
            print(all(len(its) == 1 for its in allowed_to(others())))
    """
    assert set(in_a_process(code).split()) == {"True"}


@needs_fork
@pytest.mark.parametrize("before", ["", "attend()", "regard.set_num_threads(2); attend()"])
def test_a_forked_child_has_its_own_threads(before):
    code = f"""
        import warnings; warnings.simplefilter("ignore")  # fork with threads is intended here
        regard.set_num_threads(3)
        {before}
        pid = os.fork()
        if pid == 0:
            found = [attend().tobytes() for _ in range(5)]
            regard.set_num_threads(1)
            ok = set(found) == {{attend().tobytes()}}
            threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 2
            os._exit(0 if ok and threads > 1 else 1)
        _, status = os.waitpid(pid, 0)
        attend()
        print(os.waitstatus_to_exitcode(status))
    """
    assert in_a_process(code) == "0\n"


@needs_fork
def test_a_child_forked_while_another_thread_computes():
    code = """
        import warnings; warnings.simplefilter("ignore")
        regard.set_num_threads(3)
        expected = attend().tobytes()
        going = True
        def work():
            while going: attend()
        worker = threading.Thread(target=work); worker.start()
        codes = []
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if attend().tobytes() == expected else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        going = False; worker.join()
        print(set(codes))
    """
    assert in_a_process(code) == "{0}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(8, 30_000, 64), (256, 4, 60_000, 64)], ids=["many queries", "few queries"])
def test_ctrl_c_interrupts_a_long_call_and_the_next_works(shape, threads):
    code = f"""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits SIG_IGN
        regard.set_num_threads({threads})
        expected = attend().tobytes()
        *lead, n, d = {shape}
        lead, queries = (lead, n) if len(lead) == 1 else (lead[:1], lead[1])
        qs = np.ones((*lead, queries, d), np.float32)
        ks = np.broadcast_to(np.ones((n, d), np.float32), (*lead, n, d))
        watch()
        while_computing(lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            while True: regard.attention(qs, ks, ks, implementation="native")
        except KeyboardInterrupt:
            left = np.isnan(output).mean()
        assert attend().tobytes() == expected
        print(left)
    """
    assert float(in_a_process(code)) > 0.5  # of the output is still NaN; all of it takes seconds


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_a_signal_handler_runs_and_the_call_continues():
    code = """
        called = []
        signal.signal(signal.SIGUSR1, lambda *_: called.append(computing))
        watch()
        x = np.ones((12_000, 64), np.float32)
        while not any(called):  # a signal may come just after the call
            while_computing(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            assert (regard.attention(x, x, x, implementation="native") == 1).all()
    """
    assert in_a_process(code) == ""


def test_threadpoolctl_sees_and_limits_it():
    code = """
        import threadpoolctl
        regard.set_num_threads(3)
        def ours(): return [x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "regard"]
        print(ours())
        with threadpoolctl.threadpool_limits(1):
            print(ours(), regard.num_threads())
        with threadpoolctl.threadpool_limits(2, user_api="regard"):
            print(regard.num_threads())
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            print(regard.num_threads())
        print(regard.num_threads())
    """
    assert in_a_process(code) == "[3]\n[1] 1\n2\n3\n3\n"


def test_threadpoolctl_is_not_imported():
    code = """
        attend()
        print("threadpoolctl" in sys.modules)
    """
    assert in_a_process(code) == "False\n"
    assert threadpoolctl.__version__


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_signal_handler_may_call_the_kernel_during_a_call(threads):
    """The nested call has its own scratch memory; the outer call continues."""
    code = """
        inner = np.zeros((16, 4096), np.float32)
        outer = np.ones((1, 2400, 256), np.float32)
        called = []
        def call(*_):
            called.append(computing)
            assert not regard.attention(inner, inner, inner, implementation="native").any()
        signal.signal(signal.SIGUSR1, call)
        watch()
        while not any(called):
            while_computing(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            assert abs(regard.attention(outer, outer, outer, implementation="native") - 1).max() < 1e-5
    """
    assert in_a_process(code, OMP_NUM_THREADS=threads) == ""
