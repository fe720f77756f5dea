"""AttnLRP of every family: where relevance is kept, and where it is not."""

import heapq
import itertools

import numpy as np
import pytest

import golden
import golden_runs
from regard.functional.attnlrp import ATTNLRP
from regard.functional.variable import gradients
from regard.metrics import attribute
from regard.nn import parameters, with_parameters
from regard.trace.gradient_trace import GradientTrace
from sweeps import sweep_except

KEPT = [case for case in golden.KEPT if not case.startswith(golden.WITHOUT_MAPS)]
LOSING = ("_attention", "softmax_vjp", "top_k_softmax_vjp", "_elementwise")  # of the latter exp, a step of the sigmoid
LOSING_TO_A_CONSTANT = ("_add", "_divide")  # positions, types, the target of an encoder-decoder; a sigmoid


def runs(case):
    """Yield each model of a golden case, without biases, with its text, its run from the embeddings, and a number."""
    for model, arguments in golden_runs.calls(case, np.float64):
        biases = {name: np.zeros_like(x) for name, x in parameters(model).items() if name.endswith("bias")}
        model = with_parameters(model, biases)
        step = "encoder.token_embeddings" if len(arguments) > 1 else "token_embeddings"
        step = "embeddings" if isinstance(arguments[0], dict) else step
        trace = GradientTrace(step, rules=ATTNLRP)
        yield model, arguments[0], trace, number_of(model, model(*arguments, trace=trace)), step


def number_of(model, output):
    numbers = output.hidden[0, -1] if getattr(model, "head", None) is None else output.head(output.hidden[0, -1])
    return numbers[4] - numbers[3]


def losses(number):
    """Return of each step of a run how much of the relevance of the number it does not pass on.

    By the name of its pullback, and whether one input alone is a variable; and the share that values of attention get.
    """
    totals, found, of_values, order = {id(number): np.ones_like(number.value)}, {}, [], itertools.count()
    queue = [(-number.depth, next(order), number)]
    while queue:
        x = heapq.heappop(queue)[-1]
        d = totals[id(x)]
        if x.pullback is None:
            continue
        name, passed = x.pullback.__qualname__.split(".")[0], []
        for parent, part in zip(x.parents, x.pullback(d), strict=False):
            passed.append(0.0)
            if parent is None or part is None:
                continue
            passed[-1] = (part * parent.value).sum()
            if id(parent) not in totals:
                heapq.heappush(queue, (-parent.depth, next(order), parent))
            totals[id(parent)] = totals.get(id(parent), 0) + part
        if name == "_attention":
            of_values.append((passed[2], (d * x.value).sum()))
        if name != "GradientTrace":  # the embeddings, at which the run begins
            found.setdefault((name, sum(p is not None for p in x.parents)), []).append(
                (d * x.value).sum() - sum(passed)
            )
    return found, of_values


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(KEPT), KEPT))
def test_relevance_is_lost_to_softmax_and_constants_alone(case):
    """Without biases what the tokens get is the number less what these steps keep."""
    for _, _, trace, number, step in runs(case):
        value, (lost, of_values) = float(number.value), losses(number)
        losing = {*LOSING, *(["_product"] if case.startswith("gpt_oss") else [])}  # whose up projection is plus 1
        for (name, variables), parts in lost.items():
            if name not in losing and not (variables == 1 and name in LOSING_TO_A_CONSTANT):
                assert np.abs(parts).max() < 1e-12 * max(1, abs(value)), name
        assert of_values
        np.testing.assert_allclose(*np.transpose([(own, all_ / 2) for own, all_ in of_values]), rtol=1e-9, atol=1e-12)
        (slope,) = gradients(number, trace.leaves)
        assert np.isfinite(slope).all()
        kept = (slope * trace[step]).sum()
        assert kept == pytest.approx(value - sum(map(sum, lost.values())), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "case", [each for each in golden.one_of_each(KEPT) if not each.startswith(("clip_vision", "dinov2", "vit"))]
)
def test_every_model_of_texts_is_attributed(case):
    for model, texts, _, _, _ in runs(case):
        if not isinstance(texts, dict):
            found = attribute(model, texts[0], lambda output, m=model: number_of(m, output), method="attnlrp")
            assert np.isfinite(found.scores).all()
            assert found.scores.any()
