"""Hooks on the modules of a PyTorch model that record the steps outside of attention: streams, outputs, embeddings.

What a module's input is to the residual stream shows in the order of calls within a block. If a norm is called first,
norms come before the sublayers: the stream between attention and feed-forward is then the input of the last norm before
the feed-forward network's first map. Otherwise it is the input of that map.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from regard._capture.layout import AttentionSite, BlockLayout, ModelLayout, is_linear, layout_of
from regard._capture.own_attention import OwnAttention
from regard._capture.session import CaptureSession
from regard._utils.errors import RegardError

_KEYS = re.compile(r"(k|v|key|value)(_|$)")  # maps that may read another sequence than the stream


class BlockCall:
    """One call of a block: what has been called in it so far.

    Parameters
    ----------
    scope : str
        ``blocks.3``.
    x : tensor, ``B T E``
        Its input.
    """

    def __init__(self, scope: str, x: Any) -> None:
        self.scope, self.x = scope, x
        self.norm_first: bool | None = None  # unknown before the first call
        self.first_norm_input: Any = None
        self.attended: AttentionSite | None = None  # whose output has not been added to the stream as far as seen
        self.last_norm: tuple[Any, Any] | None = None  # and its input, since then
        self.replaced: tuple[Any, Any] | None = None  # a norm of the stream, and that of the edited stream
        self.done: set[str] = set()  # steps of an attention in the model's own code


class StepHooks:
    """The hooks of one capture, and the state of the run that they see."""

    def __init__(self, model: Any, session: CaptureSession) -> None:
        self._session, self._model = session, model
        self._layout: ModelLayout = layout_of(model, session.scopes)
        self._handles: list[Any] = []
        self._calls: list[BlockCall] = []  # those that run, the innermost last
        self._running: list[str] = []  # the stacks that run
        self._clear()

    @property
    def has_blocks(self) -> bool:
        """Whether the model has blocks of which steps can be recorded."""
        return bool(self._layout.blocks)

    @property
    def has_own_attention(self) -> bool:
        """Whether an attention is computed in the model's own code, and can be recorded by hooks."""
        return any(site.num_heads for block in self._layout.blocks for site in block.attentions)

    def register(self) -> None:
        """Put the hooks on the modules."""
        if any(
            getattr(part, "chunk_size_feed_forward", 0)
            for block in self._layout.blocks
            for part in block.module.modules()
        ):
            raise RegardError(
                "the model computes its feed-forward networks in chunks of tokens, so that their steps are not of one "
                "run: make it with chunk_size_feed_forward=0"
            )
        self._before(self._model, self._start_run)
        self._handles.append(self._model.register_forward_hook(self._when_over, always_call=True))
        self._after(self._model, self._record_logits)
        modules = dict(self._model.named_modules())
        for stack in self._session.scopes.stacks:
            if stack and len(self._session.scopes.stacks) > 1:
                self._before(modules[stack], partial(self._start_stack, stack))
                self._after(modules[stack], self._end_stack)
        for path, module, step in self._layout.embeddings:
            self._handles.append(module.register_forward_hook(partial(self._after_table, path, step)))
        for path, module in self._layout.norms:
            self._before(module, partial(self._before_outer_norm, path))
            self._after(module, partial(self._after_outer_norm, path))
        for path, module in self._layout.linears:
            self._after(module, partial(self._after_outer_linear, path))
        for block in self._layout.blocks:
            self._register_block(block)

    def remove(self) -> None:
        """Take the hooks off, and forget what they saw."""
        for handle in self._handles:
            handle.remove()
        self._clear()

    # Registering

    def _before(self, module: Any, hook: Callable[[Any], Any]) -> None:
        """Call `hook` with the first tensor that a module gets; what it returns replaces it, unless None."""

        def before(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if not self._session.is_recording():
                return None
            if args:
                changed = hook(args[0])
                return None if changed is None else ((changed, *args[1:]), options)
            name = next((name for name in ("hidden_states", "query", "x", *options) if name in options), None)
            changed = hook(None if name is None else options[name])
            return None if changed is None or name is None else (args, {**options, name: changed})

        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))

    def _after(self, module: Any, hook: Callable[[Any], Any]) -> None:
        """Call `hook` with what a module returns, the first of several; what it returns replaces it, unless None."""

        def after(_: Any, __: Any, output: Any) -> Any:
            if not self._session.is_recording():
                return None
            is_several = type(output) in (tuple, list) and len(output) > 0
            changed = hook(output[0] if is_several else output)
            if changed is None or not is_several:
                return changed
            return type(output)((changed, *output[1:]))

        self._handles.append(module.register_forward_hook(after))

    def _register_block(self, block: BlockLayout) -> None:
        def before(module: Any, hook: Callable[[Any], Any]) -> None:
            self._before(module, lambda x: hook(x) if self._calls else None)  # the part may be called by itself

        def after(module: Any, hook: Callable[[Any], Any]) -> None:
            self._after(module, lambda x: hook(x) if self._calls else None)

        self._before(block.module, partial(self._start_block, block))
        for norm in block.norms:
            before(norm, partial(self._before_norm, norm))
        for site in block.attentions:
            for linear, name in _linears(site):
                if _KEYS.match(name) is None:
                    before(linear, partial(self._before_map, site))
            if site.projection is not None:
                after(site.projection, partial(self._after_attention, site))
            if site.num_heads:
                OwnAttention(site, lambda: self._calls[-1], self._session).register(before, after)
        of_attention = {id(linear) for site in block.attentions for linear, _ in _linears(site)}
        for consumer in [x for x in (*block.linears, block.mixture) if x is not None and id(x) not in of_attention]:
            before(consumer, partial(self._before_map, None))
        if block.down is not None:
            before(block.down, partial(self._tap_in_block, "mlp.hidden", axes="... T F"))
        for step, linear in block.gates.items():
            after(linear, partial(self._after_gate, step))
        if block.router is not None:
            self._handles.append(block.router.register_forward_hook(self._after_router))
        if (last := block.down or block.mixture) is not None:
            after(last, partial(self._tap_in_block, "mlp.output"))
        self._after(block.module, self._end_block)

    # The run

    def _clear(self) -> None:
        self._calls.clear()
        self._running.clear()
        self._stream_ndim = 0  # of what the last block returned
        self._entered: set[str] = set()  # stacks of which a block has run
        self._tables: dict[str, dict[str, Any]] = {}  # of each stack what the tables of embeddings have returned
        self._has_stream: set[str] = set()  # stacks whose stream before the first block has been recorded

    def _start_run(self, _: Any) -> None:
        self._clear()

    def _when_over(self, *_: Any) -> None:
        if self._session.is_recording():
            self._clear()

    def _start_stack(self, stack: str, _: Any) -> None:
        self._running.append(stack)

    def _end_stack(self, _: Any) -> None:
        self._running.pop()

    def _record_logits(self, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if logits is not None and (changed := self._tap("logits", logits, "... T V")) is not None:
            output["logits"] = changed

    # Before the blocks and after them

    def _stack_of(self, path: str) -> str | None:
        """Return the stack to which a module outside of the blocks belongs; None if there are several such."""
        stacks = list(self._session.scopes.stacks)
        if len(stacks) == 1:
            return stacks[0]
        common = {stack: _common_length(path, stack) for stack in stacks}
        nearest = [stack for stack in stacks if common[stack] == max(common.values())]
        if len(nearest) == 1:
            return nearest[0]
        return self._running[-1] if self._running else None

    def _tap_outer(self, stack: str, step: str, value: Any) -> Any:
        return self._tap(f"{self._session.scopes.stacks[stack]}{step}", value, "... T E")

    def _after_table(self, path: str, step: str, module: Any, args: tuple[Any, ...], output: Any) -> Any:
        stack = self._stack_of(path)
        if not self._session.is_recording() or stack is None or stack in self._entered:
            return None
        tables = self._tables.setdefault(stack, {})
        width = next(iter(tables.values())).shape[-1] if tables else output.shape[-1]
        if step in tables or width != output.shape[-1]:  # that of a rotation is as wide as a head
            return None
        if step == "token_embeddings" and args and hasattr(module, "scalar_embed_scale"):
            tables[step] = output
            return self._after_scaled_table(stack, module, args[0])  # Gemma's
        changed = self._tap_outer(stack, step, output)
        tables[step] = output if changed is None else changed
        return changed

    def _after_scaled_table(self, stack: str, module: Any, ids: Any) -> Any:
        """Record the rows of a table that returns them scaled."""
        import torch

        rows = torch.nn.functional.embedding(ids, module.weight, module.padding_idx)
        changed = self._tap_outer(stack, "token_embeddings", rows)
        return None if changed is None else changed * module.embed_scale.to(module.weight.dtype)

    def _before_outer_norm(self, path: str, x: Any) -> Any:
        stack = self._stack_of(path)
        if stack not in self._tables or stack in self._entered or stack in self._has_stream:
            return None
        if x is self._tables[stack].get("token_embeddings"):  # the sum of one embedding
            return None
        return self._tap_outer(stack, "embeddings", x)

    def _after_outer_norm(self, path: str, x: Any) -> Any:
        stack = self._stack_of(path)
        if stack is None:
            return None
        if stack not in self._entered:
            is_new = stack in self._tables and stack not in self._has_stream
            self._has_stream |= {stack} if is_new else set()
            return self._tap_outer(stack, "normed_embeddings", x) if is_new else None
        parent = path.rpartition(".")[0]
        is_beside = not parent or stack == parent or stack.startswith(f"{parent}.")  # not that of a head
        is_of_all = getattr(x, "ndim", 0) == self._stream_ndim  # not that of one token, which stands for a picture
        return self._tap_outer(stack, "final_norm", x) if is_beside and is_of_all else None

    def _after_outer_linear(self, path: str, x: Any) -> Any:
        stack = self._stack_of(path)
        if stack is None or stack in self._entered or stack not in self._tables:
            return None
        self._has_stream.add(stack)
        return self._tap_outer(stack, "projected_embeddings", x)

    # In a block

    def _start_block(self, block: BlockLayout, x: Any) -> Any:
        changed = None
        if block.stack not in self._entered:
            self._entered.add(block.stack)
            if block.stack not in self._has_stream:
                changed = self._tap_outer(block.stack, "embeddings", x)
        self._calls.append(
            BlockCall(self._session.scopes.scope_of_block(block.module), x if changed is None else changed)
        )
        return changed

    def _end_block(self, x: Any) -> Any:
        call = self._calls.pop()
        self._stream_ndim = getattr(x, "ndim", 0)
        return self._tap(f"{call.scope}.output", x, "... T E")

    def _before_norm(self, norm: Any, x: Any) -> None:
        call = self._calls[-1]
        if call.norm_first is None:
            call.norm_first, call.first_norm_input = True, x
        call.last_norm = norm, x

    def _before_map(self, site: AttentionSite | None, x: Any) -> Any:
        """Before a linear map, of the attention `site` or of none, which may read the stream after an attention.

        Return what it is to read instead, None for x.
        """
        call = self._calls[-1]
        if call.norm_first is None:
            call.norm_first = False
        if call.attended is not None and call.attended is not site:
            self._before_reader(call, x)
        return call.replaced[1] if call.replaced is not None and call.replaced[0] is x else None

    def _before_reader(self, call: BlockCall, x: Any) -> None:
        """Record the stream after an attention, of which x is a norm, or which it is."""
        assert call.attended is not None
        step = f"{call.scope}.{call.attended.kind}_residual"
        call.attended = None
        if not call.norm_first:
            self._tap_in_place(step, x)
        elif call.last_norm is not None and call.last_norm[1] is not call.first_norm_input:  # else side by side
            norm, stream = call.last_norm
            if self._tap_in_place(step, stream):
                call.replaced = x, norm.forward(stream).view_as(x)

    def _after_attention(self, site: AttentionSite, x: Any) -> Any:
        call = self._calls[-1]
        call.attended, call.last_norm = site, None
        return self._tap_in_block(f"{site.kind}.output", x)

    def _after_gate(self, step: str, x: Any) -> Any:
        if step != "gate+up":
            return self._tap_in_block(f"mlp.{step}", x, "... T F")
        import torch

        halves = x.chunk(2, -1)
        changed = [
            self._tap_in_block(f"mlp.{name}", half, "... T F")
            for name, half in zip(("gate", "up"), halves, strict=True)
        ]
        if all(half is None for half in changed):
            return None
        return torch.cat([old if new is None else new for old, new in zip(halves, changed, strict=True)], -1)

    def _after_router(self, _: Any, __: Any, output: Any) -> Any:
        """Record the weights of the experts, 0 where one is not chosen, from those of the chosen ones."""
        import torch

        if not self._session.is_recording() or not self._calls or type(output) is not tuple or len(output) != 3:
            return None
        logits, probabilities, experts = output
        if experts.dtype.is_floating_point or probabilities.shape != experts.shape:
            return None
        weights = torch.zeros_like(logits, dtype=probabilities.dtype).scatter(-1, experts, probabilities)
        name = f"{self._calls[-1].scope}.mlp.experts"
        changed = self._tap_in_block("mlp.experts", weights, "... T X")
        if changed is None:
            return None
        if (changed * (weights == 0)).any():
            raise RegardError(f"the edit of {name} gives weight to experts that were not chosen: only the chosen run")
        return logits, changed.gather(-1, experts), experts

    # Taps

    def _tap_in_block(self, step: str, value: Any, axes: str = "... T E") -> Any:
        """Record a step of the innermost block; return its new value if it has one, in the shape that it had."""
        call = self._calls[-1]
        shape = value.shape
        value = _with_batch(value, call.x)
        changed = self._tap(f"{call.scope}.{step}", value, axes)
        return None if changed is None else changed.view(shape)

    def _tap_in_place(self, name: str, value: Any) -> bool:
        """Record a tensor that is used elsewhere too; write into it if it is edited, and return whether."""
        if not self._session.trace.plan(name).edited:
            self._tap(name, _with_batch(value, self._calls[-1].x), "... T E")
            return False
        # A copy, for what autograd keeps of the old value must not change
        changed = self._tap(name, _with_batch(value.clone(), self._calls[-1].x), "... T E")
        value.copy_(changed.view_as(value))
        return True

    def _tap(self, name: str, value: Any, axes: str) -> Any:
        """Record a step and return its new value; None if it is unchanged."""
        return self._session.tap(name, value, axes)


@contextmanager
def hooked_steps(hooks: StepHooks) -> Iterator[None]:
    """Record the steps of a model inside the context."""
    try:
        hooks.register()
        yield
    finally:
        hooks.remove()


def _linears(site: AttentionSite) -> list[tuple[Any, str]]:
    """Return the maps of an attention with their names; itself, if they are not called as modules."""
    if site.projection is site.module:
        return [(site.module, "")]
    return [(part, name.rpartition(".")[2]) for name, part in site.module.named_modules() if is_linear(part)]


def _with_batch(value: Any, x: Any) -> Any:
    """Return a tensor whose tokens are in one axis as ``B T …``, as the block's input has them."""
    if value.ndim == 2 and getattr(x, "ndim", 0) == 3 and value.shape[0] == x.shape[0] * x.shape[1]:
        return value.view(*x.shape[:2], -1)
    return value


def _common_length(path: str, stack: str) -> int:
    """Return how many parts at their beginning two paths have in common."""
    count = 0
    for one, other in zip(path.split("."), stack.split("."), strict=False):
        if one != other:
            break
        count += 1
    return count
