"""``regard explore TEXT``: attention in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard._utils.errors import RegardError
from regard.cli.arguments import TOY_OPTIONS
from regard.cli.input import announce_memory, load_model, option_names, read_text
from regard.cli.output import write
from regard.cli.output_files import check_length, check_output_files, write_output_files
from regard.explorer import Exploration
from regard.explorer.launch import exploration_of
from regard.explorer.run import shown_steps
from regard.models import load
from regard.trace import Trace


def run(arguments: argparse.Namespace) -> None:
    """Run the texts, or read the traces, and serve the page or write it."""
    check_output_files(arguments)
    if arguments.output and (arguments.port is not None or arguments.no_browser):
        raise RegardError("-o writes a file and serves no page: leave out --port and --no-browser")
    exploration = _exploration(arguments)
    if arguments.output:
        write_output_files(exploration, arguments)
        return
    from regard.explorer.server import serve

    serve(exploration, port=arguments.port, browser=not arguments.no_browser, tell=write)


def _exploration(arguments: argparse.Namespace) -> Exploration:
    layer, head = arguments.layer, arguments.head
    if arguments.trace is not None:
        if arguments.text or arguments.file is not None:
            raise RegardError("give either a text or --trace, not both")
        options = ("model", "compare_model", "ignore", "toy", *TOY_OPTIONS)
        given = [option for option in options if getattr(arguments, option) not in (None, False)]
        if given:
            raise RegardError(f"--trace shows a saved run: leave out {option_names(given)}")
        traces = [Trace.load(Path(path)) for path in arguments.trace]
        return exploration_of(traces, None, layer=layer, head=head)
    arguments.model = arguments.model or "minilm"
    texts = _texts(arguments)
    models = [load_model(arguments, texts)]
    if arguments.compare_model is not None:
        models.append(load(arguments.compare_model))
    for text in texts:
        for model in models:
            length = len(model.tokenizer(text))
            check_length(arguments, model, length)
            announce_memory(model, length, Trace(maps=True, only=shown_steps(length, layer)))
    return exploration_of(texts, models if len(models) > 1 else models[0], layer=layer, head=head)


def _texts(arguments: argparse.Namespace) -> list[str]:
    """Return one or two texts."""
    if len(arguments.text) > 2:
        raise RegardError(f"explore takes one or two texts, got {len(arguments.text)}: quote each text")
    if len(arguments.text) == 2 and arguments.file is None:
        if not all(text.strip() for text in arguments.text):
            raise RegardError("one of the two texts is empty")
        return [text.strip() for text in arguments.text]
    return [read_text(arguments)]
