"""`capture`: the context in which the steps of a PyTorch model are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from regard._capture.interface import patched_interface, uses_attention_interface
from regard._capture.multihead import hooked_modules, multihead_modules
from regard._capture.recording import recording_of
from regard._capture.scopes import ModuleScopes
from regard._capture.session import CaptureSession
from regard._capture.steps import StepHooks, hooked_steps
from regard._capture.tokens import recorded_tokens
from regard._utils.errors import RegardError
from regard.functional.recorder import RunStopped
from regard.trace import Edit, Trace


class Capture(AbstractContextManager[Trace]):
    """The context of a capture, which is entered once."""

    def __init__(self, model: Any, context: AbstractContextManager[Trace]) -> None:
        self._model, self._context = type(model).__name__, context

    def __enter__(self) -> Trace:
        return self._context.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._context.__exit__(*error)

    def __repr__(self) -> str:
        return f"<capture of a {self._model}, a context: with regard.capture(model) as trace: model(...)>"


def capture(
    model: Any,
    tokenizer: Any = None,
    *,
    record: str | Iterable[str] | None = None,
    tensors: bool = False,
    edit: Mapping[str, Edit] | None = None,
    trace: Trace | None = None,
) -> Capture:
    """Record the steps of a PyTorch model, its attention by default, while the model runs inside the context.

    For a model of ``transformers`` a function is registered in the library's attention interface and named in the
    model's configuration; both are restored at the end. No module is patched. ``torch.nn.MultiheadAttention`` has no
    such interface: a forward pre-hook computes queries and keys a second time from the module's arguments. All other
    steps are recorded by hooks, which are removed at the end.

    Parameters
    ----------
    model : torch.nn.Module
        A model of ``transformers`` (5 or later) whose attention implementation is ``"sdpa"``, ``"eager"``, or
        ``"regard"`` of `regard.torch.register`, or that computes attention in its own code; any module that contains
        ``nn.MultiheadAttention``; or any with blocks of attention and feed-forward in a numbered list. On any device.
    tokenizer : optional
        A tokenizer of ``transformers`` or of regard: turns the model's ``input_ids`` into tokens, `trace.encodings`.
    record : str or iterable of str, optional
        What to record: names of steps as a trace of regard has them, ``"blocks.*.mlp.output"``, or groups, separated
        by commas: ``weights`` (the default), ``qkv``, ``context``, ``attn`` and ``mlp`` (what they add to the residual
        stream, before a norm or a factor), ``hidden`` (of the feed-forward networks, with ``gate`` and ``up``),
        ``experts``, ``residual`` (the stream after each attention and each block), ``embeddings``, ``norms`` (those
        outside the blocks), ``logits``. ``weights`` are kept as maps: queries and keys of each attention, O(n · D)
        numbers, from which any weight can be computed.
    tensors : bool
        Keep tensors of PyTorch on the way from the model's input to its output, instead of copies as arrays:
        ``torch.autograd.grad(loss, trace["blocks.3.output"])``, or ``trace["blocks.3.output"].grad`` after
        ``loss.backward()``. See `regard.trace.tensor_trace.TensorTrace`.
    edit : mapping of str to function, optional
        As for `Trace`; `regard.edits` has ready-made ones. Gradients go through them. With `tensors` a function gets
        a tensor and returns one. ``nn.MultiheadAttention`` takes no edits of ``q`` to ``context``.
    trace : Trace, optional
        In place of the three: where to record, and what. ``Trace(maps=True, only="*")`` records all that is found. At
        its ``stop`` the context ends.

    Yields
    ------
    Trace
        ``trace.map("blocks.3.attn")`` and ``trace["blocks.3.attn.weights"]`` as for a model of regard. An
        encoder–decoder has ``encoder.blocks.3.attn``, ``decoder.blocks.3.attn`` and ``decoder.blocks.3.cross_attn``; a
        module in no numbered layer is named by its path. A trace holds one run: a second run inside a context is an
        error, ``model.generate`` too (see the examples), unless only edits are asked for, ``record=()``. Runs in
        other threads are not recorded.

    Notes
    -----
    * With ``"sdpa"`` and ``"regard"`` the model's own function computes the output: not a bit changes. With
      ``"eager"``, which holds n² weights, regard's attention computes it (with softcap, sinks and windows), the same
      but for rounding, and so it does where weights are edited, or recorded with `tensors`; dropout is an error there,
      so call ``model.eval()``. ``output_attentions`` returns nothing inside the context.
    * A mask of n² cells becomes a range of keys for each query; a bias that depends on the distance only, as T5's, a
      number for each distance. Others are stored as they are.
    * The log-sum-exp is computed from queries and keys when a map is first read, or saved.
    * A fully masked row, of padding, has weights of 0; ``"eager"`` gives it uniform weights.
    * In a model that computes attention in its own code, ``weights`` are stored as arrays, and ``q`` and ``k`` are
      found only if they are not rotated after their projection.

    Raises
    ------
    RegardError
        The model has nothing that can be recorded; a name of `record` matched no step (the message names those that
        were found); a mask, an implementation or an argument is not supported; or the model is compiled, or a
        ``DataParallel``.

    Examples
    --------
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(**tokenizer("The cat sat on the mat", return_tensors="pt"))
    >>> trace["blocks.3.attn.weights"].shape                                          # doctest: +SKIP
    (1, 12, 8, 8)

    The gradient of a logit at the residual stream, with a head ablated:

    >>> edit = regard.edits.ablate((2, 7))                                            # doctest: +SKIP
    >>> with regard.capture(model, record="residual", tensors=True, edit=edit) as trace:  # doctest: +SKIP
    ...     model(ids).logits[0, -1, target].backward()
    >>> trace["blocks.3.output"].grad.shape                                           # doctest: +SKIP
    torch.Size([1, 8, 768])

    The attention of a generation: row i is that of the step that produced token i + 1.

    >>> ids = model.generate(**tokenizer("The cat", return_tensors="pt"), max_new_tokens=20)  # doctest: +SKIP
    >>> with regard.capture(model, tokenizer) as trace:                               # doctest: +SKIP
    ...     model(ids)
    """
    return Capture(model, _captured(model, tokenizer, record, tensors, edit, trace))


@contextmanager
def _captured(
    model: Any,
    tokenizer: Any,
    record: str | Iterable[str] | None,
    tensors: bool,
    edit: Mapping[str, Edit] | None,
    trace: Trace | None,
) -> Iterator[Trace]:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise RegardError(
            f"capture takes a torch.nn.Module, got {type(model).__name__}; a model of regard takes trace="
        )
    _check_runs_as_modules(model)
    recording = recording_of(trace, record, tensors, edit)
    if tensors and any(
        module.training and getattr(module, "gradient_checkpointing", False) for module in model.modules()
    ):
        raise RegardError(
            "gradient checkpointing computes blocks again, with other tensors than those that were recorded: call "
            "model.gradient_checkpointing_disable() first"
        )
    session = CaptureSession(recording, ModuleScopes(model))
    multihead = multihead_modules(model)
    through_interface = uses_attention_interface(model)
    steps = StepHooks(model, session)
    if not multihead and not through_interface and not steps.has_blocks:
        raise RegardError(
            f"{type(model).__name__} has no attention to record: it is not a model of transformers, contains no "
            f"nn.MultiheadAttention, and has no blocks with an attention in a numbered list"
        )
    with ExitStack() as stack:
        stack.enter_context(recorded_tokens(model, tokenizer, session))
        if recording.needs_steps or steps.has_own_attention:
            stack.enter_context(hooked_steps(steps))
        if multihead and recording.needs_attention:
            stack.enter_context(hooked_modules(multihead, session))
        if through_interface and recording.needs_attention:
            stack.enter_context(patched_interface(model, session))
        stack.enter_context(suppress(RunStopped))
        yield session.trace
    session.check_recorded()


def _check_runs_as_modules(model: Any) -> None:
    """Raise RegardError if a model does not run module by module in the thread that calls it."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.DataParallel):
            raise RegardError(
                "a DataParallel runs copies of its model in threads of their own: capture the model itself, its .module"
            )
        inner = getattr(module, "_orig_mod", None)
        if inner is not None or getattr(module, "_compiled_call_impl", None) is not None:
            raise RegardError(
                f"a compiled {type(module if inner is None else inner).__name__} does not call its modules one by one: "
                "capture the model as it was before torch.compile, its ._orig_mod"
            )
