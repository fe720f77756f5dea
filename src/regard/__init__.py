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
from regard._utils.lazy import attach
from regard._version import __version__ as __version__

__getattr__, __dir__ = attach(__name__)


def _torch() -> object:
    from regard.torch.framework import FRAMEWORK

    return FRAMEWORK


def _jax() -> object:
    from regard.jax.framework import FRAMEWORK

    return FRAMEWORK


hooks.frameworks = {"torch": _torch, "jax": _jax, "jaxlib": _jax}
hooks.explorer_widget = lambda *traces, **options: __getattr__("explorer").widget(*traces, **options)
hooks.metrics = lambda: __getattr__("metrics")
