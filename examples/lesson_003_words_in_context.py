"""Lesson 003: text, embeddings, contextual vectors, a picture of their movement, and the two senses of "bank".

The first part has random weights, as in the lesson. The second is the lesson's example with a pretrained model, MiniLM,
which `regard.load` finds on this machine or downloads once: "bank" has one embedding, and a contextual vector in each
sentence that is nearer to those of the same sense.

New in regard: tokens and rows always agree, initial weights small enough that no softmax row saturates, one plane for
original and contextual vectors, and real models. Pictures go to the folder in the argument, or to a temporary one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import regard
from regard import Trace, nn
from regard.plot import movement, save
from regard.text import Vocabulary, WordTokenizer
from regard.views import word_similarities

VOCABULARY = Vocabulary.from_mapping({"the": 0, "cat": 1, "sat": 2, "on": 3, "mat": 4})
RIVER = (
    "They sat on the bank of the river and watched the water.",
    "The fisherman walked along the muddy bank to his boat.",
    "Willow trees grow on the left bank of the stream.",
)
MONEY = (
    "She opened a savings account at the bank in town.",
    "The bank approved his loan at a low interest rate.",
    "He went to the bank to deposit his salary.",
)


def random_weights(pictures: Path) -> None:
    """Compute the contextual vectors of the lesson's sentence, and draw the movement of each word."""
    rng = np.random.default_rng(3)
    encoding = WordTokenizer(VOCABULARY)("The cat sat on the mat")
    table = nn.Embedding.init(rng, len(VOCABULARY), 128)
    embeddings = table(np.array([encoding.ids]))  # B T E
    contextual = nn.SelfAttention.init(rng, 128, num_heads=4)(embeddings)
    print("embeddings:", embeddings.shape, " contextual embeddings:", contextual.shape)
    save(movement(embeddings[0], contextual[0], encoding).figure, pictures / "cat.svg")

    unknown = WordTokenizer(VOCABULARY, unknown="drop")("The dog sat on the mat")
    print("without the unknown dog:", len(unknown.tokens), "tokens and", len(table(np.array(unknown.ids))), "rows")


def learned_weights(pictures: Path) -> None:
    """Compare the vectors of "bank" in all pairs of sentences."""
    model = regard.load("minilm")
    traces = []
    for sentence in RIVER + MONEY:
        traces.append(Trace(only=["token_embeddings", "blocks.*.output"]))
        model(sentence, trace=traces[-1])

    (_, original), *_, (_, contextual) = word_similarities(traces[0], traces[-1], "bank")
    print(f"\nTwo banks: cosine similarity {original:.3f} before the model and {contextual:.3f} after it")

    similarity = np.array([[word_similarities(one, other, "bank")[-1][1] for other in traces] for one in traces])
    np.fill_diagonal(similarity, np.nan)  # of a sentence with itself
    print("\nriver  money  mean similarity of the contextual bank to the others by the river and in town")
    for sentence, row in zip(RIVER + MONEY, similarity, strict=True):
        print(f"{np.nanmean(row[:3]):.3f}  {np.nanmean(row[3:]):.3f}  {sentence}")
    save(movement([traces[0], traces[-1]], merge_subwords=True, highlight="bank").figure, pictures / "bank.svg")


def main() -> None:
    """Run both parts; the first needs no model."""
    pictures = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="regard-"))
    pictures.mkdir(parents=True, exist_ok=True)
    random_weights(pictures)
    try:
        learned_weights(pictures)
    except regard.RegardError as error:
        sys.exit(f"The second part needs the model: {error}")
    print(f"\nPictures: {pictures / 'cat.svg'} and {pictures / 'bank.svg'}")


if __name__ == "__main__":
    main()
