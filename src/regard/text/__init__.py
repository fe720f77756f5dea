"""From text to ids and vectors: tokenizers, vocabularies and word vectors. Knows nothing of models."""

from regard._encoding import Encoding
from regard.text._random_embeddings import random_embeddings
from regard.text._subword_tokenizer import SubwordTokenizer
from regard.text._vocabulary import Vocabulary
from regard.text._word_tokenizer import WordTokenizer
from regard.text._word_vectors import WordVectors, read_word_vectors

__all__ = [
    "Encoding",
    "Vocabulary",
    "WordTokenizer",
    "SubwordTokenizer",
    "WordVectors",
    "random_embeddings",
    "read_word_vectors",
]
