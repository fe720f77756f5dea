"""The names, defaults and effects that fields of config.json have in transformers."""

import contextlib
import json

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, models
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.known_fields import ALIASES, DEFAULTS
from regard.models.families import FAMILIES, check_config
from regard.models.hub.hub_files import TOKENIZER

IDS = np.arange(5, 23)


def fields_of(case):
    return json.loads((golden.FOLDER / case / "config.json").read_text())


def read(fields, ignored=None):
    family = FAMILIES[fields["model_type"]].rpartition(".")[2]
    reader = ConfigReader(fields, "config.json", (), ignored=[] if ignored is None else ignored)
    return getattr(models, family + "Config").read(reader)


def test_gpt_oss_without_a_scaling_differs_from_one_that_says_nothing():
    fields = fields_of("gpt_oss/plain")
    del fields["rope_parameters"]
    assert read(fields).rope.scaling["rope_type"] == "yarn"
    assert (
        read({**fields, "rope_scaling": {}}).rope.scaling["rope_type"] == "yarn"
    )  # transformers reads {} as None here
    assert read({**fields, "rope_parameters": {}}).rope.scaling is None


@pytest.mark.parametrize("case", ["gemma3_text/plain", "modernbert/plain"])
def test_a_scaling_of_layer_types_is_named_rope_type(case):
    fields = {name: value for name, value in fields_of(case).items() if name != "rope_parameters"}
    named = {"rope_type": "linear", "factor": 8.0}
    assert read({**fields, "rope_scaling": named}).rope.scaling == named
    assert read({**fields, "rope_scaling": {"type": "default"}}).rope.scaling is None
    with pytest.raises(RegardError, match="rope_scaling has type 'linear', which transformers ignores in this family"):
        read({**fields, "rope_scaling": {"type": "linear", "factor": 8.0}})


def test_rope_parameters_and_rope_scaling_may_say_the_same():
    fields = fields_of("llama/llama3")
    older = {("type" if name == "rope_type" else name): value for name, value in fields["rope_parameters"].items()}
    assert read({**fields, "rope_scaling": older}) == read(fields)
    types = {kind: {"rope_type": "linear", "factor": 2.0} for kind in ("full_attention", "sliding_attention")}
    fields = {**fields_of("modernbert/plain"), "rope_parameters": types}
    assert read({**fields, "rope_scaling": types["full_attention"]}) == read(fields)
    with pytest.raises(RegardError, match="rope_parameters and rope_scaling are both present and differ; remove one"):
        read({**fields, "rope_scaling": {"rope_type": "linear", "factor": 3.0}})


OFF = {"add_cross_attention": False, "is_decoder": False, "pruned_heads": {}, "tie_encoder_decoder": False}


@pytest.mark.parametrize("case", golden.one_of_each(golden.KEPT))
def test_what_older_files_say_of_every_model_is_off(changed, case):
    assert regard.load(changed(case, OFF)).config == regard.load(golden.FOLDER / case).config


WITHOUT_EFFECT = {  # fields of the first files of a family, and those that they do not have
    "bert/gelu": (
        {
            "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        },
        (),
    ),
    "distilbert/gelu": (
        {
            "dropout": 0.3, "qa_dropout": 0.4, "seq_classif_dropout": 0.5, "tie_weights_": True,
            "sinusoidal_pos_embds": True,
        },
        (),
    ),
    "t5/relu": (
        {"n_positions": 512, "output_past": True, "prefix": "summarize: "},
        ("dense_act_fn", "is_gated_act", "scale_decoder_outputs", "num_decoder_layers", "classifier_dropout"),
    ),
    "bart/tied": (
        {
            "add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False,
            "normalize_embedding": True, "static_position_embeddings": False, "extra_pos_embeddings": 2,
            "num_hidden_layers": 2, "classif_dropout": 0.1,
        },
        (),
    ),
    "llama/plain": ({"original_max_position_embeddings": 7}, ()),
    "llama/linear": ({"original_max_position_embeddings": 7, "quantization_config": None, "odd": None}, ()),
    "llama/dynamic": ({"unk_token_id": 5, "mask_token_id": 5, "cls_token_id": 5, "_model_name_or_path": 5}, ()),
}  # fmt: skip


@pytest.mark.parametrize("case", WITHOUT_EFFECT)
def test_fields_without_an_effect_are_read_over(changed, case):
    fields, dropped = WITHOUT_EFFECT[case]
    assert regard.load(changed(case, fields, drop=dropped)).config == regard.load(golden.FOLDER / case).config


@pytest.mark.parametrize("name", OFF)
@pytest.mark.parametrize("case", ["bert/gelu", "t5/relu", "bart/tied", "gpt2/plain", "distilbert/gelu"])
def test_where_it_is_on_it_is_refused(changed, case, name):
    is_decoder = name == "is_decoder" and case == "gpt2/plain"  # which it is
    with contextlib.nullcontext() if is_decoder else pytest.raises(RegardError, match=f"{name}="):
        regard.load(changed(case, {name: {"0": [1]} if name == "pruned_heads" else True}))


NAMES = [(model_type, *names) for model_type, aliases in ALIASES.items() for names in aliases.items()]


@pytest.mark.parametrize(("model_type", "alias", "name"), NAMES, ids=lambda part: part)
def test_a_field_may_have_its_second_name(model_type, alias, name):
    case = next(case for case in golden.KEPT if case.startswith(f"{model_type}/"))
    fields = fields_of(case)
    value = fields.pop(name, fields.pop(alias, 3))
    expected = read({**fields, name: value})
    for named in ({alias: value}, {alias: value, name: value}, {alias: value, name: None}):
        assert read({**fields, **named}) == expected
    with pytest.raises(RegardError) as error:
        read({**fields, alias: value + 1, name: value})
    assert f"{alias}={value + 1} is another name of {name}, which has another value; remove one" in str(error.value)
    assert "--ignore" not in str(error.value)


ROOM = {  # what else a default needs
    ("deepseek_v3", "num_experts_per_tok"): {"n_routed_experts": 16, "n_group": 2, "topk_group": 2},
    ("gpt_oss", "num_experts_per_tok"): {"num_local_experts": 16},
    ("mixtral", "num_experts_per_tok"): {"num_local_experts": 16},
    ("qwen3_moe", "num_experts_per_tok"): {"num_local_experts": 16, "num_experts": None},
    ("qwen3_next", "num_experts_per_tok"): {"num_experts": 16},
    ("deberta-v2", "max_position_embeddings"): {"max_relative_positions": 32},
}
ABSENT = [(each, name) for each, taken in DEFAULTS.items() if each != "clip_text_model" for name in taken]


@pytest.mark.parametrize(("model_type", "name"), ABSENT)
def test_an_absent_field_has_its_default(model_type, name):
    fields = fields_of(next(case for case in golden.KEPT if case.startswith(f"{model_type}/")))
    fields |= ROOM.get((model_type, name), {})
    stated = {**fields, name: DEFAULTS[model_type][name]}
    assert read({key: value for key, value in fields.items() if key != name}) == read(stated)


OF_ROTATIONS = ["_rope_type_labels", "default_rope_type", "ignore_keys_at_rope_validation"]
OF_ALL = ["is_causal", "per_layer_config", "transformers_weights", "attention_chunk_size"]


@pytest.mark.parametrize("case", ["llama/plain", "gpt2/plain", "gpt_neox/plain", "qwen2/plain"])
@pytest.mark.parametrize("name", OF_ROTATIONS + OF_ALL)
def test_fields_that_code_of_all_classes_reads_are_not_ignored(changed, case, name):
    """They are in no class of a model, and change what it computes."""
    folder = changed(case, {name: False})
    if name in OF_ROTATIONS and case == "gpt2/plain":  # has no rotary positions
        assert regard.load(folder).config.ignored == (name,)
    else:
        with pytest.raises(RegardError, match=f"unknown field {name}=False"):
            regard.load(folder)


@pytest.mark.parametrize("version", ["9" * 5000, "5." + "9" * 5000, "9" * 9])
def test_any_number_may_be_a_version(version):
    with pytest.raises(RegardError, match="unknown field odd=1"):
        read({**fields_of("llama/plain"), "transformers_version": version, "odd": 1})


@pytest.mark.parametrize("theta", [None, "1e4", -2.0, 0, True, [1e4], 10**400], ids=repr)
@pytest.mark.parametrize("share", [0.5, 0.75])  # four features, three
def test_the_base_inside_the_rotation_is_a_positive_number(theta, share):
    inside = {"rope_theta": theta, "partial_rotary_factor": share}
    with pytest.raises(RegardError, match=r"rope_parameters\.rope_theta must be a number above 0, got"):
        read({**fields_of("gpt_neox/plain"), "rope_parameters": inside})


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10}
LINEAR = {"type": "linear", "factor": 2.0}


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("scaling", "more"),
    [
        (YARN, {"finetuned": True}),
        (LINEAR, {"original_max_position_embeddings": 7}),
        ({"type": "default"}, {"original_max_position_embeddings": 7, "factor": 2.0}),
    ],
    ids=["yarn", "linear", "default"],
)
def test_keys_of_a_rotation_without_effect_are_ignored_and_named(name, scaling, more):
    fields, ignored = {**fields_of("llama/plain"), "rope_parameters": None}, []
    assert read({**fields, name: {**scaling, **more}}, ignored) == read({**fields, name: scaling})
    assert ignored == [f"{name}.{key}" for key in sorted(more)]
    newer = {**fields, name: {**scaling, **more}, "transformers_version": "99.0"}
    with pytest.raises(RegardError, match=rf"unknown field {name}\.{min(more)}=.*--ignore {name}\.{min(more)}"):
        read(newer)


def test_keys_of_the_rotation_of_a_type_of_layer_without_effect_are_named():
    fields, ignored = fields_of("gemma3_text/plain"), []
    wide, local = ({"rope_theta": base, "odd": 1} for base in (1e6, 1e4))
    read({**fields, "rope_parameters": {"full_attention": wide, "sliding_attention": local}}, ignored)
    assert ignored == ["rope_parameters.full_attention.odd", "rope_parameters.sliding_attention.odd"]


@pytest.mark.parametrize(
    ("scaling", "key"),
    [
        ({"type": "default"}, "partial_rotary_factor"),
        ({"type": "default"}, "full_attention"),
        (LINEAR, "mscale_all_dim"),
        (YARN, "partial_rotary_factor"),
    ],
)
@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
def test_keys_of_a_rotation_that_transformers_reads_are_refused(name, scaling, key):
    fields = {**fields_of("llama/plain"), "rope_parameters": None, name: {**scaling, key: 0.5}}
    with pytest.raises(RegardError, match=rf"{name}=.* rope scaling '{scaling['type']}' has unknown {key}"):
        read(fields)


@pytest.mark.parametrize("case", ["llama/plain", "bert/gelu", "gpt2/plain"])
@pytest.mark.parametrize("name", ["tags", "variant", "revision", "device", "json", "get", "to_dict", "tqdm_class"])
def test_arguments_and_methods_of_transformers_are_no_fields(case, name):
    ignored = []
    assert read({**fields_of(case), name: "x"}, ignored) == read(fields_of(case))
    assert ignored == [name]


def test_the_default_of_a_field_with_two_names_stands_under_the_first():
    fields = {name: value for name, value in fields_of("gpt2/plain").items() if name not in ("n_positions", "n_ctx")}
    assert read(fields).max_positions == 1024
    assert read({**fields, "max_position_embeddings": 16}).max_positions == 16


FIRST_CASES = [
    sorted(family.iterdir())[0].relative_to(golden.FOLDER).as_posix() for family in sorted(golden.FOLDER.iterdir())
]


@pytest.mark.parametrize("case", FIRST_CASES)
def test_a_configuration_is_checked_without_weights(changed, case):
    """Every family reads its configuration before its tensors."""
    folder = changed(case)
    for name in ("model.safetensors", *TOKENIZER):
        (folder / name).unlink(missing_ok=True)
    check_config("name", folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"x_y": 1, "transformers_version": "99.0"}))
    with pytest.raises(RegardError, match="unknown field x_y=1"):
        check_config("name", folder)
    check_config("name", folder, ["x_y"])
