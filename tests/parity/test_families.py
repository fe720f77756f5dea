"""Every family against transformers, live: tiny random models with each option that the family reads."""

import dataclasses

import numpy as np
import pytest

import golden
import make_golden
from regard import RegardError, models
from regard.models.checkpoint.config import ConfigReader
from sweeps import sweep_except

WIDE = [(family, case, "float64") for family, kind in make_golden.CASES.items() for case in kind.cases]
NARROW = [(family, case, "float32") for family, case, _ in WIDE]
FIRST = [(family, next(iter(kind.cases)), "float32") for family, kind in make_golden.CASES.items()]
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}
SUMS_OVER_A_TEXT = 3e-5  # of Qwen3-Next in float32: on a long text transformers is 0.8e-5 from its float64, we 0.6e-5


@pytest.mark.parametrize("case", sweep_except(WIDE + FIRST, WIDE + NARROW), ids="-".join)
def test_the_numbers_of_transformers(transformers, tmp_path, case):
    family, case, dtype = case
    make_golden.write(family, case, tmp_path, dtype=dtype)
    tolerance = SUMS_OVER_A_TEXT if (family, dtype) == ("qwen3_next", "float32") else TOLERANCES[dtype]
    golden.check(tmp_path, dtype=np.dtype(dtype).type, tolerance=tolerance)


@pytest.mark.parametrize("family", make_golden.CASES)
def test_a_field_that_is_left_out_has_the_default_of_transformers(transformers, family):
    kind = make_golden.CASES[family]
    full = getattr(transformers, kind.config)(**kind.sizes | kind.nested).to_dict()
    full.pop("chunk_size_feed_forward")
    reads = getattr(models, models.FAMILIES[family].rpartition(".")[2] + "Config").read

    def read(fields):
        config = reads(ConfigReader(fields, "config.json"))
        rope = getattr(config, "rope", None)
        if rope is None or rope.scaling != {"rope_type": "default"}:
            return config
        return dataclasses.replace(config, rope=dataclasses.replace(rope, scaling=None))

    required = set()
    for name in full.keys() - kind.sizes.keys() - kind.nested.keys() - {"per_layer_config"}:  # made of other fields
        try:
            found = read({field: value for field, value in full.items() if field != name})
        except RegardError as error:
            required |= {name} if name in str(error) else {str(error)}
        else:
            assert found == read(full), name
    assert required <= {"model_type", "type_vocab_size", "num_key_value_heads", "num_hidden_layers"}
