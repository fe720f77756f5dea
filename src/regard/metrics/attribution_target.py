"""The number that is attributed: the logit of a next token, a similarity of sentences, or any function of an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from regard import functional as F
from regard._utils.errors import RegardError
from regard._utils.validation import truncate
from regard.models.base import TextModel
from regard.models.batch import OneText, as_encoding, check_tokens
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.predictions import Prediction
from regard.models.sentence import SentenceSettings, sentence_reader
from regard.text.encoding import Encoding
from regard.text.words import join_names

Target: TypeAlias = "str | int | Encoding | Callable[[Any], Any]"
"""A next token as text or as its id; of an encoder another text; or a function from the output to one number."""
Score: TypeAlias = Literal["logit", "log_probability"]
QUANTITIES: Mapping[Score, str] = MappingProxyType({"logit": "logit", "log_probability": "log-probability"})
"""Each score in words."""


_NO_TEXT = Encoding("", (), (), (), (), ())


class AttributedMetric(NamedTuple):
    """A number that a model computes from one text."""

    name: str  # in words: "logit of ' Paris'"
    compute: Callable[[Any], Any]  # of the output for that text alone
    row: int | None  # the token from whose vector it is computed; None: all
    is_largest: bool = False  # a text compared with itself: no other embeddings give more


def attributed_metric(
    model: Any,
    encoding: Encoding,
    to: Target | None,
    versus: str | int | Encoding | None = None,
    score: Score | None = None,
    position: int = -1,
) -> AttributedMetric:
    """Return the number that `to`, `versus` and `position` name; see `regard.metrics.attribute`."""
    if not isinstance(score, str | None) or score not in (None, "logit", "log_probability"):
        raise RegardError(f"score must be logit or log_probability, got {score!r}")
    if score is not None and (callable(to) or not predicts_tokens(model)):
        raise RegardError("score is for a next token: leave it out")
    if position != -1 and (callable(to) or not predicts_at_each_token(model)):
        raise RegardError("position is for the next token of a decoder: leave it out")
    if callable(to):
        if versus is not None:
            raise RegardError("versus is for a token or a text: leave it out where to is a function")
        return AttributedMetric("metric", to, None)
    if not predicts_tokens(model):
        return _similarity(model, encoding, to, versus)
    target = most_probable_token(model, encoding, position).id if to is None else to
    tokens = next_token_pair(model, encoding, target, versus, position)
    names = [repr(model.tokenizer.decode([token], skip_special_tokens=False)) for token in tokens]
    row = _row(encoding, position) if predicts_at_each_token(model) else None

    def compute(output: Any) -> Any:
        logits = output.head(output.hidden[0, -1 if row is None else row])
        if score == "log_probability":
            each = [-F.cross_entropy(logits[None], np.array([token])) for token in tokens]
        else:
            each = [logits[token] for token in tokens]
        return each[0] if len(each) == 1 else each[0] - each[1]

    quantity = QUANTITIES[score or "logit"]
    return AttributedMetric(f"{quantity} of {' minus that of '.join(names)}", compute, row)


def encoding_of(model: Any, text: OneText, to: Any = None) -> Encoding:
    """Return one text as tokens: as `TextModel.embed` reads it, where `to` is a text that it is compared with."""
    if not hasattr(model, "tokenizer"):
        raise RegardError(f"a model of texts is needed, such as smollm2 or minilm, got {truncate(model)}")
    reader = sentence_reader(model) if isinstance(text, str) and compares_texts(model, to) else None
    encoding = as_encoding(text, model.tokenizer) if reader is None else reader.tokenizer(str(text))
    if encoding is None:
        raise RegardError(f"give one text, or one as tokens, got {type(text).__name__}")
    check_tokens([encoding], model.name)
    if reader is not None and len(encoding) > reader.max_length:
        raise RegardError(
            f"a text has {len(encoding)} tokens, but {model.name} embeds at most {reader.max_length}; shorten it"
        )
    return encoding


def compares_texts(model: Any, to: Any) -> bool:
    """Tell whether `to` is a text whose sentence vector is compared: then texts are read as they are embedded."""
    return isinstance(to, str | Encoding) and isinstance(model, TextModel) and not predicts_tokens(model)


def predicts_tokens(model: Any) -> bool:
    """Tell whether a model predicts a next token: then it is the target, otherwise another text is."""
    return getattr(model, "head", None) is not None


def predicts_at_each_token(model: Any) -> bool:
    """Tell whether a model predicts the next token after each token of a text: a decoder does."""
    return predicts_tokens(model) and not isinstance(model, EncoderDecoder)


def require_decoder(model: Any) -> None:
    """Raise RegardError unless a model has logits of the next token for each vector of its residual stream."""
    name = getattr(model, "name", None) or type(model).__name__
    if not isinstance(model, Decoder):
        raise RegardError(
            f"{name} is not a decoder: it has no unembedding that reads its residual stream as a prediction of the "
            "next token; load a decoder, such as smollm2, or compare the vectors, trace['blocks.*.output']"
        )
    model.require_head()


def next_token_ids(model: Any, encodings: Sequence[Encoding], tokens: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return the ids of next tokens, ``B T``: of one token for all, one for each text, or one for each position.

    Tokens with one axis are those of the texts; of a single text, those of its positions.
    """
    token_array = np.array(tokens.tolist() if hasattr(tokens, "tolist") else tokens, dtype=object)
    batch, length = shape
    is_of_texts = token_array.ndim == 1 and (batch > 1 or len(token_array) == 1)
    try:
        cells = np.broadcast_to(token_array[:, None] if is_of_texts else token_array, shape)
    except ValueError:
        raise RegardError(
            f"tokens of shape {token_array.shape} do not fit {batch} texts of {length} positions: give one token, one "
            f"for each text, or an array of shape {shape}"
        ) from None
    is_of_positions = token_array.ndim > 0 and not is_of_texts and token_array.shape[-1] > 1
    ids = np.empty(shape, np.int64)
    text_ids: dict[tuple[str, int, int], int] = {}  # of tokens given as text, by the text and position they follow
    for at in np.ndindex(shape):
        text, position = at
        token: Any = cells[at]
        if not isinstance(token, str):
            ids[at] = next_token_id(model, _NO_TEXT, token)
            continue
        if not encodings:
            raise RegardError("the trace has no texts, after which a token is read: give tokens as ids")
        after = position if is_of_positions and position < len(encodings[text]) else -1
        if (token, text, after) not in text_ids:
            text_ids[token, text, after] = next_token_id(model, encodings[text], token, after)
        ids[at] = text_ids[token, text, after]
    return ids


def token_texts(model: Any, ids: np.ndarray) -> np.ndarray:
    """Return the text of each of many tokens."""
    each, index = np.unique(ids, return_inverse=True)
    texts = [model.tokenizer.decode([i], skip_special_tokens=False) for i in each.tolist()]
    return np.array(texts, dtype=str)[index.reshape(ids.shape)]


def _row(encoding: Encoding, position: int) -> int:
    if not isinstance(position, int | np.integer) or not -len(encoding) <= position < len(encoding):
        raise RegardError(f"there is no token {position!r} to follow: the text has {len(encoding)}, counted from 0")
    return int(position) % len(encoding)


def _similarity(model: Any, encoding: Encoding, to: Any, versus: Any) -> AttributedMetric:
    """Return the cosine similarity of the sentence vector with that of another text, or a difference of two."""
    references = [to] if versus is None else [to, versus]
    if not all(isinstance(text, Encoding) or (isinstance(text, str) and text.split()) for text in references):
        raise RegardError(f"{model.name} predicts no token: give a text to compare with, got {to!r}")
    texts = [encoding_of(model, text, to) for text in references]
    if len(texts) == 2 and texts[0].ids == texts[1].ids:
        raise RegardError("to and versus are the same text: their difference is 0; give another versus")
    settings: SentenceSettings = getattr(model, "sentence", SentenceSettings())
    says = settings.pooling is not None or settings.problem is not None
    pooling = replace(settings.chosen_pooling(None if says else "mean", model.name), normalize=False)

    reader = None if pooling.include_prompt else sentence_reader(model)

    def vector(hidden: Any, text: Encoding) -> Any:
        pooled = pooling(hidden, 0 if reader is None else reader.prompt_tokens(text))
        return pooled / np.sqrt((pooled * pooled).sum())

    others = [vector(model(text).hidden[0], text) for text in texts]
    direction = others[0] if len(others) == 1 else others[0] - others[1]
    names = [repr(text if isinstance(text, str) else text.text) for text in references]
    name = f"similarity to {' minus that to '.join(names)}"
    is_largest = versus is None and texts[0].ids == encoding.ids
    return AttributedMetric(
        name, lambda output: (vector(output.hidden[0], output.encodings[0]) * direction).sum(), None, is_largest
    )


def next_token_id(model: Any, encoding: Encoding, token: Any, position: int = -1) -> int:
    """Return the id of a next token; a text must be one token where it follows the token at `position` of a text."""
    if isinstance(token, int | np.integer) and not isinstance(token, bool):
        if not 0 <= token < model.config.vocab_size:
            raise RegardError(f"there is no token {token}: {model.name} has {model.config.vocab_size:,}")
        return int(token)
    if not isinstance(token, str) or not token:
        raise RegardError(f"give a next token as text or as its id, got {token!r}")
    row = _row(encoding, position)
    text = encoding.text if row == len(encoding) - 1 else encoding.text[: encoding.offsets[row][1]]
    after = None if isinstance(model, EncoderDecoder) else _text_ids(model, text + token)
    before = _text_ids(model, text) if text else ()
    follows = after is not None and after[: len(before)] == before
    ids = after[len(before) :] if follows and after is not None else _text_ids(model, token)
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise RegardError(f"{model.name} has no token for {token!r}: choose a text that is one token")
    pieces = join_names([repr(model.tokenizer.decode([each])) for each in ids])
    hint = "" if token.startswith(" ") else f"; a word after a text begins with a space, {' ' + token!r}"
    raise RegardError(f"{token!r} is {len(ids)} tokens of {model.name}, {pieces}: choose one token{hint}")


def next_token_pair(model: Any, encoding: Encoding, to: Any, versus: Any, position: int = -1) -> list[int]:
    """Return the id of a next token, see `next_token_id`, and that of another if there is one."""
    ids = [next_token_id(model, encoding, to, position)]
    if versus is not None:
        ids.append(next_token_id(model, encoding, versus, position))
        if ids[0] == ids[1]:
            name = model.tokenizer.decode(ids[:1], skip_special_tokens=False)
            raise RegardError(f"to and versus are the same token, {name!r}: their difference is 0; give another versus")
    return ids


class Spelling(NamedTuple):
    """Two tokens that differ in the space before them, with the probability that each comes next."""

    token: str
    other: str
    probability: float
    other_probability: float


def likelier_spelling(model: Any, encoding: Encoding, token: Any) -> Spelling | None:
    """Return the same word with a space before it, or without, where that is one token and likelier; None otherwise."""
    if not isinstance(token, str) or not predicts_tokens(model):
        return None
    other = token[1:] if token.startswith(" ") else f" {token}"
    try:
        ids = [next_token_id(model, encoding, each) for each in (token, other)]
    except RegardError:
        return None  # several tokens, or none
    probability, likelier = _next_probabilities(model, encoding)[ids]
    return Spelling(token, other, float(probability), float(likelier)) if likelier > probability else None


def most_probable_token(model: Any, encoding: Encoding, position: int = -1) -> Prediction:
    """Return the token that a language model predicts after that at `position`, of those that its tokenizer has."""
    probabilities, ids = _next_probabilities(model, encoding, position), model.tokenizer.token_ids
    ids = ids[ids < len(probabilities)]
    token = int(ids[np.argmax(probabilities[ids])])
    text = model.tokenizer.decode([token], skip_special_tokens=False)
    return Prediction(text, token, float(probabilities[token]))


def _next_probabilities(model: Any, encoding: Encoding, position: int = -1) -> np.ndarray:
    """Return the probability of each token to follow that at `position`, ``V``."""
    row, output = _row(encoding, position) if position != -1 else -1, model([encoding])
    return np.asarray(F.softmax(output.head(output.hidden[0, row]).astype(np.float64)))


def _text_ids(model: Any, text: str) -> tuple[int, ...]:
    """Return the tokens of a text without special tokens."""
    encoding = model.tokenizer(text)
    return tuple(i for i, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True) if not special)
