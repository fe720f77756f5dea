"""From arguments to a model and its trace."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, overload

from regard._utils.errors import RegardError
from regard._utils.memory import gigabytes
from regard.cli.arguments import TOY_OPTIONS
from regard.cli.output import tell
from regard.cli.texts import is_file
from regard.models import ImageModel, Model, load, toy
from regard.models.base import as_text_model
from regard.models.memory import MemoryEstimate, estimate_memory, require_memory
from regard.models.output import run_traced
from regard.text.encoding import Encoding
from regard.text.words import join_names
from regard.trace import Trace
from regard.views import escape
from regard.views.axis import make_axis, rows_of_word
from regard.views.trace_access import resolve_index

_SMALL_MAP = 1 << 16  # weights, of a text whose run is not worth an estimate
_LARGE = 1_000_000_000  # bytes
_MANY_UNKNOWN = 0.3  # of the tokens of a text


@overload
def load_model(arguments: argparse.Namespace, texts: Sequence[str]) -> Model: ...
@overload
def load_model(arguments: argparse.Namespace, texts: Sequence[str], *, pictures: bool) -> Model | ImageModel: ...
def load_model(arguments: argparse.Namespace, texts: Sequence[str], *, pictures: bool = False) -> Model | ImageModel:
    """Return the model, or with ``--toy`` the toy layer.

    With `pictures` it may be a model of pictures: the first text is then a file. Of a CLIP the half that reads texts is
    taken, or, if that file exists, the other.

    Raises
    ------
    RegardError
        Options of the toy layer are given without ``--toy``, or the model reads no texts.
    """
    given = {name: getattr(arguments, name) for name in TOY_OPTIONS if getattr(arguments, name) is not None}
    if arguments.toy and arguments.ignore:
        raise RegardError("--ignore is for the configuration of a model: leave it out with --toy")
    if not arguments.toy:
        if given:
            raise RegardError(f"options of the toy layer need --toy: got {option_names(given)}")
        loaded = load(arguments.model, ignore=arguments.ignore or ())
        if pictures and isinstance(loaded, ImageModel):
            return loaded
        if pictures and isinstance(half := getattr(loaded, "vision", None), ImageModel) and is_file(texts[0]):
            return half
        model = as_text_model(loaded)
        if pictures and texts and is_file(texts[0]):
            raise RegardError(f"{model.name} reads texts, not pictures: choose a model of pictures, or give a text")
        return model
    file = given.pop("embeddings", None)
    return toy(texts, **given) if file is None else _toy_with_vectors(texts, file, given)


def choose_map(arguments: argparse.Namespace, model: Model | ImageModel) -> None:
    """Check ``--layer`` and ``--head`` against the model, and make them numbers from 0, before anything is run.

    Raises
    ------
    RegardError
        There is no such layer or head; the message lists what is.
    """
    for name, count in (("layer", model.config.num_layers), ("head", model.config.num_heads)):
        if (number := getattr(arguments, name)) is not None:
            setattr(arguments, name, resolve_index(name, number, range(count)))


def option_names(names: Iterable[str]) -> str:
    """Return the options of these argument names, as they are typed."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


def run_model(
    model: Model, text: Encoding, only: Sequence[str] | None = None, *, shown: int = 0, stop: str | None = None
) -> Trace:
    """Return the trace of `model` on a text: the steps in `only`, or all; of an encoder-decoder, of its encoder.

    Attention is recorded as maps. `shown` are bytes that the command takes after the run, which ends after the step
    `stop`. An error if the model cannot run the text, or if its vectors overflow.
    """
    if stop is not None and hasattr(model, "encode"):
        stop = f"encoder.{stop}"
    names = None if only is None else [*only, *(f"encoder.{name}" for name in only)]
    trace = Trace(only=None if names is None else (), optional=names or (), maps=True, stop=stop)
    warn_unknown(model, [text])
    announce_memory(model, len(text), trace, shown=shown)
    run_traced(model, text, trace)
    return trace.subtrace("encoder") if any(name.startswith("encoder.") for name in trace) else trace


def warn_unknown(model: Model, encodings: Iterable[Encoding]) -> None:
    """Print one line on standard error if many tokens of the texts are the one for what the vocabulary lacks."""
    unknown = getattr(model.tokenizer, "unk_id", None)
    ids = [
        i
        for encoding in encodings
        for i, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if not special
    ]
    count = 0 if unknown is None else ids.count(unknown)
    if count >= 2 and count >= _MANY_UNKNOWN * len(ids):
        tell(
            f"{count:,} of {len(ids):,} tokens are unknown to {escape(model.name)}, which all look the same to it: "
            "choose a model of this language, --model NAME"
        )


def run_picture(model: ImageModel, path: str, only: Sequence[str] | None = None) -> Trace:
    """Return the trace of `model` on a picture: the steps in `only`, or all; attention is recorded as maps."""
    return run_traced(model, path, Trace(only=None if only is None else (), optional=only or (), maps=True))


def announce_memory(model: Model, length: int, trace: Trace, *, shown: int = 0, cached: bool = False) -> None:
    """Print the memory of a run on standard error if it is large, and check that it fits; `shown` as in `run_model`."""
    if length * length <= _SMALL_MAP or length > getattr(model, "max_length", length):  # the model says that
        return
    estimate = estimate_memory(model, 1, length, trace, cached=cached)
    estimate = MemoryEstimate(estimate.recorded, estimate.working + shown)
    require_memory(estimate, 1, length)
    if estimate.total >= _LARGE:
        tell(f"{length:,} tokens take about {gigabytes(estimate.total)} of memory beside the model")


def check_word(word: str, encoding: Encoding, where: str = "the text", **options: bool) -> tuple[int, ...]:
    """Return the rows of a word among the tokens that are shown with these options of `make_axis`; or an error."""
    axis = make_axis(encoding, **options)
    labels, words = ([names[i] for i in axis.shown] for names in (axis.labels, axis.words))
    try:
        return rows_of_word(labels, words, word)
    except RegardError:
        raise missing_word(word, encoding, where) from None


def missing_word(word: str, encoding: Encoding, where: str = "the text") -> RegardError:
    """Return the error that a text has no such word; it lists the words of the text."""
    if word.casefold() in (
        t.casefold() for t, special in zip(encoding.tokens, encoding.special_tokens_mask, strict=True) if special
    ):
        return RegardError(f"{word} is a special token: --show-special-tokens shows it")
    words = [spelled for spelled, at in encoding.word_groups() if not encoding.special_tokens_mask[at[0]]]
    return RegardError(f"{where} has no word {escape(word, 40)!r}; its words are {join_names(words)}")


def _toy_with_vectors(texts: Sequence[str], file: str, options: dict[str, Any]) -> Model:
    from regard.text import Vocabulary, read_word_vectors

    vocabulary = Vocabulary.from_text(texts)
    vectors = read_word_vectors(file, vocabulary.words)
    return toy(texts, vocabulary=vocabulary, embeddings=vectors.vectors_for(vocabulary.words), **options)
