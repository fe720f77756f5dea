"""The scheduler of Dask that computes here and now."""

import pytest


@pytest.fixture
def synchronous():
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        yield
