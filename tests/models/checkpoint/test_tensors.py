"""What the code that builds layers asks for: names, shapes and order, without numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

import golden
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.tensors import NewTensors, Place, TensorSpec, load_layers
from regard.models.gpt2 import GPT2
from regard.models.llama import Llama
from regard.nn import parameters


@pytest.mark.parametrize(("family", "case"), [(GPT2, "gpt2/plain"), (Llama, "llama/biased")])
def test_a_new_tensor_is_known_by_the_name_of_its_array_in_the_layers(family, case):
    """From which training knows the maps that end a sublayer; GPT-2 takes its queries, keys and values apart."""
    config = family.config_type.read(ConfigReader.open(golden.FOLDER / case / "config.json"))
    shapes = {}

    def make(spec, name):
        shapes[name] = spec.array_shape
        return np.zeros(spec.shape)

    tensors = NewTensors(make)
    checkpoint = SimpleNamespace(path="new", tensors=lambda: tensors)
    layers = load_layers(checkpoint, lambda source: family.layers(source, config), num_layers=config.num_layers)
    shapes.pop("", None)
    arrays = {name: x.shape for name, x in parameters(layers).items()}
    assert {name: arrays.get(name) for name in shapes} == shapes
    taken_apart = {name for name in arrays if family is GPT2 and name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")}
    assert arrays.keys() - shapes.keys() == taken_apart


def test_places_are_parts_of_a_tensor_by_all_of_their_rows():
    """Two of thousands of rows that begin and end alike are two; NumPy would print them alike."""
    rows = np.arange(5000), np.delete(np.arange(5001), 9)[:5000].copy()
    rows[1][-3:] = rows[0][-3:]
    specs = [TensorSpec("x", (6000, 2), (5000, 2), rows=lambda at=at: at) for at in (*rows, rows[0])]
    specs += [TensorSpec("x", (6000, 2), (n, 2), rows=slice(n)) for n in (5000, 5999)]
    places = [Place("x", "x", spec, None, False) for spec in (*specs, TensorSpec("x", (6000, 2), (6000, 2)))]
    parts = [place.part for place in [*places, Place("x", "x", places[-1].spec, slice(5000), False)]]
    assert parts[0] == parts[2]
    assert len(set(parts)) == len(parts) - 1
    assert parts[-2] is None
