"""From arguments to a model and its trace."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, overload

from regard._utils.errors import RegardError
from regard._utils.memory import gigabytes
from regard.cli.options import given_options
from regard.cli.output import tell
from regard.cli.shared_options import TOY_SETTINGS, MapChoice, ModelChoice, TextSource, ToyLayer
from regard.cli.texts import is_file, read_text
from regard.models import ImageModel, Model, load, toy
from regard.models.base import as_text_model
from regard.models.batch import too_long
from regard.models.memory import MemoryEstimate, estimate_memory, require_memory
from regard.models.output import run_traced
from regard.nn.decoder import layers_without_map, why_no_map
from regard.text.encoding import Encoding
from regard.text.words import join_names
from regard.trace import Trace
from regard.views import escape
from regard.views.axis import make_axis, rows_of_word
from regard.views.trace_access import format_range, resolve_index

_SMALL_MAP = 1 << 16  # weights, of a text whose run is not worth an estimate
_LARGE = 1_000_000_000  # bytes
_MANY_UNKNOWN = 0.3  # of the tokens of a text


@overload
def load_model(choice: ModelChoice, toy_layer: ToyLayer, texts: Sequence[str]) -> Model: ...
@overload
def load_model(
    choice: ModelChoice, toy_layer: ToyLayer, texts: Sequence[str], *, pictures: bool
) -> Model | ImageModel: ...
def load_model(
    choice: ModelChoice, toy_layer: ToyLayer, texts: Sequence[str], *, pictures: bool = False
) -> Model | ImageModel:
    """Return the model, or with ``--toy`` the toy layer.

    With `pictures` it may be a model of pictures: the first text is then a file. For a CLIP the half that reads texts
    is taken, or, if that file exists, the other.

    Raises
    ------
    RegardError
        Options of the toy layer are given without ``--toy``, or the model reads no texts.
    """
    toy_options = given_options(toy_layer, *TOY_SETTINGS)
    if toy_layer and choice.ignore:
        raise RegardError("--ignore is for the configuration of a model: leave it out with --toy")
    if not toy_layer:
        if toy_options:
            raise RegardError(f"options of the toy layer need --toy: got {', '.join(toy_options)}")
        loaded = load(choice.model, ignore=choice.ignore or ())
        if pictures and isinstance(loaded, ImageModel):
            return loaded
        if pictures and isinstance(half := getattr(loaded, "vision", None), ImageModel) and is_file(texts[0]):
            return half
        model = as_text_model(loaded)
        if pictures and texts and is_file(texts[0]):
            raise RegardError(f"{model.name} reads texts, not pictures: choose a model of pictures, or give a text")
        return model
    settings = {name: value for name, value in asdict(toy_layer).items() if name != "enabled" and value is not None}
    file = settings.pop("embeddings", None)
    return toy(texts, **settings) if file is None else _toy_with_vectors(texts, file, settings)


def read_input(source: TextSource, choice: ModelChoice, toy_layer: ToyLayer) -> tuple[str, Model, Encoding]:
    """Return the text of a command, its model, and the text as tokens; see `read_text`, `load_model` and `tokenize`."""
    text = read_text(source)
    model = load_model(choice, toy_layer, [text])
    return text, model, tokenize(model, text)


def resolve_map(choice: MapChoice, model: Model | ImageModel) -> MapChoice:
    """Return ``--layer`` and ``--head`` as numbers from 0, before anything is run; None stays.

    Raises
    ------
    RegardError
        There is no such layer or head, or the layer has no map; the message lists what is.
    """
    layers, heads = layers_with_maps(model), range(model.config.num_heads)
    if choice.layer in range(model.config.num_layers) and choice.layer not in layers:
        raise RegardError(
            f"layer {choice.layer} of {escape(model.name)} is linear attention, which has no map: choose from "
            f"{format_range(layers, ' to ')}"
        )
    return MapChoice(
        layer=None if choice.layer is None else resolve_index("layer", choice.layer, layers),
        head=None if choice.head is None else resolve_index("head", choice.head, heads),
    )


def layers_with_maps(model: Model | ImageModel) -> list[int]:
    """Return the numbers of the layers that have a map; an error if there is none."""
    layers = sorted(set(range(model.config.num_layers)) - set(layers_without_map(model)))
    if not layers:
        raise RegardError(f"{escape(model.name)} has no map: {escape(why_no_map(model, 0))}")
    return layers


def run_model(
    model: Model, text: Encoding, only: Sequence[str] | None = None, *, shown: int = 0, stop: str | None = None
) -> Trace:
    """Return the trace of `model` on a text: the steps in `only`, or all; of an encoder-decoder, of its encoder.

    Attention is recorded as maps. `shown` are bytes that the command takes after the run, which ends after the step
    `stop`. An error if the model cannot run the text, or if its vectors overflow.
    """
    if stop is not None and hasattr(model, "encode"):
        stop = f"encoder.{stop}"
    names = ["*"] if only is None else [*only, *(f"encoder.{name}" for name in only)]
    trace = Trace(only=(), optional=names, maps=True, stop=stop)
    announce_memory(model, len(text), trace, shown=shown)
    run_traced(model, text, trace)
    return trace.subtrace("encoder") if any(name.startswith("encoder.") for name in trace) else trace


def tokenize(model: Model, text: str, *, truncate: bool | None = None) -> Encoding:
    """Return a text as tokens, and say on standard error what of it the model does not see.

    With `truncate` no more tokens than the model accepts; where it is False, more are an error that names the option.
    """
    encoding: Encoding = model.tokenizer(text)
    warn_unknown(model, [encoding])
    length, most = len(encoding), getattr(model, "max_length", len(encoding))
    if truncate is None or length <= most:
        return encoding
    if not truncate:
        raise too_long(encoding, most, escape(model.name), "--truncate cuts it")
    tell(f"cut to the first {most:,} of {length:,} tokens")
    return encoding.truncated(most)


def warn_unknown(model: Model, encodings: Sequence[Encoding]) -> None:
    """Print on standard error what of the texts a model does not see, if anything.

    That is characters that no token covers, other than white space and combining marks, which are left out by design,
    and tokens that stand for whatever the vocabulary lacks.
    """
    name = escape(model.name)
    is_exact = getattr(model.tokenizer, "has_exact_offsets", True)
    uncovered = "".join(each.uncovered_text() for each in encodings) if is_exact else ""
    lost = [character for character in uncovered if unicodedata.category(character)[0] in "LNPS"]
    if lost:
        what = "1 character has" if len(lost) == 1 else f"{len(lost):,} characters have"
        tell(f"{what} no token in {name}, which does not see {join_names(repr(escape(x)) for x in lost)}")
    unknown = getattr(model.tokenizer, "unk_id", None)
    ids = [
        i
        for encoding in encodings
        for i, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if not special
    ]
    count = 0 if unknown is None else ids.count(unknown)
    if count:
        what = "token" if len(ids) == 1 else "tokens"
        same = "is unknown" if count == 1 else "are unknown, and look the same,"
        other = ": choose a model of this language, --model NAME" if count >= _MANY_UNKNOWN * len(ids) else ""
        tell(f"{count:,} of {len(ids):,} {what} {same} to {name}{other}")


def run_picture(model: ImageModel, path: str, only: Sequence[str] | None = None) -> Trace:
    """Return the trace of `model` on a picture: the steps in `only`, or all; attention is recorded as maps."""
    return run_traced(model, path, Trace(only=(), optional="*" if only is None else only, maps=True))


def announce_memory(model: Model, length: int, trace: Trace, *, shown: int = 0, cached: bool = False) -> None:
    """Print the memory of a run on standard error if it is large, and check that it fits; `shown` as in `run_model`."""
    if length * length <= _SMALL_MAP or length > getattr(model, "max_length", length):  # the model says that
        return
    estimate = estimate_memory(model, 1, length, trace, cached=cached)
    estimate = MemoryEstimate(estimate.recorded, estimate.working + shown)
    require_memory(estimate, 1, length)
    if estimate.total >= _LARGE:
        tell(f"{length:,} tokens take about {gigabytes(estimate.total)} of memory in addition to the model")


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
    groups = encoding.word_groups()
    words = [word for word, at in groups if word.strip() and not encoding.special_tokens_mask[at[0]]]
    return RegardError(f"{where} has no word {escape(word, 40)!r}; its words are {join_names(words)}")


def _toy_with_vectors(texts: Sequence[str], file: str, options: dict[str, Any]) -> Model:
    from regard.text import Vocabulary, read_word_vectors

    vocabulary = Vocabulary.from_text(texts)
    vectors = read_word_vectors(file, vocabulary.words)
    return toy(texts, vocabulary=vocabulary, embeddings=vectors.vectors_for(vocabulary.words), **options)
