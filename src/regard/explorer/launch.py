"""Open the explorer on texts and traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from regard._utils.errors import RegardError
from regard._utils.packages import needed
from regard.explorer.exploration import Exploration
from regard.explorer.export_html import check_fits_file, write_page
from regard.explorer.queries.corpus import Corpus
from regard.explorer.run import recorded
from regard.explorer.stored import StoredExploration
from regard.explorer.story import load_story, opening_texts
from regard.explorer.training import TrainingExploration
from regard.explorer.validation import check_num_runs
from regard.models import load
from regard.models.base import PretrainedModel, as_text_model
from regard.models.encoder_decoder import EncoderDecoder
from regard.trace import Trace
from regard.trace.stored_map import StoredMap
from regard.training import TrainingRun
from regard.views.trace_access import resolve_index

Source: TypeAlias = "Trace | str | Mapping[str, Any] | TrainingRun | StoredMap"


def explore(
    *sources: Source,
    model: Any = None,
    html: str | os.PathLike[str] | None = None,
    port: int | None = None,
    browser: bool = True,
    batch: int = 0,
    layer: int | None = None,
    head: int | None = None,
    corpus: str | os.PathLike[str] | None = None,
    story: str | os.PathLike[str] | None = None,
) -> Any:
    """Open the explorer: a page with the attention of a text, from all heads to the arithmetic of one weight.

    Parameters
    ----------
    *sources : Trace, str, mapping, TrainingRun or StoredMap
        One run or text, or two to compare. Record a run with ``Trace(maps=True, only="*")``; with
        ``Trace(maps=True)``, maps alone, the views of values and layers are left out. An encoder–decoder reads
        ``"text → target"``, or generates the target, 64 tokens at most. A mapping has the ``input_ids`` of
        one text. A `regard.training.TrainingRun` is explored over its checkpoints, on a text that may follow. A map
        that `regard.dask.AttentionMap.to_zarr` wrote is opened with `regard.trace.open_map`.
    model : Model or str, or two of them
        What runs a text, by default "minilm"; or what ran a trace, which ablations need. A name is loaded. Two models
        are for the two sources in turn, or both for a single text.
    html : path, optional
        Write one file that works offline, and return.
    port : int, optional
        The first port to try, for the server that runs without `html` and outside of notebooks.
    browser : bool
        Whether to open the browser, with the server.
    batch : int
        Which text of a batch.
    layer, head : int, optional
        What the page opens with; by default a head with little attention to special tokens. For a text of more than
        4,096 tokens only a given layer is recorded.
    corpus : path, optional
        A file of sentences, one per line, among which the page finds those where a head attends most strongly.
    story : str or path, optional
        A story to follow beside the views: one of the package, "animal", "induction", "indirect-object" or "softmax",
        or one in a Markdown file. Without sources the page has its texts.

    Returns
    -------
    widget or None
        In a notebook, the widget; else None, after Ctrl-C.

    Raises
    ------
    RegardError
        The sources are invalid, or the page is too large for a file.
    """
    serves = html is None and not _in_notebook()
    if not serves and (port is not None or not browser):
        raise RegardError("port and browser are for the server: leave them out with html=, and in a notebook")
    if html is not None and corpus is not None:
        raise RegardError("a file has no model to run a corpus: leave out corpus=")
    told = load_story(Path(story) if isinstance(story, os.PathLike) else story) if story is not None else None
    if told is not None and not sources:
        texts, named = opening_texts(told)
        sources, model = tuple(texts[: 2 if html is not None else 1]), model or named
    exploration = exploration_of(sources, model, batch=batch, layer=layer, head=head, for_file=html is not None)
    exploration.story = told
    if corpus is not None:
        exploration.corpus = Corpus(Path(corpus))
    if html is not None:
        write_page(exploration, html)
        return None
    if not serves:
        from regard.explorer.notebook_widget import make_widget

        return make_widget(exploration)
    with needed("the explorer's server (a file, with html=, does not)"):
        from regard.explorer.server import serve

    serve(exploration, port=port, browser=browser)
    return None


def widget(
    *sources: Source,
    model: Any = None,
    batch: int = 0,
    layer: int | None = None,
    head: int | None = None,
) -> Any:
    """Return the explorer as a widget for a notebook; the parameters are those of `explore`."""
    from regard.explorer.notebook_widget import make_widget

    return make_widget(exploration_of(sources, model, batch=batch, layer=layer, head=head))


def exploration_of(
    sources: Sequence[Source],
    model: Any,
    *,
    batch: int = 0,
    layer: int | None = None,
    head: int | None = None,
    for_file: bool = False,
) -> Exploration:
    """Return the exploration of texts, run by `model`, and of traces; the parameters are those of `explore`.

    An error `for_file`, before any model runs, if a text is too long for one.
    """
    if sources and isinstance(sources[0], TrainingRun):
        if batch:
            raise RegardError(f"a training run is explored on one text, without a batch: leave out batch={batch}")
        return _exploration_of_training(sources[0], sources[1:], model, layer, head)
    if sources and isinstance(sources[0], StoredMap):
        if len(sources) > 1 or model is not None or layer is not None:
            raise RegardError("a stored map is explored alone: leave out other sources, model and layer")
        return StoredExploration(sources[0], batch=batch, head=head)
    pair = list(model) if isinstance(model, list | tuple) else [model] * max(1, len(sources))
    if len(sources) == 1 and len(pair) == 2 and isinstance(sources[0], str | Mapping):
        sources = [sources[0]] * 2
    check_num_runs(len(sources), len(pair))
    loaded: dict[str, Any] = {}
    models: list[Any] = []
    for source, source_model in zip(sources, pair, strict=True):
        if isinstance(source, str | Mapping) and source_model is None:
            source_model = "minilm"
        if isinstance(source, str | Mapping | Trace) and isinstance(source_model, str | os.PathLike):
            name = os.fspath(source_model)
            source_model = loaded[name] = loaded.get(name) or as_text_model(load(name))
        if isinstance(source, str | Mapping):
            _check_model(source_model)
            has_one_stack = not isinstance(source_model, EncoderDecoder)  # else layers are counted as they are shown
            if layer is not None and has_one_stack and (layer < 0 or not models):
                layer = resolve_index("layer", layer, range(source_model.config.num_layers))
            if for_file and isinstance(source, str):
                check_fits_file([len(source_model.tokenizer(source))])
            models.append(source_model)
        elif isinstance(source, Trace):
            if source_model is not None:
                _check_model(source_model)
                if source_model.name != source.model:
                    recorded_model = source.model or "no model"
                    raise RegardError(f"the trace is of {recorded_model}, not of {source_model.name}: give its model")
            models.append(source_model)
        else:
            raise RegardError(f"give texts or traces, not {type(source).__name__}")
    traces: list[Any] = [
        recorded(source_model, source, layer) if isinstance(source, str | Mapping) else source
        for source, source_model in zip(sources, models, strict=True)
    ]
    return Exploration(*traces, models=models, batch=batch, layer=layer, head=head)


def _exploration_of_training(
    run: TrainingRun, texts: Sequence[Source], model: Any, layer: int | None, head: int | None
) -> Exploration:
    if model is not None:
        raise RegardError("a training run has its models: leave out model")
    if len(texts) > 1 or not all(isinstance(text, str) for text in texts):
        raise RegardError("a training run is explored on one text, or on its own held-out one")
    return TrainingExploration(run, *(str(text) for text in texts), layer=layer, head=head)


def _check_model(model: Any) -> None:
    if isinstance(model, PretrainedModel):
        as_text_model(model)
    if not (callable(model) and all(hasattr(model, part) for part in ("name", "config", "tokenizer"))):
        raise RegardError(f"model is a model of regard or the name of one, got {model!r}")


def _in_notebook() -> bool:
    """Tell whether this runs in a notebook: Jupyter, VS Code or marimo."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())
