"""``regard generate TEXT``: text generation with a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, flag, option, options
from regard.cli.output_files import OutputFile, OutputFiles, output_files

with deferred_imports():
    import sys
    import unicodedata
    from dataclasses import fields

    import numpy as np

    from regard._utils.errors import RegardError
    from regard.cli.input import announce_memory, tokenize
    from regard.cli.output import tell, write_json, writing
    from regard.cli.texts import read_text
    from regard.models import LanguageModel, load
    from regard.models.generation.loop import Generated, Stream
    from regard.models.generation.options import GenerationOptions
    from regard.text.chat import require_jinja
    from regard.trace import Trace
    from regard.views import escape
    from regard.views.next_tokens import token_name

COMMAND = Command(
    place=5,
    summary="continue a text with a language model",
    usage="TEXT [options]",
    examples="""\
  regard generate "Once upon a time" --max-new-tokens 60
  regard generate "The capital of France is" --temperature 0.7 --top-p 0.9 --seed 1
  regard generate "What is the capital of France?" --chat
  regard generate "Once upon a time" --json
  regard generate --file letter.txt --stop . -o letter.safetensors""",
)

_ATTENTION = OutputFile("-o", (".safetensors",), "the attention of the whole text")
_JOINERS = "\u200c\u200d"  # zero-width, needed in Persian, Indic scripts and emoji


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("smollm2")
    max_new_tokens: int = option("N", "at most N tokens (128)", type=shared.count, default=128)
    stop: Sequence[str] = option("TEXT", "stop before TEXT; may be repeated", action="append", default=[])
    temperature: float = option("T", "0: greedy decoding (0)", group="sampling", type=float, default=0.0)
    top_k: int | None = option("K", "sample from the K most probable tokens", group="sampling", type=shared.count)
    top_p: float | None = option(
        "P", "sample from the fewest tokens of total probability P", group="sampling", type=float
    )
    seed: int | None = option("N", "seed of the sampling", group="sampling", type=shared.whole_number)
    chat: bool = flag("format the text with the model's chat template")
    files: OutputFiles = output_files(_ATTENTION)
    json: bool = shared.json_flag("the continuation")


def run(options: Options) -> None:
    """Print the continuation of a text while it is generated, or as JSON when it is complete."""
    text = read_text(options.source)
    options.files.check()
    settings: Any = {field.name: getattr(options, field.name) for field in fields(GenerationOptions)}
    GenerationOptions(**settings)  # raises before the model is loaded
    if options.chat:
        require_jinja()
    model = load(options.model.model, ignore=options.model.ignore or ())
    if not isinstance(model, LanguageModel):
        raise RegardError(
            f"{model.name} is not a language model and cannot generate text: choose a decoder, --model NAME"
        )
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": text}]) if options.chat else text
    encoding = tokenize(model, prompt) if isinstance(prompt, str) else prompt
    announce_memory(model, len(encoding), _recorder(options), cached=True)
    stream = model.stream(encoding, **settings)
    try:
        if options.json:
            _print_json(model, text, stream)
        else:
            _print_all(stream)
    except KeyboardInterrupt:
        _write(model, stream.generated, options)
        raise
    done = stream.generated
    if not done.text.strip() and model.tokenizer.chat_template is not None and not options.chat:
        tell(f"{escape(model.name)} ended at once: it answers messages, --chat")
    if done.finish_reason == "max_context":
        tell(f"{escape(model.name)} has a context of at most {model.max_length} tokens")
    _write(model, done, options)


def _print_all(stream: Stream) -> None:
    try:
        with np.errstate(all="ignore"):
            for piece in stream:
                _print(_escape_controls(piece) if sys.stdout.isatty() else piece)
    finally:
        _print("\n")


def _print_json(model: LanguageModel, text: str, stream: Stream) -> None:
    """Print the continuation, or after an interruption what there is of it."""
    try:
        with np.errstate(all="ignore"):
            for _ in stream:
                pass
    finally:
        done = stream.generated
        shown = {
            "model": model.name,
            "text": text,
            "prompt": done.prompt.text,
            "continuation": done.text,
            "finish_reason": done.finish_reason,
            "tokens": [{"id": token, "token": token_name(model.tokenizer, token)} for token in done.ids],
        }
        write_json(shown)


def _write(model: LanguageModel, done: Generated, options: Options) -> None:
    """Run the whole text again and save its attention, if a token was generated."""
    if options.files and done.ids:
        trace = _recorder(options)
        model.record_full_sequence([done], trace=trace)
        options.files.write({_ATTENTION: trace.save})


def _recorder(options: Options) -> Trace:
    return Trace(maps=True, only="*attn.weights" if options.files else ())


def _print(piece: str) -> None:
    with writing():
        print(piece, end="")


def _escape_controls(piece: str) -> str:
    """Return a piece of text with control and format characters escaped."""
    return "".join(
        escape(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in f"\n\t{_JOINERS}" else c for c in piece
    )
