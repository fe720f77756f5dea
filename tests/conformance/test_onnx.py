"""All test cases of the ONNX operators that regard has, at the tolerances they come with."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from onnx_operators import (
    attention_operator,
    flex_attention_operator,
    linear_attention_operator,
    rotary_operator,
)

from attention_cases import PATHS, cut_into_blocks


def collected():
    """Return the cases of these operators by operator and name, without those that spell an operator out in others."""
    import onnx.backend.test.case.node as nodes

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operators that are not ours
        cases = nodes.collect_testcases(None)
    found = {"Attention": {}, "RotaryEmbedding": {}, "LinearAttention": {}, "FlexAttention": {}}
    for case in cases:
        operator = case.model.graph.node[0].op_type
        if operator in found and not case.name.endswith("_expanded"):
            found[operator][case.name.removeprefix("test_")] = case
    return found


CASES = collected()
OTHERS = {
    "RotaryEmbedding": rotary_operator,
    "LinearAttention": linear_attention_operator,
    "FlexAttention": flex_attention_operator,
}


def arrays_of(case):
    """Return inputs, expected outputs and attributes, each by name."""
    from onnx.helper import get_attribute_value

    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    # An input or output that is left out has an empty name and no array.
    named = [
        dict(zip([name for name in names if name], arrays, strict=True))
        for names, arrays in ((node.input, inputs), (node.output, outputs))
    ]
    return *named, {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def check(case, ours, expected):
    assert expected
    for name, theirs in expected.items():
        assert ours[name].dtype == theirs.dtype, name
        assert ours[name].shape == theirs.shape, name
        short = theirs.dtype == ml_dtypes.bfloat16
        one, other = (x.astype(np.float32) if short else x for x in (ours[name], theirs))
        rtol = max(case.rtol, 2.0**-6) if short else case.rtol
        np.testing.assert_allclose(one, other, rtol=rtol, atol=case.atol, err_msg=name)


def test_no_case_is_left_out():
    counts = {operator: len(cases) for operator, cases in CASES.items()}
    assert counts == {"Attention": 93, "RotaryEmbedding": 8, "LinearAttention": 14, "FlexAttention": 11}


def test_every_stage_of_the_scores_is_asked_for():
    asked = [arrays_of(case) for case in CASES["Attention"].values()]
    modes = [attributes.get("qk_matmul_output_mode", 0) for _, out, attributes in asked if "qk_matmul_output" in out]
    assert set(modes) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", CASES["Attention"])
@pytest.mark.parametrize("path", ["auto", *PATHS, "blockwise 3 2", "blockwise 1 1"])
def test_attention(name, path, monkeypatch):
    implementation, *blocks = path.split()
    if blocks:
        cut_into_blocks(monkeypatch, *map(int, blocks))
    case = CASES["Attention"][name]
    inputs, expected, attributes = arrays_of(case)
    check(case, attention_operator(inputs, attributes, implementation), expected)


@pytest.mark.parametrize(("operator", "name"), [(operator, name) for operator in OTHERS for name in CASES[operator]])
def test_other_operators(operator, name):
    case = CASES[operator][name]
    inputs, expected, attributes = arrays_of(case)
    check(case, OTHERS[operator](inputs, attributes), expected)
