"""Every argument of attention together, on every path, against the textbook formula with n² arrays in float64."""

import inspect

import numpy as np
import pytest

from attention_cases import PATHS, close, cut_into_blocks, random_case, reference
from regard import Trace, attention, attention_partial, attention_weights
from regard.functional import Options
from sweeps import sweep_after

SEEDS = sweep_after(4, range(0, 2000, 50))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Cut the small cases into many blocks: 3 queries by 2 keys."""
    cut_into_blocks(monkeypatch, 3, 2)


@pytest.mark.parametrize("implementation", PATHS)
@pytest.mark.parametrize("first", SEEDS)
def test_context_is_that_of_the_formula(first, implementation):
    for seed in range(first, first + 50):
        case = random_case(seed)
        context, _, _ = reference(case)
        ours = attention(case.q, case.k, case.v, **case.options, implementation=implementation)
        assert ours.shape == context.shape
        close(ours, context)


@pytest.mark.parametrize("first", SEEDS)
def test_weights_and_log_sum_exp_are_those_of_the_formula(first):
    for seed in range(first, first + 50):
        case = random_case(seed)
        context, weights, lse = reference(case)
        close(attention_weights(case.q, case.k, **case.options), weights)
        cols = [0, -1]
        part = attention_weights(case.q, case.k, **case.options, rows=slice(0, 3), cols=cols)
        close(part, weights[..., :3, cols])
        partial = attention_partial(case.q, case.k, case.v, **case.options)
        close(partial.lse, lse)
        close(partial.output, context)


@pytest.mark.parametrize("first", SEEDS)
def test_stages_are_the_steps_of_the_direct_path(first):
    for seed in range(first, first + 10):
        case = random_case(seed)
        trace = Trace()
        attention(case.q, case.k, case.v, **case.options, trace=trace, implementation="reference")
        step = "scores"
        for stage in ("scores", "capped", "biased", "weights"):
            step = stage if stage in trace else step
            before = trace[step]
            whole = attention_weights(case.q, case.k, **case.options, stage=stage, implementation="reference")
            np.testing.assert_array_equal(np.broadcast_to(whole, before.shape), before)
            for path in PATHS:
                options = {**case.options, "stage": stage, "implementation": path}
                tile = attention_weights(case.q, case.k, **options, rows=[-1], cols=slice(1, 3))
                close(tile, np.broadcast_to(whole, before.shape)[..., -1:, 1:3])
                close(np.broadcast_to(attention_weights(case.q, case.k, **options), before.shape), before)


def test_the_signature_of_attention_lists_the_options():
    keywords = [name for name, p in inspect.signature(attention).parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert keywords == [*Options.__annotations__, "trace"]
