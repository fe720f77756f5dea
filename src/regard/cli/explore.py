"""``regard explore TEXT``: a page where attention can be walked through."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard._utils.errors import RegardError
from regard.cli.input import TOY_OPTIONS, options_named, read_model, read_text
from regard.cli.output import write
from regard.cli.output_files import check_targets
from regard.explorer import Exploration, write_page
from regard.explorer.launch import exploration_of
from regard.models import load
from regard.trace import Trace


def run(arguments: argparse.Namespace) -> None:
    """Record the texts, or read the trace, and serve the page or write it."""
    check_targets(arguments)
    if arguments.html_file is not None and (arguments.port is not None or arguments.no_browser):
        raise RegardError("with --html a file is written and nothing served: leave out --port and --no-browser")
    exploration = _exploration(arguments)
    if arguments.html_file is not None:
        write_page(exploration, arguments.html_file)
        write(f"{arguments.html_file}: open it in a browser; it needs no network")
        return
    from regard.explorer.server import serve

    serve(exploration, port=arguments.port, browser=not arguments.no_browser, tell=write)


def _exploration(arguments: argparse.Namespace) -> Exploration:
    layer, head = arguments.layer, arguments.head
    if arguments.trace is not None:
        if arguments.text or arguments.file is not None:
            raise RegardError("give either a text or --trace, not both")
        options = ("model", "other_model", "random", *TOY_OPTIONS)
        given = [option for option in options if getattr(arguments, option) not in (None, False)]
        if given:
            raise RegardError(f"a saved run is shown as it was: leave out {options_named(given)}")
        traces = [Trace.load(Path(path)) for path in arguments.trace]
        return exploration_of(traces, None, layer=layer, head=head)
    arguments.model = arguments.model or "minilm"
    texts = _texts(arguments)
    models = [read_model(arguments, texts)]
    if arguments.other_model is not None:
        models.append(load(arguments.other_model))
    return exploration_of(texts, models if len(models) > 1 else models[0], layer=layer, head=head)


def _texts(arguments: argparse.Namespace) -> list[str]:
    """Return the text, or the two, that were typed, piped in or named by ``--file``."""
    if len(arguments.text) > 2:
        raise RegardError("one text is explored, or two side by side: give each in one piece, in quotes")
    if len(arguments.text) == 2 and arguments.file is None:
        if not all(text.strip() for text in arguments.text):
            raise RegardError("one of the two texts is empty")
        return [text.strip() for text in arguments.text]
    return [read_text(arguments)]
