"""GGUF files beside transformers' own reading of them, and beside the checkpoints that they were made from."""

import functools
import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import gguf_files
import regard
from gguf_files import TOKENS, fields_from, from_hugging_face, write_gguf
from regard.formats.safetensors import SafetensorsFile
from regard.models.checkpoint.gguf_architectures import ARCHITECTURES
from regard.models.checkpoint.open import open_checkpoint
from regard.text import SubwordTokenizer
from sweeps import sweep_after

SIZES = {
    "vocab_size": len(TOKENS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 19,
}  # fmt: skip
_GEMMA4 = {
    "head_dim": 8, "global_head_dim": 16, "num_hidden_layers": 6, "sliding_window": 5, "pad_token_id": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": len(TOKENS),
}  # fmt: skip
# Whatever the file says, transformers takes heads of qwen3 to be 128 wide, and gpt2 to have 1024 positions and a
# feed-forward of four times the embeddings: so they are here.
CASES = {
    "llama": ("llama", "LlamaConfig", {}),
    "llama, biases, heads of another width, own head": (
        "llama", "LlamaConfig",
        {"attention_bias": True, "mlp_bias": True, "head_dim": 12, "tie_word_embeddings": False, "rms_norm_eps": 1e-6},
    ),
    "llama, experts": ("llama", "MixtralConfig", {"num_local_experts": 3, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", "Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", "Qwen3Config", {"head_dim": 128, "tie_word_embeddings": False}),
    "qwen3moe": (
        "qwen3moe", "Qwen3MoeConfig",
        {"head_dim": 12, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
        | {"norm_topk_prob": True},
    ),
    "qwen3next": (
        "qwen3next", "Qwen3NextConfig",
        {"head_dim": 12, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "pad_token_id": 0}
        | {"shared_expert_intermediate_size": 9, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 6, "linear_value_head_dim": 5, "num_hidden_layers": 5},
    ),
    "gemma2": ("gemma2", "Gemma2Config", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}),
    "gemma3": (
        "gemma3", "Gemma3TextConfig",
        {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5, "num_hidden_layers": 7},
    ),
    "gemma4, keys of others": (
        "gemma4", "Gemma4TextConfig",
        _GEMMA4 | {"num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8},
    ),
    "gemma4, experts, keys that are values": (
        "gemma4", "Gemma4TextConfig",
        _GEMMA4 | {"enable_moe_block": True, "num_experts": 3, "top_k_experts": 2, "moe_intermediate_size": 20}
        | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "final_logit_softcapping": 30.0},
    ),
    "smollm3": ("smollm3", "SmolLM3Config", {"num_hidden_layers": 5, "pad_token_id": 0}),
    "olmo2": ("olmo2", "Olmo2Config", {"tie_word_embeddings": False}),
    "granite": ("granite", "GraniteConfig", {"embedding_multiplier": 3.0, "logits_scaling": 2.5}),
    "command-r": ("command-r", "CohereConfig", {"use_qk_norm": True, "logit_scale": 0.5}),
    "cohere2": ("cohere2", "Cohere2Config", {"sliding_window": 5, "num_hidden_layers": 5}),
    "glm4": ("glm4", "Glm4Config", {"head_dim": 12, "pad_token_id": 0}),
    "starcoder2": ("starcoder2", "Starcoder2Config", {"use_bias": False}),
    "phi3": ("phi3", "Phi3Config", {"pad_token_id": 0, "sliding_window": 5}),
    "phi3, part of a head": (
        "phi3", "Phi3Config",
        {"pad_token_id": 0, "rope_parameters": {"partial_rotary_factor": 0.75, "rope_theta": 500.0}},
    ),
    "gpt2": ("gpt2", "GPT2Config", {}),
    "gptneox": ("gptneox", "GPTNeoXConfig", {}),
    "gpt-oss": (
        "gpt-oss", "GptOssConfig",
        {"head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "deepseek2": (
        "deepseek2", "DeepseekV3Config",
        {"num_key_value_heads": 4, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 6,
         "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "moe_intermediate_size": 20, "n_shared_experts": 2,
         "q_lora_rank": 14, "kv_lora_rank": 10, "qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "v_head_dim": 5},
    ),
    "deepseek2, longer texts, queries without latents": (
        "deepseek2", "DeepseekV3Config",
        {"num_key_value_heads": 4, "first_k_dense_replace": 0, "n_routed_experts": 6, "num_experts_per_tok": 2,
         "n_group": 1, "topk_group": 1, "moe_intermediate_size": 20, "n_shared_experts": 1, "attention_bias": True,
         "q_lora_rank": None, "kv_lora_rank": 10, "qk_rope_head_dim": 8, "qk_nope_head_dim": 6, "v_head_dim": 5,
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.7,
                             "mscale_all_dim": 0.7, "original_max_position_embeddings": 10}},
    ),
    "bert": ("bert", "BertConfig", {}),
    "xlm-roberta": ("bert", "XLMRobertaConfig", {"pad_token_id": 1}),
    "distilbert": (
        "bert", "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 19},
    ),
    "nomic-bert": ("nomic-bert", "NomicBertConfig", {}),
    "modern-bert": (
        "modern-bert", "ModernBertConfig",
        {"num_hidden_layers": 4, "local_attention": 6, "hidden_activation": "silu", "norm_bias": True}
        | {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2},
    ),
    "t5": ("t5", "T5Config", {"d_kv": 6, "num_decoder_layers": 3, "relative_attention_num_buckets": 8}),
    "t5, gated": ("t5", "T5Config", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5, as mT5": ("t5", "MT5Config", {"tie_word_embeddings": False}),
    "t5encoder": ("t5encoder", "T5Config", {"feed_forward_proj": "gated-gelu", "is_encoder_decoder": False}),
}  # fmt: skip
OWN_SIZES = {
    "GPT2Config": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024, "n_inner": 128},
    "T5Config": {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64, "decoder_start_token_id": 0},
    "DistilBertConfig": {},
}
OWN_SIZES["MT5Config"] = OWN_SIZES["T5Config"]
WITHOUT_KV_HEADS = ("GPTNeoXConfig", "BertConfig", "XLMRobertaConfig", "NomicBertConfig", "ModernBertConfig")


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Let a file be parsed once, and the names of an architecture be made once: transformers asks for each again."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
        yield


def made(transformers, path, architecture, config_class, options, **how):
    """Return the tensors and the configuration of a random model of transformers, saved there, and its GGUF file."""
    torch.manual_seed(7)
    sizes = {"vocab_size": len(TOKENS), **OWN_SIZES[config_class]} if config_class in OWN_SIZES else dict(SIZES)
    if config_class in WITHOUT_KV_HEADS:
        del sizes["num_key_value_heads"]
    config = getattr(transformers, config_class)(**{**sizes, **options})
    kinds = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM") if architecture != "t5encoder" else ()
    kinds = (*kinds, "AutoModel") if architecture not in ENCODERS else ("AutoModel",)
    auto = next(kind for kind in (getattr(transformers, name) for name in kinds) if type(config) in kind._model_mapping)
    model = transformers.T5EncoderModel(config) if architecture == "t5encoder" else auto.from_config(config)
    with torch.no_grad():
        for tensor in (*model.parameters(), *(x for x in model.buffers() if x.shape == (6,))):
            tensor.normal_(0, 0.5)
    folder = path.parent / "checkpoint"
    model.float().save_pretrained(folder)
    config = config.to_dict()
    if options.get("tie_word_embeddings") is False and config["model_type"] in ("mt5", "t5"):
        config |= untied(folder)
    if config["model_type"] == "xlm-roberta":
        config["position_offset"] = config["pad_token_id"] + 1
    config.setdefault("tie_word_embeddings", True)
    state = SafetensorsFile(folder / "model.safetensors")
    tensors = from_hugging_face(state, architecture, config)
    fields = fields_from(config)
    if architecture == "t5encoder":
        fields = {key: value for key, value in fields.items() if not key.startswith("decoder_")}
    return state, config, write_gguf(path, architecture, fields, tensors, **how)


def untied(folder):
    """Give a T5 a head of its own, as version 1.1 is published and transformers 5 does not make it."""
    state = dict(SafetensorsFile(folder / "model.safetensors"))
    state["lm_head.weight"] = np.random.default_rng(1).standard_normal(state["shared.weight"].shape).astype(np.float32)
    save_file(state, folder / "model.safetensors")
    fields = {"tie_word_embeddings": False, "scale_decoder_outputs": False}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return fields


ENCODERS = ("bert", "nomic-bert", "modern-bert", "t5encoder")


@pytest.mark.parametrize(("architecture", "config_class", "options"), CASES.values(), ids=CASES)
def test_a_file_is_its_checkpoint(transformers, tmp_path, architecture, config_class, options):
    """Tensors, configuration and numbers. Norms that are stored with one added are rounded."""
    state, config, path = made(transformers, tmp_path / "m.gguf", architecture, config_class, options)
    checkpoint, is_rounded = open_checkpoint(path), architecture in ("gemma2", "gemma3", "qwen3next")
    if config_class not in RENAMED:
        tensors = checkpoint.tensors()
        theirs = {name: tensor for name, tensor in state.items() if not name.startswith("pooler.")}
        assert dict(tensors.shapes) == {name: tensor.shape for name, tensor in theirs.items()}
        for name, tensor in theirs.items():
            np.testing.assert_allclose(tensors[name], tensor, rtol=0, atol=2e-7 if is_rounded else 0)
        check_fields(checkpoint._fields, config)
        if is_rounded:
            as_read = {name: np.ascontiguousarray(tensors[name]) for name in theirs}
            save_file(as_read, tmp_path / "checkpoint" / "model.safetensors")

    ids = np.random.default_rng(2).integers(2, len(TOKENS), (2, 17))
    ours = regard.load(path, dtype=np.float64)
    ours.tokenizer.backend.save(str(tmp_path / "checkpoint" / "tokenizer.json"))
    theirs = regard.load(tmp_path / "checkpoint", dtype=np.float64)
    target = {"target": ids[:, :5]} if architecture == "t5" else {}
    output = "hidden" if architecture in ENCODERS else "logits"
    found, wanted = (getattr(model(ids, **target), output) for model in (ours, theirs))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


RENAMED = ("XLMRobertaConfig", "DistilBertConfig", "MT5Config")  # which are BERTs, and a T5, in a file


def check_fields(ours, config):
    """Check that what is read of a file is what the configuration says."""
    rope = config.get("rope_parameters") or {}
    full, local = rope.get("full_attention", rope), rope.get("sliding_attention", {})
    theirs = config | {"rope_theta": full.get("rope_theta"), "rope_local_base_freq": local.get("rope_theta")}
    theirs |= {"global_rope_theta": full.get("rope_theta"), "local_rope_theta": local.get("rope_theta")}
    theirs |= dict.fromkeys(("partial_rotary_factor", "rotary_pct"), full.get("partial_rotary_factor"))
    theirs |= {"n_positions": config.get("n_positions", 512), "global_attn_every_n_layers": 3}
    theirs["full_attention_interval"] = 4
    if config["model_type"] == "gemma4_text":
        of_full = {int(i): each for i, each in config["per_layer_config"].items()}[config["num_hidden_layers"] - 1]
        heads = of_full.get("num_key_value_heads", config["num_key_value_heads"])
        theirs |= {"global_head_dim": of_full["head_dim"], "num_global_key_value_heads": heads}
    theirs |= {"rotary_emb_base": full.get("rope_theta"), "num_nextn_predict_layers": 0}
    theirs["sliding_window_pattern"] = 4 if config["model_type"] == "cohere2" else 6
    theirs["head_dim"] = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    ours = {name: value for name, value in ours.items() if not name.endswith("_token_id")}
    scaling = ours.pop("rope_scaling", {})
    assert {name: full.get(name) for name in scaling} == scaling
    assert {name: theirs.get(name) for name in ours} == ours
    assert ours["model_type"] == config["model_type"]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2"])
def test_tensors_are_those_that_transformers_reads(transformers, tmp_path, name, kind):
    *_, path = made(transformers, tmp_path / "m.gguf", *CASES[name], kind=kind)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", dtype=torch.float32
    ).state_dict()
    tensors = open_checkpoint(path).tensors()
    for ours in tensors.shapes:
        np.testing.assert_array_equal(tensors[ours], theirs[ours].numpy(), err_msg=ours)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", *gguf_files.SCALES])
def test_blocks_mean_what_transformers_makes_of_them(tmp_path, kind):
    """Its dequantisation in PyTorch is not the library's, which computes ours."""
    from transformers.integrations.gguf import kernels

    from regard.formats.gguf import GgufFile

    array = np.random.default_rng(1).standard_normal((37, 512)).astype(np.float32)
    path = write_gguf(tmp_path / "q.gguf", tensors={"x.weight": array}, kind=kind)
    stored = torch.from_numpy(gguf_files.quantised(array, kind).reshape(37, -1))
    its = gguf.GGMLQuantizationType[kind]
    theirs = kernels.dequantize_blocks(stored, int(its), 37, 512, torch.float32).numpy()
    np.testing.assert_allclose(GgufFile(path)["x.weight"], theirs, rtol=1e-6, atol=1e-9)


# The pretrained model.


@pytest.fixture(scope="module")
def smollm2(transformers, smollm2_file):
    """Return transformers' reading of the file: its tokenizer and its model."""
    folder, name = smollm2_file.parent, smollm2_file.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    return tokenizer, transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)


LOGITS = 2e-3  # of numbers up to 30, by sums of float32 in 30 layers: 600 roundings
PROMPTS = (
    "The capital of France is", "Once upon a time, in a village by the sea,", "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8,", "Le chat est assis sur",
)  # fmt: skip


@pytest.mark.smollm2
@pytest.mark.parametrize("prompt", sweep_after(2, PROMPTS))
def test_smollm2_says_what_it_says_in_transformers(smollm2, our_smollm2, prompt):
    _, model = smollm2
    encoding = our_smollm2.tokenizer(prompt)
    said = list(our_smollm2.generate(encoding, max_new_tokens=64).ids)
    whole = [*encoding.ids, *said]
    with torch.no_grad():
        logits = model(torch.tensor([whole])).logits.numpy()
    np.testing.assert_allclose(our_smollm2(whole).logits, logits, rtol=0, atol=LOGITS)
    # Each token is the likeliest there too, but where two are as near as the logits are known.
    before = logits[0, len(encoding.ids) - 1 : -1]
    chosen = np.take_along_axis(before, np.array(said)[:, None], 1)[:, 0]
    assert (chosen >= before.max(1) - 2 * LOGITS).all()
    assert len(said) == 64 or said[-1] == 2


@pytest.mark.smollm2
def test_smollm2_cuts_texts_as_its_original_does(smollm2, our_smollm2):
    """transformers cuts by GPT-2's expression whatever the file says; the original puts digits apart first."""
    from texts import varied_strings
    from tokenizers import pre_tokenizers

    backend = smollm2[0].backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in varied_strings(500):
        assert list(our_smollm2.tokenizer(text).ids) == backend.encode(text).ids, text


@pytest.mark.smollm2
def test_the_chat_of_smollm2_is_written_as_transformers_writes_it(smollm2, our_smollm2):
    tokenizer, _ = smollm2
    messages = [
        {"role": "user", "content": "Hello <|im_end|> \u732b"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": "x" * 50},
    ]
    for chat in (messages, messages[:1], [{"role": "system", "content": "Be brief."}, *messages]):
        theirs = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert our_smollm2.tokenizer.apply_chat_template(chat).text == theirs


# SentencePiece itself.


@pytest.mark.parametrize(
    "options",
    [{}, {"add_dummy_prefix": False}, {"add_dummy_prefix": False, "user_defined_symbols": ["<user>", "the▁c", "▁▁"]}],
)
def test_pieces_are_those_of_sentencepiece(tmp_path, options):
    import sentencepiece
    from texts import TEXTS, varied_strings

    model = tmp_path / "spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:-1] * 3),
        model_prefix=str(model),
        vocab_size=900,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    count = range(theirs.vocab_size())
    kinds = {"is_unknown": 2, "is_control": 3, "is_byte": 6}
    types = [next((kind for name, kind in kinds.items() if getattr(theirs, name)(i)), 1) for i in count]
    pieces = [theirs.id_to_piece(i) for i in count]
    for symbol in options.get("user_defined_symbols", ()):
        at = pieces.index(symbol)
        types[at], pieces[at] = 4, symbol.replace("▁", " ")  # as the converter has it
    ours = SubwordTokenizer.from_gguf(
        gguf_files.as_read(
            {
                **gguf_files.SENTENCEPIECE,
                "tokenizer.ggml.tokens": pieces,
                "tokenizer.ggml.scores": [theirs.get_score(i) for i in count],
                "tokenizer.ggml.token_type": types,
                "tokenizer.ggml.add_bos_token": False,
                "tokenizer.ggml.add_space_prefix": options.get("add_dummy_prefix", True),
            }
        )
    )
    for text in ["", " ", "  a", "a  b", *varied_strings(300)]:
        if "<s>" not in text:
            assert list(ours(text).ids) == theirs.encode(text), text


def test_every_architecture_has_a_case():
    assert {architecture for architecture, *_ in CASES.values()} == ARCHITECTURES.keys()
