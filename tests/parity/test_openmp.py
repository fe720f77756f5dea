"""The kernel on PyTorch's threads: none beside them, the same bits, and a fork, an interrupt and an exit as before."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has GNU OpenMP on Linux")]

START = """
import os, signal, sys, threading, warnings
import numpy as np, torch, regard
regard.set_num_threads(3), torch.set_num_threads(3)
q = torch.randn(2, 6, 300, 64, generator=torch.Generator().manual_seed(0))
def count():
    return len(os.listdir("/proc/self/task"))
"""


def run(code, status=0):
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout.split()


def test_no_threads_are_added_to_those_of_pytorch():
    before, after = run("x = torch.randn(2000, 2000); x @ x; print(count()); regard.attention(q, q, q); print(count())")
    assert before == after


def test_the_bits_are_those_of_the_pool():
    run(
        "own = regard.attention(*[q.numpy()] * 3, causal=True)\n"  # before the threads of PyTorch are asked for
        "leaf = q.clone().requires_grad_()\n"
        "found = regard.attention(leaf, leaf, leaf, causal=True)\n"
        "assert (found.detach().numpy() == own).all()\n"
        "found.square().sum().backward()\n"
        "_, pullback = regard.attention_vjp(*[q.numpy()] * 3, causal=True)\n"
        "own = sum(pullback(2 * own)[:3])\n"
        "np.testing.assert_allclose(leaf.grad.numpy(), own, rtol=0, atol=1e-5)\n"
    )


def test_a_child_of_a_fork_has_threads_of_its_own_and_several_threads_call_at_once():
    assert run(
        "expected = regard.attention(q, q, q)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(int(not (regard.attention(q, q, q).numpy() == expected.numpy()).all()))\n"
        "print(os.waitpid(child, 0)[1])\n"
        "def work():\n"
        "    for _ in range(20): assert (regard.attention(q, q, q) == expected).all()\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads], [t.join() for t in threads]\n"
    ) == ["0"]


def test_an_interrupt_ends_a_call():
    assert run(
        "long = torch.zeros(1, 4, 40_000, 64)\n"
        "def handler(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "regard.attention(q, q, q)\n"
        "try: signal.setitimer(signal.ITIMER_REAL, 0.2); regard.attention(long, long, long)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "print((regard.attention(q, q, q) == regard.attention(q, q, q)).all().item())\n"
    ) == ["interrupted", "True"]


def test_a_daemon_thread_in_a_call_at_exit_says_nothing():
    run(  # with arrays: PyTorch aborts where a tensor is freed in such a thread, in its own functions too
        "arrays = [q.numpy()] * 3\n"
        "regard.attention(q, q, q)\n"
        "assert regard.functional.native.kernel().use_openmp()\n"  # from here on
        "started = threading.Event()\n"
        "def work():\n"
        "    while True: started.set(); regard.attention(*arrays)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "started.wait()\n"
        "regard.attention(*arrays)\n"
        "sys.exit(3)\n",
        status=3,
    )
