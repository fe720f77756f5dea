"""A vector has the same bits whatever runs beside it; docs/kernel.md says in which models."""

from __future__ import annotations

import numpy as np
import pytest

import gguf_files
import regard
from sweeps import sweep_after

tiny_decoder = pytest.importorskip("tiny_decoder")  # writes a tokenizer, of whose library 3.15t has no wheel

BATCHES = ((1, 8, 1), (2, 3, -1), (3, 8, -1), (4, 5, 1), (4, 1, 1))  # threads, texts in a batch, order
DECODERS = ["induction", "llama", "quantised"]


@pytest.fixture(autouse=True)
def promised(instruction_set):
    if instruction_set in ("NEON", "generic"):
        pytest.skip("not promised")


def load(name, folder, instruction_set):
    if name == "quantised":
        if instruction_set != "AVX-512 VNNI":
            pytest.skip("promised with VNNI")
        words = len(gguf_files.SENTENCEPIECE["tokenizer.ggml.tokens"])
        embedding = np.random.default_rng(1).standard_normal((words, 32)).astype(np.float32)
        fields = gguf_files.LLAMA | {"context_length": 64, "vocab_size": words}
        tensors = gguf_files.llama_tensors() | {"token_embd.weight": embedding}
        file = gguf_files.write_gguf(
            folder / "llama.gguf", "llama", fields, tensors, metadata=gguf_files.SENTENCEPIECE, kind="Q4_0"
        )
        return regard.load(file)
    if name != "llama":
        return regard.load(name)
    sizes = {"hidden_size": 96, "intermediate_size": 256, "head_dim": 16, "num_hidden_layers": 3}
    return regard.load(
        tiny_decoder.write(folder / "llama", sizes | {"max_position_embeddings": 64}, tiny_decoder.tensors(**sizes))
    )


def encodings(model, count):
    rng = np.random.default_rng(0)
    lengths = [3, 1, 12, 7, 25, 7, 2, 17, *rng.integers(1, 26, count)][:count]
    return [model.tokenizer.from_ids(rng.integers(5, 45, n).tolist()) for n in lengths]


def in_batches(texts, compute, threads):
    """Yield what `compute` returns for each text, in batches of several sizes and orders, on 1 to 4 threads."""
    for count, size, step in BATCHES:
        threads(count)
        order = list(range(len(texts)))[::step]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            for i, result in zip(batch, compute([texts[i] for i in batch]), strict=True):
                yield i, result, (count, size)


@pytest.mark.parametrize("count", sweep_after(1, [8, 1000]))
@pytest.mark.parametrize("name", ["minilm", *DECODERS])
def test_a_vector_has_the_same_bits_in_any_batch_order_padding_and_on_any_threads(
    tmp_path, threads, instruction_set, name, count
):
    model = load(name, tmp_path, instruction_set)

    def bits(batch):
        output = model(batch)
        values = (output.hidden, output.logits) if name in DECODERS else (output.hidden,)
        return [[x[i, : len(text)].tobytes() for x in values] for i, text in enumerate(batch)]

    texts = encodings(model, count)
    threads(1)
    alone = [bits([text])[0] for text in texts]
    for i, result, how in in_batches(texts, bits, threads):
        assert result == alone[i], (i, how)


@pytest.mark.parametrize("count", [129, 300])
def test_in_fixed_point_a_token_has_the_same_bits_beside_many(tmp_path, instruction_set, count):
    model = load("quantised", tmp_path, instruction_set)
    ids = np.arange(count)[:, None] % 40
    whole = model.forward(ids)
    for i in (0, 63, 64, 100, 127, 128, count - 1):
        np.testing.assert_array_equal(model.forward(ids[i : i + 1])[0], whole[i])


@pytest.mark.parametrize("count", sweep_after(1, [5, 1000]))
def test_a_sentence_vector_has_the_same_bits_in_any_batch_and_on_any_threads(threads, count):
    model = regard.load("minilm")
    texts = ["A cat.", "yes", "one two three four five six", "The dog sat on the mat and looked at the moon.", "x y"]
    texts += [f"{text} {i}" for i in range(count // len(texts)) for text in texts]
    threads(1)
    alone = [model.embed([text])[0].tobytes() for text in texts[:count]]
    for number, size in ((1, 5), (2, 2), (3, 5), (4, 4)):
        threads(number)
        vectors = [vector.tobytes() for vector in model.embed(texts[:count], batch_size=size)]
        assert vectors == alone, (number, size)


@pytest.mark.parametrize("count", sweep_after(1, [5, 50]))
@pytest.mark.parametrize("name", DECODERS)
def test_a_text_continues_in_any_batch_order_and_on_any_threads_as_alone(
    tmp_path, threads, instruction_set, name, count
):
    model = load(name, tmp_path, instruction_set)

    def continued(batch):
        return [generated.ids for generated in model.generate(batch, max_new_tokens=8)]

    texts = encodings(model, count)
    threads(1)
    alone = [continued([text])[0] for text in texts]
    assert len(set(alone)) > 1
    for i, result, how in in_batches(texts, continued, threads):
        assert result == alone[i], (i, how)
