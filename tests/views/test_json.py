"""Views as JSON."""

import dataclasses
import json

import numpy as np

import regard
from regard.models.toy import toy
from regard.views.head_steps import head_steps
from regard.views.json import head_to_json


def test_what_is_not_finite_is_none():
    trace = regard.Trace()
    toy("a b", seed=0)("a b", trace=trace)
    steps = head_steps(trace)
    values = np.full_like(steps.v, -np.inf)
    shown = head_to_json(dataclasses.replace(steps, v=values, context=values * np.nan), [1])
    (row,) = shown["rows"]
    assert row["keys"][0]["v"] == row["context"] == [None] * values.shape[1]
    assert row["keys"][0]["weight"] == float(steps.weights[1, 0])
    json.dumps(shown, allow_nan=False)
