"""What the tests of the views share: made-up traces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from made_up import SENTENCE, encoding_of, trace_of

from regard import Trace


@pytest.fixture
def trace(rng: np.random.Generator) -> Trace:
    return trace_of(rng, encoding_of(SENTENCE))


@pytest.fixture
def text_trace(rng: np.random.Generator) -> Callable[..., Trace]:
    """Return a function that makes a trace of these words."""
    return lambda words, **sizes: trace_of(rng, encoding_of([[word] for word in words]), **sizes)
