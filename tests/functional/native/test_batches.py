"""A vector has the same bits whatever runs beside it; docs/kernel.md says in which models."""

from __future__ import annotations

import pytest

import regard


@pytest.mark.parametrize("name", ["minilm", "induction"])
def test_a_vector_has_the_same_bits_in_any_batch_order_padding_and_on_any_threads(instruction_set, threads, name):
    if instruction_set not in ("AVX-512", "AVX2"):
        return  # not promised
    model = regard.load(name)
    ids = [[5 + (7 * i + 3 * n) % 40 for i in range(n)] for n in (3, 1, 12, 7, 25, 7, 2, 17)]
    texts = [model.tokenizer.from_ids(each) for each in ids]
    threads(1)
    alone = [model(text).hidden[0].tobytes() for text in texts]
    for count, size, step in ((1, 8, 1), (2, 3, -1), (3, 8, -1), (4, 5, 1), (4, 1, 1)):
        threads(count)
        order = list(range(len(texts)))[::step]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            hidden = model([texts[i] for i in batch]).hidden
            for i, row in zip(batch, hidden, strict=True):
                assert row[: len(ids[i])].tobytes() == alone[i], (i, count, size)


def test_a_sentence_vector_has_the_same_bits_in_any_batch_and_on_any_threads(instruction_set, threads):
    if instruction_set not in ("AVX-512", "AVX2"):
        return  # not promised
    model = regard.load("minilm")
    texts = ["A cat.", "yes", "one two three four five six", "The dog sat on the mat and looked at the moon.", "x y"]
    threads(1)
    alone = [model.embed([text])[0].tobytes() for text in texts]
    for count, size in ((1, 5), (2, 2), (3, 5), (4, 4)):
        threads(count)
        assert [vector.tobytes() for vector in model.embed(texts, batch_size=size)] == alone, (count, size)
