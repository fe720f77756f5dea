"""``regard explore TEXT``: a page where attention can be walked through."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard._errors import RegardError
from regard.cli._input import read_model, read_text
from regard.cli._output import write
from regard.cli._targets import check_targets
from regard.models import load
from regard.trace import Trace
from regard.views._entry import number_of
from regard.web import Exploration, write_page
from regard.web._explore import recorded


def run(arguments: argparse.Namespace) -> None:
    """Record the texts, or read the trace, and serve the page or write it."""
    check_targets(arguments)
    exploration = _exploration(arguments)
    if arguments.html_file is not None:
        write_page(exploration, arguments.html_file)
        write(f"{arguments.html_file}: open it in a browser; it needs no network")
        return
    from regard.web._server import serve

    serve(exploration, port=arguments.port, browser=not arguments.no_browser, tell=write)


def _exploration(arguments: argparse.Namespace) -> Exploration:
    shown = {"layer": arguments.layer, "head": arguments.head}
    if arguments.trace is not None:
        if arguments.text or arguments.file is not None:
            raise RegardError("give either a text or --trace, not both")
        if arguments.random or arguments.other_model is not None or arguments.model != "minilm":
            raise RegardError("a saved run is shown as it was: leave out --model, --other-model and --random")
        return Exploration(*(Trace.load(Path(path)) for path in arguments.trace), **shown)
    texts = _texts(arguments)
    models = [read_model(arguments, texts)]
    if arguments.other_model is not None:
        models.append(load(arguments.other_model))
    if arguments.layer is not None:
        layers = models[0].config.num_layers
        shown["layer"] = number_of("layer", arguments.layer, range(layers))
    count = max(len(texts), len(models))
    texts = texts * (count // len(texts))  # one is for both
    models = models * (count // len(models))
    traces = [recorded(model, text, shown["layer"]) for model, text in zip(models, texts, strict=True)]
    return Exploration(*traces, models=models, **shown)


def _texts(arguments: argparse.Namespace) -> list[str]:
    """Return the text, or the two, that were typed, piped in or named by ``--file``."""
    if len(arguments.text) > 2:
        raise RegardError("one text is explored, or two side by side: give each in one piece, in quotes")
    if len(arguments.text) == 2 and arguments.file is None:
        if not all(text.strip() for text in arguments.text):
            raise RegardError("one of the two texts is empty")
        return [text.strip() for text in arguments.text]
    return [read_text(arguments)]
