"""Published models: ids, hidden states and sentence vectors of transformers and sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
from texts import TEXTS, varied_strings

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
