"""Models in GGUF files: what is made of their metadata, and what is refused. tests/parity holds the numbers."""

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest

import golden
import regard
from gguf_files import (
    LLAMA,
    TOKENIZER,
    TOKENS,
    architecture_of,
    llama_tensors,
    quantised,
    write_gguf,
    write_kept,
)
from regard import RegardError
from regard.formats.gguf import GgufFile
from regard.functional import rotary_frequencies
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.gguf_architectures import ARCHITECTURES
from regard.models.checkpoint.open import open_checkpoint
from regard.models.rope import Rope
from regard.nn import QuantizedWeight
from sweeps import sweep_after


def kept(case, folder):
    """Return the architecture, fields, tensors and further metadata of the file of a stored checkpoint."""
    file = GgufFile(write_kept(golden.FOLDER / case, folder / "kept.gguf"))
    start = f"{file.metadata['general.architecture']}."
    fields = {
        key.removeprefix(start): x.tolist() if isinstance(x, np.ndarray) else x
        for key, x in file.metadata.items()
        if key.startswith(start)
    }
    others = {key: x for key, x in file.metadata.items() if key.startswith("tokenizer.")}
    return start[:-1], fields, dict(file), others


@pytest.fixture
def checkpoint(tmp_path):
    def opened(**changes):
        architecture = changes.pop("architecture", "llama")
        fields = {**LLAMA, **changes.pop("fields", {})}
        fields = {key: value for key, value in fields.items() if value is not None}
        return open_checkpoint(write_gguf(tmp_path / "m.gguf", architecture, fields, **changes))

    return opened


def fields_of(checkpoint):
    return checkpoint.config()._fields


def test_a_file_a_folder_with_one_and_a_text_are_the_same_question(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    ids = [3, 40, 5]
    hidden = regard.load(path)(ids).hidden
    assert hidden.shape == (1, 3, 32)
    for given in (str(path), tmp_path, str(tmp_path)):
        np.testing.assert_array_equal(regard.load(given)(ids).hidden, hidden)


def test_a_folder_with_the_parts_of_a_model_is_that_model(tmp_path):
    (tmp_path / "parts").mkdir()
    write_gguf(tmp_path / "parts" / "m.gguf", tensors_per_part=8)
    whole = regard.load(write_gguf(tmp_path / "m.gguf"))
    np.testing.assert_array_equal(regard.load(tmp_path / "parts")([3, 40, 5]).hidden, whole([3, 40, 5]).hidden)


def test_a_folder_with_several_files_asks_for_one_of_them(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(RegardError, match=r"holds 2 GGUF models; give one of a\.gguf, b\.gguf"):
        regard.load(tmp_path)


def test_a_folder_has_the_models_that_a_repository_with_its_files_has(tmp_path):
    for name in ("m.gguf", "m-00001-of-00001.gguf", "m-00002-of-00002.GGUF", "mmproj-F16.gguf", "x-lora.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(
        RegardError, match=r"3 GGUF models; give one of m-00001-of-00001\.gguf, m-00002-of-.*, m\.gguf$"
    ):
        regard.load(tmp_path)
    for path in tmp_path.glob("m[.-]*"):
        path.unlink()
    with pytest.raises(
        RegardError, match=r"regard reads: mmproj-F16\.gguf is the image part of a model, x-lora\.gguf is"
    ):
        regard.load(tmp_path)
    write_gguf(tmp_path / "m.gguf")
    assert regard.load(tmp_path).config.num_layers == 2


def test_a_folder_with_a_configuration_is_no_gguf_model(write_bert):
    folder = write_bert()
    write_gguf(folder / "m.gguf")
    assert regard.load(folder).config.num_heads == 3


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_scaling_of_llama_3_is_known_by_its_frequencies(checkpoint, factor):
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    plain, scaled = (rotary_frequencies(8, base=500000.0, scaling=each)[0] for each in (None, scaling))
    stored = {**llama_tensors(), "rope_freqs.weight": (plain / scaled).astype(np.float32)}
    found = checkpoint(fields={"rope.freq_base": 500000.0}, tensors=stored)
    assert fields_of(found)["rope_scaling"] == scaling
    assert "rope_freqs.weight" not in found.tensors().shapes
    stored["rope_freqs.weight"][1] *= 1.5
    with pytest.raises(
        RegardError, match=r"frequencies of .*m\.gguf \(rope_freqs\.weight\) are not scaled as in Llama 3"
    ):
        checkpoint(fields={"rope.freq_base": 500000.0}, tensors=stored).config()


def test_the_attention_factor_of_a_file_is_multiplied_by_that_of_yarn(checkpoint):
    """As llama.cpp does: attn_factor times 1 + 0.1 ln factor, once, of cosine and sine."""

    def magnitude(**more):
        scaling = fields_of(checkpoint(fields={**YARN, **{f"rope.scaling.{key}": each for key, each in more.items()}}))
        return rotary_frequencies(8, scaling=scaling["rope_scaling"])[1]

    plain = magnitude()
    assert plain == pytest.approx(1.1386294361)  # 1 + 0.1 ln 4
    assert magnitude(attn_factor=1.0) == plain
    assert magnitude(attn_factor=0.75) == pytest.approx(0.75 * plain)
    assert magnitude(attn_factor=0.75, factor=0.5) == pytest.approx(0.75)


LINEAR = {"rope.scaling.factor": 4.0, "rope.scaling.finetuned": True}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 19}
OF_LINEAR = {"rope_type": "linear", "factor": 4.0}
UNTIED = {**llama_tensors(), "output.weight": np.zeros((len(TOKENS), 32), np.float32)}
READ = [  # changes of the metadata or the tensors, the field of a config.json, and its value
    ({}, "tie_word_embeddings", True),
    ({"tensors": UNTIED}, "tie_word_embeddings", False),
    ({}, "eos_token_id", 2),
    ({"metadata": {**TOKENIZER, "tokenizer.ggml.eot_token_id": 0}}, "eos_token_id", [2, 0]),  # a turn ends otherwise
    ({"fields": {"vocab_size": None}}, "vocab_size", len(TOKENS)),
    ({"fields": {"attention.head_count_kv": [2, 2]}}, "num_key_value_heads", 2),
    ({"fields": LINEAR | {"rope.scaling.type": "linear"}}, "rope_scaling", OF_LINEAR),
    ({"fields": LINEAR | {"rope.scaling.type": "linear", "rope.scaling.attn_factor": 1.0}}, "rope_scaling", OF_LINEAR),
    ({"fields": LINEAR}, "rope_scaling", OF_LINEAR),
    ({"fields": YARN}, "rope_scaling", OF_LINEAR | {"rope_type": "yarn", "original_max_position_embeddings": 19}),
]


@pytest.mark.parametrize(("changes", "name", "value"), READ)
def test_metadata_are_the_fields_of_a_configuration(checkpoint, changes, name, value):
    assert fields_of(checkpoint(**changes))[name] == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tensors": {name: x for name, x in llama_tensors().items() if "attn_v" not in name}},
            r"missing .*layers\.0\.self_attn\.v_proj\.weight.*layers\.1\.self_attn\.v_proj",
        ),
        (  # llama.cpp refuses such a file; the default of transformers is that of one model
            {"fields": {"context_length": None}},
            r"max_position_embeddings \(llama\.context_length\) must be .*, got None",
        ),
        (
            {"fields": LINEAR, "tensors": {**llama_tensors(), "rope_freqs.weight": np.ones(4, np.float32)}},
            r"scales rotary frequencies twice: by rope_freqs\.weight and as 'linear'",
        ),
        ({"architecture": "mamba"}, r"of architecture 'mamba'; supported in GGUF: bert, .*; regard\.capture watches"),
        ({"fields": {"odd.key": 8}}, r"llama\.odd\.key=8; pass load\(.*ignore=\['llama\.odd\.key'\]"),
        ({"fields": {"odd.key": "x", "block_count": None}}, r"num_hidden_layers.*unknown field llama\.odd\.key='x'"),
        ({"fields": {"rope.dimension_count": 4}}, r"unknown field llama\.rope\.dimension_count=4"),
        ({"fields": {"attention.value_length": 4}}, r"unknown field llama\.attention\.value_length=4"),
        ({"fields": {"attention.head_count_kv": [2, 1]}}, r"num_key_value_heads \(llama\..*_kv\) must be .*\[2, 1\]"),
        ({"fields": {"rope.scaling.type": "longrope"}}, r"longrope"),
        ({"fields": {"rope.scaling.attn_factor": 1.5}}, r"attn_factor 1\.5 with rotary frequencies scaled as 'none'"),
        (
            {"fields": {"rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 1.5}},
            r"attn_factor 1\.5 with rotary frequencies scaled as 'linear'; it is supported with 'yarn'",
        ),
        ({"tensors": {**llama_tensors(), "blk.0.odd.weight": np.zeros(3)}}, r"unexpected blk\.0\.odd\.weight"),
        ({"tensors": {**llama_tensors(), "blk.00.attn_q.weight": np.zeros(3)}}, r"unexpected blk\.00\.attn_q"),
        ({"tensors": {**llama_tensors(), "model.norm.weight": np.zeros(32)}}, r"as output_norm.* and as model"),
        ({"fields": {"block_count": 1}}, r"unexpected model\.layers\.1\.input_layernorm\.weight"),
        ({"fields": {"block_count": 3}}, r"missing model\.layers\.2\."),
        ({"fields": {"embedding_length": 64, "rope.dimension_count": 16}}, r"\(268, 32\), .* requires \(268, 64\)"),
        ({"fields": {"vocab_size": 99}}, r"requires \(99, 32\)"),
        ({"tensors": {**llama_tensors(), "output_norm.weight": np.full(32, np.nan, np.float32)}}, "not finite"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(checkpoint, tmp_path, changes, message):
    with suppress(RegardError):
        checkpoint(**changes)  # writes the file
    with pytest.raises(RegardError, match=message):
        regard.load(tmp_path)


KEPT = (
    *("llama/plain", "llama/tied", "llama/linear", "llama/yarn", "qwen2/plain", "qwen3/plain", "gpt2/plain"),
    *("gpt_neox/plain", "phi3/plain", "phi3/partial", "mixtral/plain", "gpt_oss/plain", "deepseek_v3/plain"),
    *("bert/gelu", "distilbert/gelu", "nomic_bert/plain", "nomic_bert/scaled", "modernbert/plain"),
    *("t5/relu", "gemma4_text/plain", "gemma4_text/inputs", "gemma4_text/long"),
)


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize("precision", sweep_after(1, [(np.float64, 1e-10), (np.float32, 1e-5)]))
def test_the_numbers_that_transformers_computes_with_the_checkpoint(tmp_path, case, precision):
    """The checkpoints that are kept, as the files that llama.cpp's converter would make of them."""
    dtype, tolerance = precision
    folder = golden.FOLDER / case
    write_kept(folder, tmp_path / "m.gguf")
    shutil.copy(folder / "expected.safetensors", tmp_path)
    golden.check(tmp_path, dtype=dtype, tolerance=tolerance)


DEFAULTS = {
    **{"rope.freq_base": 1e4, "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0},
    **{"rope.scaling.attn_factor": 1.0, "rope.scaling.yarn_log_multiplier": 0.0},
    **{"expert_weights_scale": 1.0, "expert_weights_norm": False},
    **{"expert_group_count": 1, "expert_group_used_count": 1, "expert_gating_func": 1, "expert_count": 0},
}
"""What llama.cpp does without a key, and, by architecture, without its own."""
OWN_DEFAULTS = {
    "gemma2": {"attention.sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": {"attention.sliding_window": 0, "rope.freq_base_swa": 1e4},
    "gemma4": {"attention.shared_kv_layers": 0, "final_logit_softcapping": 30.0},
    "granite": {"embedding_scale": 1.0, "residual_scale": 1.0, "attention.scale": 0.5},
    "phi3": {"attention.sliding_window": 0},
    "qwen3next": {"full_attention_interval": 4},
    "starcoder2": {"attention.sliding_window": 0},
    "modern-bert": {"attention.sliding_window_pattern": 3, "hidden_activation": "gelu"},
}
WITHOUT_EFFECT = {
    "gemma4": tuple(
        f"{name}{end}" for name in ("attention.value_length", "rope.dimension_count") for end in ("", "_swa")
    ),
    "gpt-oss": ("feed_forward_length", "expert_feed_forward_length"),
    "modern-bert": ("attention.layer_norm_rms_epsilon", "rope.scaling.type"),
    "t5": ("attention.layer_norm_epsilon", "attention.value_length", "context_length"),
    "t5encoder": ("attention.layer_norm_epsilon", "attention.value_length", "context_length", "decoder_start_token_id"),
    "deepseek2": ("attention.key_length", "attention.value_length", "attention.head_count_kv"),
}
"""Keys whose absence changes nothing: others, or the tensors, say the same, or they are of llama.cpp's own heads."""


def default_of(key, architecture, fields):
    """Return what llama.cpp takes for an absent key; None if it refuses the file."""
    width = fields["embedding_length"] // fields["attention.head_count"]
    of_sizes = {
        **dict.fromkeys(("attention.key_length", "attention.value_length"), width),
        "rope.dimension_count": fields.get("attention.key_length", width),
        "attention.head_count_kv": fields["attention.head_count"],
        "decoder_block_count": fields["block_count"],
        "rope.scaling.original_context_length": fields.get("context_length"),
        "rope.scaling.type": "linear" if "rope.scaling.factor" in fields else "none",
        "vocab_size": fields["vocab_size"],
    }
    same = {each: fields[each] for each in WITHOUT_EFFECT.get(architecture, ()) if each in fields}
    return (DEFAULTS | of_sizes | OWN_DEFAULTS.get(architecture, {}) | same).get(key)


WITH_EVERY_KEY = (
    *("cohere/normed", "cohere2/plain", "granite/biased", "glm4/plain"),
    *("llama/plain", "llama/linear", "llama/yarn", "mixtral/plain", "smollm3/plain", "qwen2/plain", "qwen3/plain"),
    *(
        "qwen3_moe/plain",
        "gemma2/plain",
        "gemma3_text/plain",
        "olmo2/plain",
        "starcoder2/plain",
        "phi3/partial",
        "gpt2/plain",
    ),
    *("gpt_neox/plain", "gpt_oss/plain", "deepseek_v3/plain", "deepseek_v3/yarn", "bert/gelu", "nomic_bert/plain"),
    *("modernbert/plain", "t5/relu", "t5encoder", "qwen3_next/plain", "gemma4_text/plain", "gemma4_text/inputs"),
)


@pytest.mark.parametrize("case", WITH_EVERY_KEY)
def test_a_key_that_is_missing_is_what_llama_cpp_takes_it_for_or_refused(tmp_path, monkeypatch, case):
    """Whatever key it is, transformers' default of the family, which is that of one model, is never taken for it."""
    architecture, fields, tensors, others = kept("t5/relu" if case == "t5encoder" else case, tmp_path)
    if case == "t5encoder":
        architecture, tensors = case, {name: x for name, x in tensors.items() if not name.startswith("dec.")}
    path = write_gguf(tmp_path / "m.gguf", architecture, fields, tensors, metadata=others)

    def config(fields):
        """Return the configuration of a model with these metadata, rotations as angles; None if it is refused."""
        file = GgufFile(path)
        file.metadata = {"general.architecture": architecture, **others}
        file.metadata |= {f"{architecture}.{key}": value for key, value in fields.items()}
        monkeypatch.setattr("regard.models.checkpoint.gguf.GgufFile", lambda _: file)
        with suppress(RegardError):
            model = regard.load(path)
            as_saved = ConfigReader(open_checkpoint(path).config().fields, path)  # with the defaults of transformers
            assert type(model.config).read(as_saved) == model.config
            read = vars(model.config)
            return {x: y(np.arange(9), float)[0].tolist() if isinstance(y, Rope) else y for x, y in read.items()}
        return None

    assert config(fields) is not None
    for key in fields:
        default = default_of(key, architecture, fields)
        without = {name: value for name, value in fields.items() if name != key}
        expected = None if default is None else config(without | {key: default})
        assert config(without) == expected, key


def with_even_heads(fields, tensors):
    """Return metadata and tensors of a model whose heads have E / H features; None for one that has a width of others.

    What the tensors hold does not matter.
    """
    width, heads = fields["embedding_length"], fields["attention.head_count"]
    others = {"attention.key_length_mla", "attention.key_length_swa"}
    if not {"attention.key_length", "attention.head_count_kv"} <= fields.keys() or others & fields.keys():
        return None
    head_dim, kv_heads = width // heads, fields["attention.head_count_kv"]
    if head_dim % 2:  # of which no pairs rotate
        return None
    rows = {"attn_q": width, "attn_k": kv_heads * head_dim, "attn_v": kv_heads * head_dim}
    resized = dict(tensors)
    for name, array in tensors.items():
        part = name.split(".")[-2]
        if part in rows:
            resized[name] = np.resize(array, (rows[part], *array.shape[1:]))
        elif part == "attn_output":
            resized[name] = np.resize(array, (width,) * array.ndim)
        elif part in ("attn_q_norm", "attn_k_norm"):
            of_all = array.size != fields["attention.key_length"]
            resized[name] = np.resize(array, rows[part.removesuffix("_norm")] if of_all else head_dim)
    of_heads = ("attention.key_length", "rope.dimension_count")
    return fields | {key: head_dim for key in of_heads if key in fields}, resized


@pytest.mark.parametrize("case", WITH_EVERY_KEY)
def test_a_file_of_every_architecture_is_saved_as_a_folder_with_its_numbers(tmp_path, case):
    architecture, fields, tensors, others = kept("t5/relu" if case == "t5encoder" else case, tmp_path)
    if case == "t5encoder":
        architecture, tensors = case, {name: x for name, x in tensors.items() if not name.startswith("dec.")}
    inputs = {"target": [3, 4, 5]} if case == "t5/relu" else {}
    for i, (its_fields, its_tensors) in enumerate(filter(None, [(fields, tensors), with_even_heads(fields, tensors)])):
        path = write_gguf(tmp_path / f"{i}.gguf", architecture, its_fields, its_tensors, metadata=others)
        model = regard.load(path, dtype=float)
        model.save(tmp_path / f"{i}", dtype="float64")
        again = regard.load(tmp_path / f"{i}", dtype=float)
        assert again.config == model.config
        before, after = (each([3, 4, 5], **inputs) for each in (model, again))
        numbers, of_folder = ((x.hidden if x.head is None else x.logits) for x in (before, after))
        np.testing.assert_allclose(of_folder, numbers, rtol=0, atol=1e-10 * np.abs(numbers).max())


@pytest.mark.parametrize("case", ["llama/yarn", "gpt_oss/plain", "deepseek_v3/yarn"])
def test_without_a_word_on_scaling_rotations_are_not_scaled(tmp_path, case):
    architecture, fields, tensors, others = kept(case, tmp_path)
    fields = {key: value for key, value in fields.items() if not key.startswith("rope.scaling.")}
    path = write_gguf(tmp_path / "m.gguf", architecture, fields, tensors, metadata=others)
    assert regard.load(path).config.rope.scaling is None


def test_every_architecture_has_a_case_with_every_key():
    assert {architecture_of(case.partition("/")[0]) for case in WITH_EVERY_KEY} == ARCHITECTURES.keys()


def expert_tensors():
    """Return the tensors of a llama whose feed-forward layers are mixtures of three experts."""
    rng, sizes = np.random.default_rng(4), {"gate": (64, 32), "up": (64, 32), "down": (32, 64)}
    stored = {name: array for name, array in llama_tensors().items() if ".ffn_" not in name or "norm" in name}
    for i in range(2):
        stored[f"blk.{i}.ffn_gate_inp.weight"] = rng.standard_normal((3, 32))
        for name, size in sizes.items():
            stored[f"blk.{i}.ffn_{name}_exps.weight"] = rng.standard_normal((3, *size))
    return {name: array.astype(np.float32) for name, array in stored.items()}


EXPERTS = {**LLAMA, "expert_count": 3, "expert_used_count": 2}


def test_each_expert_stays_in_its_blocks(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", "llama", EXPERTS, expert_tensors(), kind="Q8_0")
    model = regard.load(path)
    weights = [each.up_proj.weight for each in model.blocks[1].mlp.experts]
    assert all(isinstance(weight, QuantizedWeight) for weight in weights)
    whole = GgufFile(path)["blk.1.ffn_up_exps.weight"]
    for weight, rows in zip(weights, whole, strict=True):
        np.testing.assert_array_equal(np.asarray(weight).T, rows)
    ids = [3, 40, 5]
    exact = regard.load(path, dtype=np.float64)(ids).logits
    np.testing.assert_allclose(model(ids).logits, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_experts_that_do_not_fit_are_named(tmp_path):
    stored = expert_tensors()
    stored["blk.1.ffn_up_exps.weight"] = stored["blk.1.ffn_up_exps.weight"][0]
    with pytest.raises(RegardError, match=r"missing .*experts\.0\.w3.*unexpected blk\.1\.ffn_up_exps\.weight"):
        regard.load(write_gguf(tmp_path / "m.gguf", "llama", EXPERTS, stored))


@pytest.mark.parametrize(
    ("name", "factors", "message"),
    [
        ("ffn_gate_inp_shexp.weight", [[1], [1]], r"shared_expert_gate\.weight has shape \(2, 12\), the configuration"),
        ("ssm_a", [-1, 1, 1, 1], r"A_log of .* has numbers that are not finite"),
        ("ssm_a", [0, 1, 1, 1], r"A_log of .* has numbers that are not finite"),
    ],
)
def test_what_is_computed_of_a_tensor_that_does_not_fit_is_named(tmp_path, name, factors, message):
    architecture, fields, tensors, others = kept("qwen3_next/plain", tmp_path)
    tensors[f"blk.0.{name}"] = np.asarray(tensors[f"blk.0.{name}"]) * np.array(factors, np.float32)
    path = write_gguf(tmp_path / "m.gguf", architecture, fields, tensors, metadata=others)
    with pytest.raises(RegardError, match=message):
        regard.load(path)


@pytest.mark.parametrize("gate_kind", ["F16", "BF16"])
def test_linear_attention_stays_as_it_is_stored(tmp_path, gate_kind):
    """Its rows stand in another order, and those of the gate in a tensor of their own."""
    architecture, fields, tensors, others = kept("qwen3_next/plain", tmp_path)
    tensors = {name: np.asarray(x, np.float32) for name, x in tensors.items()}
    kinds = {"blk.0.attn_gate.weight": gate_kind}
    path = write_gguf(tmp_path / "m.gguf", architecture, fields, tensors, metadata=others, kind="F16", kinds=kinds)
    layer, wanted = (regard.load(each).blocks[0].linear_attn for each in (path, golden.FOLDER / "qwen3_next/plain"))
    for name, kind in {"q_proj": "F16", "k_proj": "F16", "v_proj": "F16", "gate_proj": gate_kind}.items():
        weight, stored = getattr(layer, name).weight, np.asarray(getattr(wanted, name).weight)
        assert isinstance(weight, QuantizedWeight)
        assert weight.kind == kind
        assert weight.blocks.base is not None  # a view of the file
        expected = gguf.quants.dequantize(quantised(stored.T, kind), gguf.GGMLQuantizationType[kind])
        np.testing.assert_array_equal(np.asarray(weight), expected.T)


def test_a_deepseek_of_before_2025_is_the_same(tmp_path):
    """Its map from latents is one tensor, and its metadata say how the model has its heads."""
    _, fields, tensors, metadata = kept("deepseek_v3/plain", tmp_path)
    mla = {"attention.key_length": "attention.key_length_mla", "attention.value_length": "attention.value_length_mla"}
    older = fields | {key: fields[other] for key, other in mla.items()} | {"attention.head_count_kv": 3}
    older = {key: value for key, value in older.items() if not key.endswith("_mla")}
    whole = dict(tensors)
    for i in range(3):
        k, v = (whole.pop(f"blk.{i}.attn_{name}_b.weight") for name in "kv")
        whole[f"blk.{i}.attn_kv_b.weight"] = np.concatenate([k.swapaxes(1, 2), v], axis=1).reshape(-1, v.shape[2])
    write_gguf(tmp_path / "m.gguf", "deepseek2", older, whole, metadata=metadata)
    logits = [regard.load(tmp_path / f"{name}.gguf")([1, 2, 3]).logits for name in ("kept", "m")]
    np.testing.assert_array_equal(*logits)
    both = write_gguf(tmp_path / "m.gguf", "deepseek2", fields, whole | tensors, metadata=metadata)
    with pytest.raises(
        RegardError,
        match=r"has model\.layers\.0\.self_attn\.kv_b_proj\.weight twice: as blk\.0\.attn_k_b\.weight with "
        r"blk\.0\.attn_v_b\.weight and as blk\.0\.attn_kv_b\.weight",
    ):
        regard.load(both)


def test_a_tied_head_may_be_stored_once_more(tmp_path):
    """A T5 divides by the root of its width before a tied head; a quantiser rounds the two apart."""
    _, fields, tensors, metadata = kept("t5/relu", tmp_path)
    rng, table = np.random.default_rng(5), np.asarray(tensors["token_embd.weight"], np.float32)
    noise = rng.standard_normal(table.shape).astype(np.float32) * table.std()

    def logits(**head):
        path = write_gguf(tmp_path / "m.gguf", "t5", fields, tensors | head, metadata=metadata)
        return regard.load(path)([3, 4, 5], target=[3, 4, 5]).logits

    tied = logits()
    np.testing.assert_array_equal(logits(**{"output.weight": table}), tied)
    np.testing.assert_allclose(logits(**{"output.weight": table + noise / 10}), tied, atol=np.abs(tied).max() / 4)
    own = logits(**{"output.weight": noise})
    assert np.linalg.norm(own) > 2 * np.linalg.norm(tied)  # by √12 larger


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("deepseek_v3/plain", {"expert_gating_func": 1}, "chooses experts by softmax, as DeepSeek-V2 does; .*capture"),
        ("deepseek_v3/plain", {"expert_gating_func": [1, 2]}, r"chooses experts by another function \(\[1, 2\]\)"),
        ("phi3/plain", {}, r"factors for short and long texts \(rope_factors_long\.weight\), which regard does not"),
        ("bert/gelu", {"attention.causal": True}, r"unknown field bert\.attention\.causal=True"),
        ("t5/relu", {"attention.value_length": 7}, r"unknown field t5\.attention\.value_length=7"),
    ],
)
def test_what_a_family_does_not_compute_is_refused(tmp_path, case, changes, message):
    name, fields, tensors, metadata = kept(case, tmp_path)
    tensors |= {"rope_factors_long.weight": np.ones(2, np.float32)} if "phi3" in case else {}
    path = write_gguf(tmp_path / "m.gguf", name, fields | changes, tensors, metadata=metadata)
    with pytest.raises(RegardError, match=message):
        regard.load(path)


@pytest.mark.parametrize(("kind", "pooling"), [(1, "mean"), (2, "cls")])
def test_an_encoder_embeds_as_its_file_says(tmp_path, kind, pooling):
    path = write_kept(golden.FOLDER / "bert" / "gelu", tmp_path / "m.gguf", pooling_type=kind)
    model = regard.load(path)
    hidden = model("abba").hidden[0]
    assert hidden.shape == (3, 12)
    vector = hidden.mean(0) if pooling == "mean" else hidden[0]
    np.testing.assert_allclose(model.embed(["abba"])[0], vector / np.linalg.norm(vector), atol=1e-6)


def test_the_page_names_every_architecture():
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    (names,) = re.findall(r"^Architectures: (.*)\.$", page, re.MULTILINE)
    assert set(re.findall("`([^`]+)`", names)) == ARCHITECTURES.keys()


def test_experts_of_gemma4_are_those_of_the_folder(changed, tmp_path):
    """With the activation and the rotations that a file can have; the kept model has others."""
    rope = json.loads((golden.FOLDER / "gemma4_text/plain/config.json").read_text())["rope_parameters"]
    config = {"hidden_activation": "gelu_pytorch_tanh", "rope_parameters": rope, "attention_bias": False}
    biases = [f"model.layers.{i}.self_attn.{name}_proj.bias" for i in range(2) for name in "qkvo"]
    folder = changed("gemma4_text/experts", config, without=biases)
    found, expected = (regard.load(x, dtype=float) for x in (write_kept(folder, tmp_path / "m.gguf"), folder))
    assert found.config.num_experts == 5
    np.testing.assert_array_equal(found([3, 4, 5, 9]).logits, expected([3, 4, 5, 9]).logits)


@pytest.mark.parametrize(
    ("fields", "factors", "message"),
    [
        ({"attention.sliding_window_pattern": None}, None, "must say which layers have a window"),
        ({"attention.shared_kv_layers": 5}, None, "how many, not all, read keys of others"),
        ({"attention.sliding_window_pattern": [True, False]}, None, "must have a value for each of 5 layers"),
        ({"block_count": 100}, None, "must have a value for each of 100 layers"),
        ({"attention.head_count_kv": [3, 3, 2, 3, 3]}, None, "layers of one kind with different sizes"),
        ({"feed_forward_length": [20, 20, 20, 30, 30]}, None, "the last may be doubled"),
        ({}, [1, 1e30, 1, 1e30], "must be those of full layers of Gemma 4"),
        ({}, [1, 2, 4, 8], "must be those of full layers of Gemma 4"),
        ({}, [1, 1e30], "must be those of full layers of Gemma 4"),
    ],
)
def test_what_a_file_of_gemma4_must_say(tmp_path, fields, factors, message):
    architecture, known, tensors, others = kept("gemma4_text/inputs", tmp_path)
    if factors is not None:
        tensors = tensors | {"rope_freqs.weight": np.array(factors, np.float32)}
    known = {name: value for name, value in (known | fields).items() if value is not None}
    path = write_gguf(tmp_path / "m.gguf", architecture, known, tensors, metadata=others)
    with pytest.raises(RegardError, match=message):
        regard.load(path)
