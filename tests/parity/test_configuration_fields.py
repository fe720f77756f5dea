"""Fields that transformers reads in code of all families, second names and defaults: the numbers of transformers."""

import json

import numpy as np
import pytest
import written_models
from written_models import numbers, written

import regard
from regard import RegardError
from regard.models.checkpoint.known_fields import ALIASES
from sweeps import sweep_except

ORIGINAL = "original_max_position_embeddings"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
ROTARY = [
    *("deepseek_v3", "gemma2", "gpt_neox", "gpt_oss", "llama", "mistral", "mixtral", "nomic_bert"),
    *("olmo2", "qwen2", "qwen3", "qwen3_moe", "smollm3"),
]


@pytest.fixture
def write(transformers, tmp_path):
    """Return a function that writes a random model of a type with an edited config.json and returns its folder."""

    def write(model_type, edit=dict):
        written(transformers, tmp_path, model_type, edit)
        return tmp_path

    return write


def compare(transformers, folder):
    """Hold regard's numbers against those of transformers, and return them."""
    expected = numbers(transformers, folder)
    written_models.compare(folder, expected)
    return expected


@pytest.mark.parametrize("scaling", [LLAMA3, YARN], ids=["llama3", "yarn"])
@pytest.mark.parametrize("model_type", sweep_except(["deepseek_v3", "gpt_neox", "gpt_oss", "llama"], ROTARY))
def test_the_original_length_beside_the_rotation(transformers, write, model_type, scaling):
    def edited(fields):
        share = {name: 1.0 for name in fields["rope_parameters"] if name == "partial_rotary_factor"}
        return fields | {"rope_parameters": {"rope_theta": 100.0, **scaling, **share}}

    unsaid = numbers(transformers, write(model_type, edited))
    found = compare(transformers, write(model_type, lambda fields: edited(fields) | {ORIGINAL: 9}))
    assert differ(found, unsaid)


def test_the_original_length_beside_the_rotation_takes_precedence(transformers, write):
    def edited(fields):
        return fields | {"rope_parameters": {"rope_theta": 1e4, **LLAMA3, ORIGINAL: 32}, ORIGINAL: 16}

    compare(transformers, write("llama", edited))


def test_gpt_oss_without_parameters_of_the_rotation(transformers, write):
    """An empty object is not a scaling; without the field it is that of the family."""
    plain = compare(transformers, write("gpt_oss", lambda fields: fields | {"rope_parameters": {}}))
    scaled = compare(transformers, write("gpt_oss", lambda fields: without(fields, "rope_parameters")))
    assert differ(plain, scaled)


@pytest.mark.parametrize("model_type", ["gemma3_text", "modernbert"])
def test_a_type_that_transformers_ignores_is_refused(transformers, write, model_type):
    """Its numbers are those without a scaling: what the file means is unclear."""

    def edited(fields):
        return without(fields, "rope_parameters") | {"rope_scaling": {"type": "linear", "factor": 8.0}}

    plain = compare(transformers, write(model_type, lambda fields: without(fields, "rope_parameters")))
    folder = write(model_type, edited)
    np.testing.assert_array_equal(numbers(transformers, folder), plain)
    with pytest.raises(RegardError, match="rope_scaling has type 'linear', which transformers ignores"):
        regard.load(folder)


def test_a_private_pattern_of_windows_changes_nothing(transformers, write):
    """Some versions store it next to `layer_types`; the field that counts is sliding_window_pattern."""

    def edited(pattern):
        return lambda fields: without(fields, "layer_types", "sliding_window_pattern") | pattern

    every_sixth = compare(transformers, write("gemma3_text", edited({"_sliding_window_pattern": 2})))
    every_second = compare(transformers, write("gemma3_text", edited({"sliding_window_pattern": 2})))
    assert differ(every_sixth, every_second)


@pytest.mark.parametrize("model_type", [name for name in ALIASES if name != "llama4"])  # whose text part has them
def test_second_names(transformers, write, model_type):
    """All fields at once that have one."""
    names = {name: alias for alias, name in ALIASES[model_type].items()}
    plain = compare(transformers, write(model_type))
    folder = write(model_type, lambda fields: {names.get(name, name): value for name, value in fields.items()})
    assert names.keys() & json.loads((folder / "config.json").read_text()).keys() == set()
    np.testing.assert_array_equal(compare(transformers, folder), plain)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3", "gemma2", "gpt_oss"])
def test_an_absent_length_is_the_default_of_the_class(transformers, write, model_type):
    """Which a scaling without an original length takes."""

    def edited(fields):
        scaling = {"rope_parameters": {"rope_theta": 1e4, **LLAMA3}}
        return without(fields | scaling, "max_position_embeddings")

    compare(transformers, write(model_type, edited))


@pytest.mark.parametrize("length", [2, 4096])
def test_the_context_length_of_the_first_gpt2_changes_nothing(transformers, write, length):
    """transformers takes `n_positions` alone."""
    plain = compare(transformers, write("gpt2"))
    np.testing.assert_array_equal(
        compare(transformers, write("gpt2", lambda fields: fields | {"n_ctx": length})), plain
    )


@pytest.mark.parametrize("config", [{}, {"eos_token_id": None}, {"eos_token_id": 5}, {"eos_token_id": [5, 6]}])
@pytest.mark.parametrize(
    "generation", [None, {}, {"eos_token_id": 7}, {"eos_token_id": None}, {"temperature": 0.5, "do_sample": True}]
)
def test_what_ends_a_text(transformers, write, config, generation):
    """A generation_config.json replaces what config.json says, also where it says nothing."""
    folder = write("llama", lambda fields: without(fields, "eos_token_id") | config)
    path = folder / "generation_config.json"
    path.unlink(missing_ok=True)
    if generation is not None:
        path.write_text(json.dumps(generation))
    ends = transformers.LlamaForCausalLM.from_pretrained(folder).generation_config.eos_token_id
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    assert list(regard.load(folder).end_ids) == ends


YARN_OF_LLAMA = {"type": "yarn", "factor": 4.0, ORIGINAL: 16}


@pytest.mark.parametrize(
    ("scaling", "more"),
    [
        (YARN_OF_LLAMA, {"finetuned": True}),
        ({"type": "linear", "factor": 2.0}, {ORIGINAL: 9}),
        ({"type": "linear", "factor": 2.0}, {"high_freq_factor": 9.0}),
        ({"type": "dynamic", "factor": 2.0}, {"beta_fast": 9.0}),
        ({"type": "default"}, {ORIGINAL: 9, "factor": 4.0}),
    ],
)
@pytest.mark.parametrize("model_type", sweep_except(["llama", "deepseek_v3"], ROTARY))
def test_keys_of_a_rotation_that_its_type_does_not_have(transformers, write, model_type, scaling, more):
    """Transformers warns of them and goes on; the model has the same numbers without them."""

    def edited(scaling):
        share = {"rotary_pct": 1.0} if model_type == "gpt_neox" else {}
        return lambda fields: without(fields, "rope_parameters") | {"rope_scaling": scaling, **share}

    plain = numbers(transformers, write(model_type, edited(scaling)))
    folder = write(model_type, edited(scaling | more))
    np.testing.assert_array_equal(compare(transformers, folder), plain)
    assert set(regard.load(folder).config.ignored) >= {f"rope_scaling.{key}" for key in more}


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])  # 1, 3 and 5 of 6 features
@pytest.mark.parametrize(
    "scaling",
    [{"type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}, LLAMA3 | {ORIGINAL: 16}, YARN_OF_LLAMA],
    ids=lambda scaling: scaling.get("type", "llama3"),
)
def test_a_scaled_rotation_of_an_odd_number_of_features(transformers, write, scaling, share):
    """The numbers of transformers, or an error of the scalings whose formulas have no such numbers."""
    folder = write(
        "gpt_neox", lambda fields: without(fields, "rope_parameters") | {"rope_scaling": scaling, "rotary_pct": share}
    )
    if scaling.get("type") in ("dynamic", "yarn"):
        with pytest.raises(RegardError, match=f"{scaling['type']} rope scaling of {int(6 * share)} features"):
            regard.load(folder)
    else:
        compare(transformers, folder)


def test_a_key_that_deepseek_reads_for_every_scaling_is_refused(transformers, write):
    def edited(more):
        scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, **more}
        return lambda fields: fields | {"rope_parameters": scaling}

    plain = numbers(transformers, write("deepseek_v3", edited({})))
    folder = write("deepseek_v3", edited({"mscale_all_dim": 1.0}))
    assert differ(numbers(transformers, folder), plain)
    with pytest.raises(RegardError, match="rope scaling 'linear' has unknown mscale_all_dim"):
        regard.load(folder)


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_arguments_of_from_pretrained_change_nothing_in_a_file(transformers, write, model_type):
    """The file may have such a field: model hubs and training scripts write them."""
    plain = numbers(transformers, write(model_type))
    more = {"tags": ["a"], "variant": "fp16", "revision": "main", "device": "cuda", "token": "x", "subfolder": "y"}
    folder = write(model_type, lambda fields: fields | more)
    np.testing.assert_array_equal(compare(transformers, folder), plain)
    assert set(regard.load(folder).config.ignored) >= more.keys()


def test_a_module_whose_fields_cannot_be_read_is_an_error():
    from make_known_fields import fields_read

    with pytest.raises(ImportError):
        fields_read(["transformers.no_such_module"])


def differ(a, b):
    """Tell whether numbers differ by ten times the tolerance."""
    return np.abs(a - b).max() > 2e-4 * np.abs(a).max()


def without(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}
