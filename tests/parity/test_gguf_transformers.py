"""GGUF files beside transformers' own reading of them, and beside the checkpoints that they were made from."""

from __future__ import annotations

import functools

import gguf
import numpy as np
import pytest
import torch

import gguf_files
import regard
from gguf_files import TOKENS, fields_from, from_hugging_face, write_gguf
from regard.models.checkpoint.gguf_architectures import ARCHITECTURES
from regard.models.checkpoint.open import open_checkpoint
from regard.text import SubwordTokenizer
from sweeps import sweep_after

SIZES = {
    "vocab_size": len(TOKENS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 19,
}  # fmt: skip
# Whatever the file says, transformers takes heads of qwen3 to be 128 wide, and gpt2 to have 1024 positions and a
# feed-forward of four times the embeddings: so they are here.
CASES = {
    "llama": ("llama", "LlamaConfig", {}),
    "llama, biases, heads of another width, own head": (
        "llama", "LlamaConfig",
        {"attention_bias": True, "mlp_bias": True, "head_dim": 12, "tie_word_embeddings": False, "rms_norm_eps": 1e-6},
    ),
    "qwen2": ("qwen2", "Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", "Qwen3Config", {"head_dim": 128, "tie_word_embeddings": False}),
    "gemma2": ("gemma2", "Gemma2Config", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}),
    "gemma3": (
        "gemma3", "Gemma3TextConfig",
        {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5, "num_hidden_layers": 7},
    ),
    "smollm3": ("smollm3", "SmolLM3Config", {"num_hidden_layers": 5, "pad_token_id": 0}),
    "olmo2": ("olmo2", "Olmo2Config", {"tie_word_embeddings": False}),
    "gpt2": ("gpt2", "GPT2Config", {}),
    "gpt-oss": (
        "gpt-oss", "GptOssConfig",
        {"head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Let a file be parsed once, and the names of an architecture be made once: transformers asks for each again."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
        yield


def made(transformers, path, architecture, config_class, options, **how):
    """Return a random model of transformers, and the GGUF file of it."""
    torch.manual_seed(7)
    sizes = {name: size for name, size in SIZES.items() if architecture != "gpt2" or name == "vocab_size"}
    if architecture == "gpt2":
        sizes |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024, "n_inner": 128}
    config = getattr(transformers, config_class)(**sizes | options)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = from_hugging_face(state, architecture, config.to_dict())
    return model, write_gguf(path, architecture, fields_from(config.to_dict()), tensors, **how)


@pytest.mark.parametrize(("architecture", "config_class", "options"), CASES.values(), ids=CASES)
def test_a_file_is_its_checkpoint(transformers, tmp_path, architecture, config_class, options):
    """Tensors, configuration and logits. The norms of Gemma are stored with one added, which rounds them."""
    model, path = made(transformers, tmp_path / "m.gguf", architecture, config_class, options)
    checkpoint, is_rounded = open_checkpoint(path), architecture in ("gemma2", "gemma3")
    tensors, theirs = checkpoint.tensors(), {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del theirs["lm_head.weight"]
    assert dict(tensors.shapes) == {name: tensor.shape for name, tensor in theirs.items()}
    for name, tensor in theirs.items():
        np.testing.assert_allclose(tensors[name], tensor, rtol=0, atol=2e-7 if is_rounded else 0)

    theirs = model.config.to_dict()
    rope = theirs.get("rope_parameters") or {}
    theirs |= {"rope_theta": rope.get("full_attention", rope).get("rope_theta")}
    theirs |= {"rope_local_base_freq": rope.get("sliding_attention", {}).get("rope_theta")}
    ours = {name: value for name, value in checkpoint._fields.items() if not name.endswith("_token_id")}
    ours.pop("rope_scaling", None)
    assert {name: theirs.get(name) for name in ours} == ours
    assert ours["model_type"] == model.config.model_type

    ids = np.random.default_rng(2).integers(0, len(TOKENS), (2, 17))
    ours = regard.load(path, dtype=np.float64)
    (tmp_path / "checkpoint").mkdir()
    model.save_pretrained(tmp_path / "checkpoint")
    ours.tokenizer.backend.save(str(tmp_path / "checkpoint" / "tokenizer.json"))
    theirs = regard.load(tmp_path / "checkpoint", dtype=np.float64)
    np.testing.assert_allclose(ours(ids).logits, theirs(ids).logits, rtol=0, atol=2e-5 if is_rounded else 1e-12)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2"])
def test_tensors_are_those_that_transformers_reads(transformers, tmp_path, name, kind):
    _, path = made(transformers, tmp_path / "m.gguf", *CASES[name], kind=kind)
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
