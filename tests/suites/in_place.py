"""A plugin of pytest: regard in the place of a peer's attention while each test of a suite runs, and what came of it.

It knows nothing of the project's own tests, which it never meets.
"""

import contextlib
import functools
import json
from collections import Counter
from pathlib import Path

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("in place of a peer")
    group.addoption("--peer", choices=sorted(PEERS), default="none", help="whose attention regard replaces")
    group.addoption("--known", type=json.loads, default={}, help="parts of names of tests that fail, with reasons")
    group.addoption("--outcome", type=Path, help="the file to which the counts are written, as JSON")


def pytest_configure(config):
    if config.getoption("outcome"):
        config.pluginmanager.register(InPlace(config))


class InPlace:
    """Puts regard in place for each test, expects the known failures, and counts."""

    def __init__(self, config):
        self._in_place = PEERS[config.getoption("peer")]
        self._known = config.getoption("known")
        self._file = config.getoption("outcome")
        self._calls = 0  # of regard's attention that returned
        self._found = Counter()  # name of an outcome -> tests
        self._failed, self._matched = [], set()

    def pytest_collection_modifyitems(self, items):
        for item in items:
            for part, reason in self._known.items():
                if part in item.nodeid:
                    self._matched.add(part)
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        before = self._calls
        try:
            with self._in_place(self._counted):
                return (yield)
        finally:
            self._found["computed"] += self._calls > before

    def _counted(self, function):
        @functools.wraps(function)
        def counted(*arguments, **options):
            try:
                output = function(*arguments, **options)
            except Exception:  # which a suite may expect, and a peer hide: it computes itself then
                self._found["refused"] += 1
                raise
            self._calls += 1
            return output

        return counted

    def pytest_runtest_logreport(self, report):
        if isinstance(report, pytest.SubtestReport) and not report.failed:
            return  # the test that it is a part of has a report too
        if hasattr(report, "wasxfail") and report.skipped:
            self._found["known"] += 1
        elif report.failed:
            self._found["failed"] += 1
            self._failed.append(report.nodeid)
        elif report.skipped:
            self._found["not_applicable"] += 1
        elif report.when == "call":
            self._found["passed"] += 1

    def pytest_collectreport(self, report):
        if report.failed:
            self._found["failed"] += 1
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self):
        unmatched = sorted(self._known.keys() - self._matched)
        outcome = {"counts": dict(self._found), "failed": self._failed, "unmatched": unmatched}
        self._file.write_text(json.dumps(outcome), encoding="utf-8")


@contextlib.contextmanager
def replaced(owner, name, function):
    """Put a function under the name of another one in a block of code."""
    own = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, own)


@contextlib.contextmanager
def in_place_of_pytorch(counted):
    """Let PyTorch's `scaled_dot_product_attention` be regard's."""
    from regard.torch import sdpa, use_regard

    with replaced(sdpa, "attention", counted(sdpa.attention)), use_regard():
        yield


@contextlib.contextmanager
def in_place_of_jax(counted):
    """Let `jax.nn.dot_product_attention` be regard's."""
    import jax

    with replaced(jax.nn, "dot_product_attention", counted(dot_product_attention)):
        yield


def dot_product_attention(
    query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
    key_value_seq_lengths=None, local_window_size=None, implementation=None,
):  # fmt: skip
    """Return what `jax.nn.dot_product_attention` returns, with heads behind positions: ``B T N H``."""
    import jax.numpy as jnp

    import regard.jax

    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    positions = {"causal": is_causal, "window": window, "query_offset": 0} if is_causal or window is not None else {}
    query, key, value = (jnp.swapaxes(jnp.asarray(x), -3, -2) for x in (query, key, value))
    output = regard.jax.attention(
        query, key, value, bias=bias, mask=mask, scale=scale, key_lengths=key_value_seq_lengths, **positions
    )  # fmt: skip
    if query_seq_lengths is not None:
        written = jnp.arange(output.shape[-2]) < jnp.asarray(query_seq_lengths)[:, None]
        output = jnp.where(written[:, None, :, None], output, 0)
    return jnp.swapaxes(output, -3, -2)


@contextlib.contextmanager
def in_place_of_transformers(counted):
    """Let the attention of transformers that is called ``"sdpa"``, its default, be regard's."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from regard.torch import transformers as interface

    functions = counted(interface.attention_forward), interface.make_mask
    before = []
    for table, function in zip((ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS), functions, strict=True):
        before.append((table, table["sdpa"]))
        table["sdpa"] = function
    try:
        yield
    finally:
        for table, own in before:
            table["sdpa"] = own


@contextlib.contextmanager
def in_place_of_none(counted):
    """Leave the peer as it is: the suite calls regard itself."""
    import regard

    with (
        replaced(regard, "attention", counted(regard.attention)),
        replaced(regard, "attention_varlen", counted(regard.attention_varlen)),
    ):
        yield


PEERS = {
    "jax": in_place_of_jax,
    "none": in_place_of_none,
    "torch": in_place_of_pytorch,
    "transformers": in_place_of_transformers,
}
