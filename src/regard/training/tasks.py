"""Problems to train small models on, which need no download: each batch is drawn from a seed and its number."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import whole_number
from regard.text import SubwordTokenizer
from regard.text.subword_tokenizer import MASKS
from regard.text.words import join_names
from regard.training.batches import IGNORED, Batch
from regard.training.masked_words import mask_words
from regard.training.tokenizers import (
    MASK,
    PAD,
    UNKNOWN,
    byte_pair_tokenizer,
    character_tokenizer,
    word_tokenizer,
)
from regard.training.trainable import Trainable, new_model

_HELD_OUT = 1 << 32  # the first number of batches that are never trained on
_LETTERS = string.ascii_lowercase
_SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits + "."
_OPEN, _CLOSE = "([{<", ")]}>"
_PRIME = 59  # of modular addition


@dataclass(frozen=True)
class Task:
    """A problem, with a model for it and how it is trained.

    Parameters
    ----------
    name, summary : str
    tokenizer : SubwordTokenizer
    config : mapping, optional
        Of the model, as config.json has it, without the size of the vocabulary; None: it is for a loaded one.
    draw : function
        From a generator and whether the batch is held out to a batch.
    options : mapping
        Arguments of `train`, ``steps`` among them.
    embedding_std : float, optional
        The standard deviation of the token embedding of a new model, as `new_model` takes it.
    """

    name: str
    summary: str
    tokenizer: SubwordTokenizer = field(repr=False)
    config: Mapping[str, Any] | None
    draw: Callable[[np.random.Generator, bool], Batch] = field(repr=False)
    options: Mapping[str, Any]
    embedding_std: float | None = None

    def new_model(self, seed: int = 0) -> Trainable:
        """Draw a model for it; an error if it is for a loaded one."""
        if self.config is None:
            raise RegardError(f"the task {self.name} is for a loaded model")
        config = {**self.config, "vocab_size": _num_rows(self.tokenizer), "pad_token_id": self.tokenizer.pad_id}
        return new_model(
            config,
            self.tokenizer,
            seed=seed,
            name=f"{self.name}, seed {seed}",
            embedding_std=self.embedding_std,
        )

    def batches(self, seed: int = 0) -> Callable[[int], Batch]:
        """Return the function from the number of a batch to the batch."""
        seed = whole_number("seed", seed, 0)
        return lambda number: self.draw(np.random.default_rng([seed, number]), False)

    def example(self) -> str | None:
        """Return the beginning of a held-out sequence, for a trained model to continue; None of a task of texts.

        Examples
        --------
        >>> make_task("reverse").example()
        'laktpphyedee='
        """
        batch = self.held_out(1)[0]
        (predicted,) = np.nonzero(batch.targets[0] != IGNORED)
        return self.tokenizer.decode(batch.ids[0, : predicted[0] + 1]) if predicted[0] else None

    def held_out(self, count: int = 4) -> list[Batch]:
        """Return batches that are never trained on."""
        return [self.draw(np.random.default_rng([0, _HELD_OUT + number]), True) for number in range(count)]


def make_task(name: str, *, batch_size: int = 64) -> Task:
    """Return a task by its name in `TASKS`.

    Examples
    --------
    >>> task = make_task("reverse", batch_size=1)
    >>> batch = task.batches(seed=3)(0)
    >>> "".join(task.tokenizer.from_ids(batch.ids[0]).tokens)
    'cegeuwpbcil=licbpwuege'
    """
    if name not in TASKS:
        raise RegardError(f"no task {name!r}; the tasks are {', '.join(TASKS)}")
    return TASKS[name](whole_number("batch_size", batch_size, 1))


def repeated_sequences(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Return sequences of distinct random symbols, each repeated once: ids ``count 2·length``."""
    drawn = rng.random((count, len(_SYMBOLS))).argsort(-1)[:, :length]
    return np.concatenate([drawn, drawn], -1)


def _induction(batch_size: int) -> Task:
    def draw(rng: np.random.Generator, _: bool) -> Batch:
        length = int(rng.integers(6, 25))
        ids = repeated_sequences(rng, batch_size, length)
        targets = np.where(np.arange(2 * length) > length, ids, IGNORED)  # the first of the second half cannot be known
        return Batch(ids[:, :-1], targets[:, 1:])

    config = {
        "model_type": "llama", "hidden_size": 128, "intermediate_size": 0, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    }  # fmt: skip
    options = {"steps": 400, "learning_rate": 5e-3, "warmup": 100}
    return Task(
        "induction",
        "continue the repetition of a random sequence",
        character_tokenizer(_SYMBOLS),
        config,
        draw,
        options,
        # With a smaller one, what the first layer adds drowns the embedding: heads form later, and share the work.
        embedding_std=1.0,
    )


def _answered(
    name: str, summary: str, characters: str, answer: Callable[[np.random.Generator, int], tuple[str, str]], steps: int
) -> Callable[[int], Task]:
    """Return a task of questions and answers, of which the answer is learned."""

    def make(batch_size: int) -> Task:
        id_of = {sign: i for i, sign in enumerate(characters)}
        pad = len(characters)

        def draw(rng: np.random.Generator, _: bool) -> Batch:
            rows = [answer(rng, int(rng.integers(4, 13))) for _ in range(batch_size)]
            width = max(len(question) + 1 + len(reply) for question, reply in rows)
            ids, targets = np.full((batch_size, width), pad), np.full((batch_size, width), IGNORED)
            for row, target, (question, reply) in zip(ids, targets, rows, strict=True):
                text = [id_of[sign] for sign in f"{question}={reply}"]
                row[: len(text)] = text
                target[len(question) + 1 : len(text)] = text[len(question) + 1 :]
            return Batch(ids[:, :-1], targets[:, 1:])

        options = {"steps": steps, "learning_rate": 1e-3, "warmup": 100}
        return Task(name, summary, character_tokenizer(characters), _gpt(2, 128, 4, 64), draw, options)

    return make


def _reverse(rng: np.random.Generator, length: int) -> tuple[str, str]:
    drawn = "".join(rng.choice(list(_LETTERS), length))
    return drawn, drawn[::-1]


def _sort(rng: np.random.Generator, length: int) -> tuple[str, str]:
    drawn = "".join(rng.choice(list(_LETTERS), length))
    return drawn, "".join(sorted(drawn))


def _brackets(rng: np.random.Generator, length: int) -> tuple[str, str]:
    text, opened = "", list[int]()
    while len(text) < 2 * length:
        if opened and rng.random() < 0.4:
            text += _CLOSE[opened.pop()]
        else:
            opened.append(int(rng.integers(len(_OPEN))))
            text += _OPEN[opened[-1]]
    return text, "".join(_CLOSE[kind] for kind in reversed(opened)) + "."


def _addition(batch_size: int) -> Task:
    pairs = np.random.default_rng(0).permutation(_PRIME**2)
    plus, equals = _PRIME, _PRIME + 1

    def draw(rng: np.random.Generator, is_held_out: bool) -> Batch:
        num_train = 2 * len(pairs) // 5
        split = pairs[num_train:] if is_held_out else pairs[:num_train]
        a, b = np.divmod(rng.choice(split, batch_size, replace=batch_size > len(split)), _PRIME)
        ids = np.stack([a, np.full_like(a, plus), b, np.full_like(a, equals)], -1)
        targets = np.full(ids.shape, IGNORED)
        targets[:, -1] = (a + b) % _PRIME
        return Batch(ids, targets)

    words = [*map(str, range(_PRIME)), "+", "="]
    options = {
        "steps": 2000, "learning_rate": 1e-3, "warmup": 10, "weight_decay": 1.0, "schedule": "constant",
        "betas": (0.9, 0.98),
    }  # fmt: skip
    return Task(
        "addition",
        f"a + b modulo {_PRIME}, from two fifths of the sums",
        word_tokenizer(words),
        _gpt(1, 128, 4, 8),
        draw,
        options,
    )


TASKS: Mapping[str, Callable[[int], Task]] = MappingProxyType(
    {
        "induction": _induction,
        "reverse": _answered("reverse", "write a word backwards", f"{_LETTERS}=", _reverse, 1500),
        "sort": _answered("sort", "sort the letters of a word", f"{_LETTERS}=", _sort, 1500),
        "brackets": _answered("brackets", "close the open brackets", f"{_OPEN}{_CLOSE}=.", _brackets, 1500),
        "addition": lambda batch_size: _addition(8 * batch_size),
    }
)
"""The tasks by name: functions from the size of a batch."""


def text_task(
    text: str,
    *,
    bpe: int | None = None,
    masked: bool = False,
    pairs: bool = False,
    batch_size: int = 32,
    context: int = 64,
    tokenizer: SubwordTokenizer | None = None,
) -> Task:
    """Return the task to continue a text, for a GPT, to fill in what is masked in it, for a BERT, or to continue pairs.

    The last tenth of the text is held out. Sequences of the latter two have the special tokens at their ends.

    Parameters
    ----------
    text : str
    bpe : int, optional
        The size of a vocabulary of byte pairs that is learned from the text; characters by default.
    masked : bool
        Mask 15% of the tokens: of these 80% become the mask, 10% another token, 10% stay.
    pairs : bool
        Cut each sequence in two, the source and the target of an encoder-decoder.
    context : int
        Tokens of a sequence.
    tokenizer : SubwordTokenizer, optional
        That of a loaded model, which is trained on; `pairs` needs one.

    Raises
    ------
    RegardError
        The text is too short, or has characters that the tokenizer would leave out; or an argument is invalid.

    References
    ----------
    Devlin et al. (2018), "BERT", https://arxiv.org/abs/1810.04805, section 3.1, for the masks; Raffel et al. (2019),
    https://arxiv.org/abs/1910.10683, section 3.2.1, for a prefix as the source.
    """
    if pairs and (masked or tokenizer is None):
        raise RegardError("pairs are for a loaded encoder-decoder: give its tokenizer, and no masks")
    batch_size, context = whole_number("batch_size", batch_size, 1), whole_number("context", context, 1)
    special = (PAD, MASK) if masked else (PAD,)
    if tokenizer is not None:
        _check_characters(text, tokenizer)
    elif bpe is None:
        tokenizer = character_tokenizer(sorted(set(text)), (*special, UNKNOWN))
    else:
        tokenizer = byte_pair_tokenizer(text, bpe, special)
    encoding = tokenizer(text)
    start, ids, end = _without_ends(encoding) if masked or pairs else ([], np.array(encoding.ids, np.int64), [])
    inner = context - len(start) - len(end)  # tokens of the text in a sequence
    parts = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    if inner < 2 or len(parts[1]) <= inner:
        raise RegardError(
            f"the text has {len(ids)} tokens; a context of {context} needs more than {10 * (max(inner, 2) + 1)}: "
            "give a longer text or a shorter context, --context on the command line"
        )
    mask_id = tokenizer.mask_id
    if masked and mask_id is None:
        raise RegardError(f"the tokenizer has no mask, {' or '.join(MASKS)}")

    def windows(rng: np.random.Generator, part: np.ndarray, length: int) -> np.ndarray:
        starts = rng.integers(0, len(part) - inner, (batch_size, 1))
        sampled: np.ndarray = part[starts + np.arange(length)]
        return sampled

    def with_ends(x: np.ndarray) -> np.ndarray:
        ends = (np.broadcast_to(np.array(each, np.int64), (len(x), len(each))) for each in (start, end))
        return np.concatenate([next(ends), x, next(ends)], 1)

    def draw(rng: np.random.Generator, is_held_out: bool) -> Batch:
        part = parts[is_held_out]
        if masked:
            whole = with_ends(windows(rng, part, inner))
            size = _num_rows(tokenizer)
            return mask_words(whole, rng, mask_id=mask_id or 0, vocab_size=size, special_ids=[*start, *end])
        if pairs:
            x = windows(rng, part, inner)
            return Batch(with_ends(x[:, : inner // 2]), with_ends(x[:, inner // 2 :]))
        x = windows(rng, part, inner + 1)
        return Batch(x[:, :-1], x[:, 1:])

    options = {"steps": 2000, "learning_rate": 1e-3, "warmup": 100, "weight_decay": 0.1}
    if pairs:
        return Task("pairs", "continue the first half of a sequence", tokenizer, None, draw, options)
    if not masked:
        return Task("text", "continue a text", tokenizer, _gpt(4, 128, 4, context), draw, options)
    config = {
        "model_type": "bert", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "intermediate_size": 512, "max_position_embeddings": context, "type_vocab_size": 1,
    }  # fmt: skip
    return Task("masked", "fill in masked tokens", tokenizer, config, draw, options)


def _without_ends(encoding: Any) -> tuple[list[int], np.ndarray, list[int]]:
    """Return the special tokens before a text, its ids, and the special tokens after it."""
    (places,) = np.nonzero(~np.array(encoding.special_tokens_mask, bool))
    first, last = (places[0], places[-1] + 1) if len(places) else (0, 0)
    ids = list(encoding.ids)
    return ids[:first], np.array(ids[first:last], np.int64), ids[last:]


def _check_characters(text: str, tokenizer: SubwordTokenizer) -> None:
    """Raise RegardError if there are characters of which the tokenizer makes no token.

    Those that its normalizer removes, and blanks where it splits there, are meant to be left out.
    """
    backend = tokenizer.backend
    missing = {}
    for sign, count in Counter(text).items():
        kept = sign if backend.normalizer is None else backend.normalizer.normalize_str(sign)
        is_between = not kept.strip() and backend.pre_tokenizer is not None
        if kept and not is_between and not backend.encode(sign, add_special_tokens=False).ids:
            missing[sign] = count
    if missing:
        raise RegardError(
            f"the tokenizer has no token for {sum(missing.values())} of the {len(text)} characters of the text "
            f"({join_names(map(repr, sorted(missing)))}): remove them, or take another model"
        )


def _gpt(layers: int, width: int, heads: int, positions: int) -> dict[str, Any]:
    """Return the configuration of a small GPT-2."""
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": positions}
    dropout = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return {"model_type": "gpt2", **sizes, **dropout, "bos_token_id": None, "eos_token_id": None}


def _num_rows(tokenizer: SubwordTokenizer) -> int:
    """Return the number of rows of embeddings that the ids need, also where the vocabulary has gaps."""
    return int(tokenizer.token_ids[-1]) + 1
