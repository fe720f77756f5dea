"""MiniLM in NumPy against transformers on PyTorch: ids equal, vectors and every map within 2e-5."""

import numpy as np
import pytest
import torch
from texts import TEXTS, varied_strings

from regard import Trace

LAYERS, HEADS = 6, 12
TOLERANCE = 2e-5


def theirs(peer, texts):
    tokenizer, model = peer
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    return output.last_hidden_state.numpy(), [a.numpy() for a in output.attentions]


def compare(minilm, peer, texts):
    trace = Trace()
    ours = minilm(texts, trace=trace)
    hidden, maps = theirs(peer, texts)
    assert ours.hidden.shape == hidden.shape
    for entry, encoding in enumerate(ours.encodings):
        length = len(encoding)  # what stands at padding means nothing on either side
        np.testing.assert_allclose(ours.hidden[entry, :length], hidden[entry, :length], rtol=0, atol=TOLERANCE)
        for layer in range(LAYERS):
            weights = trace[f"blocks.{layer}.attn.weights"][entry]
            assert weights.shape[0] == HEADS
            np.testing.assert_allclose(weights[:, :length], maps[layer][entry, :, :length], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_hidden_states_and_all_72_maps(minilm, peer, text):
    compare(minilm, peer, [text])


@pytest.mark.parametrize("batch", [TEXTS[:3], TEXTS[5:12], TEXTS[10:18], [TEXTS[0], TEXTS[-1]]])
def test_batches_with_padding(minilm, peer, batch):
    compare(minilm, peer, batch)


def test_the_texts_reach_from_one_word_to_512_tokens(minilm):
    lengths = [len(minilm.tokenizer(text)) for text in TEXTS]
    assert (len(TEXTS), min(lengths), max(lengths)) == (20, 3, 512)


def test_token_ids_of_200_strings(minilm, peer):
    strings = varied_strings(200)
    assert len(set(strings)) == 200
    for string in strings:
        assert list(minilm.tokenizer(string).ids) == peer[0](string)["input_ids"], string
