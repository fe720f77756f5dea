"""The learning rate as a function of the step."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

from regard._utils.errors import RegardError

Schedule: TypeAlias = Literal["cosine", "constant"]


def schedule_factor(
    step: int, *, steps: int, warmup: int = 0, schedule: Schedule = "cosine", floor: float = 0.0
) -> float:
    """Return the factor of the learning rate in a step, from 0.

    It rises linearly to 1 in the first `warmup` steps, and then falls to `floor` along half a cosine, or stays.

    References
    ----------
    Loshchilov and Hutter (2017), "SGDR: stochastic gradient descent with warm restarts",
    https://arxiv.org/abs/1608.03983, for the cosine.

    Examples
    --------
    >>> [round(schedule_factor(step, steps=6, warmup=2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if schedule not in get_args(Schedule):
        raise RegardError(f"schedule must be one of {', '.join(get_args(Schedule))}, got {schedule!r}")
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    share = (step - warmup) / max(steps - warmup, 1)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))
