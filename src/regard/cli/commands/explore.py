"""``regard explore TEXT``, ``RUN`` or ``MAP.zarr``: attention, or the checkpoints of a run, in the browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, flag, given_options, option, options
from regard.cli.output_files import MAX_DRAWN_TOKENS, PICTURES, OutputFile, OutputFiles, output_files

with deferred_imports():
    from dataclasses import replace
    from functools import partial
    from pathlib import Path

    from regard._utils.errors import RegardError
    from regard.cli.input import announce_memory, load_model, run_picture, tokenize
    from regard.cli.output import write
    from regard.cli.texts import check_no_file, read_text
    from regard.explorer import Exploration
    from regard.explorer.address import read_address
    from regard.explorer.answers import Story
    from regard.explorer.launch import exploration_of
    from regard.explorer.queries.corpus import Corpus
    from regard.explorer.run import STEPS, shown_steps
    from regard.explorer.stored import StoredExploration
    from regard.explorer.story import load_story, opening_texts
    from regard.explorer.training import TrainingExploration
    from regard.models import ImageModel, load
    from regard.models.base import as_text_model
    from regard.trace import Trace
    from regard.trace.stored_map import is_map
    from regard.training import TrainingRun, checkpoints

COMMAND = Command(
    place=4,
    summary="explore attention in the browser",
    usage="TEXT [TEXT] [options]\n       regard explore RUN [TEXT] [options]",
    examples="""\
  regard explore "The animal did not cross the street because it was too tired"
  regard explore "the bat flew" "the bat broke"
  regard explore --file letter.txt -o letter.html
  regard explore --story animal
  regard explore regard-induction -o learned.html    (a folder of regard train)""",
)

_PAGE = OutputFile("-o", (".html",), "the page as one file, which works offline", max_tokens=MAX_DRAWN_TOKENS)
_PICTURE = OutputFile("-o", PICTURES, "the losses and heads of a training run")


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source(
        "the text, the folder of a training run and, if you like, a text, or a map on disk, MAP.zarr"
    )
    model: str | None = option("NAME", f"{shared.MODEL_NAMES} (minilm)")  # a saved run has its own
    ignore: Sequence[str] | None = option(
        "FIELD", "an unknown field of its config.json that changes nothing", action="append"
    )
    compare_model: str | None = option("NAME", "a second model, for the same text or the second text")
    trace: Sequence[str] | None = option("FILE", "one or two saved runs in place of a text", nargs="+")
    map: shared.MapChoice = shared.map_choice(shared.head, layer="the page chooses", head="the page chooses")
    corpus: str | None = option("FILE", "sentences, one a line: the page finds those where a head attends most")
    story: str | None = option(
        "STORY", "steps to follow beside the views: animal, induction, indirect-object, softmax, or FILE.md"
    )
    paths: bool = flag("with -o: the file holds the paths behind the next token too")
    share: bool = flag("serve the page read-only to a class on the local network, with a code")
    address: str | None = option("A", "with --share: this machine's address in the network (found)")
    open: str | None = option("ADDRESS", "what a copied address shows, or one in a file")
    server: shared.Server = shared.server()
    files: OutputFiles = output_files(_PAGE, _PICTURE)
    theme: str = shared.theme()
    toy: shared.ToyLayer = shared.toy_layer()

    def with_text(self, *text: str) -> Options:
        """Return these options with other texts."""
        return replace(self, source=replace(self.source, text=text))


_MODEL_OPTIONS = ("--model", "--compare-model", "--ignore", "--toy", *shared.TOY_SETTINGS)


class _Explored(NamedTuple):
    """What is shown: the page's data, and the training run if it is one, with the text it is seen on."""

    exploration: Callable[[], Exploration]
    run: TrainingRun | None = None
    text: str | None = None


def run(options: Options) -> None:
    """Run the texts, or read the traces, and serve the page or write it."""
    options.files.check()
    story = load_story(options.story) if options.story is not None else None
    if story is not None:
        options = _with_texts_of(options, story)
    corpus = _corpus(options)
    if corpus is not None and not options.source.text and options.source.file is None and options.open is None:
        options = options.with_text(corpus.first())
    options, view, text_b = _opened(options, options.open) if options.open is not None else (options, "", None)
    if options.paths and not options.files.has(_PAGE):
        raise RegardError(
            "--paths is for the page of -o FILE.html: a served page follows the paths when they are asked for"
        )
    if options.files and (options.share or options.address):
        raise RegardError("-o writes a file, which a class can open by itself: leave out --share and --address")
    if options.address and not options.share:
        raise RegardError("--address is for --share: add it")
    if options.files and options.server:
        raise RegardError("-o writes a file and serves no page: leave out --port and --no-browser")
    explored = _stored_map(options) or _training_run(options) or _Explored(partial(_exploration, options, text_b))
    if options.files:
        options.files.write(
            {
                _PAGE: lambda path: _write_page(path, explored, story, options.paths),
                _PICTURE: lambda path: _draw(path, explored, options.theme),
            }
        )
        return
    exploration = explored.exploration()
    exploration.corpus, exploration.story = corpus, story
    shown: _Shown = {"port": options.server.port, "browser": not options.server.no_browser, "view": view, "tell": write}
    if options.share:
        from regard.explorer.share import serve_with_class

        serve_with_class(exploration, address=options.address, **shown)
    else:
        from regard.explorer.server import serve

        serve(exploration, **shown)


class _Shown(TypedDict):
    """How the page is served."""

    port: int | None
    browser: bool
    view: str
    tell: Callable[[str], None]


def _write_page(path: str, explored: _Explored, story: Story | None, has_paths: bool) -> None:
    from regard.explorer import write_page

    exploration = explored.exploration()
    exploration.story = story
    if has_paths:
        exploration.paths(exploration.numbers[-len(exploration.runs)])
    write_page(exploration, path)


def _with_texts_of(options: Options, story: Story) -> Options:
    """Return options with the texts and model of a story where none are given: two of a page that runs no others."""
    if options.open is not None or options.trace or options.toy:
        raise RegardError("--story says what is shown: leave out --open, --trace and --toy")
    if options.source.text or options.source.file is not None:
        return options
    texts, model = opening_texts(story)
    count = 2 if options.files or options.share else 1
    return replace(options, model=options.model or model).with_text(*texts[:count])


def _draw(path: str, explored: _Explored, theme: str) -> None:
    from regard.plot import save, training

    if explored.run is None:
        raise RegardError(f"-o {path}: a picture is of a training run, whose folder is given; of a text: regard show")
    save(training(explored.run, explored.text, theme=theme), path)


def _corpus(options: Options) -> Corpus | None:
    """Return the sentences of ``--corpus``, the first of which is shown where no text is given."""
    if options.corpus is None:
        return None
    if options.files or options.trace or options.toy:
        raise RegardError("--corpus is run by the model of a served page: leave out -o, --trace and --toy")
    return Corpus(Path(options.corpus))


def _opened(options: Options, page_address: str) -> tuple[Options, str, str | None]:
    """Return options with text and model of an address where none are given, the view that it names, and its text B."""
    source, choice = options.source, options.map
    if options.trace or options.files or choice.layer or choice.head:
        raise RegardError("--open says what is shown: leave out --trace, -o, --layer and --head")
    address = read_address(page_address)
    if source.text or source.file is not None:
        texts = source.text
    elif address.text is not None:
        texts = (address.text,)
    else:
        raise RegardError("the address names no text, it was too long for it: give the text too, or --file FILE")
    named, compared = (*address.models, None, None)[:2]
    options = replace(options, model=options.model or named, compare_model=options.compare_model or compared).with_text(
        *texts
    )
    return options, address.view, address.text_b


def _stored_map(options: Options) -> _Explored | None:
    """Return the attention map on disk whose folder is given in place of a text, or None."""
    texts = options.source.text
    if not texts or not is_map(texts[0]):
        return None
    folder = texts[0]
    others = ("--trace", *_MODEL_OPTIONS[:4], "--layer", "--file", "--corpus", *shared.TOY_SETTINGS)
    if refused := given_options(options, *others):
        raise RegardError(f"{folder} is an attention map on disk: leave out {', '.join(refused)}")
    if len(texts) > 1:
        raise RegardError(f"{folder} is an attention map on disk, which is explored alone: leave out the texts")
    return _Explored(partial(StoredExploration, folder, head=options.map.head))


def _training_run(options: Options) -> _Explored | None:
    """Return the training run whose folder is given in place of a text, or None; a text after it is what is read."""
    if not options.source.text or not checkpoints(options.source.text[0]):
        return None
    folder, *texts = options.source.text
    if refused := given_options(options, "--trace", *_MODEL_OPTIONS):
        raise RegardError(f"{folder} is a training run, which has its models: leave out {', '.join(refused)}")
    if len(texts) > 1:
        raise RegardError(f"a training run is seen on one text, got {len(texts)}: quote the text")
    source = options.with_text(*texts).source
    text = read_text(source) if texts or source.file is not None else None
    run = TrainingRun(folder)
    choice = options.map
    return _Explored(partial(TrainingExploration, run, text, layer=choice.layer, head=choice.head), run, text)


def _exploration(options: Options, text_b: str | None) -> Exploration:
    layer, head = options.map.layer, options.map.head
    if options.trace is not None:
        if options.source.text or options.source.file is not None:
            raise RegardError("give either a text or --trace, not both")
        if refused := given_options(options, *_MODEL_OPTIONS):
            raise RegardError(f"--trace shows a saved run: leave out {', '.join(refused)}")
        traces = [Trace.load(Path(path)) for path in options.trace]
        return exploration_of(traces, None, layer=layer, head=head)
    texts = _texts(options.source, text_b)
    choice = shared.ModelChoice(model=options.model or "minilm", ignore=options.ignore)
    first = load_model(choice, options.toy, texts, pictures=True)
    if isinstance(first, ImageModel):
        if options.compare_model is not None:
            raise RegardError("--compare-model is for texts: explore two pictures in place of it")
        traces = [run_picture(first, picture, STEPS) for picture in texts]
        return exploration_of(traces, None, layer=layer, head=head)
    models = [first]
    if options.compare_model is not None:
        models.append(as_text_model(load(options.compare_model)))
    for text in texts:
        for model in models:
            length = len(tokenize(model, text))
            options.files.check_length(model, length)
            announce_memory(model, length, Trace(maps=True, only=shown_steps(length, layer)))
    return exploration_of(texts, models if len(models) > 1 else models[0], layer=layer, head=head)


def _texts(source: shared.TextSource, text_b: str | None) -> list[str]:
    """Return one or two texts; `text_b`, of an address, is the second where one is given."""
    if len(source.text) > 2:
        raise RegardError(f"explore takes one or two texts, got {len(source.text)}: quote each text")
    if len(source.text) == 2 and source.file is None:
        if not all(text.strip() for text in source.text):
            raise RegardError("one of the two texts is empty")
        for text in [] if source.literal else source.text:
            check_no_file(text, None)
        return [text.strip() for text in source.text]
    if text_b is None:
        return [read_text(source)]
    if not text_b.strip():
        raise RegardError("the second text of the address is empty")
    check_no_file(text_b, None)
    return [read_text(source), text_b.strip()]
