"""regard: self-attention you can see through.

>>> import regard
>>> regard.softmax([0.0, 0.0])
array([0.5, 0.5])

===========================  ========================================================================
`regard.attention` and more  the operator: output, weights, partial results, gradients; see `__all__`
`regard.load`                a pretrained model by name or folder
`regard.Trace`               every step of a run by name; `regard.edits` changes steps
`regard.explore`             a page in the browser for texts and traces
`regard.capture`             the attention of PyTorch and transformers modules as a trace
`regard.functional`          the mathematics: arrays in, arrays out
`regard.nn`                  layers
`regard.torch`               attention as an operator of PyTorch
`regard.jax`                 attention as a function of JAX
`regard.models`              model families, text generation, checkpoints
`regard.text`                tokenizers, chat templates, word vectors
`regard.train`               training of a model; `regard.training`: tasks, optimizer, checkpoints
`regard.metrics`             metrics of heads; rollout, flow, value norms
`regard.views`               what to show, as plain data
`regard.plot`                figures with matplotlib
`regard.terminal`            tables, heat maps and arithmetic as text
`regard.explorer`            the page of `regard.explore`: exploration, server, export, widget
===========================  ========================================================================

Names are imported on first use, so that ``import regard`` is fast.
"""

from __future__ import annotations

from regard._utils import hooks
from regard._utils.errors import RegardError
from regard._version import __version__

TYPE_CHECKING = False  # not of `typing`: no import may delay the handler of interrupts in `regard.cli.main`
if TYPE_CHECKING:
    from typing import Any

    from regard import (
        dask,
        explorer,
        functional,
        jax,
        metrics,
        models,
        nn,
        plot,
        terminal,
        text,
        torch,
        training,
        views,
    )
    from regard._capture.capture import capture
    from regard.explorer import explore
    from regard.functional import (
        Gradients,
        Partial,
        attention,
        attention_partial,
        attention_varlen,
        attention_varlen_vjp,
        attention_vjp,
        attention_weights,
        create_block_mask,
        explain_plan,
        linear_attention,
        linear_attention_vjp,
        merge_partials,
        softmax,
    )
    from regard.functional.native import num_threads, set_num_threads
    from regard.models import Model, load
    from regard.nn.kv_cache import KVCache
    from regard.text import Encoding
    from regard.trace import AttentionMap, Trace, edits
    from regard.training import train

__all__ = [
    "attention",
    "attention_weights",
    "attention_partial",
    "merge_partials",
    "Partial",
    "attention_vjp",
    "attention_varlen",
    "attention_varlen_vjp",
    "Gradients",
    "explain_plan",
    "create_block_mask",
    "linear_attention",
    "linear_attention_vjp",
    "AttentionMap",
    "KVCache",
    "softmax",
    "set_num_threads",
    "num_threads",
    "load",
    "Model",
    "Trace",
    "capture",
    "Encoding",
    "explore",
    "train",
    "RegardError",
    "functional",
    "nn",
    "text",
    "models",
    "metrics",
    "edits",
    "views",
    "plot",
    "terminal",
    "explorer",
    "training",
    "torch",
    "jax",
    "dask",
    "__version__",
]

_MODULE_OF = {
    name: module
    for module, names in {
        "functional": (
            "attention",
            "attention_weights",
            "attention_partial",
            "merge_partials",
            "Partial",
            "attention_vjp",
            "attention_varlen",
            "attention_varlen_vjp",
            "Gradients",
            "explain_plan",
            "create_block_mask",
            "linear_attention",
            "linear_attention_vjp",
            "softmax",
        ),
        "functional.native": ("set_num_threads", "num_threads"),
        "nn.kv_cache": ("KVCache",),
        "models": ("load", "Model"),
        "trace": ("AttentionMap", "Trace"),
        "text": ("Encoding",),
        "_capture": ("capture",),
        "explorer": ("explore",),
        "training": ("train",),
    }.items()
    for name in names
}
_PACKAGES = (
    "functional", "nn", "text", "models", "metrics", "training", "views", "plot", "terminal", "explorer", "torch",
    "jax", "dask",
)  # fmt: skip
_MODULES = {"edits": "trace.edits"} | {name: name for name in _PACKAGES}


def _import(module: str) -> Any:
    import importlib

    return importlib.import_module(f"regard.{module}")


hooks.explorer_widget = lambda *traces, **options: _import("explorer").widget(*traces, **options)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(_import(_MODULE_OF[name]), name)
        globals()[name] = value  # so that this function runs once a name
        return value
    if name in _MODULES:
        return _import(_MODULES[name])
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
