"""The kernel is present, unless REGARD_PURE=1 marks a run of the package built without a compiler."""

import os
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

from regard import RegardError, attention, explain_plan, num_threads
from regard.cli import main
from regard.functional import native

PURE = os.environ.get("REGARD_PURE") == "1"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
ONES = np.ones((3, 2))


def test_the_kernel_is_present_or_absent():
    assert (native.kernel() is None) is PURE, native.unavailable_reason()
    assert (native.unavailable_reason() is None) is not PURE


def test_info_says_what_computes_attention(capsys):
    main(["info", "--color", "never"])
    said = " ".join(capsys.readouterr().out.split())  # long lines are broken
    if PURE:
        assert f"attention NumPy: {native.unavailable_reason()}" in said
    else:
        assert f"attention compiled: {native.kernel().instruction_set()}, {num_threads()} thread" in said


@pytest.mark.skipif(not PURE, reason="the kernel is there")
def test_without_it_native_raises_with_the_reason_and_auto_computes():
    with pytest.raises(RegardError, match="built without a C\\+\\+ compiler"):
        attention(ONES, ONES, ONES, implementation="native")
    assert explain_plan(ONES, ONES, ONES).implementation == "reference"
    np.testing.assert_array_equal(attention(ONES, ONES, ONES), ONES)
    assert num_threads() == 1


@pytest.mark.skipif(PURE, reason="there is no kernel")
@pytest.mark.skipif(FREE_THREADED, reason="NumPy loads in no subinterpreter of a free-threaded Python")
def test_a_subinterpreter_computes_without_the_kernel():
    """The kernel refuses in one sentence and NumPy computes. (NumPy itself loads in one interpreter of a process.)"""
    inner = (
        "import warnings; warnings.simplefilter('ignore')  # NumPy's own, about subinterpreters\n"
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import numpy as np, regard\n"
        "x = np.ones((3, 2))\n"
        "assert (regard.attention(x, x, x) == x).all()\n"
        "try: regard.attention(x, x, x, implementation='native')\n"
        "except regard.RegardError as error: print(error, flush=True)\n"
    )
    code = (
        "try: import _interpreters as interpreters  # Python 3.13\n"
        "except ImportError: import _xxsubinterpreters as interpreters\n"
        "try: shares_the_gil = interpreters.create('legacy')\n"
        "except TypeError: shares_the_gil = interpreters.create(isolated=False)\n"
        f"interpreters.run_string(shares_the_gil, {inner!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (refused,) = done.stdout.splitlines()
    assert "cannot compute this call: the compiled kernel of regard runs in the main interpreter" in refused


@pytest.mark.skipif(PURE, reason="there is no kernel")
def test_a_daemon_thread_in_calls_while_the_process_exits_says_nothing():
    code = (
        "import ctypes, sys, threading, ml_dtypes, numpy\n"
        "libc = ctypes.CDLL(None)\n"
        # glibc: after what the kernel registered, exit calls sleep(1), whose argument is the exit status.
        "if hasattr(libc, 'on_exit'): libc.on_exit(libc.sleep, None)\n"
        "import regard\n"
        "def work(x, started):\n"
        "    while True: started.set(); regard.attention(x, x, x)\n"
        "for dtype in (numpy.float32, ml_dtypes.bfloat16, numpy.float32, ml_dtypes.bfloat16):\n"
        "    x, started = numpy.ones((8, 512, 64), dtype), threading.Event()\n"
        "    threading.Thread(target=work, args=(x, started), daemon=True).start()\n"
        "    started.wait()\n"
        "regard.attention(x, x, x)\n"
        "sys.exit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_kernel_that_does_not_load_is_a_reason_too(tmp_path):
    code = (
        "import sys; sys.modules['regard.functional.native._kernel'] = None\n"
        "import numpy as np, regard\n"
        "x = np.ones((3, 2))\n"
        "assert regard.num_threads() == 1\n"
        "assert (regard.attention(x, x, x) == x).all()\n"
        "regard.set_num_threads(2)\n"
        "try: regard.attention(x, x, x, implementation='native')\n"
        "except regard.RegardError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot compute this call: this installation of regard was built without a C++ compiler" in done.stdout
