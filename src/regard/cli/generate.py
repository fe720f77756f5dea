"""``regard generate TEXT``: what a language model goes on with."""

from __future__ import annotations

import argparse
import sys
import unicodedata
from dataclasses import fields
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.cli.input import read_text
from regard.cli.output import writing
from regard.cli.output_files import check_targets
from regard.models import LanguageModel, load
from regard.models.generation.loop import Generated, Stream
from regard.models.generation.options import GenerationOptions
from regard.trace import Trace
from regard.views import readable

_JOINERS = "\u200c\u200d"  # without width, but of use in Persian, Indic scripts and emoji


def run(arguments: argparse.Namespace) -> None:
    """Print the continuation of a text as it comes."""
    text = read_text(arguments)
    check_targets(arguments)
    options: Any = {field.name: getattr(arguments, field.name) for field in fields(GenerationOptions)}
    GenerationOptions(**options)  # raises before a model is read
    model = load(arguments.model)
    if not isinstance(model, LanguageModel):
        raise RegardError(
            f"{model.name} predicts no token, so it cannot go on with a text; give a decoder, --model NAME"
        )
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": text}]) if arguments.chat else text
    stream = model.stream(prompt, **options)
    try:
        _print_all(stream)
    except KeyboardInterrupt:
        _save(model, stream.generated, arguments)
        raise
    done = stream.generated
    if done.finish_reason == "max_context" and sys.stderr is not None:
        print(
            f"regard: {readable(model.name)} looks at no more than {model.max_length} tokens at once", file=sys.stderr
        )
    _save(model, done, arguments)


def _print_all(stream: Stream) -> None:
    try:
        with np.errstate(all="ignore"):
            for piece in stream:
                _print(piece if not sys.stdout.isatty() else _harmless(piece))
    finally:
        _print("\n")


def _save(model: LanguageModel, done: Generated, arguments: argparse.Namespace) -> None:
    """Keep what was looked at, if that is asked for and a token has come."""
    if arguments.save_file is not None and done.ids:
        trace = Trace(maps=True, only="*attn.weights")
        model.record_full_sequence([done], trace=trace)
        trace.save(arguments.save_file)


def _print(piece: str) -> None:
    with writing():
        print(piece, end="")


def _harmless(piece: str) -> str:
    """Return a piece of text with signs in place of characters that would do something to a terminal."""
    return "".join(
        readable(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in f"\n\t{_JOINERS}" else c
        for c in piece
    )
