"""What many tests share: a seeded generator, the real models, which cases of the sweep run, and progress."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import regard
import tiny_bert
from fake_traces import SENTENCE, encoding_of, trace_of
from progress import Progress
from regard import Trace
from regard.functional import native
from sweeps import is_drawn, mark_pairwise

# None of them measures time. The guard's draws other examples for each commit, the night's draws many.
settings.register_profile(
    "quick", max_examples=30, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("guard", settings.get_profile("quick"), derandomize=False, print_blob=True)
settings.register_profile("night", settings.get_profile("guard"), max_examples=200)
settings.load_profile("quick")


def pytest_addoption(parser):
    group = parser.getgroup("sweep", "cases of long products, marked `sweep`")
    group.addoption("--sweep", type=float, default=0.0, metavar="SHARE", help="how many of them run, 0 to 1")
    group.addoption("--seed", type=int, default=0, help="which of them, and of the examples of properties")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.getoption("sweep") and config.getoption("hypothesis_profile") is None:
        config.option.hypothesis_profile = "guard"
    if config.getoption("sweep") and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = config.getoption("seed")


def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Progress(session.config))


def pytest_report_header(config):
    return f"sweep: {config.getoption('sweep'):.0%}, --seed={config.getoption('seed')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark_pairwise(items)
    share, seed = config.getoption("sweep"), config.getoption("seed")
    left_out = {item for item in items if item.get_closest_marker("sweep") and not is_drawn(item.nodeid, share, seed)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection(session):
    gc.disable()


def pytest_collection_finish(session):
    """Leave what was collected out of garbage collections: they would pass over it thousands of times."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk():
    """No power fails here: only in child processes is what was written on the disk before it gets its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which too fails for a descriptor that is not open
        yield


@pytest.fixture(scope="session")
def induction():
    """Return the model of the package: a decoder of two layers that continues what repeats."""
    return regard.load("induction")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170612)


@pytest.fixture
def as_it_was():
    """Restore the instruction set of the kernel, its instructions of bfloat16 and its number of threads."""
    kernel = native.kernel()
    before = native.num_threads(), kernel and kernel.instruction_set()
    yield
    native.set_num_threads(before[0])
    if kernel is not None:
        kernel.use_instruction_set(before[1])
        kernel.use_tiles("auto")


@pytest.fixture
def threads(as_it_was):
    """Return a function that sets the number of threads."""
    return native.set_num_threads


@pytest.fixture
def same_bits(threads):
    """Return a function that asserts that a call returns the same bits on any number of threads, and returns them."""

    def check(call, counts=(1, 2, 3)):
        found = []
        for count in counts:
            threads(count)
            result = call()
            found.append([np.asarray(x) for x in (result if isinstance(result, list | tuple) else [result])])
        for other in found[1:]:
            assert [x.tobytes() for x in other] == [x.tobytes() for x in found[0]]
        return found[0]

    return check


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """Return the folder with the pretrained files, from wherever this machine has them; an error if nowhere."""
    from regard.models.hub import resolve

    return Path(resolve.find("minilm", download=False))


@pytest.fixture(scope="session")
def minilm():
    import regard

    return regard.load("minilm", download=False)


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """Return the pretrained file, from wherever this machine has it; an error if nowhere."""
    from regard.models.hub import resolve

    return Path(resolve.find("smollm2", download=False))


@pytest.fixture(scope="session")
def our_smollm2():
    import regard

    return regard.load("smollm2", download=False)


@pytest.fixture
def write_bert(tmp_path):
    """Return a function that writes a tiny BERT with changes to its configuration and tensors."""

    def write(config=None, tensors=None, drop=(), folder="tiny"):
        return tiny_bert.write(tmp_path / folder, config, tensors, drop)

    return write


@pytest.fixture
def trace(rng: np.random.Generator) -> Trace:
    return trace_of(rng, encoding_of(SENTENCE))


@pytest.fixture
def text_trace(rng: np.random.Generator) -> Callable[..., Trace]:
    """Return a function that makes a trace of these words."""
    return lambda words, **sizes: trace_of(rng, encoding_of([[word] for word in words]), **sizes)


@pytest.fixture
def blocks_run(monkeypatch):
    """Return a function that returns a list, to which each run of a block of a model adds its layer and batch size."""

    def watch(model):
        kind, ran = type(model.blocks[0]), []
        run = kind.__call__

        def noted(self, x, *arguments, **options):
            ran.append((model.blocks.index(self), len(x)))
            return run(self, x, *arguments, **options)

        monkeypatch.setattr(kind, "__call__", noted)
        return ran

    return watch
