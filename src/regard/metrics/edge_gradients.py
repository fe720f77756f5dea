"""Gradients of a number with respect to what each head and each feed-forward layer reads from the residual stream."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from regard import functional as F
from regard.functional.recorder import Recorder, Scoped
from regard.functional.variable import Variable, plain
from regard.metrics.attribution_methods import numbers_of_batch
from regard.metrics.edge_runs import INPUTS, Reader
from regard.metrics.layer_maps import CancelCheck
from regard.metrics.replay import layer_of, shadow_of
from regard.nn import LayerNorm, Linear, MultiHeadAttention, RMSNorm
from regard.nn.fast_paths import CACHES
from regard.nn.gradients import one_number
from regard.text.encoding import Encoding


def edge_gradients(
    model: Any,
    encoding: Encoding,
    compute: Callable[[Any], Any],
    points: np.ndarray,
    weights: np.ndarray,
    check: CancelCheck = lambda: None,
) -> dict[Reader, np.ndarray]:
    """Return the gradient of a number with respect to the residual stream, as each part of the model reads it.

    Parameters
    ----------
    model : Decoder
    encoding : Encoding
        The text, of ``T`` tokens.
    compute : function
        From the output of one text to the number.
    points : array, ``P T E``
        Token embeddings, at each of which the gradient is taken, all in one batch.
    weights : array, ``P``
        Of the gradients in their sum, which is returned.
    check : function
        Called between the sublayers, on the way up and on the way back; what it raises ends the computation.

    Returns
    -------
    dict of Reader to array, ``T E``
        A key or a value that several heads share has a gradient for each of them.

    Raises
    ------
    RegardError
        `compute` returns something else than one number that depends on the embeddings.
    """
    tape = _Tape(points, weights, check)
    shadow = shadow_of(model, tape.replacement)
    vars(shadow)["_unrecorded_taps"] = ()  # of an estimate of memory, in which nothing is recorded
    output = shadow([encoding] * len(points), trace=tape)
    hidden = output.hidden
    leaf = tape.leaf(hidden, hidden, lambda d: d[None], (Reader("logits"),))
    object.__setattr__(output, "hidden", hidden + leaf)
    numbers = numbers_of_batch(output, compute)
    for number in numbers:
        one_number("the metric", number)
    return tape.gradients(sum(numbers[1:], numbers[0]))


class _Tape(Scoped, Recorder):
    """The recorder of a run on given token embeddings, and the numbers 0 that were added to what is read in it."""

    def __init__(self, points: np.ndarray, weights: np.ndarray, check: CancelCheck) -> None:
        self._points, self._weights, self._check = points, weights, check
        self._norms: dict[int, tuple[Any, Any, np.ndarray]] = {}  # by the id of what it returned: that, norm, input
        self._leaves: list[Variable] = []
        self._finish: list[Callable[[np.ndarray], dict[Reader, np.ndarray]]] = []  # from the gradient of each

    def __call__(self, name: str, value: Any, axes: str, *, owned: bool = False) -> Any:  # noqa: ARG002
        """Return the embeddings of the points in place of those of the text; check after each sublayer."""
        if self._prefix + name == "token_embeddings":
            return self._points.astype(value.dtype)
        if name != "output" or not isinstance(value, Variable):
            return value
        self._check()

        def pull_back(d: np.ndarray) -> tuple[np.ndarray]:
            self._check()
            return (d,)

        return Variable(value.value, (value,), pull_back)

    @property
    def layer(self) -> int:
        """The index of the block."""
        return layer_of(self._prefix)

    @property
    def kind(self) -> str:
        """The name of the sublayer."""
        return self._prefix.rstrip(".").rpartition(".")[2]

    def replacement(self, layer: Any, name: str, in_block: bool) -> Any:  # noqa: ARG002
        """Return what stands for a layer of the model."""
        if isinstance(layer, LayerNorm | RMSNorm):
            return _TapedNorm(layer, self)
        if isinstance(layer, MultiHeadAttention):
            return _taped_attention(layer, self)
        if isinstance(layer, Linear):
            return layer
        return _TapedSublayer(layer, self) if in_block else None

    def normed(self, norm: Any, x: Any) -> Any:
        """Return the norm of x, and remember that it is one."""
        y = norm(x)
        self._norms[id(y)] = y, norm, plain(x)
        return y

    def leaf(
        self, read: Any, like: Any, pull_back: Callable[[np.ndarray], np.ndarray], readers: tuple[Reader, ...]
    ) -> Variable:
        """Return a variable of zeros to be added to what readers made of what they read.

        Parameters
        ----------
        read : array, ``P T E``
            What they read.
        like : array
            To which it is added.
        pull_back : function
            From its gradient to that of `read` for each reader, ``R P T E``.
        readers : tuple of Reader
        """
        leaf = Variable(np.zeros(like.shape, like.dtype))
        _, norm, x = self._norms.get(id(read), (None, None, np.empty(0)))

        def finish(d: np.ndarray) -> dict[Reader, np.ndarray]:
            each = pull_back(d)
            if norm is not None:
                vjp = F.layer_norm_vjp if isinstance(norm, LayerNorm) else F.rms_norm_vjp
                each = vjp(np.ascontiguousarray(np.broadcast_to(x, each.shape)), norm.weight, eps=norm.eps)[1](each)[0]
            return dict(zip(readers, np.einsum("p,rpte->rte", self._weights.astype(each.dtype), each), strict=True))

        self._leaves.append(leaf)
        self._finish.append(finish)
        return leaf

    def gradients(self, number: Any) -> dict[Reader, np.ndarray]:
        """Return the gradients of the number."""
        by_reader: dict[Reader, np.ndarray] = {}
        for finish, gradient in zip(self._finish, F.gradients(number, self._leaves), strict=True):
            by_reader |= finish(gradient)
        return by_reader


class _TapedNorm:
    """A norm whose input is remembered."""

    bias = None  # read by `norm_arrays`, which finds no norm of the kernel

    def __init__(self, norm: LayerNorm | RMSNorm, tape: _Tape) -> None:
        self._norm, self._tape = norm, tape

    def __call__(self, x: Any) -> Any:
        return self._tape.normed(self._norm, x)


class _TapedSublayer:
    """A feed-forward layer, to whose input numbers are added."""

    def __init__(self, layer: Any, tape: _Tape) -> None:
        self._layer, self._tape = layer, tape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, x: Any, **options: Any) -> Any:
        tape = self._tape
        return self._layer(x + tape.leaf(x, x, lambda d: d[None], (Reader(tape.kind, tape.layer),)), **options)


class _TapedLinear:
    """The projection of the heads to queries, keys or values, to whose results numbers are added.

    Parameters
    ----------
    linear : Linear, ``E (G D)``
    kind : str
    heads : int
        ``H``, of which several may share a key: each gets a copy.
    count : int
        ``G``.
    """

    def __init__(self, linear: Linear, kind: str, heads: int, count: int, tape: _Tape) -> None:
        weight = np.asarray(linear.weight)
        of_heads = np.repeat(weight.reshape(len(weight), count, -1), heads // count, axis=1)  # E H D
        bias = linear.bias
        self.weight = of_heads.reshape(len(weight), -1)
        self.bias = None if bias is None else np.repeat(bias.reshape(count, -1), heads // count, axis=0).ravel()
        self._rows = np.ascontiguousarray(of_heads.transpose(1, 2, 0))  # H D E
        self._kind, self._tape = kind, tape

    def __call__(self, x: Any, **_: Any) -> Any:
        y = F.linear(x, self.weight, self.bias)
        count, width = self._rows.shape[:2]

        def pull_back(d: np.ndarray) -> np.ndarray:
            of_heads = np.ascontiguousarray(d.reshape(-1, count, width).transpose(1, 0, 2))  # H (P T) D
            each = [F.linear(one, rows) for one, rows in zip(of_heads, self._rows, strict=True)]
            return np.stack(each).reshape(count, *x.shape)

        readers = tuple(Reader(self._kind, self._tape.layer, head) for head in range(count))
        return y + self._tape.leaf(x, y, pull_back, readers)


def _taped_attention(attn: MultiHeadAttention, tape: _Tape) -> Any:
    """Return a copy of an attention whose heads have keys and values of their own."""
    taped = copy.copy(attn)
    counts = dict(zip(INPUTS, (attn.num_heads, attn.num_kv_heads, attn.num_kv_heads), strict=True))
    for kind, count in counts.items():
        linear = _TapedLinear(getattr(attn, f"{kind}_proj"), kind, attn.num_heads, count, tape)
        object.__setattr__(taped, f"{kind}_proj", linear)
    norm: Any = getattr(attn, "k_norm", None)
    if norm is not None and norm.weight.shape != (attn.head_dim,):  # of all heads
        weight = norm.weight.reshape(attn.num_kv_heads, -1).repeat(attn.num_heads // attn.num_kv_heads, axis=0)
        norm = copy.copy(norm)
        object.__setattr__(norm, "weight", weight.reshape(-1, *norm.weight.shape[1:]))
        object.__setattr__(taped, "k_norm", norm)
    vars(taped).update(dict.fromkeys(CACHES))
    return taped
