"""The context in which a model of PyTorch is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from regard._capture.interface import listening, uses_attention_interface
from regard._capture.multihead import hooked, plain_attentions
from regard._capture.names import Names
from regard._capture.notes import Notes
from regard._capture.texts import texts_of
from regard._utils.errors import RegardError
from regard.trace import Trace


@contextmanager
def capture(model: Any, tokenizer: Any = None, *, trace: Trace | None = None) -> Iterator[Trace]:
    """Record what every attention of a PyTorch model does while the model runs inside the context.

    A model of ``transformers`` is looked at through the library's own attention interface: a function of ours is
    registered there under a name of its own, the model's configuration names it inside the context, and everything is
    put back at the end. No module is patched. ``torch.nn.MultiheadAttention`` has no such interface; there a forward
    pre-hook computes queries and keys once more from what the module is given.

    Parameters
    ----------
    model : torch.nn.Module
        A model of ``transformers`` (5 or later) that computes attention by ``"sdpa"`` or ``"eager"``; or any module
        with ``nn.MultiheadAttention`` in it. On any device.
    tokenizer : optional
        Gives the tokens of the ids that the model is called with, as `trace.encodings`: a tokenizer of
        ``transformers``, or one of regard.
    trace : Trace, optional
        Where to record, and what. ``Trace(maps=True, only="*weights")`` by default: queries and keys of each attention,
        O(n · D) numbers, from which any weight can be had. ``Trace(maps=True)`` also keeps ``q``, ``k``, ``v`` and
        ``context`` as arrays. The edits of a trace edit the model's run; ``nn.MultiheadAttention`` takes none.

    Yields
    ------
    Trace
        ``trace.map("blocks.3.attn")`` and ``trace["blocks.3.attn.weights"]`` as of a model of regard. A model with an
        encoder and a decoder has ``encoder.blocks.3.attn``, ``decoder.blocks.3.attn`` and
        ``decoder.blocks.3.cross_attn``; a module that stands in no numbered layer has its own path for a name. A trace
        holds one run: the second inside a context is an error, so of ``model.generate`` too (see the examples).

    Notes
    -----
    * With ``"sdpa"`` the model's own function computes the output: not a bit changes. With ``"eager"``, which holds n²
      weights, regard's attention computes it (with softcap, sinks and windows), the same but for rounding; dropout is
      refused there, so call ``model.eval()``. ``output_attentions`` finds nothing inside the context.
    * A mask of n² cells that the model makes is brought down to a span of keys for each query; a bias that depends on
      the distance alone, as T5's, to a number for each distance. Others are kept as they are.
    * The log-sum-exp is worked out of queries and keys when a map is first looked at, or saved.
    * A row of padding, which sees nothing, has weights of 0; ``"eager"`` gives it the mean of everything.

    Raises
    ------
    RegardError
        The model has no attention that can be looked at, or no attention came by while it ran; a mask, an
        implementation or an argument is of a kind that is not known.

    Examples
    --------
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(**tokenizer("The cat sat on the mat", return_tensors="pt"))
    >>> trace["blocks.3.attn.weights"].shape                                          # doctest: +SKIP
    (1, 12, 8, 8)

    What a model looked at when it went on with a text: row i when it produced token i + 1.

    >>> ids = model.generate(**tokenizer("The cat", return_tensors="pt"), max_new_tokens=20)  # doctest: +SKIP
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(ids)
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise RegardError(
            f"capture looks into a torch.nn.Module, got {type(model).__name__}; load() gives a Trace itself"
        )
    plain = plain_attentions(model)
    through_interface = uses_attention_interface(model)
    if not plain and not through_interface:
        raise RegardError(
            f"{type(model).__name__} has no attention to look at: it is no model of transformers, and no "
            f"nn.MultiheadAttention is in it"
        )
    notes = Notes(Trace(maps=True, only="*weights") if trace is None else trace, Names(model))
    with ExitStack() as stack:
        stack.enter_context(texts_of(model, tokenizer, notes))
        if plain:
            stack.enter_context(hooked(plain, notes))
        if through_interface:
            stack.enter_context(listening(model, notes))
        yield notes.trace
    notes.check()
