"""``regard explore TEXT``, ``RUN`` or ``MAP.zarr``: attention, or the checkpoints of a run, in the browser."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from regard._utils.errors import RegardError
from regard.cli.arguments import TOY_OPTIONS
from regard.cli.input import announce_memory, load_model, option_names, run_picture
from regard.cli.output import write
from regard.cli.output_files import Explored, check_length, check_output_files, write_output_files
from regard.cli.texts import check_no_file, read_text
from regard.explorer import Exploration
from regard.explorer.address import read_address
from regard.explorer.corpus import Corpus
from regard.explorer.launch import exploration_of
from regard.explorer.run import STEPS, shown_steps
from regard.explorer.stored import StoredExploration
from regard.explorer.training import TrainingExploration
from regard.models import ImageModel, load
from regard.models.base import as_text_model
from regard.trace import Trace
from regard.trace.stored_map import is_map
from regard.training import TrainingRun, checkpoints


def run(arguments: argparse.Namespace) -> None:
    """Run the texts, or read the traces, and serve the page or write it."""
    check_output_files(arguments)
    corpus = _corpus(arguments)
    view = _opened(arguments) if arguments.open is not None else ""
    if arguments.output and (arguments.port is not None or arguments.no_browser):
        raise RegardError("-o writes a file and serves no page: leave out --port and --no-browser")
    explored = _stored_map(arguments) or _training_run(arguments) or Explored(partial(_exploration, arguments))
    if arguments.output:
        write_output_files(explored, arguments)
        return
    from regard.explorer.server import serve

    exploration = explored.exploration()
    exploration.corpus = corpus
    serve(exploration, port=arguments.port, browser=not arguments.no_browser, view=view, tell=write)


def _corpus(arguments: argparse.Namespace) -> Corpus | None:
    """Return the sentences of ``--corpus``, the first of which is shown where no text is given."""
    if arguments.corpus is None:
        return None
    if arguments.output or arguments.trace or arguments.toy:
        raise RegardError("--corpus is run by the model of a served page: leave out -o, --trace and --toy")
    corpus = Corpus(Path(arguments.corpus))
    if not arguments.text and arguments.file is None and arguments.open is None:
        arguments.text = [corpus.first()]
    return corpus


def _opened(arguments: argparse.Namespace) -> str:
    """Take text and model of an address where none are given; return the view that it names."""
    if arguments.trace or arguments.output or arguments.file is not None or arguments.layer or arguments.head:
        raise RegardError("--open says what is shown: leave out --trace, -o, --file, --layer and --head")
    address = read_address(arguments.open)
    if not arguments.text and not address.texts:
        raise RegardError("the address names no text, it was too long for it: give the text too")
    arguments.text = arguments.text or list(address.texts)
    named, compared = (*address.models, None, None)[:2]
    arguments.model, arguments.compare_model = arguments.model or named, arguments.compare_model or compared
    return address.view


def _stored_map(arguments: argparse.Namespace) -> Explored | None:
    """Return the attention map on disk whose folder is given in place of a text, or None."""
    if not arguments.text or not is_map(arguments.text[0]):
        return None
    folder = arguments.text[0]
    options = ("trace", "model", "compare_model", "ignore", "toy", "layer", "file", "corpus", *TOY_OPTIONS)
    values = {option: getattr(arguments, option) for option in options}
    if given := [option for option, value in values.items() if value is not None and value is not False]:
        raise RegardError(f"{folder} is an attention map on disk: leave out {option_names(given)}")
    if len(arguments.text) > 1:
        raise RegardError(f"{folder} is an attention map on disk, which is explored alone: leave out the texts")
    return Explored(partial(StoredExploration, folder, head=arguments.head))


def _training_run(arguments: argparse.Namespace) -> Explored | None:
    """Return the training run whose folder is given in place of a text, or None; a text after it is what is read."""
    if not arguments.text or not checkpoints(arguments.text[0]):
        return None
    folder, *texts = arguments.text
    options = ("trace", "model", "compare_model", "ignore", "toy", *TOY_OPTIONS)
    if given := [option for option in options if getattr(arguments, option) not in (None, False)]:
        raise RegardError(f"{folder} is a training run, which has its models: leave out {option_names(given)}")
    if len(texts) > 1:
        raise RegardError(f"a training run is seen on one text, got {len(texts)}: quote the text")
    arguments.text = texts
    text = read_text(arguments) if texts or arguments.file is not None else None
    run = TrainingRun(folder)
    layer, head = arguments.layer, arguments.head
    return Explored(partial(TrainingExploration, run, text, layer=layer, head=head), run, text)


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
    first = load_model(arguments, texts, pictures=True)
    if isinstance(first, ImageModel):
        if arguments.compare_model is not None:
            raise RegardError("--compare-model is for texts: explore two pictures in place of it")
        traces = [run_picture(first, picture, STEPS) for picture in texts]
        return exploration_of(traces, None, layer=layer, head=head)
    models = [first]
    if arguments.compare_model is not None:
        models.append(as_text_model(load(arguments.compare_model)))
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
        for text in [] if arguments.literal else arguments.text:
            check_no_file(text, None)
        return [text.strip() for text in arguments.text]
    return [read_text(arguments)]
