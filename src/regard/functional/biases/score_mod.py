"""Scores changed by a function of the score and its indices.

References
----------
Dong et al. (2024), "Flex Attention: a programming model for generating optimized attention kernels",
https://arxiv.org/abs/2412.05496.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, is_concretely_true, is_floating, widest_float
from regard.functional.biases.base import Bias
from regard.functional.masks.block_mask import batch_and_head_indices
from regard.functional.scores.layout import Index, ScoreLayout, broadcasts
from regard.functional.scores.part import ScorePart

ScoreModFunction: TypeAlias = Callable[[Any, Any, Any, Any, Any], Any]
"""``score_mod(score, b, h, q_idx, kv_idx)``: the score after scale and softcap to the score that is masked and
normalised. The indices count from 0 and are integer arrays that broadcast against the score."""


@dataclass(frozen=True, eq=False)
class ScoreMod(Bias):
    """A function of the scores, as in PyTorch's FlexAttention, in place of a bias.

    The kernel cannot call it, so that attention is computed block by block in the library of the arrays; what only adds
    to the scores (``derivative=1``) goes to the kernel as a bias.

    Parameters
    ----------
    score_mod : function
        ``score_mod(score, b, h, q_idx, kv_idx)`` returns the new scores, element by element. The score is an array
        ``... H R C`` of any block of the map, the indices are integer arrays of shapes ``... 1 1 1``, ``H 1 1``,
        ``R 1`` and ``1 C``. A score of −inf gets weight 0; keys or values that may not be finite are for a mask to
        hide.
    derivative : function or 1, optional
        That of `score_mod` with respect to the score, a function with the same arguments; 1: it adds a number that does
        not depend on the score. Without it `attention_vjp` refuses, as NumPy cannot differentiate a function.

    Examples
    --------
    >>> import numpy as np
    >>> from regard import attention_weights
    >>> x = np.zeros((2, 3))
    >>> attention_weights(x, x, bias=ScoreMod(lambda score, b, h, q_idx, kv_idx: score + np.log(3.0) * kv_idx))
    array([[0.25, 0.75],
           [0.25, 0.75]])
    """

    score_mod: ScoreModFunction
    derivative: ScoreModFunction | int | None = None
    indices: tuple[Array, Array] | None = None  # of batch entries and heads, of a slice of another layout
    differentiated = False
    parameter = None

    @property
    def adds(self) -> bool:
        """Whether the function only adds to the score."""
        return not callable(self.derivative) and self.derivative is not None

    @property
    def can_mask(self) -> bool:  # type: ignore[override]
        """Whether masked cells can be told from the indices alone."""
        return self.adds

    def __post_init__(self) -> None:
        if not callable(self.score_mod):
            raise RegardError(f"score_mod must be a function, got {self.score_mod!r}")
        if not callable(self.derivative) and self.derivative not in (None, 1):
            raise RegardError(f"derivative must be a function, or 1 where score_mod adds, got {self.derivative!r}")

    def check(self, layout: ScoreLayout) -> None:
        """Raise RegardError if the function, called at two corners of the map, does not add as `derivative` says."""
        if not self.adds or 0 in layout.shape:
            return
        for at in (slice(0, 1), slice(-1, None)):
            rows, cols = (slice(*at.indices(length)) for length in layout.shape[-2:])
            zero, one = (self._evaluate(self.score_mod, layout, rows, cols, score) for score in (0.0, 1.0))
            same = layout.xp.logical_or(zero == one, layout.xp.abs(one - zero - 1) < 1e-3 * (1 + layout.xp.abs(zero)))
            if is_concretely_true(~layout.xp.all(layout.xp.where(layout.xp.isinf(zero), zero == one, same))):
                raise RegardError("derivative=1 says that score_mod only adds to the score, but it does not")

    def values(self, layout: ScoreLayout, rows: Index, cols: Index) -> Array:
        """Return what is added, for a function that only adds."""
        added = self._evaluate(self.score_mod, layout, rows, cols, 0.0)
        return layout.xp.reshape(added, (1,) * (2 - added.ndim) + tuple(added.shape))

    def scores(self, layout: ScoreLayout, rows: Index, cols: Index, score: Array) -> Array:
        """Return the function of the scores of a block."""
        return self._evaluate(self.score_mod, layout, rows, cols, score)

    def d_score(self, layout: ScoreLayout, rows: Index, cols: Index, score: Array) -> Array:
        """Return the derivative at the scores of a block."""
        self.check_derivative()
        assert callable(self.derivative)
        return self._evaluate(self.derivative, layout, rows, cols, score)

    def take(self, part: ScorePart) -> ScoreMod:
        """Return the function of a part, called with the indices that its queries and keys have in the whole."""
        b, h = self.indices or batch_and_head_indices(part.layout)
        if not part.is_block:
            return replace(self, indices=(part.take(b), part.take(h)))
        derivative = _AtBlock(self.derivative, part) if callable(self.derivative) else self.derivative
        indices = (part.take(np.asarray(x), "... H R C") for x in (b, h))
        return ScoreMod(_AtBlock(self.score_mod, part), derivative, (*indices,))

    def check_derivative(self) -> None:
        """Raise RegardError if there is none."""
        if self.derivative is None:
            raise RegardError(
                "the gradient needs the derivative of score_mod: give bias=ScoreMod(score_mod, derivative=function), "
                "or derivative=1 where it only adds to the score"
            )

    def _evaluate(
        self, function: ScoreModFunction, layout: ScoreLayout, rows: Index, cols: Index, score: Array | float
    ) -> Array:
        xp = layout.xp
        scores = score
        if isinstance(score, float):
            scores = xp.asarray(score, dtype=widest_float(xp, layout.device), device=layout.device)
        b, h = self.indices or batch_and_head_indices(layout)
        indices = (layout.query_indices(rows), layout.key_indices(cols))
        with np.errstate(invalid="ignore", over="ignore"):  # masked scores may be anything
            modified = layout.to_namespace(as_array(function(scores, b, h, *indices), "score_mod's result"))
        if not is_floating(modified):
            raise RegardError(f"score_mod must return floating scores, got {modified.dtype}")
        shape = (*layout.shape[:-2], indices[0].shape[0], indices[1].shape[1])
        if not broadcasts(tuple(modified.shape), shape):
            raise RegardError(f"score_mod returned {tuple(modified.shape)} for scores {shape}")
        if isinstance(score, float):
            return modified
        return xp.broadcast_to(xp.astype(modified, score.dtype, copy=False), tuple(score.shape))


@dataclass(frozen=True, eq=False)
class _AtBlock:
    """A function of a score and its indices, called with the indices that a block has in the whole."""

    function: Callable[..., Any]
    part: ScorePart

    def __call__(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.function(score, b, h, q_idx + self.part.rows.start, kv_idx + self.part.cols.start)


def is_score_function(bias: Bias | None) -> TypeGuard[ScoreMod]:
    """Tell whether a bias is a function of the scores that does more than add to them."""
    return isinstance(bias, ScoreMod) and not bias.adds
