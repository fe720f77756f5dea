"""From texts and traces to the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from regard._errors import RegardError
from regard.models import load
from regard.trace import Trace
from regard.web._exploration import Exploration, steps_shown
from regard.web._page import write_page


def explore(
    *sources: Trace | str,
    model: Any = "minilm",
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
    model : Model or str
        What runs a text, or ran a trace; a name loads it. A trace without its model is shown, and cannot be edited.
    html : path, optional
        Write one file that works offline, and return.
    port : int, optional
        From which on a free one is looked for.
    browser : bool
        Whether to open the browser.
    batch : int
        Which text of a batch.
    layer, head : int, optional
        What the page opens with; by default a head that gives little to special tokens.

    Returns
    -------
    widget or None
        In a notebook, the widget to be shown; else None, after Ctrl-C.

    Raises
    ------
    RegardError
        There is nothing to explore; or the page is too large for a file.
    """
    exploration = exploration_of(sources, model, batch=batch, layer=layer, head=head)
    if html is not None:
        write_page(exploration, html)
        return None
    if _in_notebook():
        from regard.web._widget import make_widget

        return make_widget(exploration)
    from regard.web._server import serve

    serve(exploration, port=port, browser=browser)
    return None


def widget(*traces: Trace, model: Any = None, batch: int = 0, layer: int | None = None, head: int | None = None) -> Any:
    """Return the page as a widget for a notebook; the parameters are those of `explore`."""
    from regard.web._widget import make_widget

    return make_widget(exploration_of(traces, model, batch=batch, layer=layer, head=head))


def exploration_of(
    sources: Sequence[Trace | str], model: Any, *, batch: int = 0, layer: int | None = None, head: int | None = None
) -> Exploration:
    """Return the exploration of texts, which `model` runs, and of traces."""
    if len(sources) not in (1, 2):
        raise RegardError(f"one text or trace is explored, or two side by side; got {len(sources)}")
    loaded = _once(lambda: load(model) if isinstance(model, str | os.PathLike) else model)
    traces, models = [], []
    for source in sources:
        if isinstance(source, str):
            traces.append(recorded(loaded(), source))
            models.append(loaded())
        elif isinstance(source, Trace):
            traces.append(source)
            models.append(None if isinstance(model, str | os.PathLike) else model)
        else:
            raise RegardError(f"a text or a trace is explored, not {type(source).__name__}")
    return Exploration(*traces, models=models, batch=batch, layer=layer, head=head)


def recorded(model: Any, text: str, layer: int | None = None) -> Trace:
    """Return what a model computes of a text, as far as the page shows it; of a long text of one layer, if it is given.

    Raises
    ------
    RegardError
        The text is none that the model reads, or its vectors leave the range of numbers.
    """
    encoding = model.tokenizer(text)
    only = None if layer is None else layer % model.config.num_layers
    trace = Trace(maps=True, only=steps_shown(len(encoding), only))
    with np.errstate(all="ignore"):
        hidden = model(encoding, trace=trace).hidden
    if not np.isfinite(hidden).all():
        raise RegardError(f"the vectors of {model.name} leave the range of {hidden.dtype}: its numbers are too large")
    return trace


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    made: list[Any] = []

    def get() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return get


def _in_notebook() -> bool:
    """Tell whether a notebook runs this: Jupyter, VS Code or marimo."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())
