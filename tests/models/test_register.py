"""Families that are defined outside regard."""

import ast
import typing
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import golden
import regard
from regard import RegardError
from regard.models import FAMILIES, Bert, BertConfig, families, register
from regard.models.hub.registry import KNOWN


def test_the_types_of_named_models_are_what_load_returns(minilm, our_smollm2):
    """tests/typing/check_load.py has what a type checker makes of them."""
    declared = {
        name: given["return"]
        for given in (function.__annotations__ for function in typing.get_overloads(families.load))
        if given["name_or_path"].startswith("Literal")
        for name in ast.literal_eval(given["name_or_path"].removeprefix("Literal").replace("]", ",]"))
    }
    assert declared.keys() == KNOWN.keys()
    for model in (minilm, our_smollm2):
        assert declared[model.name] == type(model).__name__


class ReversedBert(Bert):
    """A BERT whose config.json calls it by another name, and whose output is reversed."""

    def forward(self, ids, *, mask=None, trace=regard.trace.NULL_RECORDER):
        return super().forward(ids, mask=mask, trace=trace)[:, ::-1]


class ReversedConfig(BertConfig):
    @classmethod
    def read(cls, reader):
        reader.put("model_type", "bert")
        return super().read(reader)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(ReversedBert, "config_type", ReversedConfig)
    register("reversed-bert", ReversedBert)
    yield
    families._FAMILIES.pop("reversed-bert", None)


def test_a_registered_family_runs_its_checkpoints(write_bert, registered):
    folder = write_bert({"model_type": "reversed-bert"})
    plain = regard.load(write_bert(folder="plain"))("the cat").hidden
    model = regard.load(folder)
    assert type(model) is ReversedBert
    np.testing.assert_array_equal(model("the cat").hidden, plain[:, ::-1])


@pytest.mark.parametrize("case", ["llama/plain", "bert/gelu", "gpt2/plain", "t5/relu", "vit/plain", "gemma2/plain"])
def test_a_subclass_that_changes_nothing_runs_a_type_of_its_own(changed, case):
    """Of any family: the check of its model type is that of the family from which it derives."""
    base = type(regard.load(golden.FOLDER / case))
    own = type("Own", (base,), {})
    copied = changed(case, {"model_type": "own-type"})
    with pytest.raises(RegardError, match="of type 'own-type'; regard can run"):
        regard.load(copied)
    register("own-type", own)
    try:
        assert type(regard.load(copied)) is own
    finally:
        del families._FAMILIES["own-type"]
    assert type(regard.load(golden.FOLDER / case)) is base


NO_TYPE = r"model_type is that of config\.json, such as 'my-type', got"
NO_FAMILY = r"a family must be a subclass of regard\.models\.TextModel or ImageModel, got"
REFUSED = [
    *((model_type, ReversedBert, NO_TYPE) for model_type in (3, None, "", ["a"], b"own")),
    *(
        (model_type, Bert, f"model type '{model_type}' is already registered")
        for model_type in ("bert", "reversed-bert")
    ),
    ("bert", ReversedBert, "model type 'bert' is already registered"),
    *(("new", family, NO_FAMILY) for family in (None, "bert.Bert", object, BertConfig)),
    *(
        ("new", family, f"{family.__name__} has no load, which builds a model")
        for family in (regard.models.TextModel, regard.models.LanguageModel, regard.models.ImageModel)
    ),
]


@pytest.mark.parametrize(("model_type", "family", "message"), REFUSED)
def test_what_cannot_be_registered(registered, model_type, family, message):
    with pytest.raises(RegardError, match=message):
        register(model_type, family)
    assert "new" not in FAMILIES


def test_a_class_that_is_defined_once_more_takes_its_place(registered):
    again = type("ReversedBert", (Bert,), {"__module__": __name__})
    register("reversed-bert", again)
    assert FAMILIES["reversed-bert"] is again


@pytest.fixture
def installed(monkeypatch):
    """Return a function that makes packages seem installed which name a family for a model type."""

    def install(**families_of_types):
        found = [
            EntryPoint(name.replace("_", "-"), value, "regard.models") for name, value in families_of_types.items()
        ]
        monkeypatch.setattr(families, "entry_points", lambda *, group: [e for e in found if e.group == group])

    monkeypatch.setattr(ReversedBert, "config_type", ReversedConfig)
    yield install
    families._FAMILIES.pop("reversed-bert", None)


def test_a_package_brings_its_family(write_bert, installed):
    installed(reversed_bert=f"{__name__}:ReversedBert")
    assert "reversed-bert" not in FAMILIES
    folder = write_bert({"model_type": "reversed-bert"})
    assert type(regard.load(folder)) is type(regard.load(folder)) is ReversedBert


def test_a_package_does_not_replace_a_family(write_bert, installed):
    installed(bert=f"{__name__}:ReversedBert")
    assert type(regard.load(write_bert())) is Bert


def test_an_unknown_type_lists_those_that_are_registered_and_those_of_packages(write_bert, registered, installed):
    installed(packed_bert="nowhere:Family")
    with pytest.raises(RegardError, match=r"of type 'other'; regard can run: .*, packed-bert, .*, reversed-bert, "):
        regard.load(write_bert({"model_type": "other"}))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nowhere:Family", "a package names nowhere:Family as the family of model type 'reversed-bert', which cannot"),
        (f"{__name__}:Missing", "which cannot be imported: .*Missing"),
        (f"{__name__}:ReversedConfig", "a family must be a subclass"),
    ],
)
def test_a_package_whose_family_cannot_be_loaded(write_bert, installed, value, problem):
    installed(reversed_bert=value)
    with pytest.raises(RegardError, match=problem):
        regard.load(write_bert({"model_type": "reversed-bert"}))
