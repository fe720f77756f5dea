"""From texts and traces to the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from regard._utils.errors import RegardError
from regard.explorer.exploration import Exploration
from regard.explorer.export_html import write_page
from regard.explorer.run import steps_shown
from regard.explorer.validation import check_sides
from regard.models import load
from regard.models.base import run_traced
from regard.trace import Trace
from regard.views.trace_access import resolve_index


def explore(
    *sources: Trace | str,
    model: Any = None,
    html: str | os.PathLike[str] | None = None,
    port: int | None = None,
    browser: bool = True,
    batch: int = 0,
    layer: int | None = None,
    head: int | None = None,
) -> Any:
    """Open a page where the attention of a text can be walked through, from all heads to the steps of one weight.

    Parameters
    ----------
    *sources : Trace or str
        One run or text, or two side by side. Record a run with ``Trace(maps=True)``.
    model : Model or str, or two of them
        What runs a text, by default "minilm"; or what ran a trace, without which it is shown and cannot be edited. A
        name is loaded. Two models are for the two sources, one after the other, or both for the one text that there is.
    html : path, optional
        Write one file that works offline, and return.
    port : int, optional
        From which on a free one is looked for, for the server that is there without `html` and outside of notebooks.
    browser : bool
        Whether to open the browser; likewise.
    batch : int
        Which text of a batch.
    layer, head : int, optional
        What the page opens with; by default a head that gives little to special tokens. Of a text of more than 4,096
        tokens the layer that is given is recorded alone.

    Returns
    -------
    widget or None
        In a notebook, the widget to be shown; else None, after Ctrl-C.

    Raises
    ------
    RegardError
        There is nothing to explore; or the page is too large for a file.
    """
    serves = html is None and not _in_notebook()
    if not serves and (port is not None or not browser):
        raise RegardError("port and browser are for a server: leave them out with html, and in a notebook")
    exploration = exploration_of(sources, model, batch=batch, layer=layer, head=head)
    if html is not None:
        write_page(exploration, html)
        return None
    if not serves:
        from regard.explorer.notebook_widget import make_widget

        return make_widget(exploration)
    from regard.explorer.server import serve

    serve(exploration, port=port, browser=browser)
    return None


def widget(*traces: Trace, model: Any = None, batch: int = 0, layer: int | None = None, head: int | None = None) -> Any:
    """Return the page as a widget for a notebook; the parameters are those of `explore`."""
    from regard.explorer.notebook_widget import make_widget

    return make_widget(exploration_of(traces, model, batch=batch, layer=layer, head=head))


def exploration_of(
    sources: Sequence[Trace | str], model: Any, *, batch: int = 0, layer: int | None = None, head: int | None = None
) -> Exploration:
    """Return the exploration of texts, which `model` runs, and of traces; the parameters are those of `explore`."""
    pair = list(model) if isinstance(model, list | tuple) else [model] * max(1, len(sources))
    if len(sources) == 1 and len(pair) == 2 and isinstance(sources[0], str):
        sources = [sources[0]] * 2
    check_sides(len(sources), len(pair))
    loaded: dict[str, Any] = {}
    traces: list[Trace] = []
    models = []
    for source, its in zip(sources, pair, strict=True):
        if isinstance(source, str) and its is None:
            its = "minilm"
        if isinstance(source, str | Trace) and isinstance(its, str | os.PathLike):
            name = os.fspath(its)
            its = loaded[name] = loaded.get(name) or load(name)
        if isinstance(source, str):
            _check_model(its)
            if layer is not None and (layer < 0 or not traces):  # said before anything is run
                layer = resolve_index("layer", layer, range(its.config.num_layers))
            traces.append(recorded(its, source, layer))
            models.append(its)
        elif isinstance(source, Trace):
            traces.append(source)
            if its is not None:
                _check_model(its)
                if its.name != source.model:
                    its_own = source.model or "no model"
                    raise RegardError(f"the trace is of {its_own}, not of {its.name}: give its own model")
            models.append(its)
        else:
            raise RegardError(f"a text or a trace is explored, not {type(source).__name__}")
    return Exploration(*traces, models=models, batch=batch, layer=layer, head=head)


def _check_model(model: Any) -> None:
    if not (callable(model) and all(hasattr(model, part) for part in ("name", "config", "tokenizer"))):
        raise RegardError(f"a text is run by a model of regard, or the name of one; got {model!r}")


def recorded(model: Any, text: str, layer: int | None = None) -> Trace:
    """Return what a model computes of a text, as far as the page shows it; of a long text of one layer, if it is given.

    Raises
    ------
    RegardError
        The text is none that the model reads, or its vectors leave the range of numbers.
    """
    encoding = model.tokenizer(text)
    return run_traced(model, encoding, Trace(maps=True, only=steps_shown(len(encoding), layer)))


def _in_notebook() -> bool:
    """Tell whether a notebook runs this: Jupyter, VS Code or marimo."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())
