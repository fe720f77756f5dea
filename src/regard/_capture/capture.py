"""`capture`: the context in which the attention of a PyTorch model is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from regard._capture.interface import patched_interface, uses_attention_interface
from regard._capture.multihead import hooked_modules, multihead_modules
from regard._capture.scopes import ModuleScopes
from regard._capture.session import CaptureSession
from regard._capture.tokens import recorded_tokens
from regard._utils.errors import RegardError
from regard.functional.recorder import RunStopped
from regard.trace import Trace


@contextmanager
def capture(model: Any, tokenizer: Any = None, *, trace: Trace | None = None) -> Iterator[Trace]:
    """Record every attention of a PyTorch model while the model runs inside the context.

    For a model of ``transformers`` a function is registered in the library's attention interface and named in the
    model's configuration; both are restored at the end. No module is patched. ``torch.nn.MultiheadAttention`` has no
    such interface: a forward pre-hook computes queries and keys a second time from the module's arguments.

    Parameters
    ----------
    model : torch.nn.Module
        A model of ``transformers`` (5 or later) whose attention implementation is ``"sdpa"``, ``"eager"``, or
        ``"regard"`` of `regard.torch.register`; or any module that contains ``nn.MultiheadAttention``. On any device.
    tokenizer : optional
        A tokenizer of ``transformers`` or of regard: turns the model's ``input_ids`` into tokens, `trace.encodings`.
    trace : Trace, optional
        Where to record, and what. ``Trace(maps=True, only="*weights")`` by default: queries and keys of each attention,
        O(n · D) numbers, from which any weight can be computed. ``Trace(maps=True)`` also stores ``q``, ``k``, ``v``
        and ``context`` as arrays. The edits of a trace edit the model's run, and gradients go through
        them (see `Trace`); ``nn.MultiheadAttention`` takes none. At its ``stop`` the context ends.

    Yields
    ------
    Trace
        ``trace.map("blocks.3.attn")`` and ``trace["blocks.3.attn.weights"]`` as for a model of regard. An
        encoder–decoder has ``encoder.blocks.3.attn``, ``decoder.blocks.3.attn`` and ``decoder.blocks.3.cross_attn``; a
        module in no numbered layer is named by its path. A trace holds one run: a second run inside a context is an
        error, ``model.generate`` too (see the examples).

    Notes
    -----
    * With ``"sdpa"`` and ``"regard"`` the model's own function computes the output: not a bit changes. With
      ``"eager"``, which holds n² weights, regard's attention computes it (with softcap, sinks and windows), the same
      but for rounding; dropout is an error there, so call ``model.eval()``. ``output_attentions`` returns nothing
      inside the context.
    * A mask of n² cells becomes a range of keys for each query; a bias that depends on the distance only, as T5's, a
      number for each distance. Others are stored as they are.
    * The log-sum-exp is computed from queries and keys when a map is first read, or saved.
    * A fully masked row, of padding, has weights of 0; ``"eager"`` gives it uniform weights.

    Raises
    ------
    RegardError
        The model has no attention that can be recorded, or ran without any; a mask, an implementation or an argument
        is not supported.

    Examples
    --------
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(**tokenizer("The cat sat on the mat", return_tensors="pt"))
    >>> trace["blocks.3.attn.weights"].shape                                          # doctest: +SKIP
    (1, 12, 8, 8)

    The attention of a generation: row i is that of the step that produced token i + 1.

    >>> ids = model.generate(**tokenizer("The cat", return_tensors="pt"), max_new_tokens=20)  # doctest: +SKIP
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(ids)
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise RegardError(
            f"capture takes a torch.nn.Module, got {type(model).__name__}; a model of regard takes trace="
        )
    multihead = multihead_modules(model)
    through_interface = uses_attention_interface(model)
    if not multihead and not through_interface:
        raise RegardError(
            f"{type(model).__name__} has no attention to record: it is not a model of transformers and contains no "
            f"nn.MultiheadAttention"
        )
    session = CaptureSession(Trace(maps=True, only="*weights") if trace is None else trace, ModuleScopes(model))
    with ExitStack() as stack:
        stack.enter_context(recorded_tokens(model, tokenizer, session))
        if multihead:
            stack.enter_context(hooked_modules(multihead, session))
        if through_interface:
            stack.enter_context(patched_interface(model, session))
        stack.enter_context(suppress(RunStopped))
        yield session.trace
    session.check_recorded()
