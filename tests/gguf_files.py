"""Writing small GGUF files as llama.cpp's converter would: the other side of what regard reads."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from regard.formats.safetensors import SafetensorsFile

_BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _BYTES]
LETTERS = [chr(256 + _OTHERS.index(byte)) if byte in _OTHERS else chr(byte) for byte in range(256)]
"""How byte-level BPE spells each byte."""

MERGES = ["Ġ t", "h e", "Ġt he", "Ġ c", "a t", "Ġc at", "Ġ Ġ", "1 2", "Ã ©"]
SPECIAL = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
}
"""The metadata of a small byte-level tokenizer."""


def as_read(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a file that has them gives them: lists of numbers are arrays, and None is nothing."""
    return {
        key: np.array(value) if isinstance(value, list) and not any(isinstance(item, str) for item in value) else value
        for key, value in metadata.items()
        if value is not None
    }


LLAMA = {
    "block_count": 2,
    "context_length": 19,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": 8,
    "vocab_size": len(TOKENS),
}
"""The metadata of a small llama, without what stands before each key."""


_PIECES = ["▁t", "he", "▁the", "▁c", "at", "▁cat", "▁▁", "on"]
_LETTERS = [*"▁abcdefghijklmnopqrstuvwxyz", "é", "."]
_SPM_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *_LETTERS, *_PIECES]
SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [*_SPM_TOKENS, "<user>"],
    "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(_LETTERS + _PIECES), 0, -1)] + [-1000.0],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(_LETTERS + _PIECES) + [4],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}
"""The metadata of a small tokenizer as SentencePiece makes them; pieces that are longer score higher."""


_MERGES = {"tokenizer.ggml.merges": ["t h", "h e", "▁ t", "▁t he", "\n \n", "▁ c", "a t", "▁c at"]}
GEMMA4 = {name: value for name, value in SENTENCEPIECE.items() if not name.endswith("scores")} | _MERGES
GEMMA4 |= {
    "tokenizer.ggml.model": "gemma4",
    "tokenizer.ggml.tokens": [*_SPM_TOKENS, "<user>", "\n", "\n\n", "th"],
    "tokenizer.ggml.token_type": [*SENTENCEPIECE["tokenizer.ggml.token_type"], 1, 1, 1],
}
"""The metadata of a small tokenizer of Gemma 4, whose merges are in the file."""


_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁cat", "▁the", "▁[", "s", "[", "▁caf", "e", "é", "▁é", "▁."]
WORDPIECE = {
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.tokens": _WORDS,
    "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(_WORDS) - 5),
    "tokenizer.ggml.padding_token_id": 0,
}
"""The metadata of a small tokenizer of BERT's kind, in which the pieces that begin a word are marked."""

_UNIGRAMS = {"<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, "▁the": -1.0, "▁": -4.0, "t": -3.0, "he": -2.5, "<x>": -1000.0}
UNIGRAM = {
    "tokenizer.ggml.model": "t5",
    "tokenizer.ggml.tokens": [*_UNIGRAMS],
    "tokenizer.ggml.scores": [*_UNIGRAMS.values()],
    "tokenizer.ggml.token_type": [3, 3, 2, 1, 1, 1, 1, 4],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.add_space_prefix": True,
}
"""The metadata of a small unigram model of SentencePiece."""


def llama_tensors(seed: int = 3) -> dict[str, np.ndarray]:
    """Return random tensors for `LLAMA`, under the names and in the layout of the file."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), 32), "output_norm.weight": (32,)}
    for i in range(2):
        for name, shape in {
            "attn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32),
            "ffn_norm": (32,), "ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64),
        }.items():  # fmt: skip
            shapes[f"blk.{i}.{name}.weight"] = shape
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    architecture: str = "llama",
    fields: Mapping[str, Any] = LLAMA,
    tensors: Mapping[str, Any] | None = None,
    *,
    metadata: Mapping[str, Any] = TOKENIZER,
    kind: str = "F32",
    kinds: Mapping[str, str] | None = None,
    tensors_per_part: int = 0,
) -> Path:
    """Write a file with the library's own writer; matrices are stored as `kind`, or as `kinds` says of some.

    With `tensors_per_part` it is split, and the path that of its first part.
    """
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_per_part)
    for key, value in {**{f"{architecture}.{key}": value for key, value in fields.items()}, **metadata}.items():
        _add(writer, key, value)
    for name, array in (llama_tensors() if tensors is None else tensors).items():
        its = (kinds or {}).get(name, kind if array.ndim > 1 else "F32")
        its_kind = gguf.GGMLQuantizationType[its]
        writer.add_tensor(name, quantised(array, its), raw_dtype=its_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if path.exists() else min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def quantised(array: np.ndarray, kind: str) -> np.ndarray:
    """Return an array in blocks: by the library where it can, else bytes that mean something near random numbers."""
    its = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quants.quantize(np.ascontiguousarray(array), its)
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[its]
        rng = np.random.default_rng(array.size)
        stored = rng.integers(0, 256, (*array.shape[:-1], array.shape[-1] // block, size), dtype=np.uint8)
        for at in SCALES[kind]:  # halves that are no infinity or NaN
            stored[..., at + 1] &= 0xBB
        return stored.reshape(*array.shape[:-1], -1)


SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where the halves that scale a block stand in it."""


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    add: Any = {
        **{bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string},
        **{float: writer.add_float32, np.float64: writer.add_float64},
    }
    if isinstance(value, list | tuple | bytes):
        writer.add_array(key, value)
    else:
        add[type(value)](key, value)


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Permute rows as the converter does for llama: the halves of each head interleaved."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


_FIELDS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "vocab_size": "vocab_size",
    "n_layer": "block_count",
    "n_positions": "context_length",
    "n_embd": "embedding_length",
    "n_head": "attention.head_count",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "logit_scale": "logit_scale",
    "use_parallel_residual": "use_parallel_residual",
}
_DISTILBERT = {"dim": "hidden_size", "hidden_dim": "intermediate_size", "n_layers": "num_hidden_layers"}
_DISTILBERT["n_heads"] = "num_attention_heads"
_MODERN_BERT = {
    "norm_eps": "attention.layer_norm_epsilon",
    "local_attention": "attention.sliding_window",
    "hidden_activation": "hidden_activation",
}
_DEEPSEEK = {
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
    "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "kv_lora_rank ": "attention.value_length",
    "v_head_dim": "attention.value_length_mla",
}
_QWEN3_NEXT = {
    "num_experts": "expert_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
_GEMMA4 = {
    "num_experts": "expert_count",
    "top_k_experts": "expert_used_count",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "head_dim": "attention.key_length_swa",
}
_T5 = {
    "d_model": "embedding_length",
    "d_ff": "feed_forward_length",
    "num_layers": "block_count",
    "num_decoder_layers": "decoder_block_count",
    "num_heads": "attention.head_count",
    "d_kv": "attention.key_length",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    "relative_attention_num_buckets": "attention.relative_buckets_count",
}
_ROPE = {
    "rope_theta": "rope.freq_base",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
_ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "modernbert")


def fields_from(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that say what a config.json of Hugging Face says."""
    model_type = config["model_type"]
    config = {_DISTILBERT.get(name, name): value for name, value in config.items()}
    names = _FIELDS | {
        "modernbert": _MODERN_BERT,
        "deepseek_v3": _DEEPSEEK,
        "qwen3_next": _QWEN3_NEXT,
        "gemma4_text": _GEMMA4,
        "t5": _T5,
        "mt5": _T5,
    }.get(model_type, {})
    fields = {key: config[name.strip()] for name, key in names.items() if config.get(name.strip()) is not None}
    rope = config.get("rope_parameters") or {}
    if (local := rope.get("sliding_attention")) and model_type != "gemma3_text":  # whose base is fixed
        fields["rope.freq_base_swa"] = local["rope_theta"]
    rope = rope.get("full_attention", rope)
    fields |= {key: rope[name] for name, key in _ROPE.items() if rope.get(name) not in (None, "default")}
    if rope.get("attention_factor") is not None:  # which llama.cpp multiplies by that of YaRN
        of_yarn = 1 + 0.1 * math.log(rope["factor"])
        fields["rope.scaling.attn_factor"] = np.float64(rope["attention_factor"] / of_yarn)  # llama.cpp has 32 bits
    if "n_embd" in config:
        fields["feed_forward_length"] = config["n_inner"] or 4 * config["n_embd"]
    if model_type in _ENCODERS:
        fields["attention.causal"] = False
        fields.setdefault("attention.layer_norm_epsilon", 1e-12)  # of DistilBERT, whose configuration leaves it out
    if "position_offset" in config:
        fields["context_length"] -= config["position_offset"]
    if model_type == "modernbert":
        fields["rope.scaling.type"] = "none"
        fields["attention.layer_norm_rms_epsilon"] = config["norm_eps"]
        fields["attention.sliding_window_pattern"] = 3
    if model_type == "qwen3_next":
        fields["full_attention_interval"] = config["layer_types"].index("full_attention") + 1
        fields["ssm.inner_size"] = config["linear_value_head_dim"] * config["linear_num_value_heads"]
    if model_type == "gemma4_text":
        fields = {name: x for name, x in fields.items() if name != "rope.scaling.type"} | _of_gemma4(config)
    if model_type in ("glm4", "gpt_neox", "phi3", "qwen3_next"):
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        fields["rope.dimension_count"] = int(rope["partial_rotary_factor"] * width)
    if model_type == "phi3":
        fields.setdefault("attention.sliding_window", 0)
        fields["rope.scaling.original_context_length"] = config["original_max_position_embeddings"]
    if model_type == "gpt_oss":
        fields["expert_feed_forward_length"] = config["intermediate_size"]
    if model_type in ("mt5", "t5"):
        fields |= {"attention.value_length": config["d_kv"], "context_length": 512}
        fields |= {"attention.layer_norm_epsilon": config["layer_norm_epsilon"], "decoder_start_token_id": 0}
    if model_type == "deepseek_v3":
        rotated, latent = config["qk_rope_head_dim"], config["kv_lora_rank"]
        fields |= {"attention.head_count_kv": 1, "attention.key_length": latent + rotated, "expert_gating_func": 2}
        fields["attention.key_length_mla"] = config["qk_nope_head_dim"] + rotated
        if rope.get("mscale_all_dim"):
            fields["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    return fields


def _of_gemma4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what llama.cpp's converter says of layers with and without a window."""
    windows = [kind == "sliding_attention" for kind in config["layer_types"]]
    full = {int(i): each for i, each in config["per_layer_config"].items()}[windows.index(False)]
    dims = {"": full["head_dim"], "_swa": config["head_dim"]}
    names = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    fields = {name + suffix: dim for suffix, dim in dims.items() for name in names}
    own = len(windows) - config["num_kv_shared_layers"]
    doubled = [config["intermediate_size"] * (1 + (i >= own)) for i in range(len(windows))]
    kv_heads = [full.get("num_key_value_heads") if not each else config["num_key_value_heads"] for each in windows]
    return {
        **fields,
        "final_logit_softcapping": config["final_logit_softcapping"] or 0.0,
        "attention.sliding_window_pattern": windows,
        **({"feed_forward_length": doubled} if config["use_double_wide_mlp"] else {}),
        **({"attention.head_count_kv": kv_heads} if all(kv_heads) else {}),
    }


_ARCHITECTURES = {
    **{"mixtral": "llama", "qwen3_moe": "qwen3moe", "deepseek_v3": "deepseek2", "gpt_neox": "gptneox"},
    **{"gemma3_text": "gemma3", "gemma4_text": "gemma4", "cohere": "command-r", "qwen3_next": "qwen3next"},
    **{"roberta": "bert", "xlm-roberta": "bert", "distilbert": "bert", "modernbert": "modern-bert"},
}


def architecture_of(model_type: str) -> str:
    """Return the architecture of a model type of Hugging Face."""
    return _ARCHITECTURES.get(model_type, model_type.replace("_", "-"))


def write_kept(folder: Path, path: Path, **more: Any) -> Path:
    """Write a checkpoint of a Hugging Face folder as a GGUF file, with another vocabulary of the same size.

    `more` are further metadata of its architecture.
    """
    config = json.loads((folder / "config.json").read_text())
    architecture = architecture_of(config["model_type"])
    if config["model_type"] in ("roberta", "xlm-roberta"):
        config["position_offset"] = config["pad_token_id"] + 1
    tensors = from_hugging_face(SafetensorsFile(folder / "model.safetensors"), architecture, config)
    tokens = ["a", "b", "ab", *(f"w{i}" for i in range(3, config["vocab_size"]))]
    vocabulary = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b"]}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in vocabulary.items()}
    return write_gguf(path, architecture, fields_from(config) | more, tensors, metadata=metadata)


def from_hugging_face(
    state: Mapping[str, np.ndarray], architecture: str, config: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return the tensors of a Hugging Face checkpoint as the file has them; the names are the library's own."""
    (number,) = [n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture]
    layers = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
    names = gguf.get_tensor_name_map(number, max(config.get(name) or 0 for name in layers))
    tensors = {}
    if architecture == "gemma4":
        factor = config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
        half = fields_from(config)["attention.key_length"] // 2
        tensors["rope_freqs.weight"] = np.where(np.arange(half) < int(factor * half), 1, 1e30).astype(np.float32)
    for hf_name, given in _as_converted(state, config):
        if hf_name in ("lm_head.weight", "embed_out.weight") and config["tie_word_embeddings"]:
            continue
        base, _, ending = hf_name.rpartition(".")
        if hf_name.endswith(("router.scale", "per_expert_scale")):
            name = hf_name.replace("model.layers", "blk").replace("router.per_expert", "ffn_down_exps.")
            tensors[name.replace("router.", "ffn_gate_inp.").replace("exps._", "exps.")] = given
            continue
        name = names.get_name(hf_name if ending not in ("weight", "bias") else base)
        assert name is not None, hf_name
        array, ending = given, "weight" if ending not in ("weight", "bias") else ending
        if architecture in ("granite", "llama", "smollm3") and ".attn_q" in name:
            array = permuted(array, config["num_attention_heads"])
        elif architecture in ("granite", "llama", "smollm3") and ".attn_k" in name:
            array = permuted(array, config["num_key_value_heads"])
        elif architecture in ("gemma2", "gemma3", "qwen3next") and hf_name.endswith("norm.weight"):
            array = array + np.float32(not hf_name.endswith("linear_attn.norm.weight"))
        elif architecture == "gpt2" and array.ndim == 2 and name.startswith("blk"):
            array = array.T
        elif architecture == "gptneox" and "attn_qkv" in name:
            by_head = array.reshape(config["num_attention_heads"], 3, -1, *array.shape[1:])
            array = by_head.swapaxes(0, 1).reshape(array.shape)
        tensors[name if name.endswith(".ssm_a") else f"{name}.{ending}"] = np.ascontiguousarray(array)
    return tensors


def _as_converted(state: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> Iterable[tuple[str, np.ndarray]]:
    """Yield the tensors of a checkpoint as llama.cpp's converter takes them apart or puts them together."""
    experts: dict[str, list[np.ndarray]] = {}
    for name, array in state.items():
        if config["model_type"] == "gpt_oss" and ".experts." in name:
            yield from _split_experts(name, array)
        elif match := re.fullmatch(r"(.*\.experts)\.\d+(\..*)", name):
            experts.setdefault(match[1] + match[2], []).append(array)
        elif ".linear_attn." in name:
            yield from _of_linear_attention(name, array, config)
        elif name.endswith("kv_b_proj.weight"):
            heads = array.reshape(config["num_attention_heads"], -1, array.shape[1])
            k, v = np.split(heads, [config["qk_nope_head_dim"]], axis=1)
            yield name.replace("kv_b_proj", "k_b_proj"), k.swapaxes(1, 2)
            yield name.replace("kv_b_proj", "v_b_proj"), v
        elif "position_offset" in config and "position_embeddings" in name:
            yield name, array[config["position_offset"] :]
        elif not name.startswith("pooler."):
            yield name.replace("e_score_correction_bias", "e_score_correction.bias"), array
    for name, arrays in experts.items():
        yield name, np.stack(arrays)


def _of_linear_attention(name: str, array: np.ndarray, config: Mapping[str, Any]) -> Iterable[tuple[str, np.ndarray]]:
    start, _, last = name.rpartition("linear_attn.")
    start += "linear_attn."
    if last == "in_proj_qkvz.weight":
        groups, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] // groups * config["linear_value_head_dim"]
        ends = np.cumsum([dim, dim, values])
        parts = np.split(array.reshape(groups, -1, array.shape[1]), ends, axis=1)
        *qkv, z = (part.reshape(-1, array.shape[1]) for part in parts)
        yield from ((f"{start}in_proj_qkv.weight", np.concatenate(qkv)), (f"{start}in_proj_z.weight", z))
    elif last == "A_log":
        yield name, -np.exp(array.astype(np.float32))
    else:
        yield name.replace("dt_bias", "dt_proj.bias"), array.squeeze()


def _split_experts(name: str, array: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
    layer = name[: name.index(".mlp.")]
    ending = "bias" if name.endswith("_bias") else "weight"
    array = array if ending == "bias" else array.swapaxes(1, 2)
    if "down_proj" in name:
        yield f"{layer}.mlp.experts.down_proj.{ending}", array
    else:
        yield f"{layer}.mlp.experts.gate_proj.{ending}", array[:, ::2]
        yield f"{layer}.mlp.experts.up_proj.{ending}", array[:, 1::2]
