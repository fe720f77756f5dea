"""Every family against numbers of transformers that are kept here, so that no transformers is needed."""

import contextlib
import dataclasses
import functools
import json
import operator
import shutil
from pathlib import Path

import numpy as np
import pytest

import golden
import regard
from regard import RegardError
from regard.functional import native
from regard.models import FAMILIES, families
from regard.models.decoder import Decoder
from regard.nn import QuantizedWeight, fast_paths
from regard.nn.fast_paths import Packed
from regard.nn.layer import Layer


@pytest.mark.parametrize("case", golden.KEPT)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_the_numbers_of_transformers(case, dtype, tolerance):
    # What greedy decoding appends in float64: test_decoder.py, by `generate`.
    golden.check(golden.FOLDER / case, dtype=dtype, tolerance=tolerance, greedy=dtype is np.float32)


@pytest.mark.parametrize("case", golden.one_of_each(golden.cases(Decoder)))
def test_the_table_of_embeddings_of_a_decoder_stays_in_half_precision(case):
    table = regard.load(golden.FOLDER / case).token_embedding.weight
    assert isinstance(table, QuantizedWeight)
    assert table.nbytes == 2 * table.size


def whole_numbers(fields, path=()):
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from whole_numbers(value, (*path, name))
        elif type(value) is int:
            yield (*path, name)


@pytest.mark.parametrize("size", [2**63, 2**31 - 1])
@pytest.mark.parametrize("case", {case.split("/")[0]: case for case in golden.KEPT}.values())
def test_a_size_that_no_tensor_has_is_a_sentence(tmp_path, case, size):
    """Or none, where the number is not one of the sizes."""
    shutil.copytree(golden.FOLDER / case, tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    known = config.read_text(encoding="utf-8")
    for *path, name in whole_numbers(json.loads(known)):
        fields = json.loads(known)
        functools.reduce(operator.getitem, path, fields)[name] = size
        config.write_text(json.dumps(fields), encoding="utf-8")
        with contextlib.suppress(RegardError):
            regard.load(tmp_path / "model")


def test_every_family_is_kept_and_stands_on_the_page_on_models():
    assert {case.split("/")[0] for case in golden.KEPT} == set(FAMILIES)
    page = (Path(__file__).parents[2] / "docs/models.md").read_text("utf-8")
    assert [family for family in FAMILIES if page.count(f"`{family}`") < 2] == []  # what it reads, how exact it is


@pytest.mark.skipif(native.kernel() is None, reason="there is no kernel to pack for")
@pytest.mark.parametrize("case", golden.one_of_each(golden.KEPT))
def test_what_is_loaded_is_packed_but_for_experts(monkeypatch, case):
    waiting, from_maps = [], Packed.from_maps

    def load(model):
        fast_paths.pack(model)
        experts = {id(each) for name, each in _layers(model) if ".experts." in name}
        monkeypatch.setattr(Packed, "from_maps", lambda maps: waiting.append(id(maps[0]) in experts) or from_maps(maps))

    monkeypatch.setattr(families, "pack", load)
    golden.check(golden.FOLDER / case, dtype=np.float32, tolerance=1e-5, greedy=False)
    assert all(waiting)


def _layers(value, name=""):
    if isinstance(value, Layer):
        yield name, value
        for field in dataclasses.fields(value):
            yield from _layers(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, tuple):
        for each in value:
            yield from _layers(each, f"{name}.each")
