"""From text to ids and vectors: tokenizers, vocabularies, word vectors, chat templates."""

from regard.text.encoding import Encoding
from regard.text.random_embeddings import random_embeddings
from regard.text.subword_tokenizer import SubwordTokenizer
from regard.text.vocabulary import Vocabulary
from regard.text.word_tokenizer import WordTokenizer
from regard.text.word_vectors import WordVectors, read_word_vectors

__all__ = [
    "Encoding",
    "Vocabulary",
    "WordTokenizer",
    "SubwordTokenizer",
    "WordVectors",
    "random_embeddings",
    "read_word_vectors",
]
