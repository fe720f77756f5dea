"""Published models: ids, hidden states and sentence vectors of transformers and sentence-transformers."""

from __future__ import annotations

import unicodedata
from functools import partial

import numpy as np
import pytest
from texts import TEXTS, varied_strings

import golden
import regard
from regard.text import SubwordTokenizer

LONG = "The committee met on Tuesday to discuss the budget of the school, and agreed to repair the roof first. " * 30
SENTENCES = [*TEXTS[:20], LONG, "", "é"]


@pytest.fixture(params=["minilm_published", "mpnet_published", "splade"])
def published(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["minilm_published", "mpnet_published"])
def sentence_model(request):
    return request.getfixturevalue(request.param)


def test_the_ids_of_transformers(published):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(published)
    ours = SubwordTokenizer.from_folder(published)
    for text in varied_strings(500):
        assert list(ours(text).ids) == theirs(text)["input_ids"], text


def test_the_hidden_states_of_transformers(published):
    import torch
    import transformers

    theirs = transformers.AutoModel.from_pretrained(published, attn_implementation="eager").eval()
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(published), regard.load(published)
    for text in [*TEXTS[:10], LONG[:1500]]:
        with torch.no_grad():
            wanted = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state.numpy()
        np.testing.assert_allclose(ours(text).hidden, wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())


def test_the_numbers_of_an_onnx_graph(paraphrase_published):
    from onnx.reference import ReferenceEvaluator

    graph = ReferenceEvaluator(str(next(paraphrase_published.glob("*.onnx"))))
    ours = regard.load(paraphrase_published)
    for text in [*TEXTS[:10], LONG[:400]]:
        ids = np.array([ours.tokenizer(text).ids])
        outputs = graph.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        (hidden,), (vector,) = ([x for x in outputs if x.shape == shape] for shape in ((*ids.shape, 384), (1, 384)))
        np.testing.assert_allclose(ours(text).hidden, hidden, atol=2e-5 * np.abs(hidden).max())
        np.testing.assert_allclose(ours(text).hidden.mean(1), vector, atol=2e-5 * np.abs(vector).max())


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("gemma_published", str),
        ("qwen_published", partial(unicodedata.normalize, "NFC")),
    ],  # as its tokenizer.json has it
)
def test_a_quantised_file_as_transformers_widens_it(name, written, request):
    import torch
    import transformers

    file = request.getfixturevalue(name)
    of_file = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(**of_file), regard.load(file)
    for text in varied_strings(300):
        assert list(ours.tokenizer(text).ids) == tokenizer(written(text))["input_ids"], text
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        **of_file, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for text in (*TEXTS[:3], LONG[:1500]):
        ids, trace = ours.tokenizer(text).ids, regard.Trace(only=("*.weights", "*.output"))
        with torch.no_grad():
            wanted = theirs(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
        logits = ours(text, trace=trace).logits
        np.testing.assert_allclose(logits, wanted.logits, atol=1e-4 * wanted.logits.abs().max())
        assert (logits.argmax(-1) == wanted.logits.numpy().argmax(-1)).all()
        for layer, weights in enumerate(wanted.attentions):
            np.testing.assert_allclose(trace[f"blocks.{layer}.attn.weights"], weights, atol=2e-3)
        for layer, hidden in enumerate(wanted.hidden_states[1:-1]):  # the last is after the final norm
            np.testing.assert_allclose(trace[f"blocks.{layer}.output"], hidden, atol=2e-4 * hidden.abs().max())
        greedy = theirs.generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False)[0, len(ids) :]
        assert golden.continued(ours, ids, 32) == greedy.tolist()


def test_the_vectors_of_sentence_transformers(sentence_model):
    from sentence_transformers import SentenceTransformer

    texts = [text for text in SENTENCES if text]
    theirs = SentenceTransformer(str(sentence_model), device="cpu").encode(texts)
    ours = regard.load(sentence_model).embed(texts, truncate=True)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_the_ids_of_clip(clip_vocabulary):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(clip_vocabulary)
    ours = SubwordTokenizer.from_folder(clip_vocabulary)
    assert ours("a photo of a cat").ids == (49406, 320, 1125, 539, 320, 2368, 49407)  # as OpenAI's code has them
    for text in varied_strings(500):
        assert list(ours(text).ids) == theirs(text)["input_ids"], text


def test_what_clip_reads_is_written_again(clip_vocabulary):
    ours = SubwordTokenizer.from_folder(clip_vocabulary)
    assert ours.decode(ours("a photo of the Cat").ids) == "a photo of the cat"
