"""``regard generate TEXT``: text generation with a language model."""

from __future__ import annotations

import argparse
import sys
import unicodedata
from dataclasses import fields
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.cli.input import announce_memory
from regard.cli.output import tell, writing
from regard.cli.output_files import check_output_files, write_output_files
from regard.cli.texts import read_text
from regard.models import LanguageModel, load
from regard.models.generation.loop import Generated, Stream
from regard.models.generation.options import GenerationOptions
from regard.text.chat import require_jinja
from regard.trace import Trace
from regard.views import escape

_JOINERS = "\u200c\u200d"  # zero-width, needed in Persian, Indic scripts and emoji


def run(arguments: argparse.Namespace) -> None:
    """Print the continuation of a text while it is generated."""
    text = read_text(arguments)
    check_output_files(arguments)
    options: Any = {field.name: getattr(arguments, field.name) for field in fields(GenerationOptions)}
    GenerationOptions(**options)  # raises before the model is loaded
    if arguments.chat:
        require_jinja()
    model = load(arguments.model, ignore=arguments.ignore or ())
    if not isinstance(model, LanguageModel):
        raise RegardError(f"{model.name} is no language model and cannot generate text: choose a decoder, --model NAME")
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": text}]) if arguments.chat else text
    encoding = model.tokenizer(prompt) if isinstance(prompt, str) else prompt
    announce_memory(model, len(encoding), _recorder(arguments), cached=True)
    stream = model.stream(encoding, **options)
    try:
        _print_all(stream)
    except KeyboardInterrupt:
        _write(model, stream.generated, arguments)
        raise
    done = stream.generated
    if not done.text.strip() and model.tokenizer.chat_template is not None and not arguments.chat:
        tell(f"{escape(model.name)} ended at once: it answers messages, --chat")
    if done.finish_reason == "max_context":
        tell(f"{escape(model.name)} has a context of at most {model.max_length} tokens")
    _write(model, done, arguments)


def _print_all(stream: Stream) -> None:
    try:
        with np.errstate(all="ignore"):
            for piece in stream:
                _print(_escape_controls(piece) if sys.stdout.isatty() else piece)
    finally:
        _print("\n")


def _write(model: LanguageModel, done: Generated, arguments: argparse.Namespace) -> None:
    """Run the whole text again and save its attention, if a token was generated."""
    if arguments.output and done.ids:
        trace = _recorder(arguments)
        model.record_full_sequence([done], trace=trace)
        write_output_files(trace, arguments)


def _recorder(arguments: argparse.Namespace) -> Trace:
    return Trace(maps=True, only="*attn.weights" if arguments.output else ())


def _print(piece: str) -> None:
    with writing():
        print(piece, end="")


def _escape_controls(piece: str) -> str:
    """Return a piece of text with control and format characters escaped."""
    return "".join(
        escape(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in f"\n\t{_JOINERS}" else c for c in piece
    )
